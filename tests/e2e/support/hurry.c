/* hurry.c - a preload with which time passes $HURRY times as fast, as far as std::chrono::steady_clock and what waits
 * by it can tell. That clock begins at a time which the real one does not reach, so that nobody takes one for the
 * other. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <pthread.h>
#include <stdlib.h>
#include <time.h>

#define SECOND 1000000000LL
#define BEGINNING (1LL << 62) /* 146 years */

static long long begun, factor = 1;

static long long real_now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec * SECOND + t.tv_nsec;
}

__attribute__((constructor)) static void begin(void)
{
    const char *hurry = getenv("HURRY");
    factor = hurry ? atoll(hurry) : 1;
    begun = real_now();
}

/* std::chrono::steady_clock::now() */
long long _ZNSt6chrono3_V212steady_clock3nowEv(void)
{
    return BEGINNING + (real_now() - begun) * factor;
}

int pthread_cond_clockwait(pthread_cond_t *cond, pthread_mutex_t *mutex, clockid_t clock, const struct timespec *until)
{
    static int (*real)(pthread_cond_t *, pthread_mutex_t *, clockid_t, const struct timespec *);
    if (!real)
        real = (int (*)(pthread_cond_t *, pthread_mutex_t *, clockid_t, const struct timespec *))dlsym(
            RTLD_NEXT, "pthread_cond_clockwait");
    long long at = until->tv_sec * SECOND + until->tv_nsec;
    if (at < BEGINNING)
        return real(cond, mutex, clock, until);
    at = begun + (at - BEGINNING) / factor;
    struct timespec sooner = {.tv_sec = at / SECOND, .tv_nsec = at % SECOND};
    return real(cond, mutex, clock, &sooner);
}
