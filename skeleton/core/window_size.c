/* skeleton/core/window_size.c - how many bytes of frames are for what comes and goes. */
#define _GNU_SOURCE

#include "skeleton/core/engine_internal.h"
#include "skeleton/core/window_size.h"

#define MIB ((size_t)1 << 20)
#define FIRST_WINDOW_LEAST (2 * MIB)
#define FIRST_WINDOW_MOST (32 * MIB)

/* Bytes of the frames that come and go, in use or free. */
size_t swn_policy_window_bytes(struct swn_engine *e)
{
    return e->pool ? swn_pool_window(e->pool) * swn_pool_unit(e->pool) + swn_pool_free_bytes(e->pool) : 0;
}

/* The window before there is a plan. */
size_t swn_policy_first_window(struct swn_engine *e)
{
    size_t first = e->goal_bytes / 8;
    first = first < FIRST_WINDOW_LEAST ? FIRST_WINDOW_LEAST : first > FIRST_WINDOW_MOST ? FIRST_WINDOW_MOST : first;
    return first / SWN_GRANULE * SWN_GRANULE;
}

void swn_policy_resize_window(struct swn_engine *e, size_t bytes)
{
    size_t unit = swn_pool_unit(e->pool);
    bytes = swn_round_up(bytes, unit);
    e->window_goal = bytes > unit ? bytes : unit;
}
