/* scheduler/policies/estimate.c - when requests will be done under a policy (policy.h): its plan, segment by segment.
 */
#include <errno.h>
#include <string.h>

#include "scheduler/policies/policy.h"
#include "scheduler/policies/scratch.h"

uint32_t swn_lane_chains(struct swn_lane_scratch *x, uint32_t size)
{
    struct swn_lane_view *view = &x->view;
    uint32_t current = SWN_CHAIN_NONE;

    for (uint32_t c = 0; c < view->cohort_count; c++) {
        struct swn_cohort *cohort = &view->cohort[c];
        struct swn_completion problem = swn_cohort_problem(view, cohort, x->time, x->bound);
        struct swn_segment *segments = x->segments + cohort->first; /* never more than requests */
        struct swn_chain *chain = &x->chains[c];
        double total;
        *chain =
            (struct swn_chain){.segments = segments, .switch_ns = (double)view->state->models[cohort->model].switch_ns};
        if (size)
            chain->count = swn_completion_fixed(&problem, size, segments, &total);
        else
            chain->count = swn_completion_plan(&problem, &x->room, segments, &total);
        if (cohort->model == view->state->last_model)
            current = c;
    }
    return current;
}

/* Policies that are not after the completion time serve the chain whose next segment has the oldest request; No-Batch
 * first what has begun. */
static uint32_t oldest_chain(const struct swn_lane_scratch *x, int is_begun_first)
{
    uint32_t best = SWN_CHAIN_NONE, oldest = UINT32_MAX;

    for (uint32_t c = 0; c < x->view.cohort_count; c++) {
        const struct swn_chain *chain = &x->chains[c];
        if (chain->next == chain->count)
            continue;
        for (uint32_t k = chain->segments[chain->next].first; k <= chain->segments[chain->next].last; k++) {
            uint32_t i = x->view.order[x->view.cohort[c].first + k];
            if (is_begun_first && !x->view.group[x->view.cohort[c].first + k])
                i += SWN_LANE_REQUESTS;
            if (i < oldest) {
                oldest = i;
                best = c;
            }
        }
    }
    return best;
}

static uint64_t at(uint64_t now_ns, double after_ns)
{
    /* Not below 2^63 would be undefined, or wrap. */
    uint64_t after = after_ns < 9e18 ? (uint64_t)after_ns : (uint64_t)9e18;

    return after > UINT64_MAX - now_ns ? UINT64_MAX : now_ns + after;
}

/* done_ns of what the view has; the time of all. */
static double run_chains(struct swn_lane_scratch *x, enum swn_lane_policy policy, uint64_t *done_ns)
{
    int is_planned = policy <= SWN_LANE_TARDY_PAPER || policy == SWN_LANE_LOOKAHEAD;
    int is_single = policy == SWN_LANE_NO_BATCH || policy > SWN_LANE_LOOKAHEAD;
    uint32_t size = is_planned ? 0 : is_single ? 1 : SWN_LANE_REQUESTS;
    uint32_t current = swn_lane_chains(x, size), left = 0;
    double time = 0;

    for (uint32_t c = 0; c < x->view.cohort_count; c++)
        left += x->chains[c].count;
    while (left) {
        uint32_t length = 1, c = size ? oldest_chain(x, size == 1)
                                      : swn_chain_choose(x->chains, x->view.cohort_count, current, &length);
        time += c == current ? 0 : x->chains[c].switch_ns;
        current = c;
        for (left -= length; length; length--) {
            const struct swn_segment *s = &x->chains[c].segments[x->chains[c].next++];
            time += s->time_ns;
            for (uint32_t k = s->first; k <= s->last; k++)
                done_ns[x->view.order[x->view.cohort[c].first + k]] = at(x->view.state->now_ns, time);
        }
    }
    return time;
}

int swn_lane_estimate(enum swn_lane_policy policy, const struct swn_lane_state *state,
                      const struct swn_lane_request *added, struct swn_lane_scratch *scratch, uint64_t *done_ns)
{
    struct swn_lane_state with = *state;
    uint32_t all = state->request_count + (added != NULL), shown = all < SWN_LANE_REQUESTS ? all : SWN_LANE_REQUESTS;
    double time;
    int rc;

    if ((unsigned)policy >= SWN_LANE_POLICIES)
        return -EINVAL;
    if (added && shown == all) {
        memcpy(scratch->requests, state->requests, state->request_count * sizeof *state->requests);
        scratch->requests[all - 1] = *added;
        scratch->requests[all - 1].arrived_ns = state->now_ns;
        with.requests = scratch->requests;
        with.request_count = all;
    }
    rc = swn_lane_look(&scratch->view, &with);
    if (rc)
        return rc;
    time = run_chains(scratch, policy, done_ns);
    for (uint32_t i = shown; i < all; i++)
        done_ns[i] = at(state->now_ns, time * (i + 1) / shown);
    return 0;
}
