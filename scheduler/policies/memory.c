/* scheduler/policies/memory.c - see memory.h. */
#include "scheduler/policies/memory.h"

static uint64_t plus(uint64_t a, uint64_t b)
{
    return a > UINT64_MAX - b ? UINT64_MAX : a + b;
}

static uint64_t less(uint64_t a, uint64_t b)
{
    return a > b ? a - b : 0;
}

static uint64_t larger(uint64_t a, uint64_t b)
{
    return a > b ? a : b;
}

/* Held before `group`; after the last one: the outputs. */
static uint64_t held(const struct swn_lane_model *m, uint32_t group)
{
    return group < m->group_count ? m->groups[group].state_bytes : m->output_bytes;
}

/* Weights that must be in memory for `count` requests in this group. */
static uint64_t weights(const struct swn_lane_group *g, uint32_t count)
{
    int is_window = count < 2 && g->window_bytes && g->window_bytes < g->weight_bytes;

    return is_window ? g->window_bytes : g->weight_bytes;
}

static int is_known(const struct swn_lane_group *g)
{
    return g->activation_bytes != SWN_LANE_NOT_KNOWN;
}

/* What one request needs to run the group alone. */
static uint64_t need_of(const struct swn_lane_state *s, const struct swn_lane_model *m, uint32_t group)
{
    const struct swn_lane_group *g = &m->groups[group];

    return is_known(g) ? plus(weights(g, 1), g->activation_bytes) : s->memory_bytes;
}

/* The most that one request needs at once from `group` to its end, which is before a group that does not fit. */
static uint64_t need(const struct swn_lane_state *s, const struct swn_lane_model *m, uint32_t group)
{
    uint64_t most = 0;

    for (uint32_t g = group; g < m->group_count && need_of(s, m, g) <= s->memory_bytes; g++)
        most = larger(most, need_of(s, m, g));
    return most;
}

uint64_t swn_lane_held(const struct swn_lane_state *state)
{
    uint64_t sum = 0;

    for (uint32_t i = 0; i < state->request_count; i++)
        sum = plus(sum, held(&state->models[state->requests[i].model], state->requests[i].group));
    return sum;
}

int swn_lane_fits_alone(const struct swn_lane_state *state, const struct swn_lane_request *request)
{
    return !state->memory_bytes ||
           need_of(state, &state->models[request->model], request->group) <= state->memory_bytes;
}

static int has(const uint64_t *set, uint32_t i)
{
    return set[i / 64] >> i % 64 & 1;
}

/* What requests of other models leave. */
static uint64_t room_for(const struct swn_lane_view *view, const struct swn_cohort *cohort)
{
    const struct swn_lane_state *s = view->state;
    uint64_t own = 0;

    for (uint32_t k = 0; k < cohort->count; k++)
        if (!has(view->dropped, view->order[cohort->first + k]))
            own = plus(own, held(&s->models[cohort->model], view->group[cohort->first + k]));
    return less(s->memory_bytes, less(view->held_bytes, own));
}

/* How many requests, 1 at least, are in lockstep in a group within so much memory. */
static uint64_t in_lockstep(const struct swn_lane_model *m, uint32_t g, uint64_t room)
{
    uint64_t first = plus(weights(&m->groups[g], 2), m->groups[g].activation_bytes);
    uint64_t each = larger(held(m, g), held(m, g + 1));

    if (first > room || !is_known(&m->groups[g]))
        return 1;
    return each ? (room - first) / each + 1 : UINT32_MAX;
}

void swn_lane_bounds(const struct swn_lane_view *view, const struct swn_cohort *cohort, uint32_t *bound)
{
    const struct swn_lane_state *s = view->state;
    const struct swn_lane_model *m = &s->models[cohort->model];
    uint64_t room = room_for(view, cohort);

    for (uint32_t g = 0; g < m->group_count; g++) {
        uint64_t most = s->batch_most ? s->batch_most : UINT32_MAX;
        if (s->memory_bytes) {
            uint64_t fitting = in_lockstep(m, g, room);
            most = fitting < most ? fitting : most;
        }
        bound[g] = most > UINT32_MAX ? UINT32_MAX : (uint32_t)most;
    }
}

/* How many requests of a cohort may have begun: as many as can be in lockstep in each later group that has room for
 * two. Were there more, their states would leave no room for the weights of a large group, and each of them would read
 * that group for itself. */
static uint64_t begun_most(const struct swn_lane_view *view, const struct swn_cohort *cohort)
{
    const struct swn_lane_model *m = &view->state->models[cohort->model];
    uint64_t room = room_for(view, cohort), most = UINT64_MAX;

    for (uint32_t g = 1; g < m->group_count; g++) {
        uint64_t fitting = in_lockstep(m, g, room);
        if (fitting < most && in_lockstep(m, g, view->state->memory_bytes) > 1)
            most = fitting;
    }
    return most;
}

static uint64_t begun_of(const struct swn_lane_view *view, const struct swn_cohort *cohort)
{
    uint64_t count = 0;

    for (uint32_t k = 0; k < cohort->count; k++)
        count += view->group[cohort->first + k] && !has(view->dropped, view->order[cohort->first + k]);
    return count;
}

/* Takes those out of a batch that are one too many. */
static void limit_begun(const struct swn_lane_view *view, struct swn_lane_decision *decision)
{
    for (uint32_t c = 0; c < view->cohort_count; c++) {
        uint64_t most = begun_most(view, &view->cohort[c]), begun = begun_of(view, &view->cohort[c]);
        uint32_t count = 0;

        for (uint32_t k = 0; k < decision->member_count; k++) {
            uint32_t i = decision->members[k];
            if (view->state->requests[i].model != view->cohort[c].model || begun++ < most)
                decision->members[count++] = i;
        }
        decision->member_count = count;
    }
}

/* The group that request i is at after the batch; the number of groups if it has ended. */
static uint32_t group_after(const struct swn_lane_state *s, uint32_t i, const uint64_t *ran)
{
    return s->requests[i].group + (uint32_t)has(ran, i);
}

/* The banker's rule, when `set_aside` are the bytes that requests hold after the batch. Requests of one model at one
 * group are alike, and once one of them can end, all can. */
static int can_all_end(const struct swn_lane_view *view, const uint64_t *ran, uint64_t set_aside)
{
    struct {
        uint64_t more, held; /* to run one of them: beside what it holds; what all of them hold */
    } class[SWN_LANE_REQUESTS];
    const struct swn_lane_state *s = view->state;
    uint32_t count = 0, last_model = UINT32_MAX, last_group = 0, left;

    for (uint32_t k = 0; k < view->n; k++) {
        const struct swn_lane_model *m = &s->models[s->requests[view->order[k]].model];
        uint32_t model = s->requests[view->order[k]].model, group = group_after(s, view->order[k], ran);
        uint64_t bytes = group < m->group_count ? held(m, group) : 0;
        if (!bytes || has(view->dropped, view->order[k]))
            continue; /* it has ended, or has not begun: it can wait until others have ended */
        if (count && model == last_model && group == last_group) {
            class[count - 1].held = plus(class[count - 1].held, bytes);
            continue;
        }
        last_model = model;
        last_group = group;
        class[count].more = less(need(s, m, group), bytes);
        class[count++].held = bytes;
    }
    for (left = count; left;) {
        uint32_t before = left;
        for (uint32_t k = 0; k < left;) {
            if (class[k].more > less(s->memory_bytes, set_aside) && class[k].more) {
                k++;
                continue;
            }
            set_aside = less(set_aside, class[k].held);
            class[k] = class[--left];
        }
        if (left == before)
            return 0;
    }
    return 1;
}

int swn_lane_admits(const struct swn_lane_view *view, const struct swn_lane_decision *decision, uint32_t count)
{
    const struct swn_lane_state *s = view->state;
    uint64_t ran[SWN_LANE_REQUESTS / 64 + 1] = {0};
    uint64_t others = view->held_bytes, members = 0, fewest = UINT64_MAX, activations = 0, after = 0, peak;
    uint32_t g = decision->group;
    int is_all_known = 1;

    if (count > 1 && s->batch_most && count > s->batch_most)
        return 0;
    if (!s->memory_bytes)
        return 1;
    for (uint32_t k = 0; k < count; k++) {
        uint32_t i = decision->members[k];
        const struct swn_lane_model *m = &s->models[s->requests[i].model];
        uint64_t each = larger(held(m, g), held(m, g + 1));
        others = less(others, held(m, g));
        members = plus(members, each);
        fewest = each < fewest ? each : fewest;
        activations = larger(activations, m->groups[g].activation_bytes);
        after = plus(after, g + 1 < m->group_count ? held(m, g + 1) : 0);
        ran[i / 64] |= (uint64_t)1 << i % 64;
        is_all_known &= is_known(&m->groups[g]);
    }
    if (!is_all_known && count > 1)
        return 0;
    peak = is_all_known ? plus(weights(&s->models[decision->model].groups[g], count), activations) : s->memory_bytes;
    peak = plus(plus(peak, others), less(members, fewest));
    return peak <= s->memory_bytes && can_all_end(view, ran, plus(others, after));
}

/* A request that has begun and that memory lets run on alone: the oldest. If there is none: one that fits nowhere, as
 * it ends when it is run; or the one that wants least. */
static uint32_t rescue(const struct swn_lane_view *view, struct swn_lane_decision *trial, uint32_t otherwise)
{
    const struct swn_lane_state *s = view->state;
    uint64_t least = UINT64_MAX;

    for (uint32_t i = 0; i < view->n; i++) {
        const struct swn_lane_model *m = &s->models[s->requests[i].model];
        uint32_t group = s->requests[i].group;
        uint64_t more = less(need(s, m, group), held(m, group));
        if (!held(m, group) || has(view->dropped, i))
            continue;
        trial->model = s->requests[i].model;
        trial->group = group;
        trial->members[0] = i;
        if (swn_lane_admits(view, trial, 1))
            return i;
        if (more < least) {
            least = more;
            otherwise = i;
        }
    }
    return otherwise;
}

void swn_lane_fit(struct swn_lane_view *view, struct swn_lane_decision *decision)
{
    const struct swn_lane_state *s = view->state;
    uint32_t first, other;

    if (!decision->member_count)
        return;
    for (uint32_t k = 0; k < decision->dropped_count; k++) {
        uint32_t i = decision->dropped[k];
        view->dropped[i / 64] |= (uint64_t)1 << i % 64;
        view->held_bytes = less(view->held_bytes, held(&s->models[s->requests[i].model], s->requests[i].group));
    }
    if (s->batch_most && decision->member_count > s->batch_most)
        decision->member_count = s->batch_most;
    first = decision->members[0];
    if (!decision->group && s->memory_bytes)
        limit_begun(view, decision);
    while (decision->member_count && !swn_lane_admits(view, decision, decision->member_count))
        decision->member_count--;
    if (decision->member_count)
        return;
    decision->member_count = 1;
    if (!swn_lane_fits_alone(s, &s->requests[first]))
        return;
    other = rescue(view, decision, first);
    decision->model = s->requests[other].model;
    decision->group = s->requests[other].group;
    decision->members[0] = other;
}
