/* profiles/probe_queue_depth.h - measures the number and size of concurrent reads that suit a disk.
 *
 * The probe reads long stretches of a scratch file in a directory of block stores, at several depths and sizes in
 * turns, through the fetch queue that streams weights, and into the same kind of memory. For programs only: it takes
 * seconds.
 */
#ifndef SWN_PROFILES_PROBE_QUEUE_DEPTH_H
#define SWN_PROFILES_PROBE_QUEUE_DEPTH_H

#include "base/io.h"
#include "profiles/queue_depth.h"

/* Takes about two seconds, and half a second of writing before; makes a missing directory. A slow disk is not tried
 * with many reads in flight, except for the library's default: a thread that waits for one read would wait for all of
 * them. 0, and the caller owns what *out points to; -EOPNOTSUPP: the directory refuses direct reads, so the disk cannot
 * be measured; another -errno. */
int swn_probe_queue(struct swn_queue_depth *out, const struct swn_io *io, const char *dir);

#endif
