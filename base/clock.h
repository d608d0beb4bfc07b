/* base/clock.h - the clock by which profiles are measured. */
#ifndef SWN_BASE_CLOCK_H
#define SWN_BASE_CLOCK_H

#include <time.h>

/* Of CLOCK_MONOTONIC. */
static inline double swn_seconds(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

#endif
