/* base/clock.c - see clock.h. */
#define _GNU_SOURCE
#include "base/clock.h"

#include <time.h>

uint64_t swn_now_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}
