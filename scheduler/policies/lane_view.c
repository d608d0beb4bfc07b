/* scheduler/policies/lane_view.c - see lane_view.h. */
#include "scheduler/policies/lane_view.h"

#include <errno.h>
#include <string.h>

#include "scheduler/policies/curves.h"
#include "scheduler/policies/memory.h"

double swn_lane_weight(const struct swn_lane_request *request)
{
    double w = request->weight;

    if (!(w > 0))
        return 1;
    /* What may not be needed counts by how likely it is. */
    w *= request->upstream ? request->probability : 1;
    if (!(w > 0))
        return 1e-6;
    /* Sums of 500 products with times stay finite, and differences keep their meaning. */
    return w < 1e-6 ? 1e-6 : w > 1e9 ? 1e9 : w;
}

double swn_lane_age_factor(double age_ns, double alone_ns)
{
    double factor = 1;

    if (!(alone_ns >= 1))
        alone_ns = 1;
    while (age_ns > alone_ns * SWN_LANE_AGE && factor < 1e6) {
        factor *= SWN_LANE_AGE;
        age_ns /= SWN_LANE_AGE;
    }
    return factor;
}

static int is_valid(const struct swn_lane_state *s, const struct swn_lane_request *r)
{
    const struct swn_lane_model *m;

    if (r->model >= s->model_count)
        return 0;
    m = &s->models[r->model];
    return m->group_count && m->group_count <= SWN_LANE_GROUPS && r->group < m->group_count;
}

/* Does a come before b in a cohort? Equal ones keep their order. */
static int is_before(const struct swn_lane_request *a, double wa, const struct swn_lane_request *b, double wb)
{
    return a->group != b->group ? a->group > b->group : wa > wb;
}

/* Merges runs of a cohort until it is one; stable. weights are by request. */
static void sort(const struct swn_lane_request *requests, const double *weight, uint32_t *order, uint32_t *room,
                 uint32_t n)
{
    for (uint32_t width = 1; width < n; width *= 2) {
        for (uint32_t from = 0; from < n; from += 2 * width) {
            uint32_t middle = from + width < n ? from + width : n, end = middle + width < n ? middle + width : n;
            uint32_t a = from, b = middle;
            for (uint32_t k = from; k < end; k++) {
                int take_b = a == middle;
                if (a < middle && b < end)
                    take_b = is_before(&requests[order[b]], weight[order[b]], &requests[order[a]], weight[order[a]]);
                room[k] = take_b ? order[b++] : order[a++];
            }
        }
        memcpy(order, room, n * sizeof *order);
    }
}

/* order[] by cohort, in the order of arrival. */
static void divide(struct swn_lane_view *view)
{
    const struct swn_lane_request *r = view->state->requests;
    uint32_t *cohort_of = view->sorting, at = 0;

    view->cohort_count = 0;
    for (uint32_t i = 0; i < view->n; i++) {
        uint32_t p = 0;
        while (p < view->cohort_count && view->cohort[p].model != r[i].model)
            p++;
        if (p == view->cohort_count)
            view->cohort[view->cohort_count++] = (struct swn_cohort){.model = r[i].model};
        cohort_of[i] = p;
        view->cohort[p].count++;
    }
    for (uint32_t p = 0; p < view->cohort_count; p++) {
        view->cohort[p].first = at;
        at += view->cohort[p].count;
        view->cohort[p].count = 0;
    }
    for (uint32_t i = 0; i < view->n; i++) {
        struct swn_cohort *p = &view->cohort[cohort_of[i]];
        view->order[p->first + p->count++] = i;
    }
}

int swn_lane_look(struct swn_lane_view *view, const struct swn_lane_state *state)
{
    double by_request[SWN_LANE_REQUESTS];

    view->state = state;
    view->n = state->request_count < SWN_LANE_REQUESTS ? state->request_count : SWN_LANE_REQUESTS;
    for (uint32_t i = 0; i < state->request_count; i++)
        if (!is_valid(state, &state->requests[i]))
            return -EINVAL;
    divide(view);
    for (uint32_t p = 0; p < view->cohort_count; p++) {
        const struct swn_cohort *cohort = &view->cohort[p];
        uint32_t *order = view->order + cohort->first;
        double alone = swn_curve_alone(&state->models[cohort->model], state->disk_bytes_per_ns, 0);
        for (uint32_t k = 0; k < cohort->count; k++) {
            const struct swn_lane_request *r = &state->requests[order[k]];
            double age = state->now_ns > r->arrived_ns ? (double)(state->now_ns - r->arrived_ns) : 0;
            by_request[order[k]] = swn_lane_weight(r) * swn_lane_age_factor(age, alone);
        }
        sort(state->requests, by_request, order, view->sorting, cohort->count);
        for (uint32_t k = 0; k < cohort->count; k++) {
            view->group[cohort->first + k] = state->requests[order[k]].group;
            view->weight[cohort->first + k] = by_request[order[k]];
        }
    }
    view->held_bytes = swn_lane_held(state);
    memset(view->dropped, 0, sizeof view->dropped);
    return 0;
}

struct swn_completion swn_cohort_problem(const struct swn_lane_view *view, const struct swn_cohort *cohort,
                                         double *time, uint32_t *bound)
{
    const struct swn_lane_state *s = view->state;

    swn_curve_table(&s->models[cohort->model], s->disk_bytes_per_ns, cohort->count, time);
    swn_lane_bounds(view, cohort, bound);
    return (struct swn_completion){.time = time,
                                   .most = cohort->count,
                                   .group_count = s->models[cohort->model].group_count,
                                   .bound = bound,
                                   .n = cohort->count,
                                   .group = view->group + cohort->first,
                                   .weight = view->weight + cohort->first};
}

void swn_cohort_step(const struct swn_lane_view *view, const struct swn_cohort *cohort, uint32_t first, uint32_t last,
                     struct swn_lane_decision *decision)
{
    const uint32_t *group = view->group + cohort->first, *order = view->order + cohort->first;

    decision->model = cohort->model;
    decision->group = group[last];
    decision->member_count = 0;
    for (uint32_t k = first; k <= last; k++)
        if (group[k] == group[last])
            decision->members[decision->member_count++] = order[k];
}
