/* Which weights stay in memory: gathers the order, makes the plan and puts it into force. skeleton/core/eviction.c
 * makes room, blocks/memory/residency.c has the mechanism; this file only decides. */
#define _GNU_SOURCE
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "blocks/memory/publish.h"
#include "skeleton/engine/engine_internal.h"
#include "base/huge_pages.h"
#include "base/backing.h"
#include "skeleton/engine/subsystem.h"
#include "scheduler/planner/plan.h"
#include "scheduler/planner/plan_pieces.h"
#include "base/size.h"
#include "skeleton/core/eviction.h"
#include "skeleton/core/fetch_setup.h"
#include "skeleton/core/prefetch.h"
#include "skeleton/core/replan.h"
#include "skeleton/core/plan.h"
#include "skeleton/engine/weights.h"
#include "skeleton/engine/accounting.h"
#include "skeleton/core/ring_size.h"
#include "skeleton/core/shared_chunks.h"
#include "skeleton/engine/experts.h"

#define MIB ((size_t)1 << 20)
#define RING_LEAST (MIB / 2) /* of a plan, see scheduler/planner/plan.c */
/* The part of the limit for "short of the disk" above which passes that were short still count as short. */
#define STILL_SHORT 0.75
/* A ring is whole granules, and small tensors come and go between two large ones. Without regions there is room for
 * these whenever activations are below their peak. */
#define REGION_MARGIN (2 * SWN_GRANULE)
/* Without planned places a pass faults the region's memory in again one to two times (ResNet-101, MobileNetV2). On a
 * busy virtual machine a page took 2.6 to 3.1 us, and freeing it 0.5 us. */
#define REGION_GAIN_NS_PER_BYTE (3e3 / (double)SWN_PAGE)

/* Gathers the weights of every thread whose order is settled, in the order in which they are read, each once.
 * Which experts of a mixture are read no order tells. */
size_t swn_plan_gather(struct swn_engine *e, uint32_t *ids, size_t most)
{
    size_t n = 0;
    uint32_t *cycle = malloc(most * sizeof *cycle);
    if (!cycle)
        return 0;
    unsigned char *seen = calloc(e->weights.count + 1, 1);
    for (struct swn_thread_state *t = e->ops.threads; seen && t; t = t->next) {
        size_t len = swn_access_order_cycle(e->weights.order, &t->cursor, cycle, most);
        for (size_t i = 0; i < len && n < most; i++) {
            struct swn_weight *weight = swn_weight_of(e, cycle[i]);
            if (!weight || swn_tensor_of(weight->range)->written || swn_is_mixture(weight->range) ||
                seen[weight - e->weights.all])
                continue;
            seen[weight - e->weights.all] = 1;
            ids[n++] = weight->id;
        }
    }
    free(seen);
    free(cycle);
    return n;
}

/* The disk's speed from its reads, batch by batch. Before there are enough batches: all bytes by all the time with a
 * read under way. Not later, as a process that was stopped for a minute (SIGSTOP, a frozen cgroup) would count its disk
 * as slow for ever. */
struct swn_disk_model swn_plan_disk(struct swn_engine *e)
{
    struct swn_disk_model disk = {.bytes_per_ns = SWN_FIRST_BYTES_PER_NS, .read_ns = SWN_DISK_READ_NS};
    struct swn_fetch_stats s;
    if (!e->fetch)
        return disk;
    swn_fetch_stats_get(e->fetch, &s);
    if (s.bytes <= 8 * MIB + e->disk.row_bytes || s.busy_ns <= e->disk.row_ns)
        return disk;
    if (!swn_disk_speed_get(&e->disk.speed, &disk))
        disk.bytes_per_ns = (double)(s.bytes - e->disk.row_bytes) / (double)(s.busy_ns - e->disk.row_ns);
    return disk;
}

static void say_oversize(struct swn_engine *e, size_t bytes)
{
    char a[32], b[32];
    if (bytes > e->budget.limit / 2 && !e->said.oversize++)
        swn_say("one layer of %s alone exceeds what the budget of %s leaves for weights: it is read through a mapping, "
                "slower but with the same result",
                swn_format_mib(a, bytes), swn_format_mib(b, e->budget.limit));
}

/* Assigns each chunk to the weight in it that is read first, by the order of `ids`. */
static void assign_chunks(struct swn_engine *e, const uint32_t *ids, size_t n, size_t *count)
{
    for (size_t i = 0; i < n; i++) {
        struct swn_chunks all = swn_residency_chunks(&e->res, swn_weight_of(e, ids[i])->range);
        for (uint64_t c = all.first; c < all.end; c++)
            swn_pool_chunk(e->pool, c)->weight = 0;
    }
    for (size_t i = 0; i < n; i++) {
        struct swn_chunks all = swn_residency_chunks(&e->res, swn_weight_of(e, ids[i])->range);
        count[i] = 0;
        for (uint64_t c = all.first; c < all.end; c++) {
            struct swn_chunk *chunk = swn_pool_chunk(e->pool, c);
            if (chunk->weight)
                continue;
            chunk->weight = ids[i];
            count[i]++;
        }
    }
}

/* Tells every chunk of the weights whether it stays. */
static void apply(struct swn_engine *e, const struct swn_plan_weight *weights, const uint32_t *ids, size_t n,
                  uint64_t ring)
{
    size_t unit = swn_pool_unit(e->pool), *count = malloc(n * sizeof *count);
    if (count)
        assign_chunks(e, ids, n, count);
    free(count);
    for (size_t i = 0; i < n; i++) {
        struct swn_range *r = swn_weight_of(e, ids[i])->range;
        struct swn_chunks all = swn_residency_chunks(&e->res, r);
        uint64_t at = 0;
        for (uint64_t c = all.first; c < all.end; c++) {
            struct swn_chunk *chunk = swn_pool_chunk(e->pool, c);
            if (chunk->weight != ids[i])
                continue;
            chunk->plan_keep = (unsigned char)swn_plan_keeps(&weights[i], at, at + unit);
            at += unit;
        }
        e->features.tiling->slice_set(e, r, weights[i].sliced);
        e->weights.all[r->weight].oversize = weights[i].oversize;
        if (weights[i].oversize)
            say_oversize(e, (size_t)weights[i].bytes);
    }
    swn_shared_chunks_keep(e, weights, ids, n, ring);
    for (struct swn_frame *f = swn_pool_first(e->pool); f; f = f->next)
        swn_pool_set_pinned(e->pool, f, swn_pool_chunk(e->pool, f->chunk)->plan_keep);
}

/* Bytes of ranges that are no weights, and are to become resident again: the next plan leaves room for them. */
static size_t restored_bytes(struct swn_engine *e)
{
    size_t bytes = 0;
    for (struct swn_range *r = swn_arena_first(e->arena); r; r = r->next)
        bytes += swn_tensor_of(r)->recalled && atomic_load(&r->state) == SWN_FILE_BACKED
                     ? swn_round_up(r->len, SWN_PAGE)
                     : 0;
    return bytes;
}

/* A small weight that was sliced while the disk was slower is not worth slicing any more. */
static size_t unit_of(const struct swn_engine *e, const struct swn_range *r)
{
    int worth_it = e->plan.short_of_disk || swn_plan_worth_slicing(r->len, e->budget.target);
    return worth_it && swn_tensor_of(r)->slice_unit ? swn_round_up(swn_tensor_of(r)->slice_unit, swn_pool_unit(e->pool))
                                                    : 0;
}

/* The file that the weight is of: of a model; or NULL: its bytes are in memory. */
static const struct swn_extent_file *file_of(struct swn_engine *e, uint32_t id)
{
    struct swn_range *r = swn_weight_of(e, id)->range;
    return atomic_load(&r->state) == SWN_FILE_BACKED ? r->file : NULL;
}

/* The file that most bytes of these weights are of, if it is that of more than half of them. Models may have weights in
 * common, which are of the file of one of them. */
static const struct swn_extent_file *file_of_most(struct swn_engine *e, const struct swn_plan_candidate *d)
{
    const struct swn_extent_file *most = NULL;
    size_t lead = 0, all = 0, own = 0;
    for (size_t i = 0; i < d->n; i++) {
        const struct swn_extent_file *file = file_of(e, d->ids[i]);
        size_t bytes = swn_weight_of(e, d->ids[i])->range->len;
        if (!file)
            continue;
        all += bytes;
        if (file == most) {
            lead += bytes;
        } else if (lead >= bytes) {
            lead -= bytes;
        } else {
            most = file;
            lead = bytes - lead;
        }
    }
    for (size_t i = 0; i < d->n; i++)
        own += file_of(e, d->ids[i]) == most ? swn_weight_of(e, d->ids[i])->range->len : 0;
    return own > all / 2 ? most : NULL;
}

/* Of a program with many models a plan is for one. What it keeps of others would be missing to the model that is asked,
 * even where that fits. */
static void leave_one_model(struct swn_engine *e, struct swn_plan_candidate *d)
{
    size_t n = 0;
    if (!(e->config.stores & SWN_MANY_MODELS))
        return;
    d->file = file_of_most(e, d);
    for (size_t i = 0; i < d->n; i++) {
        const struct swn_extent_file *file = file_of(e, d->ids[i]);
        if (!file || file == d->file)
            d->ids[n++] = d->ids[i];
    }
    d->n = n;
}

/* Whether a plan for these weights is of use: of many models, for one that streams in every pass, as it does not fit.
 */
static int is_worth_it(const struct swn_engine *e, const struct swn_plan_candidate *d)
{
    uint64_t bytes = d->nonweight + d->straddle;
    for (size_t i = 0; i < d->n; i++)
        bytes += d->weights[i].bytes;
    return !(e->config.stores & SWN_MANY_MODELS) || (bytes > d->goal && d->file);
}

/* Nothing is kept, reserved or sliced for it any more: as before the first plan. */
static void end_plan(struct swn_engine *e)
{
    struct swn_plan_candidate *plan = &e->plan.in_force;
    for (size_t i = 0; i < plan->n; i++) {
        struct swn_weight *weight = swn_weight_of(e, plan->ids[i]);
        if (!weight)
            continue;
        struct swn_chunks all = swn_residency_chunks(&e->res, weight->range);
        for (uint64_t c = all.first; e->pool && c < all.end; c++)
            swn_pool_chunk(e->pool, c)->plan_keep = 0;
        e->features.tiling->slice_set(e, weight->range, 0);
        weight->oversize = 0;
    }
    for (struct swn_frame *f = e->pool ? swn_pool_first(e->pool) : NULL; f; f = f->next)
        swn_pool_set_pinned(e->pool, f, 0);
    swn_plan_candidate_free(plan);
    e->plan.planned = e->plan.short_of_disk = e->plan.replan.review_due = 0;
    e->plan.experts_room = 0;
    e->plan.dirty = 1;
    e->nonweight.planned = 0;
    if (e->pool)
        swn_ring_resize(e, swn_ring_first(e));
}

/* Whether the plan in force is for the model whose weight r is. */
static int is_of_plan(struct swn_engine *e, const struct swn_range *r)
{
    struct swn_chunks all = swn_residency_chunks(&e->res, r);
    if (atomic_load(&((struct swn_range *)(uintptr_t)r)->state) == SWN_FILE_BACKED && r->file == e->plan.in_force.file)
        return 1;
    for (uint64_t c = all.first; e->pool && c < all.end; c++)
        if (swn_pool_chunk(e->pool, c)->plan_keep)
            return 1;
    return 0;
}

void swn_plan_weight_leaves(struct swn_engine *e, const struct swn_range *r)
{
    if (e->config.stores & SWN_MANY_MODELS && e->plan.planned && swn_is_weight(r) && is_of_plan(e, r))
        end_plan(e);
}

/* Whether the first plan may be made as soon as t begins a second pass, which most programs go through like the first
 * one: all passes before it read all weights. */
static int may_be_early(const struct swn_engine *e, const struct swn_thread_state *t)
{
    return !e->plan.made && t->cursor.passes && !(e->config.stores & SWN_MANY_MODELS);
}

/* Whether all weights are of checkpoints, so that they are known to be weights when they are read first. Others count
 * as activations until then. */
static int are_loaded(struct swn_engine *e, const struct swn_plan_candidate *d)
{
    for (size_t i = 0; i < d->n; i++) {
        struct swn_range *r = swn_weight_of(e, d->ids[i])->range;
        if (atomic_load(&r->state) != SWN_FILE_BACKED || !r->file->immutable)
            return 0;
    }
    return 1;
}

/* Makes a candidate if t's order is known for a whole cycle. 0, or -EAGAIN. */
int swn_plan_candidate_make(struct swn_engine *e, struct swn_thread_state *t, struct swn_plan_candidate *out)
{
    size_t most = e->weights.live * 4 + 16, peak = swn_nonweight_peak(e);
    *out = (struct swn_plan_candidate){0};
    /* A longer cycle has not been right as a whole: of models in any order there may be none. */
    size_t right = t->cursor.run < most ? (size_t)t->cursor.run : most;
    size_t len = swn_access_order_cycle(e->weights.order, &t->cursor, NULL, right);
    int is_early = !len && may_be_early(e, t);
    if (is_early)
        len = swn_access_order_cycle(e->weights.order, &t->cursor, NULL, most);
    if (!len)
        return -EAGAIN;
    out->ids = malloc(most * sizeof *out->ids);
    out->weights = malloc(most * sizeof *out->weights);
    if (out->ids && out->weights)
        out->n = swn_plan_gather(e, out->ids, most);
    if (is_early && !are_loaded(e, out))
        out->n = 0;
    leave_one_model(e, out);
    out->disk = swn_plan_disk(e);
    size_t *count = malloc((out->n + 1) * sizeof *count);
    if (count)
        assign_chunks(e, out->ids, out->n, count);
    else
        out->n = 0;
    for (size_t i = 0; i < out->n; i++) {
        struct swn_weight *weight = swn_weight_of(e, out->ids[i]);
        out->weights[i] =
            (struct swn_plan_weight){.bytes = count[i] * swn_pool_unit(e->pool),
                                     .compute_ns = weight->compute_ns,
                                     .op_ns = weight->op_ns,
                                     .unit = unit_of(e, weight->range),
                                     .joined = weight->joined && i + 1 < out->n && weight->then == out->ids[i + 1],
                                     .saved = e->features.source->saved(e, weight->range, out->disk.bytes_per_ns)};
    }
    free(count);
    size_t regions = e->regions.warmup_passes ? 0 : swn_arena_region_bytes(e->arena);
    out->nonweight = peak + restored_bytes(e) + (regions ? REGION_MARGIN : 0);
    out->goal = e->budget.target;
    out->straddle = swn_pool_unit(e->pool);
    out->keep = !(e->config.without & SWN_WITHOUT_KEPT);
    out->region_extra = regions ? e->regions.extra : 0;
    out->region_gain_ns = (double)regions * REGION_GAIN_NS_PER_BYTE;
    if (out->n && !is_worth_it(e, out)) {
        if (e->plan.planned && out->file && out->file == e->plan.in_force.file)
            end_plan(e); /* its model fits by now */
        t->next_plan_try = t->cursor.run + len;
        out->n = 0;
    }
    if (!out->n)
        swn_plan_candidate_free(out);
    return out->n ? 0 : -EAGAIN;
}

void swn_plan_candidate_free(struct swn_plan_candidate *d)
{
    free(d->ids);
    free(d->weights);
    *d = (struct swn_plan_candidate){0};
}

static int make_plan(const struct swn_plan_candidate *d, size_t other, struct swn_plan_weight *weights,
                     struct swn_plan *out)
{
    other += d->straddle;
    uint64_t budget = d->goal > other ? d->goal - other : 0;
    return d->keep ? swn_plan_predict(weights, d->n, budget, &d->disk, out)
                   : swn_plan_stream_all(weights, d->n, budget, &d->disk, out);
}

/* A lower bound for all plans with that budget: a pass computes all weights, and reads those that do not fit. */
static double least_time(const struct swn_plan_candidate *d, size_t other)
{
    double read = other < d->goal ? -(double)(d->goal - other) : 0;
    for (size_t i = 0; i < d->n; i++)
        read += (double)d->weights[i].bytes * (1 - d->weights[i].saved);
    double reading = read / d->disk.bytes_per_ns;
    return reading > d->plan.compute_ns ? reading : d->plan.compute_ns;
}

/* A pure function of the candidate: no lock is needed. */
int swn_plan_candidate_solve(struct swn_plan_candidate *d)
{
    int err = make_plan(d, d->nonweight, d->weights, &d->plan);
    size_t other = d->nonweight > d->region_extra ? d->nonweight - d->region_extra : 0;
    /* Regions stay for gains that may be noise, and where no larger gain is possible the plan without regions is not
     * made. */
    d->drop_regions = 0;
    int look = !err && d->region_extra &&
               d->plan.latency_ns > (least_time(d, other) + d->region_gain_ns) * (1 + SWN_PLAN_NOISE);
    struct swn_plan_weight *weights = look ? malloc(d->n * sizeof *weights) : NULL;
    struct swn_plan without_regions;
    if (!weights)
        return err;
    memcpy(weights, d->weights, d->n * sizeof *weights);
    d->drop_regions = !make_plan(d, other, weights, &without_regions) &&
                      (without_regions.latency_ns + d->region_gain_ns) * (1 + SWN_PLAN_NOISE) < d->plan.latency_ns;
    if (d->drop_regions) {
        memcpy(d->weights, weights, d->n * sizeof *weights);
        d->plan = without_regions;
        d->nonweight = other;
    }
    free(weights);
    return 0;
}

static void say_plan(const struct swn_plan_candidate *d)
{
    char a[32], b[32], c[32], o[32];
    swn_say("plan: %zu weights, %s kept, %s streamed a pass, staging ring %s, nonweight %s; disk %.0f MB/s, %.2f ms a "
            "read and "
            "%.2f ms for its answer; %.1f ms a pass predicted, %.1f of them computing",
            d->n, swn_format_mib(a, d->plan.kept_bytes), swn_format_mib(b, d->plan.streamed_bytes),
            swn_format_mib(c, d->plan.ring_bytes), swn_format_mib(o, d->nonweight), d->disk.bytes_per_ns * 1e3,
            d->disk.read_ns / 1e6, d->disk.wait_ns / 1e6, d->plan.latency_ns / 1e6, d->plan.compute_ns / 1e6);
}

int swn_plan_is_short_of_disk(const struct swn_engine *e, const struct swn_plan_candidate *d)
{
    uint64_t budget = d->keep && d->goal > d->nonweight ? d->goal - d->nonweight : 0;
    return swn_plan_short_of_disk(d->plan.kept_bytes + d->plan.streamed_bytes, budget,
                                  d->plan.compute_ns * (e->plan.short_of_disk ? STILL_SHORT : 1), d->disk.bytes_per_ns);
}

/* The chunks of mixtures that the plan in force has kept, as it did not know what they are, are not kept any
 * more. Returns the bytes of all mixtures. */
static size_t let_experts_go(struct swn_engine *e)
{
    size_t bytes = 0;
    for (size_t i = 0; i < e->weights.count; i++) {
        struct swn_range *r = e->weights.all[i].range; /* NULL: a free entry */
        if (!r || !swn_is_mixture(r))
            continue;
        struct swn_chunks all = swn_residency_chunks(&e->res, r);
        for (uint64_t c = all.first; c < all.end; c++)
            swn_pool_chunk(e->pool, c)->plan_keep = 0;
        e->features.tiling->slice_set(e, r, 0);
        e->weights.all[i].oversize = 0;
        bytes += (all.end - all.first) * swn_pool_unit(e->pool);
    }
    return bytes;
}

/* What the plan leaves of the budget is for experts. */
static size_t room_for_experts(const struct swn_plan_candidate *d, size_t mixtures)
{
    uint64_t taken = d->nonweight + d->straddle + d->plan.ring_bytes + d->plan.kept_bytes;
    uint64_t left = d->goal > taken && d->keep ? d->goal - taken : 0;
    return left < mixtures ? (size_t)left : mixtures;
}

/* There was room for the longest possible order; the plan keeps only what it needs. */
static void give_back(struct swn_plan_candidate *d)
{
    uint32_t *ids = realloc(d->ids, d->n * sizeof *ids);
    struct swn_plan_weight *weights = realloc(d->weights, d->n * sizeof *weights);
    d->ids = ids ? ids : d->ids;
    d->weights = weights ? weights : d->weights;
}

int swn_plan_commit(struct swn_engine *e, struct swn_plan_candidate *d)
{
    if (!e->pool || atomic_load(&e->life.retired)) /* while the candidate was solved without the lock */
        return -EBUSY;
    for (size_t i = 0; i < d->n; i++)
        if (!swn_weight_of(e, d->ids[i]))
            return -EAGAIN;
    if (d->drop_regions)
        e->features.placement->refuse(e);
    e->plan.planned = 1;
    swn_ring_resize(e, d->plan.ring_bytes + d->straddle); /* first, as slices have to fit */
    size_t unit = swn_pool_unit(e->pool), mixtures = let_experts_go(e);
    e->plan.experts_room = room_for_experts(d, mixtures) / unit * unit;
    apply(e, d->weights, d->ids, d->n, d->plan.ring_bytes);
    e->plan.short_of_disk = swn_plan_is_short_of_disk(e, d);
    swn_ring_shrink(e);
    e->plan.dirty = 0;
    e->plan.made++;
    if (e->plan.in_force.goal != d->goal)
        e->plan.since_ns = swn_now_ns();
    e->nonweight.planned = d->nonweight;
    swn_replan_begin(e, d->disk.bytes_per_ns);
    if (e->config.verbose)
        say_plan(d);
    swn_plan_candidate_free(&e->plan.in_force);
    e->plan.in_force = *d;
    *d = (struct swn_plan_candidate){0};
    give_back(&e->plan.in_force);
    return 0;
}

/* Whether the plan would leave a weight to its mapping before a whole cycle of t's order has been right: the weight may
 * yet turn out to come in slices. */
static int is_rash(const struct swn_thread_state *t, const struct swn_plan_candidate *d)
{
    for (size_t i = 0; i < d->n && t->cursor.run < d->n; i++)
        if (d->weights[i].oversize)
            return 1;
    return 0;
}

/* Makes a new plan, if the thread's order is known for a whole cycle, or reviews the one in force. */
void swn_plan_if_due(struct swn_engine *e, struct swn_thread_state *t)
{
    struct swn_plan_candidate candidate;
    if ((!e->plan.dirty && !e->plan.replan.review_due) || !e->pool || t->cursor.run < t->next_plan_try)
        return;
    t->next_plan_try = t->cursor.run + 16;
    if (swn_plan_candidate_make(e, t, &candidate))
        return;
    int err = swn_plan_candidate_solve(&candidate);
    if (!err && !e->plan.made && is_rash(t, &candidate))
        t->next_plan_try += candidate.n;
    else if (!err && (e->plan.dirty || swn_replan_is_due(e, &candidate)) && !swn_plan_commit(e, &candidate))
        e->features.source->learned(e, e->plan.in_force.ids, e->plan.in_force.n, t->cursor.anchor);
    swn_plan_candidate_free(&candidate);
}

/* Activations, and the narrowest ring: a smaller budget would be exceeded at once. Unknown before there is a plan. */
size_t swn_plan_minimum(struct swn_engine *e)
{
    if (!e->plan.planned)
        return swn_budget_unasked(e->budget.target);
    size_t least = swn_nonweight_needed(e) + RING_LEAST;
    return least > SWN_BUDGET_LEAST_BYTES ? least : SWN_BUDGET_LEAST_BYTES;
}
