/* Ways to the kernel that Python has no names for. A test's stand-in for libaio too, which is a system call and no
 * more: a library that interposes io_submit interposes this one. */
#define _GNU_SOURCE
#include <aio.h>
#include <errno.h>
#include <linux/aio_abi.h>
#include <stdint.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

int io_submit(aio_context_t ctx, long n, struct iocb **iocbs);

int io_submit(aio_context_t ctx, long n, struct iocb **iocbs)
{
    long done = syscall(SYS_io_submit, ctx, n, iocbs);
    return done < 0 ? -errno : (int)done;
}

/* Writes n bytes (a multiple of 4096, from such an address) at the file's beginning, as libaio's users do, in parts of
 * 64 KiB, most of which wait in the disk's queue. 0 or -errno. */
int aio_write_all(int fd, const char *from, size_t n);

int aio_write_all(int fd, const char *from, size_t n)
{
    enum { PART = 65536, MOST = 128 };
    aio_context_t ctx = 0;
    struct iocb cb[MOST], *p[MOST];
    struct io_event event[MOST];
    long parts = (long)(n / PART), failed = 0;
    if (parts > MOST || syscall(SYS_io_setup, MOST, &ctx))
        return -ENOSYS;
    for (long i = 0; i < parts; i++) {
        p[i] = &cb[i];
        cb[i] = (struct iocb){.aio_lio_opcode = IOCB_CMD_PWRITE,
                              .aio_fildes = (uint32_t)fd,
                              .aio_buf = (uintptr_t)from + (uintptr_t)i * PART,
                              .aio_nbytes = PART,
                              .aio_offset = i * PART};
    }
    int sent = io_submit(ctx, parts, p);
    if (sent > 0) {
        long got = syscall(SYS_io_getevents, ctx, sent, sent, event, NULL);
        for (long i = 0; i < got; i++)
            failed += event[i].res != PART;
    }
    syscall(SYS_io_destroy, ctx);
    return sent != parts ? -EIO : failed ? -EFAULT : 0;
}

/* The same by POSIX, whose thread is the C library's. */
int posix_write_all(int fd, const char *from, size_t n);

int posix_write_all(int fd, const char *from, size_t n)
{
    struct aiocb cb = {.aio_fildes = fd, .aio_buf = (void *)(uintptr_t)from, .aio_nbytes = n};
    const struct aiocb *list[] = {&cb};
    cb.aio_sigevent.sigev_notify = SIGEV_NONE;
    if (aio_write(&cb))
        return -errno;
    while (aio_error(&cb) == EINPROGRESS)
        aio_suspend(list, 1, NULL);
    return aio_return(&cb) == (ssize_t)n ? 0 : -EIO;
}
