/* tests/unit/support/store_fixture.c - see store_fixture.h. */
#define _GNU_SOURCE
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "tests/unit/support/store_fixture.h"

struct swn_store_fixture swn_fix;

static int setup_in(const char *where)
{
    snprintf(swn_fix.dir, sizeof swn_fix.dir, "%s/swn-store.XXXXXX", where);
    if (!mkdtemp(swn_fix.dir))
        return -1;
    snprintf(swn_fix.path, sizeof swn_fix.path, "%s/model.store", swn_fix.dir);
    swn_test_model_make(&swn_fix.model, swn_fix.dir);
    swn_fault_init(&swn_fix.fault);
    return 0;
}

int swn_store_setup(void **state)
{
    (void)state;
    const char *tmp = getenv("TMPDIR");
    return setup_in(tmp && *tmp ? tmp : "/var/tmp");
}

int swn_store_setup_in_memory(void **state)
{
    return access("/dev/shm", W_OK) ? swn_store_setup(state) : setup_in("/dev/shm");
}

int swn_store_teardown(void **state)
{
    (void)state;
    swn_test_model_free(&swn_fix.model);
    unlink(swn_fix.path);
    return rmdir(swn_fix.dir) || swn_fix.fault.open_files;
}

void swn_store_make(const struct swn_store_opts *opts)
{
    int rc = swn_store_build(&swn_fix.model.c, &swn_fix.fault.io, swn_fix.path, opts, swn_fix.why);
    if (rc)
        fail_msg("build: %d %s", rc, swn_fix.why);
}

struct swn_store *swn_store_made(void)
{
    struct swn_store *s = NULL;
    int rc = swn_store_open(&s, &swn_fix.fault.io, swn_fix.path, swn_fix.why);
    if (rc)
        fail_msg("open: %d %s", rc, swn_fix.why);
    return s;
}

unsigned char *swn_store_slurp(const char *name, size_t *size)
{
    struct stat st;
    int fd = open(name, O_RDONLY | O_CLOEXEC);
    assert_true(fd >= 0);
    assert_int_equal(fstat(fd, &st), 0);
    *size = (size_t)st.st_size;
    unsigned char *bytes = malloc(*size + 1);
    assert_non_null(bytes);
    assert_int_equal(read(fd, bytes, *size), (ssize_t)*size);
    close(fd);
    return bytes;
}

void swn_store_spit(const char *name, const void *bytes, size_t size)
{
    int fd = open(name, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    assert_true(fd >= 0);
    assert_int_equal(write(fd, bytes, size), (ssize_t)size);
    close(fd);
}

int swn_store_files(void)
{
    int n = 0;
    DIR *d = opendir(swn_fix.dir);
    assert_non_null(d);
    for (struct dirent *e; (e = readdir(d));)
        n += e->d_name[0] != '.' || strlen(e->d_name) > 2;
    closedir(d);
    return n;
}

void swn_store_is_right(const struct swn_store *s)
{
    size_t size;
    unsigned char *bytes = swn_store_slurp(s->path, &size);
    assert_int_equal(s->total_bytes, size);
    assert_int_equal(s->source_count, 1);
    assert_string_equal(s->sources[0].path, swn_fix.model.path);
    assert_memory_equal(&s->sources[0].identity, &swn_fix.model.file.identity, sizeof swn_fix.model.file.identity);
    assert_int_equal(s->tensor_count, SWN_TEST_TENSORS);
    assert_int_equal(s->extent_count, SWN_TEST_STORAGES - 1); /* the unused one is left out */
    uint64_t end = s->extents[0].off;
    for (size_t i = 0; i < s->extent_count; i++) {
        const struct swn_store_extent *e = &s->extents[i];
        assert_int_equal(e->off % 4096, 0);
        assert_int_equal(e->off, end);
        end = (e->off + e->bytes + 4095) / 4096 * 4096;
        assert_memory_equal(bytes + e->off, swn_fix.model.bytes + e->source_off, e->bytes);
        for (uint64_t k = e->off + e->bytes; k < end; k++)
            assert_int_equal(bytes[k], 0);
        assert_int_equal(swn_store_check(e, bytes + e->off), 0);
        assert_ptr_equal(swn_store_find(s, 0, e->source_off, e->bytes), e);
    }
    assert_int_equal(end, size);
    for (size_t i = 0; i < s->tensor_count; i++) {
        const struct swn_store_tensor *t = &s->tensors[i];
        size_t k = 0;
        while (strcmp(swn_fix.model.tensors[k].name, t->name) != 0)
            assert_true(++k < SWN_TEST_TENSORS);
        const struct swn_ckpt_tensor *m = &swn_fix.model.tensors[k];
        assert_int_equal(t->dtype, m->dtype);
        assert_int_equal(t->ndim, m->ndim);
        assert_memory_equal(t->shape, m->shape, m->ndim * sizeof *m->shape);
        assert_memory_equal(t->stride, m->stride, m->ndim * sizeof *m->stride);
        assert_int_equal(t->off, m->off);
        assert_int_equal(s->extents[t->extent].source_off, swn_fix.model.storages[m->storage].off);
        size_t name_len = strlen(s->layers[t->layer].name);
        assert_memory_equal(s->layers[t->layer].name, t->name, name_len);
        assert_true(name_len ? t->name[name_len] == '.' : !strchr(t->name, '.'));
    }
    free(bytes);
}
