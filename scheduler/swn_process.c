/* swn_process.c - see swn_process.h. */
#define _GNU_SOURCE
#include "swn_process.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#ifndef SYS_pidfd_open
#define SYS_pidfd_open 434
#endif

/* Field 22 of /proc/PID/stat. The name, field 2, may contain anything, also parentheses. A zombie's memory is gone. */
int swn_process_start(pid_t pid, uint64_t *start)
{
    char path[64], text[1024];
    snprintf(path, sizeof path, "/proc/%ld/stat", (long)pid);
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return -errno;
    ssize_t n = read(fd, text, sizeof text - 1);
    close(fd);
    if (n <= 0)
        return -ESRCH;
    text[n] = '\0';
    char *at = strrchr(text, ')'), state;
    unsigned long long ticks;
    if (!at || sscanf(at + 1, " %c %*d %*d %*d %*d %*d %*u %*u %*u %*u %*u %*u %*u %*d %*d %*d %*d %*d %*d %llu",
                      &state, &ticks) != 2)
        return -EPROTO;
    if (state == 'Z' || state == 'X')
        return -ESRCH;
    *start = ticks;
    return 0;
}

int swn_process_watch(pid_t pid)
{
    int fd = (int)syscall(SYS_pidfd_open, pid, 0);
    return fd < 0 ? -errno : fd;
}
