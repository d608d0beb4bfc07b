/* skeleton/core/ring_size.c - the size of the staging ring. */
#define _GNU_SOURCE

#include "skeleton/engine/engine_internal.h"
#include "skeleton/core/ring_size.h"
#include "skeleton/engine/accounting.h"

#define MIB ((size_t)1 << 20)
#define FIRST_RING_LEAST (2 * MIB)
#define FIRST_RING_MOST (32 * MIB)

/* Bytes of the ring's frames, in use or free. */
size_t swn_ring_bytes(struct swn_engine *e)
{
    return e->pool ? swn_pool_ring(e->pool) * swn_pool_unit(e->pool) + swn_pool_free_bytes(e->pool) : 0;
}

/* The window before there is a plan. */
size_t swn_ring_first(struct swn_engine *e)
{
    size_t first = e->budget.target / 8;
    first = first < FIRST_RING_LEAST ? FIRST_RING_LEAST : first > FIRST_RING_MOST ? FIRST_RING_MOST : first;
    return first / SWN_GRANULE * SWN_GRANULE;
}

void swn_ring_resize(struct swn_engine *e, size_t bytes)
{
    size_t unit = swn_pool_unit(e->pool);
    bytes = swn_round_up(bytes, unit);
    e->plan.ring_goal = bytes > unit ? bytes : unit;
}

size_t swn_ring_goal(const struct swn_engine *e)
{
    return e->plan.ring_goal + e->plan.experts_room;
}

int swn_ring_may_exceed(struct swn_engine *e, size_t bytes)
{
    size_t now = swn_nonweight_bytes(e), peak = swn_nonweight_needed(e), growth = peak > now ? peak - now : 0;

    if (!(e->config.stores & SWN_MANY_MODELS))
        return 0;
    if (bytes && swn_pool_free_bytes(e->pool) >= bytes)
        return 1; /* free frames count as resident already */
    /* Activations grow into their warm pages; what they do not need of these leaves for a frame. */
    return swn_engine_resident(e) - swn_arena_warm_bytes(e->arena) + bytes + growth <= e->budget.limit;
}
