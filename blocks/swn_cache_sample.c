/* swn_cache_sample.c - whether a store still holds its checkpoint's bytes, where stat and header say that it does.
 *
 * They are not enough where the kernel did not set the times: a read-only image that is made anew with clamped times
 * (an update of a device) has a file of the same inode, size, times and header, and other weights. Training on changes
 * a tensor nearly everywhere, so a block of each tells. Tensors below SWN_GRANULE need not agree: whoever loads reads
 * those from the checkpoint itself. All blocks are asked for at once: 290 take 12 ms where nothing is in the page
 * cache, 38 take 3.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <xxhash.h>

#include "swn_arena.h"
#include "swn_store_priv.h"
#include "swn_transfer.h"
#include "swn_why.h"

/* So many extents are looked at, spread evenly and others each time, and so many blocks anywhere. Checkpoints of the
 * largest models have some 2000. */
#define EXTENTS_MOST 4096
#define BLOCKS_ANYWHERE 32

struct sample {
    uint64_t store_off, source_off;
    size_t bytes;
};

static struct sample block_of(const struct swn_store_extent *e, uint64_t number)
{
    uint64_t at = number * SWN_BLOCK, left = e->bytes - at;
    return (struct sample){e->off + at, e->source_off + at, left < SWN_BLOCK ? (size_t)left : SWN_BLOCK};
}

/* The extent with the `nth` block of all extents; *nth becomes its number within. */
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
        if (e->bytes >= SWN_GRANULE && large++ % step == first)
            out[n++] = block_of(e, random_below(count, &state));
    }
    for (int i = 0; i < BLOCKS_ANYWHERE && blocks; i++) {
        uint64_t nth = random_below(blocks, &state);
        const struct swn_store_extent *e = find_block(s, &nth);
        out[n++] = block_of(e, nth);
    }
    return n;
}

/* 0, -ENOENT where they differ, or an error of the reads. */
static int compare(const struct swn_store *s, const struct swn_io *io, int fd, const struct sample *samples, size_t n)
{
    unsigned char mine[SWN_BLOCK], theirs[SWN_BLOCK];
    int rc = 0;
    for (size_t i = 0; i < n; i++) { /* all come at the same time, not one seek after the other */
        io->fadvise(io->ctx, s->file.fd, samples[i].store_off, samples[i].bytes, POSIX_FADV_WILLNEED);
        io->fadvise(io->ctx, fd, samples[i].source_off, samples[i].bytes, POSIX_FADV_WILLNEED);
    }
    for (size_t i = 0; i < n && !rc; i++) {
        rc = swn_read_whole(io, s->file.fd, mine, samples[i].bytes, samples[i].store_off);
        if (!rc)
            rc = swn_read_whole(io, fd, theirs, samples[i].bytes, samples[i].source_off);
        if (!rc && memcmp(mine, theirs, samples[i].bytes) != 0)
            rc = -ENOENT;
    }
    io->fadvise(io->ctx, s->file.fd, 0, 0, POSIX_FADV_DONTNEED);
    return rc;
}

int swn_cache_sample(const struct swn_store *s, const struct swn_io *io, int fd, char why[SWN_WHY])
{
    struct sample *samples = malloc((s->extent_count + BLOCKS_ANYWHERE) * sizeof *samples);
    int rc = samples ? compare(s, io, fd, samples, choose(s, samples)) : -ENOMEM;
    free(samples);
    if (rc == -ENOENT)
        return swn_why(why, rc, "%s: the store is of other bytes", s->path);
    return rc ? swn_why(why, rc, "%s: cannot be compared with its checkpoint: %s", s->path, strerror(-rc)) : 0;
}
