#include "swn_plan_pieces.h"

/* Kept and streamed slices of one weight take turns no more often: what is kept in between is a mapping, of which a
 * process has 65,530. */
#define MOST_TURNS 96

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

/* How many slices begin to stream before this one does, the less of the node is kept: by groups of neighbours from its
 * end on, of which the first one in the node may be smaller. The last slice is the first to stream: it has another
 * length, and would be one with a kept one before it. */
static uint64_t place_in_turn(uint64_t slice, uint64_t count)
{
    uint64_t group = (count + MOST_TURNS - 1) / MOST_TURNS, groups = (count + group - 1) / group;
    uint64_t k = count - 1 - slice, before = rank(k / group, groups);
    uint64_t missing = before > rank(groups - 1, groups) ? groups * group - count : 0;
    return before * group - missing + k % group;
}

static int streams(const struct swn_plan_node *node, uint64_t slice)
{
    uint64_t count = slices_of(node), kept = node->keep_bytes / node->piece;
    return place_in_turn(slice, count) < count - (kept < count ? kept : count);
}

static int in_slices(const struct swn_plan_node *node)
{
    return node->sliced && node->piece;
}

int swn_plan_cuts(const struct swn_plan_node *node, uint64_t at)
{
    if (node->keep || !at || at >= node->bytes)
        return 0;
    if (in_slices(node)) {
        uint64_t slice = at / node->piece;
        return at % node->piece == 0 && slice < slices_of(node) && (streams(node, slice - 1) || streams(node, slice));
    }
    if (at <= node->keep_bytes)
        return at == node->keep_bytes;
    return node->piece && (at - node->keep_bytes) % node->piece == 0 && node->bytes - at >= node->piece;
}

uint64_t swn_plan_next_cut(const struct swn_plan_node *node, uint64_t at)
{
    uint64_t from = in_slices(node) ? 0 : node->keep_bytes, next = at < from ? from : node->bytes;
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
    if (!in_slices(node))
        return to <= node->keep_bytes;
    uint64_t last = slices_of(node) - 1, slice = from / node->piece;
    for (slice = slice < last ? slice : last; slice <= last && slice * node->piece < to; slice++)
        if (streams(node, slice))
            return 0;
    return 1;
}
