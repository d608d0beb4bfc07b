/* patient.c - a preload with which a program that waits in poll() until a time of CLOCK_MONOTONIC waits FACTOR times as
 * long: swapnetctl gives up on a process that has not answered for a second, which on a busy machine any may do. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <poll.h>
#include <time.h>

#define SECOND 1000000000LL
#define FACTOR 30

int clock_gettime(clockid_t clock, struct timespec *t)
{
    static int (*real)(clockid_t, struct timespec *);
    static long long begun;
    if (!real)
        real = (int (*)(clockid_t, struct timespec *))dlsym(RTLD_NEXT, "clock_gettime");
    int rc = real(clock, t);
    if (rc || clock != CLOCK_MONOTONIC)
        return rc;
    long long now = t->tv_sec * SECOND + t->tv_nsec;
    begun = begun ? begun : now;
    now = begun + (now - begun) / FACTOR;
    *t = (struct timespec){.tv_sec = now / SECOND, .tv_nsec = now % SECOND};
    return 0;
}

int poll(struct pollfd *fds, nfds_t count, int timeout_ms)
{
    static int (*real)(struct pollfd *, nfds_t, int);
    if (!real)
        real = (int (*)(struct pollfd *, nfds_t, int))dlsym(RTLD_NEXT, "poll");
    return real(fds, count, timeout_ms > 0 ? timeout_ms * FACTOR : timeout_ms);
}
