/* swn_scratch.h - a scratch file to time reads of: bytes that no disk makes short work of, in an unlinked file among
 * the block stores, and memory like the pool's (swn_pool.h) to read them into.
 */
#ifndef SWN_SCRATCH_H
#define SWN_SCRATCH_H

#include <semaphore.h>
#include <stddef.h>
#include <stdint.h>

#include "swn_fetch.h"
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

/* A read of it on its way. */
struct swn_scratch_read {
    struct swn_fetch_job job;
    sem_t back;
    int err;
    double begun_s, back_s; /* of CLOCK_MONOTONIC; back_s: by the queue's own thread, before the waiting one is awake */
};

/* Asks for `bytes` from s->off + at on. 0, and then r has to stay, and to be awaited, or -errno. */
int swn_scratch_submit(const struct swn_scratch *s, struct swn_fetch *queue, size_t at, size_t bytes,
                       struct swn_scratch_read *r);
/* 0 or the read's -errno. */
int swn_scratch_await(struct swn_scratch_read *r);

#endif
