/* skeleton/core/kernel_holds.c - see kernel_holds.h. */
#include "skeleton/core/kernel_holds.h"

#include <pthread.h>
#include <string.h>

#include "skeleton/core/reentry.h"
#include "skeleton/engine/engine_internal.h"
#include "skeleton/core/expected_read.h"
#include "skeleton/core/held_pages.h"
#include "skeleton/engine/accounting.h"
#include "skeleton/engine/section.h"

static _Atomic int said;

/* As memory that a device has, but only once, and the kernel never gives it back. */
static int hold(struct swn_engine *e, struct swn_range *r)
{
    if (swn_tensor_of(r)->held)
        return 0;
    swn_held_hold(e, r);
    swn_tensor_of(r)->held = 1;
    return 0;
}

/* The range could not be made resident, and may come and go as before. */
static int release(struct swn_engine *e, struct swn_range *r)
{
    if (atomic_load(&r->state) == SWN_RESIDENT || !swn_tensor_of(r)->held)
        return 0;
    swn_tensor_of(r)->held = 0;
    return swn_held_release(e, r);
}

int swn_kernel_holds_ours(const void *p, size_t bytes)
{
    uintptr_t lo = (uintptr_t)p, hi = lo + bytes;
    return hi > lo && swn_held_concerns_us(&swn_engine_one, lo, hi);
}

int swn_kernel_holds(const void *p, size_t bytes)
{
    SWN_SECTION();
    struct swn_engine *e = &swn_engine_one;
    if (!swn_kernel_holds_ours(p, bytes))
        return 0;
    uintptr_t lo = (uintptr_t)p / SWN_PAGE * SWN_PAGE, hi = swn_round_up((uintptr_t)p + bytes, SWN_PAGE);
    swn_lock(&e->lock);
    swn_expected_read_cancel(e, 0);
    swn_held_each(e, lo, hi, hold);
    int err = swn_held_each(e, lo, hi, swn_held_make_resident);
    if (err)
        swn_held_each(e, lo, hi, release);
    swn_engine_note_peak(e);
    swn_unlock(&e->lock);
    swn_engine_settle();
    if (err && !atomic_exchange(&said, 1))
        swn_say("memory that the program gives to the kernel cannot be made resident: %s; the call fails",
                strerror(-err));
    return err;
}
