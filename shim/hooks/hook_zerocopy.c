/* Calls that leave pages of the program with the kernel, in a pipe or in the queue of a socket or a disk. Tensors
 * become resident first, since these pages must not get other bytes (skeleton/core/kernel_holds.h). For any other
 * buffer each hook is a few comparisons. An io_uring of the program is not seen, as it needs no call.
 *
 * Programs call some of these functions in signal handlers and after vfork, and libraries in their constructors. So
 * this file's constructor looks up the next definitions, and until then the hooks make system calls.
 */
#define _GNU_SOURCE
#include <aio.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/aio_abi.h>
#include <stdint.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

#include "skeleton/core/kernel_holds.h"
#include "base/fd_registry.h"
#include "skeleton/engine/engine.h"
#include "shim/hooks/next_symbol.h"
#include "shim/hooks/readable.h"

#define EXPORT __attribute__((visibility("default")))

/* Makes [p, p + bytes) resident before the kernel gets it. 0, or errno is set. */
static int give(const void *p, size_t bytes)
{
    if (!swn_kernel_holds_ours(p, bytes))
        return 0;
    int before = errno, err = swn_kernel_holds(p, bytes);
    errno = err ? ENOMEM : before;
    return err;
}

/* How many buffers of a vector there are to look at. The kernel refuses longer vectors, and those that it cannot read.
 */
static size_t buffers(const struct iovec *v, size_t n)
{
    return swn_engine_running() && n <= IOV_MAX && swn_is_readable(v, n * sizeof *v) ? n : 0;
}

static int give_all(const struct iovec *v, size_t n)
{
    int err = 0;
    size_t all = buffers(v, n);
    for (size_t i = 0; i < all && !err; i++)
        err = give(v[i].iov_base, v[i].iov_len);
    return err;
}

static int ours(const struct iovec *v, size_t n)
{
    size_t all = buffers(v, n);
    for (size_t i = 0; i < all; i++)
        if (swn_kernel_holds_ours(v[i].iov_base, v[i].iov_len))
            return 1;
    return 0;
}

/* Not for the library's own files: a range that is written to them is on its way out anyway. */
static int is_direct(int fd)
{
    int before = errno, flags = fcntl(fd, F_GETFL);
    int direct = flags >= 0 && flags & O_DIRECT && swn_fd_registry_first(fd, fd) != fd;
    errno = before;
    return direct;
}

/* name, result, parameters, arguments, the system call, the action before it: 0, or errno is set */
#define GIVER(name, result, params, args, raw, before)                                                                 \
    typedef result(*name##_fn) params;                                                                                 \
    static name##_fn real_##name;                                                                                      \
    EXPORT result name params                                                                                          \
    {                                                                                                                  \
        if (before)                                                                                                    \
            return -1;                                                                                                 \
        return real_##name ? real_##name args : (result)syscall raw;                                                   \
    }

/* A pipe. On its reading end the kernel stores bytes at once, which resident memory allows as well. */
GIVER(vmsplice, ssize_t, (int fd, const struct iovec *v, size_t n, unsigned flags), (fd, v, n, flags),
      (SYS_vmsplice, fd, v, n, flags), give_all(v, n))

/* A socket's queue. */
GIVER(send, ssize_t, (int fd, const void *p, size_t n, int flags), (fd, p, n, flags),
      (SYS_sendto, fd, p, n, flags, NULL, 0), (flags & MSG_ZEROCOPY) && give(p, n))
GIVER(sendto, ssize_t, (int fd, const void *p, size_t n, int flags, const struct sockaddr *to, socklen_t len),
      (fd, p, n, flags, to, len), (SYS_sendto, fd, p, n, flags, to, len), (flags & MSG_ZEROCOPY) && give(p, n))
static int give_message(const struct msghdr *m)
{
    return swn_engine_running() && swn_is_readable(m, sizeof *m) ? give_all(m->msg_iov, m->msg_iovlen) : 0;
}
GIVER(sendmsg, ssize_t, (int fd, const struct msghdr *m, int flags), (fd, m, flags), (SYS_sendmsg, fd, m, flags),
      (flags & MSG_ZEROCOPY) && give_message(m))

/* The kernel takes no more than IOV_MAX. */
static int give_messages(const struct mmsghdr *m, unsigned n)
{
    int err = 0;
    size_t most = n < IOV_MAX ? n : IOV_MAX;
    most = swn_engine_running() ? swn_readable(m, most * sizeof *m) / sizeof *m : 0;
    for (size_t i = 0; i < most && !err; i++)
        err = give_all(m[i].msg_hdr.msg_iov, m[i].msg_hdr.msg_iovlen);
    return err;
}
GIVER(sendmmsg, int, (int fd, struct mmsghdr *m, unsigned n, int flags), (fd, m, n, flags),
      (SYS_sendmmsg, fd, m, n, flags), (flags & MSG_ZEROCOPY) && give_messages(m, n))

/* A disk that reads the pages itself while the call waits: operators of other threads run meanwhile. */
#define DIRECT(fd, p, n) (swn_kernel_holds_ours(p, n) && is_direct(fd) && give(p, n))
#define DIRECT_ALL(fd, v, n) (ours(v, (size_t)(n)) && is_direct(fd) && give_all(v, (size_t)(n)))
GIVER(write, ssize_t, (int fd, const void *p, size_t n), (fd, p, n), (SYS_write, fd, p, n), DIRECT(fd, p, n))
GIVER(pwrite, ssize_t, (int fd, const void *p, size_t n, off_t off), (fd, p, n, off), (SYS_pwrite64, fd, p, n, off),
      DIRECT(fd, p, n))
GIVER(pwrite64, ssize_t, (int fd, const void *p, size_t n, off64_t off), (fd, p, n, off), (SYS_pwrite64, fd, p, n, off),
      DIRECT(fd, p, n))
GIVER(writev, ssize_t, (int fd, const struct iovec *v, int n), (fd, v, n), (SYS_writev, fd, v, n), DIRECT_ALL(fd, v, n))
GIVER(pwritev, ssize_t, (int fd, const struct iovec *v, int n, off_t off), (fd, v, n, off),
      (SYS_pwritev, fd, v, n, off, 0), DIRECT_ALL(fd, v, n))
GIVER(pwritev64, ssize_t, (int fd, const struct iovec *v, int n, off64_t off), (fd, v, n, off),
      (SYS_pwritev, fd, v, n, off, 0), DIRECT_ALL(fd, v, n))
GIVER(pwritev2, ssize_t, (int fd, const struct iovec *v, int n, off_t off, int flags), (fd, v, n, off, flags),
      (SYS_pwritev2, fd, v, n, off, 0, flags), DIRECT_ALL(fd, v, n))
GIVER(pwritev64v2, ssize_t, (int fd, const struct iovec *v, int n, off64_t off, int flags), (fd, v, n, off, flags),
      (SYS_pwritev2, fd, v, n, off, 0, flags), DIRECT_ALL(fd, v, n))

/* The kernel's own queue of reads and writes. libaio is a thin wrapper of the system call, and returns errors in its
 * result. */
EXPORT int io_submit(aio_context_t ctx, long n, struct iocb **iocbs);

static int give_request(const struct iocb *cb)
{
    void *p = (void *)(uintptr_t)cb->aio_buf;
    if (cb->aio_lio_opcode == IOCB_CMD_PREAD || cb->aio_lio_opcode == IOCB_CMD_PWRITE)
        return give(p, cb->aio_nbytes);
    if (cb->aio_lio_opcode == IOCB_CMD_PREADV || cb->aio_lio_opcode == IOCB_CMD_PWRITEV)
        return give_all(p, cb->aio_nbytes);
    return 0;
}

#define REQUESTS_MOST (1 << 20) /* no queue has as many */

/* The kernel stops at the first request that it cannot read. */
static int give_requests(long n, struct iocb **iocbs)
{
    size_t most = n < 0 ? 0 : n < REQUESTS_MOST ? (size_t)n : REQUESTS_MOST;
    most = swn_readable(iocbs, most * sizeof *iocbs) / sizeof *iocbs;
    for (size_t i = 0; i < most && swn_is_readable(iocbs[i], sizeof **iocbs); i++)
        if (give_request(iocbs[i]))
            return -1;
    return 0;
}

EXPORT int io_submit(aio_context_t ctx, long n, struct iocb **iocbs)
{
    int before = errno, err = swn_engine_running() ? give_requests(n, iocbs) : 0;
    long done = err ? -ENOMEM : syscall(SYS_io_submit, ctx, n, iocbs);
    if (!err && done < 0)
        done = -errno;
    errno = before;
    return (int)done;
}

/* Reads and writes in another thread of the C library, by calls that cannot be interposed. */
#define QUEUED(name, params, args, before)                                                                             \
    typedef int(*name##_fn) params;                                                                                    \
    SWN_NEXT(name, name##_fn)                                                                                          \
    EXPORT int name params                                                                                             \
    {                                                                                                                  \
        name##_fn real = next_##name();                                                                                \
        if (before)                                                                                                    \
            return -1;                                                                                                 \
        if (!real)                                                                                                     \
            errno = ENOSYS;                                                                                            \
        return real ? real args : -1;                                                                                  \
    }

QUEUED(aio_read, (struct aiocb * cb), (cb), give((const void *)(uintptr_t)cb->aio_buf, cb->aio_nbytes))
QUEUED(aio_read64, (struct aiocb64 * cb), (cb), give((const void *)(uintptr_t)cb->aio_buf, cb->aio_nbytes))
QUEUED(aio_write, (struct aiocb * cb), (cb), give((const void *)(uintptr_t)cb->aio_buf, cb->aio_nbytes))
QUEUED(aio_write64, (struct aiocb64 * cb), (cb), give((const void *)(uintptr_t)cb->aio_buf, cb->aio_nbytes))

__attribute__((constructor)) static void look_up(void)
{
#define NEXT(name) real_##name = (name##_fn)dlsym(RTLD_NEXT, #name)
    NEXT(vmsplice), NEXT(send), NEXT(sendto), NEXT(sendmsg), NEXT(sendmmsg);
    NEXT(write), NEXT(pwrite), NEXT(pwrite64), NEXT(writev), NEXT(pwritev), NEXT(pwritev64);
    NEXT(pwritev2), NEXT(pwritev64v2);
}
