/* profiles/least_squares.h - least squares for the delay model's coefficients (SwapNet section 6.1, figure 9).
 *
 * y = c[0] x[0] + c[1] x[1], without an intercept: an empty block takes no time. Times of disks and of a busy machine
 * have outliers, all on one side, so a first fit by least absolute deviations finds the outliers, and least squares are
 * taken over the rest. A coefficient that comes out negative is noise around zero: it becomes zero, and the other one
 * is fitted alone.
 *
 * Pure functions, thread-safe.
 */
#ifndef SWN_PROFILES_LEAST_SQUARES_H
#define SWN_PROFILES_LEAST_SQUARES_H

#include <stddef.h>

struct swn_sample {
    double x[2];
    double y;
};

struct swn_fit {
    double c[2];
    size_t samples, outliers; /* outliers count in samples, and in nothing below */
    double r2;                /* 1 - SSres/SStot about the mean; 0 when y does not vary. May be negative: no fit. */
    double rms, worst;        /* residuals, in the unit of y */
};

/* Fits the first `columns` (1 or 2) of x. 0; -EINVAL: a number is negative or not finite, or columns is wrong;
 * -ENODATA: fewer than columns + 1 samples; -EDOM: the columns are proportional, or one is zero throughout, so that
 * their shares cannot be told apart; -ENOMEM. */
int swn_fit(const struct swn_sample *samples, size_t n, unsigned columns, struct swn_fit *out);

/* What an error of swn_fit means, as the end of a sentence. Static. */
const char *swn_fit_error(int err);

double swn_median(double *values, size_t n); /* sorts them; 0 of none */

/* The model y = c[0] x + c[1], updated one sample at a time in constant memory: older samples fade. With too few
 * samples, swn_online_get returns -ENODATA. */
struct swn_online {
    double n, x, y, xx, xy;
    size_t samples;
};
void swn_online_add(struct swn_online *o, double x, double y);
/* All samples fade as if one more had come. */
void swn_online_fade(struct swn_online *o);
/* 0, -ENODATA, or -EDOM when all x were alike. Both coefficients are at least 0, and c[0] is above. */
int swn_online_get(const struct swn_online *o, double c[2]);

#endif
