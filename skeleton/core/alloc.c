/* skeleton/core/alloc.c - allocates and frees tensors: address, memory, and the modules that are told. */
#include "blocks/memory/publish.h"
#include "skeleton/engine/engine_internal.h"
#include "skeleton/core/expected_read.h"
#include "skeleton/core/held_pages.h"
#include "skeleton/core/prefault.h"
#include "skeleton/engine/reclaim.h"
#include "skeleton/engine/subsystem.h"
#include "skeleton/core/write_behind.h"
#include "skeleton/core/eviction.h"
#include "skeleton/core/op_window.h"
#include "skeleton/core/prefetch.h"
#include "skeleton/core/plan.h"
#include "skeleton/engine/weights.h"
#include "skeleton/engine/accounting.h"
#include "skeleton/core/residency_steps.h"
#include "skeleton/core/restore.h"
#include "skeleton/engine/thread_state.h"
#include "skeleton/engine/section.h"

/* A tensor in the making: address, memory, pages, and the modules to be told. */
struct allocation {
    size_t n;
    int expected; /* a registered read will fill it next: no room is made for it now */
    int alone;    /* it alone exceeds the budget, and makes room for itself when it exists */
    int placed;   /* it has a planned address */
    struct swn_activation_slot slot;
    enum swn_term term;
    struct swn_thread_state *thread; /* the thread whose pass it belongs to, or NULL */
    size_t fresh;                    /* bytes of it that have no pages yet */
};

static int counts(const struct allocation *a)
{
    return !a->alone && !a->expected;
}

static void reserve_address(struct swn_engine *e, struct allocation *a)
{
    a->expected = swn_expected_read_matches(e, a->n);
    a->alone = a->n > e->budget.limit && e->config.enforce && !a->expected;
    if (counts(a)) /* may wait */
        swn_reclaim_make_way(e, swn_round_up(a->n, SWN_GRANULE));
    struct swn_thread_state *self = swn_window_self();
    a->thread = counts(a) ? self : NULL;
    if (e->features.record && e->features.observer->allocated(e) && a->thread)
        swn_window_lost(a->thread);
    a->placed = e->features.placement->find(e, a->thread, a->n, &a->slot);
    a->term = self && self->open ? SWN_SHORT_TERM : SWN_LONG_TERM;
}

static size_t fresh_bytes(const struct swn_engine *e, const struct allocation *a)
{
    return a->placed ? swn_region_fresh(a->slot.region, a->slot.at, a->n) : swn_arena_fresh(e->arena, a->n, a->term);
}

static size_t pinned_frames(const struct swn_engine *e)
{
    return e->pool ? swn_pool_pinned(e->pool) : 0;
}

/* 0, or -ENOMEM: the memory in use does not fit the budget. */
static int reserve_memory(struct swn_engine *e, const struct allocation *a)
{
    size_t need = counts(a) ? fresh_bytes(e, a) : 0;
    size_t pinned = pinned_frames(e), wanted = swn_nonweight_held(e);
    if (counts(a) && !a->placed) /* a planned place is counted already */
        wanted += swn_round_up(a->n, SWN_GRANULE);
    int over = swn_reclaim_must(e, need, NULL);         /* even if need is 0: small tensors may have grown meanwhile */
    if (!over && counts(a) && fresh_bytes(e, a) > need) /* the warm pages themselves had to leave */
        over = swn_reclaim_must(e, swn_round_up(a->n, SWN_GRANULE), NULL);
    if (e->plan.planned && pinned_frames(e) < pinned && !swn_announced_is_round(e))
        swn_reclaim_note_shortage(e, wanted);
    return over;
}

static struct swn_range *commit(struct swn_engine *e, struct allocation *a)
{
    struct swn_range *r = a->placed ? swn_region_alloc(e->arena, a->slot.region, a->slot.at, a->n, &a->fresh) : NULL;
    if (r) {
        e->regions.placed += r->size;
        e->regions.small_pages |= a->fresh != 0;
        return r;
    }
    r = swn_arena_alloc(e->arena, a->n, a->term, &a->fresh);
    if (r && a->fresh && counts(a))
        swn_residency_fresh(&e->res, r);
    return r;
}

static void count_live(struct swn_engine *e, size_t bytes)
{
    struct swn_counters *c = &e->counters;
    c->live_bytes += bytes;
    if (c->live_bytes > c->demand_peak)
        c->demand_peak = c->live_bytes;
    if (c->live_bytes > c->live_recent)
        c->live_recent = c->live_bytes;
    if (c->live_bytes + swn_small_bytes(e) > c->live_mark)
        c->live_mark = c->live_bytes + swn_small_bytes(e);
}

static void announce(struct swn_engine *e, struct allocation *a, struct swn_range *r)
{
    e->counters.filled += a->alone ? 0 : a->fresh;
    e->features.placement->on_alloc(a->thread, r);
    swn_tensor_of(r)->alloc_seq = swn_tensor_of(r)->last_use = e->ops.seq;
    swn_tensor_of(r)->untouched = a->fresh != 0;
    e->res.resident_bytes += r->size;
    count_live(e, swn_round_up(a->n, SWN_PAGE));
    if (a->expected)
        swn_expected_read_allocated(e, r, a->fresh);
    if (a->alone && swn_restore_share(e, r))
        swn_reclaim_must(e, 0, r);
    swn_engine_note_peak(e);
}

void *swn_engine_alloc(size_t n, int *strict)
{
    struct swn_engine *e = &swn_engine_one;
    *strict = 0;
    if (atomic_load(&e->life.retired))
        return NULL;
    struct allocation a = {.n = n};
    struct swn_range *r = NULL;
    swn_lock(&e->lock);
    e->counters.allocs++;
    swn_residency_tidy(&e->res);
    swn_expected_read_cancel(e, 0);
    reserve_address(e, &a);
    *strict = reserve_memory(e, &a) && e->config.strict;
    if (!*strict) {
        r = commit(e, &a);
        if (r)
            announce(e, &a, r);
    }
    swn_unlock(&e->lock);
    return r ? (void *)r->addr : NULL;
}

void swn_engine_count_untracked(size_t n)
{
    struct swn_engine *e = &swn_engine_one;
    swn_lock(&e->lock);
    if (!atomic_load(&e->life.retired))
        e->counters.untracked += n;
    swn_unlock(&e->lock);
}

/* Activations are short-lived, and their pages are worth keeping for the next one; a weight's pages are not. */
static int worth_keeping_warm(struct swn_engine *e, const struct swn_range *r)
{
    /* Until memory has had to leave, all warm pages fit; the plan leaves room for the peak of activations. */
    size_t most = e->budget.limit / (e->plan.pressed ? 4 : 1), other = swn_nonweight_bytes(e) - r->size;
    if (e->plan.planned && e->nonweight.planned > other && e->nonweight.planned - other > most)
        most = e->nonweight.planned - other;
    if (atomic_load(&((struct swn_range *)r)->state) != SWN_RESIDENT || r->weight >= 0 || atomic_load(&e->life.retired))
        return 0;
    if (swn_tensor_of(r)->held) /* the kernel may not have read the bytes out of the pages yet */
        return 0;
    /* The plan has room for a region. If small tensors exceed the budget, the next allocation takes the memory that it
     * needs; the region need not leave as a whole. */
    if (r->planned_place)
        return 1;
    if (swn_tensor_of(r)->aged_reads || swn_engine_resident(e) + r->span > e->budget.limit + r->size)
        return 0;
    /* Memory that was freed just now is more likely to be needed again than the rest of an earlier pass. */
    size_t warm = swn_arena_warm_bytes(e->arena);
    struct swn_piece piece;
    while (warm + r->span > most && warm < most && swn_arena_trim(e->arena, warm + r->span - most, &piece)) {
        swn_residency_drop(&e->res, piece.addr, piece.bytes);
        e->counters.dropped += piece.bytes;
        warm -= piece.bytes;
    }
    return warm + r->span <= most;
}

void swn_engine_drop(struct swn_engine *e, struct swn_range *r)
{
    swn_write_behind_cancel(e, r);
    struct swn_chunks chunks = swn_residency_chunks(&e->res, r);
    e->counters.live_bytes -= swn_round_up(r->len, SWN_PAGE);
    int warm = worth_keeping_warm(e, r);
    e->counters.dropped += !warm && atomic_load(&r->state) == SWN_RESIDENT ? r->size : 0;
    swn_residency_free(&e->res, r, warm);
    swn_frames_drop_dead(e, &chunks);
}

int swn_engine_free(void *p)
{
    struct swn_engine *e = &swn_engine_one;
    if (!swn_engine_owns((uintptr_t)p))
        return 0;
    swn_lock(&e->lock);
    struct swn_range *r = swn_arena_find(e->arena, (uintptr_t)p);
    if (r && r->addr == (uintptr_t)p) {
        if (r->pins && e->prefault) /* its operator gave the storage other memory */
            swn_prefault_end(e->prefault, r->addr);
        swn_expected_read_freed(e, r);
        e->features.placement->on_free(r);
        swn_plan_weight_leaves(e, r);
        swn_weight_remove(e, r);
        if (!swn_held_keeps(r))
            swn_engine_drop(e, r);
    }
    swn_unlock(&e->lock);
    return 1;
}

static void pin(const void *p, size_t n, int by)
{
    struct swn_engine *e = &swn_engine_one;
    uintptr_t at = (uintptr_t)p,
              end = n < UINTPTR_MAX - at ? at + n : UINTPTR_MAX; /* n may be far more than a file has */
    swn_lock(&e->lock);
    for (struct swn_range *r; (r = swn_arena_in(e->arena, at, end)); at = r->addr + r->span) {
        if (by < 0 && r->receiving == 0)
            continue; /* another thread's operator has made the range since */
        swn_write_behind_cancel(e, r);
        r->pins += by;
        r->receiving += by;
    }
    swn_unlock(&e->lock);
}

void swn_engine_pin(const void *p, size_t n)
{
    pin(p, n, 1);
}

void swn_engine_unpin(const void *p, size_t n)
{
    pin(p, n, -1);
}
