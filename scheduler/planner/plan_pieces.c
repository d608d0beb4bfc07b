#include "scheduler/planner/plan_pieces.h"

/* Slices take turns in groups of those that begin in the same so many bytes: how long slices are goes by the window,
 * and another one is no reason to keep other bytes. In at most so many groups, as each kept one is a mapping. */
#define GROUP_BYTES ((uint64_t)8 << 20)
#define MOST_GROUPS 64

/* The slices of a node, of which the last one has the rest. */
static uint64_t slices_of(const struct swn_plan_weight *node)
{
    return node->bytes > node->piece ? node->bytes / node->piece : 1;
}

/* How many of `count` come before number k when all are put in the order of their bits, read backwards: the first ones
 * in it are spread evenly over 0..count-1, however many of them. */
static uint64_t rank(uint64_t k, uint64_t count)
{
    uint64_t before = 0;
    for (unsigned bit = 0; count > (uint64_t)1 << bit; bit++)
        if (k >> bit & 1) /* those that have 0 here, and the same below */
            before += (count - (k & (((uint64_t)1 << bit) - 1)) + ((uint64_t)2 << bit) - 1) >> (bit + 1);
    return before;
}

/* How many slices but for the last one begin before `at`. */
static uint64_t slices_before(const struct swn_plan_weight *node, uint64_t at)
{
    uint64_t n = (at + node->piece - 1) / node->piece, most = slices_of(node) - 1;
    return n < most ? n : most;
}

/* How many slices begin to stream before this one does, the less of the node is kept: the last one first, as it has
 * another length, and would be one with a kept one before it; then group by group, each from its end on. */
static uint64_t place_in_turn(const struct swn_plan_weight *node, uint64_t slice)
{
    uint64_t bytes = GROUP_BYTES, before = 1;
    if (slice + 1 == slices_of(node))
        return 0;
    while ((node->bytes - 1) / bytes >= MOST_GROUPS)
        bytes *= 2;
    uint64_t groups = (node->bytes - 1) / bytes + 1, own = slice * node->piece / bytes;
    uint64_t turn = rank(groups - 1 - own, groups);
    for (uint64_t g = 0; g < groups; g++)
        if (rank(groups - 1 - g, groups) < turn)
            before += slices_before(node, (g + 1) * bytes) - slices_before(node, g * bytes);
    return before + slices_before(node, (own + 1) * bytes) - 1 - slice;
}

/* Of one that is not kept whole something does. */
static int streams(const struct swn_plan_weight *node, uint64_t slice)
{
    uint64_t count = slices_of(node), kept = node->keep_bytes / node->piece;
    return place_in_turn(node, slice) < count - (kept < count ? kept : count - 1);
}

static int in_slices(const struct swn_plan_weight *node)
{
    return node->sliced && node->piece;
}

int swn_plan_cuts(const struct swn_plan_weight *node, uint64_t at)
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

uint64_t swn_plan_next_cut(const struct swn_plan_weight *node, uint64_t at)
{
    uint64_t from = in_slices(node) ? 0 : node->keep_bytes, next = at < from ? from : node->bytes;
    if (at >= from && node->piece)
        next = at + node->piece - (at - from) % node->piece;
    while (next < node->bytes && !swn_plan_cuts(node, next))
        next = node->piece ? next + node->piece : node->bytes;
    return next < node->bytes ? next : node->bytes;
}

int swn_plan_keeps(const struct swn_plan_weight *node, uint64_t from, uint64_t to)
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
