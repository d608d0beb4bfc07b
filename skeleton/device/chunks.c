/* skeleton/device/chunks.c - see chunks.h. */
#define _GNU_SOURCE
#include "skeleton/device/chunks.h"

#include <errno.h>
#include <stdlib.h>

struct swn_devchunk {
    unsigned long long handle;
    size_t bytes;
    struct swn_devchunk *next;
};

static struct swn_cuda_memory_kind kind_of(const struct swn_devpool *p)
{
    return (struct swn_cuda_memory_kind){.type = SWN_CUDA_MEMORY_PINNED,
                                         .location = {.type = SWN_CUDA_LOCATION_DEVICE, .id = p->device}};
}

int swn_devchunks_open(struct swn_devpool *p)
{
    struct swn_cuda_memory_kind kind = kind_of(p);
    int has = 0;
    int err = swn_cuda_find_virtual(&p->driver);
    if (!err)
        err = p->driver.device_attribute(&has, SWN_CUDA_VIRTUAL_MEMORY, p->device);
    if (!err && !has)
        err = -ENOSYS;
    return err ? err : p->driver.granularity(&p->unit, &kind, 0);
}

static void push(struct swn_devbuffer *b, struct swn_devchunk *c)
{
    c->next = b->chunks;
    b->chunks = c;
}

/* Adds a chunk to b, whose size stays. 0 or -ENOMEM. */
static int add(struct swn_devpool *p, struct swn_devbuffer *b, size_t bytes)
{
    struct swn_cuda_memory_kind kind = kind_of(p);
    struct swn_devchunk *c = calloc(1, sizeof *c);
    if (!c || p->driver.create(&c->handle, bytes, &kind, 0)) {
        free(c);
        return -ENOMEM;
    }
    c->bytes = bytes;
    push(b, c);
    return 0;
}

int swn_devchunks_drop(struct swn_devpool *p, struct swn_devbuffer *b)
{
    while (b->chunks) {
        struct swn_devchunk *c = b->chunks;
        int err = p->driver.release(c->handle);
        if (err)
            return err;
        b->chunks = c->next;
        free(c);
    }
    return 0;
}

static size_t next_size(const struct swn_devpool *p, size_t left)
{
    return p->large && left >= p->large ? p->large : p->unit;
}

int swn_devchunks_make(struct swn_devpool *p, struct swn_devbuffer *b)
{
    b->chunks = NULL;
    for (size_t left = b->bytes, n; left; left -= n)
        if (add(p, b, n = next_size(p, left))) {
            swn_devchunks_drop(p, b);
            return -ENOMEM;
        }
    return 0;
}

/* Takes chunks of that size, up to `bytes`. Returns the bytes that are still missing. */
static size_t take(struct swn_devbuffer *from, size_t size, size_t bytes, struct swn_devbuffer *to)
{
    for (struct swn_devchunk **link = &from->chunks; *link && bytes >= size;) {
        struct swn_devchunk *c = *link;
        if (c->bytes != size) {
            link = &c->next;
            continue;
        }
        *link = c->next;
        push(to, c);
        from->bytes -= size;
        to->bytes += size;
        bytes -= size;
    }
    return bytes;
}

/* Replaces a large chunk by small ones of nearly the same memory. 0 or -ENOMEM. */
static int split(struct swn_devpool *p, struct swn_devbuffer *from)
{
    struct swn_devbuffer one = {0};
    if (!p->large || take(from, p->large, p->large, &one))
        return -ENOMEM;
    if (p->driver.release(one.chunks->handle)) {
        swn_devchunks_join(from, &one);
        return -ENOMEM;
    }
    free(one.chunks);
    for (size_t done = 0; done < p->large; done += p->unit) {
        if (add(p, from, p->unit))
            return -ENOMEM;
        from->bytes += p->unit;
    }
    return 0;
}

int swn_devchunks_divide(struct swn_devpool *p, struct swn_devbuffer *from, size_t bytes, struct swn_devbuffer *to)
{
    *to = (struct swn_devbuffer){0};
    size_t left = p->large ? take(from, p->large, bytes, to) : bytes;
    int err = 0;
    while ((left = take(from, p->unit, left, to)) && !err)
        err = split(p, from);
    if (err)
        swn_devchunks_join(from, to);
    return err;
}

void swn_devchunks_join(struct swn_devbuffer *to, struct swn_devbuffer *from)
{
    struct swn_devchunk **end = &from->chunks;
    while (*end)
        end = &(*end)->next;
    *end = to->chunks;
    to->chunks = from->chunks;
    to->bytes += from->bytes;
    *from = (struct swn_devbuffer){0};
}

/* Unmaps the chunks up to `last` one by one, in the order in which they were mapped, as the driver wants whole
 * mappings. Returns the chunk that the driver refused, or `last`. */
static const struct swn_devchunk *unmap_until(struct swn_devpool *p, const struct swn_devbuffer *b,
                                              const struct swn_devchunk *last, int *err)
{
    uintptr_t at = (uintptr_t)b->address;
    const struct swn_devchunk *c = b->chunks;
    for (*err = 0; c != last; at += c->bytes, c = c->next)
        if ((*err = p->driver.unmap(at, c->bytes)))
            break;
    return c;
}

/* Maps the chunks before `last`. 0, or an error: none are mapped; -EFAULT: some are, for good. */
static int map_until(struct swn_devpool *p, const struct swn_devbuffer *b, const struct swn_devchunk *last)
{
    struct swn_cuda_access access = {.location = {.type = SWN_CUDA_LOCATION_DEVICE, .id = p->device},
                                     .access = SWN_CUDA_READ_WRITE};
    uintptr_t begin = (uintptr_t)b->address, at = begin;
    const struct swn_devchunk *c = b->chunks;
    int err = 0, undone;
    for (; c != last; at += c->bytes, c = c->next)
        if ((err = p->driver.map(at, c->bytes, 0, c->handle, 0)))
            break;
    if (!err)
        err = p->driver.set_access(begin, at - begin, &access, 1);
    return err && unmap_until(p, b, c, &undone) != c ? -EFAULT : err;
}

int swn_devchunks_map(struct swn_devpool *p, struct swn_devbuffer *b, char *at)
{
    b->address = at;
    return map_until(p, b, NULL);
}

int swn_devchunks_unmap(struct swn_devpool *p, struct swn_devbuffer *b)
{
    int err;
    const struct swn_devchunk *stuck = unmap_until(p, b, NULL, &err);
    return err && stuck != b->chunks && map_until(p, b, stuck) ? -EFAULT : err;
}
