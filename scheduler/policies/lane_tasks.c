/* scheduler/policies/lane_tasks.c - see lane_tasks.h. */
#include "scheduler/policies/lane_tasks.h"

#include <string.h>

#include "scheduler/policies/scratch.h"
#include "scheduler/tasks/state.h"

/* Sums of so large numbers neither wrap nor lose their order. */
#define NS_MOST (UINT64_C(1) << 50)
#define BYTES_MOST (UINT64_C(1) << 43)
#define SPEED_LEAST 1e-3
#define SPEED_MOST 1e9
/* Of a decision of lookahead, which the engine waits for: schedules of fewer tasks than the simulation tries. */
#define STEPS_MOST 1500

static uint64_t at_most(uint64_t a, uint64_t most)
{
    return a < most ? a : most;
}

static uint64_t larger(uint64_t a, uint64_t b)
{
    return a > b ? a : b;
}

/* ---- the state ---- */

static uint64_t resident_bytes(const struct swn_lane_group *g)
{
    return g->weight_bytes > g->missing_bytes ? at_most(g->weight_bytes - g->missing_bytes, BYTES_MOST) : 0;
}

/* A group of which a part is missing is loaded by reading that part. */
static uint64_t load_bytes(const struct swn_lane_group *g)
{
    return at_most(g->missing_bytes ? g->missing_bytes : g->weight_bytes, BYTES_MOST);
}

/* A network of a model. A layer that needs more than there is counts as one that needs all of it: the engine finds out
 * what it really needs. *used: what lies in memory of groups of which a part is missing; *most: what one layer needs.
 */
static void make_network(struct swn_lane_tasks *t, uint32_t n, const struct swn_lane_model *m, uint64_t memory,
                         uint64_t *used, uint64_t *most)
{
    uint64_t before = 0;

    t->networks[n] = (struct swn_task_network){.layers = t->layers[n], .layer_count = m->group_count};
    for (uint32_t g = 0; g < m->group_count; g++) {
        const struct swn_lane_group *group = &m->groups[g];
        uint64_t after = g + 1 < m->group_count ? m->groups[g + 1].state_bytes : 0;
        /* What nobody has seen counts as nothing: the banker's rule keeps such a request alone. */
        uint64_t seen = group->activation_bytes == SWN_LANE_NOT_KNOWN ? 0 : group->activation_bytes;
        uint64_t activations = larger(seen, larger(before, after));
        struct swn_task_layer *layer = &t->layers[n][g];

        *layer = (struct swn_task_layer){.compute_ns = at_most(group->compute_ns, NS_MOST),
                                         .activation_bytes = at_most(activations, memory),
                                         .output_bytes = at_most(after, memory),
                                         .is_dense = 2.0 * (double)group->dense_bytes > (double)group->weight_bytes};
        layer->load_bytes = at_most(load_bytes(group), memory - layer->activation_bytes);
        *used += group->missing_bytes ? resident_bytes(group) : 0;
        *most = larger(*most, layer->load_bytes + layer->activation_bytes);
        before = after;
    }
}

/* The network of a model, which is made if there is none. */
static uint32_t network_of(struct swn_lane_tasks *t, const struct swn_lane_state *s, uint32_t model, uint32_t *count,
                           uint64_t memory, uint64_t *used, uint64_t *most)
{
    uint32_t n = 0;

    while (n < *count && t->models[n] != model)
        n++;
    if (n == *count) {
        t->models[(*count)++] = model;
        make_network(t, n, &s->models[model], memory, used, most);
    }
    return n;
}

/* Which blocks a pass finds in memory. With copies of its own only the first pass of a network finds any. Bulk waits
 * until all of its network is loaded, so what has computed counts as loaded, too. */
static void make_copy(struct swn_lane_tasks *t, const struct swn_lane_model *m, uint32_t copy, uint32_t network,
                      uint32_t from, int is_first, int keeps_computed)
{
    struct swn_task_copy *c = &t->copies[copy];

    memset(c, 0, sizeof *c);
    c->network = network;
    c->is_taken = 1;
    for (uint32_t g = 0; g < m->group_count; g++)
        if ((g >= from && is_first && !m->groups[g].missing_bytes) || (g < from && keeps_computed))
            c->blocks[g] = SWN_BLOCK_LOADED;
}

/* A request without a job is one. */
static uint64_t job_of(const struct swn_lane_request *r)
{
    return r->job ? r->job : r->id;
}

/* Does a go before b? In a job, those that have begun may go first: of schedules that are as good as each other the one
 * is taken that goes on with them. What is in memory of other models is known less well, and to change the order would
 * have an engine read anew what it has read ahead. */
static int is_before(const struct swn_lane_request *a, const struct swn_lane_request *b, int begun_first)
{
    return job_of(a) != job_of(b) ? job_of(a) < job_of(b) : begun_first && a->group && !b->group;
}

/* Requests by their jobs, the oldest job first. The number of passes. */
static uint32_t order_passes(const struct swn_lane_view *view, struct swn_lane_tasks *t, int begun_first)
{
    const struct swn_lane_request *r = view->state->requests;
    uint32_t count = view->n < SWN_SCHEDULE_PASSES ? view->n : SWN_SCHEDULE_PASSES;

    for (uint32_t i = 0; i < count; i++) {
        uint32_t k = i;

        for (; k > 0 && is_before(&r[i], &r[t->requests[k - 1]], begun_first); k--)
            t->requests[k] = t->requests[k - 1];
        t->requests[k] = i;
    }
    for (uint32_t p = 0; p < count; p++) {
        int is_new = p && job_of(&r[t->requests[p]]) != job_of(&r[t->requests[p - 1]]);

        t->passes[p].job = p ? t->passes[p - 1].job + (uint32_t)is_new : 0;
    }
    return count;
}

/* The pass whose result says whether another one is needed; one that there is not: it runs in another engine. */
static uint64_t upstream_of(const struct swn_lane_tasks *t, const struct swn_lane_state *s, uint64_t id)
{
    for (uint32_t p = 0; p < SWN_SCHEDULE_PASSES && p < s->request_count; p++)
        if (s->requests[t->requests[p]].id == id)
            return p + UINT64_C(1);
    return UINT64_MAX;
}

static void make_pass(struct swn_lane_tasks *t, const struct swn_lane_state *s, uint32_t p, uint32_t network,
                      uint32_t copy, uint64_t now_ns)
{
    const struct swn_lane_request *r = &s->requests[t->requests[p]];
    uint64_t age = s->now_ns > r->arrived_ns ? s->now_ns - r->arrived_ns : 0;

    t->passes[p] = (struct swn_task_pass){.id = p + UINT64_C(1),
                                          .upstream = r->upstream ? upstream_of(t, s, r->upstream) : 0,
                                          .arrived_ns = now_ns - at_most(age, NS_MOST),
                                          .weight = swn_lane_weight(r),
                                          .probability = r->upstream ? r->probability : 1,
                                          .is_undecided = r->upstream != 0,
                                          .job = t->passes[p].job,
                                          .network = network,
                                          .copy = copy,
                                          .inputs = 1,
                                          .next_layer = r->group};
}

static struct swn_task_state make_state(const struct swn_lane_view *view, struct swn_lane_tasks *t,
                                        enum swn_task_policy policy)
{
    const struct swn_lane_state *s = view->state;
    uint64_t memory = s->memory_bytes ? at_most(s->memory_bytes, BYTES_MOST) : BYTES_MOST, used = 0, most = 0;
    int is_shared = swn_task_policy_is_bounded(policy), keeps = policy == SWN_TASK_BULK;
    double speed = s->disk_bytes_per_ns > 0 ? s->disk_bytes_per_ns : SPEED_MOST;
    struct swn_task_state state = {.now_ns = NS_MOST,
                                   .networks = t->networks,
                                   .passes = t->passes,
                                   .copies = t->copies,
                                   .pass_count = order_passes(view, t, is_shared),
                                   .estimate = 1,
                                   .cascade = SWN_CASCADE_PREEMPT,
                                   .is_shared = (uint8_t)is_shared};

    for (uint32_t p = 0; p < state.pass_count; p++) {
        const struct swn_lane_request *r = &s->requests[t->requests[p]];
        uint32_t before = state.network_count;
        uint32_t n = network_of(t, s, r->model, &state.network_count, memory, &used, &most);
        int is_first = n == before;

        if (is_first || !is_shared)
            make_copy(t, &s->models[r->model], state.copy_count++, n, is_shared ? 0 : r->group, is_first, keeps);
        make_pass(t, s, p, n, is_shared ? n : p, state.now_ns);
    }
    speed = speed < SPEED_LEAST ? SPEED_LEAST : speed > SPEED_MOST ? SPEED_MOST : speed;
    state.machine = (struct swn_task_machine){.disk_bytes_per_ns = speed,
                                              .memory_bytes = larger(memory > used ? memory - used : 0, most),
                                              .workers = 1,
                                              .readers = 1,
                                              .is_disk_divided = 1};
    state.used_bytes = swn_task_used(&state);
    return state;
}

/* ---- the decision ---- */

/* The place of the first compute task in the schedule; its count: there is none. */
static uint32_t first_compute(const struct swn_task_schedule *schedule)
{
    uint32_t e = 0;

    while (e < schedule->count && schedule->events[e].kind != SWN_TASK_COMPUTE)
        e++;
    return e;
}

void swn_decide_tasks(struct swn_lane_scratch *x, enum swn_task_policy policy, struct swn_lane_decision *decision)
{
    struct swn_lane_tasks *t = &x->tasks;
    struct swn_task_state state = make_state(&x->view, t, policy);
    uint32_t request = 0, e;

    swn_task_schedule(policy, &state, STEPS_MOST, &t->schedule);
    e = first_compute(&t->schedule);
    if (e < t->schedule.count)
        request = t->requests[t->schedule.events[e].pass];
    decision->model = x->view.state->requests[request].model;
    decision->group = x->view.state->requests[request].group;
    decision->members[decision->member_count++] = request;
}

/* ---- what is foretold ---- */

struct list {
    struct swn_lane_step *steps;
    uint32_t count, most;
    uint32_t model, group; /* what the lane runs now: it needs no foretelling */
};

static void add(struct list *list, uint32_t model, uint32_t group)
{
    const struct swn_lane_step *last = list->count ? &list->steps[list->count - 1] : NULL;

    if (list->count == list->most || (last && last->model == model && last->group == group))
        return;
    list->steps[list->count++] = (struct swn_lane_step){.model = model, .group = group};
}

/* Blocks that passes have in memory and still need: an engine keeps what the list needs first. Half of the list at
 * most.
 */
static void add_resident(const struct swn_lane_tasks *t, const struct swn_task_state *s, struct list *list)
{
    for (uint32_t p = 0; p < s->pass_count; p++) {
        const struct swn_task_pass *pass = &s->passes[p];

        for (uint32_t l = pass->next_layer; l < s->networks[pass->network].layer_count; l++) {
            uint32_t model = t->models[pass->network];

            if (list->count == list->most / 2)
                return;
            if (s->copies[pass->copy].blocks[l] == SWN_BLOCK_LOADED && (model != list->model || l != list->group))
                add(list, model, l);
        }
    }
}

/* Passes behind those that a plan is for, as it has no room for all, and layers behind its end: what they need may be
 * in memory, and stays there only if it is foretold. */
static void add_rest(const struct swn_lane_tasks *t, const struct swn_task_state *s, struct list *list)
{
    uint64_t planned[SWN_SCHEDULE_PASSES] = {0};

    for (uint32_t e = 0; e < t->schedule.count; e++)
        if (t->schedule.events[e].kind == SWN_TASK_COMPUTE)
            planned[t->schedule.events[e].pass] |= UINT64_C(1) << t->schedule.events[e].layer;
    for (uint32_t p = 0; p < s->pass_count; p++)
        for (uint32_t l = s->passes[p].next_layer; l < s->networks[s->passes[p].network].layer_count; l++)
            if (!(planned[p] >> l & 1))
                add(list, t->models[s->passes[p].network], l);
}

uint32_t swn_tasks_foretell(struct swn_lane_scratch *x, enum swn_task_policy policy,
                            const struct swn_lane_decision *decision, struct swn_lane_step *steps, uint32_t most)
{
    struct list list = {steps, 0, most, decision->model, decision->group};
    struct swn_lane_tasks *t = &x->tasks;
    struct swn_task_state state = make_state(&x->view, t, policy);
    int is_planned = swn_task_policy_is_bounded(policy), is_own = 1;

    if (!is_planned)
        add_resident(t, &state, &list);
    swn_task_schedule(policy, &state, STEPS_MOST, &t->schedule);
    for (uint32_t e = 0; e < t->schedule.count; e++) {
        const struct swn_task_event *event = &t->schedule.events[e];
        uint32_t model = t->models[t->passes[event->pass].network];

        if (event->kind != (is_planned ? SWN_TASK_COMPUTE : SWN_TASK_LOAD))
            continue;
        /* Once: it is what the lane runs. In a plan it may come again, for the next request. */
        if (is_own && model == list.model && event->layer == list.group) {
            is_own = 0;
            continue;
        }
        add(&list, model, event->layer);
    }
    if (is_planned && t->schedule.count)
        add_rest(t, &state, &list);
    return list.count;
}
