/* Description: a store holds what the checkpoint held, and is refused when any of it is not as written. */
#define _GNU_SOURCE
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>
#include <xxhash.h>

#include "blocks/store/format.h"
#include "tests/unit/support/store_fixture.h"

static void round_trip(void **state)
{
    (void)state;
    for (int direct = 1; direct >= 0; direct--) {
        swn_fix.fault.no_direct = !direct;
        swn_store_make(NULL);
        struct swn_store *s = swn_store_made();
        assert_true(direct || s->file.direct_fd == -1);
        swn_store_is_right(s);
        static const char *const names[] = {"a", "b", "c", "d.e", "", "tied"};
        static const uint32_t depths[] = {3, 2, 3, 3, 1, 2}, extents[] = {2, 2, 3, 3, 1, 0};
        assert_int_equal(s->layer_count, 6);
        for (size_t i = 0; i < 6; i++) {
            assert_string_equal(s->layers[i].name, names[i]);
            assert_int_equal(s->layers[i].depth, depths[i]);
            assert_int_equal(s->layers[i].extents, extents[i]);
            assert_int_equal(s->layers[i].flops, 0);
        }
        struct stat st;
        assert_int_equal(stat(swn_fix.path, &st), 0);
        assert_int_equal(st.st_mode & 0777, 0600);
        assert_int_equal(s->identity.ino, st.st_ino);
        swn_store_close(s, &swn_fix.fault.io);
        assert_int_equal(swn_store_files(), 2);
    }
}

static void ordered(void **state)
{
    (void)state;
    static const char *const order[] = {"tied", "d.e", "no such layer", "a", "d.e"};
    swn_store_make(&(struct swn_store_opts){.order = order, .order_count = 5});
    struct swn_store *s = swn_store_made();
    swn_store_is_right(s);
    static const char *const names[] = {"tied", "d.e", "a", "b", "c", ""};
    for (size_t i = 0; i < 6; i++)
        assert_string_equal(s->layers[i].name, names[i]);
    /* A shared storage belongs to the layer that now comes first. */
    assert_int_equal(s->layers[0].extents, 2);
    assert_int_equal(s->layers[3].extents, 1);
    assert_int_equal(s->layers[5].extents, 0);

    /* Cut anew from the store, without the checkpoint, it is what a build in that order would have given. */
    char other[700];
    snprintf(other, sizeof other, "%s/other", swn_fix.dir);
    assert_int_equal(swn_store_recut(s, &swn_fix.fault.io, other, NULL, swn_fix.why), 0);
    static const char *const back[] = {"a", "b", "c", "d.e", "", "tied"};
    struct swn_store_opts opts = {.order = back, .order_count = 6};
    assert_int_equal(swn_store_recut(s, &swn_fix.fault.io, other, &opts, swn_fix.why), 0);
    swn_store_close(s, &swn_fix.fault.io);
    swn_store_make(&opts);
    s = swn_store_made();
    swn_store_is_right(s);
    struct swn_store *cut = NULL;
    assert_int_equal(swn_store_open(&cut, &swn_fix.fault.io, other, swn_fix.why), 0);
    swn_store_is_right(cut);
    assert_int_equal(cut->extent_count, s->extent_count);
    for (size_t i = 0; i < s->extent_count; i++) {
        struct swn_store_extent x = cut->extents[i], y = s->extents[i];
        assert_memory_equal(x.sums, y.sums, (x.bytes + SWN_CHUNK - 1) / SWN_CHUNK * sizeof *x.sums);
        x.sums = y.sums = NULL;
        assert_memory_equal(&x, &y, sizeof x);
    }
    swn_store_close(cut, &swn_fix.fault.io);
    swn_store_close(s, &swn_fix.fault.io);
    assert_int_equal(unlink(other), 0);
}

static void recut_checks(void **state)
{
    (void)state;
    swn_store_make(NULL);
    struct swn_store *s = swn_store_made();
    char other[700];
    snprintf(other, sizeof other, "%s/other", swn_fix.dir);
    int fd = open(swn_fix.path, O_WRONLY | O_CLOEXEC);
    uint64_t at = s->extents[2].off + 99;
    unsigned char byte = (unsigned char)(swn_fix.model.bytes[s->extents[2].source_off + 99] ^ 1);
    assert_int_equal(pwrite(fd, &byte, 1, (off_t)at), 1);
    close(fd);
    assert_int_equal(swn_store_recut(s, &swn_fix.fault.io, other, NULL, swn_fix.why), -EILSEQ);
    assert_non_null(strstr(swn_fix.why, "extent 2"));
    swn_store_close(s, &swn_fix.fault.io);
    assert_int_equal(swn_store_files(), 2);
}

static void finds_exactly(void **state)
{
    (void)state;
    swn_store_make(NULL);
    struct swn_store *s = swn_store_made();
    for (size_t i = 0; i < s->extent_count; i++) {
        const struct swn_store_extent *e = &s->extents[i];
        assert_null(swn_store_find(s, 1, e->source_off, e->bytes));
        assert_null(swn_store_find(s, 0, e->source_off + 1, e->bytes));
        assert_null(swn_store_find(s, 0, e->source_off - 1, e->bytes));
        assert_null(swn_store_find(s, 0, e->source_off, e->bytes + 1));
        assert_true(!e->bytes || !swn_store_find(s, 0, e->source_off, e->bytes - 1));
    }
    assert_null(swn_store_find(s, 0, UINT64_MAX, UINT64_MAX));
    swn_store_close(s, &swn_fix.fault.io);
}

static uint64_t tables_end(const unsigned char *bytes)
{
    return ((const struct swn_disk_header *)(const void *)bytes)->data_off;
}

static void refuse(const char *what, size_t n)
{
    struct swn_store *s = NULL;
    swn_fix.why[0] = 0;
    int rc = swn_store_open(&s, &swn_fix.fault.io, swn_fix.path, swn_fix.why);
    if (!rc)
        fail_msg("opened with %s %zu", what, n);
    assert_true(rc == -EINVAL || rc == -EILSEQ || rc == -ENOTSUP);
    assert_non_null(strstr(swn_fix.why, swn_fix.path));
    assert_null(s);
}

/* Not through the swn_fix.model, whose extents would make it long: the rule is about the file's length alone. */
static void any_other_length(void **state)
{
    (void)state;
    size_t size;
    swn_fix.model.c.tensor_count = 2;
    swn_store_make(NULL);
    unsigned char *bytes = swn_store_slurp(swn_fix.path, &size);
    assert_true(size == 12288 && tables_end(bytes) == 4096);
    assert_int_equal(truncate(swn_fix.path, (off_t)size + 1), 0);
    refuse("length", size + 1);
    for (size_t n = size; n-- > 0;) {
        assert_int_equal(truncate(swn_fix.path, (off_t)n), 0);
        refuse("length", n);
    }
    free(bytes);
}

static void any_flipped_bit(void **state)
{
    (void)state;
    size_t size;
    swn_fix.model.c.tensor_count = 3;
    swn_store_make(NULL);
    unsigned char *bytes = swn_store_slurp(swn_fix.path, &size);
    int fd = open(swn_fix.path, O_WRONLY | O_CLOEXEC);
    for (size_t bit = 0; bit < tables_end(bytes) * 8; bit++) {
        unsigned char byte = (unsigned char)(bytes[bit / 8] ^ 1 << bit % 8);
        assert_int_equal(pwrite(fd, &byte, 1, (off_t)(bit / 8)), 1);
        refuse("bit", bit);
        assert_int_equal(pwrite(fd, &bytes[bit / 8], 1, (off_t)(bit / 8)), 1);
    }
    close(fd);
    free(bytes);
}

static void bit_in_an_extent(void **state)
{
    (void)state;
    size_t size;
    swn_store_make(NULL);
    struct swn_store *s = swn_store_made();
    unsigned char *bytes = swn_store_slurp(swn_fix.path, &size);
    for (size_t i = 0; i < s->extent_count; i++) {
        const struct swn_store_extent *e = &s->extents[i];
        for (uint64_t bit = 0; bit < e->bytes * 8; bit += 1 + e->bytes / 7) {
            bytes[e->off + bit / 8] ^= (unsigned char)(1 << bit % 8);
            assert_int_equal(swn_store_check(e, bytes + e->off), -EILSEQ);
            bytes[e->off + bit / 8] ^= (unsigned char)(1 << bit % 8);
        }
        assert_int_equal(swn_store_check(e, bytes + e->off), 0);
    }
    free(bytes);
    swn_store_close(s, &swn_fix.fault.io);
}

/* Whoever wrote the checksums himself gets no further: what opens is in bounds. */
static void lies_with_good_checksums(void **state)
{
    (void)state;
    static const uint32_t values[] = {0, 1, 2, 0x7fffffff, 0x80000000, 0xffffffff};
    size_t size, opened = 0, refused = 0;
    swn_store_make(NULL);
    unsigned char *bytes = swn_store_slurp(swn_fix.path, &size);
    struct swn_disk_header *h = (struct swn_disk_header *)(void *)bytes;
    size_t end = tables_end(bytes);
    unsigned char *copy = malloc(end);
    memcpy(copy, bytes, end);
    for (size_t at = 8; at < end; at += 4) {
        for (size_t v = 0; v < sizeof values / sizeof *values; v++) {
            memcpy(bytes, copy, end);
            memcpy(bytes + at, &values[v], 4);
            uint64_t tables = h->data_off > sizeof *h && h->data_off <= size ? h->data_off - sizeof *h : 0;
            h->tables_checksum = XXH3_64bits(bytes + sizeof *h, tables);
            h->checksum = XXH3_64bits(h, offsetof(struct swn_disk_header, checksum));
            int fd = open(swn_fix.path, O_WRONLY | O_CLOEXEC);
            assert_int_equal(pwrite(fd, bytes, end, 0), (ssize_t)end);
            close(fd);
            struct swn_store *s;
            if (swn_store_open(&s, &swn_fix.fault.io, swn_fix.path, swn_fix.why)) {
                refused++;
                continue;
            }
            opened++; /* checksums of extents, identities, names and dtypes may be anything */
            for (size_t i = 0; i < s->extent_count; i++)
                assert_true(s->extents[i].off % 4096 == 0 && s->extents[i].off + s->extents[i].bytes <= size &&
                            s->extents[i].layer < s->layer_count && s->extents[i].source < s->source_count);
            for (size_t i = 0; i < s->tensor_count; i++) {
                const struct swn_store_tensor *t = &s->tensors[i];
                assert_true(t->extent < s->extent_count && t->layer < s->layer_count && strlen(t->name) < size);
                uint64_t last = t->off;
                for (uint32_t k = 0; k < t->ndim; k++)
                    last += t->shape[k] ? (uint64_t)(t->shape[k] - 1) * (uint64_t)t->stride[k] : 0;
                assert_true(last <= s->extents[t->extent].bytes || !t->shape[0] || !t->shape[t->ndim - 1]);
            }
            swn_store_close(s, &swn_fix.fault.io);
        }
    }
    assert_true(refused > 1000 && opened > 100);
    free(copy);
    free(bytes);
}

static ssize_t only_tables(void *ctx, int fd, void *buf, size_t len, uint64_t off)
{
    assert_true(off + len <= 8192);
    return swn_io_sys.pread(ctx, fd, buf, len, off);
}

static void opening_reads_no_weights(void **state)
{
    (void)state;
    swn_store_make(NULL);
    struct swn_io io = swn_io_sys;
    struct swn_store *s;
    io.pread = only_tables;
    assert_int_equal(swn_store_open(&s, &io, swn_fix.path, swn_fix.why), 0);
    assert_true(s->extents[0].off <= 8192 && s->total_bytes > 2 << 20);
    swn_store_close(s, &io);
}

static void not_stores(void **state)
{
    (void)state;
    struct swn_store *s;
    char name[700];
    assert_int_equal(swn_store_open(&s, &swn_fix.fault.io, swn_fix.path, swn_fix.why), -ENOENT);
    assert_int_equal(swn_store_open(&s, &swn_fix.fault.io, swn_fix.dir, swn_fix.why), -EINVAL);
    assert_int_equal(swn_store_open(&s, &swn_fix.fault.io, swn_fix.model.path, swn_fix.why), -EINVAL);
    assert_non_null(strstr(swn_fix.why, "not a block store"));
    snprintf(name, sizeof name, "%s/fifo", swn_fix.dir);
    assert_int_equal(mkfifo(name, 0600), 0);
    assert_int_equal(swn_store_open(&s, &swn_fix.fault.io, name, swn_fix.why), -EINVAL);
    unlink(name);
}

struct waiter {
    pthread_mutex_t lock;
    pthread_cond_t cond;
    int left, failed;
};

static void fetched(struct swn_fetch_job *j, int err)
{
    struct waiter *w = j->user;
    pthread_mutex_lock(&w->lock);
    w->failed += err != 0;
    w->left--;
    pthread_cond_signal(&w->cond);
    pthread_mutex_unlock(&w->lock);
}

/* Where the file system takes no direct reads, a ring reads through the page cache, and that must wait for the disk. */
static void ring_without_direct(void **state)
{
    (void)state;
    struct waiter w = {PTHREAD_MUTEX_INITIALIZER, PTHREAD_COND_INITIALIZER, 0, 0};
    swn_fix.fault.no_direct = 1;
    swn_store_make(NULL);
    struct swn_store *s = swn_store_made();
    assert_int_equal(s->file.direct_fd, -1);
    assert_int_equal(fcntl(s->file.fd, F_GETFL) & O_NONBLOCK, 0);
    assert_int_equal(posix_fadvise(s->file.fd, 0, 0, POSIX_FADV_DONTNEED), 0);
    struct swn_fetch *f;
    struct swn_fetch_job *jobs = calloc(s->extent_count, sizeof *jobs);
    struct swn_fetch_opts opts = {.io = &swn_fix.fault.io, .best_path = SWN_FETCH_URING};
    assert_int_equal(swn_fetch_start(&f, &opts), 0);
    alarm(60); /* a hang is a failure */
    for (size_t i = 0; i < s->extent_count; i++) {
        size_t len = (s->extents[i].bytes + 4095) / 4096 * 4096;
        if (!len)
            continue;
        pthread_mutex_lock(&w.lock);
        w.left++;
        pthread_mutex_unlock(&w.lock);
        jobs[i] = (struct swn_fetch_job){.file = &s->file,
                                         .off = s->extents[i].off,
                                         .len = len,
                                         .buf = aligned_alloc(4096, len),
                                         .done = fetched,
                                         .user = &w};
        assert_int_equal(swn_fetch_submit(f, &jobs[i], 1), 0);
    }
    pthread_mutex_lock(&w.lock);
    while (w.left)
        pthread_cond_wait(&w.cond, &w.lock);
    pthread_mutex_unlock(&w.lock);
    assert_int_equal(w.failed, 0);
    swn_fetch_pause(f); /* as fork does */
    swn_fetch_resume(f);
    swn_fetch_stop(f);
    alarm(0);
    for (size_t i = 0; i < s->extent_count; i++) {
        if (jobs[i].buf)
            assert_int_equal(swn_store_check(&s->extents[i], jobs[i].buf), 0);
        free(jobs[i].buf);
    }
    free(jobs);
    swn_store_close(s, &swn_fix.fault.io);
}

/* A store says what it lacks of its checkpoint, also when it is cut anew; one that lacks nothing is as it was before
 * that could be said. */
static void what_it_lacks(void **state)
{
    (void)state;
    char again[700];
    size_t size;
    struct swn_store *s, *from;
    swn_store_make(NULL);
    unsigned char *bytes = swn_store_slurp(swn_fix.path, &size);
    assert_int_equal(((struct swn_disk_header *)(void *)bytes)->version,
                     SWN_STORE_VERSION + SWN_STORE_HEADS + SWN_STORE_SUMS);
    free(bytes);
    s = swn_store_made();
    assert_true(s->skipped_count == 0 && s->skipped == NULL);
    swn_store_close(s, &swn_fix.fault.io);

    swn_fix.model.c.skipped_count = 7;
    swn_fix.model.c.skipped = "fc.weight: a quantized tensor";
    assert_int_equal(swn_store_draft(&s, &swn_fix.model.c, NULL, swn_fix.why), 0);
    assert_true(s->skipped_count == 7 && !strcmp(s->skipped, "fc.weight: a quantized tensor"));
    swn_store_close(s, &swn_fix.fault.io);
    for (int copies = SWN_COPIES_NONE; copies <= SWN_COPIES_NARROW; copies++) {
        struct swn_store_opts opts = {.copies = (enum swn_store_compressed)copies};
        swn_store_make(&opts);
        from = swn_store_made();
        swn_store_is_right(from);
        snprintf(again, sizeof again, "%s/again", swn_fix.dir);
        assert_int_equal(swn_store_recut(from, &swn_fix.fault.io, again, &opts, swn_fix.why), 0);
        assert_int_equal(swn_store_open(&s, &swn_fix.fault.io, again, swn_fix.why), 0);
        assert_true(from->skipped_count == 7 && s->skipped_count == 7);
        assert_string_equal(from->skipped, "fc.weight: a quantized tensor");
        assert_string_equal(s->skipped, from->skipped);
        swn_store_close(s, &swn_fix.fault.io);
        swn_store_close(from, &swn_fix.fault.io);
    }
    /* It must say how many, and which. */
    bytes = swn_store_slurp(again, &size);
    struct swn_disk_header *h = (struct swn_disk_header *)(void *)bytes;
    unsigned char *count = bytes + sizeof *h + h->sources * sizeof(struct swn_disk_source) +
                           h->layers * sizeof(struct swn_disk_layer) + h->extents * sizeof(struct swn_disk_extent) +
                           h->tensors * sizeof(struct swn_disk_tensor);
    assert_int_equal(*count, 7);
    *count = 0;
    h->tables_checksum = XXH3_64bits(bytes + sizeof *h, h->data_off - sizeof *h);
    h->checksum = XXH3_64bits(h, offsetof(struct swn_disk_header, checksum));
    swn_store_spit(again, bytes, size);
    assert_int_equal(swn_store_open(&s, &swn_fix.fault.io, again, swn_fix.why), -EINVAL);
    free(bytes);
    assert_int_equal(unlink(again), 0);
}

/* Each extent's first block has a checksum of its own; stores of before they had are read as they are. */
static void heads(void **state)
{
    (void)state;
    size_t size;
    struct swn_store *s;
    swn_store_make(NULL);
    s = swn_store_made();
    assert_true(s->has_heads);
    unsigned char *bytes = swn_store_slurp(swn_fix.path, &size);
    unsigned whole = 0;
    for (size_t i = 0; i < s->extent_count; i++) {
        const struct swn_store_extent *x = &s->extents[i];
        size_t len = x->bytes < 4096 ? x->bytes : 4096;
        assert_int_equal(x->head, XXH3_64bits(bytes + x->off, len));
        whole += x->bytes > 4096;
    }
    assert_in_range(whole, 1, s->extent_count - 1);
    swn_store_close(s, &swn_fix.fault.io);

    struct swn_disk_header *h = (struct swn_disk_header *)(void *)bytes;
    unsigned char *at = bytes + sizeof *h + h->sources * sizeof(struct swn_disk_source) +
                        h->layers * sizeof(struct swn_disk_layer) + h->extents * sizeof(struct swn_disk_extent) +
                        h->tensors * sizeof(struct swn_disk_tensor);
    size_t less = h->extents * sizeof(struct swn_disk_head), behind = h->data_off - (size_t)(at - bytes) - less;
    memmove(at, at + less, behind);
    memset(at + behind, 0, less);
    h->version -= SWN_STORE_HEADS;
    h->tables_checksum = XXH3_64bits(bytes + sizeof *h, h->data_off - sizeof *h);
    h->checksum = XXH3_64bits(h, offsetof(struct swn_disk_header, checksum));
    swn_store_spit(swn_fix.path, bytes, size);
    free(bytes);
    s = swn_store_made();
    assert_true(!s->has_heads && !s->extents[0].head);
    swn_store_is_right(s);
    swn_store_close(s, &swn_fix.fault.io);
}

/* Every part of an extent has a sum, by which it is told from all others; stores of before there were sums are read. */
static void sums_of_parts(void **state)
{
    (void)state;
    size_t size;
    swn_store_make(NULL);
    struct swn_store *s = swn_store_made();
    unsigned char *bytes = swn_store_slurp(swn_fix.path, &size);
    uint64_t count = 0;
    for (size_t i = 0; i < s->extent_count; i++) {
        const struct swn_store_extent *x = &s->extents[i];
        uint64_t padded = (x->bytes + 4095) / 4096 * 4096, parts = (padded + SWN_CHUNK - 1) / SWN_CHUNK;
        unsigned char *held = bytes + x->off;
        count += parts;
        assert_int_equal(swn_store_check_part(x, 0, held, padded), 0);
        for (uint64_t k = 0; k < parts; k++) {
            size_t at = k * SWN_CHUNK, len = padded - at < SWN_CHUNK ? padded - at : SWN_CHUNK;
            assert_int_equal(x->sums[k], XXH3_64bits(held + at, len));
            assert_int_equal(swn_store_check_part(x, at, held + at, len), 0);
            held[at + len - 1] ^= 0x10; /* also in the padding */
            assert_int_equal(swn_store_check_part(x, at, held + at, len), -EILSEQ);
            held[at + len - 1] ^= 0x10;
        }
        assert_int_equal(swn_store_check_part(x, 4096, held, 4096), -EINVAL);
        assert_int_equal(swn_store_check_part(x, 0, held, padded + SWN_CHUNK), -EINVAL);
        assert_int_equal(swn_store_check_part(x, parts * SWN_CHUNK + SWN_CHUNK, held, 1), -EINVAL);
    }
    swn_store_close(s, &swn_fix.fault.io);

    struct swn_disk_header *h = (struct swn_disk_header *)(void *)bytes;
    unsigned char *at = bytes + sizeof *h + h->sources * sizeof(struct swn_disk_source) +
                        h->layers * sizeof(struct swn_disk_layer) + h->extents * sizeof(struct swn_disk_extent) +
                        h->tensors * sizeof(struct swn_disk_tensor) + h->extents * sizeof(struct swn_disk_head);
    size_t less = count * sizeof(struct swn_disk_sum), behind = h->data_off - (size_t)(at - bytes) - less;
    memmove(at, at + less, behind);
    memset(at + behind, 0, less);
    h->version -= SWN_STORE_SUMS;
    h->tables_checksum = XXH3_64bits(bytes + sizeof *h, h->data_off - sizeof *h);
    h->checksum = XXH3_64bits(h, offsetof(struct swn_disk_header, checksum));
    swn_store_spit(swn_fix.path, bytes, size);
    s = swn_store_made();
    assert_null(s->extents[0].sums);
    assert_int_equal(swn_store_check_part(&s->extents[0], 0, bytes + s->extents[0].off, 4096), -EINVAL);
    swn_store_is_right(s);
    swn_store_close(s, &swn_fix.fault.io);
    free(bytes);
}

static void impossible_checkpoints(void **state)
{
    (void)state;
    swn_fix.model.tensors[3].off = 20; /* four bytes beyond its storage */
    assert_int_equal(swn_store_build(&swn_fix.model.c, &swn_fix.fault.io, swn_fix.path, NULL, swn_fix.why), -EINVAL);
    swn_fix.model.tensors[3].off = 12;
    swn_fix.model.tensors[3].storage = SWN_TEST_STORAGES;
    assert_int_equal(swn_store_build(&swn_fix.model.c, &swn_fix.fault.io, swn_fix.path, NULL, swn_fix.why), -EINVAL);
    swn_fix.model.tensors[3].storage = 3;
    swn_fix.model.storages[SWN_TEST_STORAGES - 1].bytes++;
    assert_int_equal(swn_store_build(&swn_fix.model.c, &swn_fix.fault.io, swn_fix.path, NULL, swn_fix.why), -EINVAL);
    swn_fix.model.storages[SWN_TEST_STORAGES - 1].bytes--;
    swn_fix.model.shapes[0][0] = INT64_MAX;
    swn_fix.model.strides[0][0] = INT64_MAX;
    assert_int_equal(swn_store_build(&swn_fix.model.c, &swn_fix.fault.io, swn_fix.path, NULL, swn_fix.why), -EINVAL);
    assert_int_equal(swn_store_files(), 1);
    swn_fix.model.c.tensor_count = 0;
    swn_store_make(NULL); /* nothing at all is a store, too */
    struct swn_store *s = swn_store_made();
    assert_int_equal(s->layer_count + s->extent_count + s->tensor_count, 0);
    assert_int_equal(s->total_bytes, 4096);
    swn_store_close(s, &swn_fix.fault.io);
}

static void verifies_in_pieces(void **state)
{
    (void)state;
    swn_store_make(NULL);
    struct swn_store *s = swn_store_made();
    size_t largest = 0;
    for (size_t i = 0; i < s->extent_count; i++) {
        assert_int_equal(swn_store_verify_extent(s, &swn_fix.fault.io, &s->extents[i], 1), 0);
        assert_int_equal(swn_store_verify_extent(s, &swn_fix.fault.io, &s->extents[i], 16 << 20), 0);
        largest = s->extents[i].bytes > s->extents[largest].bytes ? i : largest;
    }
    const struct swn_store_extent *x = &s->extents[largest];
    assert_true(x->bytes > 4096); /* more than one piece */
    swn_fault_arm(&swn_fix.fault, 2, 1, -EIO);
    assert_int_equal(swn_store_verify_extent(s, &swn_fix.fault.io, x, 4096), -EIO);
    assert_true(swn_fix.fault.fired > 0);
    swn_fault_arm(&swn_fix.fault, 0, 0, 0);
    unsigned char byte;
    int fd = open(swn_fix.path, O_RDWR | O_CLOEXEC);
    off_t last = (off_t)(x->off + x->bytes - 1);
    assert_int_equal(pread(fd, &byte, 1, last), 1);
    byte ^= 16;
    assert_int_equal(pwrite(fd, &byte, 1, last), 1);
    assert_int_equal(swn_store_verify_extent(s, &swn_fix.fault.io, x, 4096), -EILSEQ);
    assert_int_equal(ftruncate(fd, (off_t)x->off), 0);
    assert_int_equal(swn_store_verify_extent(s, &swn_fix.fault.io, x, 4096), -ENODATA);
    close(fd);
    swn_store_close(s, &swn_fix.fault.io);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, swn_store_setup, swn_store_teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(round_trip),
        TEST(ordered),
        TEST(recut_checks),
        TEST(finds_exactly),
        cmocka_unit_test_setup_teardown(any_other_length, swn_store_setup_in_memory, swn_store_teardown),
        cmocka_unit_test_setup_teardown(any_flipped_bit, swn_store_setup_in_memory, swn_store_teardown),
        TEST(bit_in_an_extent),
        TEST(verifies_in_pieces),
        TEST(lies_with_good_checksums),
        TEST(opening_reads_no_weights),
        TEST(not_stores),
        TEST(ring_without_direct),
        TEST(what_it_lacks),
        TEST(heads),
        TEST(sums_of_parts),
        TEST(impossible_checkpoints),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
