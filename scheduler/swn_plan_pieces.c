#include "swn_plan_pieces.h"

/* The slices of a node, of which the last one has the rest. */
static uint64_t slices_of(const struct swn_plan_node *node)
{
    return node->bytes > node->piece ? node->bytes / node->piece : 1;
}

/* How many of `count` come before number k when all are put in the order of their bits, read backwards: the first ones
 * in it are spread evenly over 0..count-1, however many of them. */
static uint64_t rank(uint64_t k, uint64_t count)
{
    uint64_t before = 0;
    for (uint64_t bit = 1; bit < count; bit *= 2)
        if (k & bit) /* those that have 0 here, and the same below */
            before += (count - k % bit + 2 * bit - 1) / (2 * bit);
    return before;
}

/* The last one streams if any does: it has another length, and would be one with a kept one before it. */
static int streams(const struct swn_plan_node *node, uint64_t slice)
{
    uint64_t count = slices_of(node), kept = node->keep_bytes / node->piece;
    return rank(count - 1 - slice, count) < count - (kept < count ? kept : count);
}

int swn_plan_cuts(const struct swn_plan_node *node, uint64_t at)
{
    if (node->keep || !at || at >= node->bytes)
        return 0;
    if (node->sliced) {
        uint64_t slice = at / node->piece;
        return at % node->piece == 0 && slice < slices_of(node) && (streams(node, slice - 1) || streams(node, slice));
    }
    if (at <= node->keep_bytes)
        return at == node->keep_bytes;
    return node->piece && (at - node->keep_bytes) % node->piece == 0 && node->bytes - at >= node->piece;
}

uint64_t swn_plan_next_cut(const struct swn_plan_node *node, uint64_t at)
{
    uint64_t from = node->sliced ? 0 : node->keep_bytes, next = at < from ? from : node->bytes;
    if (at >= from && node->piece)
        next = at + node->piece - (at - from) % node->piece;
    while (next < node->bytes && !swn_plan_cuts(node, next))
        next = node->piece ? next + node->piece : node->bytes;
    return next < node->bytes ? next : node->bytes;
}

int swn_plan_keeps(const struct swn_plan_node *node, uint64_t from, uint64_t to)
{
    if (node->keep)
        return 1;
    to = to < node->bytes ? to : node->bytes;
    if (!node->sliced)
        return to <= node->keep_bytes;
    uint64_t last = slices_of(node) - 1, slice = from / node->piece;
    for (slice = slice < last ? slice : last; slice <= last && slice * node->piece < to; slice++)
        if (streams(node, slice))
            return 0;
    return 1;
}
