/* profiles/queue_depth.c - see queue_depth.h. */
#include "profiles/queue_depth.h"

#include <stdlib.h>

void swn_queue_depth_free(struct swn_queue_depth *r)
{
    free(r->measured);
    *r = (struct swn_queue_depth){0};
}

static uint64_t in_flight(const struct swn_read_rate *r)
{
    return r->depth * r->request_bytes;
}

/* `least`: the bytes in flight that last long enough. */
static int is_better(const struct swn_read_rate *a, const struct swn_read_rate *b, double least)
{
    int lasts = (double)in_flight(a) >= least;
    if (lasts != ((double)in_flight(b) >= least))
        return lasts;
    if (in_flight(a) != in_flight(b))
        return (in_flight(a) < in_flight(b)) == lasts;
    return a->depth != b->depth ? a->depth < b->depth : a->bytes_per_s > b->bytes_per_s;
}

static double best_rate(const struct swn_read_rate *rates, size_t n)
{
    double best = 0;
    for (size_t i = 0; i < n; i++)
        if (rates[i].depth >= SWN_READS_LEAST && rates[i].bytes_per_s > best)
            best = rates[i].bytes_per_s;
    return best;
}

const struct swn_read_rate *swn_queue_depth_choose(const struct swn_read_rate *rates, size_t n)
{
    const struct swn_read_rate *chosen = NULL;
    double best = best_rate(rates, n), least = best * SWN_READS_LAST_S;
    for (size_t i = 0; i < n && best > 0; i++)
        if (rates[i].depth >= SWN_READS_LEAST && rates[i].bytes_per_s >= best * (1 - SWN_READS_WITHIN) &&
            (!chosen || is_better(&rates[i], chosen, least)))
            chosen = &rates[i];
    return chosen;
}

double swn_queue_depth_rate(const struct swn_queue_depth *r, unsigned depth, uint64_t request_bytes)
{
    for (size_t i = 0; i < r->measured_count; i++)
        if (r->measured[i].depth == depth && r->measured[i].request_bytes == request_bytes)
            return r->measured[i].bytes_per_s;
    return 0;
}
