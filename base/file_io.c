/* base/file_io.c - see file_io.h. */
#define _GNU_SOURCE
#include "base/file_io.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/errmsg.h"

/* How often EAGAIN is retried, a millisecond apart. */
#define LATER_MOST 100

/* What kind of file it is, without opening it: opening rewinds a tape, starts a watchdog, and wakes a process that
 * waits to write to a FIFO. */
static int look(const struct swn_io *io, const char *path, int flags)
{
    struct stat st;
    int fd = io->open(io->ctx, path, O_PATH | O_CLOEXEC | (flags & O_NOFOLLOW), 0);
    if (fd < 0)
        return fd;
    int rc = io->fstat(io->ctx, fd, &st);
    io->close(io->ctx, fd);
    if (rc || S_ISREG(st.st_mode))
        return rc;
    return S_ISLNK(st.st_mode) ? -ELOOP : -EINVAL;
}

int swn_open_regular(const struct swn_io *io, const char *path, int flags, char *why)
{
    struct stat st;
    int rc = look(io, path, flags),
        fd = rc ? rc : io->open(io->ctx, path, O_RDONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC | flags, 0);
    if (!rc)
        rc = fd < 0 ? fd : io->fstat(io->ctx, fd, &st);
    if (!rc && !S_ISREG(st.st_mode)) /* it is another one since */
        rc = -EINVAL;
    if (rc) {
        const char *text = rc == -EINVAL ? "not a regular file" : strerror(-rc);
        if (fd >= 0)
            io->close(io->ctx, fd);
        return why ? swn_errmsg(why, rc, "%s: %s", path, text) : rc;
    }
    int status = fcntl(fd, F_GETFL);
    if (status >= 0)
        fcntl(fd, F_SETFL, status & ~O_NONBLOCK);
    return fd;
}

int swn_open_direct(const struct swn_io *io, int fd, int mode)
{
    char self[64];
    struct stat was, is;
    /* By name; a name says nothing about which file the number has by now. */
    if (io->fstat(io->ctx, fd, &was))
        return -1;
    snprintf(self, sizeof self, "/proc/self/fd/%d", fd);
    int direct = io->open(io->ctx, self, mode | O_DIRECT | O_CLOEXEC, 0);
    if (direct < 0)
        return -1;
    if (!io->fstat(io->ctx, direct, &is) && is.st_dev == was.st_dev && is.st_ino == was.st_ino)
        return direct;
    io->close(io->ctx, direct);
    return -1;
}

int swn_open_unlinked(const struct swn_io *io, const char *dir)
{
    int fd = io->open(io->ctx, dir, O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
    if (fd != -EOPNOTSUPP && fd != -EISDIR && fd != -EINVAL && fd != -ENOENT)
        return fd;
    char path[4096 + 64];
    snprintf(path, sizeof path, "%s/.spill-%ld", dir, (long)getpid());
    fd = io->open(io->ctx, path, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600);
    if (fd >= 0)
        io->unlink(io->ctx, path);
    return fd;
}

/* How often a failed request is repeated. */
struct patience {
    int retries, later;
};
#define PATIENT                                                                                                        \
    {                                                                                                                  \
        SWN_IO_RETRIES, LATER_MOST                                                                                     \
    }

static int once_more(ssize_t n, struct patience *p)
{
    if (n == -EAGAIN && p->later-- > 0) {
        nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
        return 1;
    }
    return n == -EINTR || (n == -EIO && p->retries-- > 0);
}

int swn_read_whole(const struct swn_io *io, int fd, void *buf, size_t len, uint64_t off)
{
    struct patience p = PATIENT;
    for (size_t done = 0; done < len;) {
        ssize_t n = io->pread(io->ctx, fd, (char *)buf + done, len - done, off + done);
        if (n < 0 && once_more(n, &p))
            continue;
        if (n <= 0)
            return n ? (int)n : -ENODATA;
        done += (size_t)n;
    }
    return 0;
}

static void give_up_direct(const struct swn_io *io, struct swn_io_file *f)
{
    io->close(io->ctx, f->direct_fd);
    f->direct_fd = -1;
}

/* Whether to repeat a request that ended with n < 0. */
static int again(const struct swn_io *io, struct swn_io_file *f, ssize_t n, struct patience *p)
{
    if (once_more(n, p))
        return 1;
    if ((n == -EINVAL || n == -EOPNOTSUPP) && f->direct_fd >= 0) {
        give_up_direct(io, f);
        return 1;
    }
    return 0;
}

int swn_read_blocks(const struct swn_io *io, struct swn_io_file *f, void *buf, size_t len, uint64_t off, size_t *got)
{
    struct patience p = PATIENT;
    int cached = 0, rc = 0;
    size_t done = 0;
    while (done < len) {
        int direct = f->direct_fd >= 0;
        ssize_t n = io->pread(io->ctx, direct ? f->direct_fd : f->fd, (char *)buf + done, len - done, off + done);
        cached |= !direct;
        if (n < 0 && again(io, f, n, &p))
            continue;
        if (n <= 0) {
            rc = (int)n;
            break;
        }
        done += (size_t)n;
        /* A direct read that stops inside a block is at the file's end, or was cut short, and the next direct read must
         * begin at a block. One read through the page cache tells the two apart. */
        if (direct && done < len && done % SWN_BLOCK) {
            cached = 1;
            n = io->pread(io->ctx, f->fd, (char *)buf + done, len - done, off + done);
            if (n == 0)
                break;
            done = done / SWN_BLOCK * SWN_BLOCK;
            if (n > 0 ? p.retries-- <= 0 : !again(io, f, n, &p)) {
                rc = n > 0 ? -EIO : (int)n;
                break;
            }
        }
    }
    if (cached)
        io->fadvise(io->ctx, f->fd, off, len, POSIX_FADV_DONTNEED);
    *got = done;
    return rc;
}

int swn_write_blocks(const struct swn_io *io, struct swn_io_file *f, const void *buf, size_t len, uint64_t off)
{
    struct patience p = PATIENT;
    for (size_t done = 0; done < len;) {
        int direct = f->direct_fd >= 0;
        ssize_t n =
            io->pwrite(io->ctx, direct ? f->direct_fd : f->fd, (const char *)buf + done, len - done, off + done);
        if (n < 0 && again(io, f, n, &p))
            continue;
        if (n <= 0)
            return n ? (int)n : -EIO;
        size_t whole = (size_t)n;
        if (direct && done + whole < len) /* may have ended inside a block */
            whole = whole / SWN_BLOCK * SWN_BLOCK;
        if (!whole && p.retries-- <= 0)
            return -EIO;
        done += whole;
    }
    return 0;
}

int swn_write_settle(const struct swn_io *io, const struct swn_io_file *f)
{
    int rc;
    do
        rc = io->fsync(io->ctx, f->fd);
    while (rc == -EINTR);
    if (!rc)
        io->fadvise(io->ctx, f->fd, 0, 0, POSIX_FADV_DONTNEED);
    return rc;
}
