/* base/io.c - the swn_io table that calls the kernel. Every function only translates errno, and gives -EBADF for one of
 * the library's descriptors that the program has closed; policy (retries, fallbacks) belongs to the callers. */
#define _GNU_SOURCE
#include "base/io.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <liburing.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/fd_registry.h"

int swn_file_limit_below(uint64_t bytes)
{
    struct rlimit limit;
    return getrlimit(RLIMIT_FSIZE, &limit) == 0 && limit.rlim_cur != RLIM_INFINITY && limit.rlim_cur < bytes;
}

/* Whether the file is smaller than that, and may not grow to it. */
static int limit_stops(int fd, uint64_t bytes)
{
    struct stat st;
    return swn_file_limit_below(bytes) && fstat(fd, &st) == 0 && S_ISREG(st.st_mode) && (uint64_t)st.st_size < bytes;
}

static int result(int rc)
{
    return rc < 0 ? -errno : rc;
}

static ssize_t result_size(ssize_t rc)
{
    return rc < 0 ? -errno : rc;
}

static int sys_open(void *ctx, const char *path, int flags, mode_t mode)
{
    (void)ctx;
    int fd = open(path, flags, mode);
    return fd < 0 ? -errno : swn_fd_registry(fd);
}

static int sys_close(void *ctx, int fd)
{
    (void)ctx;
    return swn_fd_registry_close(fd);
}

static ssize_t sys_pread(void *ctx, int fd, void *buf, size_t len, uint64_t off)
{
    (void)ctx;
    return swn_fd_is_ours(fd) ? result_size(pread(fd, buf, len, (off_t)off)) : -EBADF;
}

static ssize_t sys_pwrite(void *ctx, int fd, const void *buf, size_t len, uint64_t off)
{
    (void)ctx;
    if (!swn_fd_is_ours(fd))
        return -EBADF;
    return swn_file_limit_below(off + 1) ? -EFBIG : result_size(pwrite(fd, buf, len, (off_t)off));
}

static int sys_fsync(void *ctx, int fd)
{
    (void)ctx;
    return swn_fd_is_ours(fd) ? result(fsync(fd)) : -EBADF;
}

static int sys_fstat(void *ctx, int fd, struct stat *st)
{
    (void)ctx;
    return swn_fd_is_ours(fd) ? result(fstat(fd, st)) : -EBADF;
}

static int sys_ftruncate(void *ctx, int fd, uint64_t len)
{
    (void)ctx;
    if (!swn_fd_is_ours(fd))
        return -EBADF;
    return limit_stops(fd, len) ? -EFBIG : result(ftruncate(fd, (off_t)len));
}

static int sys_fallocate(void *ctx, int fd, int mode, uint64_t off, uint64_t len)
{
    (void)ctx;
    if (!swn_fd_is_ours(fd))
        return -EBADF;
    if (!(mode & FALLOC_FL_PUNCH_HOLE) && limit_stops(fd, off + len))
        return -EFBIG;
    return result(fallocate(fd, mode, (off_t)off, (off_t)len));
}

static int sys_fadvise(void *ctx, int fd, uint64_t off, uint64_t len, int advice)
{
    (void)ctx;
    /* posix_fadvise returns the error instead of setting errno. */
    return !swn_fd_is_ours(fd) ? -EBADF : -posix_fadvise(fd, (off_t)off, (off_t)len, advice);
}

static int sys_rename(void *ctx, const char *from, const char *to)
{
    (void)ctx;
    return result(rename(from, to));
}

static int sys_unlink(void *ctx, const char *path)
{
    (void)ctx;
    return result(unlink(path));
}

static int sys_mmap(void *ctx, void **addr, size_t len, int prot, int flags, int fd, uint64_t off)
{
    (void)ctx;
    if (fd >= 0 && !swn_fd_is_ours(fd))
        return -EBADF;
    void *p = mmap(*addr, len, prot, flags, fd, (off_t)off);
    if (p == MAP_FAILED)
        return -errno;
    *addr = p;
    return 0;
}

/* Kernels from 5.18 can hold the ring for this thread without a descriptor, so that the program cannot close it. On
 * older kernels the ring has a descriptor like any other. */
static void hide_ring_fd(struct io_uring *ring)
{
    if (io_uring_register_ring_fd(ring) == 1) {
        syscall(SYS_close,
                ring->ring_fd); /* as base/fd_registry.c closes: a tracer of close() must see all our calls or none */
        ring->ring_fd = -1;
    } else {
        ring->ring_fd = ring->enter_ring_fd = swn_fd_registry(ring->ring_fd);
    }
}

/* IORING_OP_READ, and the question for it, are from 5.6; rings are from 5.1, and answer -EINVAL to such reads. */
static int knows_reads(struct io_uring *ring)
{
    enum { MOST = 256 };
    union {
        struct io_uring_probe probe;
        unsigned char bytes[sizeof(struct io_uring_probe) + MOST * sizeof(struct io_uring_probe_op)];
    } answer;
    memset(&answer, 0, sizeof(answer));
    int rc = io_uring_register_probe(ring, &answer.probe, MOST);
    if (rc < 0)
        return rc;
    return io_uring_opcode_supported(&answer.probe, IORING_OP_READ) ? 0 : -EOPNOTSUPP;
}

static int sys_ring_setup(void *ctx, struct io_uring *ring, unsigned entries)
{
    struct io_uring_params p;
    int rc;

    (void)ctx;
    memset(&p, 0, sizeof(p));
    p.flags = IORING_SETUP_SINGLE_ISSUER | IORING_SETUP_COOP_TASKRUN;
    rc = io_uring_queue_init_params(entries, ring, &p);
    if (rc == -EINVAL) {
        /* The flags are from 5.19 and 6.0; JetPack 5 and 6 run 5.10 and 5.15. */
        memset(&p, 0, sizeof(p));
        rc = io_uring_queue_init_params(entries, ring, &p);
    }
    if (rc < 0)
        return rc;
    rc = knows_reads(ring);
    if (rc < 0) {
        io_uring_queue_exit(ring);
        return rc;
    }
    /* A child that shared the ring could submit into its parent. Best effort: a child of ours never touches it. */
    (void)io_uring_ring_dontfork(ring);
    hide_ring_fd(ring);
    return 0;
}

static int sys_ring_read(void *ctx, struct io_uring *ring, int fd, void *buf, size_t len, uint64_t off, uint64_t tag)
{
    struct io_uring_sqe *sqe;

    (void)ctx;
    if (len > INT_MAX)
        return -EINVAL;
    if (!swn_fd_is_ours(fd))
        return -EBADF;
    sqe = io_uring_get_sqe(ring);
    if (!sqe)
        return -EBUSY;
    io_uring_prep_read(sqe, fd, buf, (unsigned)len, off);
    io_uring_sqe_set_data64(sqe, tag);
    return 0;
}

static int sys_ring_submit(void *ctx, struct io_uring *ring)
{
    (void)ctx;
    return io_uring_submit(ring);
}

/* On kernels before 5.11 liburing waits with a timeout by submitting a timeout request, which would also submit all
 * other queued requests and needs a free entry. Waiting on the descriptor does neither. */
static int wait_by_poll(struct io_uring *ring, int timeout_ms, struct io_uring_cqe **cqe)
{
    struct pollfd pfd = {.fd = ring->ring_fd, .events = POLLIN};
    int rc = poll(&pfd, 1, timeout_ms);

    if (rc < 0)
        return -errno;
    if (rc > 0 && (pfd.revents & POLLNVAL))
        return -EBADF;
    rc = io_uring_peek_cqe(ring, cqe);
    return rc == -EAGAIN ? -ETIME : rc;
}

static int sys_ring_wait(void *ctx, struct io_uring *ring, int timeout_ms, uint64_t *tag, int *res)
{
    struct io_uring_cqe *cqe = NULL;
    int rc = io_uring_peek_cqe(ring, &cqe);

    (void)ctx;
    if (rc == -EAGAIN && timeout_ms != 0) {
        struct __kernel_timespec ts = {.tv_sec = timeout_ms / 1000, .tv_nsec = (timeout_ms % 1000) * 1000000LL};

        if (timeout_ms < 0)
            rc = io_uring_wait_cqe(ring, &cqe);
        else if (ring->features & IORING_FEAT_EXT_ARG)
            rc = io_uring_wait_cqe_timeout(ring, &cqe, &ts);
        else
            rc = wait_by_poll(ring, timeout_ms, &cqe);
        if (rc == -ETIME)
            return 0;
    } else if (rc == -EAGAIN) {
        return 0;
    }
    if (rc < 0)
        return rc;
    if (!cqe)
        return 0;
    *tag = io_uring_cqe_get_data64(cqe);
    *res = cqe->res;
    io_uring_cqe_seen(ring, cqe);
    return 1;
}

static void sys_ring_exit(void *ctx, struct io_uring *ring)
{
    (void)ctx;
    swn_fd_registry_close(ring->ring_fd);
    ring->ring_fd = -1;
    io_uring_queue_exit(ring);
}

const struct swn_io swn_io_sys = {
    .ctx = NULL,
    .open = sys_open,
    .close = sys_close,
    .pread = sys_pread,
    .pwrite = sys_pwrite,
    .fsync = sys_fsync,
    .fstat = sys_fstat,
    .ftruncate = sys_ftruncate,
    .fallocate = sys_fallocate,
    .fadvise = sys_fadvise,
    .rename = sys_rename,
    .unlink = sys_unlink,
    .mmap = sys_mmap,
    .ring_setup = sys_ring_setup,
    .ring_read = sys_ring_read,
    .ring_submit = sys_ring_submit,
    .ring_wait = sys_ring_wait,
    .ring_exit = sys_ring_exit,
};
