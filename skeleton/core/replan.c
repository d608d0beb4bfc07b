/* Whether the plan in force is still one for this machine and this program. The first is made while the disk also
 * writes what had to leave, and operators wait for pages that are new; later what else runs comes and goes. Where the
 * disk or the operators have become others, another plan is made, and takes the place of the one in force if that, as
 * the machine is now, takes longer. */
#include <math.h>
#include <stdlib.h>

#include "skeleton/core/engine_internal.h"
#include "skeleton/core/replan.h"
#include "skeleton/core/plan.h"
#include "skeleton/core/weights.h"
#include "skeleton/core/accounting.h"

/* So much is not worth a look: of the disk's speed, and of the time of all operators. */
#define OTHER_SPEED 1.1
#define OTHER_COMPUTE 1.1
/* For so many passes, and so long. Another plan costs a pass or two of reading what that keeps, and what comes and goes
 * all the time must not cost that all the time: with each the machine has to be another one for twice as many passes,
 * up to 2^PLANS_MOST, and for half as many after two looks in a row that found no better plan. */
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
    e->drift.since_ns = swn_now_ns();
    e->drift.due = 0;
}

/* Where each weight is in the plan in force, plus one, by its node; NULL without memory. */
static uint32_t *places_in_force(struct swn_engine *e)
{
    uint32_t *at = calloc(e->node_count + 1, sizeof *at);
    for (size_t i = 0; at && i < e->in_force.n; i++) {
        struct swn_node *node = swn_node_of(e, e->in_force.ids[i]);
        if (node)
            at[node - e->nodes] = (uint32_t)i + 1;
    }
    return at;
}

/* How long a pass takes under the plan in force, if everything is as the draft has it, which may begin with another
 * weight. INFINITY: it is for other weights. 0: there is no memory to find out. */
static double as_it_is(struct swn_engine *e, const struct swn_draft *now)
{
    const struct swn_draft *plan = &e->in_force;
    struct swn_plan_node *nodes = malloc(now->n * sizeof *nodes);
    uint32_t *at = places_in_force(e);
    double ns = plan->n == now->n ? 0 : INFINITY;
    for (size_t i = 0; nodes && at && ns < INFINITY && i < now->n; i++) {
        struct swn_node *node = swn_node_of(e, now->ids[i]);
        const struct swn_plan_node *planned =
            node && at[node - e->nodes] ? &plan->nodes[at[node - e->nodes] - 1] : NULL;
        if (!planned || planned->bytes != now->nodes[i].bytes) {
            ns = INFINITY;
            break;
        }
        nodes[i] = now->nodes[i];
        nodes[i].keep = planned->keep;
        nodes[i].sliced = planned->sliced;
        nodes[i].piece = planned->piece;
        nodes[i].keep_bytes = planned->keep_bytes;
        nodes[i].oversize = planned->oversize;
    }
    if (nodes && at && ns < INFINITY)
        ns = swn_plan_simulate(nodes, now->n, plan->plan.window_bytes, &now->disk);
    free(nodes);
    free(at);
    return ns;
}

/* The plan stays, and what is said of it to others is as the machine is now. */
static void stay(struct swn_engine *e, const struct swn_draft *d)
{
    swn_policy_drift_begin(e, d->disk.bytes_per_ns);
    e->in_force.plan.compute_ns = d->plan.compute_ns;
    if (e->drift.stays++ % 2)
        e->drift.plans -= e->drift.plans > 0;
}

static void renew(struct swn_engine *e)
{
    e->drift.stays = 0;
    e->drift.plans += e->drift.plans < PLANS_MOST;
    e->plan_dirty = 1;
}

int swn_policy_outdated(struct swn_engine *e, const struct swn_draft *d)
{
    e->drift.looks++;
    int is_short = swn_policy_short_of_disk(e, d);
    if (is_short != e->plan_short) {
        /* Other weights come in slices then, of which this draft knows nothing: the next one does. */
        swn_policy_drift_begin(e, d->disk.bytes_per_ns);
        e->plan_short = is_short;
        renew(e);
        return 0;
    }
    double better = d->plan.latency_ns + (d->unplot ? d->plot_gain_ns : 0);
    int behind = as_it_is(e, d) > better * (1 + SWN_PLAN_NOISE);
    if (behind)
        renew(e);
    else
        stay(e, d);
    return behind;
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
