/* base/file_io.h - whole reads and writes of files through the I/O table: short ones continued, EINTR and EAGAIN
 * repeated (EAGAIN for a while), EIO retried SWN_IO_RETRIES times, O_DIRECT given up where the file system refuses
 * it.
 *
 * Files read or written this way leave nothing in the page cache: with O_DIRECT nothing gets there, without it the
 * pages are dropped again. Not thread-safe for one object. Errors are -errno.
 */
#ifndef SWN_BASE_FILE_IO_H
#define SWN_BASE_FILE_IO_H

#include <stddef.h>
#include <stdint.h>

#include "base/io.h"

#define SWN_BLOCK ((size_t)4096)
#define SWN_BLOCK_UP(n) (((n) + 4095) & ~(uint64_t)4095)

/* Opens a regular file for reading. Whatever else has that name is not opened at all. Returns a descriptor, which the
 * caller owns, or -errno; -EINVAL with a text in *why (which may be NULL) where the file is not regular. O_NONBLOCK is
 * cleared again: with it io_uring answers EAGAIN whenever the page cache lacks the bytes. `flags`: more flags for
 * open(2). */
int swn_open_regular(const struct swn_io *io, const char *path, int flags, char *why);

/* Opens the file behind `fd` again with O_DIRECT and access `mode` (O_RDONLY or O_RDWR). Returns a descriptor, which
 * the caller owns, or -1 where the file system refuses O_DIRECT. */
int swn_open_direct(const struct swn_io *io, int fd, int mode);

/* A new file in `dir` for reading and writing, without a name. O_TMPFILE leaves nothing behind even when the process is
 * killed between two calls; file systems without it get a name that is removed at once. The caller owns the descriptor.
 */
int swn_open_unlinked(const struct swn_io *io, const char *dir);

/* Reads [off, off + len) with any alignment into any memory, through the page cache. -ENODATA: the file is too short.
 */
int swn_read_whole(const struct swn_io *io, int fd, void *buf, size_t len, uint64_t off);

/* Reads whole blocks: off, len and buf are multiples of 4096. *got: how many bytes there were, less than len only where
 * the file ends. */
int swn_read_blocks(const struct swn_io *io, struct swn_io_file *f, void *buf, size_t len, uint64_t off, size_t *got);

/* Writes whole blocks: off, len and buf are multiples of 4096. With `f->direct_fd` < 0 the bytes reach the disk, and
 * leave the page cache, only in swn_write_settle. */
int swn_write_blocks(const struct swn_io *io, struct swn_io_file *f, const void *buf, size_t len, uint64_t off);

/* fsync; then drops the pages from the page cache. */
int swn_write_settle(const struct swn_io *io, const struct swn_io_file *f);

#endif
