/* skeleton/device/pinned_cache.c - copies of a card's blocks in pinned memory of the processor, as far as the budget
 * has room that no other part of the engine needs. The bus copies a block from there at full speed, without the
 * processor; from the disk, or from memory that the driver does not know, it copies at a fraction of that speed. */
#define _GNU_SOURCE
#include "skeleton/device/pinned_cache.h"

#include "blocks/memory/arena.h"
#include "skeleton/device/device.h"
#include "skeleton/device/swapper_internal.h"
#include "skeleton/engine/engine_internal.h"
#include "base/thread.h"
#include "skeleton/core/eviction.h"
#include "skeleton/core/plan.h"
#include "skeleton/engine/accounting.h"
#include "skeleton/engine/section.h"

/* A thread that needs the room waits at most this long without progress, and repeats its request after TELL_NS, as it
 * may have been missed. */
#define PATIENCE_NS 500000000u
#define TELL_NS 2000000u
/* After the driver has refused memory, this many blocks get no copy. */
#define PAUSE 64

void (*swn_pinned_cache_tell)(void);
static _Atomic size_t held_bytes, wanted_back;

/* The last request: its time, the number of copies then, and since when. Engine lock. */
static struct {
    uint64_t asked, changed;
    size_t held;
} hope;

static size_t size_of(const struct swap_group *b)
{
    return swn_round_up(b->used, SWN_PAGE);
}

/* Whether there is room beside the memory in use and that which activations of passes will need again. */
static int has_room(size_t bytes)
{
    struct swn_engine *e = &swn_engine_one;
    swn_lock(&e->lock);
    size_t used = swn_engine_resident(e) - swn_arena_warm_bytes(e->arena), other = swn_nonweight_held(e);
    size_t peak = e->plan.planned ? swn_nonweight_peak(e) : 0, again = peak > other ? peak - other : 0;
    int fits = !atomic_load(&wanted_back) && e->budget.target >= e->budget.limit &&
               used + again + bytes + e->budget.target / SWN_DEVICE_OTHERS <= e->budget.target &&
               swn_reclaim_free_fits(e, bytes);
    if (fits) {
        atomic_fetch_add(&held_bytes, bytes);
        swn_engine_note_peak(e);
    }
    swn_unlock(&e->lock);
    return fits;
}

static void has_gone(size_t bytes)
{
    struct swn_engine *e = &swn_engine_one;
    swn_lock(&e->lock);
    atomic_fetch_sub(&held_bytes, bytes);
    size_t wanted = atomic_load(&wanted_back);
    atomic_store(&wanted_back, wanted > bytes && atomic_load(&held_bytes) ? wanted - bytes : 0);
    pthread_cond_broadcast(&e->changed); /* a shrinking budget may wait for it */
    swn_unlock(&e->lock);
}

void swn_pinned_cache_make(struct swn_devswap *s, struct swap_group *b)
{
    size_t bytes = size_of(b);
    /* Memory that a device shares with the host has the weights already. And a block that comes for the first time may
     * stay for good. */
    if (!s->pool.way->fixed || s->counted || b->copy || !b->use.came)
        return;
    if (s->no_copies) {
        s->no_copies--;
        return;
    }
    swn_unlock(&s->lock); /* the driver may take a while */
    int fits = has_room(bytes);
    char *copy = fits ? swn_devpool_pin(&s->pool, bytes) : NULL;
    if (fits && !copy)
        has_gone(bytes);
    swn_lock(&s->lock);
    s->no_copies = fits && !copy ? PAUSE : 0;
    b->copy = copy;
}

void swn_pinned_cache_drop(struct swn_devswap *s, struct swap_group *b)
{
    char *copy = b->copy;
    size_t bytes = size_of(b);
    if (!copy)
        return;
    b->copy = NULL;
    b->copied = 0;
    swn_devflight_land(s, b->flight);
    swn_unlock(&s->lock);
    if (swn_devpool_unpin(&s->pool, copy, bytes))
        swn_devpool_count((long long)bytes); /* the driver does not release it */
    has_gone(bytes);
    swn_lock(&s->lock);
}

/* Whether a's copy leaves before b's: a block that stays on the device needs no copy; then the one that is needed last.
 */
static int before(const struct swap_group *a, const struct swap_group *b)
{
    return !a->kept != !b->kept ? a->kept != NOT_KEPT : a->use.next_use > b->use.next_use;
}

int swn_pinned_cache_wanted(void)
{
    return atomic_load(&wanted_back) != 0;
}

int swn_pinned_cache_give(struct swn_devswap *s)
{
    struct swap_group *best = NULL;
    for (size_t i = 0; i < s->count; i++)
        if (s->blocks[i]->copy && (!best || before(s->blocks[i], best)))
            best = s->blocks[i];
    if (best)
        swn_pinned_cache_drop(s, best);
    return best != NULL;
}

size_t swn_pinned_cache_bytes(void)
{
    return atomic_load_explicit(&held_bytes, memory_order_relaxed);
}

int swn_pinned_cache_ask(struct swn_engine *e, size_t bytes)
{
    size_t held = atomic_load(&held_bytes);
    uint64_t now = held ? swn_now_ns() : 0;
    if (!held)
        return 0;
    if (held != hope.held || now - hope.asked > 2 * PATIENCE_NS)
        hope.changed = now;
    hope.held = held;
    hope.asked = now;
    atomic_store(&wanted_back, bytes + e->budget.target / SWN_DEVICE_OTHERS);
    swn_pinned_cache_tell();
    return now - hope.changed < PATIENCE_NS;
}

void swn_pinned_cache_vacate(struct swn_engine *e, size_t bytes)
{
    while (atomic_load(&held_bytes) && e->config.enforce) {
        size_t need = swn_engine_resident(e) - swn_arena_warm_bytes(e->arena) + bytes, limit = e->budget.limit;
        if (need <= limit || !swn_pinned_cache_ask(e, need - limit))
            return;
        swn_cond_wait_until(&e->changed, &e->lock, swn_now_ns() + TELL_NS);
    }
}

void swn_pinned_cache_vacate_for(struct swn_engine *e, const struct swn_op *op)
{
    size_t bytes = 0;
    for (unsigned i = 0; atomic_load(&held_bytes) && i < op->n; i++) {
        const struct swn_range *r =
            op->args[i].use >= SWN_USE_WRITE ? swn_arena_find(e->arena, op->args[i].data) : NULL;
        bytes += r && atomic_load(&((struct swn_range *)(uintptr_t)r)->state) == SWN_FILE_BACKED ? r->size : 0;
    }
    if (bytes)
        swn_pinned_cache_vacate(e, bytes);
}

void swn_pinned_cache_stats(struct swn_stats *out)
{
    out->device_pinned_bytes = atomic_load(&held_bytes);
}

void swn_pinned_cache_fork_child(void)
{
    atomic_store(&held_bytes, 0);
    atomic_store(&wanted_back, 0);
}
