/* Lodging: slices that are read ahead into the pages which activations left warm, until these are needed again. Most
 * of the time a pass has far fewer activations than at its peak, for which the plan leaves room; the window is no
 * wider for it, and no page is given up or zeroed.
 *
 * Only for slices: their address is seen by our own kernel and nobody else. A frame elsewhere has to be in the pool, so
 * that a stray store traps and another thread's copy of the pointer stays right (HOLES rules 1 and 2). */
#define _GNU_SOURCE
#include <sys/mman.h>

#include "swn_engine_priv.h"
#include "swn_thread.h"

/* A node's need is what it took of late: a rare peak is forgotten in so many steps. */
#define NEED_FADES 8
/* A read that takes longer has stalled. */
#define LONGEST_WAIT_MS 1000

void swn_lodge_step(struct swn_engine *e, struct swn_node *last)
{
    size_t took = e->other_step;
    if (last)
        last->other_need = took > last->other_need ? took : last->other_need - (last->other_need - took) / NEED_FADES;
    e->other_step = swn_policy_other(e);
}

size_t swn_lodge_room(const struct swn_engine *e, const struct swn_node *node)
{
    if (!e->planned || e->planned_other <= node->other_need || e->config.without & SWN_WITHOUT_LODGING)
        return 0;
    return e->planned_other - node->other_need;
}

struct swn_frame *swn_lodge(struct swn_engine *e, size_t size, const struct swn_lodging *want)
{
    size_t span = swn_round_up(size, SWN_GRANULE), fresh;
    if (e->lodged_bytes + span > want->room || swn_engine_resident(e) > e->config.budget_bytes)
        return NULL;
    struct swn_range *home = swn_places_gap(e, want->t, size, want->allocs, want->next_pass);
    if (!home && !swn_arena_fresh(e->arena, size))
        home = swn_arena_alloc(e->arena, size, &fresh);
    if (!home)
        return NULL;
    e->res.home_bytes += home->size;
    /* Direct reads never land in memory that a fork may duplicate (HOLES rule 6). */
    struct swn_frame *f = madvise((void *)home->addr, home->span, MADV_DONTFORK)
                              ? NULL
                              : swn_pool_lodge(e->pool, (void *)home->addr, size);
    if (!f) {
        madvise((void *)home->addr, home->span, MADV_DOFORK);
        swn_residency_free(&e->res, home, 1);
        return NULL;
    }
    home->lodges = 1;
    e->lodged_bytes += home->size;
    e->lodged_plotted += home->plotted ? home->size : 0;
    return f;
}

void swn_lodge_end(struct swn_engine *e, struct swn_frame *f)
{
    struct swn_range *home = swn_arena_find(e->arena, (uintptr_t)f->lodged);
    e->lodged_bytes -= home->size;
    e->lodged_plotted -= home->plotted ? home->size : 0;
    int warm = !madvise((void *)home->addr, home->span, MADV_DOFORK);
    home->foreign_map = !warm;
    swn_pool_release(e->pool, f);
    swn_residency_free(&e->res, home, warm);
}

int swn_lodge_evict(struct swn_engine *e)
{
    for (struct swn_frame *f = e->lodged_bytes ? swn_pool_first(e->pool) : NULL; f; f = f->next) {
        if (!f->lodged || f->users || !f->range)
            continue;
        swn_policy_drop_frame(e, f->range);
        return 1;
    }
    return 0;
}

int swn_lodge_expel(struct swn_engine *e, struct swn_range *home)
{
    uint32_t id = home->id;
    for (struct swn_frame *f = swn_pool_first(e->pool); f; f = f->next) {
        if ((uintptr_t)f->lodged != home->addr)
            continue;
        if (!f->users && f->range)
            swn_policy_drop_frame(e, f->range);
        break;
    }
    return home->id != id;
}

/* Whether a frame that nobody wants any more will be gone as soon as its read is done. */
static int one_is_leaving(struct swn_engine *e)
{
    for (struct swn_frame *f = swn_pool_first(e->pool); f; f = f->next)
        if (f->lodged && !f->range && !f->users)
            return 1;
    return 0;
}

void swn_lodge_vacate(struct swn_engine *e, size_t len)
{
    if (!e->lodged_bytes)
        return;
    uint64_t until = swn_now_ns() + LONGEST_WAIT_MS * 1000000ull;
    while (e->lodged_bytes && swn_engine_resident(e) + swn_arena_fresh(e->arena, len) > e->config.budget_bytes) {
        if (swn_lodge_evict(e))
            continue;
        if (!one_is_leaving(e) || swn_cond_wait_until(&e->changed, &e->lock, until))
            return;
    }
}

void swn_lodge_fork_child(struct swn_engine *e)
{
    for (struct swn_range *r = swn_arena_first(e->arena), *next; r; r = next) {
        next = r->next;
        if (!r->lodges)
            continue;
        r->foreign_map = 1; /* a hole */
        swn_residency_free(&e->res, r, 0);
    }
    e->lodged_bytes = e->lodged_plotted = 0;
}
