/* profiles/least_squares.c - see least_squares.h. */
#include "profiles/least_squares.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* Columns whose angle is smaller than this (as 1 - cos^2) cannot be told apart by measured times. */
#define SAME_COLUMN 1e-6
#define ROUNDS 30
/* In units of the median distance; 1.48 of it is one standard deviation where errors are normal. */
#define OUTLIER (6 * 1.4826)
/* An exact fit makes every distance zero: rounding is no outlier. */
#define LEAST_DISTANCE 1e-9

/* The factor by which each new sample fades all older ones: about the last 200 count. */
#define FADE 0.995
#define ONLINE_LEAST 8
/* A sample this many times the expected one is an outlier. */
#define OUTLIER_ONLINE 8

static int by_value(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

double swn_median(double *values, size_t n)
{
    if (!n)
        return 0;
    qsort(values, n, sizeof *values, by_value);
    return n % 2 ? values[n / 2] : (values[n / 2 - 1] + values[n / 2]) / 2;
}

/* Without libm: the library needs nothing but libc. */
static double larger(double a, double b)
{
    return a > b ? a : b;
}

static double predict(const struct swn_sample *s, unsigned columns, const double c[2])
{
    return c[0] * s->x[0] + (columns > 1 ? c[1] * s->x[1] : 0);
}

/* Weighted least squares. Weights of 0 leave samples out. -EDOM. */
static int solve(const struct swn_sample *s, const double *weight, size_t n, unsigned columns, double c[2])
{
    double xx = 0, xz = 0, zz = 0, xy = 0, zy = 0;
    for (size_t i = 0; i < n; i++) {
        double x = s[i].x[0], z = columns > 1 ? s[i].x[1] : 0, w = weight[i];
        xx += w * x * x;
        xz += w * x * z;
        zz += w * z * z;
        xy += w * x * s[i].y;
        zy += w * z * s[i].y;
    }
    c[0] = c[1] = 0;
    if (!(xx > 0) || (columns > 1 && !(zz > 0)))
        return -EDOM;
    if (columns == 1) {
        c[0] = xy / xx;
        return 0;
    }
    double angle = 1 - xz / xx * (xz / zz);
    if (angle < SAME_COLUMN)
        return -EDOM;
    c[0] = (xy - zy * (xz / zz)) / (xx * angle);
    c[1] = (zy - xy * (xz / xx)) / (zz * angle);
    if (c[0] < 0) {
        c[0] = 0;
        c[1] = zy / zz;
    } else if (c[1] < 0) {
        c[1] = 0;
        c[0] = xy / xx;
    }
    return 0;
}

static double distance(const struct swn_sample *s, unsigned columns, const double c[2])
{
    return fabs(s->y - predict(s, columns, c));
}

/* Least absolute deviations by reweighting; then weight 0 for outliers and 1 for all others. */
static int weigh(const struct swn_sample *s, double *weight, double *far, size_t n, unsigned columns)
{
    double c[2], scale = 0;
    for (size_t i = 0; i < n; i++) {
        weight[i] = 1;
        scale += s[i].y / (double)n;
    }
    for (int round = 0; round < ROUNDS; round++) {
        int rc = solve(s, weight, n, columns, c);
        if (rc)
            return rc;
        for (size_t i = 0; i < n; i++)
            weight[i] = 1 / larger(distance(&s[i], columns, c), scale * 1e-6 + 1e-300);
    }
    for (size_t i = 0; i < n; i++)
        far[i] = distance(&s[i], columns, c);
    double limit = larger(swn_median(far, n) * OUTLIER, scale * LEAST_DISTANCE);
    for (size_t i = 0; i < n; i++)
        weight[i] = distance(&s[i], columns, c) <= limit;
    return 0;
}

static void judge(const struct swn_sample *s, const double *weight, size_t n, unsigned columns, struct swn_fit *out)
{
    double mean = 0, used = 0, residual = 0, total = 0;
    for (size_t i = 0; i < n; i++) {
        used += weight[i];
        mean += weight[i] * s[i].y;
    }
    mean /= used;
    for (size_t i = 0; i < n; i++) {
        if (weight[i] <= 0)
            continue;
        double d = distance(&s[i], columns, out->c);
        residual += d * d;
        total += (s[i].y - mean) * (s[i].y - mean);
        out->worst = larger(out->worst, d);
    }
    out->samples = n;
    out->outliers = n - (size_t)used;
    out->r2 = total > 0 ? 1 - residual / total : 0;
    out->rms = __builtin_sqrt(residual / used);
}

static int usable(const struct swn_sample *s, size_t n, unsigned columns)
{
    for (size_t i = 0; i < n; i++)
        for (unsigned k = 0; k <= columns; k++) {
            double value = k == columns ? s[i].y : s[i].x[k];
            if (!isfinite(value) || value < 0)
                return 0;
        }
    return 1;
}

int swn_fit(const struct swn_sample *samples, size_t n, unsigned columns, struct swn_fit *out)
{
    memset(out, 0, sizeof *out);
    if (columns < 1 || columns > 2 || !usable(samples, n, columns))
        return -EINVAL;
    if (n < columns + 1)
        return -ENODATA;
    double *weight = calloc(2 * n, sizeof *weight);
    if (!weight)
        return -ENOMEM;
    int rc = weigh(samples, weight, weight + n, n, columns);
    if (!rc)
        rc = solve(samples, weight, n, columns, out->c);
    if (!rc)
        judge(samples, weight, n, columns, out);
    free(weight);
    return rc;
}

const char *swn_fit_error(int err)
{
    switch (err) {
    case -ENODATA:
        return "there are too few measurements";
    case -EDOM:
        return "the measurements do not tell the coefficients apart: sizes and numbers of references are in the same "
               "proportion in all of them, or zero";
    case -EINVAL:
        return "a measurement is negative or not a number";
    default:
        return "there is no memory";
    }
}

/* The ratio of y to x; 0: too few samples. */
static double mean_of(const struct swn_online *o)
{
    return o->samples >= ONLINE_LEAST && o->x > 0 ? o->y / o->x : 0;
}

void swn_online_fade(struct swn_online *o)
{
    o->n *= FADE;
    o->x *= FADE;
    o->y *= FADE;
    o->xx *= FADE;
    o->xy *= FADE;
}

void swn_online_add(struct swn_online *o, double x, double y)
{
    if (!isfinite(x) || !isfinite(y) || x < 0 || y < 0)
        return;
    double c[2], mean = mean_of(o);
    double expected = swn_online_get(o, c) == 0 ? c[0] * x + c[1] : mean * x;
    /* A disk that was busy with other work, or a process that was stopped, must not outweigh two hundred samples. */
    if (expected > 0 && y > OUTLIER_ONLINE * expected)
        y = OUTLIER_ONLINE * expected;
    swn_online_fade(o);
    o->n += 1;
    o->x += x;
    o->y += y;
    o->xx += x * x;
    o->xy += x * y;
    o->samples++;
}

int swn_online_get(const struct swn_online *o, double c[2])
{
    if (o->samples < ONLINE_LEAST || !(o->x > 0) || !(o->y > 0))
        return -ENODATA;
    double spread = o->n * o->xx - o->x * o->x;
    if (spread < SAME_COLUMN * o->n * o->xx)
        return -EDOM;
    c[0] = (o->n * o->xy - o->x * o->y) / spread;
    c[1] = (o->y - c[0] * o->x) / o->n;
    if (c[1] < 0) {
        c[1] = 0;
        c[0] = o->xy / o->xx;
    } else if (c[0] <= 0) {
        c[0] = o->y / o->x;
        c[1] = 0;
    }
    return 0;
}
