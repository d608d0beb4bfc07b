/* What the process can use, needs at least, and how fast it would be: read off the engine. */
#define _GNU_SOURCE
#include "skeleton/budget/demand.h"

#include <stdlib.h>
#include <string.h>

#include "skeleton/core/engine_internal.h"
#include "skeleton/core/plan.h"
#include "skeleton/core/accounting.h"

#define MIB ((uint64_t)1 << 20)
#define POINTS 12

/* While there is no plan, nobody knows what will come: a quarter more than what there was, so that a program that
 * loads a model is not stopped at every step. Weights that a forked child inherited on the disk are no need of its
 * until it computes: most only load data. */
static uint64_t unplanned_demand(struct swn_engine *e, uint64_t small)
{
    uint64_t live = e->forked && !e->pool ? swn_engine_resident(e) : e->live_recent + small;
    return live + live / 4 + 16 * MIB;
}

static uint64_t node_bytes(struct swn_engine *e)
{
    uint64_t sum = 0;
    for (size_t i = 0; i < e->node_count; i++)
        if (e->nodes[i].range)
            sum += swn_weight_bytes(e->nodes[i].range);
    return sum;
}

void swn_needs_read(struct swn_needs *n, int settle)
{
    struct swn_engine *e = &swn_engine_one;
    pthread_mutex_lock(&e->lock);
    long long small = atomic_load(&e->small_bytes);
    uint64_t few = small > 0 ? (uint64_t)small : 0;
    if (settle) {
        uint64_t faded = e->live_recent - e->live_recent / 8;
        e->live_recent = faded > e->live_bytes ? faded : e->live_bytes;
    }
    n->minimum = swn_policy_minimum(e);
    n->resident = swn_engine_resident(e);
    n->plans = e->plans + e->drift.looks;
    if (e->planned) {
        size_t other = swn_policy_other_needed(e);
        n->weights = node_bytes(e);
        /* Warm pages make activations fast, and the window is there as long as anything was ever streamed. */
        n->demand = n->weights + other + other / 4 + 4 * MIB;
        n->latency = e->in_force.plan.compute_ns / 1e9;
    } else {
        n->weights = e->live_bytes;
        n->demand = unplanned_demand(e, few);
        n->latency = 0;
    }
    if (n->demand < n->minimum)
        n->demand = n->minimum;
    pthread_mutex_unlock(&e->lock);
}

static double predict(const struct swn_draft *d, struct swn_plan_node *nodes, uint64_t budget)
{
    struct swn_draft copy = *d;
    memcpy(nodes, d->nodes, d->n * sizeof *nodes);
    copy.nodes = nodes;
    copy.goal = budget;
    return swn_policy_make_plan(&copy) ? 0 : copy.plan.latency_ns / 1e9;
}

void swn_needs_curve(struct swn_needs *n)
{
    struct swn_engine *e = &swn_engine_one;
    struct swn_draft draft = {0};
    pthread_mutex_lock(&e->lock);
    for (struct swn_thread_state *t = e->threads; e->planned && e->pool && t && !draft.n; t = t->next)
        swn_policy_draft(e, t, &draft);
    pthread_mutex_unlock(&e->lock);
    n->points = 0;
    struct swn_plan_node *nodes = draft.n ? malloc(draft.n * sizeof *nodes) : NULL;
    for (size_t i = 0; nodes && i < POINTS && n->demand > n->minimum + POINTS; i++) {
        struct swn_divide_point *p = &n->curve[i];
        p->budget_bytes = n->minimum + (n->demand - n->minimum) / (POINTS - 1) * i;
        p->latency_s = predict(&draft, nodes, p->budget_bytes);
        n->points = i + 1;
    }
    free(nodes);
    swn_policy_drop_draft(&draft);
}
