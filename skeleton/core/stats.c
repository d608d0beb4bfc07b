/* skeleton/core/stats.c - the statistics record: first the core's part, then that of each subsystem. */
#define _GNU_SOURCE
#include <errno.h>
#include <string.h>

#include "skeleton/engine/engine_internal.h"
#include "skeleton/engine/subsystem.h"
#include "skeleton/core/plan.h"
#include "skeleton/engine/accounting.h"
#include "skeleton/core/residency_steps.h"
#include "skeleton/engine/section.h"

/* --- seeing it --- */

void swn_engine_stats(struct swn_stats *out)
{
    struct swn_engine *e = &swn_engine_one;
    memset(out, 0, sizeof *out);
    swn_lock(&e->lock);
    out->pid = (uint64_t)e->life.pid;
    out->budget_bytes = e->budget.target;
    out->minimum_bytes = swn_plan_minimum(e);
    out->urgency = e->budget.urgency;
    out->demand_bytes = e->counters.demand_peak;
    out->resident_bytes = swn_engine_resident(e);
    out->peak_resident_bytes =
        e->counters.peak_resident > out->resident_bytes ? e->counters.peak_resident : out->resident_bytes;
    size_t kept = e->pool ? swn_pool_pinned(e->pool) * swn_pool_unit(e->pool) : 0;
    out->pool_bytes = e->pool ? swn_pool_bytes(e->pool) - kept : 0;
    out->kept_bytes = kept + e->weights.resident_bytes;
    out->small_bytes = swn_small_bytes(e);
    struct swn_fetch_stats fetch = {0};
    if (e->fetch)
        swn_fetch_stats_get(e->fetch, &fetch);
    out->streamed_bytes = fetch.bytes;
    out->spilled_bytes = swn_spilled_so_far(e);
    out->deferred_bytes = e->counters.deferred;
    out->swap_ins = e->counters.swap_ins;
    out->window_hits = e->counters.window_hits;
    out->window_misses = e->counters.window_misses;
    out->stalls = e->counters.stalls;
    out->stall_ns = e->counters.stall_ns;
    out->filled_bytes = e->counters.filled;
    out->dropped_bytes = e->counters.dropped;
    out->placed_bytes = e->regions.placed;
    out->slices = e->counters.slices;
    out->rows = e->counters.rows;
    out->fallback_reads = e->res.fallback_pages;
    out->over_budget_bytes = e->counters.over_budget_peak;
    out->untracked_bytes = e->counters.untracked;
    for (struct swn_thread_state *t = e->ops.threads; t; t = t->next)
        out->passes += t->cursor.passes;
    out->read_errors = e->counters.read_errors;
    out->plans = e->plan.made;
    out->plan_reviews = e->plan.replan.reviews;
    out->plan_budget_bytes = e->plan.in_force.goal;
    out->plan_since_ns = e->plan.since_ns;
    out->budget_since_ns = e->budget.target_since_ns;
    out->bound_ns = e->budget.bound_ns;
    out->fetch_path = e->fetch ? swn_fetch_path_name(swn_fetch_path_now(e->fetch)) : "none";
    out->torch_version = e->torch ? e->torch->version : "unknown";
    out->state = e->budget.target < e->budget.limit ? "shrinking" : "running";
    out->name = e->config.name[0] ? e->config.name : program_invocation_short_name;
    SWN_EACH_SUBSYSTEM (s, stats)
        s->stats(e, out);
    swn_unlock(&e->lock);
}
