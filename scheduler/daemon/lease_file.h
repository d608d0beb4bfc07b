/* scheduler/daemon/lease_file.h - the leases on record, so that the daemon that follows a killed one knows them. */
#ifndef SWN_SCHEDULER_DAEMON_LEASE_FILE_H
#define SWN_SCHEDULER_DAEMON_LEASE_FILE_H

#include "scheduler/daemon/lease_book.h"

/* The total that a user set while the daemon ran, and the total it was started with: a start with another total ends
 * what the user set. */
struct swn_lease_total {
    uint64_t set; /* bytes; 0: not set */
    uint64_t start_bytes;
    double start_share; /* where start_bytes is 0 */
};

/* Writes the book's ceilings and what users set beside `path` and renames it, mode 0600. 0 or -errno. */
int swn_lease_save(const struct swn_book *b, const struct swn_lease_total *total, const char *path);
/* Joins to the book, without a connection, every process on record that still lives and runs the same program. Those
 * that are left go on being drained. total->set: what is on record, where total->start_... are. 0, also where there is
 * no file; -EINVAL: not a lease file of ours, it is left alone; -errno. */
int swn_lease_load(struct swn_book *b, struct swn_lease_total *total, const char *path);

#endif
