/* skeleton/engine/state.c - the engine of the process, and its counted memory. The lowest file of the core. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdlib.h>
#include <unistd.h>

#include "skeleton/engine/engine_internal.h"
#include "base/thread.h"
#include "skeleton/engine/reclaim.h"
#include "skeleton/engine/accounting.h"

uintptr_t swn_mapped_bounds[2];
struct swn_engine swn_engine_one = {.lock = PTHREAD_MUTEX_INITIALIZER};
const struct swn_io *swn_engine_io = &swn_io_sys;

void swn_engine_init_sync(struct swn_engine *e)
{
    pthread_mutex_init(&e->lock, NULL);
    swn_cond_init(&e->changed);
}

int swn_engine_running(void)
{
    return atomic_load_explicit(&swn_engine_one.life.running, memory_order_acquire);
}

int swn_engine_owns(uintptr_t addr)
{
    struct swn_engine *e = &swn_engine_one;
    return swn_engine_running() && addr >= swn_arena_lo(e->arena) && addr < swn_arena_hi(e->arena);
}

void swn_engine_count_small(long long bytes)
{
    atomic_fetch_add_explicit(&swn_engine_one.nonweight.small_bytes, bytes, memory_order_relaxed);
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
    return r && r->id == e->expected.id && atomic_load(&r->state) == SWN_RESIDENT ? e->expected.bytes : 0;
}

size_t swn_engine_resident(struct swn_engine *e)
{
    return e->res.resident_bytes + swn_arena_warm_bytes(e->arena) + (e->pool ? swn_pool_bytes(e->pool) : 0) +
           swn_small_bytes(e) + swn_reclaim_bytes() - swn_expected_read_bytes(e);
}

/* Bytes in use that are no weights of the order: activations, inputs, optimizer state. Warm pages are not included:
 * they leave first when room is needed. */
size_t swn_nonweight_bytes(struct swn_engine *e)
{
    return e->res.resident_bytes - e->weights.resident_bytes + swn_small_bytes(e);
}

/* The same, and room that is reserved for activations to come. */
size_t swn_nonweight_held(struct swn_engine *e)
{
    return swn_nonweight_bytes(e) + swn_arena_region_idle(e->arena);
}

size_t swn_nonweight_peak(const struct swn_engine *e)
{
    return e->nonweight.peak > e->nonweight.before ? e->nonweight.peak : e->nonweight.before;
}

/* The bytes that the plan in force reserves for them, or more if they took more. */
size_t swn_nonweight_needed(const struct swn_engine *e)
{
    size_t peak = swn_nonweight_peak(e);
    return e->nonweight.planned > peak ? e->nonweight.planned : peak;
}

void swn_engine_note_peak(struct swn_engine *e)
{
    size_t now = swn_engine_resident(e), other = swn_nonweight_bytes(e), held = swn_nonweight_held(e);
    if (now > e->counters.peak_resident)
        e->counters.peak_resident = now;
    if (e->weights.live && other > e->nonweight.peak_ever)
        e->nonweight.peak_ever = other;
    if (held > e->nonweight.peak) {
        e->nonweight.peak = held;
        /* The plan gave weights memory that activations turn out to need. */
        if (e->plan.planned && !e->regions.warmup_passes &&
            held > e->nonweight.planned + e->nonweight.planned / 16 + SWN_GRANULE)
            e->plan.dirty = 1;
    }
}
