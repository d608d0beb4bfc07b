/* blocks/store/cache_sample.c - checks samples of the checkpoint's bytes against the store, when stat and header agree.
 *
 * Stat and header are not enough where the kernel did not set the times: a read-only image that is made anew with
 * clamped times (an update of a device) has a file of the same inode, size, times and header, but with other weights.
 * Training changes a tensor nearly everywhere, so one block of each tensor suffices: the first one, which a loader
 * reads anyway, and whose checksum is in the store's tables. Some blocks at random places are compared as well: of a
 * large table in which only a few rows have changed, they are likely to hit some. Tensors below SWN_GRANULE need not
 * agree: a loader reads those from the checkpoint itself. All blocks are read ahead at once.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <xxhash.h>

#include "blocks/memory/arena.h"
#include "blocks/store/store_internal.h"
#include "base/file_io.h"
#include "base/errmsg.h"

/* The most extents that are compared, spread evenly and chosen anew each time, and the number of random blocks.
 * Checkpoints of the largest models have some 2000 extents. */
#define EXTENTS_MOST 4096
#define BLOCKS_ANYWHERE 32

struct sample {
    const struct swn_store_extent *head; /* compare its first block by checksum; NULL: by the store's bytes */
    uint64_t store_off, source_off;
    size_t bytes;
};

static struct sample block_of(const struct swn_store_extent *e, uint64_t number)
{
    uint64_t at = number * SWN_BLOCK, left = e->bytes - at;
    return (struct sample){NULL, e->off + at, e->source_off + at, left < SWN_BLOCK ? (size_t)left : SWN_BLOCK};
}

/* The extent that has the `nth` block of all extents; *nth becomes the block's number within it. */
static const struct swn_store_extent *find_block(const struct swn_store *s, uint64_t *nth)
{
    size_t low = 0, high = s->extent_count;
    uint64_t off = s->extents[0].off + *nth * SWN_BLOCK; /* they follow each other without holes */
    while (high - low > 1) {
        size_t middle = low + (high - low) / 2;
        if (s->extents[middle].off <= off)
            low = middle;
        else
            high = middle;
    }
    *nth = (off - s->extents[low].off) / SWN_BLOCK;
    return &s->extents[low];
}

static uint64_t random_below(uint64_t most, uint64_t *state)
{
    *state = XXH3_64bits(state, sizeof *state);
    return *state % most;
}

static size_t choose(const struct swn_store *s, struct sample *out)
{
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    uint64_t blocks = 0, state = (uint64_t)now.tv_nsec;
    size_t n = 0, large = 0, step = s->extent_count / EXTENTS_MOST + 1, first = random_below(step, &state);
    for (size_t i = 0; i < s->extent_count; i++) {
        const struct swn_store_extent *e = &s->extents[i];
        uint64_t count = SWN_BLOCK_UP(e->bytes) / SWN_BLOCK;
        blocks += count;
        if (e->bytes < SWN_GRANULE || large++ % step != first)
            continue;
        out[n] = block_of(e, s->has_heads ? 0 : random_below(count, &state));
        out[n++].head = s->has_heads ? e : NULL;
    }
    for (int i = 0; i < BLOCKS_ANYWHERE && blocks; i++) {
        uint64_t nth = random_below(blocks, &state);
        const struct swn_store_extent *e = find_block(s, &nth);
        out[n++] = block_of(e, nth);
    }
    return n;
}

static void ask_for(const struct swn_store *s, const struct swn_io *io, int fd, const struct sample *at)
{
    io->fadvise(io->ctx, fd, at->source_off, at->bytes, POSIX_FADV_WILLNEED);
    if (!at->head)
        io->fadvise(io->ctx, s->file.fd, at->store_off, at->bytes, POSIX_FADV_WILLNEED);
}

/* 0, -ENOENT if the bytes differ, or an error of the reads. */
static int compare(const struct swn_store *s, const struct swn_io *io, int fd, const struct sample *at)
{
    unsigned char mine[SWN_BLOCK], theirs[SWN_BLOCK];
    int rc = swn_read_whole(io, fd, theirs, at->bytes, at->source_off);
    if (!rc && at->head)
        return XXH3_64bits(theirs, at->bytes) == at->head->head ? 0 : -ENOENT;
    if (!rc)
        rc = swn_read_whole(io, s->file.fd, mine, at->bytes, at->store_off);
    return rc ? rc : memcmp(mine, theirs, at->bytes) != 0 ? -ENOENT : 0;
}

static int compare_all(const struct swn_store *s, const struct swn_io *io, int fd, const struct sample *samples,
                       size_t n)
{
    int rc = 0;
    for (size_t i = 0; i < n; i++) /* all blocks are requested together, instead of one seek after the other */
        ask_for(s, io, fd, &samples[i]);
    for (size_t i = 0; i < n && !rc; i++)
        rc = compare(s, io, fd, &samples[i]);
    io->fadvise(io->ctx, s->file.fd, 0, 0, POSIX_FADV_DONTNEED);
    return rc;
}

int swn_cache_sample(const struct swn_store *s, const struct swn_io *io, int fd, char why[SWN_ERRMSG])
{
    struct sample *samples = malloc((s->extent_count + BLOCKS_ANYWHERE) * sizeof *samples);
    int rc = samples ? compare_all(s, io, fd, samples, choose(s, samples)) : -ENOMEM;
    free(samples);
    if (rc == -ENOENT)
        return swn_errmsg(why, rc, "%s: the store is of other bytes", s->path);
    return rc ? swn_errmsg(why, rc, "%s: cannot be compared with its checkpoint: %s", s->path, strerror(-rc)) : 0;
}
