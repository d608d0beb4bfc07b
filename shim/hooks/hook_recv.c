/* System calls that write into tensors, those of mapped files included. While a range is on its way out it is
 * read-only, and the kernel would answer EFAULT where a store would only wait: the range is pinned for the call. For
 * any other buffer each hook is two comparisons. */
#define _GNU_SOURCE
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <unistd.h>

#include "skeleton/core/held_pages.h"
#include "skeleton/core/reentry.h"
#include "skeleton/engine/engine_internal.h"
#include "shim/hooks/hooks.h"
#include "skeleton/load/load.h"
#include "shim/hooks/next_symbol.h"
#include "shim/hooks/readable.h"

#define EXPORT __attribute__((visibility("default")))

/* skeleton/load/load.h may have registered the read of a checkpoint instead of making it; then the file position moves
 * as if it had been made. */
static ssize_t load_at(int fd, void *buf, size_t n, off_t off)
{
    ssize_t got = swn_load_read(fd, buf, n, off);
    if (got >= 0)
        swn_engine_settle();
    return got;
}

static ssize_t load_here(int fd, void *buf, size_t n)
{
    off_t off = lseek(fd, 0, SEEK_CUR);
    ssize_t got = off < 0 ? -1 : load_at(fd, buf, n, off);
    if (got >= 0)
        lseek(fd, off + got, SEEK_SET);
    return got;
}

/* Counts in items. */
static ssize_t load_stream(FILE *f, void *buf, size_t size, size_t n)
{
    off_t off = size ? ftello(f) : -1;
    ssize_t got = off < 0 ? -1 : load_at(fileno(f), buf, size * n, off);
    if (got >= 0)
        fseeko(f, off + got, SEEK_SET);
    return got >= 0 ? got / (ssize_t)size : -1;
}

/* What is pinned for a call, which may also end because its thread is cancelled. */
struct pinned {
    struct iovec one;
    const struct iovec *v;
    int count;
};
#define UNPINNED_AT_END __attribute__((unused, cleanup(unpin))) /* clang 14 does not count the cleanup as a use */

int swn_hooks_may_receive(uintptr_t at)
{
    return swn_held_concerns_us(&swn_engine_one, at, at + 1);
}

static void unpin(struct pinned *p)
{
    int saved = errno;
    const struct iovec *v = p->v ? p->v : &p->one;
    for (int i = 0; i < p->count; i++)
        if (swn_hooks_may_receive((uintptr_t)v[i].iov_base))
            swn_engine_unpin(v[i].iov_base, v[i].iov_len);
    errno = saved;
}

static struct pinned pin_one(void *buf, size_t n)
{
    int ours = swn_hooks_may_receive((uintptr_t)buf);
    if (ours)
        swn_engine_pin(buf, n);
    return (struct pinned){.one = {buf, n}, .count = ours};
}

/* The kernel refuses longer vectors, and those that it cannot read. */
static int is_vector(const struct iovec *v, size_t n)
{
    return n <= IOV_MAX && swn_is_readable(v, n * sizeof *v);
}

static struct pinned pin_all(const struct iovec *v, size_t n)
{
    int ours = 0;
    if (!swn_engine_running() || !is_vector(v, n))
        n = 0;
    for (size_t i = 0; i < n; i++)
        if (swn_hooks_may_receive((uintptr_t)v[i].iov_base)) {
            swn_engine_pin(v[i].iov_base, v[i].iov_len);
            ours = 1;
        }
    return (struct pinned){.v = v, .count = ours ? (int)n : 0};
}

/* name, result, parameters, arguments, buffer, length, a function that may replace the call */
#define RECEIVER(result, name, params, args, buffer, length, load)                                                     \
    typedef result(*name##_fn) params;                                                                                 \
    SWN_NEXT(name, name##_fn)                                                                                          \
    EXPORT result name params                                                                                          \
    {                                                                                                                  \
        if (!swn_hooks_may_receive((uintptr_t)(buffer)))                                                               \
            return next_##name() args;                                                                                 \
        int before = errno;                                                                                            \
        ssize_t loaded = swn_engine_owns((uintptr_t)(buffer)) ? load : -1;                                             \
        errno = before;                                                                                                \
        if (loaded >= 0)                                                                                               \
            return (result)loaded;                                                                                     \
        UNPINNED_AT_END struct pinned pinned = pin_one(buffer, length);                                                \
        return next_##name() args;                                                                                     \
    }

RECEIVER(ssize_t, read, (int fd, void *buf, size_t n), (fd, buf, n), buf, n, load_here(fd, buf, n))
RECEIVER(ssize_t, pread, (int fd, void *buf, size_t n, off_t off), (fd, buf, n, off), buf, n, load_at(fd, buf, n, off))
RECEIVER(ssize_t, pread64, (int fd, void *buf, size_t n, off64_t off), (fd, buf, n, off), buf, n,
         load_at(fd, buf, n, off))
RECEIVER(ssize_t, recv, (int fd, void *buf, size_t n, int flags), (fd, buf, n, flags), buf, n, -1)
#undef fread_unlocked /* a macro, too */
RECEIVER(size_t, fread_unlocked, (void *restrict buf, size_t size, size_t n, FILE *restrict f), (buf, size, n, f), buf,
         size *n, load_stream(f, buf, size, n))
RECEIVER(size_t, fread, (void *restrict buf, size_t size, size_t n, FILE *restrict f), (buf, size, n, f), buf, size *n,
         load_stream(f, buf, size, n))

typedef ssize_t (*recvfrom_fn)(int, void *restrict, size_t, int, struct sockaddr *restrict, socklen_t *restrict);
SWN_NEXT(recvfrom, recvfrom_fn)
EXPORT ssize_t recvfrom(int fd, void *restrict buf, size_t n, int flags, struct sockaddr *restrict from,
                        socklen_t *restrict len)
{
    UNPINNED_AT_END struct pinned pinned = pin_one(buf, n);
    return next_recvfrom()(fd, buf, n, flags, from, len);
}

/* Scattered reads. Another thread that changes the vector during the call is an error of the program. */
#define SCATTER(name, params, args, vector, count)                                                                     \
    typedef ssize_t(*name##_fn) params;                                                                                \
    SWN_NEXT(name, name##_fn)                                                                                          \
    EXPORT ssize_t name params                                                                                         \
    {                                                                                                                  \
        UNPINNED_AT_END struct pinned pinned = pin_all(vector, (size_t)(count));                                       \
        return next_##name() args;                                                                                     \
    }

SCATTER(readv, (int fd, const struct iovec *v, int n), (fd, v, n), v, n)
SCATTER(preadv, (int fd, const struct iovec *v, int n, off_t off), (fd, v, n, off), v, n)
SCATTER(preadv64, (int fd, const struct iovec *v, int n, off64_t off), (fd, v, n, off), v, n)
SCATTER(preadv2, (int fd, const struct iovec *v, int n, off_t off, int flags), (fd, v, n, off, flags), v, n)
SCATTER(preadv64v2, (int fd, const struct iovec *v, int n, off64_t off, int flags), (fd, v, n, off, flags), v, n)
SCATTER(process_vm_readv,
        (pid_t pid, const struct iovec *v, unsigned long n, const struct iovec *from, unsigned long froms,
         unsigned long flags),
        (pid, v, n, from, froms, flags), v, n)

static struct pinned pin_message(const struct msghdr *m)
{
    if (!swn_engine_running() || !swn_is_readable(m, sizeof *m))
        return (struct pinned){.count = 0};
    return pin_all(m->msg_iov, m->msg_iovlen);
}

typedef ssize_t (*recvmsg_fn)(int, struct msghdr *, int);
SWN_NEXT(recvmsg, recvmsg_fn)
EXPORT ssize_t recvmsg(int fd, struct msghdr *m, int flags)
{
    UNPINNED_AT_END struct pinned pinned = pin_message(m);
    return next_recvmsg()(fd, m, flags);
}

/* Messages, each with a vector of its own. */
struct pinned_messages {
    struct mmsghdr *m;
    unsigned n;
};

static void unpin_messages(struct pinned_messages *p)
{
    for (unsigned i = 0; i < p->n; i++) {
        const struct msghdr *m = &p->m[i].msg_hdr;
        struct pinned one = {.v = m->msg_iov, .count = (int)m->msg_iovlen};
        if (is_vector(m->msg_iov, m->msg_iovlen)) /* as pin_all has it */
            unpin(&one);
    }
}

static int is_ours(const struct msghdr *m)
{
    size_t n = is_vector(m->msg_iov, m->msg_iovlen) ? m->msg_iovlen : 0;
    for (size_t i = 0; i < n; i++)
        if (swn_hooks_may_receive((uintptr_t)m->msg_iov[i].iov_base))
            return 1;
    return 0;
}

/* Up to the last one that has a tensor in it; the kernel takes no more than IOV_MAX. */
static struct pinned_messages pin_messages(struct mmsghdr *m, unsigned n)
{
    struct pinned_messages p = {.m = m};
    size_t most = n < IOV_MAX ? n : IOV_MAX;
    most = swn_engine_running() ? swn_readable(m, most * sizeof *m) / sizeof *m : 0;
    for (unsigned i = 0; i < most; i++)
        if (is_ours(&m[i].msg_hdr))
            p.n = i + 1;
    for (unsigned i = 0; i < p.n; i++)
        (void)pin_all(m[i].msg_hdr.msg_iov, m[i].msg_hdr.msg_iovlen);
    return p;
}

typedef int (*recvmmsg_fn)(int, struct mmsghdr *, unsigned, int, struct timespec *);
SWN_NEXT(recvmmsg, recvmmsg_fn)
EXPORT int recvmmsg(int fd, struct mmsghdr *m, unsigned n, int flags, struct timespec *timeout)
{
    __attribute__((unused, cleanup(unpin_messages))) struct pinned_messages pinned = pin_messages(m, n);
    return next_recvmmsg()(fd, m, n, flags, timeout);
}
