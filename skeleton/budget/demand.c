/* Reads the demand, the minimum and the predicted speed of the process from the engine. */
#define _GNU_SOURCE
#include "skeleton/budget/demand.h"

#include <stdlib.h>
#include <string.h>

#include "skeleton/engine/engine_internal.h"
#include "skeleton/core/plan.h"
#include "skeleton/engine/accounting.h"
#include "skeleton/engine/section.h"

#define MIB ((uint64_t)1 << 20)
#define POINTS 12

/* Without a plan the demand is unknown: it is estimated as a quarter more than the present memory, so that a program
 * that loads a model is not held up at every step. Weights on the disk that a forked child inherited do not count until
 * it computes: most children only load data. */
static uint64_t unplanned_demand(struct swn_engine *e, uint64_t small)
{
    uint64_t live = e->life.forked && !e->pool ? swn_engine_resident(e) : e->counters.live_recent + small;
    return live + live / 4 + 16 * MIB;
}

static uint64_t node_bytes(struct swn_engine *e)
{
    uint64_t sum = 0;
    for (size_t i = 0; i < e->weights.count; i++)
        if (e->weights.all[i].range)
            sum += swn_weight_bytes(e->weights.all[i].range);
    return sum;
}

void swn_demand_read(struct swn_demand *n, int settle)
{
    struct swn_engine *e = &swn_engine_one;
    swn_lock(&e->lock);
    uint64_t few = swn_small_bytes(e);
    if (settle) {
        uint64_t faded = e->counters.live_recent - e->counters.live_recent / 8;
        e->counters.live_recent = faded > e->counters.live_bytes ? faded : e->counters.live_bytes;
    }
    n->minimum = swn_plan_minimum(e);
    n->resident = swn_engine_resident(e);
    n->plans = e->plan.made + e->plan.replan.reviews;
    if (e->plan.planned) {
        size_t other = swn_nonweight_needed(e);
        n->weights = node_bytes(e);
        /* Warm pages make activations fast, and the ring exists once anything has been streamed. */
        n->demand = n->weights + other + other / 4 + 4 * MIB;
        n->latency = e->plan.in_force.plan.compute_ns / 1e9;
    } else {
        n->weights = e->counters.live_bytes;
        n->demand = unplanned_demand(e, few);
        n->latency = 0;
    }
    if (n->demand < n->minimum)
        n->demand = n->minimum;
    swn_unlock(&e->lock);
}

static double predict(const struct swn_plan_candidate *d, struct swn_plan_weight *weights, uint64_t budget)
{
    struct swn_plan_candidate copy = *d;
    memcpy(weights, d->weights, d->n * sizeof *weights);
    copy.weights = weights;
    copy.goal = budget;
    return swn_plan_candidate_solve(&copy) ? 0 : copy.plan.latency_ns / 1e9;
}

void swn_demand_curve(struct swn_demand *n)
{
    struct swn_engine *e = &swn_engine_one;
    struct swn_plan_candidate candidate = {0};
    swn_lock(&e->lock);
    for (struct swn_thread_state *t = e->ops.threads; e->plan.planned && e->pool && t && !candidate.n; t = t->next)
        swn_plan_candidate_make(e, t, &candidate);
    swn_unlock(&e->lock);
    n->points = 0;
    struct swn_plan_weight *weights = candidate.n ? malloc(candidate.n * sizeof *weights) : NULL;
    for (size_t i = 0; weights && i < POINTS && n->demand > n->minimum + POINTS; i++) {
        struct swn_divide_point *p = &n->curve[i];
        p->budget_bytes = n->minimum + (n->demand - n->minimum) / (POINTS - 1) * i;
        p->latency_s = predict(&candidate, weights, p->budget_bytes);
        n->points = i + 1;
    }
    free(weights);
    swn_plan_candidate_free(&candidate);
}
