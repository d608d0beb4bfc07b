/* skeleton/core/alloc.c - tensors come and go: address, memory, and who has to know of it. */
#include "skeleton/core/engine_internal.h"
#include "skeleton/core/expected_read.h"
#include "skeleton/core/held_pages.h"
#include "skeleton/core/prefault.h"
#include "skeleton/core/reclaim.h"
#include "skeleton/core/subsystem.h"
#include "skeleton/core/write_behind.h"
#include "skeleton/core/eviction.h"
#include "skeleton/core/op_window.h"
#include "skeleton/core/prefetch.h"
#include "skeleton/core/plan.h"
#include "skeleton/core/weights.h"
#include "skeleton/core/accounting.h"
#include "skeleton/core/residency_steps.h"
#include "skeleton/core/restore.h"
#include "skeleton/core/thread_state.h"

/* Of a tensor of n bytes at its planned place, or wherever there is one. */
static size_t fresh_bytes(const struct swn_engine *e, const struct swn_place *place, size_t n, enum swn_term term)
{
    return place ? swn_plot_fresh(place->plot, place->at, n) : swn_arena_fresh(e->arena, n, term);
}

static size_t kept_frames(const struct swn_engine *e)
{
    return e->pool ? swn_pool_kept(e->pool) : 0;
}

void *swn_engine_alloc(size_t n, int *strict)
{
    struct swn_engine *e = &swn_engine_one;
    *strict = 0;
    if (atomic_load(&e->retired))
        return NULL;
    pthread_mutex_lock(&e->lock);
    e->allocs++;
    swn_residency_tidy(&e->res);
    swn_expected_read_cancel(e, 0);
    int expected = swn_expected_read_matches(e, n);
    int alone = n > e->config.budget_bytes && e->config.enforce && !expected; /* makes room for itself, below */
    if (!alone && !expected)
        swn_reclaim_make_way(e, swn_round_up(n, SWN_GRANULE));
    struct swn_thread_state *t = alone || expected ? NULL : swn_window_self();
    if (e->record && e->observer->allocated(e) && t)
        swn_window_lost(t);
    struct swn_place place;
    int placed = e->placement->find(e, t, n, &place);
    const struct swn_thread_state *self = swn_window_self();
    enum swn_term term = self && self->open ? SWN_SHORT_TERM : SWN_LONG_TERM;
    int counts = !alone && !expected;
    size_t need = counts ? fresh_bytes(e, placed ? &place : NULL, n, term) : 0;
    size_t kept = kept_frames(e), wanted = swn_policy_other_held(e);
    if (counts && !placed) /* a place is held already */
        wanted += swn_round_up(n, SWN_GRANULE);
    int over = swn_policy_make_room(e, need, NULL); /* also with need 0: small tensors may have grown meanwhile */
    if (!over && counts &&
        fresh_bytes(e, placed ? &place : NULL, n, term) > need) /* the warm pages were what had to go */
        over = swn_policy_make_room(e, swn_round_up(n, SWN_GRANULE), NULL);
    if (e->planned && kept_frames(e) < kept)
        swn_policy_note_shortage(e, wanted);
    if (over && e->config.strict) {
        *strict = 1;
        pthread_mutex_unlock(&e->lock);
        return NULL;
    }
    size_t fresh;
    struct swn_range *r = placed ? swn_plot_alloc(e->arena, place.plot, place.at, n, &fresh) : NULL;
    if (r) {
        e->placed += r->size;
        e->plots_rough |= fresh != 0;
    } else {
        r = swn_arena_alloc(e->arena, n, term, &fresh);
        if (r && fresh && !alone && !expected)
            swn_residency_fresh(&e->res, r);
    }
    if (r) {
        e->filled += alone ? 0 : fresh;
        e->placement->born(t, r);
        r->alloc_seq = r->last_use = e->seq;
        r->untouched = fresh != 0;
        e->res.home_bytes += r->size;
        e->live_bytes += swn_round_up(n, SWN_PAGE);
        if (e->live_bytes > e->demand_peak)
            e->demand_peak = e->live_bytes;
        if (e->live_bytes > e->live_recent)
            e->live_recent = e->live_bytes;
        if (expected)
            swn_expected_read_allocated(e, r, fresh);
        if (alone && swn_policy_share(e, r))
            swn_policy_make_room(e, 0, r);
        swn_engine_note_peak(e);
    } else {
        e->untracked += n;
    }
    void *p = r ? (void *)r->addr : NULL;
    pthread_mutex_unlock(&e->lock);
    return p;
}

/* Activations die young and their pages are worth keeping for the next one; a weight's are not. */
static int worth_keeping_warm(struct swn_engine *e, const struct swn_range *r)
{
    /* Until something has had to leave, all that fits; the plan leaves room for the most that activations ever took. */
    size_t most = e->config.budget_bytes / (e->pressed ? 4 : 1), other = swn_policy_other(e) - r->size;
    if (e->planned && e->planned_other > other && e->planned_other - other > most)
        most = e->planned_other - other;
    if (atomic_load(&((struct swn_range *)r)->state) != SWN_HOME || r->node >= 0 || atomic_load(&e->retired))
        return 0;
    if (r->held) /* the kernel may not have taken the bytes out of them yet */
        return 0;
    /* Room for a plot is planned for. What small tensors exceed the budget by is no reason to let all of this go: the
     * next allocation takes what it has to. */
    if (r->plotted)
        return 1;
    if (r->aged_reads || swn_engine_resident(e) + r->span > e->config.budget_bytes + r->size)
        return 0;
    /* What has gone just now is more likely to be made again than what is left over since some earlier pass. */
    size_t warm = swn_arena_warm_bytes(e->arena);
    struct swn_piece piece;
    while (warm + r->span > most && warm < most && swn_arena_trim(e->arena, warm + r->span - most, &piece)) {
        swn_residency_drop(&e->res, piece.addr, piece.bytes);
        e->dropped += piece.bytes;
        warm -= piece.bytes;
    }
    return warm + r->span <= most;
}

void swn_engine_drop(struct swn_engine *e, struct swn_range *r)
{
    swn_behind_recall(e, r);
    struct swn_chunks chunks = swn_residency_chunks(&e->res, r);
    e->live_bytes -= swn_round_up(r->len, SWN_PAGE);
    int warm = worth_keeping_warm(e, r);
    e->dropped += !warm && atomic_load(&r->state) == SWN_HOME ? r->size : 0;
    swn_residency_free(&e->res, r, warm);
    swn_swapin_reap(e, &chunks);
}

int swn_engine_free(void *p)
{
    struct swn_engine *e = &swn_engine_one;
    if (!swn_engine_owns((uintptr_t)p))
        return 0;
    pthread_mutex_lock(&e->lock);
    struct swn_range *r = swn_arena_find(e->arena, (uintptr_t)p);
    if (r && r->addr == (uintptr_t)p) {
        if (r->pins && e->populate) /* its operator gave the storage other memory */
            swn_populate_end(e->populate, r->addr);
        swn_expected_read_freed(e, r);
        e->placement->died(r);
        swn_node_remove(e, r);
        if (!swn_held_keeps(r))
            swn_engine_drop(e, r);
    }
    pthread_mutex_unlock(&e->lock);
    return 1;
}

static void pin(const void *p, size_t n, int by)
{
    struct swn_engine *e = &swn_engine_one;
    uintptr_t at = (uintptr_t)p, end = at + n;
    pthread_mutex_lock(&e->lock);
    while (at < end) {
        struct swn_range *r = swn_arena_find(e->arena, at);
        if (r) {
            swn_behind_recall(e, r);
            r->pins += by;
        }
        at = r ? r->addr + r->span : (at / SWN_GRANULE + 1) * SWN_GRANULE;
    }
    pthread_mutex_unlock(&e->lock);
}

void swn_engine_pin(const void *p, size_t n)
{
    pin(p, n, 1);
}

void swn_engine_unpin(const void *p, size_t n)
{
    pin(p, n, -1);
}
