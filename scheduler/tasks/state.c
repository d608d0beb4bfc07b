/* scheduler/tasks/state.c - see state.h. Invariant: used_bytes is swn_task_used() after each function here, as long as
 * the estimate is 1. */
#include "scheduler/tasks/state.h"

#include <math.h>

/* A task is over that has less left: sums of doubles do not come out at 0. */
#define OVER_NS 0.5

static uint64_t estimated(const struct swn_task_state *s, uint64_t bytes)
{
    return s->estimate == 1 ? bytes : (uint64_t)((double)bytes * s->estimate);
}

static const struct swn_task_layer *layer_of(const struct swn_task_state *s, const struct swn_task_pass *pass)
{
    return &s->networks[pass->network].layers[pass->next_layer];
}

uint64_t swn_task_weight_bytes(const struct swn_task_state *s, uint32_t network, uint32_t layer)
{
    uint64_t bytes = s->networks[network].layers[layer].load_bytes;

    return s->knows_weights ? bytes : estimated(s, bytes);
}

uint64_t swn_task_activation_bytes(const struct swn_task_state *s, const struct swn_task_pass *pass)
{
    return estimated(s, layer_of(s, pass)->activation_bytes * pass->inputs);
}

uint64_t swn_task_held_bytes(const struct swn_task_state *s, const struct swn_task_pass *pass)
{
    if (!pass->next_layer || pass->is_running || swn_task_is_done(s, pass))
        return 0;
    return estimated(s, s->networks[pass->network].layers[pass->next_layer - 1].output_bytes * pass->inputs);
}

uint64_t swn_task_compute_bytes(const struct swn_task_state *s, const struct swn_task_pass *pass)
{
    uint64_t activations = swn_task_activation_bytes(s, pass), held = swn_task_held_bytes(s, pass);

    return activations > held ? activations - held : 0;
}

uint64_t swn_task_used(const struct swn_task_state *s)
{
    uint64_t sum = s->spare_bytes;

    for (uint32_t c = 0; c < s->copy_count; c++)
        for (uint32_t l = 0; s->copies[c].is_taken && l < s->networks[s->copies[c].network].layer_count; l++)
            sum += s->copies[c].blocks[l] != SWN_BLOCK_ABSENT ? swn_task_weight_bytes(s, s->copies[c].network, l) : 0;
    for (uint32_t p = 0; p < s->pass_count; p++)
        sum += s->passes[p].is_running ? swn_task_activation_bytes(s, &s->passes[p])
                                       : swn_task_held_bytes(s, &s->passes[p]);
    return sum;
}

uint64_t swn_task_free_bytes(const struct swn_task_state *s)
{
    return s->machine.memory_bytes > s->used_bytes ? s->machine.memory_bytes - s->used_bytes : 0;
}

uint64_t swn_task_largest(const struct swn_task_network *network, uint32_t inputs)
{
    uint64_t most = 0;

    for (uint32_t l = 0; l < network->layer_count; l++) {
        uint64_t before = l ? network->layers[l - 1].output_bytes : 0, there = network->layers[l].activation_bytes;
        uint64_t bytes = network->layers[l].load_bytes + (there > before ? there : before) * inputs;

        most = bytes > most ? bytes : most;
    }
    return most;
}

uint64_t swn_task_load_ns(const struct swn_task_state *s, uint32_t network, uint32_t layer)
{
    return (uint64_t)((double)s->networks[network].layers[layer].load_bytes / s->machine.disk_bytes_per_ns);
}

uint64_t swn_task_compute_ns(const struct swn_task_state *s, const struct swn_task_pass *pass)
{
    return layer_of(s, pass)->compute_ns * pass->inputs;
}

uint32_t swn_task_layers(const struct swn_task_state *s, const struct swn_task_pass *pass)
{
    return s->networks[pass->network].layer_count;
}

int swn_task_is_done(const struct swn_task_state *s, const struct swn_task_pass *pass)
{
    return pass->next_layer >= swn_task_layers(s, pass);
}

int swn_task_has_begun(const struct swn_task_pass *pass)
{
    return pass->next_layer || pass->is_running;
}

/* Has any task of the pass with this id begun, a load included? */
static int is_under_way(const struct swn_task_state *s, uint64_t id)
{
    for (uint32_t p = 0; p < s->pass_count; p++) {
        const struct swn_task_copy *copy = &s->copies[s->passes[p].copy];

        if (s->passes[p].id != id)
            continue;
        for (uint32_t l = 0; l < swn_task_layers(s, &s->passes[p]); l++)
            if (copy->blocks[l] != SWN_BLOCK_ABSENT)
                return 1;
        return swn_task_has_begun(&s->passes[p]);
    }
    return 1;
}

int swn_task_may_compute(const struct swn_task_state *s, const struct swn_task_pass *pass)
{
    if (pass->is_aborted || swn_task_is_done(s, pass))
        return 0;
    if (!pass->is_undecided || s->cascade == SWN_CASCADE_IGNORE)
        return 1;
    return s->cascade == SWN_CASCADE_PREEMPT && is_under_way(s, pass->upstream);
}

int swn_task_may_load(const struct swn_task_state *s, const struct swn_task_pass *pass)
{
    if (swn_task_may_compute(s, pass))
        return 1;
    return s->cascade == SWN_CASCADE_PREFETCH && pass->is_undecided && !pass->is_aborted;
}

static uint32_t count(const struct swn_task_state *s, enum swn_task_kind kind)
{
    uint32_t n = 0;

    for (uint32_t i = 0; i < s->flight_count; i++)
        n += s->flights[i].kind == kind;
    return n;
}

static int is_worker_free(const struct swn_task_state *s)
{
    uint32_t busy = s->machine.readers ? count(s, SWN_TASK_COMPUTE) : s->flight_count;

    return busy < s->machine.workers;
}

int swn_task_can_compute(const struct swn_task_state *s, uint32_t pass)
{
    const struct swn_task_pass *p = &s->passes[pass];

    return !p->is_running && swn_task_may_compute(s, p) &&
           s->copies[p->copy].blocks[p->next_layer] == SWN_BLOCK_LOADED && is_worker_free(s);
}

int swn_task_can_load(const struct swn_task_state *s, uint32_t pass, uint32_t layer)
{
    const struct swn_task_pass *p = &s->passes[pass];

    if (layer < p->next_layer || layer >= swn_task_layers(s, p) ||
        s->copies[p->copy].blocks[layer] != SWN_BLOCK_ABSENT || !swn_task_may_load(s, p))
        return 0;
    return s->machine.readers ? count(s, SWN_TASK_LOAD) < s->machine.readers : is_worker_free(s);
}

int swn_task_has_room(const struct swn_task_state *s)
{
    return is_worker_free(s) || count(s, SWN_TASK_LOAD) < s->machine.readers;
}

int swn_task_is_idle(const struct swn_task_state *s)
{
    return !s->flight_count;
}

int swn_task_is_block_running(const struct swn_task_state *s, uint32_t copy, uint32_t layer)
{
    for (uint32_t i = 0; i < s->flight_count; i++)
        if (s->flights[i].copy == copy && s->flights[i].layer == layer)
            return 1;
    return 0;
}

void swn_task_apply(struct swn_task_state *s, const struct swn_task_decision *d)
{
    struct swn_task_flight *f = &s->flights[s->flight_count];

    if (d->kind == SWN_TASK_DROP) {
        s->copies[d->copy].blocks[d->layer] = SWN_BLOCK_ABSENT;
        s->used_bytes -= swn_task_weight_bytes(s, s->copies[d->copy].network, d->layer);
    } else if (d->kind == SWN_TASK_LOAD) {
        uint32_t network = s->copies[d->copy].network;

        s->copies[d->copy].blocks[d->layer] = SWN_BLOCK_LOADING;
        s->used_bytes += swn_task_weight_bytes(s, network, d->layer);
        *f = (struct swn_task_flight){(double)swn_task_load_ns(s, network, d->layer), d->kind, d->pass, d->copy,
                                      d->layer};
        s->flight_count++;
    } else if (d->kind == SWN_TASK_COMPUTE) {
        struct swn_task_pass *p = &s->passes[d->pass];

        s->used_bytes = s->used_bytes - swn_task_held_bytes(s, p) + swn_task_activation_bytes(s, p);
        *f = (struct swn_task_flight){(double)swn_task_compute_ns(s, p), d->kind, d->pass, p->copy, p->next_layer};
        s->flight_count++;
        p->is_running = 1;
        s->copies[p->copy].used_ns = s->now_ns;
    }
}

/* How long the flight still takes if no other one begins or ends. */
static double speed(const struct swn_task_state *s, const struct swn_task_flight *f)
{
    uint32_t loads = count(s, SWN_TASK_LOAD);

    return f->kind == SWN_TASK_LOAD && s->machine.is_disk_divided && loads > 1 ? 1.0 / loads : 1.0;
}

uint64_t swn_task_next_ns(const struct swn_task_state *s)
{
    double least = INFINITY;

    for (uint32_t i = 0; i < s->flight_count; i++)
        least = fmin(least, s->flights[i].left_ns / speed(s, &s->flights[i]));
    return s->flight_count ? s->now_ns + (uint64_t)ceil(fmax(least, 0)) : SWN_TASK_NEVER;
}

static int has_flight(const struct swn_task_state *s, uint32_t pass)
{
    const struct swn_task_pass *p = &s->passes[pass];

    if (p->is_running)
        return 1;
    for (uint32_t i = 0; !s->is_shared && i < s->flight_count; i++)
        if (s->flights[i].copy == p->copy)
            return 1;
    return 0;
}

void swn_task_release(struct swn_task_state *s, uint32_t pass)
{
    struct swn_task_pass *p = &s->passes[pass];
    struct swn_task_copy *copy = &s->copies[p->copy];

    if (has_flight(s, pass))
        return;
    s->used_bytes -= swn_task_held_bytes(s, p);
    p->next_layer = swn_task_layers(s, p);
    for (uint32_t l = 0; !s->is_shared && l < p->next_layer; l++) {
        if (copy->blocks[l] != SWN_BLOCK_ABSENT)
            s->used_bytes -= swn_task_weight_bytes(s, p->network, l);
        copy->blocks[l] = SWN_BLOCK_ABSENT;
    }
}

static void end_flight(struct swn_task_state *s, uint32_t index)
{
    struct swn_task_flight f = s->flights[index];

    s->flights[index] = s->flights[--s->flight_count];
    if (f.kind == SWN_TASK_LOAD) {
        s->copies[f.copy].blocks[f.layer] = SWN_BLOCK_LOADED;
    } else {
        struct swn_task_pass *p = &s->passes[f.pass];

        s->used_bytes -= swn_task_activation_bytes(s, p);
        p->is_running = 0;
        p->next_layer++;
        s->used_bytes += swn_task_held_bytes(s, p);
    }
}

void swn_task_advance(struct swn_task_state *s, uint64_t until_ns)
{
    double passed = (double)(until_ns - s->now_ns), speeds[2 * SWN_TASK_WORKERS];

    for (uint32_t i = 0; i < s->flight_count; i++)
        speeds[i] = speed(s, &s->flights[i]);
    for (uint32_t i = 0; i < s->flight_count; i++)
        s->flights[i].left_ns -= passed * speeds[i];
    s->now_ns = until_ns;
    for (uint32_t i = s->flight_count; i-- > 0;)
        if (s->flights[i].left_ns < OVER_NS)
            end_flight(s, i);
    for (uint32_t p = 0; p < s->pass_count; p++)
        if (s->passes[p].is_aborted || swn_task_is_done(s, &s->passes[p]))
            swn_task_release(s, p);
}

int swn_task_drop_computed(const struct swn_task_state *s, struct swn_task_decision *d)
{
    for (uint32_t p = 0; !s->is_shared && p < s->pass_count; p++) {
        const struct swn_task_pass *pass = &s->passes[p];

        /* Earlier ones have been dropped before the layer behind them could begin. */
        if (pass->next_layer && !swn_task_is_done(s, pass) && !pass->is_running &&
            s->copies[pass->copy].blocks[pass->next_layer - 1] == SWN_BLOCK_LOADED) {
            *d = (struct swn_task_decision){SWN_TASK_DROP, p, pass->copy, pass->next_layer - 1};
            return 1;
        }
    }
    return 0;
}
