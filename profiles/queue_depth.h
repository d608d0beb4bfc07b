/* profiles/queue_depth.h - the number and size of concurrent reads that suit a disk.
 *
 * More or larger reads in flight are faster up to a point that differs from disk to disk; beyond it they only make
 * other readers wait. So the choice is the least amount in flight that reads about as fast as any, and that keeps the
 * disk busy while the processors compute. Pure functions, thread-safe.
 */
#ifndef SWN_PROFILES_QUEUE_DEPTH_H
#define SWN_PROFILES_QUEUE_DEPTH_H

#include <stddef.h>
#include <stdint.h>

/* The most combinations of depth and size that can be measured or stored. */
#define SWN_READS_MOST ((size_t)64)
/* A rate within this part of the best is as good: on a busy machine repeated measurements differ by as much. */
#define SWN_READS_WITHIN 0.05
/* In a pass the queue's thread also decodes data and waits for a processor, which it does not during the measurement.
 * So that the disk does not idle meanwhile, one read at a time is never chosen, however fast, and the bytes in flight
 * have to last for a while. On a busy machine at 3 GB/s, passes that wait for the disk took 2.2 times as long with 256
 * KiB in flight (0.1 ms), 1.26 times with 1 MiB (0.35 ms), and no longer than with more from 4 MiB (1.4 ms) on. */
#define SWN_READS_LEAST 2u
#define SWN_READS_LAST_S 0.002

/* The rate of `depth` reads of `request_bytes` at once. */
struct swn_read_rate {
    unsigned depth;
    uint64_t request_bytes;
    double bytes_per_s;
};

/* The depth and size that suit a disk, and the rates that they were chosen from. */
struct swn_queue_depth {
    unsigned depth; /* 0: not known */
    uint64_t request_bytes;
    struct swn_read_rate *measured; /* malloc'd; may be NULL */
    size_t measured_count;
};

void swn_queue_depth_free(struct swn_queue_depth *r); /* leaves it empty */

/* Chooses among the n rates with SWN_READS_LEAST or more reads at once, and within SWN_READS_WITHIN of the fastest: the
 * one with the fewest bytes in flight that last SWN_READS_LAST_S, or with the most where none do. On a tie, fewer and
 * larger reads win, as they cost less processor time, and then the faster rate. NULL: none has a rate above 0. */
const struct swn_read_rate *swn_queue_depth_choose(const struct swn_read_rate *rates, size_t n);

/* The rate at that depth and size, or 0. */
double swn_queue_depth_rate(const struct swn_queue_depth *r, unsigned depth, uint64_t request_bytes);

#endif
