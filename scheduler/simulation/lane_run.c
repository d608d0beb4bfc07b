/* scheduler/simulation/lane_run.c - see lane_run.h. */
#include "scheduler/simulation/lane_run.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "scheduler/policies/curves.h"
#include "scheduler/policies/server.h"
#include "scheduler/simulation/random.h"

/* A policy that wants to be asked again at a time that has passed is asked after so long. */
#define TICK_NS 1000
#define PARETO 1.5

/* What is known of one model while it runs. */
struct course {
    uint64_t next_ns; /* its next arrival; UINT64_MAX: no more */
    struct swn_lane_group groups[SWN_LANE_GROUPS], believed[SWN_LANE_GROUPS];
    double belief[SWN_LANE_GROUPS];    /* of a group's computing, over what is true */
    uint64_t used_ns[SWN_LANE_GROUPS]; /* when the group ran last */
    double *times;                     /* of those that were done */
    uint64_t room;
    double resident; /* bytes times ns */
};

struct bench {
    const struct swn_lane_run *run;
    struct swn_lane_outcome *out;
    struct swn_lane_totals *totals;
    struct course *courses;
    struct swn_lane_model *models, *believed; /* believed: what the policy sees */
    struct swn_lane_request requests[SWN_LANE_RUN_QUEUE];
    struct swn_lane_state state;
    struct swn_random random, beliefs; /* two series: whoever believes what, the same requests come */
    uint64_t arrived, held_bytes;      /* held: of weights in memory */
    struct swn_lane_decision decision;
};

static uint64_t saturated(double ns)
{
    return ns < 9e18 ? (uint64_t)ns : (uint64_t)9e18;
}

/* ---- arrivals ---- */

static void draw_next(struct bench *b, uint32_t m)
{
    struct course *c = &b->courses[m];
    double mean = 1e9 / b->run->loads[m].rate_per_s, wait = mean;
    uint64_t next;

    if (b->run->spacing == SWN_LANE_POISSON)
        wait = swn_random_exponential(&b->random, mean);
    else if (b->run->spacing == SWN_LANE_PARETO)
        wait = swn_random_pareto(&b->random, mean, PARETO);
    next = c->next_ns + saturated(wait);
    c->next_ns = next < b->run->duration_ns ? next : UINT64_MAX;
}

static uint32_t first_to_come(const struct bench *b)
{
    uint32_t first = 0;

    for (uint32_t m = 1; m < b->run->count; m++)
        if (b->courses[m].next_ns < b->courses[first].next_ns)
            first = m;
    return first;
}

/* All that have come by now. */
static void take_arrivals(struct bench *b)
{
    for (;;) {
        uint32_t m = first_to_come(b);
        struct course *c = &b->courses[m];
        uint64_t at = c->next_ns, deadline = b->run->loads[m].deadline_ns;
        if (at > b->state.now_ns)
            return;
        draw_next(b, m);
        b->out[m].arrived++;
        if (++b->arrived == SWN_LANE_RUN_REQUESTS)
            for (uint32_t k = 0; k < b->run->count; k++)
                b->courses[k].next_ns = UINT64_MAX;
        if (b->state.request_count == SWN_LANE_RUN_QUEUE) {
            b->out[m].refused++;
            continue;
        }
        b->requests[b->state.request_count++] = (struct swn_lane_request){
            .id = b->arrived, .model = m, .arrived_ns = at, .deadline_ns = deadline ? at + deadline : 0, .weight = 1};
    }
}

/* ---- weights ---- */

static uint64_t there(const struct swn_lane_group *g)
{
    return g->weight_bytes - g->missing_bytes;
}

/* Takes bytes from the group that was used the longest time ago, but not from that of model `m`. 0: there is none. */
static uint64_t take_oldest(struct bench *b, uint32_t m, uint32_t group, uint64_t bytes)
{
    struct swn_lane_group *oldest = NULL;
    uint64_t used = UINT64_MAX;

    for (uint32_t k = 0; k < b->run->count; k++)
        for (uint32_t g = 0; g < b->models[k].group_count; g++) {
            struct course *c = &b->courses[k];
            if ((k != m || g != group) && there(&c->groups[g]) && c->used_ns[g] < used) {
                used = c->used_ns[g];
                oldest = &c->groups[g];
            }
        }
    if (!oldest)
        return 0;
    bytes = bytes < there(oldest) ? bytes : there(oldest);
    oldest->missing_bytes += bytes;
    return bytes;
}

/* The group has run: its weights are in memory, as far as there is room beside what activations take. */
static void keep(struct bench *b, uint32_t m, uint32_t group, uint64_t activations)
{
    struct swn_lane_group *g = &b->courses[m].groups[group];
    uint64_t memory = b->run->memory_bytes ? b->run->memory_bytes : UINT64_MAX, taken = 1;
    uint64_t room = memory > activations ? memory - activations : 0;

    b->totals->read_bytes += g->missing_bytes;
    b->held_bytes += g->missing_bytes;
    g->missing_bytes = 0;
    b->courses[m].used_ns[group] = b->state.now_ns;
    while (b->held_bytes > room && (taken = take_oldest(b, m, group, b->held_bytes - room)))
        b->held_bytes -= taken;
    if (b->held_bytes > room) { /* not even this one fits: the end of it is read anew each time */
        uint64_t more = b->held_bytes - room;
        more = more < there(g) ? more : there(g);
        g->missing_bytes += more;
        b->held_bytes -= more;
    }
}

static void pass_time(struct bench *b, uint64_t ns)
{
    for (uint32_t m = 0; m < b->run->count; m++) {
        uint64_t bytes = 0;
        for (uint32_t g = 0; g < b->models[m].group_count; g++)
            bytes += there(&b->courses[m].groups[g]);
        b->courses[m].resident += (double)bytes * (double)ns;
    }
    b->state.now_ns += ns;
}

/* ---- what runs ---- */

static int note_end(struct bench *b, const struct swn_lane_request *r)
{
    struct course *c = &b->courses[r->model];
    struct swn_lane_outcome *o = &b->out[r->model];

    if (o->done == c->room) {
        uint64_t room = c->room ? 2 * c->room : 256;
        double *more = realloc(c->times, room * sizeof *more);
        if (!more)
            return -ENOMEM;
        c->times = more;
        c->room = room;
    }
    c->times[o->done++] = (double)(b->state.now_ns - r->arrived_ns);
    o->late += r->deadline_ns && b->state.now_ns > r->deadline_ns;
    return 0;
}

/* Members go on by a group, and those that are done or dropped leave. 0 or -ENOMEM. */
static int move_on(struct bench *b)
{
    const struct swn_lane_decision *d = &b->decision;
    uint32_t left = 0;
    int rc = 0;

    for (uint32_t k = 0; k < d->dropped_count; k++) {
        b->out[b->requests[d->dropped[k]].model].dropped++;
        b->requests[d->dropped[k]].id = 0;
    }
    for (uint32_t k = 0; k < d->member_count && !rc; k++) {
        struct swn_lane_request *r = &b->requests[d->members[k]];
        if (++r->group < b->models[r->model].group_count)
            continue;
        rc = note_end(b, r);
        r->id = 0;
    }
    for (uint32_t i = 0; i < b->state.request_count; i++)
        if (b->requests[i].id)
            b->requests[left++] = b->requests[i];
    b->state.request_count = left;
    return rc;
}

/* What the policy is told of the groups: their residency as it is, their times as they are believed to be. */
static void tell(struct bench *b)
{
    for (uint32_t m = 0; m < b->run->count; m++) {
        struct course *c = &b->courses[m];
        for (uint32_t g = 0; g < b->models[m].group_count; g++) {
            c->believed[g] = c->groups[g];
            c->believed[g].compute_ns = saturated((double)c->groups[g].compute_ns * c->belief[g]);
        }
    }
}

/* The members run in lockstep. */
static void run_group(struct bench *b)
{
    const struct swn_lane_decision *d = &b->decision;
    const struct swn_lane_group *g = &b->courses[d->model].groups[d->group];
    uint64_t ns = saturated(swn_curve_time(g, b->run->disk_bytes_per_ns, d->member_count));

    if (b->state.last_model != d->model)
        ns += b->models[d->model].switch_ns;
    pass_time(b, ns ? ns : 1);
    b->totals->busy_ns += ns;
    b->state.last_model = d->model;
    for (uint32_t k = 0; k < d->member_count; k++) {
        uint32_t m = b->requests[d->members[k]].model;
        b->out[m].batches += k == 0;
        b->out[m].members++;
    }
    keep(b, d->model, d->group, g->activation_bytes);
}

/* 1: goes on; 0: nothing comes any more; -errno. */
static int step(struct bench *b, struct swn_lane_scratch *scratch)
{
    uint64_t next, wake;
    int rc;

    take_arrivals(b);
    tell(b);
    rc = swn_lane_decide(b->run->policy, &b->state, scratch, &b->decision);
    if (rc)
        return rc;
    if (b->decision.member_count) {
        run_group(b);
        rc = move_on(b);
        return rc ? rc : 1;
    }
    if (b->decision.dropped_count)
        return (rc = move_on(b)) ? rc : 1;
    next = b->courses[first_to_come(b)].next_ns;
    wake = b->decision.wake_ns && b->decision.wake_ns < next ? b->decision.wake_ns : next;
    if (wake == UINT64_MAX)
        return 0;
    pass_time(b, wake > b->state.now_ns ? wake - b->state.now_ns : TICK_NS);
    return 1;
}

/* ---- begin and end ---- */

static int is_positive(double x)
{
    return isfinite(x) && x > 0;
}

static int check(const struct swn_lane_run *run)
{
    if (!run->count || run->count > SWN_LANE_RUN_MODELS || !is_positive(run->disk_bytes_per_ns) || !run->duration_ns ||
        run->duration_ns > UINT64_MAX / 4 || run->spacing >= SWN_LANE_SPACINGS || !(run->time_error >= 0) ||
        run->time_error >= 1)
        return -EINVAL;
    for (uint32_t m = 0; m < run->count; m++) {
        const struct swn_lane_load *l = &run->loads[m];
        if (!is_positive(l->rate_per_s) || !l->model.group_count || l->model.group_count > SWN_LANE_GROUPS ||
            l->deadline_ns > UINT64_MAX / 4 || l->model.switch_ns > SWN_LANE_RUN_MOST)
            return -EINVAL;
        for (uint32_t g = 0; g < l->model.group_count; g++)
            if (l->model.groups[g].weight_bytes > SWN_LANE_RUN_MOST ||
                l->model.groups[g].compute_ns > SWN_LANE_RUN_MOST)
                return -EINVAL;
    }
    return 0;
}

static double draw_belief(struct bench *b)
{
    return b->run->time_error > 0 ? 1 + b->run->time_error * (2 * swn_random_unit(&b->beliefs) - 1) : 1;
}

/* Nothing is in memory at the begin. */
static void begin(struct bench *b)
{
    const struct swn_lane_run *run = b->run;

    b->random.state = run->seed;
    b->beliefs.state = ~run->seed;
    for (uint32_t m = 0; m < run->count; m++) {
        struct course *c = &b->courses[m];
        b->models[m] = run->loads[m].model;
        memcpy(c->groups, b->models[m].groups, b->models[m].group_count * sizeof *c->groups);
        for (uint32_t g = 0; g < b->models[m].group_count; g++) {
            c->groups[g].missing_bytes = c->groups[g].weight_bytes;
            c->groups[g].window_bytes = swn_lane_window(c->groups[g].weight_bytes, run->memory_bytes);
        }
        for (uint32_t g = 0; g < b->models[m].group_count; g++)
            c->belief[g] = draw_belief(b);
        b->believed[m] = b->models[m];
        b->believed[m].groups = c->believed;
        b->models[m].groups = c->groups;
        b->out[m] = (struct swn_lane_outcome){0};
        draw_next(b, m);
    }
    b->state = (struct swn_lane_state){.models = b->believed,
                                       .model_count = run->count,
                                       .last_model = UINT32_MAX,
                                       .requests = b->requests,
                                       .disk_bytes_per_ns = run->disk_bytes_per_ns * draw_belief(b),
                                       .memory_bytes = run->memory_bytes,
                                       .batch_most = run->batch_most ? run->batch_most : SWN_LANE_TURNS,
                                       .turn_ns = SWN_LANE_TURN_NS,
                                       .time_error = SWN_LANE_TIME_ERROR_PERCENT / 100.0};
}

static int by_time(const void *x, const void *y)
{
    double a = *(const double *)x, b = *(const double *)y;

    return (a > b) - (a < b);
}

static double part_of(const struct course *c, uint64_t n, double part)
{
    return n ? c->times[(uint64_t)(part * (double)(n - 1) + 0.5)] : 0;
}

static void sum_up(struct bench *b)
{
    b->totals->span_ns = b->state.now_ns;
    for (uint32_t m = 0; m < b->run->count; m++) {
        struct swn_lane_outcome *o = &b->out[m];
        struct course *c = &b->courses[m];
        double all = 0;
        for (uint64_t i = 0; i < o->done; i++)
            all += c->times[i];
        if (o->done)
            qsort(c->times, o->done, sizeof *c->times, by_time);
        o->mean_ns = o->done ? all / (double)o->done : 0;
        o->p50_ns = part_of(c, o->done, 0.5);
        o->p95_ns = part_of(c, o->done, 0.95);
        o->p99_ns = part_of(c, o->done, 0.99);
        o->resident_bytes = b->state.now_ns ? c->resident / (double)b->state.now_ns : 0;
        free(c->times);
    }
}

int swn_lane_run(const struct swn_lane_run *run, struct swn_lane_outcome *outcomes, struct swn_lane_totals *totals)
{
    struct swn_lane_scratch *scratch;
    struct bench *b;
    int rc = check(run);

    if (rc)
        return rc;
    *totals = (struct swn_lane_totals){0};
    scratch = swn_lane_scratch_new();
    b = calloc(1, sizeof *b);
    if (b) {
        b->courses = calloc(run->count, sizeof *b->courses);
        b->models = calloc(run->count, sizeof *b->models);
        b->believed = calloc(run->count, sizeof *b->believed);
    }
    rc = b && scratch && b->courses && b->models && b->believed ? 1 : -ENOMEM;
    if (rc > 0) {
        b->run = run;
        b->out = outcomes;
        b->totals = totals;
        begin(b);
        while (rc > 0)
            rc = step(b, scratch);
        sum_up(b);
    }
    if (b) {
        free(b->courses);
        free(b->models);
        free(b->believed);
    }
    free(b);
    swn_lane_scratch_free(scratch);
    return rc;
}
