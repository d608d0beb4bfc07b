/* scheduler/planner/divide.c - the policies by proportion (Eq. 1, equal shares), and what all policies share. */
#include "scheduler/planner/divide.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "scheduler/planner/divide_internal.h"

static const char *const names[SWN_DIVIDE_POLICIES] = {"eq1", "equal", "minmax"};

const char *swn_divide_name(enum swn_divide_policy policy)
{
    return (unsigned)policy < SWN_DIVIDE_POLICIES ? names[policy] : "?";
}

int swn_divide_parse(const char *name, enum swn_divide_policy *out)
{
    for (unsigned i = 0; i < SWN_DIVIDE_POLICIES; i++)
        if (!strcmp(name, names[i])) {
            *out = (enum swn_divide_policy)i;
            return 0;
        }
    return -EINVAL;
}

uint64_t swn_divide_most(const struct swn_divide_dnn *d)
{
    return d->demand_bytes > d->min_bytes ? d->demand_bytes : d->min_bytes;
}

double swn_divide_urgency(const struct swn_divide_dnn *d)
{
    return d->urgency > 0 && isfinite(d->urgency) ? d->urgency : 1;
}

uint64_t swn_divide_weights(const struct swn_divide_dnn *d)
{
    return d->weight_bytes ? d->weight_bytes : swn_divide_most(d);
}

static uint64_t add(uint64_t a, uint64_t b)
{
    return a > UINT64_MAX - b ? UINT64_MAX : a + b;
}

uint64_t swn_divide_least(const struct swn_divide_dnn *dnn, size_t n)
{
    uint64_t sum = 0;
    for (size_t i = 0; i < n; i++)
        sum = add(sum, dnn[i].min_bytes);
    return sum;
}

/* ---- proportions ---- */

/* Seconds per byte; 0: not known. */
static double score_without_urgency(const struct swn_divide_dnn *d)
{
    double bytes = (double)swn_divide_weights(d);
    return d->latency_s > 0 && isfinite(d->latency_s) && bytes > 0 ? d->latency_s / bytes : 0;
}

/* The factors of M in Eq. 1. Their sum is 1 unless no DNN wants memory. */
static void proportions_eq1(const struct swn_divide_dnn *dnn, size_t n, double *out)
{
    double demand = 0, known = 0, scores = 0;
    size_t with_latency = 0;
    for (size_t i = 0; i < n; i++) {
        double score = score_without_urgency(&dnn[i]);
        demand += (double)swn_divide_most(&dnn[i]);
        known += score;
        with_latency += score > 0;
    }
    double mean = with_latency ? known / (double)with_latency : 1;
    for (size_t i = 0; i < n; i++) {
        double score = score_without_urgency(&dnn[i]);
        out[i] = (score > 0 ? score : mean) * swn_divide_urgency(&dnn[i]);
        scores += out[i];
    }
    for (size_t i = 0; i < n; i++)
        out[i] = (demand > 0 ? (double)swn_divide_most(&dnn[i]) / demand * (1 - 1 / (double)n) : 0) +
                 out[i] / scores / (double)n;
}

static void proportions_equal(size_t n, double *out)
{
    for (size_t i = 0; i < n; i++)
        out[i] = 1 / (double)n;
}

static uint64_t clamped(const struct swn_divide_dnn *d, double bytes)
{
    uint64_t most = swn_divide_most(d);
    if (bytes >= (double)most)
        return most;
    return bytes > (double)d->min_bytes ? (uint64_t)bytes : d->min_bytes;
}

static uint64_t fill_to(const struct swn_divide_dnn *dnn, size_t n, const double *proportion, double level,
                        uint64_t *bytes)
{
    uint64_t sum = 0;
    for (size_t i = 0; i < n; i++)
        sum = add(sum, bytes[i] = clamped(&dnn[i], proportion[i] * level));
    return sum;
}

uint64_t swn_divide_add(const struct swn_divide_dnn *d, uint64_t rest, uint64_t *bytes)
{
    uint64_t room = swn_divide_most(d) - *bytes, more = room < rest ? room : rest;
    *bytes += more;
    return more;
}

/* Gives the bytes that no proportion accounts for (rounding, and demand whose proportion is 0) to the first DNNs that
 * can use them. */
static void hand_out_rest(const struct swn_divide_dnn *dnn, size_t n, uint64_t rest, uint64_t *bytes)
{
    for (size_t i = 0; i < n; i++)
        rest -= swn_divide_add(&dnn[i], rest, &bytes[i]);
}

/* Finds the level at which the proportions of it, each held between minimum and demand, sum up to the total. Where no
 * DNN is held at a limit, the level is the total itself, and this is Eq. 1 as printed. */
static void by_proportion(const struct swn_divide_dnn *dnn, size_t n, const double *proportion, uint64_t total,
                          uint64_t *bytes)
{
    double low = 0, high = (double)total;
    if (fill_to(dnn, n, proportion, high, bytes) <= total) {
        for (int i = 0; i < 64 && fill_to(dnn, n, proportion, high, bytes) <= total; i++) {
            low = high;
            high = high * 2 + 1;
        }
    }
    for (int i = 0; i < 128 && high - low > 0; i++) {
        double level = low + (high - low) / 2;
        if (level <= low || level >= high)
            break;
        *(fill_to(dnn, n, proportion, level, bytes) <= total ? &low : &high) = level;
    }
    uint64_t sum = fill_to(dnn, n, proportion, low, bytes);
    hand_out_rest(dnn, n, total - sum, bytes);
}

static int all_that_is_asked(const struct swn_divide_dnn *dnn, size_t n, uint64_t total)
{
    uint64_t sum = 0;
    for (size_t i = 0; i < n; i++)
        sum = add(sum, swn_divide_most(&dnn[i]));
    return sum <= total;
}

int swn_divide(enum swn_divide_policy policy, const struct swn_divide_dnn *dnn, size_t n, uint64_t total,
               uint64_t *bytes)
{
    if ((unsigned)policy >= SWN_DIVIDE_POLICIES)
        return -EINVAL;
    if (swn_divide_least(dnn, n) > total) {
        for (size_t i = 0; i < n; i++)
            bytes[i] = dnn[i].min_bytes;
        return -ENOSPC;
    }
    if (all_that_is_asked(dnn, n, total)) {
        for (size_t i = 0; i < n; i++)
            bytes[i] = swn_divide_most(&dnn[i]);
        return 0;
    }
    if (policy == SWN_DIVIDE_MINMAX)
        return swn_divide_minmax(dnn, n, total, bytes);
    double *proportion = malloc(n * sizeof *proportion);
    if (!proportion)
        return -ENOMEM;
    if (policy == SWN_DIVIDE_EQ1)
        proportions_eq1(dnn, n, proportion);
    else
        proportions_equal(n, proportion);
    by_proportion(dnn, n, proportion, total, bytes);
    free(proportion);
    return 0;
}
