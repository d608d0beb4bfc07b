/* scheduler/tasks/exact.c - see exact.h. */
#include "scheduler/tasks/exact.h"

#include <errno.h>
#include <math.h>

#include "scheduler/tasks/lookahead.h"
#include "scheduler/tasks/state.h"

struct bound {
    uint64_t best, nodes;
};

/* What must at least pass until all is done. */
static double least_ns(const struct swn_task_state *s)
{
    double work = 0, longest = 0, reading = 0, left[SWN_SANDBOX_PASSES];

    for (uint32_t p = 0; p < s->pass_count; p++) {
        const struct swn_task_pass *pass = &s->passes[p];
        uint64_t compute = swn_task_left_compute_ns(s, pass), load = swn_task_left_load_ns(s, pass);

        if (pass->is_running)
            compute -= swn_task_compute_ns(s, pass);
        left[p] = (double)compute;
        work += (double)compute;
        reading += (double)load;
        if (!swn_task_is_done(s, pass) && s->copies[pass->copy].blocks[pass->next_layer] == SWN_BLOCK_ABSENT)
            left[p] += (double)swn_task_load_ns(s, pass->network, pass->next_layer);
    }
    for (uint32_t i = 0; i < s->flight_count; i++) {
        const struct swn_task_flight *f = &s->flights[i];

        *(f->kind == SWN_TASK_LOAD ? &reading : &work) += f->left_ns;
        if (f->kind == SWN_TASK_COMPUTE)
            left[f->pass] += f->left_ns;
    }
    for (uint32_t p = 0; p < s->pass_count; p++)
        longest = fmax(longest, left[p]);
    if (s->machine.readers)
        return fmax(longest, fmax(work / s->machine.workers, reading / s->machine.readers));
    return fmax(longest, (work + reading) / s->machine.workers);
}

static void search(const struct swn_sandbox *from, uint32_t first, struct bound *bound);

/* Tasks are numbered: computing of pass p is p, loading layer l of pass p is (l + 1) n + p. Those of one moment begin
 * in this order. */
static void branch(const struct swn_sandbox *from, uint32_t task, struct bound *bound)
{
    struct swn_sandbox box = *from;
    uint32_t n = box.s.pass_count, p = task % n, layer = task / n;
    struct swn_task_decision d = {SWN_TASK_COMPUTE, p, box.passes[p].copy, box.passes[p].next_layer};

    box.s.passes = box.passes;
    box.s.copies = box.copies;
    if (layer) {
        d.kind = SWN_TASK_LOAD;
        d.layer = layer - 1;
    }
    if (layer ? !swn_task_can_load(&box.s, p, d.layer) : !swn_task_can_compute(&box.s, p))
        return;
    if (swn_sandbox_need(&box, &d) > swn_task_free_bytes(&box.s))
        return;
    swn_task_apply(&box.s, &d);
    search(&box, task + 1, bound);
}

static void search(const struct swn_sandbox *from, uint32_t first, struct bound *bound)
{
    struct swn_sandbox box = *from;
    struct swn_task_decision d;
    uint32_t left = 0, layers = 0;

    box.s.passes = box.passes;
    box.s.copies = box.copies;
    for (uint32_t p = 0; p < box.s.pass_count; p++) {
        left += !swn_task_is_done(&box.s, &box.passes[p]);
        layers = swn_task_layers(&box.s, &box.passes[p]) > layers ? swn_task_layers(&box.s, &box.passes[p]) : layers;
    }
    if (!left && box.s.now_ns < bound->best)
        bound->best = box.s.now_ns;
    if (!left || !bound->nodes || (double)box.s.now_ns + least_ns(&box.s) >= (double)bound->best)
        return;
    bound->nodes--;
    for (uint32_t task = first; task < (layers + 1) * box.s.pass_count; task++)
        branch(&box, task, bound);
    if (!box.s.flight_count)
        return;
    swn_task_advance(&box.s, swn_task_next_ns(&box.s));
    while (swn_task_drop_computed(&box.s, &d))
        swn_task_apply(&box.s, &d);
    search(&box, 0, bound);
}

int swn_task_exact(const struct swn_task_state *s, uint64_t nodes, uint64_t *end_ns)
{
    struct bound bound = {UINT64_MAX, nodes};
    struct swn_sandbox box;

    if (s->pass_count > SWN_SANDBOX_PASSES)
        return -E2BIG;
    swn_sandbox_make(&box, s, SWN_SANDBOX_PASSES);
    search(&box, 0, &bound);
    *end_ns = bound.best;
    if (!bound.nodes)
        return -EAGAIN;
    return bound.best == UINT64_MAX ? -ENOSPC : 0;
}
