/* swn_slowness.h - processor time in tests, and how much of it this machine takes. */
#ifndef SWN_SLOWNESS_H
#define SWN_SLOWNESS_H

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
 * and branches, takes longer than they say. */
#define EMULATED 3

/* What takes `ms` on the machine for which times were set may take so long here. */
static inline double here_ms(double ms)
{
    double slower = slowness();
    return ms * slower * (slower > EMULATED ? 2 : 1);
}

/* Whether to time it once more: three times, and where the least is not below `most`, up to thirty, as others on the
 * machine share its caches. */
static inline int time_again(int done, double least, double most)
{
    return done < 3 || (done < 30 && least >= most);
}

#endif
