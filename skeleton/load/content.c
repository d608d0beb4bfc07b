/* skeleton/load/content.c - whether two registered weights have the same bytes. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/checksum.h"
#include "base/file_io.h"
#include "skeleton/load/load.h"
#include "skeleton/load/load_internal.h"
#include "skeleton/engine/section.h"

#define PIECE ((size_t)1 << 20)

/* The extent that the weight at the address is registered from and still has the bytes of, or NULL. Engine lock held.
 */
static const struct swn_store_extent *extent_of(struct swn_engine *e, uintptr_t address, size_t bytes,
                                                struct swn_extent_file **file)
{
    struct swn_range *r = swn_arena_find(e->arena, address);
    const struct source *s;
    const struct swn_store_extent *x;
    struct swn_pages pages;

    if (!r || r->addr != address || atomic_load(&r->state) != SWN_FILE_BACKED ||
        swn_residency_scan(&e->res, r, &pages) || pages.private_pages)
        return NULL;
    s = swn_source_of(r->file);
    x = s && s->store ? swn_source_extent(s, r->extent, bytes) : NULL;
    *file = r->file;
    return x && x->off == r->extent && x->bytes == bytes && x->off % SWN_BLOCK == 0 ? x : NULL;
}

int swn_load_content(uintptr_t address, size_t bytes, uint64_t out[2])
{
    struct swn_engine *e = &swn_engine_one;
    struct swn_extent_file *file;
    const struct swn_store_extent *x;

    if (!atomic_load(&e->life.running))
        return 0;
    swn_lock(&e->lock);
    x = extent_of(e, address, bytes, &file);
    if (x && x->sums) {
        out[0] = x->checksum;
        out[1] = swn_sum(x->sums, (x->bytes + SWN_CHUNK - 1) / SWN_CHUNK * sizeof *x->sums);
    }
    swn_unlock(&e->lock);
    return x && x->sums;
}

/* 1: the files have the same bytes from a and from b on. */
static int are_equal(const struct swn_io *io, struct swn_extent_file *const files[2], const uint64_t off[2],
                     size_t bytes)
{
    struct swn_io_file own[2] = {files[0]->fetch, files[1]->fetch}; /* reading changes them */
    char *room = aligned_alloc(SWN_BLOCK, 2 * PIECE);
    int equal = room != NULL;

    for (size_t done = 0; equal && done < bytes; done += PIECE) {
        size_t n = bytes - done < PIECE ? bytes - done : PIECE, got[2];
        for (int i = 0; equal && i < 2; i++)
            equal =
                swn_read_blocks(io, &own[i], room + (size_t)i * PIECE, SWN_BLOCK_UP(n), off[i] + done, &got[i]) == 0 &&
                got[i] >= n;
        equal = equal && !memcmp(room, room + PIECE, n);
    }
    free(room);
    return equal;
}

int swn_load_same(uintptr_t a, uintptr_t b, size_t bytes)
{
    struct swn_engine *e = &swn_engine_one;
    struct swn_extent_file *files[2];
    const struct swn_store_extent *x[2];
    uint64_t off[2];
    int same;

    if (!atomic_load(&e->life.running))
        return 0;
    swn_lock(&e->lock);
    x[0] = extent_of(e, a, bytes, &files[0]);
    x[1] = extent_of(e, b, bytes, &files[1]);
    same = x[0] && x[1];
    for (int i = 0; same && i < 2; i++) {
        off[i] = x[i]->off;
        files[i]->refs++;
    }
    swn_unlock(&e->lock);
    if (!same)
        return 0;
    same = are_equal(e->io, files, off, bytes);
    swn_lock(&e->lock);
    for (int i = 0; i < 2; i++)
        files[i]->refs--;
    swn_unlock(&e->lock);
    return same;
}
