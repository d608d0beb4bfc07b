/* tests/unit/support/sim_disk.h - a disk that is known: it begins to answer after a while, whatever else it does
 * meanwhile, and answers at a given number of bytes a second. Its time is the test's. One at a time.
 */
#ifndef SWN_TESTS_UNIT_SUPPORT_SIM_DISK_H
#define SWN_TESTS_UNIT_SUPPORT_SIM_DISK_H

#include <stdint.h>

#include "blocks/memory/fetch_queue.h"
#include "base/io.h"

struct swn_sim_disk {
    double latency_s, read_rate, write_rate;
    int no_direct;
    long fails_at; /* the read from which on all fail; 0: none */
    uint64_t (*now_ns)(void);
    void (*pass)(uint64_t until_ns);
    /* What became of it. */
    uint64_t busy_until_ns, bytes, written, largest;
    long served;
    int open_files;
    /* Private: what is in flight, in the order in which it comes. */
    struct {
        uint64_t tag, end_ns;
        int res;
    } reads[SWN_FETCH_MOST_DEPTH];
    unsigned count;
};
extern struct swn_sim_disk swn_sim_disk;

/* All files are on it. */
extern const struct swn_io swn_sim_disk_io;

/* Nothing has been read or written; the rest stays as it is. */
void swn_sim_disk_reset(double latency_s, double rate);

#endif
