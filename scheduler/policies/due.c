/* scheduler/policies/due.c - see due.h. */
#include "scheduler/policies/due.h"

#include <math.h>

#include "scheduler/policies/curves.h"

/* b - a, which may be negative. */
static double between(uint64_t a, uint64_t b)
{
    return b >= a ? (double)(b - a) : -(double)(a - b);
}

static int is_before(const struct swn_due *a, const struct swn_due *b, enum swn_due_order order)
{
    if (order == SWN_DUE_IN_GROUPS && a->group != b->group)
        return a->group > b->group;
    return a->order_ns != b->order_ns ? a->order_ns < b->order_ns : a->index < b->index;
}

/* Shell's sort, with Ciura's gaps: no memory, and the order is total. */
static void sort(struct swn_due *due, uint32_t n, enum swn_due_order order)
{
    static const uint32_t gaps[] = {301, 132, 57, 23, 10, 4, 1};

    for (unsigned k = 0; k < sizeof gaps / sizeof *gaps; k++)
        for (uint32_t i = gaps[k]; i < n; i++) {
            struct swn_due moving = due[i];
            uint32_t at = i;
            for (; at >= gaps[k] && is_before(&moving, &due[at - gaps[k]], order); at -= gaps[k])
                due[at] = due[at - gaps[k]];
            due[at] = moving;
        }
}

uint32_t swn_due_list(const struct swn_lane_view *view, const struct swn_cohort *cohort, enum swn_due_order order,
                      struct swn_due *due, struct swn_lane_decision *decision)
{
    const struct swn_lane_state *s = view->state;
    const struct swn_lane_model *m = &s->models[cohort->model];
    double alone[SWN_LANE_GROUPS + 1];
    uint32_t n = 0;

    alone[m->group_count] = 0;
    for (uint32_t g = m->group_count; g-- > 0;)
        alone[g] = alone[g + 1] + swn_curve_time(&m->groups[g], s->disk_bytes_per_ns, 1);
    for (uint32_t k = cohort->first; k < cohort->first + cohort->count; k++) {
        const struct swn_lane_request *r = &s->requests[view->order[k]];
        double left = r->deadline_ns ? between(s->now_ns, r->deadline_ns) : INFINITY;
        if (decision && alone[r->group] > left) {
            decision->dropped[decision->dropped_count++] = view->order[k];
            continue;
        }
        due[n].index = view->order[k];
        due[n].group = r->group;
        due[n].left_ns = left;
        due[n++].order_ns = r->deadline_ns ? left : between(s->now_ns, r->arrived_ns) + SWN_DUE_FAR * alone[0];
    }
    sort(due, n, order);
    return n;
}

double swn_due_safe(const struct swn_lane_view *view, const struct swn_cohort *cohort, const struct swn_due *due)
{
    const struct swn_lane_state *s = view->state;
    double longer = s->time_error > 0 && s->time_error < 10 ? 1 + s->time_error : 1;
    /* A little more than the sum, as sums of times are rounded in one or another order. */
    double alone = swn_curve_alone(&s->models[cohort->model], s->disk_bytes_per_ns, due->group) * (1 + 1e-9);
    double safe = due->left_ns / longer;

    safe = safe > alone ? safe : alone;
    return safe < due->left_ns ? safe : due->left_ns;
}
