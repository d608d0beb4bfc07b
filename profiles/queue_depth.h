/* profiles/queue_depth.h - how many reads of what size at once suit a disk.
 *
 * More of them in flight, or larger ones, read faster up to a point, which is another one for every disk; beyond it
 * they only make other readers wait. So the smallest amount in flight is taken that reads about as fast as any, but for
 * what it takes to keep the disk busy while the processors are. Pure functions, thread-safe.
 */
#ifndef SWN_PROFILES_QUEUE_DEPTH_H
#define SWN_PROFILES_QUEUE_DEPTH_H

#include <stddef.h>
#include <stdint.h>

/* Depths times sizes that can be measured or written down. */
#define SWN_READS_MOST ((size_t)64)
/* A rate within this part of the best is as good: repeated measurements differ by it on a machine that does other
 * things. */
#define SWN_READS_WITHIN 0.05
/* The queue's thread decodes what has arrived, and waits for a processor, which it does not where nothing but reads is
 * measured. Lest the disk idle meanwhile, one at a time is not chosen, however fast, and what is in flight has to last
 * for a while. On a busy machine at 3 GB/s, 256 KiB in flight (0.1 ms) made passes that wait for the disk 2.2 times as
 * long, 1 MiB (0.35 ms) 1.26 times, and from 4 MiB (1.4 ms) on they took what they take with more. */
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

/* Chooses among the n rates with SWN_READS_LEAST or more at once, and within SWN_READS_WITHIN of the fastest: the one
 * with the fewest bytes in flight that last SWN_READS_LAST_S, or with the most where none do. Of several it takes the
 * one with fewer, larger reads, which cost less processor time, and then the faster one. NULL: none has a rate above
 * 0. */
const struct swn_read_rate *swn_queue_depth_choose(const struct swn_read_rate *rates, size_t n);

/* The rate of that depth and size, or 0. */
double swn_queue_depth_rate(const struct swn_queue_depth *r, unsigned depth, uint64_t request_bytes);

#endif
