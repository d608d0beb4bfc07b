/* skeleton/device/block_order.c - the order in which the blocks of a device are used, and which of them to bring in
 * ahead. */
#include "skeleton/device/swapper_internal.h"

/* Reading further ahead than this part of the room would evict blocks that are needed sooner. */
#define AHEAD_PART 2
/* A stream that was not seen for this many accesses has no share of the room. */
#define IDLE_ACCESSES 4096

struct cursor *swn_swap_order_cursor(struct swn_devswap *s, void *stream)
{
    struct cursor *oldest = &s->cursors[0];
    for (struct cursor *c = s->cursors; c < s->cursors + SWN_DEVSWAP_CURSORS; c++) {
        if (c->last_access && c->stream == stream)
            return c;
        if (c->last_access < oldest->last_access)
            oldest = c;
    }
    *oldest = (struct cursor){.stream = stream};
    return oldest;
}

/* In a first pass: the block that was made next. */
static struct swap_group *predicted(const struct swn_devswap *s, uint32_t before, uint32_t at)
{
    uint32_t next = swn_access_order_next(s->order, before, at);
    size_t i = swn_swap_group_from(s, next ? next : at + 1);
    return i < s->count && (!next || s->blocks[i]->id == next) ? s->blocks[i] : NULL;
}

void swn_swap_order_look_ahead(struct swn_devswap *s)
{
    for (size_t i = 0; i < s->count; i++) {
        s->blocks[i]->use.next_use = SWN_DEVSWAP_NEVER;
        s->blocks[i]->use.ahead = 0;
    }
    for (struct cursor *c = s->cursors; c < s->cursors + SWN_DEVSWAP_CURSORS; c++) {
        if (!c->last_access || s->accesses - c->last_access > IDLE_ACCESSES || !c->at.at)
            continue;
        uint32_t before = c->at.before, at = c->at.at;
        size_t bytes = 0, most = s->capacity / AHEAD_PART, here = swn_swap_group_from(s, at);
        struct swap_group *b;
        if (here < s->count && s->blocks[here]->id == at && s->accesses - c->last_access <= s->count)
            s->blocks[here]->use.next_use = 0; /* the block has other weights, too, which may be next */
        for (uint64_t step = 1; step <= s->count + 2 && (b = predicted(s, before, at)); step++) {
            if (step < b->use.next_use)
                b->use.next_use = step;
            bytes += b->bytes;
            b->use.ahead |= step == 1 || bytes <= most;
            before = at;
            at = b->id;
        }
    }
}

int swn_swap_order_record(struct swn_devswap *s, struct cursor *c, struct swap_group *b)
{
    b->last_use = c->last_access = ++s->accesses;
    if (c->at.at == b->id)
        return 0;
    swn_access_order_record(s->order, &c->at, b->id);
    return 1;
}
