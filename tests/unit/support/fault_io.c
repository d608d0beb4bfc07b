/* tests/unit/support/fault_io.c - see fault_io.h. */
#define _GNU_SOURCE
#include "tests/unit/support/fault_io.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>

static int hit(struct swn_fault *f)
{
    long n = ++f->count;
    int now = f->at && (n == f->at || (f->for_ever && n > f->at));
    if (n == f->at && f->hook)
        f->hook(f->user);
    f->fired += now;
    return now && f->err;
}

static int fault_open(void *ctx, const char *path, int flags, mode_t mode)
{
    struct swn_fault *f = ctx;
    if (hit(f))
        return f->err;
    if (f->no_direct && (flags & O_DIRECT))
        return -EINVAL;
    int fd = swn_io_sys.open(NULL, path, flags, mode);
    if (fd >= 0 && fd < (int)sizeof f->opened)
        f->open_files += f->opened[fd] = 1;
    return fd;
}

static int fault_close(void *ctx, int fd)
{
    struct swn_fault *f = ctx;
    int failing = hit(f), rc = swn_io_sys.close(NULL, fd);        /* Linux closes it also when it reports an error */
    if (rc == 0 && fd < (int)sizeof f->opened && f->opened[fd]) { /* not those that came from dup */
        f->opened[fd] = 0;
        f->open_files--;
    }
    return failing ? f->err : rc;
}

static size_t shortened(const struct swn_fault *f, size_t len)
{
    size_t half = f->short_align ? len / 2 / f->short_align * f->short_align : len;
    return half ? half : len;
}

static ssize_t fault_pread(void *ctx, int fd, void *buf, size_t len, uint64_t off)
{
    struct swn_fault *f = ctx;
    return hit(f) ? f->err : swn_io_sys.pread(NULL, fd, buf, shortened(f, len), off);
}

static ssize_t fault_pwrite(void *ctx, int fd, const void *buf, size_t len, uint64_t off)
{
    struct swn_fault *f = ctx;
    return hit(f) ? f->err : swn_io_sys.pwrite(NULL, fd, buf, shortened(f, len), off);
}

static int fault_fsync(void *ctx, int fd)
{
    struct swn_fault *f = ctx;
    return hit(f) ? f->err : f->no_sync ? 0 : swn_io_sys.fsync(NULL, fd);
}

static int fault_fstat(void *ctx, int fd, struct stat *st)
{
    return hit(ctx) ? ((struct swn_fault *)ctx)->err : swn_io_sys.fstat(NULL, fd, st);
}

static int fault_ftruncate(void *ctx, int fd, uint64_t len)
{
    return hit(ctx) ? ((struct swn_fault *)ctx)->err : swn_io_sys.ftruncate(NULL, fd, len);
}

static int fault_fallocate(void *ctx, int fd, int mode, uint64_t off, uint64_t len)
{
    return hit(ctx) ? ((struct swn_fault *)ctx)->err : swn_io_sys.fallocate(NULL, fd, mode, off, len);
}

static int fault_fadvise(void *ctx, int fd, uint64_t off, uint64_t len, int advice)
{
    return hit(ctx) ? ((struct swn_fault *)ctx)->err : swn_io_sys.fadvise(NULL, fd, off, len, advice);
}

static int fault_rename(void *ctx, const char *from, const char *to)
{
    return hit(ctx) ? ((struct swn_fault *)ctx)->err : swn_io_sys.rename(NULL, from, to);
}

static int fault_unlink(void *ctx, const char *path)
{
    return hit(ctx) ? ((struct swn_fault *)ctx)->err : swn_io_sys.unlink(NULL, path);
}

static int fault_mmap(void *ctx, void **addr, size_t len, int prot, int flags, int fd, uint64_t off)
{
    return hit(ctx) ? ((struct swn_fault *)ctx)->err : swn_io_sys.mmap(NULL, addr, len, prot, flags, fd, off);
}

void swn_fault_init(struct swn_fault *f)
{
    memset(f, 0, sizeof *f);
    f->io = swn_io_sys;
    f->io.ctx = f;
    f->io.open = fault_open;
    f->io.close = fault_close;
    f->io.pread = fault_pread;
    f->io.pwrite = fault_pwrite;
    f->io.fsync = fault_fsync;
    f->io.fstat = fault_fstat;
    f->io.ftruncate = fault_ftruncate;
    f->io.fallocate = fault_fallocate;
    f->io.fadvise = fault_fadvise;
    f->io.rename = fault_rename;
    f->io.unlink = fault_unlink;
    f->io.mmap = fault_mmap;
}

void swn_fault_arm(struct swn_fault *f, long at, int for_ever, int err)
{
    f->at = at;
    f->for_ever = for_ever;
    f->err = err;
    f->count = f->fired = 0;
}
