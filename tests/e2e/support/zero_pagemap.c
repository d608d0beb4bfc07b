/* A kernel, sandbox or emulator whose page map can be read and tells nothing: preloaded, it answers zeros. */
#define _GNU_SOURCE
#include <stdio.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

static ssize_t look(int fd, void *buf, ssize_t got)
{
    static const char name[] = "/pagemap";
    char link[64], path[256];
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    ssize_t n = readlink(link, path, sizeof path);
    size_t tail = sizeof name - 1;
    if (got > 0 && n > (ssize_t)tail && !memcmp(path + n - tail, name, tail))
        memset(buf, 0, (size_t)got);
    return got;
}

ssize_t pread(int fd, void *buf, size_t n, off_t off)
{
    return look(fd, buf, syscall(SYS_pread64, fd, buf, n, off));
}

ssize_t read(int fd, void *buf, size_t n)
{
    return look(fd, buf, syscall(SYS_read, fd, buf, n));
}
