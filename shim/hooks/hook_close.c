/* close, close_range and closefrom: a program that becomes a daemon closes descriptors that it did not open, and its
 * next files get the numbers. The library's descriptors stay open, and the program does not notice. The check before
 * each use (base/fd_registry.h) alone would leave a moment in which a thread of the library writes weights into the
 * program's file. Exec closes all descriptors of the library.
 *
 * These run in every process, in signal handlers and between vfork and exec: nothing here takes a lock or allocates.
 * dup2 onto one of the library's numbers, system calls that go past the C library, and closefrom where there is no
 * close_range (before Linux 5.9, or forbidden) are left to the check before each use.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stddef.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/fd_registry.h"
#include "base/log.h"
#include "shim/hooks/next_symbol.h"

#ifndef SYS_close_range
#define SYS_close_range 436 /* the same number on all architectures, for headers before 5.9 */
#endif
#define UNSHARE 2U /* CLOSE_RANGE_UNSHARE */
#define CLOEXEC 4U /* CLOSE_RANGE_CLOEXEC */
#define EXPORT __attribute__((visibility("default")))

static int (*next_close)(int);
static void (*next_closefrom)(int);
static int (*next_dup2)(int, int);

/* The look-up is before main: a forked child whose parent held the loader's lock could wait for that lock for ever. */
__attribute__((constructor)) static void look_up(void)
{
    static struct swn_next_symbol cache[3];
    next_close = (int (*)(int))swn_next_symbol("close", &cache[0]);
    next_closefrom = (void (*)(int))swn_next_symbol("closefrom", &cache[1]);
    next_dup2 = (int (*)(int, int))swn_next_symbol("dup2", &cache[2]);
}

/* 0, which a program expects for each number that it has seen in /proc/self/fd. */
EXPORT int close(int fd)
{
    if (swn_fd_registry_first(fd, fd) >= 0)
        return 0;
    return next_close ? next_close(fd) : (int)syscall(SYS_close, fd);
}

static int close_numbers(unsigned first, unsigned last, unsigned flags)
{
    return (int)syscall(SYS_close_range, first, last, flags);
}

static int close_others(unsigned first, unsigned last, unsigned flags)
{
    if (flags && close_numbers(UINT_MAX, UINT_MAX, flags)) /* closes nothing; may unshare the descriptor table */
        return -1;
    while (first <= last && first <= INT_MAX) {
        int ours = swn_fd_registry_first((int)first, last > INT_MAX ? INT_MAX : (int)last);
        if (ours < 0)
            break;
        if ((unsigned)ours > first && close_numbers(first, (unsigned)ours - 1, 0))
            return -1;
        first = (unsigned)ours + 1;
    }
    return first > last ? 0 : close_numbers(first, last, 0);
}

EXPORT int close_range(unsigned first, unsigned last, int flags)
{
    /* The library's descriptors are close-on-exec in any case. Calls that the kernel would refuse go to the kernel. */
    if ((unsigned)flags & ~UNSHARE || first > last)
        return close_numbers(first, last, (unsigned)flags);
    return close_others(first, last, (unsigned)flags);
}

/* The program may redirect stderr, and reads there what we say. */
EXPORT int dup2(int from, int to)
{
    int got = next_dup2 ? next_dup2(from, to) : from == to ? fcntl(from, F_GETFD) < 0 ? -1 : to : dup3(from, to, 0);
    if (got == STDERR_FILENO)
        swn_say_redirected();
    return got;
}

EXPORT int dup3(int from, int to, int flags)
{
    int got = (int)syscall(SYS_dup3, from, to, flags);
    if (got == STDERR_FILENO)
        swn_say_redirected();
    return got;
}

EXPORT void closefrom(int first)
{
    int saved = errno;
    if (close_others(first < 0 ? 0 : (unsigned)first, UINT_MAX, 0) && next_closefrom)
        next_closefrom(first); /* before Linux 5.9 there is no close_range */
    errno = saved;
}
