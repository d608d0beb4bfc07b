/* base/backing.h - whether the bytes of a file are memory rather than on a disk.
 *
 * What is written out to save memory must not lie in memory, and times of files there do not tell all (see
 * swn_identity_settle). tmpfs, ramfs and hugetlbfs say what they are. An overlay does not say where its files lie: the
 * upper one of its layers, where whatever is written goes, is memory in live systems, in containers that keep nothing,
 * and on boards whose card is read only. Nor does its mount say so: the directory that it names belongs to another
 * mount namespace, mostly, or to an initramfs that is gone. So the check asks what only the file's real file system can
 * answer: on which blocks of the disk it lies. Where a file system never answers that, the check looks at the page
 * cache: written bytes that are on a disk leave it when asked to.
 *
 * Not seen: overlays in user space (fuse-overlayfs), and disks that are themselves made of memory (zram, loop devices).
 * Thread-safe.
 */
#ifndef SWN_BASE_BACKING_H
#define SWN_BASE_BACKING_H

#include "base/io.h"

/* 1: the bytes of the file, which is open for reading, lie in memory, or may. 0: they do not, or it is empty. In a file
 * on an overlay that knows no blocks a page may be read and dropped from the page cache; where one is dirty, or the
 * file is not ours, that cannot be told, and the answer is 1. */
int swn_file_in_memory(const struct swn_io *io, int fd);

/* 1: the bytes of files that are made in the directory lie in memory. 0: they do not, or that cannot be found out. On
 * an overlay it makes a file without a name to find out. */
int swn_is_memory_backed(const struct swn_io *io, const char *dir);

#endif
