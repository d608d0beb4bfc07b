/* skeleton/device/host_register.c - see host_register.h. */
#define _GNU_SOURCE
#include "skeleton/device/host_register.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "skeleton/engine/engine_internal.h"
#include "skeleton/core/expected_read.h"
#include "skeleton/core/held_pages.h"
#include "skeleton/load/mapped_file.h"
#include "skeleton/core/reentry.h"
#include "skeleton/engine/accounting.h"
#include "skeleton/engine/section.h"

/* A registration of the program's. Guarded by the engine's lock, once the driver has it. */
struct swn_registration {
    uintptr_t lo, hi;
    struct swn_registration *next;
};

static struct swn_registration *all;
static _Atomic int said;

int swn_registered_begin(const void *p, size_t bytes, struct swn_registration **out)
{
    SWN_SECTION();
    struct swn_engine *e = &swn_engine_one;
    uintptr_t lo = (uintptr_t)p, hi = lo + bytes;
    *out = NULL;
    if (hi <= lo || !swn_held_concerns_us(e, lo, hi))
        return 0;
    struct swn_registration *r = calloc(1, sizeof *r);
    if (!r)
        return -ENOMEM;
    lo = lo / SWN_PAGE * SWN_PAGE; /* the driver takes whole pages */
    hi = swn_round_up(hi, SWN_PAGE);
    *r = (struct swn_registration){.lo = (uintptr_t)p, .hi = hi};
    swn_lock(&e->lock);
    swn_expected_read_cancel(e, 0);
    swn_mapped_file_cover(e, lo, hi);
    swn_held_each(e, lo, hi, swn_held_hold);
    swn_unlock(&e->lock);
    /* A device that shares the bytes would see what another device writes there. A thread that begins to share bytes
     * announces itself before it checks whether they are held; so either this call finds it, or its check finds the
     * hold. */
    if (e->torch)
        e->torch->device_part(lo, hi - lo);
    swn_lock(&e->lock);
    int err = swn_held_each(e, lo, hi, swn_held_make_resident);
    if (err)
        swn_held_each(e, lo, hi, swn_held_release);
    swn_engine_note_peak(e);
    swn_unlock(&e->lock);
    swn_engine_settle();
    if (!err) {
        *out = r;
        return 0;
    }
    free(r);
    if (!atomic_exchange(&said, 1))
        swn_say("memory that the program registers with the driver cannot be made resident: %s; it is not registered",
                strerror(-err));
    return err;
}

static void undo(struct swn_engine *e, struct swn_registration *r)
{
    swn_held_each(e, r->lo / SWN_PAGE * SWN_PAGE, r->hi, swn_held_release);
    free(r);
}

void swn_registered_end(struct swn_registration *r, int taken)
{
    SWN_SECTION();
    struct swn_engine *e = &swn_engine_one;
    if (!r)
        return;
    swn_lock(&e->lock);
    if (taken) {
        r->next = all;
        all = r;
    } else {
        undo(e, r);
    }
    swn_unlock(&e->lock);
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
    swn_lock(&e->lock);
    struct swn_range *r = swn_arena_find(e->arena, (uintptr_t)p);
    int ours = r && swn_tensor_of(r)->on_device && !*find(p);
    swn_unlock(&e->lock);
    return ours;
}

void swn_registered_gone(const void *p)
{
    SWN_SECTION();
    struct swn_engine *e = &swn_engine_one;
    if (!swn_engine_running())
        return;
    swn_lock(&e->lock);
    struct swn_registration **link = find(p), *r = *link;
    if (r) {
        *link = r->next;
        undo(e, r);
    }
    swn_unlock(&e->lock);
}

void swn_registered_fork_child(void)
{
    for (struct swn_registration *r; (r = all);) {
        all = r->next;
        free(r);
    }
}
