/* scheduler/planner/divide_minmax.c - the allocation whose largest delay is smallest, by bisection over the delay. */
#include <errno.h>
#include <math.h>
#include <stdlib.h>

#include "scheduler/planner/divide_internal.h"

/* libm's fmax would make libm one more dependency of the preload library. */
static double larger(double a, double b)
{
    return a > b ? a : b;
}

/* Latency of the curve at `bytes`: the least latency of all points up to there. */
static double on_curve(const struct swn_divide_point *p, size_t points, uint64_t bytes)
{
    double least = p[0].latency_s;
    for (size_t i = 1; i < points && p[i - 1].budget_bytes < bytes; i++) {
        double here = p[i].latency_s;
        if (bytes < p[i].budget_bytes && here < p[i - 1].latency_s && isfinite(p[i - 1].latency_s)) {
            double part = (double)(bytes - p[i - 1].budget_bytes) / (double)(p[i].budget_bytes - p[i - 1].budget_bytes);
            here = p[i - 1].latency_s + part * (here - p[i - 1].latency_s);
        } else if (bytes < p[i].budget_bytes) {
            continue;
        }
        if (here < least)
            least = here;
    }
    return least;
}

/* No pass takes less. A curve that ends in 0, because it could not be predicted to its end, gives no ratio of
 * latencies. */
#define LEAST_LATENCY_S 1e-9

static int has_curve(const struct swn_divide_dnn *d)
{
    return d->curve && d->points && on_curve(d->curve, d->points, swn_divide_most(d)) >= LEAST_LATENCY_S;
}

/* Slowdown - 1 without a curve: 1 for each time that all weights are reread. */
static double missing(const struct swn_divide_dnn *d, uint64_t bytes)
{
    uint64_t most = swn_divide_most(d), weights = swn_divide_weights(d);
    return bytes < most && weights ? (double)(most - bytes) / (double)weights : 0;
}

double swn_divide_latency(const struct swn_divide_dnn *d, uint64_t bytes)
{
    if (has_curve(d))
        return on_curve(d->curve, d->points, bytes);
    return d->latency_s > 0 ? d->latency_s * (1 + missing(d, bytes)) : 0;
}

double swn_divide_delay(const struct swn_divide_dnn *d, uint64_t bytes)
{
    double delay = missing(d, bytes);
    if (has_curve(d)) {
        double best = on_curve(d->curve, d->points, swn_divide_most(d)), now = on_curve(d->curve, d->points, bytes);
        delay = best > 0 && isfinite(now) ? now / best - 1 : isfinite(best) ? 0 : INFINITY;
    }
    return delay > 0 ? delay * swn_divide_urgency(d) : 0;
}

double swn_divide_reads(const struct swn_divide_dnn *d, uint64_t bytes)
{
    uint64_t most = swn_divide_most(d);
    double latency = swn_divide_latency(d, bytes);
    return bytes < most && latency > 0 && isfinite(latency) ? (double)(most - bytes) / latency : 0;
}

/* The least bytes at which the curve is at `latency`. */
static double crossing(const struct swn_divide_point *p, size_t points, double latency)
{
    if (p[0].latency_s <= latency)
        return 0;
    for (size_t i = 1; i < points; i++) {
        if (p[i].latency_s > latency)
            continue;
        double from = p[i - 1].latency_s, width = (double)(p[i].budget_bytes - p[i - 1].budget_bytes);
        double part = isfinite(from) ? (from - latency) / (from - p[i].latency_s) : 1;
        return (double)p[i - 1].budget_bytes + part * width + 1; /* the caller rounds down */
    }
    return INFINITY;
}

/* The least bytes with which the delay is at most `delay`, or within the noise. */
static uint64_t need(const struct swn_divide_dnn *d, double delay)
{
    uint64_t most = swn_divide_most(d);
    delay = larger(delay, SWN_DIVIDE_NOISE);
    double slowdown = delay / swn_divide_urgency(d), bytes = (double)most - slowdown * (double)swn_divide_weights(d);
    if (has_curve(d))
        bytes = crossing(d->curve, d->points, on_curve(d->curve, d->points, most) * (1 + slowdown));
    if (bytes >= (double)most)
        return most;
    return bytes > (double)d->min_bytes ? (uint64_t)bytes : d->min_bytes;
}

/* The DNNs without a final share, and the bytes that are left for them. */
struct rest {
    const struct swn_divide_dnn *dnn;
    size_t n;
    const unsigned char *settled;
    uint64_t bytes;
};

static int fits(const struct rest *r, double delay)
{
    uint64_t left = r->bytes;
    for (size_t i = 0; i < r->n; i++) {
        uint64_t bytes = r->settled[i] ? 0 : need(&r->dnn[i], delay);
        if (bytes > left)
            return 0;
        left -= bytes;
    }
    return 1;
}

/* The smallest delay that all DNNs can have at once, to one part in a million of it or of 1. *under: just below it. */
static double smallest(const struct rest *r, double *under)
{
    double low = 0, high = 0;
    for (size_t i = 0; i < r->n; i++)
        if (!r->settled[i])
            high = larger(high, swn_divide_delay(&r->dnn[i], r->dnn[i].min_bytes));
    *under = -1;
    if (fits(r, 0))
        return 0;
    if (!isfinite(high)) /* a curve that begins with infinity: any start will do */
        high = 1e9;
    for (int i = 0; i < 64 && !fits(r, high); i++) /* crossing() rounds */
        high = high * 2 + 1e-6;
    if (!fits(r, high)) { /* no pass has such curves: every DNN gets its minimum */
        *under = high;
        return INFINITY;
    }
    for (int i = 0; i < 64 && high - low > 1e-6 * larger(1e-3, low); i++) {
        double mid = low + (high - low) / 2;
        *(fits(r, mid) ? &high : &low) = mid;
    }
    *under = low;
    return high;
}

/* Settles each DNN that even all spare bytes would not take below `under`: its delay cannot improve. Settles at least
 * one, so that the rounds end, and all when at most a page each is left. */
static void settle(struct rest *r, unsigned char *settled, double delay, double under, uint64_t *bytes)
{
    uint64_t spare = r->bytes, most = 0;
    size_t last = r->n, any = 0;
    for (size_t i = 0; i < r->n; i++)
        if (!settled[i])
            spare -= bytes[i] = need(&r->dnn[i], delay);
    int done = spare <= 4096 * r->n;
    for (size_t i = 0; i < r->n; i++) {
        if (settled[i])
            continue;
        uint64_t then = need(&r->dnn[i], under), more = then > bytes[i] ? then - bytes[i] : 0;
        if (last == r->n || more > most) {
            most = more;
            last = i;
        }
        if (done || more > spare || bytes[i] == swn_divide_most(&r->dnn[i])) {
            settled[i] = 1;
            any = 1;
        }
    }
    if (!any && last < r->n)
        settled[last] = 1;
}

struct turn {
    double every_s;
    size_t at;
};

static int by_turn(const void *a, const void *b)
{
    const struct turn *x = a, *y = b;
    if (x->every_s < y->every_s || y->every_s < x->every_s)
        return x->every_s < y->every_s ? -1 : 1;
    return x->at < y->at ? -1 : x->at > y->at;
}

/* Hands out the bytes that do not make any DNN measurably faster. A byte that is not reread relieves the disk, which
 * all share, and most where passes are shortest. DNNs with an unknown latency come last. */
static void hand_out_rest(const struct swn_divide_dnn *dnn, size_t n, uint64_t rest, uint64_t *bytes,
                          struct turn *turns)
{
    for (size_t i = 0; i < n; i++) {
        double latency = swn_divide_latency(&dnn[i], swn_divide_most(&dnn[i]));
        turns[i] = (struct turn){latency > 0 ? latency / swn_divide_urgency(&dnn[i]) : INFINITY, i};
    }
    qsort(turns, n, sizeof *turns, by_turn);
    for (size_t i = 0; i < n; i++)
        rest -= swn_divide_add(&dnn[turns[i].at], rest, &bytes[turns[i].at]);
}

int swn_divide_minmax(const struct swn_divide_dnn *dnn, size_t n, uint64_t total, uint64_t *bytes)
{
    unsigned char *settled = calloc(n, 1);
    struct turn *turns = calloc(n, sizeof *turns);
    if (!settled || !turns) {
        free(settled);
        free(turns);
        return -ENOMEM;
    }
    struct rest r = {.dnn = dnn, .n = n, .settled = settled, .bytes = total};
    for (size_t round = 0, left = n; round < n && left; round++) {
        double under, delay = smallest(&r, &under);
        settle(&r, settled, delay, under, bytes);
        left = 0;
        r.bytes = total;
        for (size_t i = 0; i < n; i++)
            *(settled[i] ? &r.bytes : &left) += settled[i] ? -bytes[i] : 1;
        if (delay <= 0)
            break;
    }
    free(settled);
    uint64_t sum = 0;
    for (size_t i = 0; i < n; i++)
        sum += bytes[i];
    hand_out_rest(dnn, n, total - sum, bytes, turns);
    free(turns);
    return 0;
}
