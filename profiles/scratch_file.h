/* profiles/scratch_file.h - a scratch file for timing reads: bytes that no disk can compress, in an unlinked file among
 * the block stores, and memory like the pool's (blocks/memory/frame_pool.h) to read them into.
 *
 * Both sizes matter, as the processor's cache keeps a small memory that is filled again and again: with a virtual disk
 * 8 MiB of file into 8 MiB of memory took 0.24 ns a byte, 160 MiB into 8 MiB 0.29, into 160 MiB 0.5.
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
    size_t room;  /* of memory: no read is larger */
    uint64_t off;
    size_t mapped, next; /* private */
};

/* As small as the library's staging rings, whose memory is reused. */
#define SWN_SCRATCH_WINDOW ((size_t)16 << 20)

/* `bytes` in the file, a multiple of 4096; fewer where writing them takes longer than most_s, but at least 4 MiB
 * (most_s 0: no limit). Memory for `room` bytes, or for all if that is less. 0 or -errno; to be closed in either case.
 */
int swn_scratch_open(struct swn_scratch *s, const struct swn_io *io, const char *dir, size_t bytes, size_t room,
                     double most_s);
void swn_scratch_close(struct swn_scratch *s);

/* The offset of the next read of `bytes`: one behind the other, and from the beginning again at the end of the file. */
size_t swn_scratch_next(struct swn_scratch *s, size_t bytes);

/* A read of the scratch file in flight. */
struct swn_scratch_read {
    struct swn_fetch_job job;
    sem_t back;
    int err;
    double begun_s, back_s; /* CLOCK_MONOTONIC; the queue's thread takes back_s before the waiting thread wakes */
};

/* Requests `bytes`, at most s->room, from s->off + at, into memory that other reads may share. 0: r must stay valid and
 * be awaited; or -errno. */
int swn_scratch_submit(const struct swn_scratch *s, struct swn_fetch *queue, size_t at, size_t bytes,
                       struct swn_scratch_read *r);
/* 0 or the read's -errno. */
int swn_scratch_await(struct swn_scratch_read *r);

#endif
