/* skeleton/device/block.c - blocks of a device's swapper: their sizes, their states, and the sums over them. */
#define _GNU_SOURCE
#include <stdlib.h>
#include <string.h>

#include "blocks/memory/arena.h"
#include "skeleton/device/swapper_internal.h"

/* A block is this part of the room for blocks, so that several can be in flight while the last ones are in use. */
#define BLOCK_PART 16
#define BLOCK_MOST ((size_t)32 << 20)
#define SIZES 8
#define CHUNKS 2

size_t swn_swap_group_from(const struct swn_devswap *s, uint32_t id)
{
    size_t lo = 0, hi = s->count;
    while (lo < hi) {
        size_t mid = (lo + hi) / 2;
        if (s->blocks[mid]->id < id)
            lo = mid + 1;
        else
            hi = mid;
    }
    return lo;
}

static size_t block_size(const struct swn_devswap *s, size_t least)
{
    size_t size = s->capacity / BLOCK_PART;
    size = size < BLOCK_MOST ? size : BLOCK_MOST;
    return swn_round_up(size > least ? size : least, s->pool.unit);
}

size_t swn_swap_group_step(const struct swn_devswap *s)
{
    return swn_round_up(block_size(s, 0) / SIZES, s->pool.unit);
}

struct swap_group *swn_swap_group_new(struct swn_devswap *s, size_t bytes)
{
    if (s->count == s->room) {
        size_t room = s->room ? 2 * s->room : 64;
        struct swap_group **all = realloc(s->blocks, room * sizeof *all);
        if (!all)
            return NULL;
        s->blocks = all;
        s->room = room;
    }
    struct swap_group *b = calloc(1, sizeof *b);
    if (!b)
        return NULL;
    b->swapper = s;
    b->last = &b->weights;
    b->reserved = block_size(s, bytes);
    b->at = swn_devpool_reserve(&s->pool, b->reserved);
    if (!b->at) {
        free(b);
        return NULL;
    }
    b->id = ++s->last_id;
    s->blocks[s->count++] = b;
    return b;
}

void swn_swap_group_free(struct swn_devswap *s, struct swap_group *b)
{
    size_t i = swn_swap_group_from(s, b->id);
    memmove(&s->blocks[i], &s->blocks[i + 1], (--s->count - i) * sizeof *s->blocks);
    swn_access_order_forget(s->order, b->id);
    for (struct use *u = b->uses, *next; u; u = next) {
        next = u->next;
        s->pool.swap.event_destroy(u->event);
        free(u);
    }
    for (struct swn_devweight *w = b->weights, *next; w; w = next) {
        next = w->next;
        free(w);
    }
    if (!b->lost)
        swn_devpool_unreserve(&s->pool, b->at, b->reserved);
    free(b);
}

size_t swn_swap_group_chunk(size_t unit, size_t capacity)
{
    size_t block = capacity / BLOCK_PART < BLOCK_MOST ? capacity / BLOCK_PART : BLOCK_MOST;
    size_t chunk = swn_round_up(block / CHUNKS, unit);
    return chunk > unit ? chunk : 0;
}

size_t swn_swap_group_cost(const struct swap_group *b)
{
    return b->state == OUT ? b->bytes : b->buffer.bytes;
}

void swn_swap_group_set(struct swn_devswap *s, struct swap_group *b, enum state state)
{
    s->claimed -= b->users ? swn_swap_group_cost(b) : 0;
    b->state = state;
    s->claimed += b->users ? swn_swap_group_cost(b) : 0;
}

void swn_swap_group_keep(struct swn_devswap *s, struct swap_group *b, enum keeping why)
{
    if (!b->kept) {
        s->kept += swn_swap_group_cost(b);
        if (!b->users++)
            s->claimed += swn_swap_group_cost(b);
    }
    b->kept = why > b->kept ? why : b->kept;
}

void swn_swap_group_keep_no_more(struct swn_devswap *s, struct swap_group *b)
{
    b->kept = NOT_KEPT;
    s->kept -= swn_swap_group_cost(b);
    if (!--b->users)
        s->claimed -= swn_swap_group_cost(b);
}
