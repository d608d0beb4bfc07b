/* base/backing.h - whether the bytes of a file are memory rather than on a disk.
 *
 * Bytes that are written out to save memory must not lie in memory, and the times of a file in memory do not show every
 * change (see swn_identity_settle). tmpfs, ramfs and hugetlbfs say what they are. An overlay does not say where its
 * files lie. Its upper layer, which takes all writes, is memory in live systems, in containers that keep nothing, and
 * on boards whose card is read only. The mount options do not help: the directory that they name mostly belongs to
 * another mount namespace, or to an initramfs that is gone. So the check asks for the file's blocks on the disk, which
 * only the file's real file system knows. Where a file system never answers, the check looks at the page cache: written
 * bytes that are on a disk leave the cache on request.
 *
 * Not seen: overlays in user space (fuse-overlayfs), and disks that are themselves made of memory (zram, loop devices).
 * Thread-safe.
 */
#ifndef SWN_BASE_BACKING_H
#define SWN_BASE_BACKING_H

#include "base/io.h"

/* 1: the bytes of the file, which is open for reading, lie in memory, or may. 0: they do not, or the file is empty. On
 * an overlay that knows no blocks, the check may read a page and drop it from the page cache; where a page is dirty, or
 * the file belongs to another user, the check cannot tell, and the answer is 1. */
int swn_file_in_memory(const struct swn_io *io, int fd);

/* 1: the bytes of files that are made in the directory lie in memory. 0: they do not, or the check cannot tell. On an
 * overlay the check makes an unnamed file. */
int swn_is_memory_backed(const struct swn_io *io, const char *dir);

#endif
