/* Whether the plan in force is still one for this machine and this program. The first is made while the disk also
 * writes what had to leave, and operators wait for pages that are new; later what else runs comes and goes. Where the
 * disk or the operators have become others, another plan is made, and takes the place of the one in force if that, as
 * the machine is now, takes longer. */
#include <stdlib.h>
#include <string.h>

#include "swn_engine_priv.h"

/* So much is not worth a look: of the disk's speed, and of the time of all operators. */
#define OTHER_SPEED 1.1
#define OTHER_COMPUTE 1.1
/* For so many passes, and so long. Another plan costs a pass or two of reading what that keeps, and what comes and goes
 * all the time must not cost that all the time: with each the machine has to be another one for twice as many passes,
 * up to 2^PLANS_MOST, and for half as many after each look that found no better plan. */
#define PASSES_LEAST 8u
#define PLANS_MOST 6
#define LEAST_NS (uint64_t)1000000000
/* So many passes in a row without enough room are no accident. */
#define SHORT_PASSES 4

static double computing(const struct swn_engine *e)
{
    double ns = 0;
    for (size_t i = 0; i < e->node_count; i++)
        ns += e->nodes[i].range ? e->nodes[i].compute_ns : 0;
    return ns;
}

static int differ(double a, double b, double most)
{
    return a > b * most || b > a * most;
}

void swn_policy_drift_begin(struct swn_engine *e, double bytes_per_ns)
{
    e->drift.speed = bytes_per_ns;
    e->drift.compute_ns = computing(e);
    e->drift.passes = 0;
    e->drift.due = 0;
}

/* How long a pass takes under the plan in force, if everything is as the draft has it. 0: not to be had. */
static double as_it_is(const struct swn_draft *plan, const struct swn_draft *now)
{
    struct swn_plan_node *nodes = malloc(now->n * sizeof *nodes);
    if (!nodes)
        return 0;
    for (size_t i = 0; i < now->n; i++) {
        const struct swn_plan_node *node = &plan->nodes[i];
        nodes[i] = now->nodes[i];
        nodes[i].keep = node->keep;
        nodes[i].sliced = node->sliced;
        nodes[i].piece = node->piece;
        nodes[i].keep_bytes = node->keep_bytes;
        nodes[i].oversize = node->oversize;
    }
    double ns = swn_plan_simulate(nodes, now->n, plan->plan.window_bytes, &now->disk);
    free(nodes);
    return ns;
}

static int same_weights(const struct swn_draft *a, const struct swn_draft *b)
{
    if (a->n != b->n || memcmp(a->ids, b->ids, a->n * sizeof *a->ids))
        return 0;
    for (size_t i = 0; i < a->n; i++)
        if (a->nodes[i].bytes != b->nodes[i].bytes)
            return 0;
    return 1;
}

int swn_policy_outdated(struct swn_engine *e, const struct swn_draft *d)
{
    double better = d->plan.latency_ns + (d->unplot ? d->plot_gain_ns : 0);
    if (same_weights(&e->in_force, d) && as_it_is(&e->in_force, d) <= better * (1 + SWN_PLAN_NOISE)) {
        swn_policy_drift_begin(e, d->disk.bytes_per_ns);
        e->drift.plans -= e->drift.plans > 0;
        return 0;
    }
    e->drift.plans += e->drift.plans < PLANS_MOST;
    return e->plan_dirty = 1;
}

static void note_machine(struct swn_engine *e)
{
    struct swn_drift *d = &e->drift;
    uint64_t now = swn_now_ns();
    if (!e->planned || e->plan_dirty || d->due || e->settling ||
        (!differ(swn_policy_disk(e).bytes_per_ns, d->speed, OTHER_SPEED) &&
         !differ(computing(e), d->compute_ns, OTHER_COMPUTE))) {
        d->passes = 0;
        d->since_ns = now;
        return;
    }
    if (++d->passes < PASSES_LEAST << d->plans || now - d->since_ns < LEAST_NS)
        return;
    d->due = 1;
}

/* A plan that leaves a little too little for activations stays in force (swn_engine_note_peak), but not where pages go
 * and come back for that in pass after pass. */
static void note_shortness(struct swn_engine *e)
{
    struct swn_drift *d = &e->drift;
    int is_short = e->planned && !e->settling && e->dropped != d->dropped && e->other_peak > e->planned_other;
    d->dropped = e->dropped;
    d->short_passes = is_short ? d->short_passes + 1 : 0;
    if (d->short_passes == SHORT_PASSES)
        e->plan_dirty = 1;
}

void swn_policy_passed(struct swn_engine *e)
{
    note_shortness(e);
    note_machine(e);
    /* The others' peaks only fade. */
    e->other_before -= e->other_before / 16;
    e->other_before = swn_policy_other_peak(e);
    e->other_peak = swn_policy_other_held(e);
}
