#define _GNU_SOURCE
#include "skeleton/device/host_register.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "skeleton/core/write_behind.h"
#include "skeleton/load/mapped_file.h"
#include "skeleton/core/reentry.h"
#include "skeleton/load/load.h"

/* Of the program's. Guarded by the engine's lock, once the driver has it. */
struct swn_registration {
    uintptr_t lo, hi;
    struct swn_registration *next;
};

static struct swn_registration *all;
static _Atomic int said;

int swn_registered_each(struct swn_engine *e, uintptr_t lo, uintptr_t hi,
                        int (*what)(struct swn_engine *, struct swn_range *))
{
    int err = 0;
    for (uintptr_t at = lo; at < hi && !err;) {
        struct swn_range *r = swn_arena_find(e->arena, at);
        if (!r) {
            at = (at / SWN_PAGE + 1) * SWN_PAGE;
            continue;
        }
        at = r->addr + r->span;
        err = what(e, r);
    }
    return err;
}

int swn_registered_hold(struct swn_engine *e, struct swn_range *r)
{
    swn_node_remove(e, r);
    swn_behind_recall(e, r);
    r->registered++;
    r->pins++;
    return 0;
}

/* Room is made for it, and it comes whether there is any or not; also what is larger than the budget, which would
 * otherwise be written to through a mapping of its file. */
static int bring_home(struct swn_engine *e, struct swn_range *r)
{
    while (r->filling)
        pthread_cond_wait(&e->changed, &e->lock);
    if (r->len > e->config.budget_bytes && atomic_load(&r->state) == SWN_STREAMED) {
        swn_policy_make_room(e, swn_round_up(r->len, SWN_PAGE), r);
        return swn_policy_home(e, r, 0);
    }
    return swn_policy_bring_home(e, r, 0);
}

int swn_registered_home(struct swn_engine *e, struct swn_range *r)
{
    int err = r->registered ? bring_home(e, r) : 0;
    return !err && r->registered && atomic_load(&r->state) != SWN_HOME ? -EBUSY : err;
}

int swn_registered_release(struct swn_engine *e, struct swn_range *r)
{
    if (r->registered) {
        r->registered--;
        r->pins--;
    }
    if (r->orphaned && r->registered == r->held)
        swn_engine_drop(e, r);
    return 0;
}

int swn_registered_concerns_us(struct swn_engine *e, uintptr_t lo, uintptr_t hi)
{
    return swn_engine_running() &&
           ((lo < swn_arena_hi(e->arena) && hi > swn_arena_lo(e->arena)) ||
            (lo < __atomic_load_n(&swn_guest_bounds[1], __ATOMIC_ACQUIRE) &&
             hi > __atomic_load_n(&swn_guest_bounds[0], __ATOMIC_ACQUIRE) && swn_arena_guest_in(e->arena, lo, hi)));
}

int swn_registered_begin(const void *p, size_t bytes, struct swn_registration **out)
{
    struct swn_engine *e = &swn_engine_one;
    uintptr_t lo = (uintptr_t)p, hi = lo + bytes;
    *out = NULL;
    if (hi <= lo || !swn_registered_concerns_us(e, lo, hi))
        return 0;
    struct swn_registration *r = calloc(1, sizeof *r);
    if (!r)
        return -ENOMEM;
    lo = lo / SWN_PAGE * SWN_PAGE; /* as the driver takes whole pages */
    hi = swn_round_up(hi, SWN_PAGE);
    *r = (struct swn_registration){.lo = (uintptr_t)p, .hi = hi};
    pthread_mutex_lock(&e->lock);
    swn_load_expect_no_more(e, 0);
    swn_guest_cover(e, lo, hi);
    swn_registered_each(e, lo, hi, swn_registered_hold);
    pthread_mutex_unlock(&e->lock);
    /* A device that shares its bytes would see what the program has this one write there. Who comes to share them now
     * has said so before he looks whether they are held, and is found by this; or he finds that they are. */
    if (e->half)
        e->half->device_part(lo, hi - lo);
    pthread_mutex_lock(&e->lock);
    int err = swn_registered_each(e, lo, hi, swn_registered_home);
    if (err)
        swn_registered_each(e, lo, hi, swn_registered_release);
    swn_engine_note_peak(e);
    pthread_mutex_unlock(&e->lock);
    swn_engine_settle();
    if (!err) {
        *out = r;
        return 0;
    }
    free(r);
    if (!atomic_exchange(&said, 1))
        swn_say("memory that the program registers with the driver cannot be brought home: %s; it is not registered",
                strerror(-err));
    return err;
}

static void undo(struct swn_engine *e, struct swn_registration *r)
{
    swn_registered_each(e, r->lo / SWN_PAGE * SWN_PAGE, r->hi, swn_registered_release);
    free(r);
}

void swn_registered_end(struct swn_registration *r, int taken)
{
    struct swn_engine *e = &swn_engine_one;
    if (!r)
        return;
    pthread_mutex_lock(&e->lock);
    if (taken) {
        r->next = all;
        all = r;
    } else {
        undo(e, r);
    }
    pthread_mutex_unlock(&e->lock);
}

static struct swn_registration **find(const void *p)
{
    struct swn_registration **link = &all;
    while (*link && (*link)->lo != (uintptr_t)p)
        link = &(*link)->next;
    return link;
}

int swn_registered_by_us(const void *p)
{
    struct swn_engine *e = &swn_engine_one;
    if (!swn_engine_owns((uintptr_t)p))
        return 0;
    pthread_mutex_lock(&e->lock);
    struct swn_range *r = swn_arena_find(e->arena, (uintptr_t)p);
    int ours = r && r->on_device && !*find(p);
    pthread_mutex_unlock(&e->lock);
    return ours;
}

void swn_registered_gone(const void *p)
{
    struct swn_engine *e = &swn_engine_one;
    if (!swn_engine_running())
        return;
    pthread_mutex_lock(&e->lock);
    struct swn_registration **link = find(p), *r = *link;
    if (r) {
        *link = r->next;
        undo(e, r);
    }
    pthread_mutex_unlock(&e->lock);
}

int swn_registered_keeps(struct swn_range *r)
{
    r->orphaned = r->registered > r->held;
    return r->orphaned;
}

void swn_registered_fork_child(struct swn_engine *e)
{
    for (struct swn_registration *r; (r = all);) {
        all = r->next;
        free(r);
    }
    for (struct swn_range *r = swn_arena_first(e->arena); r; r = r->next)
        r->registered = r->held = 0;
    for (struct swn_range *r = swn_arena_first(e->arena), *next; r; r = next) {
        next = r->next;
        if (r->orphaned)
            swn_engine_drop(e, r);
    }
}
