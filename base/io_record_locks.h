/* base/io_record_locks.h - an I/O table whose close() leaves the program's record locks alone.
 *
 * Closing any descriptor of a file drops all record locks (fcntl(F_SETLK), lockf) that the process holds on that file,
 * whichever descriptor it took them with. The library would drop the program's locks on its own checkpoints. So a
 * descriptor of a file on which any process has such a lock stays open until a later close finds that it is gone.
 */
#ifndef SWN_BASE_IO_RECORD_LOCKS_H
#define SWN_BASE_IO_RECORD_LOCKS_H

#include "base/io.h"

/* Makes *table a copy of *below with another close(), which calls that of `below`. `below` must outlive it. A lock that
 * is taken between the check and the close is lost. Thread-safe. */
void swn_keep_locks(struct swn_io *table, const struct swn_io *below);

#endif
