/* profiles/probe_queue_depth.h - measures how many reads of what size at once suit a disk.
 *
 * Reads long stretches of a scratch file in a directory of block stores, at several depths and sizes, in turns, through
 * the fetch queue that streams weights and into memory of the same kind. For programs, which may take seconds.
 */
#ifndef SWN_PROFILES_PROBE_QUEUE_DEPTH_H
#define SWN_PROFILES_PROBE_QUEUE_DEPTH_H

#include "base/io.h"
#include "profiles/queue_depth.h"

/* Takes about two seconds, and half a second of writing before; makes the directory where there is none. Slow disks are
 * not tried with much in flight at once, but for the library's own default: a thread that waits for a read would wait
 * for all of that. 0, and what *out points to is the caller's; -EOPNOTSUPP: the directory takes no direct reads, so
 * nothing of the disk can be seen; another -errno. */
int swn_probe_queue(struct swn_queue_depth *out, const struct swn_io *io, const char *dir);

#endif
