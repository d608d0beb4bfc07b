/* scheduler/tasks/bulk.c - see bulk.h. */
#include "scheduler/tasks/bulk.h"

#include "scheduler/tasks/state.h"

static void load(const struct swn_task_state *s, uint32_t pass, uint32_t layer, struct swn_task_decision *decision)
{
    *decision = (struct swn_task_decision){SWN_TASK_LOAD, pass, s->passes[pass].copy, layer};
}

static void compute(const struct swn_task_state *s, uint32_t pass, struct swn_task_decision *decision)
{
    *decision = (struct swn_task_decision){SWN_TASK_COMPUTE, pass, s->passes[pass].copy, s->passes[pass].next_layer};
}

void swn_task_bulk(const struct swn_task_state *s, struct swn_task_decision *decision)
{
    for (uint32_t p = 0; p < s->pass_count; p++) {
        const struct swn_task_pass *pass = &s->passes[p];
        uint32_t loaded = 0;

        if (swn_task_is_done(s, pass) || !swn_task_may_compute(s, pass))
            continue;
        for (uint32_t l = 0; l < swn_task_layers(s, pass); l++) {
            loaded += s->copies[pass->copy].blocks[l] == SWN_BLOCK_LOADED;
            if (swn_task_can_load(s, p, l)) {
                load(s, p, l, decision);
                return;
            }
        }
        if (loaded == swn_task_layers(s, pass) && swn_task_can_compute(s, p))
            compute(s, p, decision);
        return; /* one network at a time */
    }
}

/* Has a thread of DeepEye a task in flight? */
static int is_busy(const struct swn_task_state *s, int dense)
{
    for (uint32_t i = 0; i < s->flight_count; i++) {
        const struct swn_task_flight *f = &s->flights[i];

        if (s->networks[s->copies[f->copy].network].layers[f->layer].is_dense == dense)
            return 1;
    }
    return 0;
}

static int is_dense(const struct swn_task_state *s, uint32_t pass, uint32_t layer)
{
    return s->networks[s->passes[pass].network].layers[layer].is_dense;
}

/* The first load of that kind in a job. frugal: of no network behind one that has some left to compute. */
static int load_next(const struct swn_task_state *s, uint32_t job, int dense, int frugal,
                     struct swn_task_decision *decision)
{
    for (uint32_t p = 0; p < s->pass_count && s->passes[p].job <= job; p++) {
        int left = 0;

        for (uint32_t l = 0; l < swn_task_layers(s, &s->passes[p]); l++) {
            if (is_dense(s, p, l) != dense)
                continue;
            if (swn_task_can_load(s, p, l)) {
                load(s, p, l, decision);
                return 1;
            }
            left |= l >= s->passes[p].next_layer;
        }
        if (frugal && left)
            return 0;
    }
    return 0;
}

static int compute_next(const struct swn_task_state *s, uint32_t job, int dense, struct swn_task_decision *decision)
{
    for (uint32_t p = 0; p < s->pass_count && s->passes[p].job <= job; p++)
        if (swn_task_can_compute(s, p) && is_dense(s, p, s->passes[p].next_layer) == dense) {
            compute(s, p, decision);
            return 1;
        }
    return 0;
}

/* Are all convolutions of the job in memory, or on their way? */
static int are_convolutions_loaded(const struct swn_task_state *s, uint32_t job)
{
    for (uint32_t p = 0; p < s->pass_count && s->passes[p].job <= job; p++)
        for (uint32_t l = s->passes[p].next_layer; l < swn_task_layers(s, &s->passes[p]); l++)
            if (!is_dense(s, p, l) && swn_task_may_load(s, &s->passes[p]) &&
                s->copies[s->passes[p].copy].blocks[l] != SWN_BLOCK_LOADED)
                return 0;
    return 1;
}

static void deepeye(const struct swn_task_state *s, int frugal, struct swn_task_decision *decision)
{
    uint32_t job;

    if (swn_task_drop_computed(s, decision) || !s->pass_count)
        return;
    job = s->passes[0].job;
    if (!is_busy(s, 0)) {
        if (load_next(s, job, 0, 0, decision))
            return;
        if (are_convolutions_loaded(s, job) && compute_next(s, job, 0, decision))
            return;
    }
    if (!is_busy(s, 1) && !compute_next(s, job, 1, decision))
        load_next(s, job, 1, frugal, decision);
}

void swn_deepeye(const struct swn_task_state *s, struct swn_task_decision *decision)
{
    deepeye(s, 0, decision);
}

void swn_deepeye_frugal(const struct swn_task_state *s, struct swn_task_decision *decision)
{
    deepeye(s, 1, decision);
}
