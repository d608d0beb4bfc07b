/* Whether the plan in force is still one for this machine and this program. The first is made while the disk also
 * writes what had to leave, and operators wait for pages that are new; later what else runs comes and goes. A plan for
 * another disk, or for other operators, is made anew. */
#include "swn_engine_priv.h"

/* A plan leaves this to chance: the disk's speed, and the time of all operators. */
#define OTHER_SPEED 1.25
#define OTHER_COMPUTE 1.15
/* For so many passes, twice as many each time up to 2^PLANS_MOST, and so long. */
#define PASSES_LEAST 8u
#define PLANS_MOST 12
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
}

static void note_machine(struct swn_engine *e)
{
    struct swn_drift *d = &e->drift;
    uint64_t now = swn_now_ns();
    if (!e->planned || e->plan_dirty || e->settling ||
        (!differ(swn_policy_disk(e).bytes_per_ns, d->speed, OTHER_SPEED) &&
         !differ(computing(e), d->compute_ns, OTHER_COMPUTE))) {
        d->passes = 0;
        d->since_ns = now;
        return;
    }
    if (++d->passes < PASSES_LEAST << d->plans || now - d->since_ns < LEAST_NS)
        return;
    d->plans += d->plans < PLANS_MOST;
    e->plan_dirty = 1;
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
