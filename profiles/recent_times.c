/* profiles/recent_times.c - see recent_times.h. */
#include "profiles/recent_times.h"

#include "profiles/least_squares.h"

void swn_times_add(struct swn_times *t, double ns)
{
    t->s[t->n++ % SWN_TIMES] = (float)(ns / 1e9);
}

size_t swn_times_copy(const struct swn_times *t, double out[SWN_TIMES])
{
    size_t n = t->n < SWN_TIMES ? t->n : SWN_TIMES;
    for (size_t i = 0; i < n; i++)
        out[i] = (double)t->s[i];
    return n;
}

double swn_times_median(const struct swn_times *t)
{
    double times[SWN_TIMES];
    return swn_median(times, swn_times_copy(t, times));
}

/* A quartile of n sorted times, more than two. */
static double quartile(const double *times, size_t n, double part)
{
    double at = part * (double)(n + 1) - 1;
    size_t i = (size_t)at;
    return times[i] + (at - (double)i) * (times[i + 1] - times[i]);
}

/* For a normal distribution the median of n varies by 1.25 deviations / sqrt(n), and its quartiles are 1.35 apart. */
double swn_times_variance(const struct swn_times *t)
{
    double times[SWN_TIMES];
    size_t n = swn_times_copy(t, times);
    if (n <= 2)
        return 0;
    swn_median(times, n); /* sorts them */
    double deviation = (quartile(times, n, 0.75) - quartile(times, n, 0.25)) / 1.35;
    return 1.25 * 1.25 * deviation * deviation / (double)n;
}

double swn_times_believed(double difference, double variance)
{
    return difference > 0 && difference * difference > variance ? difference - variance / difference : 0;
}
