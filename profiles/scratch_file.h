/* profiles/scratch_file.h - a scratch file to time reads of: bytes that no disk can compress, in an unlinked file among
 * the block stores, and memory like the pool's (blocks/memory/frame_pool.h) to read them into.
 *
 * Both sizes count. A processor's cache keeps memory that is read into again and again, if it is little: with a
 * virtual disk 8 MiB of file into 8 MiB of memory took 0.24 ns a byte, 160 MiB into 8 MiB 0.29, into 160 MiB 0.5.
 */
#ifndef SWN_PROFILES_SCRATCH_FILE_H
#define SWN_PROFILES_SCRATCH_FILE_H

#include <semaphore.h>
#include <stddef.h>
#include <stdint.h>

#include "blocks/memory/fetch_queue.h"
#include "blocks/memory/spill_file.h"

struct swn_scratch {
    struct swn_extent_file *file;
    void *buf;
    size_t bytes; /* in the file, from `off` on */
    size_t room;  /* in memory: no read is larger */
    uint64_t off;
    size_t mapped, next; /* private */
};

/* As small as the library's rings, which are used again and again. */
#define SWN_SCRATCH_WINDOW ((size_t)16 << 20)

/* `bytes`, a multiple of 4096, or less, but 4 MiB, where writing them takes longer than most_s (0: however long), and
 * memory for `room` of them, or for all if that is less. 0 or -errno; to be closed in either case. */
int swn_scratch_open(struct swn_scratch *s, const struct swn_io *io, const char *dir, size_t bytes, size_t room,
                     double most_s);
void swn_scratch_close(struct swn_scratch *s);

/* The offset at which to read `bytes` next: elsewhere each time, one behind the other, and from the beginning again
 * where the file ends. */
size_t swn_scratch_next(struct swn_scratch *s, size_t bytes);

/* A read of it on its way. */
struct swn_scratch_read {
    struct swn_fetch_job job;
    sem_t back;
    int err;
    double begun_s, back_s; /* of CLOCK_MONOTONIC; back_s: by the queue's own thread, before the waiting one is awake */
};

/* Asks for `bytes`, at most s->room, from s->off + at on, into memory that may be another read's as well. 0, and then r
 * has to stay, and to be awaited, or -errno. */
int swn_scratch_submit(const struct swn_scratch *s, struct swn_fetch *queue, size_t at, size_t bytes,
                       struct swn_scratch_read *r);
/* 0 or the read's -errno. */
int swn_scratch_await(struct swn_scratch_read *r);

#endif
