/* skeleton/core/stats.c - the statistics record: what the core knows, and then what each subsystem adds. */
#define _GNU_SOURCE
#include <errno.h>
#include <string.h>

#include "skeleton/core/engine_internal.h"
#include "skeleton/core/subsystem.h"
#include "skeleton/core/plan.h"
#include "skeleton/core/accounting.h"
#include "skeleton/core/residency_steps.h"

/* --- seeing it --- */

void swn_engine_stats(struct swn_stats *out)
{
    struct swn_engine *e = &swn_engine_one;
    memset(out, 0, sizeof *out);
    pthread_mutex_lock(&e->lock);
    out->pid = (uint64_t)e->pid;
    out->budget_bytes = e->goal_bytes;
    out->minimum_bytes = swn_policy_minimum(e);
    out->urgency = e->urgency;
    out->demand_bytes = e->demand_peak;
    out->resident_bytes = swn_engine_resident(e);
    out->peak_resident_bytes = e->peak_resident > out->resident_bytes ? e->peak_resident : out->resident_bytes;
    size_t kept = e->pool ? swn_pool_kept(e->pool) * swn_pool_unit(e->pool) : 0;
    out->pool_bytes = e->pool ? swn_pool_bytes(e->pool) - kept : 0;
    out->kept_bytes = kept + e->node_home_bytes;
    long long small = atomic_load(&e->small_bytes);
    out->small_bytes = small > 0 ? (uint64_t)small : 0;
    struct swn_fetch_stats fetch = {0};
    if (e->fetch)
        swn_fetch_stats_get(e->fetch, &fetch);
    out->streamed_bytes = fetch.bytes;
    out->encoded_bytes = atomic_load(&e->encoded_bytes);
    for (int how = 0; how < SWN_ENCODINGS; how++)
        out->decoded_bytes += atomic_load(&e->decoded_bytes[how]);
    out->spilled_bytes = swn_policy_written(e);
    out->deferred_bytes = e->deferred;
    out->swap_ins = e->swap_ins;
    out->window_hits = e->window_hits;
    out->window_misses = e->window_misses;
    out->stall_ns = e->stall_ns;
    out->filled_bytes = e->filled;
    out->dropped_bytes = e->dropped;
    out->placed_bytes = e->placed;
    out->slices = e->slices;
    out->rows = e->rows;
    out->stray_reads = e->res.stray_pages;
    out->over_budget_bytes = e->over_budget_peak;
    out->untracked_bytes = e->untracked;
    for (struct swn_thread_state *t = e->threads; t; t = t->next)
        out->passes += t->cursor.passes;
    out->read_errors = e->read_errors;
    out->plans = e->plans;
    out->plan_looks = e->drift.looks;
    out->plan_budget_bytes = e->in_force.goal;
    out->plan_since_ns = e->plan_since_ns;
    out->budget_since_ns = e->goal_since_ns;
    out->bound_ns = e->bound_ns;
    out->fetch_path = e->fetch ? swn_fetch_path_name(swn_fetch_path_now(e->fetch)) : "none";
    out->torch_version = e->half ? e->half->version : "unknown";
    out->state = e->goal_bytes < e->config.budget_bytes ? "shrinking" : "running";
    out->name = e->config.name[0] ? e->config.name : program_invocation_short_name;
    SWN_EACH_SUBSYSTEM (s, stats)
        s->stats(e, out);
    pthread_mutex_unlock(&e->lock);
}
