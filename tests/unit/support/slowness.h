/* tests/unit/support/slowness.h - processor time in tests, and how much of it this machine takes. */
#ifndef SWN_TESTS_UNIT_SUPPORT_SLOWNESS_H
#define SWN_TESTS_UNIT_SUPPORT_SLOWNESS_H

#include <time.h>

static inline double cpu_ms(void)
{
    struct timespec t;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return (double)t.tv_sec * 1e3 + (double)t.tv_nsec / 1e6;
}

/* How many times longer this machine, which may be emulated, takes for a chain of products than the one on which the
 * time for plans was set: it took 0.155 ms for 100,000. */
static inline double slowness(void)
{
    double least = 1e9;
    for (int k = 0; k < 5; k++) {
        double begin = cpu_ms();
        volatile double from = 1, to;
        double x = from;
        for (int i = 0; i < 100000; i++)
            x = x * 1.0000001 + 1e-9;
        to = x;
        (void)to;
        double took = cpu_ms() - begin;
        least = took < least ? took : least;
    }
    return least > 0.155 ? least / 0.155 : 1;
}

/* So much slower is no machine of its own. Products are what an emulator is best at; a search, most of which is memory
 * and branches, takes up to twice as long as they say, or a little more, as processors differ in it. */
#define EMULATED 3

/* Neither do they say what a sanitizer's checks of memory cost: a search takes three times as long with them. */
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define CHECKED 3
#else
#define CHECKED 1
#endif

/* What takes `ms` on the machine for which times were set may take so long here. */
static inline double here_ms(double ms)
{
    double slower = slowness();
    return ms * slower * (slower > EMULATED ? 3 : 1) * CHECKED;
}

/* Does it once, and says how many ms that took. */
typedef double (*timed_fn)(void *what);

static inline double least_of(timed_fn once, void *what, int times)
{
    double least = 1e9;
    for (int i = 0; i < times; i++) {
        double took = once(what);
        least = took < least ? took : least;
    }
    return least;
}

/* So long a test waits for a better moment, all in all. */
#define PATIENCE_S 60

/* The least of a few times, and of more, one a second, where that is not below `most`. What shares a core or its caches
 * with a virtual machine comes and goes: one and the same search took 1.9 ms in some seconds and 3.4 in others, where a
 * chain of products took the same in all of them. */
static inline double least_ms(timed_fn once, void *what, double most)
{
    static int waited_s;
    double least = least_of(once, what, 3);
    for (; least >= most && waited_s < PATIENCE_S; waited_s++) {
        struct timespec second = {.tv_sec = 1};
        nanosleep(&second, NULL);
        double took = least_of(once, what, 10);
        least = took < least ? took : least;
    }
    return least;
}

#endif
