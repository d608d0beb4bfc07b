/* base/io.h - the one table through which swapnet touches model data on disk.
 *
 * Everything that opens, reads, writes, maps or renames model data goes through a `struct swn_io`, so that a test
 * can put a faulting table in its place and fail the N-th operation. Nothing outside the table may submit I/O.
 *
 * A descriptor that `open` gave and that the program has closed since gives -EBADF, even when its number names another
 * file by now (base/fd_registry.h).
 *
 * Convention for every member: the result (>= 0), or -errno; errno itself is not part of the contract. Lengths and
 * offsets are bytes. All members are thread-safe. Functions and structs borrow the table, which must outlive them;
 * `ctx` is passed back untouched and belongs to the maker of the table.
 */
#ifndef SWN_BASE_IO_H
#define SWN_BASE_IO_H

#include <stddef.h>
#include <stdint.h>
#include <sys/stat.h>
#include <sys/types.h>

struct io_uring;

/* How often a failed read or write is tried again. Transient errors (EINTR, EAGAIN) do not count. */
#define SWN_IO_RETRIES 3

/* A file that is read or written, or both. `direct_fd` is open with O_DIRECT, or -1 where the file system refuses that.
 * Both descriptors belong to the caller and stay open until the functions and structs that use them are done. */
struct swn_io_file {
    int fd;
    int direct_fd;
    int refuses_direct; /* though it could be opened so: the fetch queue has found out, and reads it by fd from then on
                         */
};

struct swn_io {
    void *ctx;
    int (*open)(void *ctx, const char *path, int flags, mode_t mode);
    int (*close)(void *ctx, int fd);
    ssize_t (*pread)(void *ctx, int fd, void *buf, size_t len, uint64_t off);
    ssize_t (*pwrite)(void *ctx, int fd, const void *buf, size_t len, uint64_t off);
    int (*fsync)(void *ctx, int fd);
    int (*fstat)(void *ctx, int fd, struct stat *st);
    int (*ftruncate)(void *ctx, int fd, uint64_t len);
    int (*fallocate)(void *ctx, int fd, int mode, uint64_t off, uint64_t len);
    int (*fadvise)(void *ctx, int fd, uint64_t off, uint64_t len, int advice);
    int (*rename)(void *ctx, const char *from, const char *to);
    int (*unlink)(void *ctx, const char *path);
    /* Maps at *addr (a hint, or fixed with MAP_FIXED); *addr receives the address. */
    int (*mmap)(void *ctx, void **addr, size_t len, int prot, int flags, int fd, uint64_t off);

    /* io_uring. setup: 0 or -errno. read: queues one read with user data `tag`, 0, -EBUSY when the ring is full, or
     * -EBADF. submit: hands queued requests to the kernel, number or -errno. wait: waits until one completion is there
     * or `timeout_ms` passed, fills *tag and *res (bytes or -errno): 1, 0 on timeout, or -errno. exit: releases the
     * ring. */
    int (*ring_setup)(void *ctx, struct io_uring *ring, unsigned entries);
    int (*ring_read)(void *ctx, struct io_uring *ring, int fd, void *buf, size_t len, uint64_t off, uint64_t tag);
    int (*ring_submit)(void *ctx, struct io_uring *ring);
    int (*ring_wait)(void *ctx, struct io_uring *ring, int timeout_ms, uint64_t *tag, int *res);
    void (*ring_exit)(void *ctx, struct io_uring *ring);
};

/* The table that calls the kernel. */
extern const struct swn_io swn_io_sys;

/* Whether a file may not have as many bytes (RLIMIT_FSIZE; memory files count, too). To be asked before the kernel has
 * to refuse: with its refusal comes SIGXFSZ, which ends a program that neither handles nor ignores it, and no library
 * may do that to a program. The table does. Thread-safe. */
int swn_file_limit_below(uint64_t bytes);

#endif
