/* blocks/memory/fetch_queue.h - the fetch queue: reads extents of files into memory.
 *
 * One background thread owns the disk. Jobs are read in the order they were submitted, urgent ones first, cut into
 * large pieces of which several are in flight at once. Three paths, tried in this order when a queue starts and
 * whenever a path fails: io_uring with O_DIRECT, pread with O_DIRECT, buffered pread followed by fadvise(DONTNEED).
 * Which one runs is visible (swn_fetch_path_name). A ring fails late where the program forbids io_uring_enter, or
 * closes its descriptor (Linux before 5.18): what the kernel had taken by then is awaited, and never read twice at
 * once.
 *
 * A short read is continued; EINTR and EAGAIN are repeated; any other error is retried SWN_IO_RETRIES times;
 * 0 bytes before the end is -ENODATA ("store truncated").
 */
#ifndef SWN_BLOCKS_MEMORY_FETCH_QUEUE_H
#define SWN_BLOCKS_MEMORY_FETCH_QUEUE_H

#include <stddef.h>
#include <stdint.h>

#include "base/io.h"

/* The depth and piece size of a queue whose options name none, and the most that a queue uses. A device profile may
 * have better values. */
#define SWN_FETCH_DEPTH 8u
#define SWN_FETCH_PIECE ((size_t)1 << 20)
#define SWN_FETCH_MOST_DEPTH 64u
#define SWN_FETCH_MOST_PIECE ((size_t)16 << 20)
#define SWN_FETCH_PREPARE ((size_t)4 << 20)

enum swn_fetch_path { SWN_FETCH_URING, SWN_FETCH_PREAD, SWN_FETCH_BUFFERED };

/* Owned by the caller, usually embedded in something larger; must stay alive and untouched from submit until `done`
 * was called. off, len and buf are multiples of 4096. */
struct swn_fetch_job {
    struct swn_io_file *file;
    uint64_t off;
    void *buf;
    size_t len;
    uint64_t group; /* jobs of one group are parts of a whole that is wanted together; 0: no group */
    /* Called exactly once per submitted job, on the fetch thread (or inside swn_fetch_cancel / swn_fetch_stop), with no
     * lock of the queue held: may submit further jobs. err is 0 or -errno. */
    void (*done)(struct swn_fetch_job *job, int err);
    void *user;
    /* May be NULL. The bytes [0, upto) are in memory. Called on a fetch thread with no lock of the queue held, by one
     * thread at a time, with growing `upto`, finally with all bytes, and before `done`. Other reads of the job may be
     * under way into the memory behind. 0, or -errno, which ends the job with that error. */
    int (*arrived)(struct swn_fetch_job *job, size_t upto);
    /* May be NULL. Bytes [from, upto) are read next, so their memory may be prepared. Called on a fetch thread with no
     * lock of the queue held, for one part of SWN_FETCH_PREPARE bytes (the last may be shorter) after the other, before
     * any read into that part. */
    void (*prepare)(struct swn_fetch_job *job, size_t from, size_t upto);
    /* private to the queue */
    struct swn_fetch_job *next;
    size_t issued, told, prepared;
    int inflight, retries, err, state, urgent, telling, preparing;
};

struct swn_fetch_opts {
    const struct swn_io *io;
    size_t piece_bytes; /* the largest read, in whole pages; 0: SWN_FETCH_PIECE; at most SWN_FETCH_MOST_PIECE */
    /* Reads of that size in flight; 0: SWN_FETCH_DEPTH, at most the queue's maximum. There may be more smaller reads,
     * up to the default depth, but no more bytes in all; reads of several jobs may have a quarter of these bytes, or be
     * two. Without a ring at most three reads are in flight. */
    unsigned depth;
    enum swn_fetch_path best_path; /* SWN_FETCH_URING: try everything */
};

struct swn_fetch_stats {
    uint64_t bytes;   /* read from disk, retries included */
    uint64_t reads;   /* requests */
    uint64_t errors;  /* failed requests, retried ones included */
    uint64_t busy_ns; /* time during which at least one request was in flight */
};

struct swn_fetch;

/* Starts the queue and its thread (all signals blocked in it). 0 or -errno. */
int swn_fetch_start(struct swn_fetch **out, const struct swn_fetch_opts *opts);

/* Never blocks on I/O. urgent: before all jobs that are not urgent. 0, or -ESHUTDOWN after stop (then done is not
 * called). */
int swn_fetch_submit(struct swn_fetch *f, struct swn_fetch_job *job, int urgent);

/* A thread waits for the job: its remaining bytes are read next, and little else while they are in flight. */
void swn_fetch_promote(struct swn_fetch *f, struct swn_fetch_job *job);

/* Withdraws a job. 0: it had not begun, and `done` is not called. -EBUSY: it is being read or is done; `done` will be
 * called, or was. */
int swn_fetch_cancel(struct swn_fetch *f, struct swn_fetch_job *job);

/* fork support. pause: hands no further request to the kernel, and returns when none is in flight. resume: continues.
 */
void swn_fetch_pause(struct swn_fetch *f);
void swn_fetch_resume(struct swn_fetch *f);
/* In a forked child, where the thread does not exist: closes the ring's descriptors and frees everything that needs no
 * lock which the thread may have held. Jobs are forgotten; `done` is not called. */
void swn_fetch_abandon(struct swn_fetch *f);

/* Waits for requests in flight, calls `done` with -ECANCELED for jobs not begun, ends the thread, frees. */
void swn_fetch_stop(struct swn_fetch *f);

/* The depth and piece_bytes that the queue uses. */
unsigned swn_fetch_depth(const struct swn_fetch *f);
size_t swn_fetch_piece_bytes(const struct swn_fetch *f);

/* How the last piece was read, or, before there was one, would be. */
enum swn_fetch_path swn_fetch_path_now(const struct swn_fetch *f);
const char *swn_fetch_path_name(enum swn_fetch_path p); /* "io_uring+O_DIRECT", "pread+O_DIRECT", "pread+buffered" */
void swn_fetch_stats_get(struct swn_fetch *f, struct swn_fetch_stats *out);

#endif
