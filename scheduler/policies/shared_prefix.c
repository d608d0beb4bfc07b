/* scheduler/policies/shared_prefix.c - see shared_prefix.h. */
#include "scheduler/policies/shared_prefix.h"

#include "scheduler/policies/curves.h"
#include "scheduler/policies/lane_view.h"

int swn_prefix_is_same(const struct swn_lane_state *state, uint32_t model, uint32_t other, uint32_t group)
{
    const struct swn_lane_model *a = &state->models[model], *b = &state->models[other];

    if (group >= a->group_count || group >= b->group_count)
        return 0;
    for (uint32_t g = 0; g <= group; g++)
        if (!a->groups[g].identity || a->groups[g].identity != b->groups[g].identity)
            return 0;
    return 1;
}

int swn_prefix_is_any(const struct swn_lane_view *view)
{
    for (uint32_t c = 0; c < view->cohort_count; c++)
        for (uint32_t k = 0; k < c; k++)
            if (swn_prefix_is_same(view->state, view->cohort[c].model, view->cohort[k].model, 0))
                return 1;
    return 0;
}

/* Requests of other models at the decision's node, the oldest first. */
static uint32_t candidates(const struct swn_lane_view *view, const struct swn_lane_decision *decision, uint32_t *found)
{
    const struct swn_lane_request *r = view->state->requests;
    uint32_t n = 0, known = UINT32_MAX;
    int is_same = 0;

    for (uint32_t i = 0; i < view->n; i++) {
        if (r[i].group != decision->group || r[i].model == decision->model)
            continue;
        if (r[i].model != known) {
            known = r[i].model;
            is_same = swn_prefix_is_same(view->state, decision->model, known, decision->group);
        }
        if (is_same)
            found[n++] = i;
    }
    return n;
}

void swn_prefix_ride(const struct swn_lane_view *view, double segment_weight, struct swn_lane_decision *decision)
{
    const struct swn_lane_state *s = view->state;
    const struct swn_lane_group *g = &s->models[decision->model].groups[decision->group];
    double disk = s->disk_bytes_per_ns, waiting = 0, best = 0;
    uint32_t found[SWN_LANE_REQUESTS], others = candidates(view, decision, found), own = decision->member_count;
    uint32_t most = others, riders = 0;

    if (!own || !others)
        return;
    for (uint32_t k = 0; k < view->n; k++)
        waiting += view->weight[k];
    if (s->batch_most)
        most = s->batch_most <= own ? 0 : others < s->batch_most - own ? others : s->batch_most - own;
    for (uint32_t r = 1; r <= most; r++) {
        double rest = r < others ? swn_curve_time(g, disk, others - r) : 0;
        double saved = (waiting - segment_weight) * (swn_curve_time(g, disk, others) - rest);
        double lost = waiting * (swn_curve_time(g, disk, own + r) - swn_curve_time(g, disk, own));
        if (saved - lost >= best) { /* what costs nothing is done as well */
            best = saved - lost;
            riders = r;
        }
    }
    for (uint32_t r = 0; r < riders; r++)
        decision->members[decision->member_count++] = found[r];
}
