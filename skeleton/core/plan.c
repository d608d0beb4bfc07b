/* Who may stay in memory: the pool, how a weight comes and goes, and the plan. Who leaves for others is in
 * skeleton/core/eviction.c, mechanism in blocks/swn_residency; this file only decides. */
#define _GNU_SOURCE
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "skeleton/core/engine_internal.h"
#include "base/huge_pages.h"
#include "base/backing.h"
#include "skeleton/core/subsystem.h"
#include "scheduler/planner/plan.h"
#include "scheduler/planner/plan_pieces.h"
#include "base/size.h"
#include "skeleton/core/eviction.h"
#include "skeleton/core/fetch_setup.h"
#include "skeleton/core/prefetch.h"
#include "skeleton/core/replan.h"
#include "skeleton/core/plan.h"
#include "skeleton/core/weights.h"
#include "skeleton/core/accounting.h"
#include "skeleton/core/window_size.h"

#define MIB ((size_t)1 << 20)
#define LEAST_WINDOW (MIB / 2) /* of a plan, see scheduler/planner/plan.c */
/* Of the computing for which passes become short of the disk. */
#define STILL_SHORT 0.75
/* A window is whole granules, and small tensors come and go between two large ones. Without plots there is room for
 * that whenever activations are not at their peak. */
#define PLOT_MARGIN (2 * SWN_GRANULE)
/* Without places a pass faults in again one to two times what the plot holds (ResNet-101, MobileNetV2). A page took 2.6
 * to 3.1 us, and letting go of it 0.5 us, on a busy virtual machine. */
#define PLOT_GAIN_NS_PER_BYTE (3e3 / (double)SWN_PAGE)

/* The weights of every thread whose order is settled, in the order they are read, each once. */
size_t swn_policy_gather(struct swn_engine *e, uint32_t *ids, size_t most)
{
    size_t n = 0;
    uint32_t *cycle = malloc(most * sizeof *cycle);
    if (!cycle)
        return 0;
    unsigned char *seen = calloc(e->node_count + 1, 1);
    for (struct swn_thread_state *t = e->threads; seen && t; t = t->next) {
        size_t len = swn_order_cycle(e->order, &t->cursor, cycle, most);
        for (size_t i = 0; i < len && n < most; i++) {
            struct swn_node *node = swn_node_of(e, cycle[i]);
            if (!node || node->range->written || seen[node - e->nodes])
                continue;
            seen[node - e->nodes] = 1;
            ids[n++] = node->id;
        }
    }
    free(seen);
    free(cycle);
    return n;
}

/* As its reads were, one row by one. Only before there are enough of them all bytes by all the time in which there was
 * something to read: a process that was stopped for a minute (SIGSTOP, a frozen cgroup) would take its disk for a slow
 * one ever after. */
struct swn_disk_model swn_policy_disk(struct swn_engine *e)
{
    struct swn_disk_model disk = {.bytes_per_ns = SWN_FIRST_BYTES_PER_NS, .read_ns = SWN_DISK_READ_NS};
    struct swn_fetch_stats s;
    if (!e->fetch)
        return disk;
    swn_fetch_stats_get(e->fetch, &s);
    if (s.bytes <= 8 * MIB + e->row_bytes || s.busy_ns <= e->row_ns)
        return disk;
    if (!swn_pace_get(&e->disk, &disk))
        disk.bytes_per_ns = (double)(s.bytes - e->row_bytes) / (double)(s.busy_ns - e->row_ns);
    return disk;
}

static void say_oversize(struct swn_engine *e, size_t bytes)
{
    char a[32], b[32];
    if (bytes > e->config.budget_bytes / 2 && !e->said_oversize++)
        swn_say("one layer of %s alone exceeds what the budget of %s leaves for weights: it is read through a mapping, "
                "slower but with the same result",
                swn_format_mib(a, bytes), swn_format_mib(b, e->config.budget_bytes));
}

/* Chunks are planned with the weight that is read first of those that lie in them: `ids` in their order. */
static void assign_chunks(struct swn_engine *e, const uint32_t *ids, size_t n, size_t *count)
{
    for (size_t i = 0; i < n; i++) {
        struct swn_chunks all = swn_residency_chunks(&e->res, swn_node_of(e, ids[i])->range);
        for (uint64_t c = all.first; c < all.end; c++)
            swn_pool_chunk(e->pool, c)->node = 0;
    }
    for (size_t i = 0; i < n; i++) {
        struct swn_chunks all = swn_residency_chunks(&e->res, swn_node_of(e, ids[i])->range);
        count[i] = 0;
        for (uint64_t c = all.first; c < all.end; c++) {
            struct swn_chunk *chunk = swn_pool_chunk(e->pool, c);
            if (chunk->node)
                continue;
            chunk->node = ids[i];
            count[i]++;
        }
    }
}

/* Tells every chunk of the weights whether it stays. */
static void apply(struct swn_engine *e, const struct swn_plan_node *nodes, const uint32_t *ids, size_t n)
{
    size_t unit = swn_pool_unit(e->pool), *count = malloc(n * sizeof *count);
    if (count)
        assign_chunks(e, ids, n, count);
    free(count);
    for (size_t i = 0; i < n; i++) {
        struct swn_range *r = swn_node_of(e, ids[i])->range;
        struct swn_chunks all = swn_residency_chunks(&e->res, r);
        uint64_t at = 0;
        for (uint64_t c = all.first; c < all.end; c++) {
            struct swn_chunk *chunk = swn_pool_chunk(e->pool, c);
            if (chunk->node != ids[i])
                continue;
            chunk->keep = (unsigned char)swn_plan_keeps(&nodes[i], at, at + unit);
            at += unit;
        }
        e->tiling->slice_set(e, r, nodes[i].sliced);
        e->nodes[r->node].oversize = nodes[i].oversize;
        if (nodes[i].oversize)
            say_oversize(e, (size_t)nodes[i].bytes);
    }
    for (struct swn_frame *f = swn_pool_first(e->pool); f; f = f->next)
        swn_pool_set_kept(e->pool, f, swn_pool_chunk(e->pool, f->chunk)->keep);
}

/* Of ranges that are no weights, and are to come back: room that the next plan leaves. */
static size_t recalled_bytes(struct swn_engine *e)
{
    size_t bytes = 0;
    for (struct swn_range *r = swn_arena_first(e->arena); r; r = r->next)
        bytes += r->recalled && atomic_load(&r->state) == SWN_STREAMED ? swn_round_up(r->len, SWN_PAGE) : 0;
    return bytes;
}

/* A small weight that was taken in slices while the disk was slower than now is not worth that any more. */
static size_t unit_of(const struct swn_engine *e, const struct swn_range *r)
{
    int worth_it = e->plan_short || swn_plan_worth_slicing(r->len, e->goal_bytes);
    return worth_it && r->slice_unit ? swn_round_up(r->slice_unit, swn_pool_unit(e->pool)) : 0;
}

/* Whether t's order has been right for a whole cycle; then *out is what a plan can be made of. 0, or -EAGAIN. */
int swn_policy_draft(struct swn_engine *e, struct swn_thread_state *t, struct swn_draft *out)
{
    size_t most = e->node_live * 4 + 16, peak = swn_policy_other_peak(e);
    *out = (struct swn_draft){.ids = malloc(most * sizeof *out->ids), .nodes = malloc(most * sizeof *out->nodes)};
    size_t len = out->ids && out->nodes ? swn_order_cycle(e->order, &t->cursor, out->ids, most) : 0;
    if (len && t->cursor.run >= len)
        out->n = swn_policy_gather(e, out->ids, most);
    out->disk = swn_policy_disk(e);
    size_t *count = malloc((out->n + 1) * sizeof *count);
    if (count)
        assign_chunks(e, out->ids, out->n, count);
    else
        out->n = 0;
    for (size_t i = 0; i < out->n; i++) {
        struct swn_node *node = swn_node_of(e, out->ids[i]);
        out->nodes[i] =
            (struct swn_plan_node){.bytes = count[i] * swn_pool_unit(e->pool),
                                   .compute_ns = node->compute_ns,
                                   .own_ns = node->own_ns,
                                   .unit = unit_of(e, node->range),
                                   .joined = node->joined && i + 1 < out->n && node->then == out->ids[i + 1],
                                   .saved = e->source->saved(e, node->range, out->disk.bytes_per_ns)};
    }
    free(count);
    size_t plots = e->settling ? 0 : swn_arena_plot_bytes(e->arena);
    out->other = peak + recalled_bytes(e) + (plots ? PLOT_MARGIN : 0);
    out->goal = e->goal_bytes;
    out->straddle = swn_pool_unit(e->pool);
    out->keep = !(e->config.without & SWN_WITHOUT_KEPT);
    out->plot_extra = plots ? e->plot_extra : 0;
    out->plot_gain_ns = (double)plots * PLOT_GAIN_NS_PER_BYTE;
    if (!out->n)
        swn_policy_drop_draft(out);
    return out->n ? 0 : -EAGAIN;
}

void swn_policy_drop_draft(struct swn_draft *d)
{
    free(d->ids);
    free(d->nodes);
    *d = (struct swn_draft){0};
}

static int make_plan(const struct swn_draft *d, size_t other, struct swn_plan_node *nodes, struct swn_plan *out)
{
    other += d->straddle;
    uint64_t budget = d->goal > other ? d->goal - other : 0;
    return d->keep ? swn_plan_predict(nodes, d->n, budget, &d->disk, out)
                   : swn_plan_ring(nodes, d->n, budget, &d->disk, out);
}

/* No plan for so much takes less: it computes with everything, and reads what does not fit. */
static double least_time(const struct swn_draft *d, size_t other)
{
    double read = other < d->goal ? -(double)(d->goal - other) : 0;
    for (size_t i = 0; i < d->n; i++)
        read += (double)d->nodes[i].bytes * (1 - d->nodes[i].saved);
    double reading = read / d->disk.bytes_per_ns;
    return reading > d->plan.compute_ns ? reading : d->plan.compute_ns;
}

/* A pure function of the draft: no lock is needed. */
int swn_policy_make_plan(struct swn_draft *d)
{
    int err = make_plan(d, d->other, d->nodes, &d->plan);
    size_t other = d->other > d->plot_extra ? d->other - d->plot_extra : 0;
    /* Plots are not given up for what may be noise, and where no more than that can be gained, nobody has to look. */
    d->unplot = 0;
    int look =
        !err && d->plot_extra && d->plan.latency_ns > (least_time(d, other) + d->plot_gain_ns) * (1 + SWN_PLAN_NOISE);
    struct swn_plan_node *nodes = look ? malloc(d->n * sizeof *nodes) : NULL;
    struct swn_plan unplotted;
    if (!nodes)
        return err;
    memcpy(nodes, d->nodes, d->n * sizeof *nodes);
    d->unplot = !make_plan(d, other, nodes, &unplotted) &&
                (unplotted.latency_ns + d->plot_gain_ns) * (1 + SWN_PLAN_NOISE) < d->plan.latency_ns;
    if (d->unplot) {
        memcpy(d->nodes, nodes, d->n * sizeof *nodes);
        d->plan = unplotted;
        d->other = other;
    }
    free(nodes);
    return 0;
}

static void say_plan(const struct swn_draft *d)
{
    char a[32], b[32], c[32], o[32];
    swn_say("plan: %zu weights, %s kept, %s streamed a pass, window %s, other %s; disk %.0f MB/s, %.2f ms a read and "
            "%.2f ms for its answer; %.1f ms a pass predicted, %.1f of them computing",
            d->n, swn_format_mib(a, d->plan.kept_bytes), swn_format_mib(b, d->plan.streamed_bytes),
            swn_format_mib(c, d->plan.window_bytes), swn_format_mib(o, d->other), d->disk.bytes_per_ns * 1e3,
            d->disk.read_ns / 1e6, d->disk.wait_ns / 1e6, d->plan.latency_ns / 1e6, d->plan.compute_ns / 1e6);
}

int swn_policy_short_of_disk(const struct swn_engine *e, const struct swn_draft *d)
{
    uint64_t budget = d->keep && d->goal > d->other ? d->goal - d->other : 0;
    return swn_plan_short_of_disk(d->plan.kept_bytes + d->plan.streamed_bytes, budget,
                                  d->plan.compute_ns * (e->plan_short ? STILL_SHORT : 1), d->disk.bytes_per_ns);
}

/* There is room for the longest of orders, and it stays for as long as the plan does. */
static void give_back(struct swn_draft *d)
{
    uint32_t *ids = realloc(d->ids, d->n * sizeof *ids);
    struct swn_plan_node *nodes = realloc(d->nodes, d->n * sizeof *nodes);
    d->ids = ids ? ids : d->ids;
    d->nodes = nodes ? nodes : d->nodes;
}

int swn_policy_adopt(struct swn_engine *e, struct swn_draft *d)
{
    for (size_t i = 0; i < d->n; i++)
        if (!swn_node_of(e, d->ids[i]))
            return -EAGAIN;
    if (d->unplot)
        e->placement->refuse(e);
    e->planned = 1;
    swn_policy_resize_window(e, d->plan.window_bytes + d->straddle); /* first, as slices have to fit */
    apply(e, d->nodes, d->ids, d->n);
    e->plan_short = swn_policy_short_of_disk(e, d);
    swn_policy_window(e);
    e->plan_dirty = 0;
    e->plans++;
    if (e->in_force.goal != d->goal)
        e->plan_since_ns = swn_now_ns();
    e->planned_other = d->other;
    swn_policy_drift_begin(e, d->disk.bytes_per_ns);
    if (e->config.verbose)
        say_plan(d);
    swn_policy_drop_draft(&e->in_force);
    e->in_force = *d;
    *d = (struct swn_draft){0};
    give_back(&e->in_force);
    return 0;
}

/* A new plan, when the thread's order has been right for a whole cycle; or a look whether there is a better one. */
void swn_policy_plan(struct swn_engine *e, struct swn_thread_state *t)
{
    struct swn_draft draft;
    if ((!e->plan_dirty && !e->drift.due) || !e->pool || t->cursor.run < t->next_plan_try)
        return;
    t->next_plan_try = t->cursor.run + 16;
    if (swn_policy_draft(e, t, &draft))
        return;
    if (!swn_policy_make_plan(&draft) && (e->plan_dirty || swn_policy_outdated(e, &draft)) &&
        !swn_policy_adopt(e, &draft))
        e->source->learned(e, e->in_force.ids, e->in_force.n, t->cursor.anchor);
    swn_policy_drop_draft(&draft);
}

/* Activations, and the least window: less than that is exceeded at once. Before there is a plan nobody knows. */
size_t swn_policy_minimum(struct swn_engine *e)
{
    if (!e->planned)
        return swn_budget_unasked(e->goal_bytes);
    size_t least = swn_policy_other_needed(e) + LEAST_WINDOW;
    return least > SWN_BUDGET_LEAST_BYTES ? least : SWN_BUDGET_LEAST_BYTES;
}
