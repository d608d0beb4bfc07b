/* scheduler/policies/tardy.h - the fewest requests that are late (edge-serving paper, 4.2). Inside this folder.
 *
 * Requests are in FIFO order (completion.h), by deadline in a group. A segment is taken from a run of them; who of the
 * run is not in it is dropped. A request without a deadline is never dropped: it is in a segment, or waits.
 *
 * - As printed (swn_tardy_paper): the program of completion.h with the number of late requests instead of the time;
 *   those that are late in its plan are dropped. One number per prefix is not enough, as the number of late requests
 *   depends on when the prefix ends; here it is the least number, and of equal ones the earliest end.
 * - Exact (swn_tardy_plan): E(j,k) is the earliest end of the first j requests when k of them are dropped. It is the
 *   least of E(j-1,k-1), where the last one is dropped, and of
 *       E(i-1,k-d) + T    for all i and all deadlines u of i .. j, where that is not after u
 *   T is the time of those of i .. j that are not due before u, and d the number of the others. Where a larger batch
 *   never takes less time than a smaller one, no other choice of a run is better: whoever is left out of it although
 *   there is time is best the least advanced one, and that one is at the end of the run, so that a shorter run is the
 *   same. Times of joined requests can fall (three run as two and one, four as one): there it may be best to leave out
 *   another one, which is not looked for. The plan is that of the least k with a finite E(n,k). O(n^3 k), so it looks
 *   at the first requests only.
 * - Requests without a deadline are in segments, and none of them is dropped by itself. If that has others dropped that
 *   need not be, the plan is that of the others alone, and they wait; but not once one has waited until its turn
 *   (SWN_DUE_FAR).
 *
 * A plan says who is dropped. Of the schedules in which all others are on time, those do best that leave something for
 * requests to come, and for times that are longer than expected (swn_decide_tardy):
 *
 * - While all requests can end in half of their time: the least completion time (soonest.h).
 * - Else, where no other model has requests, the largest batch, that of edf.h, if all others of the plan are on time
 *   behind it. It serves more with one reading, and the few that are left share theirs with requests that come
 *   meanwhile.
 * - Else the plan's own first segment.
 */
#ifndef SWN_SCHEDULER_POLICIES_TARDY_H
#define SWN_SCHEDULER_POLICIES_TARDY_H

#include "scheduler/policies/completion.h"

#define SWN_TARDY_REQUESTS 24
#define SWN_TARDY_WAITS (UINT32_MAX - 1)
#define SWN_TARDY_DROPPED UINT32_MAX

struct swn_lane_scratch;

/* Room for one call. */
struct swn_tardy_room {
    double time[SWN_TARDY_REQUESTS][SWN_TARDY_REQUESTS];        /* T of i .. j */
    double end[SWN_TARDY_REQUESTS + 1][SWN_TARDY_REQUESTS + 1]; /* E */
    struct {
        uint32_t begin, dropped; /* the run, and how many of it are dropped */
        double due;              /* u; infinite: the last one is dropped by itself, or all have no deadline */
    } cut[SWN_TARDY_REQUESTS + 1][SWN_TARDY_REQUESTS + 1];
};

/* left: of each request, what is left to its deadline, or infinity. On return segment[i] is that of request i, counted
 * from 0 in the order in which they run, SWN_TARDY_DROPPED, or SWN_TARDY_WAITS; this only where may_wait. c->n is
 * SWN_TARDY_REQUESTS at most. Both return how many are dropped. */
uint32_t swn_tardy_plan(const struct swn_completion *c, const double *left, int may_wait, struct swn_tardy_room *room,
                        uint32_t *segment);
uint32_t swn_tardy_paper(const struct swn_completion *c, const double *left, struct swn_tardy_room *room,
                         uint32_t *segment);

/* Of several models, that goes first whose first segment has to begin first. is_paper: the program as printed. */
void swn_decide_tardy(struct swn_lane_scratch *x, int is_paper, struct swn_lane_decision *decision);

#endif
