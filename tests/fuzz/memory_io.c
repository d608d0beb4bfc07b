/* memory_io.c - see memory_io.h. */
#include "tests/fuzz/memory_io.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define DESCRIPTOR 1000000 /* never a real one */

static int open_memory(void *ctx, const char *path, int flags, mode_t mode)
{
    (void)ctx, (void)path, (void)flags, (void)mode;
    return DESCRIPTOR;
}

static int close_memory(void *ctx, int fd)
{
    (void)ctx;
    if (fd != DESCRIPTOR)
        abort();
    return 0;
}

static ssize_t pread_memory(void *ctx, int fd, void *buf, size_t len, uint64_t off)
{
    const struct memory_file *f = ctx;
    if (fd != DESCRIPTOR)
        abort();
    if (off >= f->size)
        return 0;
    if (len > f->size - off)
        len = f->size - off;
    memcpy(buf, f->bytes + off, len);
    return (ssize_t)len;
}

static int fstat_memory(void *ctx, int fd, struct stat *st)
{
    (void)fd;
    memset(st, 0, sizeof(*st));
    st->st_mode = S_IFREG | 0600;
    st->st_size = (off_t)((const struct memory_file *)ctx)->size;
    return 0;
}

struct swn_io memory_io(struct memory_file *file)
{
    struct swn_io io = swn_io_sys;
    io.ctx = file;
    io.open = open_memory;
    io.close = close_memory;
    io.pread = pread_memory;
    io.fstat = fstat_memory;
    return io;
}

static void must(int what)
{
    if (!what)
        abort();
}

static void check_view(const struct swn_ckpt_tensor *t, const struct swn_ckpt_storage *s)
{
    unsigned __int128 count = 1, last = 0;
    must(swn_dtype_size(t->dtype) > 0);
    for (uint32_t i = 0; i < t->ndim; i++) {
        must(t->shape[i] >= 0 && t->stride[i] >= 0);
        count = count > UINT64_MAX ? count : count * (uint64_t)t->shape[i];
        if (t->shape[i])
            last += (unsigned __int128)(t->shape[i] - 1) * (uint64_t)t->stride[i];
    }
    if (count)
        must(t->off + (last + 1) * swn_dtype_size(t->dtype) <= s->bytes);
}

static int name_order(const void *a, const void *b)
{
    return strcmp(*(char *const *)a, *(char *const *)b);
}

void check_checkpoint(const struct swn_checkpoint *c, size_t file_bytes)
{
    char **names = malloc((c->tensor_count + 1) * sizeof(*names));
    must(names != NULL && c->file_count == 1 && (c->skipped_count > 0) == (c->skipped != NULL));
    for (size_t i = 0; i < c->storage_count; i++) {
        const struct swn_ckpt_storage *s = &c->storages[i];
        must(s->file == 0 && s->off <= file_bytes && s->bytes <= file_bytes - s->off && s->name != NULL);
        must(i == 0 || c->storages[i - 1].off + c->storages[i - 1].bytes <= s->off);
    }
    for (size_t i = 0; i < c->tensor_count; i++) {
        must(c->tensors[i].storage < c->storage_count);
        check_view(&c->tensors[i], &c->storages[c->tensors[i].storage]);
        names[i] = c->tensors[i].name;
    }
    qsort(names, c->tensor_count, sizeof(*names), name_order);
    for (size_t i = 1; i < c->tensor_count; i++)
        must(strcmp(names[i - 1], names[i]) != 0);
    free(names);
}

double cpu_s(void)
{
    struct timespec t;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

void check_time(double begin_s, size_t bytes)
{
    must(cpu_s() - begin_s <= 0.1 + (double)bytes / (1 << 20));
}
