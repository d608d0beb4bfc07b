/* scheduler/tasks/sandbox.c - see sandbox.h: which passes are in it, what is safe there, and how a rule is run. */
#include "scheduler/tasks/sandbox.h"

#include <math.h>
#include <string.h>

#include "scheduler/tasks/schedule.h"
#include "scheduler/tasks/state.h"

/* A pass that has waited for longer than this many times its own time counts so much more, once for each factor. */
#define PATIENCE 4.0
/* Ends of tasks for each layer after which a schedule is given up: one that reads blocks again and again is no good. */
#define ENDS_MOST 8
/* Of the objective that breaks ties. */
#define TIE 1e-6

uint64_t swn_task_left_compute_ns(const struct swn_task_state *s, const struct swn_task_pass *pass)
{
    uint64_t sum = 0;

    for (uint32_t l = pass->next_layer; l < swn_task_layers(s, pass); l++)
        sum += s->networks[pass->network].layers[l].compute_ns * pass->inputs;
    return sum;
}

uint64_t swn_task_left_load_ns(const struct swn_task_state *s, const struct swn_task_pass *pass)
{
    uint64_t sum = 0;

    for (uint32_t l = pass->next_layer; l < swn_task_layers(s, pass); l++)
        sum += s->copies[pass->copy].blocks[l] == SWN_BLOCK_ABSENT ? swn_task_load_ns(s, pass->network, l) : 0;
    return sum;
}

/* Smith's ratio of a job: the time that is left of all of its passes, over its weight, which grows while it waits.
 * Passes of a job are neighbours. */
static double urgency(const struct swn_task_state *s, uint32_t pass)
{
    double left = 0, waited = (double)(s->now_ns - s->passes[pass].arrived_ns), weight = s->passes[pass].weight;
    uint32_t job = s->passes[pass].job, p = pass;

    while (p > 0 && s->passes[p - 1].job == job)
        p--;
    for (; p < s->pass_count && s->passes[p].job == job; p++)
        if (swn_task_may_compute(s, &s->passes[p]))
            left += fmax((double)swn_task_left_compute_ns(s, &s->passes[p]),
                         (double)swn_task_left_load_ns(s, &s->passes[p]));
    weight = weight > 0 ? weight : 1;
    for (double limit = PATIENCE * left; left > 0 && waited > limit; limit *= PATIENCE)
        weight *= PATIENCE;
    return left / weight;
}

/* The place of a copy in the sandbox, where it is put if it is not there. */
static uint32_t take_copy(struct swn_sandbox *box, const struct swn_task_state *state, uint32_t copy)
{
    for (uint32_t c = 0; c < box->s.copy_count; c++)
        if (box->copy_of[c] == copy)
            return c;
    box->copies[box->s.copy_count] = state->copies[copy];
    box->copy_of[box->s.copy_count] = copy;
    return box->s.copy_count++;
}

static void take_pass(struct swn_sandbox *box, const struct swn_task_state *state, uint32_t pass)
{
    uint32_t n = box->s.pass_count++;

    box->passes[n] = state->passes[pass];
    box->pass_of[n] = pass;
    box->passes[n].copy = take_copy(box, state, state->passes[pass].copy);
}

static int is_in(const struct swn_sandbox *box, uint32_t pass)
{
    for (uint32_t n = 0; n < box->s.pass_count; n++)
        if (box->pass_of[n] == pass)
            return 1;
    return 0;
}

/* Up to `most` passes that are urgent. One pass over the state: those behind are inserted where they belong. */
static void take_urgent(struct swn_sandbox *box, const struct swn_task_state *state, uint32_t most)
{
    double value[SWN_SANDBOX_PASSES];
    uint32_t chosen[SWN_SANDBOX_PASSES], n = 0;

    for (uint32_t p = 0; p < state->pass_count; p++) {
        uint32_t at = n;
        double u;

        if (is_in(box, p) || !swn_task_may_compute(state, &state->passes[p]))
            continue;
        u = urgency(state, p);
        while (at > 0 && value[at - 1] > u)
            at--;
        if (at >= most)
            continue;
        n -= n == most;
        memmove(value + at + 1, value + at, (n - at) * sizeof *value);
        memmove(chosen + at + 1, chosen + at, (n - at) * sizeof *chosen);
        value[at] = u;
        chosen[at] = p;
        n++;
    }
    for (uint32_t k = 0; k < n; k++)
        take_pass(box, state, chosen[k]);
}

/* Blocks of copies that are not in the sandbox. */
static uint64_t spare_bytes(const struct swn_sandbox *box, const struct swn_task_state *state)
{
    uint64_t sum = 0;

    for (uint32_t c = 0; c < state->copy_count; c++) {
        int inside = !state->copies[c].is_taken;

        for (uint32_t n = 0; n < box->s.copy_count; n++)
            inside |= box->copy_of[n] == c;
        for (uint32_t l = 0; !inside && l < state->networks[state->copies[c].network].layer_count; l++)
            if (state->copies[c].blocks[l] == SWN_BLOCK_LOADED)
                sum += swn_task_weight_bytes(state, state->copies[c].network, l);
    }
    return sum;
}

void swn_sandbox_make(struct swn_sandbox *box, const struct swn_task_state *state, uint32_t most)
{
    box->s = *state;
    box->s.passes = box->passes;
    box->s.copies = box->copies;
    box->s.pass_count = box->s.copy_count = 0;
    for (uint32_t p = 0; p < state->pass_count && box->s.pass_count < SWN_TASK_WORKERS; p++)
        if (state->passes[p].is_running && !state->passes[p].is_aborted)
            take_pass(box, state, p);
    most = most > SWN_SANDBOX_PASSES ? SWN_SANDBOX_PASSES : most;
    if (most > box->s.pass_count)
        take_urgent(box, state, most - box->s.pass_count);
    box->s.flight_count = 0;
    for (uint32_t i = 0; i < state->flight_count; i++) {
        struct swn_task_flight f = state->flights[i];

        f.copy = take_copy(box, state, f.copy);
        if (f.kind == SWN_TASK_COMPUTE) {
            uint32_t n = 0;

            while (n < box->s.pass_count && box->pass_of[n] != f.pass)
                n++;
            if (n == box->s.pass_count)
                continue; /* aborted: its memory counts as used */
            f.pass = n;
        }
        box->s.flights[box->s.flight_count++] = f;
    }
    box->s.spare_bytes = spare_bytes(box, state);
}

uint64_t swn_sandbox_need(const struct swn_sandbox *box, const struct swn_task_decision *d)
{
    if (d->kind == SWN_TASK_LOAD)
        return swn_task_weight_bytes(&box->s, box->copies[d->copy].network, d->layer);
    return d->kind == SWN_TASK_COMPUTE ? swn_task_compute_bytes(&box->s, &box->passes[d->pass]) : 0;
}

void swn_sandbox_take_spare(struct swn_sandbox *box, const struct swn_task_decision *d)
{
    uint64_t need = swn_sandbox_need(box, d), there = swn_task_free_bytes(&box->s);
    uint64_t more = need > there ? need - there : 0;

    more = more > box->s.spare_bytes ? box->s.spare_bytes : more;
    box->s.spare_bytes -= more;
    box->s.used_bytes -= more;
}

/* The most that a pass holds between two layers from now on, and the most that one of its layers needs. */
static void future(const struct swn_task_state *s, const struct swn_task_pass *p, uint64_t *held, uint64_t *need)
{
    const struct swn_task_network *network = &s->networks[p->network];

    *held = *need = 0;
    for (uint32_t l = p->next_layer; l < network->layer_count; l++) {
        uint64_t before = l ? network->layers[l - 1].output_bytes : 0, there = network->layers[l].activation_bytes;
        uint64_t most = (uint64_t)((double)((there > before ? there : before) * p->inputs) * s->estimate);

        most += swn_task_weight_bytes(s, p->network, l);
        *need = most > *need ? most : *need;
    }
    for (uint32_t l = p->next_layer ? p->next_layer - 1 : 0; l + 1 < network->layer_count; l++)
        *held = network->layers[l].output_bytes > *held ? network->layers[l].output_bytes : *held;
    *held = (uint64_t)((double)(*held * p->inputs) * s->estimate);
}

int swn_sandbox_may_begin(const struct swn_sandbox *box, uint32_t pass)
{
    const struct swn_task_state *s = &box->s;
    uint64_t need[SWN_SANDBOX_PASSES], held[SWN_SANDBOX_PASSES], all = 0;

    if (swn_task_has_begun(&box->passes[pass]))
        return 1;
    for (uint32_t p = 0; p < s->pass_count; p++) {
        need[p] = held[p] = 0;
        if (p == pass || (swn_task_has_begun(&box->passes[p]) && !swn_task_is_done(s, &box->passes[p])))
            future(s, &box->passes[p], &held[p], &need[p]);
        all += held[p];
    }
    if (all == held[pass])
        return 1; /* it would be the only one that holds anything */
    for (uint32_t p = 0; p < s->pass_count; p++)
        if (need[p] && all - held[p] + need[p] > s->machine.memory_bytes)
            return 0;
    return 1;
}

int swn_sandbox_is_safe(const struct swn_sandbox *box, uint32_t pass)
{
    uint64_t need = swn_task_compute_bytes(&box->s, &box->passes[pass]);

    return need <= swn_task_free_bytes(&box->s) + box->s.spare_bytes && swn_sandbox_may_begin(box, pass);
}

/* Weighted ends of jobs, and the last end. A job that is not at its end yet counts as ending now. */
static double cost(const struct swn_sandbox *box, const uint64_t *end_ns, enum swn_task_objective objective)
{
    double sum = 0, last = 0;

    for (uint32_t p = 0; p < box->s.pass_count; p++) {
        double end = (double)(end_ns[p] ? end_ns[p] : box->s.now_ns), job = end;
        int counts = 1;

        last = fmax(last, end);
        for (uint32_t q = 0; q < box->s.pass_count; q++) {
            double other = (double)(end_ns[q] ? end_ns[q] : box->s.now_ns);

            if (box->passes[q].job != box->passes[p].job || q == p)
                continue;
            counts &= other < end || (other == end && q > p); /* the last one of the job */
        }
        sum += (counts ? box->passes[p].weight : 0) * job + TIE * end;
    }
    return objective == SWN_TASK_MAKESPAN ? last + TIE * sum : sum + TIE * last;
}

static void apply(struct swn_sandbox *box, const struct swn_task_decision *d, struct swn_task_schedule *schedule)
{
    if (schedule && (d->kind == SWN_TASK_LOAD || d->kind == SWN_TASK_COMPUTE))
        swn_task_note(schedule, d, box->pass_of[d->pass],
                      d->kind == SWN_TASK_LOAD ? d->layer : box->passes[d->pass].next_layer, box->s.now_ns);
    swn_sandbox_take_spare(box, d);
    swn_task_apply(&box->s, d);
}

double swn_sandbox_run(struct swn_sandbox *box, struct swn_task_decision first, const struct swn_task_rule *rule,
                       enum swn_task_objective objective, double bound, struct swn_task_schedule *schedule)
{
    uint64_t end_ns[SWN_SANDBOX_PASSES] = {0};
    struct swn_task_decision d = first;
    uint32_t ends_most = 0;

    for (uint32_t p = 0; p < box->s.pass_count; p++)
        ends_most += ENDS_MOST * swn_task_layers(&box->s, &box->passes[p]);

    apply(box, &d, schedule);
    for (;;) {
        uint64_t next;
        uint32_t left = 0;

        while (d.kind) {
            d = (struct swn_task_decision){0};
            swn_task_rule_step(box, rule, &d);
            apply(box, &d, schedule);
        }
        for (uint32_t p = 0; p < box->s.pass_count; p++)
            left += !swn_task_is_done(&box->s, &box->passes[p]);
        if (!left)
            return cost(box, end_ns, objective);
        next = swn_task_next_ns(&box->s);
        if (next == SWN_TASK_NEVER || !ends_most--)
            return INFINITY;
        swn_task_advance(&box->s, next);
        for (uint32_t p = 0; p < box->s.pass_count; p++)
            if (!end_ns[p] && swn_task_is_done(&box->s, &box->passes[p]))
                end_ns[p] = box->s.now_ns;
        if (cost(box, end_ns, objective) >= bound)
            return INFINITY;
        d.kind = SWN_TASK_DROP; /* the rule goes on */
    }
}
