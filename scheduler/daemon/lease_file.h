/* scheduler/daemon/lease_file.h - the leases on record, from which the next daemon learns them when this one is killed.
 */
#ifndef SWN_SCHEDULER_DAEMON_LEASE_FILE_H
#define SWN_SCHEDULER_DAEMON_LEASE_FILE_H

#include "scheduler/daemon/lease_book.h"

/* The total that a user set at run time, and the total at the start. A start with another total drops the user's. */
struct swn_lease_total {
    uint64_t set; /* bytes; 0: not set */
    uint64_t start_bytes;
    double start_share; /* used where start_bytes is 0 */
};

/* Writes the book's ceilings and what users set beside `path` and renames it, mode 0600. 0 or -errno. */
int swn_lease_save(const struct swn_book *b, const struct swn_lease_total *total, const char *path);
/* Joins to the book, without a connection, every process on record that still lives and runs the same program. A drain
 * continues. total->set: the total on record, if the daemon's start total is unchanged. 0, also where there is no file;
 * -EINVAL: not a lease file, which is left alone; -errno. */
int swn_lease_load(struct swn_book *b, struct swn_lease_total *total, const char *path);

#endif
