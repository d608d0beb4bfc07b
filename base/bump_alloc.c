/* base/bump_alloc.c - see base/bump_alloc.h. */
#include "base/bump_alloc.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define ALIGN sizeof(uint64_t)
#define FIRST_CHUNK ((size_t)4 << 10)
#define LAST_CHUNK ((size_t)256 << 10) /* chunks double up to this size, so that little of the last one is wasted */

struct swn_bump_alloc_chunk {
    struct swn_bump_alloc_chunk *older;
    size_t size, used;
    _Alignas(uint64_t) unsigned char bytes[];
};

int swn_bump_alloc_charge(struct swn_bump_alloc *b, size_t bytes)
{
    if (bytes > b->limit_bytes - b->used_bytes)
        return -E2BIG;
    b->used_bytes += bytes;
    return 0;
}

int swn_bump_alloc_take(struct swn_bump_alloc *b, size_t bytes, void **out)
{
    struct swn_bump_alloc_chunk *chunk = b->chunk;
    if (bytes > b->limit_bytes)
        return -E2BIG;
    bytes = (bytes + ALIGN - 1) / ALIGN * ALIGN;
    int rc = swn_bump_alloc_charge(b, bytes);
    if (rc)
        return rc;
    if (!chunk || chunk->size - chunk->used < bytes) {
        size_t size = !chunk ? FIRST_CHUNK : chunk->size < LAST_CHUNK ? chunk->size * 2 : LAST_CHUNK;
        if (size < bytes)
            size = bytes;
        struct swn_bump_alloc_chunk *fresh = calloc(1, sizeof(*fresh) + size);
        if (!fresh)
            return -ENOMEM;
        fresh->size = size;
        fresh->older = chunk;
        b->chunk = chunk = fresh;
    }
    *out = chunk->bytes + chunk->used;
    chunk->used += bytes;
    return 0;
}

int swn_bump_alloc_text(struct swn_bump_alloc *b, const char *text, size_t len, char **out)
{
    void *copy;
    int rc = len == SIZE_MAX ? -E2BIG : swn_bump_alloc_take(b, len + 1, &copy);
    if (rc)
        return rc;
    memcpy(copy, text, len);
    *out = copy;
    return 0;
}

void swn_bump_alloc_free(struct swn_bump_alloc *b)
{
    while (b->chunk) {
        struct swn_bump_alloc_chunk *older = b->chunk->older;
        free(b->chunk);
        b->chunk = older;
    }
    b->used_bytes = 0;
}
