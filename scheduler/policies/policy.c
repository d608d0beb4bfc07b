/* scheduler/policies/policy.c - see policy.h. */
#include "scheduler/policies/policy.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "scheduler/policies/baselines.h"
#include "scheduler/policies/completion_step.h"
#include "scheduler/policies/curves.h"
#include "scheduler/policies/edf.h"
#include "scheduler/policies/memory.h"
#include "scheduler/policies/one_job.h"
#include "scheduler/policies/peers.h"
#include "scheduler/policies/scratch.h"
#include "scheduler/policies/shared_prefix.h"
#include "scheduler/policies/short_turn.h"

static const char *const names[SWN_LANE_LOOKAHEAD] = {
    "completion", "exact", "tardy", "tardy-paper", "edf", "no-batch", "batch", "dynamic", "lazy", "nexus", "symphony"};

/* Those over tasks have the names of scheduler/tasks. */
static const enum swn_task_policy task_policies[SWN_LANE_POLICIES] = {
    [SWN_LANE_LOOKAHEAD] = SWN_TASK_LOOKAHEAD,
    [SWN_LANE_MASA] = SWN_TASK_MASA,
    [SWN_LANE_MASA_ORDERED] = SWN_TASK_MASA_ORDERED,
    [SWN_LANE_MASA_CODE] = SWN_TASK_MASA_CODE,
    [SWN_LANE_BULK] = SWN_TASK_BULK,
    [SWN_LANE_DEEPEYE] = SWN_TASK_DEEPEYE,
    [SWN_LANE_DEEPEYE_FRUGAL] = SWN_TASK_DEEPEYE_FRUGAL,
};

enum swn_task_policy swn_lane_task_policy(enum swn_lane_policy policy)
{
    return policy >= SWN_LANE_LOOKAHEAD && policy < SWN_LANE_POLICIES ? task_policies[policy] : SWN_TASK_POLICIES;
}

const char *swn_lane_policy_name(enum swn_lane_policy policy)
{
    return (unsigned)policy < SWN_LANE_LOOKAHEAD ? names[policy] : swn_task_policy_name(swn_lane_task_policy(policy));
}

int swn_lane_policy_parse(const char *name, enum swn_lane_policy *out)
{
    for (unsigned i = 0; i < SWN_LANE_POLICIES; i++)
        if (!strcmp(name, swn_lane_policy_name((enum swn_lane_policy)i))) {
            *out = (enum swn_lane_policy)i;
            return 0;
        }
    return -EINVAL;
}

struct swn_lane_scratch *swn_lane_scratch_new(void)
{
    return calloc(1, sizeof(struct swn_lane_scratch));
}

void swn_lane_scratch_free(struct swn_lane_scratch *scratch)
{
    free(scratch);
}

/* The first `count` of a cohort's requests at `group`. */
static void run_some(const struct swn_lane_view *view, uint32_t cohort, uint32_t group, uint32_t count,
                     struct swn_lane_decision *decision)
{
    const struct swn_cohort *c = &view->cohort[cohort];

    decision->model = c->model;
    decision->group = group;
    for (uint32_t k = c->first; k < c->first + c->count && decision->member_count < count; k++)
        if (view->group[k] == group)
            decision->members[decision->member_count++] = view->order[k];
}

/* The problem of each cohort, where there are few requests; time has room for all. The cohort that the lane ran last.
 */
static uint32_t problems_of(struct swn_lane_scratch *x, struct swn_completion *problems,
                            uint32_t bounds[][SWN_LANE_GROUPS])
{
    uint32_t current = SWN_CHAIN_NONE;
    double *time = x->time;

    for (uint32_t c = 0; c < x->view.cohort_count; c++) {
        problems[c] = swn_cohort_problem(&x->view, &x->view.cohort[c], time, bounds[c]);
        time += problems[c].group_count * (problems[c].most + 1);
        if (x->view.cohort[c].model == x->view.state->last_model)
            current = c;
    }
    return current;
}

static void decide_step(struct swn_lane_scratch *x, struct swn_lane_decision *decision)
{
    struct swn_completion problems[SWN_STEP_REQUESTS];
    uint32_t bounds[SWN_STEP_REQUESTS][SWN_LANE_GROUPS];
    double switch_ns[SWN_STEP_REQUESTS], total;
    uint32_t current = problems_of(x, problems, bounds);
    struct swn_step step;

    for (uint32_t c = 0; c < x->view.cohort_count; c++)
        switch_ns[c] = (double)x->view.state->models[x->view.cohort[c].model].switch_ns;
    step = swn_completion_step(problems, switch_ns, x->view.cohort_count, current, &x->room, &total);
    run_some(&x->view, step.problem, step.group, step.count, decision);
}

static void decide_completion(struct swn_lane_scratch *x, struct swn_lane_decision *decision)
{
    struct swn_lane_view *view = &x->view;
    const struct swn_segment *s;
    int has_prefix = swn_prefix_is_any(view);
    uint32_t current, length, c;

    if (!has_prefix && swn_decide_one_job(view, decision))
        return;
    if (view->n <= SWN_STEP_REQUESTS && !has_prefix) {
        decide_step(x, decision);
        return;
    }
    current = swn_lane_chains(x, 0);
    c = swn_chain_choose(x->chains, view->cohort_count, current, &length);
    s = x->chains[c].segments;
    swn_cohort_step(view, &view->cohort[c], s->first, s->last, decision);
    swn_prefix_ride(view, s->weight, decision);
}

static void decide_exact(struct swn_lane_scratch *x, struct swn_lane_decision *decision)
{
    struct swn_completion problems[SWN_EXACT_REQUESTS];
    uint32_t bounds[SWN_EXACT_REQUESTS][SWN_LANE_GROUPS];
    struct swn_exact_step step;
    int has_prefix = swn_prefix_is_any(&x->view);
    double total;

    if (!has_prefix && swn_decide_one_job(&x->view, decision))
        return;
    if (x->view.n > SWN_EXACT_REQUESTS || has_prefix) {
        decide_completion(x, decision);
        return;
    }
    problems_of(x, problems, bounds);
    if (swn_exact_plan(problems, x->view.cohort_count, &x->exact, &step, &total))
        decide_completion(x, decision);
    else
        run_some(&x->view, step.problem, step.group, step.count, decision);
}

static void decide_no_batch(struct swn_lane_scratch *x, struct swn_lane_decision *decision)
{
    swn_decide_no_batch(&x->view, decision);
}

static void decide_batch(struct swn_lane_scratch *x, struct swn_lane_decision *decision)
{
    struct swn_completion problem = swn_cohort_problem(&x->view, &x->view.cohort[0], x->time, x->bound);

    swn_decide_batch(&x->view, &problem, x->segments, decision);
}

static void decide_tardy(struct swn_lane_scratch *x, struct swn_lane_decision *decision)
{
    swn_decide_tardy(x, 0, decision);
}

static void decide_tardy_paper(struct swn_lane_scratch *x, struct swn_lane_decision *decision)
{
    swn_decide_tardy(x, 1, decision);
}

typedef void (*decide_fn)(struct swn_lane_scratch *x, struct swn_lane_decision *decision);

static const decide_fn decide[SWN_LANE_LOOKAHEAD] = {
    [SWN_LANE_COMPLETION] = decide_completion, [SWN_LANE_EXACT] = decide_exact,
    [SWN_LANE_TARDY] = decide_tardy,           [SWN_LANE_TARDY_PAPER] = decide_tardy_paper,
    [SWN_LANE_EDF] = swn_decide_edf,           [SWN_LANE_NO_BATCH] = decide_no_batch,
    [SWN_LANE_BATCH] = decide_batch,           [SWN_LANE_DYNAMIC] = swn_decide_dynamic,
    [SWN_LANE_LAZY] = swn_decide_lazy,         [SWN_LANE_NEXUS] = swn_decide_nexus,
    [SWN_LANE_SYMPHONY] = swn_decide_symphony,
};

/* Those that stand for other servers make the turns that these make. */
static int fills_turns(enum swn_lane_policy policy)
{
    return policy <= SWN_LANE_EDF || policy == SWN_LANE_LOOKAHEAD;
}

static void clear(struct swn_lane_decision *decision)
{
    decision->model = decision->group = 0;
    decision->member_count = decision->dropped_count = 0;
    decision->wake_ns = 0;
}

/* What a request has left when it has run alone from now on; less than 0: it is late by that. */
static double spare_ns(const struct swn_lane_state *s, const struct swn_lane_request *r)
{
    return (double)(r->deadline_ns - s->now_ns) - swn_curve_alone(&s->models[r->model], s->disk_bytes_per_ns, r->group);
}

/* Predicted times are guesses until a group has run, and only runs correct them: were all requests dropped because of
 * too long a prediction, nothing would run, and all that come later would be dropped too. So where a policy drops all
 * that there are, the one that has the best prospects of those whose deadlines have not passed runs alone. */
static void run_rather_than_drop_all(const struct swn_lane_state *s, struct swn_lane_decision *d)
{
    uint32_t best = SWN_LANE_REQUESTS;
    double most = -INFINITY;

    if (d->member_count || d->dropped_count != s->request_count)
        return;
    for (uint32_t k = 0; k < d->dropped_count; k++) {
        const struct swn_lane_request *r = &s->requests[d->dropped[k]];
        double spare = spare_ns(s, r);
        if (r->deadline_ns <= s->now_ns || spare <= most)
            continue;
        most = spare;
        best = k;
    }
    if (best == SWN_LANE_REQUESTS)
        return;
    d->model = s->requests[d->dropped[best]].model;
    d->group = s->requests[d->dropped[best]].group;
    d->members[d->member_count++] = d->dropped[best];
    d->dropped[best] = d->dropped[--d->dropped_count];
}

static void decide_as_planned(enum swn_lane_policy policy, struct swn_lane_scratch *x,
                              struct swn_lane_decision *decision)
{
    clear(decision);
    if (policy < SWN_LANE_LOOKAHEAD)
        decide[policy](x, decision);
    else
        swn_decide_tasks(x, swn_lane_task_policy(policy), decision);
    if (fills_turns(policy))
        swn_short_turn_fill(&x->view, decision);
}

/* Whether a batch was to begin of which memory lets less than half. */
static int is_kept_from_beginning(const struct swn_lane_state *state, uint32_t planned, uint32_t group,
                                  const struct swn_lane_decision *fitting)
{
    if (state->batch_most && planned > state->batch_most)
        planned = state->batch_most;
    return planned && !group && (fitting->group || 2 * fitting->member_count < planned);
}

/* The same policy's decision if nothing else were there than what has begun and is not dropped. Where nothing has,
 * the decision stays. */
static void decide_among_begun(enum swn_lane_policy policy, const struct swn_lane_state *state,
                               struct swn_lane_scratch *x, struct swn_lane_decision *decision)
{
    struct swn_begun *b = &x->begun;

    b->state = *state;
    b->state.requests = b->requests;
    b->state.request_count = 0;
    for (uint32_t i = 0; i < x->view.n; i++)
        if (state->requests[i].group && !(x->view.dropped[i / 64] >> i % 64 & 1)) {
            b->index[b->state.request_count] = i;
            b->requests[b->state.request_count++] = state->requests[i];
        }
    if (!b->state.request_count || swn_lane_look(&x->view, &b->state))
        return;
    decide_as_planned(policy, x, &b->decision);
    swn_lane_fit(&x->view, &b->decision);
    if (!b->decision.member_count)
        return;
    decision->model = b->decision.model;
    decision->group = b->decision.group;
    decision->member_count = b->decision.member_count;
    for (uint32_t k = 0; k < b->decision.member_count; k++)
        decision->members[k] = b->index[b->decision.members[k]];
    for (uint32_t k = 0; k < b->decision.dropped_count; k++)
        decision->dropped[decision->dropped_count++] = b->index[b->decision.dropped[k]];
}

int swn_lane_decide(enum swn_lane_policy policy, const struct swn_lane_state *state, struct swn_lane_scratch *scratch,
                    struct swn_lane_decision *decision)
{
    uint32_t planned, group;
    int rc;

    clear(decision);
    if ((unsigned)policy >= SWN_LANE_POLICIES)
        return -EINVAL;
    rc = swn_lane_look(&scratch->view, state);
    if (rc || !scratch->view.n)
        return rc;
    decide_as_planned(policy, scratch, decision);
    run_rather_than_drop_all(state, decision);
    planned = decision->member_count;
    group = decision->group;
    swn_lane_fit(&scratch->view, decision);
    if (policy < SWN_LANE_LOOKAHEAD && is_kept_from_beginning(state, planned, group, decision))
        decide_among_begun(policy, state, scratch, decision);
    return 0;
}
