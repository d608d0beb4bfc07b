/* scheduler/policies/lane_view.h - the state as policies read it: checked, in order, with curves. Inside this folder.
 *
 * A cohort is the requests of one model. Parties are in the order of their oldest requests. In a cohort the furthest
 * requests come first, in a group the heaviest, then the oldest: so FIFO order (completion.h) holds whatever earlier
 * decisions, memory or stages computed elsewhere have led to.
 */
#ifndef SWN_SCHEDULER_POLICIES_LANE_VIEW_H
#define SWN_SCHEDULER_POLICIES_LANE_VIEW_H

#include "scheduler/policies/completion.h"
#include "scheduler/policies/lane.h"

struct swn_cohort {
    uint32_t model;
    uint32_t first, count; /* in order[] */
};

struct swn_lane_view {
    const struct swn_lane_state *state;
    uint32_t n; /* requests looked at */
    uint32_t cohort_count;
    struct swn_cohort cohort[SWN_LANE_REQUESTS];
    uint32_t order[SWN_LANE_REQUESTS];            /* indices of requests, cohort by cohort */
    uint32_t group[SWN_LANE_REQUESTS];            /* of order[] */
    double weight[SWN_LANE_REQUESTS];             /* of order[]; with age, see below */
    uint32_t sorting[SWN_LANE_REQUESTS];          /* room */
    uint64_t held_bytes;                          /* by all requests that are set aside, and not dropped */
    uint64_t dropped[SWN_LANE_REQUESTS / 64 + 1]; /* a bit for each request */
};

/* A request that is older than this many times the time that it takes alone counts as this many: the least total
 * completion time alone would let a long request wait while short ones come. The factor grows by itself for each
 * further such power of the age, so that no wait is without end. */
#define SWN_LANE_AGE 4

/* 0; -EINVAL as swn_lane_decide says. */
int swn_lane_look(struct swn_lane_view *view, const struct swn_lane_state *state);

/* As above, a request that was added to the state or moved. The weight without age; 1 where it is no positive number.
 */
double swn_lane_weight(const struct swn_lane_request *request);
double swn_lane_age_factor(double age_ns, double alone_ns);

/* The problem of a cohort: time is room for swn_curve_table, bound for SWN_LANE_GROUPS. */
struct swn_completion swn_cohort_problem(const struct swn_lane_view *view, const struct swn_cohort *cohort,
                                         double *time, uint32_t *bound);

/* The first step of a segment of a cohort: its least advanced requests run their group. */
void swn_cohort_step(const struct swn_lane_view *view, const struct swn_cohort *cohort, uint32_t first, uint32_t last,
                     struct swn_lane_decision *decision);

#endif
