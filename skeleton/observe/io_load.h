/* skeleton/observe/io_load.h - reads from the disk that serve no operator, to see what they cost a program that
 * computes meanwhile.
 *
 * What a disk delivers goes through the same memory that operators read their weights from, and on a virtual machine
 * through processors of the host: with a disk of 3.5 GB/s convolutional networks take 7 % longer, on however many
 * threads. And what they cost the disk: the thread that reads waits for a processor as well, and where operators have
 * them all that same disk gives 2.5. What they take of a program that waits for them is measured as well, in the same
 * reads and in the same seconds. Only for programs that are profiled. Thread-safe.
 */
#ifndef SWN_SKELETON_OBSERVE_IO_LOAD_H
#define SWN_SKELETON_OBSERVE_IO_LOAD_H

#include <stddef.h>

#include "base/io.h"
#include "scheduler/planner/plan.h"
#include "profiles/queue_depth.h"

/* Bytes of the scratch file: more than caches hold. Its memory, SWN_SCRATCH_WINDOW, is counted by no budget. */
#define SWN_IO_LOAD_BYTES ((size_t)64 << 20)
/* Fewer bytes read say nothing of the disk's speed. */
#define SWN_IO_LOAD_LEAST ((size_t)8 << 20)

struct swn_io_load;

/* A thread that makes a scratch file in the directory of block stores, and then waits to be told. It reads with that
 * queue, `bytes` at a time (whole pages), up to 4 MiB, and by turns a quarter of that. NULL: none to be had. io and dir
 * outlive it. */
struct swn_io_load *swn_io_load_start(const struct swn_io *io, const char *dir, const struct swn_queue_depth *queue,
                                      size_t bytes);
/* Whether there is something to read. */
int swn_io_load_ready(struct swn_io_load *c);
/* From now on it reads, all the time but for a moment after each dozen, or no more: then what is under way is its last.
 */
void swn_io_load_set(struct swn_io_load *c, int busy);
/* Reads a little while the caller waits for it: some hundredths of a second, or a fifth of one with a slow disk. */
void swn_io_load_rest(struct swn_io_load *c);
/* The disk's speed while it was kept busy, or while the caller waited for it (rest: 1). Returns what of it is known, as
 * swn_disk_speed_get. */
unsigned swn_io_load_disk(struct swn_io_load *c, int rest, struct swn_disk_model *out);
/* Ends its reads: it is not needed any more, and gives back what it has. */
void swn_io_load_end(struct swn_io_load *c);
/* The same, and frees c. Waits for its last read, two seconds at most where the disk does not answer. */
void swn_io_load_stop(struct swn_io_load *c);

#endif
