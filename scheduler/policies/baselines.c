/* scheduler/policies/baselines.c - see baselines.h. */
#include "scheduler/policies/baselines.h"

void swn_decide_no_batch(const struct swn_lane_view *view, struct swn_lane_decision *decision)
{
    const struct swn_lane_request *r = view->state->requests;
    uint32_t next = 0;

    for (uint32_t i = view->n; i-- > 0;)
        if (r[i].group)
            next = i;
    decision->model = r[next].model;
    decision->group = r[next].group;
    decision->members[0] = next;
    decision->member_count = 1;
}

void swn_decide_batch(const struct swn_lane_view *view, struct swn_completion *problem, struct swn_segment *segments,
                      struct swn_lane_decision *decision)
{
    double total;

    swn_completion_fixed(problem, problem->n, segments, &total);
    swn_cohort_step(view, &view->cohort[0], segments[0].first, segments[0].last, decision);
}
