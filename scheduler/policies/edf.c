/* scheduler/policies/edf.c - see edf.h. */
#include "scheduler/policies/edf.h"

#include <math.h>

#include "scheduler/policies/scratch.h"

double swn_edf_batch(const struct swn_completion *c, const uint32_t *by_due, const double *left, uint8_t *is_in)
{
    uint32_t begin[SWN_LANE_GROUPS] = {0};
    double least = INFINITY, time = 0;

    for (uint32_t k = 0; k < c->n; k++) {
        uint32_t i = by_due[k];
        double limit = left[i] < least ? left[i] : least, with;
        begin[c->group[i]]++;
        with = swn_set_time(c, begin);
        is_in[i] = k == 0 || with <= limit;
        if (is_in[i]) {
            least = limit;
            time = with;
        } else {
            begin[c->group[i]]--;
        }
    }
    return time;
}

void swn_decide_edf(struct swn_lane_scratch *x, struct swn_lane_decision *decision)
{
    struct swn_lane_view *view = &x->view;
    uint32_t n = 0, least = SWN_LANE_GROUPS, group[SWN_LANE_REQUESTS], by_due[SWN_LANE_REQUESTS];
    uint8_t is_in[SWN_LANE_REQUESTS];
    double left[SWN_LANE_REQUESTS];
    struct swn_completion problem;
    const struct swn_cohort *cohort = NULL;

    /* The list of the cohort with the earliest deadline is kept in the first half of x->due. */
    for (uint32_t c = 0; c < view->cohort_count; c++) {
        struct swn_due *list = x->due + (cohort ? SWN_LANE_REQUESTS : 0);
        uint32_t count = swn_due_list(view, &view->cohort[c], SWN_DUE_FIRST, list, decision);
        if (!count || (cohort && list[0].order_ns >= x->due[0].order_ns))
            continue;
        for (uint32_t k = 0; cohort && k < count; k++)
            x->due[k] = list[k];
        cohort = &view->cohort[c];
        n = count;
    }
    if (!n)
        return;
    problem = swn_cohort_problem(view, cohort, x->time, x->bound);
    problem.n = n;
    problem.group = group;
    for (uint32_t k = 0; k < n; k++) {
        by_due[k] = k;
        group[k] = x->due[k].group;
        left[k] = swn_due_safe(view, cohort, &x->due[k]);
    }
    swn_edf_batch(&problem, by_due, left, is_in);
    for (uint32_t k = 0; k < n; k++)
        if (is_in[k] && x->due[k].group < least)
            least = x->due[k].group;
    decision->model = cohort->model;
    decision->group = least;
    for (uint32_t k = 0; k < n; k++)
        if (is_in[k] && x->due[k].group == least)
            decision->members[decision->member_count++] = x->due[k].index;
}
