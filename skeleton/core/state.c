/* skeleton/core/state.c - the engine of the process, and what counts in it. The lowest file of the core. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdlib.h>
#include <unistd.h>

#include "skeleton/core/engine_internal.h"
#include "base/thread.h"
#include "skeleton/core/reclaim.h"
#include "skeleton/core/accounting.h"

uintptr_t swn_guest_bounds[2];
struct swn_engine swn_engine_one = {.lock = PTHREAD_MUTEX_INITIALIZER};
const struct swn_io *swn_engine_io = &swn_io_sys;

void swn_engine_init_sync(struct swn_engine *e)
{
    pthread_mutex_init(&e->lock, NULL);
    swn_cond_init(&e->changed);
}

int swn_engine_running(void)
{
    return atomic_load_explicit(&swn_engine_one.running, memory_order_acquire);
}

int swn_engine_owns(uintptr_t addr)
{
    struct swn_engine *e = &swn_engine_one;
    return swn_engine_running() && addr >= swn_arena_lo(e->arena) && addr < swn_arena_hi(e->arena);
}

void swn_engine_count_small(long long bytes)
{
    atomic_fetch_add_explicit(&swn_engine_one.small_bytes, bytes, memory_order_relaxed);
}

size_t swn_engine_mapped_bytes(void)
{
    char text[32] = "";
    int fd = open("/proc/self/statm", O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return 0;
    ssize_t n = read(fd, text, sizeof text - 1);
    close(fd);
    return n > 0 ? strtoull(text, NULL, 10) * SWN_PAGE : 0;
}

size_t swn_expected_read_bytes(const struct swn_engine *e)
{
    struct swn_range *r = e->expected.range;
    return r && r->id == e->expected.id && atomic_load(&r->state) == SWN_HOME ? e->expected.bytes : 0;
}

size_t swn_engine_resident(struct swn_engine *e)
{
    long long small = atomic_load(&e->small_bytes);
    return e->res.home_bytes + swn_arena_warm_bytes(e->arena) + (e->pool ? swn_pool_bytes(e->pool) : 0) +
           (small > 0 ? (size_t)small : 0) + swn_reclaim_bytes() - swn_expected_read_bytes(e);
}

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

void swn_engine_note_peak(struct swn_engine *e)
{
    size_t now = swn_engine_resident(e), other = swn_policy_other(e), held = swn_policy_other_held(e);
    if (now > e->peak_resident)
        e->peak_resident = now;
    if (e->node_live && other > e->other_peak_ever)
        e->other_peak_ever = other;
    if (held > e->other_peak) {
        e->other_peak = held;
        /* The plan gave weights what activations turn out to need. */
        if (e->planned && !e->settling && held > e->planned_other + e->planned_other / 16 + SWN_GRANULE)
            e->plan_dirty = 1;
    }
}
