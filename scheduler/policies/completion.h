/* scheduler/policies/completion.h - the FIFO segmentation with the least total completion time, for one model
 * (edge-serving paper, 4.1.2).
 *
 * Requests 0 .. n-1 are in FIFO order, so none is further than the one before it: group[0] >= group[1] >= ... A segment
 * is a run first .. last of them. It starts with its newest request, which is the least advanced one; whoever is at the
 * next group joins when the batch gets there, and all finish together. Segments run oldest first, each to its end.
 *
 *   Eq. 1   S(i,j) = W(i) * T(i,j)         T: the time of segment i .. j; W: see below
 *   Eq. 2   F(j) = min over i <= j of F(i-1) + S(i,j)
 *
 * - The paper's weight of Eq. 1, "the number of active jobs before request j finishes, including those that finish with
 *   it", is that of all unfinished requests, n - i + 1: everybody that has not finished before this segment waits for
 *   it. With those of the segment alone the result hardly ever batches. With weights W(i) is the sum of w(k), k >= i.
 * - Eq. 2 needs prefixes only, O(n^2), where the paper fills a table of n x n in O(n^3).
 * - FIFO order makes T one addition. The requests at group g or before are those from position p(g) on, so a batch
 *   that has i as its oldest has j - max(i, p(g)) + 1 requests in group g. For i at group a that is j - i + 1 in every
 *   group from a on, and does not depend on i before a:
 *       T(i,j) = sum over group(j) <= g < a of f[g][j - p(g) + 1]  +  R[a][j - i + 1],   R[a][m] = sum over g >= a of
 * f[g][m] The sums R are made once per decision. So nothing of T is worth keeping from one decision to the next, and
 *   requests of one group need not be made one unit, which the paper does for speed (4.1.2) and which batches
 *   requests where that gains nothing.
 * - A bound B of the batch size per group: a segment that would exceed it in a group costs infinity.
 */
#ifndef SWN_SCHEDULER_POLICIES_COMPLETION_H
#define SWN_SCHEDULER_POLICIES_COMPLETION_H

#include <stddef.h>
#include <stdint.h>

#include "scheduler/policies/lane.h"

struct swn_completion {
    const double *time; /* f: time[g * (most + 1) + m] */
    uint32_t most;      /* n or more */
    uint32_t group_count;
    const uint32_t *bound; /* per group, 1 or more; NULL: none */
    uint32_t n;            /* 1 .. SWN_LANE_REQUESTS */
    const uint32_t *group; /* of each request; never rises */
    const double *weight;  /* of each request, positive; NULL: 1 */
};

struct swn_segment {
    uint32_t first, last;
    double time_ns; /* T */
    double weight;  /* of the requests that finish with it */
};

/* Room for one call. */
struct swn_completion_room {
    double rest[(SWN_LANE_GROUPS + 1) * (SWN_LANE_REQUESTS + 1)]; /* R */
    double least[SWN_LANE_REQUESTS + 1];                          /* F of the first j requests */
    double waiting[SWN_LANE_REQUESTS + 1];                        /* W */
    uint32_t cut[SWN_LANE_REQUESTS + 1];                          /* where the last segment of the first j begins */
    uint32_t place[SWN_LANE_GROUPS + 1];                          /* p */
};

/* The segments in the order in which they run, and their number. *total: F(n), in weighted nanoseconds. A request that
 * no bound lets run in a batch runs alone. */
uint32_t swn_completion_plan(const struct swn_completion *c, struct swn_completion_room *room,
                             struct swn_segment *segments, double *total);

/* The same with segments of at most `size` requests, the oldest first: what the baselines do. */
uint32_t swn_completion_fixed(const struct swn_completion *c, uint32_t size, struct swn_segment *segments,
                              double *total);

/* T of one segment by its definition, O(n + groups); infinity where a bound forbids it. */
double swn_segment_time(const struct swn_completion *c, uint32_t first, uint32_t last);

/* The same of a set of requests, by how many of it begin at each group: no FIFO order is needed. */
double swn_set_time(const struct swn_completion *c, const uint32_t *begin);

#endif
