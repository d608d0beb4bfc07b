/* scheduler/policies/soonest.c - see soonest.h. */
#include "scheduler/policies/soonest.h"

#include <math.h>

#include "scheduler/policies/scratch.h"

/* The chains of all cohorts, and in *left how many segments they have. The cohort that the lane ran last. */
static uint32_t make_chains(struct swn_lane_scratch *x, const uint32_t *count, uint32_t *left)
{
    struct swn_lane_view *view = &x->view;
    uint32_t current = SWN_CHAIN_NONE, group[SWN_LANE_REQUESTS];

    *left = 0;
    for (uint32_t c = 0; c < view->cohort_count; c++) {
        const struct swn_cohort *cohort = &view->cohort[c];
        struct swn_segment *segments = x->segments + cohort->first;
        double total;
        x->chains[c] =
            (struct swn_chain){.segments = segments, .switch_ns = (double)view->state->models[cohort->model].switch_ns};
        if (cohort->model == view->state->last_model)
            current = c;
        if (!count[c])
            continue;
        struct swn_completion problem = swn_cohort_problem(view, cohort, x->time, x->bound);
        problem.n = count[c];
        problem.group = group;
        problem.weight = NULL;
        for (uint32_t i = 0; i < count[c]; i++)
            group[i] = x->due[cohort->first + i].group;
        x->chains[c].count = swn_completion_plan(&problem, &x->room, segments, &total);
        *left += x->chains[c].count;
    }
    return current;
}

static int is_on_time(const struct swn_lane_scratch *x, uint32_t c, const struct swn_segment *s, double end_ns)
{
    const struct swn_cohort *cohort = &x->view.cohort[c];

    for (uint32_t i = s->first; i <= s->last; i++) {
        const struct swn_due *due = &x->due[cohort->first + i];
        /* Who has no deadline has a place in the order of deadlines, so that nobody waits without end. */
        if (end_ns * SWN_SOONEST_PART > fmin(swn_due_safe(&x->view, cohort, due), due->order_ns))
            return 0;
    }
    return 1;
}

/* The least advanced requests of a segment run their group. */
static void run_first(const struct swn_lane_scratch *x, uint32_t c, const struct swn_segment *s,
                      struct swn_lane_decision *decision)
{
    const struct swn_cohort *cohort = &x->view.cohort[c];
    const struct swn_due *due = x->due + cohort->first;

    decision->model = cohort->model;
    decision->group = due[s->last].group;
    decision->member_count = 0;
    for (uint32_t i = s->first; i <= s->last; i++)
        if (due[i].group == decision->group)
            decision->members[decision->member_count++] = due[i].index;
}

int swn_decide_soonest(struct swn_lane_scratch *x, const uint32_t *count, struct swn_lane_decision *decision)
{
    uint32_t left, current = make_chains(x, count, &left), first = SWN_CHAIN_NONE;
    double end = 0;

    while (left) {
        uint32_t length, c = swn_chain_choose(x->chains, x->view.cohort_count, current, &length);
        end += c == current ? 0 : x->chains[c].switch_ns;
        first = first == SWN_CHAIN_NONE ? c : first;
        current = c;
        for (left -= length; length; length--) {
            const struct swn_segment *s = &x->chains[c].segments[x->chains[c].next++];
            end += s->time_ns;
            if (!is_on_time(x, c, s, end))
                return 0;
        }
    }
    if (first == SWN_CHAIN_NONE)
        return 0;
    run_first(x, first, x->chains[first].segments, decision);
    return 1;
}
