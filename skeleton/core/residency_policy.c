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
#include "skeleton/core/residency_policy.h"
#include "skeleton/core/weights.h"

#define MIB ((size_t)1 << 20)
#define LEAST_WINDOW (MIB / 2) /* of a plan, see scheduler/planner/plan.c */
/* A budget that holds at least so many huge pages has chunks of that size. With smaller chunks, and so small pages, a
 * pass of GPT-2 within 28 MiB takes 1.5 times as long. With fewer huge pages than this, activations and weights have
 * too few to share: MobileNetV2 within 16 MiB wrote activations out in every pass. */
#define HUGE_LEAST 12
/* A smaller budget is divided into so many chunks, none smaller than UNIT_LEAST: a chunk stays in memory as a whole
 * even where the plan keeps only one weight of it. */
#define UNIT_LEAST ((size_t)256 << 10)
#define UNITS_LEAST 32
/* Inputs up to this part of the budget may come back to stay. */
#define RECALL_PART 16

/* Of the computing for which passes become short of the disk. */
#define STILL_SHORT 0.75
/* A window is whole granules, and small tensors come and go between two large ones. Without plots there is room for
 * that whenever activations are not at their peak. */
#define PLOT_MARGIN (2 * SWN_GRANULE)
/* Without places a pass faults in again one to two times what the plot holds (ResNet-101, MobileNetV2). A page took 2.6
 * to 3.1 us, and letting go of it 0.5 us, on a busy virtual machine. */
#define PLOT_GAIN_NS_PER_BYTE (3e3 / (double)SWN_PAGE)

/* Everything that is in use and not a weight of the order: activations, inputs, optimizer state. Free pages kept warm
 * are not in it: they go first when room is needed. */
size_t swn_policy_other(struct swn_engine *e)
{
    long long small = atomic_load(&e->small_bytes);
    return e->res.home_bytes - e->node_home_bytes + (small > 0 ? (size_t)small : 0);
}

/* The same, and room that is held for activations to come. */
size_t swn_policy_other_held(struct swn_engine *e)
{
    return swn_policy_other(e) + swn_arena_plot_idle(e->arena);
}

size_t swn_policy_other_peak(const struct swn_engine *e)
{
    return e->other_peak > e->other_before ? e->other_peak : e->other_before;
}

/* What the plan in force leaves for it, or more if it took more. */
size_t swn_policy_other_needed(const struct swn_engine *e)
{
    size_t peak = swn_policy_other_peak(e);
    return e->planned_other > peak ? e->planned_other : peak;
}

void swn_policy_look_at_disk(struct swn_engine *e)
{
    if (!atomic_exchange(&e->looked_at_disk, 1) && swn_dir_in_memory(e->io, e->config.store_dir))
        swn_say(
            "the store directory %s lies in memory (tmpfs, or an overlay over it): what is written there to keep the "
            "budget takes memory all the same; set SWAPNET_STORE to a directory on a disk",
            e->config.store_dir);
}

/* Of how many addresses a chunk is. */
static size_t unit_for(const struct swn_engine *e)
{
    size_t unit = SWN_HUGE;
    if (e->goal_bytes / HUGE_LEAST >= unit)
        return unit;
    while (unit > UNIT_LEAST && unit > e->goal_bytes / UNITS_LEAST)
        unit /= 2;
    return unit;
}

static int make_pool(struct swn_engine *e)
{
    if (!e->pool) {
        size_t unit = unit_for(e);
        int err = swn_pool_create(&e->pool, unit, e->arena_bytes / unit);
        if (err)
            return err;
        e->res.pool = e->pool;
        if (!swn_residency_knows_huge(&e->res))
            swn_pool_keep_small(e->pool);
        swn_policy_resize_window(e, swn_policy_first_window(e));
    }
    if (!e->spill) {
        int err = swn_spill_open(&e->spill, e->io, e->config.store_dir);
        if (err)
            return err;
        e->res.spill = e->spill;
    }
    swn_policy_look_at_disk(e);
    if (!e->fetch) {
        int err = swn_queue_start(e);
        if (err)
            return err;
    }
    return 0;
}

/* The program has closed our spill file, and its mappings are all that we have of it: they go on serving what lies
 * there, and what leaves from now on goes to another file. */
static void lose_spill(struct swn_engine *e)
{
    if (!e->said_closed++)
        swn_say(
            "the program has closed descriptors that it did not open, the spill file's among them: what lies there is "
            "read through its mapping, more slowly");
    e->spilled_before += e->spill->written_bytes;
    e->spill = e->res.spill = NULL;
}

/* The pool is made when the first byte has to leave: from then on it is part of what counts. */
int swn_policy_pool(struct swn_engine *e)
{
    if (atomic_load(&e->retired))
        return -EBUSY;
    if (e->spill && !swn_spill_is_ours(e->spill))
        lose_spill(e);
    if (e->pool && e->spill && e->fetch)
        return 0;
    int err = make_pool(e);
    if (err && !e->said_pool++)
        swn_say("cannot set up the pool and the spill file in %s: %s (ulimit -f, -n and -v?); weights stay in memory "
                "and the budget "
                "is not kept",
                e->config.store_dir, strerror(-err));
    return err;
}

uint64_t swn_policy_written(const struct swn_engine *e)
{
    return e->spilled_before + (e->spill ? e->spill->written_bytes : 0);
}

void swn_policy_drop_frames(struct swn_engine *e, const struct swn_range *r)
{
    struct swn_chunks chunks = swn_residency_chunks(&e->res, r);
    swn_residency_forget(&e->res, r);
    swn_swapin_reap(e, &chunks);
}

int swn_policy_home(struct swn_engine *e, struct swn_range *r, void *pages)
{
    if (atomic_load(&r->state) != SWN_STREAMED)
        return 0;
    if (!pages)
        e->source->verify(e, r);
    int err = swn_residency_home(&e->res, r, pages);
    if (err)
        return err;
    e->filled += r->size;
    if (swn_is_weight(r))
        e->node_home_bytes += r->size;
    swn_policy_drop_frames(e, r);
    return 0;
}

void swn_policy_spilled(struct swn_engine *e, size_t size, int err)
{
    if (!err) {
        atomic_store(&e->want_hook, 1);
    } else if (err == -EBADF) {
        swn_policy_pool(e); /* another file for the next one */
    } else if (err != -EBUSY) {
        char need[32];
        if (!e->said_full++)
            swn_say(
                "cannot write %s more to the store directory %s: %s; memory may exceed the budget until there is room",
                swn_format_mib(need, size), e->config.store_dir, strerror(-err));
        e->spill_retry = e->allocs + 64;
    }
}

int swn_policy_spill(struct swn_engine *e, struct swn_range *r)
{
    size_t size = r->size;
    uint64_t begin = swn_now_ns();
    int err = swn_residency_spill(&e->res, r);
    if (!err) {
        e->written_bytes += size;
        e->written_ns += swn_now_ns() - begin;
    }
    if (!err && swn_is_weight(r))
        e->node_home_bytes -= size;
    swn_policy_spilled(e, size, err);
    return err;
}

/* The range gets ordinary pages, and room for them first: not twice where it is resident already. */
int swn_policy_bring_home(struct swn_engine *e, struct swn_range *r, void *pages)
{
    if (atomic_load(&r->state) != SWN_STREAMED)
        return 0;
    if (!pages && r->len > e->config.budget_bytes && swn_policy_share(e, r) == 0)
        return 0;
    int fresh = atomic_load(&r->state) == SWN_STREAMED; /* else it counts already */
    swn_policy_make_room(e, fresh ? swn_round_up(r->len, SWN_PAGE) : 0, r);
    int err = swn_policy_home(e, r, pages);
    swn_engine_note_peak(e);
    return err;
}

/* An input (a mask, a table, the same image over and over) that left while a model was built comes back when it is read
 * again and again, since no order tells when to read it ahead: as soon as there is a plan that leaves room for it. Ever
 * more rarely, should it have to leave each time. */
void swn_policy_recall(struct swn_engine *e, struct swn_range *r)
{
    size_t size = swn_round_up(r->len, SWN_PAGE);
    if (!e->planned || r->node >= 0 || r->guest || r->readers || r->shared || e->seq - r->alloc_seq < SWN_AGED_OPS ||
        r->len > e->config.budget_bytes / RECALL_PART || atomic_load(&r->state) != SWN_STREAMED || r->file->immutable)
        return;
    uint32_t n = ++r->out_reads;
    if (r->recalled && !e->plan_dirty) {
        r->recalled = 0;
        if (swn_policy_fits_free(e, size))
            swn_policy_bring_home(e, r, 0);
    } else if (!r->recalled && n > 1 && !(n & (n - 1))) {
        r->recalled = 1;
        e->plan_dirty = 1;
    }
}

/* All of r is read through the mapping of its extent. -EBUSY: it was written to; what is mapped stays. */
static int take_back(struct swn_engine *e, struct swn_range *r)
{
    struct swn_chunks chunks = swn_residency_chunks(&e->res, r);
    for (uint64_t c = chunks.first; c < chunks.end; c++) {
        struct swn_range *written = NULL;
        for (struct swn_frame *f; (f = swn_pool_chunk(e->pool, c)->frame);) {
            written = swn_residency_unpublish(&e->res, &f, 1);
            if (!written || written == r)
                break;
            swn_policy_home(e, written, 0);
        }
        if (written)
            return -EBUSY;
    }
    return 0;
}

/* A tensor that alone exceeds the budget is written through a mapping of its file. 0, or -errno: it is not. */
int swn_policy_share(struct swn_engine *e, struct swn_range *r)
{
    if (!e->config.enforce || !e->half || atomic_load(&e->hook_state) == 3 || swn_policy_pool(e))
        return -EBUSY;
    int err = take_back(e, r); /* or frames that get other bytes would stay mapped where it cannot be shared */
    if (err)
        return err;
    swn_policy_drop_frames(e, r);
    err = swn_residency_share(&e->res, r);
    if (!err)
        atomic_store(&e->want_hook, 1);
    return err;
}

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

/* Whether the chunk has bytes in a frame, or that would have to be in one. */
static int has_streamed(struct swn_engine *e, const struct swn_range *r, uint64_t chunk)
{
    uintptr_t at = swn_residency_chunk_at(&e->res, r, chunk), end = at + swn_pool_unit(e->pool);
    for (struct swn_range *next; (next = swn_arena_in(e->arena, at, end)); at = next->addr + next->span)
        if (atomic_load(&next->state) == SWN_STREAMED)
            return 1;
    return 0;
}

/* Whether the plan has some of it come and go; or whether neighbours in its chunks do, which takes frames anyway. */
static int streams(struct swn_engine *e, const struct swn_range *r)
{
    struct swn_chunks all = swn_residency_chunks(&e->res, r);
    for (uint64_t c = all.first; c < all.end; c++)
        if (!swn_pool_chunk(e->pool, c)->keep || has_streamed(e, r, c))
            return 1;
    return 0;
}

/* Brings one weight to where the plan wants it; called when an operator is done with it. */
void swn_policy_settle(struct swn_engine *e, struct swn_range *r)
{
    if (!e->planned || !e->pool || !swn_is_weight(r) || r->written || r->pins || r->readers)
        return;
    if (atomic_load(&r->state) == SWN_HOME && e->allocs >= e->spill_retry && streams(e, r))
        swn_policy_spill(e, r);
}
