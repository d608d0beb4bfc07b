/* base/clock.h - the clock by which profiles are measured. */
#ifndef SWN_BASE_CLOCK_H
#define SWN_BASE_CLOCK_H

#include <stdint.h>
#include <time.h>

/* Seconds of CLOCK_MONOTONIC. */
static inline double swn_seconds(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

/* CLOCK_MONOTONIC. Async-signal-safe. */
uint64_t swn_now_ns(void);

#endif
