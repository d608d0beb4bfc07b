/* swn_lease_file.h - the leases on record, so that a daemon that was killed is followed by one that knows them. */
#ifndef SWN_LEASE_FILE_H
#define SWN_LEASE_FILE_H

#include "swn_lease.h"

/* Writes the book's ceilings and what users set beside `path` and renames it, mode 0600. 0 or -errno. */
int swn_lease_save(const struct swn_book *b, const char *path);
/* Joins to the book, without a connection, every process on record that still lives and runs the same program. 0, also
 * where there is no file; -EINVAL: not a lease file of ours, it is left alone; -errno. */
int swn_lease_load(struct swn_book *b, const char *path);

#endif
