/* skeleton/observe/io_load.h - reads from the disk without an operator, to measure their cost for a program that
 * computes meanwhile.
 *
 * What a disk delivers goes through the same memory that operators read their weights from, and on a virtual machine
 * through processors of the host: with a disk of 3.5 GB/s convolutional networks take 7 % longer, on however many
 * threads. Computing slows the disk down, too: the reading thread waits for a processor, and where operators use all of
 * them the same disk gives 2.5. The speed for a program that waits for its reads is measured as well, with the same
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
/* With fewer bytes read the disk's speed is unknown. */
#define SWN_IO_LOAD_LEAST ((size_t)8 << 20)

struct swn_io_load;

/* Starts a thread that makes a scratch file in the directory of block stores, and then waits to be told. It reads
 * through a queue with that depth and piece size, `bytes` at a time (whole pages), up to 4 MiB, and a quarter of that
 * in turns. NULL: impossible. io and dir outlive it. */
struct swn_io_load *swn_io_load_start(const struct swn_io *io, const char *dir, const struct swn_queue_depth *queue,
                                      size_t bytes);
/* Whether the scratch file is ready. */
int swn_io_load_ready(struct swn_io_load *c);
/* busy 1: from now on it reads all the time, except for a moment after each dozen; 0: the reads under way are its last.
 */
void swn_io_load_set(struct swn_io_load *c, int busy);
/* Reads a little while the caller waits: some hundredths of a second, or a fifth of one with a slow disk. */
void swn_io_load_rest(struct swn_io_load *c);
/* The disk's speed while it was kept busy, or while the caller waited (rest: 1). Returns which values are known, as
 * swn_disk_speed_get. */
unsigned swn_io_load_disk(struct swn_io_load *c, int rest, struct swn_disk_model *out);
/* Ends its reads and frees their memory: it is not needed any more. */
void swn_io_load_end(struct swn_io_load *c);
/* The same, and frees c. Waits for its last read, at most two seconds where the disk does not answer. */
void swn_io_load_stop(struct swn_io_load *c);

#endif
