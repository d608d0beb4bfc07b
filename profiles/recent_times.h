/* profiles/recent_times.h - the newest times of something, in seconds; zeroed, there are none. Not thread-safe. */
#ifndef SWN_PROFILES_RECENT_TIMES_H
#define SWN_PROFILES_RECENT_TIMES_H

#include <stddef.h>

/* On a machine that others use one pass takes up to twice as long as another, for seconds: 32 of ResNet-101 had medians
 * that were up to a third apart. */
#define SWN_TIMES 128

struct swn_times {
    float s[SWN_TIMES];
    unsigned n; /* that there ever were */
};

void swn_times_add(struct swn_times *t, double ns);
/* Returns their number. */
size_t swn_times_copy(const struct swn_times *t, double out[SWN_TIMES]);
/* 0 if there are none. */
double swn_times_median(const struct swn_times *t);
/* The variance of that median among medians of other times like these, in square seconds, estimated from their
 * quartiles; 0 for fewer than three. */
double swn_times_variance(const struct swn_times *t);

/* The part of a difference with this variance that is to be believed, in seconds: the difference, less its expected
 * variation (James and Stein's estimate, its positive part). All of it where times are alike, nothing where it is no
 * more than its standard error. */
double swn_times_believed(double difference, double variance);

#endif
