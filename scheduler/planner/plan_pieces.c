/* scheduler/planner/plan_pieces.c - see plan_pieces.h. */
#include "scheduler/planner/plan_pieces.h"

/* Slices take turns in groups; a group has the slices that begin within the same GROUP_BYTES of the weight. The length
 * of a group does not depend on the length of slices, so a plan with another window, and therefore other slices, keeps
 * mostly the same bytes. A weight has at most MOST_GROUPS groups, as each kept one is a mapping. */
#define GROUP_BYTES ((uint64_t)8 << 20)
#define MOST_GROUPS 64

/* The number of slices of a weight. The last slice has the remainder, too. */
static uint64_t slices_of(const struct swn_plan_weight *weight)
{
    return weight->bytes > weight->piece ? weight->bytes / weight->piece : 1;
}

/* The position of number k when 0..count-1 are sorted by their bits read backwards. The first numbers in that order,
 * however many are taken, are spread evenly over 0..count-1. */
static uint64_t rank(uint64_t k, uint64_t count)
{
    uint64_t before = 0;
    for (unsigned bit = 0; count > (uint64_t)1 << bit; bit++)
        if (k >> bit & 1) /* numbers with 0 here, and the same bits below */
            before += (count - (k & (((uint64_t)1 << bit) - 1)) + ((uint64_t)2 << bit) - 1) >> (bit + 1);
    return before;
}

/* How many slices, not counting the last one, begin before `at`. */
static uint64_t slices_before(const struct swn_plan_weight *weight, uint64_t at)
{
    uint64_t n = (at + weight->piece - 1) / weight->piece, most = slices_of(weight) - 1;
    return n < most ? n : most;
}

/* The turn of a slice: how many slices begin to stream before this one as less of the weight is kept. The last slice
 * has turn 0, as it has another length, and kept beside a kept slice it would be one piece with it. Then the groups
 * take turns, each from its end to its beginning. */
static uint64_t place_in_turn(const struct swn_plan_weight *weight, uint64_t slice)
{
    uint64_t bytes = GROUP_BYTES, before = 1;
    if (slice + 1 == slices_of(weight))
        return 0;
    while ((weight->bytes - 1) / bytes >= MOST_GROUPS)
        bytes *= 2;
    uint64_t groups = (weight->bytes - 1) / bytes + 1, own = slice * weight->piece / bytes;
    uint64_t turn = rank(groups - 1 - own, groups);
    for (uint64_t g = 0; g < groups; g++)
        if (rank(groups - 1 - g, groups) < turn)
            before += slices_before(weight, (g + 1) * bytes) - slices_before(weight, g * bytes);
    return before + slices_before(weight, (own + 1) * bytes) - 1 - slice;
}

/* Whether the slice is streamed. Of a weight that is not kept whole at least one slice is. */
static int streams(const struct swn_plan_weight *weight, uint64_t slice)
{
    uint64_t count = slices_of(weight), kept = weight->keep_bytes / weight->piece;
    return place_in_turn(weight, slice) < count - (kept < count ? kept : count - 1);
}

static int in_slices(const struct swn_plan_weight *weight)
{
    return weight->sliced && weight->piece;
}

int swn_plan_cuts(const struct swn_plan_weight *weight, uint64_t at)
{
    if (weight->keep || !at || at >= weight->bytes)
        return 0;
    if (in_slices(weight)) {
        uint64_t slice = at / weight->piece;
        return at % weight->piece == 0 && slice < slices_of(weight) &&
               (streams(weight, slice - 1) || streams(weight, slice));
    }
    if (at <= weight->keep_bytes)
        return at == weight->keep_bytes;
    return weight->piece && (at - weight->keep_bytes) % weight->piece == 0 && weight->bytes - at >= weight->piece;
}

uint64_t swn_plan_next_cut(const struct swn_plan_weight *weight, uint64_t at)
{
    uint64_t from = in_slices(weight) ? 0 : weight->keep_bytes, next = at < from ? from : weight->bytes;
    if (at >= from && weight->piece)
        next = at + weight->piece - (at - from) % weight->piece;
    while (next < weight->bytes && !swn_plan_cuts(weight, next))
        next = weight->piece ? next + weight->piece : weight->bytes;
    return next < weight->bytes ? next : weight->bytes;
}

int swn_plan_keeps(const struct swn_plan_weight *weight, uint64_t from, uint64_t to)
{
    if (weight->keep)
        return 1;
    to = to < weight->bytes ? to : weight->bytes;
    if (!in_slices(weight))
        return to <= weight->keep_bytes;
    uint64_t last = slices_of(weight) - 1, slice = from / weight->piece;
    for (slice = slice < last ? slice : last; slice <= last && slice * weight->piece < to; slice++)
        if (streams(weight, slice))
            return 0;
    return 1;
}
