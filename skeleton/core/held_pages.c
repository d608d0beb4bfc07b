/* skeleton/core/held_pages.c - see held_pages.h. */
#include "skeleton/core/held_pages.h"

#include <errno.h>

#include "skeleton/engine/engine_internal.h"
#include "skeleton/core/write_behind.h"
#include "skeleton/core/eviction.h"
#include "skeleton/core/plan.h"
#include "skeleton/engine/weights.h"
#include "skeleton/core/residency_steps.h"
#include "skeleton/core/restore.h"

/* From a place where no tensor is to the next one where one may be: a program may name a length that is far more than
 * it has. */
static uintptr_t next_place(const struct swn_arena *a, uintptr_t at)
{
    uintptr_t lo = swn_arena_lo(a), next = UINTPTR_MAX;
    if (at >= lo && at < lo + swn_arena_used(a))
        return lo + ((at - lo) / SWN_GRANULE + 1) * SWN_GRANULE;
    if (swn_arena_mapped_file(a, at))
        return (at / SWN_PAGE + 1) * SWN_PAGE;
    if (lo > at)
        next = lo;
    for (const struct swn_mapped_file *g; (g = swn_arena_mapped_file_in(a, at, next));)
        next = g->lo;
    return next;
}

int swn_held_each(struct swn_engine *e, uintptr_t lo, uintptr_t hi,
                  int (*what)(struct swn_engine *, struct swn_range *))
{
    int err = 0;
    for (uintptr_t at = lo; at < hi && !err;) {
        struct swn_range *r = swn_arena_find(e->arena, at);
        if (!r) {
            at = next_place(e->arena, at);
            continue;
        }
        at = r->addr + r->span;
        err = what(e, r);
    }
    return err;
}

int swn_held_hold(struct swn_engine *e, struct swn_range *r)
{
    swn_plan_weight_leaves(e, r);
    swn_weight_remove(e, r);
    swn_write_behind_cancel(e, r);
    swn_tensor_of(r)->registered++;
    r->pins++;
    return 0;
}

/* Makes room for it; it becomes resident whether or not there is room, even if it is larger than the budget, in which
 * case it would otherwise be written through a mapping of its file. */
static int make_resident(struct swn_engine *e, struct swn_range *r)
{
    while (r->filling)
        pthread_cond_wait(&e->changed, &e->lock);
    if (r->len > e->budget.limit && atomic_load(&r->state) == SWN_FILE_BACKED) {
        swn_reclaim_must(e, swn_round_up(r->len, SWN_PAGE), r);
        return swn_make_resident(e, r, 0);
    }
    return swn_restore_resident(e, r, 0);
}

int swn_held_make_resident(struct swn_engine *e, struct swn_range *r)
{
    int err = swn_tensor_of(r)->registered ? make_resident(e, r) : 0;
    return !err && swn_tensor_of(r)->registered && atomic_load(&r->state) != SWN_RESIDENT ? -EBUSY : err;
}

int swn_held_release(struct swn_engine *e, struct swn_range *r)
{
    if (swn_tensor_of(r)->registered) {
        swn_tensor_of(r)->registered--;
        r->pins--;
    }
    if (swn_tensor_of(r)->orphaned && swn_tensor_of(r)->registered == swn_tensor_of(r)->held)
        swn_engine_drop(e, r);
    return 0;
}

int swn_held_concerns_us(struct swn_engine *e, uintptr_t lo, uintptr_t hi)
{
    return swn_engine_running() && ((lo < swn_arena_hi(e->arena) && hi > swn_arena_lo(e->arena)) ||
                                    (lo < __atomic_load_n(&swn_mapped_bounds[1], __ATOMIC_ACQUIRE) &&
                                     hi > __atomic_load_n(&swn_mapped_bounds[0], __ATOMIC_ACQUIRE) &&
                                     swn_arena_mapped_file_in(e->arena, lo, hi)));
}

void swn_held_fork_child(struct swn_engine *e)
{
    for (struct swn_range *r = swn_arena_first(e->arena); r; r = r->next)
        swn_tensor_of(r)->registered = swn_tensor_of(r)->held = 0;
    for (struct swn_range *r = swn_arena_first(e->arena), *next; r; r = next) {
        next = r->next;
        if (swn_tensor_of(r)->orphaned)
            swn_engine_drop(e, r);
    }
}
