/* Large weights in pieces that come and go on their own: where the plan has them cut, and before there is one. */
#define _GNU_SOURCE
#include <errno.h>

#include "swn_engine_priv.h"
#include "swn_plan.h"
#include "swn_plan_pieces.h"

/* So often a weight in slices that could not be cut as planned is tried again, before what it does get counts. */
#define TRIES 8

static size_t window_of(struct swn_engine *e)
{
    return e->pool ? swn_pool_window(e->pool) : 0;
}

int swn_cut_in_use(const struct swn_range *r)
{
    return r->pins || r->departure || r->readers || (r->frame && r->frame->users);
}

/* Whether all of it is in a frame that stays, and that frame is what its address names: as much of it as is wanted can
 * go, or stay, where it is. */
static int stays(const struct swn_range *r)
{
    const struct swn_frame *f = r->frame;
    return f && f->kept && f->state != SWN_FRAME_FILLING && r->published == f->size;
}

/* Gives up whatever frame it has, and what is mapped of it. */
static void empty(struct swn_engine *e, struct swn_range *r)
{
    if (r->published && swn_residency_remap(&e->res, r))
        swn_policy_home(e, r, 0);
    swn_policy_drop_frame(e, r);
}

/* Cuts one range, and what of it stays. 0, or -ENOMEM. */
static int split(struct swn_engine *e, struct swn_range *r, size_t at)
{
    struct swn_frame *f = stays(r) ? swn_pool_cut(e->pool, r->frame, at) : NULL;
    if (!f)
        empty(e, r);
    struct swn_range *rest = swn_arena_split(e->arena, r, at);
    if (!rest) {
        if (f)
            swn_pool_join(e->pool, r->frame, f);
        return -ENOMEM;
    }
    if (f) {
        rest->frame = f;
        rest->published = f->size;
        r->published = at;
        f->range = rest;
        f->range_id = rest->id;
    }
    if (atomic_load(&r->state) == SWN_STREAMED)
        r->file->refs++;
    return 0;
}

/* Cuts the weight whose first piece is `lead` so that a piece ends `at` bytes from its start. 0, or -EBUSY. */
static int cut(struct swn_engine *e, struct swn_range *lead, size_t at)
{
    struct swn_range *r = lead;
    while (r && r->addr + r->span <= lead->addr + at)
        r = r->rest;
    if (!r || r->addr == lead->addr + at)
        return 0;
    if (swn_cut_in_use(r))
        return -EBUSY;
    if (swn_residency_unshare(&e->res, r))
        return -EBUSY;
    return split(e, r, lead->addr + at - r->addr);
}

/* Whether the two pieces can be one again at no cost: neither holds anything that would have to be read once more. */
static int joinable(const struct swn_range *a, const struct swn_range *b)
{
    int state = atomic_load(&a->state), both_stay = stays(a) && stays(b);
    if (state != atomic_load(&b->state) || swn_cut_in_use(a) || swn_cut_in_use(b) || a->shared || b->shared ||
        (!both_stay && (a->frame || b->frame || a->published || b->published)) || a->written != b->written ||
        a->io_failed || b->io_failed || a->foreign_map != b->foreign_map)
        return 0;
    return state == SWN_HOME || (state == SWN_STREAMED && a->file == b->file && a->extent + a->span == b->extent &&
                                 a->extent_epoch == b->extent_epoch);
}

static void join(struct swn_engine *e, struct swn_range *r)
{
    if (atomic_load(&r->state) == SWN_STREAMED)
        r->rest->file->refs--;
    if (r->frame) {
        r->published += r->rest->published;
        swn_pool_join(e->pool, r->frame, r->rest->frame);
    }
    swn_arena_join(e->arena, r);
}

/* What a piece holds is read again, once, if that is in the way of joining it. */
static void empty_for_joining(struct swn_engine *e, struct swn_range *r)
{
    if (atomic_load(&r->state) != SWN_STREAMED || swn_cut_in_use(r) || !r->frame)
        return;
    if (r->published && swn_residency_remap(&e->res, r))
        return;
    swn_policy_drop_frame(e, r);
}

/* Joins the pieces between which the plan has no cut, so that they do not become ever smaller from plan to plan: slices
 * that nobody planned are shorter than those which are known to have the right bits, and what is streamed is lent by
 * pointer only where it is whole. `spare`: not by emptying what stays of what is kept, which the rest of it may yet
 * come to. */
static void join_as_planned(struct swn_engine *e, struct swn_range *lead, const struct swn_plan_node *node, int spare)
{
    for (struct swn_range *r = lead; r->rest;) {
        size_t at = r->rest->addr - lead->addr;
        int planned = swn_plan_cuts(node, at), kept = swn_plan_keeps(node, at, at + 1);
        if (!planned && (node->sliced || !kept) && !joinable(r, r->rest)) {
            if (!kept || !spare || !stays(r))
                empty_for_joining(e, r);
            if (!kept || !spare || !stays(r->rest))
                empty_for_joining(e, r->rest);
        }
        if (planned || !joinable(r, r->rest))
            r = r->rest;
        else
            join(e, r);
    }
}

/* Cuts the weight where the plan wants pieces of it to come and go on their own. 0, or -errno of `cut`. */
static int cut_as_planned(struct swn_engine *e, struct swn_range *lead, const struct swn_plan_node *node)
{
    int err = 0;
    for (uint64_t at = swn_plan_next_cut(node, 0); at < node->bytes && !err; at = swn_plan_next_cut(node, at))
        err = cut(e, lead, (size_t)at);
    return err;
}

void swn_cut_oversize(struct swn_engine *e, struct swn_range *r)
{
    size_t step = r->slice_unit ? r->slice_unit : SWN_GRANULE;
    size_t head = e->config.budget_bytes / 2 / step * step;
    if (!head || e->planned || r->len <= e->config.budget_bytes || r->lead != r || r->rest || !swn_is_weight(r) ||
        r->written || atomic_load(&r->state) != SWN_STREAMED || cut(e, r, head))
        return;
    r->keep = 1;
    r->rest->keep = 0;
    r->rest->oversize = 1;
}

int swn_cut_early(struct swn_engine *e, struct swn_arg *arg)
{
    struct swn_range *lead = arg->range;
    size_t bytes = swn_weight_len(lead), unit = lead->slice_unit;
    /* Without a pool nothing has left yet, or a forked child has not computed yet. */
    if (!e->pool || e->planned || arg->frame || (lead->rest && !lead->sliced) || lead->written ||
        atomic_load(&lead->state) != SWN_STREAMED || lead->readers != arg->reading)
        return 0;
    size_t least = 2 * (size_t)swn_plan_slice(unit, SWN_PLAN_NARROW_WINDOW);
    if (least > window_of(e))
        swn_policy_widen(e, least);
    struct swn_plan_node whole = {.bytes = bytes, .piece = swn_plan_slice(unit, window_of(e)), .sliced = 1};
    size_t piece = (size_t)whole.piece;
    if (bytes <= window_of(e) || 2 * piece > window_of(e))
        return 0;
    lead->readers -= arg->reading;
    join_as_planned(e, lead, &whole, 0);
    int err = cut_as_planned(e, lead, &whole);
    lead->readers += arg->reading;
    arg->remap = 0;
    lead->slice = piece;
    return lead->sliced = arg->sliced = !err && lead->rest;
}

/* Whether a piece ends where the plan has no cut. */
static int cut_otherwise(const struct swn_range *lead, const struct swn_plan_node *node)
{
    const struct swn_range *r = lead->rest;
    while (r && swn_plan_cuts(node, r->addr - lead->addr))
        r = r->rest;
    return r != NULL;
}

static void tell_pieces(struct swn_engine *e, struct swn_range *lead, const struct swn_plan_node *node)
{
    for (struct swn_range *r = lead; r; r = r->rest) {
        r->keep = swn_plan_keeps(node, r->addr - lead->addr, r->addr + r->len - lead->addr);
        r->oversize = !r->keep && node->oversize;
        if (!r->keep && r->frame && r->frame->kept && !swn_cut_in_use(r))
            swn_policy_unkeep(e, r);
    }
}

int swn_cut_apply(struct swn_engine *e, struct swn_range *lead, const struct swn_plan_node *node)
{
    if (lead->sliced && lead->readers) /* who has begun to take slices takes them all as they are */
        return -EBUSY;
    /* In this order: where less is to be kept than before, the rest stays. */
    int busy = cut_as_planned(e, lead, node) ? -EBUSY : 0;
    join_as_planned(e, lead, node, 1);
    lead->sliced = node->sliced;
    lead->planned_keep = (size_t)node->keep_bytes;
    lead->planned_piece = lead->slice = (size_t)node->piece;
    lead->cut_otherwise = node->sliced && cut_otherwise(lead, node) ? TRIES : 0;
    tell_pieces(e, lead, node);
    return busy;
}

/* The plan's, of a weight that is not kept whole. */
static struct swn_plan_node planned_node(const struct swn_range *lead, int sliced)
{
    return (struct swn_plan_node){.bytes = swn_weight_bytes(lead),
                                  .piece = lead->planned_piece,
                                  .keep_bytes = lead->planned_keep,
                                  .sliced = sliced};
}

void swn_cut_rejoin(struct swn_engine *e, struct swn_range *lead)
{
    struct swn_plan_node node = planned_node(lead, 0);
    if (e->planned && lead->lead == lead && lead->rest && !lead->sliced && !(lead->keep && !node.keep_bytes))
        join_as_planned(e, lead, &node, 1);
}

/* Of two pieces that are to be one slice one is here and the other is not. What is kept is as well at its own address
 * as in a frame; what is not leaves a little earlier than it would. */
static void make_alike(struct swn_engine *e, struct swn_range *lead, const struct swn_plan_node *node)
{
    for (struct swn_range *r = lead; r->rest; r = r->rest) {
        int home = atomic_load(&r->state) == SWN_HOME;
        struct swn_range *in = home ? r : r->rest, *out = home ? r->rest : r;
        size_t at = r->rest->addr - lead->addr;
        if (swn_plan_cuts(node, at) || atomic_load(&in->state) != SWN_HOME ||
            atomic_load(&out->state) != SWN_STREAMED || swn_cut_in_use(in) || swn_cut_in_use(out) || in->shared ||
            out->shared)
            continue;
        if (!swn_plan_keeps(node, at, at + 1) || stays(out) || swn_policy_bring_home(e, out, 0))
            swn_policy_spill(e, in);
    }
}

/* Where some of what is kept in one piece stays, the rest of it comes to it now. The lock is let go of while it is
 * read, but no plan cuts a weight that has a reader. */
static void complete_kept(struct swn_engine *e, struct swn_range *lead, struct swn_thread_state *t)
{
    struct swn_range *end = lead;
    for (struct swn_range *r = lead; t && r; r = end) {
        int some = 0;
        for (end = r; end && end->keep == r->keep; end = end->rest)
            some |= end->keep && stays(end);
        for (; some && r != end; r = r->rest) {
            struct swn_arg arg = {.use = SWN_USE_WEIGHT,
                                  .ours = 1,
                                  .reading = 1,
                                  .data = r->addr,
                                  .bytes = r->len,
                                  .range = r,
                                  .range_id = r->id};
            r->readers++;
            if (swn_reads_streamed(&arg) && !stays(r)) {
                swn_swapin_claim(e, &arg, t, 1);
                swn_window_lend(e, &arg, t);
            }
            swn_window_end_arg(e, &arg);
        }
    }
}

void swn_cut_once(struct swn_engine *e, const struct swn_op *op, struct swn_arg *arg, size_t unit)
{
    struct swn_range *lead = arg->range;
    size_t window = window_of(e), piece = lead->planned_piece > unit ? lead->planned_piece / unit * unit : unit;
    struct swn_plan_node node = {.bytes = swn_weight_bytes(lead),
                                 .piece = 2 * piece <= window ? piece : unit,
                                 .keep_bytes = lead->planned_keep / unit * unit,
                                 .sliced = 1};
    if (!lead->sliced || lead->written || unit > window || lead->readers != arg->reading)
        return;
    lead->readers -= arg->reading;
    cut_as_planned(e, lead, &node);
    make_alike(e, lead, &node);
    join_as_planned(e, lead, &node, 0);
    tell_pieces(e, lead, &node);
    lead->readers += arg->reading;
    lead->slice = (size_t)node.piece;
    lead->cut_otherwise = TRIES;
    lead->cut_for = op->seq;
}

void swn_cut_again(struct swn_engine *e, const struct swn_op *op, struct swn_arg *arg, struct swn_thread_state *t)
{
    struct swn_range *lead = arg->range;
    if (!e->planned || !lead->cut_otherwise || lead->cut_for == op->seq)
        return;
    struct swn_plan_node node = planned_node(lead, 1);
    lead->readers -= arg->reading;
    /* Not under the slices of another thread. */
    if (!lead->readers && !cut_as_planned(e, lead, &node)) {
        make_alike(e, lead, &node);
        tell_pieces(e, lead, &node);
        lead->readers += arg->reading;
        complete_kept(e, lead, t);
        lead->readers -= arg->reading;
        join_as_planned(e, lead, &node, 0);
    }
    lead->readers += arg->reading;
    tell_pieces(e, lead, &node);
    lead->slice = lead->planned_piece;
    lead->cut_otherwise = cut_otherwise(lead, &node) ? lead->cut_otherwise - 1 : 0;
}

void swn_cut_unkept(struct swn_engine *e, const struct swn_op *op, const struct swn_arg *arg, struct swn_range *r)
{
    struct swn_range *lead = r->lead;
    size_t slice = swn_slice_bytes(r), at = r->addr - lead->addr, end = at + r->len;
    if (!r->keep || r->frame || (slice == r->len && slice > window_of(e)) || lead->readers != arg->reading ||
        atomic_load(&r->state) != SWN_STREAMED || !swn_policy_offer_room(e, swn_round_up(r->len, SWN_PAGE)))
        return;
    lead->readers -= arg->reading;
    for (size_t next = at + slice; next < end && !cut(e, lead, next); next += slice)
        ;
    lead->readers += arg->reading;
    for (; r && r->addr < lead->addr + end; r = r->rest)
        r->keep = 0;
    lead->cut_otherwise = TRIES;
    lead->cut_for = op->seq;
}
