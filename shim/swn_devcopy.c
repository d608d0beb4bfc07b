/* swn_devcopy.c - copies of a card's blocks in pinned memory of the processor's, as far as the budget has room that
 * nobody else wants. The bus takes a block from there at its full speed, and no processor has to touch it; from the
 * disk, or from memory that the driver does not know, it comes at a fraction of that. */
#define _GNU_SOURCE
#include "swn_devcopy.h"

#include "swn_arena.h"
#include "swn_device.h"
#include "swn_devswap_priv.h"
#include "swn_engine_priv.h"
#include "swn_thread.h"

/* One part in so many of the budget is left to whatever comes. */
#define OTHERS 8
/* Who needs the room waits so long, and says so again after so long, as nobody may have heard it. */
#define LONGEST_WAIT_NS 1000000000u
#define TELL_NS 2000000u

static _Atomic size_t held_bytes, wanted_back;

static size_t size_of(const struct block *b)
{
    return swn_round_up(b->used, SWN_PAGE);
}

static int has_room(size_t bytes)
{
    struct swn_engine *e = &swn_engine_one;
    pthread_mutex_lock(&e->lock);
    int fits = !atomic_load(&wanted_back) && e->goal_bytes >= e->config.budget_bytes &&
               swn_policy_fits_free(e, bytes + e->goal_bytes / OTHERS);
    pthread_mutex_unlock(&e->lock);
    return fits;
}

static void has_changed(void)
{
    struct swn_engine *e = &swn_engine_one;
    pthread_mutex_lock(&e->lock);
    swn_engine_note_peak(e);
    pthread_cond_broadcast(&e->changed); /* a budget that shrinks may wait for it */
    pthread_mutex_unlock(&e->lock);
}

void swn_devcopy_make(struct swn_devswap *s, struct block *b)
{
    size_t bytes = size_of(b);
    /* Memory that a device shares with us is where its weights are already. And what comes for the first time may be
     * here to stay. */
    if (!s->pool.way->fixed || s->counted || s->no_copies || b->copy || !b->came || !has_room(bytes))
        return;
    pthread_mutex_unlock(&s->lock); /* the driver takes its time */
    char *copy = swn_devpool_pin(&s->pool, bytes);
    if (copy) {
        atomic_fetch_add(&held_bytes, bytes);
        has_changed();
    }
    pthread_mutex_lock(&s->lock);
    s->no_copies |= !copy;
    b->copy = copy;
}

void swn_devcopy_drop(struct swn_devswap *s, struct block *b)
{
    char *copy = b->copy;
    size_t bytes = size_of(b);
    if (!copy)
        return;
    b->copy = NULL;
    b->copied = 0;
    swn_devflight_land(s, b->flight);
    pthread_mutex_unlock(&s->lock);
    if (!swn_devpool_unpin(&s->pool, copy, bytes)) /* else it is the driver's, and still counts */
        atomic_fetch_sub(&held_bytes, bytes);
    has_changed();
    pthread_mutex_lock(&s->lock);
    size_t wanted = atomic_load(&wanted_back);
    while (wanted && !atomic_compare_exchange_weak(&wanted_back, &wanted, wanted > bytes ? wanted - bytes : 0))
        ;
}

int swn_devcopy_give(struct swn_devswap *s)
{
    if (!atomic_load(&wanted_back))
        return 0;
    struct block *last = NULL; /* that is needed */
    for (size_t i = 0; i < s->count; i++)
        if (s->blocks[i]->copy && (!last || s->blocks[i]->next_use > last->next_use))
            last = s->blocks[i];
    if (last)
        swn_devcopy_drop(s, last);
    else if (!atomic_load(&held_bytes))
        atomic_store(&wanted_back, 0);
    return last != NULL;
}

int swn_devcopy_ask(struct swn_engine *e, size_t bytes)
{
    if (!atomic_load(&held_bytes))
        return 0;
    atomic_store(&wanted_back, bytes + e->goal_bytes / OTHERS);
    swn_device_wake();
    return 1;
}

void swn_devcopy_vacate(struct swn_engine *e, size_t bytes)
{
    uint64_t until = 0;
    while (atomic_load(&held_bytes)) {
        size_t need = swn_engine_resident(e) + swn_arena_fresh(e->arena, bytes), limit = e->config.budget_bytes;
        if (!e->config.enforce || need <= limit || !swn_devcopy_ask(e, need - limit))
            return;
        uint64_t now = swn_now_ns();
        until = until ? until : now + LONGEST_WAIT_NS;
        if (now >= until)
            return;
        swn_cond_wait_until(&e->changed, &e->lock, now + TELL_NS < until ? now + TELL_NS : until);
    }
}

void swn_devcopy_stats(struct swn_stats *out)
{
    out->device_pinned_bytes = atomic_load(&held_bytes);
}

void swn_devcopy_fork_child(void)
{
    atomic_store(&held_bytes, 0);
    atomic_store(&wanted_back, 0);
}
