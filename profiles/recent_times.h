/* profiles/recent_times.h - the newest times of some event, in seconds; zero-initialised. Not thread-safe. */
#ifndef SWN_PROFILES_RECENT_TIMES_H
#define SWN_PROFILES_RECENT_TIMES_H

#include <stddef.h>

/* On a shared machine one pass takes up to twice as long as another, for seconds: 32 passes of ResNet-101 had medians
 * that were up to a third apart. */
#define SWN_TIMES 128

struct swn_times {
    float s[SWN_TIMES];
    unsigned n; /* number of times ever added */
};

void swn_times_add(struct swn_times *t, double ns);
/* Returns the number of times. */
size_t swn_times_copy(const struct swn_times *t, double out[SWN_TIMES]);
/* 0 if there are none. */
double swn_times_median(const struct swn_times *t);
/* The variance of that median among medians of other times like these, in square seconds, estimated from their
 * quartiles; 0 for fewer than three. */
double swn_times_variance(const struct swn_times *t);

/* The part of a difference with this variance to be believed, in seconds: the difference less its expected variation
 * (James and Stein's estimate, its positive part). Where times vary little this is all of the difference, and nothing
 * where the difference is within its standard error. */
double swn_times_believed(double difference, double variance);

#endif
