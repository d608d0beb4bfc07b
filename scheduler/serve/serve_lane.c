/* scheduler/serve/serve_lane.c - see serve_lane.h. */
#include "scheduler/serve/serve_lane.h"

#include <stdlib.h>
#include <string.h>

struct swn_serve_lane {
    enum swn_lane_policy policy;
    double time_error;
    struct swn_lane_scratch *scratch;
    struct swn_lane_decision decision;
    struct swn_serve_item *items[SWN_LANE_REQUESTS]; /* of requests[] */
    struct swn_lane_request requests[SWN_LANE_REQUESTS];
    struct swn_lane_model models[SWN_LANE_REQUESTS];
    struct swn_lane_group groups[SWN_LANE_REQUESTS][SWN_GROUPS_MOST];
    uint64_t curves[SWN_LANE_REQUESTS][SWN_GROUPS_MOST][SWN_CURVE_MOST]; /* of models whose requests are joined */
    uint32_t numbers[SWN_LANE_REQUESTS];                                 /* of models[] */
    uint32_t count, model_count;
    struct swn_lane_expected expected[SWN_LANE_EXPECTED];
    uint32_t expected_count;
    struct swn_lane_step steps[SWN_WIRE_STEPS];
    uint64_t done_ns[SWN_LANE_REQUESTS + 1];
};

struct swn_serve_lane *swn_serve_lane_new(enum swn_lane_policy policy, double time_error)
{
    struct swn_serve_lane *lane = calloc(1, sizeof *lane);

    if (lane && !(lane->scratch = swn_lane_scratch_new())) {
        free(lane);
        return NULL;
    }
    if (lane) {
        lane->policy = policy;
        lane->time_error = time_error;
    }
    return lane;
}

void swn_serve_lane_free(struct swn_serve_lane *lane)
{
    if (lane)
        swn_lane_scratch_free(lane->scratch);
    free(lane);
}

/* ---- which requests there are to choose from ---- */

/* Its last group has run, and the engine has its outputs. */
static int has_run(const struct swn_serve_item *item)
{
    return item->state == SWN_SERVE_HOLDS || item->state == SWN_SERVE_STORES;
}

/* A request that may not be needed does not begin before the one that says so. */
static int may_begin(const struct swn_serve_queue *q, const struct swn_serve_item *item)
{
    const struct swn_serve_item *upstream =
        item->upstream && !item->is_begun ? swn_serve_queue_find(q, item->upstream) : NULL;

    return !upstream || upstream->is_begun;
}

static int is_candidate(const struct swn_serve_queue *q, const struct swn_serve_item *item, unsigned engine)
{
    return item->engine == engine && item->state == SWN_SERVE_WAITS && item->is_loaded && !item->is_dropped &&
           may_begin(q, item);
}

/* Models of which outputs wait in the engine for room in the buffer: no further request of them begins, or outputs
 * would take the engine's memory. With more of them than that none of any model does. */
#define HOLDERS_MOST 8
struct holders {
    uint32_t models[HOLDERS_MOST];
    unsigned count;
};

static int holds(const struct holders *h, uint32_t model)
{
    unsigned i = 0;

    while (i < h->count && h->models[i] != model)
        i++;
    return i < h->count || h->count == HOLDERS_MOST;
}

static struct holders find_holders(const struct swn_serve_queue *q, unsigned engine)
{
    struct holders h = {.count = 0};

    for (const struct swn_serve_item *item = q->first; item; item = item->next)
        if (item->engine == engine && item->state == SWN_SERVE_HOLDS && !holds(&h, item->model))
            h.models[h.count++] = item->model;
    return h;
}

/* A request that may not share the engine: one that is alone, or that began under another division of its model. It is
 * the only candidate; those that have begun go to their ends before one that is alone begins. *begun_only: so they do.
 */
static struct swn_serve_item *only_candidate(const struct swn_serve_queue *q, const struct swn_lane_engine *engine,
                                             struct swn_lane_served (*model)(void *user, uint32_t number), void *user,
                                             int *begun_only)
{
    struct swn_serve_item *alone = NULL;
    int others = 0;

    *begun_only = 0;
    for (struct swn_serve_item *item = q->first; item; item = item->next) {
        if (item->engine == engine->number && has_run(item))
            others = 1; /* its outputs are in the engine's memory until it has stored them */
        if (!is_candidate(q, item, engine->number))
            continue;
        uint32_t groups = item->groups < SWN_GROUPS_MOST ? item->groups : SWN_GROUPS_MOST;
        if (item->is_begun && groups != model(user, item->model).times->count)
            return item;
        if (item->is_alone && (!alone || item->is_begun))
            alone = item;
        else if (item->is_begun)
            others = 1;
    }
    *begun_only = alone && !alone->is_begun && others;
    return *begun_only ? NULL : alone;
}

/* ---- the state that a policy sees ---- */

static uint32_t add_model(struct swn_serve_lane *lane, uint32_t number, const struct swn_lane_engine *engine,
                          struct swn_lane_served (*model)(void *user, uint32_t number), void *user)
{
    uint32_t i = 0;

    while (i < lane->model_count && lane->numbers[i] != number)
        i++;
    if (i < lane->model_count)
        return i;
    struct swn_lane_served served = model(user, number);
    lane->numbers[i] = number;
    lane->models[i] = (struct swn_lane_model){
        .groups = lane->groups[i],
        .batch_delay_ns = served.batch_delay_ns,
        .batch_full = served.batch_full,
        .output_bytes = served.times->output_bytes,
        .group_count = swn_group_times_now(served.times, served.weight_bytes, engine->read_total, lane->groups[i])};
    for (uint32_t g = 0; g < lane->models[i].group_count; g++)
        lane->groups[i][g].window_bytes = swn_lane_window(lane->groups[i][g].weight_bytes, engine->memory_bytes);
    for (uint32_t g = 0; served.batch_most > 1 && served.times->count && g < lane->models[i].group_count; g++)
        if (swn_group_times_curve(served.times, g, lane->groups[i][g].compute_ns, lane->curves[i][g])) {
            lane->groups[i][g].batch_ns = lane->curves[i][g];
            lane->groups[i][g].batch_count = SWN_CURVE_MOST;
        }
    lane->model_count++;
    return i;
}

/* Behind those that are as old: steps of ensembles are in the queue behind requests that came after the ensemble's. */
static void add_request(struct swn_serve_lane *lane, struct swn_serve_item *item, uint32_t model)
{
    uint32_t last = lane->models[model].group_count - 1, at = lane->count++;
    uint64_t arrived_ns = item->asked_ns ? item->asked_ns : item->arrived_ns;

    for (; item->asked_ns && at && lane->requests[at - 1].arrived_ns > arrived_ns; at--) {
        lane->items[at] = lane->items[at - 1];
        lane->requests[at] = lane->requests[at - 1];
    }
    lane->items[at] = item;
    lane->requests[at] = (struct swn_lane_request){.id = item->id,
                                                   .model = model,
                                                   .group = item->group < last ? item->group : last,
                                                   .arrived_ns = arrived_ns,
                                                   .deadline_ns = item->deadline_ns,
                                                   .weight = item->weight,
                                                   .job = item->job,
                                                   .upstream = item->upstream,
                                                   .probability = item->probability};
}

/* Models that may be asked for next, behind those of the requests. */
static void add_expected(struct swn_serve_lane *lane, const struct swn_lane_engine *engine,
                         struct swn_lane_served (*model)(void *user, uint32_t number), void *user)
{
    lane->expected_count = 0;
    for (uint32_t i = 0; i < engine->expected_count && lane->model_count < SWN_LANE_REQUESTS; i++)
        lane->expected[lane->expected_count++] =
            (struct swn_lane_expected){.model = add_model(lane, engine->expected[i].model, engine, model, user),
                                       .probability = engine->expected[i].probability,
                                       .is_again = engine->expected[i].is_again};
}

static struct swn_lane_state state_of(const struct swn_serve_lane *lane, const struct swn_lane_engine *engine,
                                      uint64_t now_ns)
{
    uint32_t last = 0;
    while (last < lane->model_count && lane->numbers[last] != engine->last_model)
        last++;
    return (struct swn_lane_state){.now_ns = now_ns,
                                   .models = lane->models,
                                   .model_count = lane->model_count,
                                   .last_model = last,
                                   .requests = lane->requests,
                                   .request_count = lane->count,
                                   .disk_bytes_per_ns = engine->disk_bytes_per_ns,
                                   .memory_bytes = engine->memory_bytes,
                                   .batch_most = SWN_LANE_TURNS,
                                   .time_error = lane->time_error,
                                   .turn_ns = SWN_LANE_TURN_NS,
                                   .expected = lane->expected,
                                   .expected_count = lane->expected_count,
                                   .free_bytes = engine->free_bytes};
}

/* ---- the choice ---- */

static void take_decision(const struct swn_serve_lane *lane, struct swn_lane_choice *choice)
{
    const struct swn_lane_decision *d = &lane->decision;

    for (uint32_t i = 0; i < d->member_count && choice->count < SWN_LANE_TURNS; i++)
        choice->items[choice->count++] = lane->items[d->members[i]];
    for (uint32_t i = 0; i < d->dropped_count; i++)
        choice->dropped[choice->dropped_count++] = lane->items[d->dropped[i]];
    choice->wake_ns = d->wake_ns;
}

/* Whether reading ahead could be of use. */
static int is_any_missing(const struct swn_serve_lane *lane)
{
    for (uint32_t m = 0; m < lane->model_count; m++)
        for (uint32_t g = 0; g < lane->models[m].group_count; g++)
            if (lane->groups[m][g].missing_bytes)
                return 1;
    return 0;
}

static void foretell(struct swn_serve_lane *lane, const struct swn_lane_state *state, struct swn_lane_choice *choice)
{
    if (!choice->count || !is_any_missing(lane))
        return;
    choice->foretold_count =
        swn_lane_foretell(lane->policy, state, &lane->decision, lane->scratch, lane->steps, SWN_WIRE_STEPS);
    for (unsigned i = 0; i < choice->foretold_count; i++)
        choice->foretold[i] =
            (struct swn_wire_step){.model = lane->numbers[lane->steps[i].model], .group = lane->steps[i].group};
}

/* A request that shares the engine with no other goes on to its end. `groups`: of its model's division now; the engine
 * knows groups of no other. */
static void foretell_alone(const struct swn_serve_item *item, uint32_t groups, struct swn_lane_choice *choice)
{
    if (item->groups && item->groups != groups)
        return;
    for (uint32_t g = item->group + 1; g < groups && choice->foretold_count < SWN_WIRE_STEPS; g++)
        choice->foretold[choice->foretold_count++] = (struct swn_wire_step){.model = item->model, .group = g};
}

static uint32_t add_step(struct swn_wire_step *steps, uint32_t n, struct swn_wire_step step)
{
    if (n == SWN_WIRE_STEPS || (n && steps[n - 1].model == step.model && steps[n - 1].group == step.group))
        return n;
    steps[n] = step;
    return n + 1;
}

uint32_t swn_serve_lane_following(const struct swn_lane_choice *choice, unsigned turn, uint32_t batch_most,
                                  uint64_t (*samples)(const struct swn_serve_item *item))
{
    const struct swn_serve_item *first = choice->items[turn];
    uint64_t all = samples(first);
    uint32_t n = 0;

    if (batch_most < 2 || !all)
        return 0;
    for (unsigned i = turn + 1; i < choice->count && n < SWN_WIRE_FOLLOWING && all < batch_most; i++, n++) {
        const struct swn_serve_item *item = choice->items[i];
        uint64_t more = samples(item);
        if (item->model != first->model || item->group != first->group || !more || more > batch_most - all)
            break;
        all += more;
    }
    return n;
}

uint32_t swn_serve_lane_behind(const struct swn_lane_choice *choice, unsigned turn, struct swn_wire_step *steps)
{
    uint32_t n = 0;

    for (unsigned i = turn + 1; i < choice->count; i++)
        n = add_step(steps, n,
                     (struct swn_wire_step){.model = choice->items[i]->model, .group = choice->items[i]->group});
    for (unsigned i = 0; i < choice->foretold_count; i++)
        n = add_step(steps, n, choice->foretold[i]);
    return n;
}

void swn_serve_lane_choose(struct swn_serve_lane *lane, const struct swn_serve_queue *q,
                           const struct swn_lane_engine *engine,
                           struct swn_lane_served (*model)(void *user, uint32_t number), void *user, uint64_t now_ns,
                           struct swn_lane_choice *choice)
{
    int begun_only;

    choice->count = choice->dropped_count = choice->foretold_count = 0;
    choice->wake_ns = 0;
    lane->count = lane->model_count = 0;
    if (swn_serve_queue_runs(q, engine->number))
        return;
    struct swn_serve_item *only = only_candidate(q, engine, model, user, &begun_only);
    if (only) {
        choice->items[choice->count++] = only;
        foretell_alone(only, model(user, only->model).times->count, choice);
        return;
    }
    struct holders holders = find_holders(q, engine->number);
    for (struct swn_serve_item *item = q->first; item && lane->count < SWN_LANE_REQUESTS; item = item->next)
        if (is_candidate(q, item, engine->number) && (item->is_begun || (!begun_only && !holds(&holders, item->model))))
            add_request(lane, item, add_model(lane, item->model, engine, model, user));
    if (lane->count == 0)
        return;
    add_expected(lane, engine, model, user);
    struct swn_lane_state state = state_of(lane, engine, now_ns);
    swn_lane_decide(lane->policy, &state, lane->scratch, &lane->decision);
    take_decision(lane, choice);
    foretell(lane, &state, choice);
}

/* ---- what is foreseen ---- */

uint64_t swn_serve_lane_wait_ns(struct swn_serve_lane *lane, const struct swn_serve_queue *q,
                                const struct swn_lane_engine *engine,
                                struct swn_lane_served (*model)(void *user, uint32_t number), void *user,
                                uint32_t number, uint64_t now_ns)
{
    struct swn_lane_request added = {.arrived_ns = now_ns, .weight = 1};

    lane->count = lane->model_count = lane->expected_count = 0;
    /* What runs counts as if its group began now. One place is left for the model itself. */
    for (struct swn_serve_item *item = q->first; item && lane->count < SWN_LANE_REQUESTS - 1; item = item->next)
        if (item->engine == engine->number && !has_run(item) && !item->is_dropped)
            add_request(lane, item, add_model(lane, item->model, engine, model, user));
    added.model = add_model(lane, number, engine, model, user);
    struct swn_lane_state state = state_of(lane, engine, now_ns);
    if (swn_lane_estimate(lane->policy, &state, &added, lane->scratch, lane->done_ns))
        return 0;
    uint64_t done = lane->done_ns[lane->count];
    return done > now_ns ? done - now_ns : 0;
}
