/* scheduler/policies/edf.c - see edf.h. */
#include "scheduler/policies/edf.h"

#include <math.h>

#include "scheduler/policies/scratch.h"

/* The batch of one model, by deadline: marks who is in it. */
static void collect(const struct swn_completion *c, const struct swn_due *due, uint32_t n, uint8_t *is_in)
{
    uint32_t begin[SWN_LANE_GROUPS] = {0};
    double least = INFINITY;

    for (uint32_t k = 0; k < n; k++) {
        double limit = due[k].left_ns < least ? due[k].left_ns : least;
        begin[due[k].group]++;
        is_in[k] = k == 0 || swn_set_time(c, begin) <= limit;
        if (is_in[k])
            least = limit;
        else
            begin[due[k].group]--;
    }
}

void swn_decide_edf(struct swn_lane_scratch *x, struct swn_lane_decision *decision)
{
    struct swn_lane_view *view = &x->view;
    uint32_t n = 0, least = SWN_LANE_GROUPS;
    uint8_t is_in[SWN_LANE_REQUESTS];
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
    if (!cohort)
        return;
    problem = swn_cohort_problem(view, cohort, x->time, x->bound);
    for (uint32_t k = 0; k < n; k++)
        x->due[k].left_ns = swn_due_safe(view, cohort, &x->due[k]);
    collect(&problem, x->due, n, is_in);
    for (uint32_t k = 0; k < n; k++)
        if (is_in[k] && x->due[k].group < least)
            least = x->due[k].group;
    decision->model = cohort->model;
    decision->group = least;
    for (uint32_t k = 0; k < n; k++)
        if (is_in[k] && x->due[k].group == least)
            decision->members[decision->member_count++] = x->due[k].index;
}
