/* swn_scratch.h - a scratch file to time reads of: bytes that no disk makes short work of, in an unlinked file among
 * the block stores, and memory like the pool's (swn_pool.h) to read them into.
 */
#ifndef SWN_SCRATCH_H
#define SWN_SCRATCH_H

#include <stddef.h>
#include <stdint.h>

#include "swn_spill.h"

struct swn_scratch {
    struct swn_extent_file *file;
    void *buf;
    size_t bytes; /* in the file, from `off` on; the memory has room for them */
    uint64_t off;
    size_t mapped; /* private */
};

/* `bytes`, a multiple of 4096, or less, but 4 MiB, where writing them takes longer than most_s (0: however long). 0 or
 * -errno; to be closed in either case. */
int swn_scratch_open(struct swn_scratch *s, const struct swn_io *io, const char *dir, size_t bytes, double most_s);
void swn_scratch_close(struct swn_scratch *s);

#endif
