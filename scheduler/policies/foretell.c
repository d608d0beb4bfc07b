/* scheduler/policies/foretell.c - what the lane runs next, and behind that (policy.h): the policy decides, on what the
 * state will be after each decision.
 */
#include <stdint.h>
#include <string.h>

#include "scheduler/policies/curves.h"
#include "scheduler/policies/policy.h"
#include "scheduler/policies/scratch.h"
#include "scheduler/tasks/lookahead.h"

/* Decisions that are foreseen, by how many requests there are: one takes some ten microseconds with 24 of them, and up
 * to 2 ms with 500, and the lane waits meanwhile. */
static uint32_t decisions_most(uint32_t requests)
{
    return requests <= SWN_STEP_REQUESTS / 6   ? 32
           : requests <= SWN_STEP_REQUESTS / 3 ? 16
           : requests <= SWN_STEP_REQUESTS     ? 6
           : requests <= 64                    ? 2
                                               : 1;
}

/* The state to come, whose requests, models and groups lie in the scratch. */
struct future {
    struct swn_lane_state state;
    struct swn_foretelling *room;
    struct swn_lane_request *requests;
    uint32_t copied; /* of the groups of models */
};

static void begin(struct future *f, const struct swn_lane_state *state, struct swn_lane_scratch *scratch)
{
    f->state = *state;
    f->room = &scratch->foretelling;
    f->requests = scratch->requests;
    f->copied = 0;
    if (state->request_count > SWN_LANE_REQUESTS)
        f->state.request_count = SWN_LANE_REQUESTS;
    memcpy(f->requests, state->requests, f->state.request_count * sizeof *f->requests);
    f->state.requests = f->requests;
    if (state->model_count > SWN_LANE_REQUESTS)
        return; /* their weights are missing all the time */
    if (state->model_count)
        memcpy(f->room->models, state->models, state->model_count * sizeof *state->models);
    f->state.models = f->room->models;
}

/* The weights of a group that ran are in memory. What left for them is not foreseen. */
static void note_read(struct future *f, uint32_t model, uint32_t group)
{
    uint32_t at = 0;

    if (f->state.models != f->room->models)
        return;
    while (at < f->copied && f->room->copy_of[at] != model)
        at++;
    if (at == SWN_FORETOLD_MODELS)
        return;
    if (at == f->copied) {
        struct swn_lane_model *m = &f->room->models[model];
        memcpy(f->room->groups[at], m->groups, m->group_count * sizeof *m->groups);
        m->groups = f->room->groups[at];
        f->room->copy_of[f->copied++] = model;
    }
    f->room->groups[at][group].missing_bytes = 0;
}

static void let_pass(struct future *f, double ns)
{
    uint64_t after = ns < 9e18 ? (uint64_t)ns : (uint64_t)9e18;

    f->state.now_ns = after > UINT64_MAX - f->state.now_ns ? UINT64_MAX : f->state.now_ns + after;
}

/* The lane does what was decided, and nothing else comes. */
static void apply(struct future *f, const struct swn_lane_decision *d)
{
    uint8_t is_gone[SWN_LANE_REQUESTS] = {0};
    uint32_t left = 0;

    for (uint32_t k = 0; k < d->dropped_count; k++)
        is_gone[d->dropped[k]] = 1;
    if (d->member_count) {
        const struct swn_lane_model *m = &f->state.models[d->model];
        if (d->model != f->state.last_model)
            let_pass(f, (double)m->switch_ns);
        let_pass(f, swn_curve_time(&m->groups[d->group], f->state.disk_bytes_per_ns, d->member_count));
    }
    for (uint32_t k = 0; k < d->member_count; k++) {
        struct swn_lane_request *r = &f->requests[d->members[k]];
        note_read(f, r->model, r->group);
        f->state.last_model = r->model;
        if (++r->group == f->state.models[r->model].group_count)
            is_gone[d->members[k]] = 1;
    }
    for (uint32_t i = 0; i < f->state.request_count; i++)
        if (!is_gone[i])
            f->requests[left++] = f->requests[i];
    f->state.request_count = left;
}

static uint32_t add_step(struct swn_lane_step *steps, uint32_t count, uint32_t most, uint32_t model, uint32_t group)
{
    if (count == most || (count && steps[count - 1].model == model && steps[count - 1].group == group))
        return count;
    steps[count] = (struct swn_lane_step){.model = model, .group = group};
    return count + 1;
}

/* The engine reads the groups of an expected model in the place of weights that no queued request needs, if the model
 * is that likely. Those weights are mostly what the next request begins with. A wrong guess has the disk read them
 * again; a right one saves only the time in which the disk would have been idle. */
#define DISPLACES 0.75

/* What is left of free memory when the groups that are known to come have been read. */
static uint64_t free_behind(const struct swn_lane_state *state, const struct swn_lane_decision *decision,
                            const struct swn_lane_step *steps, uint32_t count)
{
    uint64_t room = state->free_bytes;

    for (uint32_t i = 0; i <= count; i++) {
        struct swn_lane_step step = i < count ? steps[i] : (struct swn_lane_step){decision->model, decision->group};
        uint64_t missing = state->models[step.model].groups[step.group].missing_bytes;
        uint32_t k = 0;

        while (k < i && (steps[k].model != step.model || steps[k].group != step.group))
            k++;
        if (k == i)
            room -= missing < room ? missing : room;
    }
    return room;
}

static int is_step(struct swn_lane_step step, uint32_t model, uint32_t group)
{
    return step.model == model && step.group == group;
}

/* What the next request needs, which goes all round: each group is there once behind the one that runs, so what has
 * just run is needed last. Of one model alone the engine knows that order. */
static uint32_t add_again(const struct swn_lane_state *state, const struct swn_lane_decision *decision,
                          struct swn_lane_step *steps, uint32_t count, uint32_t most)
{
    uint32_t before = count, others = 0;

    for (uint32_t k = 0; k < before; k++)
        others += steps[k].model != decision->model;
    for (uint32_t i = 0; i < state->expected_count; i++)
        others += state->expected[i].is_again && state->expected[i].model != decision->model;
    for (uint32_t i = 0; i < state->expected_count && others; i++) {
        const struct swn_lane_expected *e = &state->expected[i];

        for (uint32_t g = 0; e->is_again && g < state->models[e->model].group_count; g++) {
            uint32_t k = 0;
            while (k < count && !is_step(steps[k], e->model, g))
                k++;
            if (k == count)
                count = add_step(steps, count, most, e->model, g);
        }
    }
    return count;
}

/* Behind all that is known to come: the groups of models that may be asked next. What is not that likely is read only
 * where nothing lies then: weights that the lane reads would find no place, or take that of what the next request
 * begins with. */
static uint32_t add_expected(const struct swn_lane_state *state, const struct swn_lane_decision *decision,
                             struct swn_lane_step *steps, uint32_t count, uint32_t most)
{
    uint64_t room = free_behind(state, decision, steps, count);

    for (uint32_t i = 0; i < state->expected_count; i++) {
        const struct swn_lane_expected *e = &state->expected[i];
        const struct swn_lane_model *m = &state->models[e->model];
        uint32_t groups = swn_task_prefetched(e->probability, m->group_count);

        for (uint32_t g = 0; g < groups && !e->is_again; g++) {
            uint64_t missing = m->groups[g].missing_bytes;
            if (e->probability < DISPLACES && missing > room)
                break;
            room -= missing < room ? missing : room;
            count = add_step(steps, count, most, e->model, g);
        }
    }
    return add_again(state, decision, steps, count, most);
}

static uint32_t foretell_known(enum swn_lane_policy policy, const struct swn_lane_state *state,
                               const struct swn_lane_decision *decision, struct swn_lane_scratch *scratch,
                               struct swn_lane_step *steps, uint32_t most)
{
    struct swn_lane_decision *d = &scratch->foretelling.decision;
    struct future f;
    uint32_t count = 0;

    if (swn_lane_task_policy(policy) != SWN_TASK_POLICIES) {
        if (!decision->member_count || swn_lane_look(&scratch->view, state))
            return 0;
        return swn_tasks_foretell(scratch, swn_lane_task_policy(policy), decision, steps, most);
    }
    begin(&f, state, scratch);
    apply(&f, decision);
    /* The plan of exact is that of completion but for a few per cent, and takes a thousand times as long. */
    if (policy == SWN_LANE_EXACT)
        policy = SWN_LANE_COMPLETION;
    for (uint32_t left = decisions_most(f.state.request_count); left && count < most; left--) {
        if (swn_lane_decide(policy, &f.state, scratch, d))
            break;
        for (uint32_t k = 0; k < d->member_count; k++)
            count = add_step(steps, count, most, f.requests[d->members[k]].model, f.requests[d->members[k]].group);
        if (!d->member_count && !d->dropped_count) {
            if (d->wake_ns <= f.state.now_ns)
                break; /* there is no request, or nothing runs before another one comes */
            f.state.now_ns = d->wake_ns;
        }
        apply(&f, d);
    }
    return count;
}

uint32_t swn_lane_foretell(enum swn_lane_policy policy, const struct swn_lane_state *state,
                           const struct swn_lane_decision *decision, struct swn_lane_scratch *scratch,
                           struct swn_lane_step *steps, uint32_t most)
{
    uint32_t count = foretell_known(policy, state, decision, scratch, steps, most);

    return decision->member_count ? add_expected(state, decision, steps, count, most) : 0;
}
