/* Whether the plan in force is still one for this machine and this program. The first plan is made while the disk also
 * writes evicted ranges, and operators wait for new pages; later other programs come and go. Where the speed of the
 * disk or of the operators has changed, another plan is made. It takes the place of the plan in force if that one, on
 * the machine as it is now, takes longer. */
#include <math.h>
#include <stdlib.h>

#include "skeleton/engine/engine_internal.h"
#include "skeleton/core/replan.h"
#include "skeleton/core/plan.h"
#include "skeleton/engine/weights.h"
#include "skeleton/engine/accounting.h"

/* A smaller change of the disk's speed, or of the time of all operators, needs no review. */
#define OTHER_SPEED 1.1
#define OTHER_COMPUTE 1.1
/* Nor does a smaller part of the budget that activations need no longer. */
#define OTHER_NONWEIGHT 16
/* A change must last for this many passes, and this long. A new plan costs a pass or two, as the weights that it keeps
 * have to be read, and repeated changes must not cost that each time. So with each new plan a change has to last for
 * twice as many passes, up to 2^PLANS_MOST, and for half as many after two reviews in a row without a better plan. */
#define PASSES_LEAST 8u
#define PLANS_MOST 6
#define LEAST_NS (uint64_t)1000000000
/* This many passes in a row without enough room are no accident. */
#define SHORT_PASSES 4

static double computing(const struct swn_engine *e)
{
    double ns = 0;
    for (size_t i = 0; i < e->weights.count; i++)
        ns += e->weights.all[i].range ? e->weights.all[i].compute_ns : 0;
    return ns;
}

static int differ(double a, double b, double most)
{
    return a > b * most || b > a * most;
}

void swn_replan_begin(struct swn_engine *e, double bytes_per_ns)
{
    e->plan.replan.speed = bytes_per_ns;
    e->plan.replan.compute_ns = computing(e);
    e->plan.replan.nonweight = swn_nonweight_peak(e);
    e->plan.replan.passes = 0;
    e->plan.replan.since_ns = swn_now_ns();
    e->plan.replan.review_due = 0;
}

/* The index of each weight in the plan in force, plus one, by its weight; NULL: no memory. */
static uint32_t *places_in_force(struct swn_engine *e)
{
    uint32_t *at = calloc(e->weights.count + 1, sizeof *at);
    for (size_t i = 0; at && i < e->plan.in_force.n; i++) {
        struct swn_weight *weight = swn_weight_of(e, e->plan.in_force.ids[i]);
        if (weight)
            at[weight - e->weights.all] = (uint32_t)i + 1;
    }
    return at;
}

/* The time of a pass under the plan in force, with the speeds of the candidate, which may begin with another weight.
 * INFINITY: the plan is for other weights. 0: no memory to simulate. */
static double as_it_is(struct swn_engine *e, const struct swn_plan_candidate *now)
{
    const struct swn_plan_candidate *plan = &e->plan.in_force;
    struct swn_plan_weight *weights = malloc(now->n * sizeof *weights);
    uint32_t *at = places_in_force(e);
    double ns = plan->n == now->n ? 0 : INFINITY;
    for (size_t i = 0; weights && at && ns < INFINITY && i < now->n; i++) {
        struct swn_weight *weight = swn_weight_of(e, now->ids[i]);
        const struct swn_plan_weight *planned =
            weight && at[weight - e->weights.all] ? &plan->weights[at[weight - e->weights.all] - 1] : NULL;
        if (!planned || planned->bytes != now->weights[i].bytes) {
            ns = INFINITY;
            break;
        }
        weights[i] = now->weights[i];
        weights[i].keep = planned->keep;
        weights[i].sliced = planned->sliced;
        weights[i].piece = planned->piece;
        weights[i].keep_bytes = planned->keep_bytes;
        weights[i].oversize = planned->oversize;
    }
    if (weights && at && ns < INFINITY)
        ns = swn_plan_simulate(weights, now->n, plan->plan.ring_bytes, &now->disk);
    free(weights);
    free(at);
    return ns;
}

/* The plan stays, and its published times become those of the machine as it is now. */
static void stay(struct swn_engine *e, const struct swn_plan_candidate *d)
{
    swn_replan_begin(e, d->disk.bytes_per_ns);
    e->plan.in_force.plan.compute_ns = d->plan.compute_ns;
    if (e->plan.replan.unchanged_reviews++ % 2)
        e->plan.replan.plans -= e->plan.replan.plans > 0;
}

static void renew(struct swn_engine *e)
{
    e->plan.replan.unchanged_reviews = 0;
    e->plan.replan.plans += e->plan.replan.plans < PLANS_MOST;
    e->plan.dirty = 1;
}

int swn_replan_is_due(struct swn_engine *e, const struct swn_plan_candidate *d)
{
    e->plan.replan.reviews++;
    int is_short = swn_plan_is_short_of_disk(e, d);
    if (is_short != e->plan.short_of_disk) {
        /* Then other weights come in slices, which this candidate does not know; the next candidate does. */
        swn_replan_begin(e, d->disk.bytes_per_ns);
        e->plan.short_of_disk = is_short;
        renew(e);
        return 0;
    }
    double better = d->plan.latency_ns + (d->drop_regions ? d->region_gain_ns : 0);
    int behind = as_it_is(e, d) > better * (1 + SWN_PLAN_NOISE);
    if (behind)
        renew(e);
    else
        stay(e, d);
    return behind;
}

/* Whether activations need less than the plan has left for them: its first passes may have had more, as where a program
 * loads or converts its model. */
static int is_roomier(const struct swn_engine *e)
{
    return e->plan.replan.nonweight > swn_nonweight_peak(e) + e->budget.limit / OTHER_NONWEIGHT;
}

static void note_machine(struct swn_engine *e)
{
    struct swn_replan *d = &e->plan.replan;
    uint64_t now = swn_now_ns();
    if (!e->plan.planned || e->plan.dirty || d->review_due || e->regions.warmup_passes ||
        (!differ(swn_plan_disk(e).bytes_per_ns, d->speed, OTHER_SPEED) &&
         !differ(computing(e), d->compute_ns, OTHER_COMPUTE) && !is_roomier(e))) {
        d->passes = 0;
        d->since_ns = now;
        return;
    }
    if (++d->passes < PASSES_LEAST << d->plans || now - d->since_ns < LEAST_NS)
        return;
    d->review_due = 1;
}

/* A plan that leaves a little too little for activations stays in force (swn_engine_note_peak), unless pages are
 * dropped and made again for that in pass after pass. */
static void note_shortness(struct swn_engine *e)
{
    struct swn_replan *d = &e->plan.replan;
    int is_short = e->plan.planned && !e->regions.warmup_passes && e->counters.dropped != d->dropped &&
                   e->nonweight.peak > e->nonweight.planned;
    d->dropped = e->counters.dropped;
    d->short_passes = is_short ? d->short_passes + 1 : 0;
    if (d->short_passes == SHORT_PASSES)
        e->plan.dirty = 1;
}

void swn_replan_passed(struct swn_engine *e)
{
    note_shortness(e);
    note_machine(e);
    /* The peaks of other passes only fade. */
    e->nonweight.before -= e->nonweight.before / 16;
    e->nonweight.before = swn_nonweight_peak(e);
    e->nonweight.peak = swn_nonweight_held(e);
}
