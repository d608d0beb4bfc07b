/* blocks/checkpoint/builder.c - see blocks/checkpoint/builder.h: messages, exact reads, and the growing checkpoint. */
#define _GNU_SOURCE /* qsort_r */
#include "blocks/checkpoint/builder.h"

#include <errno.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <xxhash.h>

#include "base/errmsg.h"

#define MAX_READ ((size_t)1 << 30) /* the kernel reads no more than this at a time */
#define RETRIES 16                 /* of a read that was interrupted */

int swn_ckpt_fail(char why[SWN_ERRMSG], int err, const char *format, ...)
{
    if (why) {
        va_list args;
        va_start(args, format);
        vsnprintf(why, SWN_ERRMSG, format, args);
        va_end(args);
        swn_one_line(why);
    }
    return err;
}

int swn_ckpt_fail_memory(char why[SWN_ERRMSG], const char *path, int err)
{
    if (err == -E2BIG)
        return swn_ckpt_fail(why, -EINVAL, "%s: its description is larger than swapnet allows", path);
    return swn_ckpt_fail(why, err, "%s: no memory for its description", path);
}

int swn_ckpt_read(const struct swn_ckpt_source *src, void *buf, size_t len, uint64_t off, char why[SWN_ERRMSG])
{
    int tries = 0;
    for (size_t done = 0; done < len;) {
        size_t want = len - done < MAX_READ ? len - done : MAX_READ;
        ssize_t got = src->io->pread(src->io->ctx, src->fd, (char *)buf + done, want, off + done);
        if ((got == -EINTR || got == -EAGAIN) && ++tries < RETRIES)
            continue;
        if (got < 0)
            return swn_ckpt_fail(why, (int)got, "%s: cannot be read at offset %" PRIu64 ": %s", src->path, off + done,
                                 strerror((int)-got));
        if (got == 0)
            return swn_ckpt_fail(why, -EINVAL, "%s: ends at offset %" PRIu64 ", which should not be its end", src->path,
                                 off + done);
        done += (size_t)got;
    }
    return 0;
}

int swn_ckpt_new(struct swn_ckpt_builder **out, size_t files, char why[SWN_ERRMSG])
{
    struct swn_ckpt_builder *b = calloc(1, sizeof(*b));
    if (b) {
        b->bump.limit_bytes = SWN_CKPT_MAX_MEMORY;
        b->c.files = calloc(files, sizeof(*b->c.files));
    }
    if (!b || !b->c.files) {
        free(b);
        return swn_ckpt_fail(why, -ENOMEM, "no memory for a checkpoint's description");
    }
    *out = b;
    return 0;
}

void swn_ckpt_drop(struct swn_ckpt_builder *b, const struct swn_io *io)
{
    if (!b)
        return;
    for (size_t i = 0; i < b->c.file_count; i++)
        io->close(io->ctx, b->c.files[i].fd);
    free(b->c.files);
    free(b->c.storages);
    free(b->c.tensors);
    free(b->skipped);
    swn_bump_alloc_free(&b->bump);
    free(b);
}

int swn_ckpt_add_file(struct swn_ckpt_builder *b, const struct swn_io *io, int fd, const char *path,
                      const struct swn_identity *identity, char why[SWN_ERRMSG])
{
    struct swn_ckpt_file *f = &b->c.files[b->c.file_count];
    *f = (struct swn_ckpt_file){.fd = fd, .identity = *identity};
    int rc = swn_bump_alloc_text(&b->bump, path, strlen(path), &f->path);
    if (rc) {
        io->close(io->ctx, fd);
        return swn_ckpt_fail_memory(why, path, rc);
    }
    b->c.file_count++;
    return 0;
}

/* Makes room for one more item in an array that grows by half: realloc moves large arrays without copying, and pages of
 * the unused rest are never touched. */
static int grow(struct swn_ckpt_builder *b, void **array, size_t *room, size_t count, size_t size)
{
    if (count < *room)
        return 0;
    size_t more = *room / 2 + 16;
    int rc = swn_bump_alloc_charge(&b->bump, more * size);
    if (rc)
        return rc;
    void *grown = realloc(*array, (*room + more) * size);
    if (!grown)
        return -ENOMEM;
    *array = grown;
    *room += more;
    return 0;
}

int swn_ckpt_add_storage(struct swn_ckpt_builder *b, const struct swn_ckpt_storage *s, char why[SWN_ERRMSG])
{
    void *array = b->c.storages;
    int rc =
        b->c.storage_count < UINT32_MAX ? grow(b, &array, &b->storage_room, b->c.storage_count, sizeof(*s)) : -E2BIG;
    b->c.storages = array;
    if (rc)
        return swn_ckpt_fail_memory(why, s->name, rc);
    b->c.storages[b->c.storage_count++] = *s;
    return 0;
}

int swn_ckpt_elements(const int64_t *shape, uint32_t ndim, uint64_t *count)
{
    uint64_t product = 1;
    int empty = 0;
    for (uint32_t i = 0; i < ndim; i++) {
        if (shape[i] < 0)
            return -EINVAL;
        if (shape[i] == 0)
            empty = 1;
        else if (__builtin_mul_overflow(product, (uint64_t)shape[i], &product) || product > INT64_MAX)
            return -EOVERFLOW;
    }
    *count = empty ? 0 : product;
    return 0;
}

int swn_ckpt_view_end(const int64_t *shape, const int64_t *stride, uint32_t ndim, size_t item_bytes, uint64_t off,
                      uint64_t *end)
{
    uint64_t count, last = 0;
    int rc = swn_ckpt_elements(shape, ndim, &count);
    if (rc)
        return rc;
    for (uint32_t i = 0; i < ndim; i++) {
        uint64_t step;
        if (stride[i] < 0)
            return -EINVAL;
        if (count && (__builtin_mul_overflow((uint64_t)shape[i] - 1, (uint64_t)stride[i], &step) ||
                      __builtin_add_overflow(last, step, &last)))
            return -EOVERFLOW;
    }
    *end = 0;
    if (!count)
        return 0;
    if (__builtin_add_overflow(last, 1, &last) || __builtin_mul_overflow(last, item_bytes, &last) ||
        __builtin_add_overflow(last, off, end))
        return -EOVERFLOW;
    return 0;
}

int swn_ckpt_add_tensor(struct swn_ckpt_builder *b, const struct swn_ckpt_tensor *t, char why[SWN_ERRMSG])
{
    const struct swn_ckpt_storage *s = &b->c.storages[t->storage];
    uint64_t end;
    int rc = swn_ckpt_view_end(t->shape, t->stride, t->ndim, swn_dtype_size(t->dtype), t->off, &end);
    if (rc == -EINVAL)
        return swn_ckpt_fail(why, -EINVAL, "tensor '%.200s': a size or a stride is negative", t->name);
    if (rc)
        return swn_ckpt_fail(why, -EINVAL, "tensor '%.200s': its sizes overflow", t->name);
    if (end > s->bytes)
        return swn_ckpt_fail(why, -EINVAL,
                             "tensor '%.200s': reaches to byte %" PRIu64 " of storage %.100s, which has %" PRIu64,
                             t->name, end, s->name, s->bytes);
    void *array = b->c.tensors;
    rc = b->c.tensor_count < UINT32_MAX ? grow(b, &array, &b->tensor_room, b->c.tensor_count, sizeof(*t)) : -E2BIG;
    b->c.tensors = array;
    if (rc)
        return swn_ckpt_fail_memory(why, t->name, rc);
    struct swn_ckpt_tensor *kept = &b->c.tensors[b->c.tensor_count++];
    *kept = *t;
    if (!end)
        kept->off = 0; /* the view is empty: nothing is read through it */
    return 0;
}

int swn_ckpt_add_skipped(struct swn_ckpt_builder *b, const struct swn_ckpt_skipped *t, char why[SWN_ERRMSG])
{
    void *array = b->skipped;
    int rc = grow(b, &array, &b->skipped_room, b->skipped_count, sizeof(*t));
    b->skipped = array;
    if (rc)
        return swn_ckpt_fail_memory(why, t->name, rc);
    b->skipped[b->skipped_count++] = *t;
    return 0;
}

static int storage_order(const void *a, const void *b, void *ctx)
{
    const struct swn_ckpt_storage *all = ctx, *x = &all[*(const uint32_t *)a], *y = &all[*(const uint32_t *)b];
    if (x->file != y->file)
        return x->file < y->file ? -1 : 1;
    if (x->off != y->off)
        return x->off < y->off ? -1 : 1;
    return (x->bytes > y->bytes) - (x->bytes < y->bytes);
}

static int hash_order(const void *a, const void *b)
{
    uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return (x > y) - (x < y);
}

/* No name twice. Names are sorted by their hashes: a file can have thousands of long ones that differ at their ends. */
static int check_names(const struct swn_checkpoint *c, char *why)
{
    uint64_t twice = 0;
    int any = 0;
    uint64_t *hashes = malloc((c->tensor_count + 1) * sizeof(*hashes));
    if (!hashes)
        return swn_ckpt_fail(why, -ENOMEM, "no memory to compare a checkpoint's names");
    for (size_t i = 0; i < c->tensor_count; i++)
        hashes[i] = XXH3_64bits(c->tensors[i].name, strlen(c->tensors[i].name));
    qsort(hashes, c->tensor_count, sizeof(*hashes), hash_order);
    for (size_t i = 1; i < c->tensor_count && !any; i++) {
        any = hashes[i - 1] == hashes[i];
        twice = hashes[i];
    }
    free(hashes);
    for (size_t i = 0; any && i < c->tensor_count; i++)
        if (XXH3_64bits(c->tensors[i].name, strlen(c->tensors[i].name)) == twice)
            return swn_ckpt_fail(why, -EINVAL, "two tensors have the name '%.200s'", c->tensors[i].name);
    return 0;
}

/* Puts the storages into file order: order[new] = old. Cycle by cycle, so that no second array is needed. */
static void permute_storages(struct swn_checkpoint *c, uint32_t *order)
{
    for (uint32_t i = 0; i < c->storage_count; i++) {
        struct swn_ckpt_storage first = c->storages[i];
        uint32_t at = i;
        while (order[at] != i) {
            uint32_t from = order[at];
            c->storages[at] = c->storages[from];
            order[at] = at;
            at = from;
        }
        c->storages[at] = first;
        order[at] = at;
    }
}

/* Removes storages that no tensor uses, such as those of a shard's tensors that the index takes from another shard. */
static void drop_unused(struct swn_checkpoint *c, uint32_t *place)
{
    uint32_t kept = 0;
    memset(place, 0, c->storage_count * sizeof(*place));
    for (size_t i = 0; i < c->tensor_count; i++)
        place[c->tensors[i].storage] = 1;
    for (uint32_t i = 0; i < c->storage_count; i++) {
        if (!place[i])
            continue;
        c->storages[kept] = c->storages[i];
        place[i] = kept++;
    }
    for (size_t i = 0; i < c->tensor_count; i++)
        c->tensors[i].storage = place[c->tensors[i].storage];
    c->storage_count = kept;
}

static int sort_storages(struct swn_checkpoint *c, uint32_t *order, uint32_t *place, char *why)
{
    drop_unused(c, place);
    for (uint32_t i = 0; i < c->storage_count; i++)
        order[i] = i;
    qsort_r(order, c->storage_count, sizeof(*order), storage_order, c->storages);
    for (uint32_t i = 0; i < c->storage_count; i++)
        place[order[i]] = i;
    for (size_t i = 0; i < c->tensor_count; i++)
        c->tensors[i].storage = place[c->tensors[i].storage];
    permute_storages(c, order);
    for (size_t i = 1; i < c->storage_count; i++) {
        const struct swn_ckpt_storage *a = &c->storages[i - 1], *b = a + 1;
        if (a->file == b->file && a->bytes > b->off - a->off)
            return swn_ckpt_fail(why, -EINVAL, "storages %.100s and %.100s overlap", a->name, b->name);
    }
    return 0;
}

/* The number of skipped tensors, and a text about the first of them. */
static int sum_up_skipped(struct swn_ckpt_builder *b, char *why)
{
    char text[SWN_ERRMSG];
    b->c.skipped_count = b->skipped_count;
    if (!b->skipped_count)
        return 0;
    snprintf(text, sizeof(text), "%.256s: %s", b->skipped[0].name, b->skipped[0].what);
    swn_one_line(text);
    int rc = swn_bump_alloc_text(&b->bump, text, strlen(text), &b->c.skipped);
    return rc ? swn_ckpt_fail_memory(why, b->skipped[0].name, rc) : 0;
}

/* Gives back the unused rest of an array. */
static void *shrink(void *array, size_t bytes)
{
    void *smaller = bytes ? realloc(array, bytes) : NULL;
    return smaller ? smaller : array;
}

int swn_ckpt_finish(struct swn_ckpt_builder *b, struct swn_checkpoint **out, char why[SWN_ERRMSG])
{
    struct swn_checkpoint *c = &b->c;
    uint32_t *order = malloc((c->storage_count + 1) * sizeof(*order)),
             *place = malloc((c->storage_count + 1) * sizeof(*place));
    int rc = 0;
    if (!order || !place)
        rc = swn_ckpt_fail(why, -ENOMEM, "no memory to sort a checkpoint's storages");
    if (!rc)
        rc = sort_storages(c, order, place, why);
    free(order);
    free(place);
    if (!rc)
        rc = check_names(c, why);
    if (!rc)
        rc = sum_up_skipped(b, why);
    if (rc)
        return rc;
    free(b->skipped);
    b->skipped = NULL;
    c->storages = shrink(c->storages, c->storage_count * sizeof(*c->storages));
    c->tensors = shrink(c->tensors, c->tensor_count * sizeof(*c->tensors));
    *out = c;
    return 0;
}
