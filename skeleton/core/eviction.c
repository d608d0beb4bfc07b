/* Room within the budget: which memory leaves for it, in which order, and how wide the staging ring is. The plan
 * decides which weights stay (skeleton/core/plan.c). */
#define _GNU_SOURCE
#include <errno.h>

#include "blocks/memory/publish.h"
#include "skeleton/core/write_behind.h"
#include "skeleton/engine/engine_internal.h"
#include "skeleton/engine/experts.h"
#include "skeleton/engine/reclaim.h"
#include "base/size.h"
#include "skeleton/core/eviction.h"
#include "skeleton/core/prefetch.h"
#include "skeleton/core/plan.h"
#include "skeleton/engine/accounting.h"
#include "skeleton/core/residency_steps.h"
#include "skeleton/core/ring_size.h"

#define MIB ((size_t)1 << 20)
/* Room that is made ahead of need: enough for the largest weights of most models. */
#define BEHIND_PART 4
#define BEHIND_MOST (32 * MIB)
/* Memory that leaves only some time after the request is requested when this part of the budget is left. */
#define SOON_PART 16
/* Operators after which a model that has not computed may be idle. */
#define IDLE_OPS 256

static int may_leave(const struct swn_range *r)
{
    return atomic_load(&r->state) == SWN_RESIDENT && !r->pins;
}

/* Whether an operator is reading the range, or has just made it. */
static int at_work(const struct swn_engine *e, const struct swn_range *r)
{
    return swn_tensor_of(r)->readers ||
           (swn_tensor_of(r)->alloc_seq == e->ops.seq && atomic_load(&e->life.hook_state) == 2);
}

/* Whether the plan keeps all of r. */
static int stays(struct swn_engine *e, const struct swn_range *r)
{
    struct swn_chunks all = swn_residency_chunks(&e->res, r);
    for (uint64_t c = all.first; c < all.end; c++)
        if (!e->pool || !swn_pool_chunk(e->pool, c)->plan_keep)
            return 0;
    return 1;
}

/* The range whose leaving costs least: first ranges that the plan streams, then the least recently used, last kept
 * weights and ranges that are being read. */
static struct swn_range *victim(struct swn_engine *e, const struct swn_range *spare, int force)
{
    struct swn_range *best = NULL;
    int best_class = 0;
    for (struct swn_range *r = swn_arena_first(e->arena); r; r = r->next) {
        if (!may_leave(r) || r == spare)
            continue;
        int class = swn_tensor_of(r)->readers             ? 3
                    : at_work(e, r)                       ? 4
                    : swn_is_weight(r) && e->plan.planned ? (stays(e, r) ? 2 : 0)
                                                          : 1;
        if (class >= 3 && !force)
            continue;
        if (!best || class < best_class ||
            (class == best_class && swn_tensor_of(r)->last_use < swn_tensor_of(best)->last_use)) {
            best = r;
            best_class = class;
        }
    }
    return best;
}

int swn_reclaim_is_idle(const struct swn_engine *e, const struct swn_frame *f)
{
    const struct swn_frame_use *use = swn_frame_use(f);
    if (swn_announced_is_round(e))
        return 1;
    /* Of many models each has a file of its own, and only one is at work. */
    if (e->config.stores & SWN_MANY_MODELS && !use->next && f->n && f->parts[0].file != e->ops.announced.file)
        return 1;
    return !use->next && use->last_op + IDLE_OPS < e->ops.seq &&
           e->weights.accesses > use->last_access + 2 * e->weights.live;
}

/* Of f and the frame `last`, or NULL, the one that the announced order needs later. */
static struct swn_frame *needed_later(struct swn_frame *f, struct swn_frame *last)
{
    return !last || swn_frame_use(f)->next > swn_frame_use(last)->next ? f : last;
}

/* When a frame that the plan keeps is needed next: all that are not in the announced order, behind its end. */
static uint32_t kept_next(const struct swn_frame *f)
{
    return swn_frame_use(f)->next ? swn_frame_use(f)->next : UINT32_MAX;
}

static int is_needed_behind(const struct swn_frame *kept, const struct swn_frame *announced)
{
    return kept_next(kept) > swn_frame_use(announced)->next;
}

struct swn_frame *swn_reclaim_later_kept(struct swn_frame *f, struct swn_frame *kept)
{
    return !kept || kept_next(f) >= kept_next(kept) ? f : kept;
}

int swn_reclaim_kept_instead(const struct swn_frame *kept, const struct swn_frame *announced)
{
    return kept && announced && swn_frame_use(announced)->is_repeated && is_needed_behind(kept, announced);
}

/* The frame that leaves, without a write, before any range does: one that nothing wants, or else the one that the
 * announced order needs last and that has not been read ahead for it. Where that order reads weights several times,
 * as for requests in lockstep, or there is no plan that leaves room for activations, the frame that is needed last
 * leaves, be it kept or read ahead: ranges would have to be written, and are activations that are needed soon. With
 * `used`, also one that every pass uses: of those the most recently used, which is needed last; or one that was read
 * ahead. */
static struct swn_frame *frame_victim(struct swn_engine *e, int used)
{
    struct swn_frame *last = NULL, *again = NULL, *announced = NULL, *kept = NULL, *rarest = NULL;
    for (struct swn_frame *f = e->pool ? swn_pool_first(e->pool) : NULL; f; f = f->next) {
        int is_wanted = f->pinned_by_plan || swn_frame_is_wanted(f);
        if (!swn_frame_may_go(e, f))
            continue;
        if (f->pinned_by_plan)
            kept = swn_reclaim_later_kept(f, kept);
        if (swn_frame_use(f)->next) {
            announced = needed_later(f, announced);
            again = is_wanted ? again : needed_later(f, again);
            continue;
        }
        if (!is_wanted && swn_frame_has_experts(f))
            rarest = swn_frame_rarer(e, f, rarest);
        else if (!is_wanted || swn_reclaim_is_idle(e, f))
            return f;
        else
            last = f;
    }
    if (rarest)
        return rarest;
    if ((e->ops.announced.repeated || swn_announced_is_all(e)) && (kept || announced))
        return !announced || (kept && is_needed_behind(kept, announced)) ? kept : announced;
    return again ? again : !used ? NULL : last ? last : announced;
}

/* Drops warm pages until `bytes` more fit; those that a plan uses last, or not at all. */
static void trim_warm(struct swn_engine *e, size_t bytes, int regions)
{
    struct swn_piece piece;
    for (;;) {
        size_t need = swn_engine_resident(e) + bytes, over = need - e->budget.limit;
        if (need <= e->budget.limit ||
            (!swn_arena_trim(e->arena, over, &piece) && (!regions || !swn_arena_trim_regions(e->arena, over, &piece))))
            return;
        swn_residency_drop(&e->res, piece.addr, piece.bytes);
        e->counters.dropped += piece.bytes;
    }
}

/* Whether `bytes` more fit once unused pages have left. Nothing else leaves for them, and room that activations will
 * need again is not taken. */
int swn_reclaim_free_fits(struct swn_engine *e, size_t bytes)
{
    bytes += swn_arena_region_cold(e->arena);
    trim_warm(e, bytes, 0);
    return swn_engine_resident(e) + bytes <= e->budget.limit;
}

static size_t note_over_budget(struct swn_engine *e, size_t bytes, uint64_t limit)
{
    size_t over = swn_engine_resident(e) + bytes - limit;
    if (over > e->counters.over_budget_peak)
        e->counters.over_budget_peak = over;
    return over;
}

static void say_over_budget(struct swn_engine *e, size_t bytes, uint64_t limit)
{
    size_t over = note_over_budget(e, bytes, limit);
    char a[32], b[32];
    if (e->said.over++)
        return;
    if (bytes > limit) { /* no plan will help: printed here, and not again when the weight is read */
        e->said.oversize++;
        swn_say("one tensor of %s alone exceeds the budget of %s; going over it while it is written; as a weight it is "
                "read through a mapping, slower but with the same result (SWAPNET_STRICT=1 makes this an error)",
                swn_format_mib(a, bytes), swn_format_mib(b, limit));
        return;
    }
    /* Everything that could leave has left: with so much these tensors would have fitted. */
    swn_say("the tensors in use at once need %s more than the budget of %s; going over it: SWAPNET_BUDGET=%lluM is the "
            "least that these fit into (SWAPNET_STRICT=1 makes this an error)",
            swn_format_mib(a, over), swn_format_mib(b, limit), (unsigned long long)((limit + over + MIB - 1) / MIB));
}

/* Gives the memory of free frames to the system. 0: there were none. */
static int trim_frames(struct swn_engine *e, size_t bytes)
{
    return e->pool && swn_pool_trim(e->pool, (bytes + swn_pool_unit(e->pool) - 1) / swn_pool_unit(e->pool));
}

static void evict_frame(struct swn_engine *e, struct swn_frame *f)
{
    int returns = e->config.stores & SWN_MANY_MODELS && swn_reclaim_is_idle(e, f); /* when its model is asked again */
    e->plan.dirty |= f->pinned_by_plan && !returns; /* the plan expected that there was room for it */
    swn_frame_evict(e, f);
    trim_frames(e, 1);
}

/* Cancels reads ahead that have not begun. */
static int cancel_ahead(struct swn_engine *e)
{
    return e->pool && e->fetch && swn_frame_cancel_one(e) && trim_frames(e, 1);
}

/* Evicts a frame that an operator reads; the operator continues through the mapping of the file. */
static int evict_read_one(struct swn_engine *e)
{
    struct swn_frame *f = e->pool ? swn_pool_first(e->pool) : NULL;
    while (f && f->pending)
        f = f->next;
    if (f)
        evict_frame(e, f);
    return f != NULL;
}

/* Whether frames were used, but none since r was: they are of a model that is idle, though the plan may still keep
 * them.
 */
static int frames_are_older(struct swn_engine *e, const struct swn_range *r)
{
    uint64_t last = 0;
    for (const struct swn_frame *f = e->pool ? swn_pool_first(e->pool) : NULL; f; f = f->next)
        last = swn_frame_use(f)->last_op > last ? swn_frame_use(f)->last_op : last;
    return last && last < swn_tensor_of(r)->last_use;
}

/* Evicts one range or frame: first those whose bytes are in a file already, then those that have to be written. 0, or
 * -ENOMEM when nothing can leave. */
static int evict_one(struct swn_engine *e, const struct swn_range *spare, int may_spill, int force, int *busy)
{
    struct swn_frame *f = frame_victim(e, 0);
    struct swn_range *r = !f && may_spill ? victim(e, spare, force) : NULL;
    if (!f && (!r || (swn_is_weight(r) && e->plan.planned && stays(e, r)) || frames_are_older(e, r)))
        f = frame_victim(e, 1);
    if (f) {
        evict_frame(e, f);
        return 0;
    }
    if (!r)
        return -ENOMEM;
    int err = swn_spill_range(e, r);
    /* Larger than a file may be: others are not. */
    for (int others = 0; err == -EFBIG && others < 8; others++) {
        swn_tensor_of(r)->last_use = e->ops.seq + 1;
        r = victim(e, spare, force);
        err = r ? swn_spill_range(e, r) : -ENOMEM;
    }
    if (err == -EBUSY && ++*busy < 8) {
        swn_tensor_of(r)->last_use = e->ops.seq + 1; /* a store came in: the range is in use, look for another */
        return 0;
    }
    return err ? -ENOMEM : 0;
}

/* The frame of the ring that leaves it first, or NULL: the one that was used longest ago, then the expert
 * that is used least often, or the one that the announced order needs last. */
static struct swn_frame *ring_victim(struct swn_engine *e)
{
    struct swn_frame *last = NULL, *rarest = NULL;
    for (struct swn_frame *f = e->pool ? swn_pool_ring_first(e->pool) : NULL; f; f = f->ring_next) {
        if (!swn_frame_may_go(e, f))
            continue;
        if (!swn_frame_use(f)->next && swn_frame_has_experts(f))
            rarest = swn_frame_rarer(e, f, rarest);
        else if (!swn_frame_use(f)->next)
            return f;
        else
            last = needed_later(f, last);
    }
    return rarest ? rarest : last;
}

void swn_ring_shrink(struct swn_engine *e)
{
    struct swn_frame *f;
    while (e->pool && swn_ring_bytes(e) > swn_ring_goal(e) && !swn_pool_free_bytes(e->pool) &&
           !swn_ring_may_exceed(e, 0) && (f = ring_victim(e)))
        swn_frame_evict(e, f); /* and neighbours, if a range was written to that has to become resident */
    if (swn_ring_bytes(e) > swn_ring_goal(e) && !swn_ring_may_exceed(e, 0))
        trim_frames(e, swn_ring_bytes(e) - swn_ring_goal(e));
}

/* 0: the ring is as narrow as before room was lent to it. */
static int take_back_room(struct swn_engine *e)
{
    size_t own = e->plan.lent_from, before = swn_ring_bytes(e);
    if (e->plan.planned || !own || own >= before)
        return 0;
    e->plan.lent_from = 0;
    swn_ring_resize(e, own);
    swn_ring_shrink(e);
    return swn_ring_bytes(e) < before;
}

/* As far as is known before there is a pool. */
static int may_spill(const struct swn_engine *e)
{
    return e->torch && atomic_load(&e->life.hook_state) != 3 && e->res.pagemap_fd >= 0 &&
           e->counters.allocs >= e->writes.spill_retry;
}

static int can_spill(struct swn_engine *e)
{
    return may_spill(e) && swn_open_pool(e) == 0;
}

/* One step of a shrinking budget. 0: something left, -ENOMEM: nothing can leave now, -EBUSY: a store has recalled what
 * was to leave. */
int swn_shrink_step(struct swn_engine *e, int force, int may_write)
{
    struct swn_piece piece;
    size_t before = swn_engine_resident(e);
    if (before > e->budget.target && swn_reclaim_ask(e, before - e->budget.target))
        return -ENOMEM; /* later, but without a write, and before memory that operators use */
    if (swn_arena_trim(e->arena, SIZE_MAX, &piece) || swn_arena_trim_regions(e->arena, SIZE_MAX, &piece)) {
        swn_residency_drop(&e->res, piece.addr, piece.bytes);
        e->counters.dropped += piece.bytes;
        return 0;
    }
    swn_reclaim_trim(e);
    take_back_room(e); /* before anything has to be written */
    if (!e->plan.planned && swn_ring_bytes(e) > e->budget.target / 3 && swn_ring_bytes(e) > swn_ring_first(e))
        swn_ring_resize(e, swn_ring_first(e));
    trim_frames(e, before - (before < e->budget.target ? before : e->budget.target));
    swn_ring_shrink(e);
    if (swn_engine_resident(e) < before || swn_write_behind_wait(e))
        return 0;
    if (!may_write && !force && !frame_victim(e, 0))
        return -ENOMEM;
    int busy = 0, err = evict_one(e, NULL, may_write && can_spill(e), force, &busy);
    return busy ? -EBUSY : err;
}

/* While a model is built and loaded, and the budget has been full before, makes room ahead of need, so that the disk
 * writes while the program computes. Once weights are read, resident ranges should rather stay. */
static void write_behind(struct swn_engine *e, size_t bytes, const struct swn_range *spare)
{
    size_t ahead = e->budget.limit / BEHIND_PART < BEHIND_MOST ? e->budget.limit / BEHIND_PART : BEHIND_MOST;
    if (!e->plan.pressed || e->weights.accesses || e->plan.planned || !can_spill(e))
        return;
    while (swn_engine_resident(e) - swn_write_behind_bytes(e) + bytes + ahead > e->budget.limit) {
        struct swn_range *r = victim(e, spare, 0);
        if (!r || swn_write_behind_start(e, r))
            return;
    }
}

/* force: if need be, memory that operators are using leaves as well; 2: even frames of weights. 0 or -ENOMEM. */
static int reclaim(struct swn_engine *e, size_t bytes, const struct swn_range *spare, int force)
{
    swn_write_behind_complete(e);
    if (!e->config.enforce)
        return 0;
    if (swn_engine_resident(e) + bytes > e->budget.limit)
        trim_warm(e, bytes, 1);
    size_t soon = swn_engine_resident(e) + bytes + e->budget.target / SOON_PART;
    if (soon > e->budget.limit)
        swn_reclaim_ask(e, soon - e->budget.limit);
    int spills = swn_engine_resident(e) + bytes > e->budget.limit && can_spill(e);
    e->plan.pressed |= spills;
    write_behind(e, bytes, spare);
    int busy = 0;
    while (
        swn_engine_resident(e) + bytes > e->budget.limit &&
        (trim_frames(e, swn_engine_resident(e) + bytes - e->budget.limit) || take_back_room(e) || swn_reclaim_trim(e)))
        trim_warm(e, bytes, 1);
    for (int last = 0; last <= force; last++)
        while (swn_engine_resident(e) + bytes > e->budget.limit)
            if (!swn_write_behind_wait(e) && evict_one(e, spare, spills, last > 0, &busy) && !cancel_ahead(e) &&
                (last < 2 || !evict_read_one(e)))
                break;
    return swn_engine_resident(e) + bytes <= e->budget.limit ? 0 : -ENOMEM;
}

/* Makes `bytes` more fit the budget. 0, or -ENOMEM when the memory in use does not fit; `spare` must not leave. */
int swn_reclaim_try(struct swn_engine *e, size_t bytes, const struct swn_range *spare)
{
    return reclaim(e, bytes, spare, 1);
}

/* The memory that can leave while operators continue; an estimate on the low side. */
struct idle {
    size_t unused;           /* memory that holds nothing, or that becomes another frame */
    size_t resident, copied; /* ranges that have to be written; weights whose bytes are in a file */
    size_t first;            /* subtracted for the ring that would have to be made, and counts */
};

static struct idle idle_of(struct swn_engine *e)
{
    int spills = may_spill(e);
    struct idle idle = {.unused = swn_arena_warm_bytes(e->arena) + swn_write_behind_bytes(e)};
    for (const struct swn_range *r = swn_arena_first(e->arena); r; r = r->next)
        if (may_leave(r))
            idle.resident += spills && !at_work(e, r) ? r->size : 0;
    if (e->pool)
        idle.unused += swn_pool_free_bytes(e->pool);
    for (const struct swn_frame *f = e->pool ? swn_pool_first(e->pool) : NULL; f; f = f->next)
        *(f->pinned_by_plan ? &idle.copied : &idle.unused) += swn_frame_may_go(e, f) ? swn_pool_unit(e->pool) : 0;
    idle.first = spills && !e->pool ? swn_ring_first(e) : 0;
    return idle;
}

static size_t idle_bytes(struct swn_engine *e)
{
    struct idle idle = idle_of(e);
    size_t bytes = idle.unused + idle.resident + idle.copied;
    return bytes > idle.first ? bytes - idle.first : 0;
}

/* The same for optional memory: nothing leaves where that would not suffice, and memory in use stays. */
int swn_reclaim_if_idle(struct swn_engine *e, size_t bytes)
{
    if (e->config.enforce && swn_engine_resident(e) + bytes > e->budget.limit) {
        size_t idle = idle_bytes(e);
        if (swn_engine_resident(e) + bytes > e->budget.limit + idle)
            return -ENOMEM;
    }
    return reclaim(e, bytes, NULL, 0);
}

/* A shrinking budget: nothing relies on the target yet. */
static uint64_t limit_now(const struct swn_engine *e)
{
    return e->budget.target < e->budget.limit ? e->budget.limit_at_change : e->budget.limit;
}

void swn_reclaim_note_written(struct swn_engine *e, size_t bytes)
{
    uint64_t limit = limit_now(e);
    char a[32], b[32], c[32];
    if (bytes <= limit) /* others would have left for it */
        return;
    size_t over = note_over_budget(e, bytes, limit);
    if (!e->said.written++)
        swn_say("code beside PyTorch's operators (torch.compile's kernels, numpy, torch.load of old files) has written "
                "%s of tensors that had left "
                "memory: %s more than the budget of %s has room for, which leave again now",
                swn_format_mib(c, bytes), swn_format_mib(a, over), swn_format_mib(b, limit));
}

/* Makes room for memory that will be used in any case. */
int swn_reclaim_must(struct swn_engine *e, size_t bytes, const struct swn_range *spare)
{
    int err = reclaim(e, bytes, spare, 2);
    if (!err || swn_engine_resident(e) + bytes <= limit_now(e))
        return 0;
    say_over_budget(e, bytes, limit_now(e));
    return err;
}

/* Makes the next plan leave room for `other`, or all room beside the ring. The observed peak is limited by the room
 * there was, as idle activations are written out: without this each plan would keep weights that leave in its first
 * pass. */
void swn_reclaim_note_shortage(struct swn_engine *e, size_t other)
{
    size_t ring = swn_ring_bytes(e);
    ring -= ring < e->plan.experts_room ? ring : e->plan.experts_room; /* which the next plan may give away */
    size_t most = e->budget.target > ring ? e->budget.target - ring : 0;
    other = other < most ? other : most;
    if (other > e->nonweight.peak)
        e->nonweight.peak = other;
}

/* Before there is a plan, lends unused room to the ring, so that the next weights are read while one computes. The room
 * is taken back before anything has to leave for it. */
void swn_ring_lend(struct swn_engine *e, size_t bytes)
{
    size_t most = e->budget.limit / 3, now = swn_ring_bytes(e);
    bytes = bytes < most ? bytes : most;
    now = now > e->plan.ring_goal ? now : e->plan.ring_goal;
    if (e->plan.planned || !e->pool || bytes <= now || swn_engine_resident(e) + bytes - now > e->budget.limit)
        return;
    size_t own = e->plan.lent_from ? e->plan.lent_from : now;
    swn_ring_resize(e, bytes);
    e->plan.lent_from = own;
}
