/* Weights that their operator takes slice by slice: which weights can be sliced, and how the slices are read one after
 * the other. The kernel is in shim/torch/slices.cpp. */
#define _GNU_SOURCE
#include "skeleton/engine/engine_internal.h"
#include "skeleton/load/load.h"
#include "skeleton/core/eviction.h"
#include "skeleton/core/op_window.h"
#include "skeleton/core/prefetch.h"
#include "skeleton/core/plan.h"
#include "skeleton/tiling/slice.h"
#include "skeleton/core/residency_steps.h"
#include "skeleton/engine/thread_state.h"
#include "skeleton/core/ring_size.h"
#include "skeleton/engine/section.h"

/* An operator that had to take the weight whole counts as much as this many operators that had not. */
#define REFUSED 4
/* At this count, operators that cannot use the slices are what the weight mostly gets. */
#define RECURS (3 * REFUSED)
/* Slices are made longer up to this part of the budget. */
#define LONGEST_PART 4
/* Operators of other shapes before a weight that was given up is sliced again; doubled each time. */
#define FIRST_PATIENCE 4
#define MOST_PATIENCE (1u << 20)
/* From this size on kernels always offer a weight, as there may only be room for a copy of a part of it. */
#define SLICED_ALWAYS ((uint64_t)4 << 20)
/* A budget that is this many times as large or small counts as another one. */
#define OTHER_BUDGET 2

/* The greatest common divisor of a and b. */
static uint64_t gcd(uint64_t a, uint64_t b)
{
    while (b) {
        uint64_t rest = a % b;
        a = b;
        b = rest;
    }
    return a;
}

/* The least common multiple of a and b, neither more than 2^32; 0: it is more than that. */
static uint64_t lcm(uint64_t a, uint64_t b)
{
    uint64_t found = a / gcd(a, b) * b;
    return found >> 32 ? 0 : found;
}

/* Slices are whole rows, and whole blocks of rows where needed; also whole blocks for every thread, or at least for
 * one, where that hardly lengthens the shortest slices. 0: the weight has fewer than two of them. */
static size_t unit_of(const struct swn_row_geometry *rows, size_t bytes)
{
    size_t most = bytes / rows->bytes, finest = SWN_GRANULE / (size_t)gcd(SWN_GRANULE, rows->bytes);
    if (finest >= most)
        return 0;
    if (rows->exact) {
        uint64_t unit = lcm(finest, rows->block);
        return unit && unit <= most / 2 ? rows->bytes * (size_t)unit : 0;
    }
    uint64_t slice = swn_plan_slice(rows->bytes * finest, SWN_PLAN_NARROW_WINDOW);
    for (int each = 1; each >= 0; each--) {
        uint64_t unit = lcm(finest, each ? rows->block * rows->threads : rows->block);
        if (unit && unit < most && swn_plan_slice(rows->bytes * unit, SWN_PLAN_NARROW_WINDOW) <= slice + slice / 8)
            return rows->bytes * (size_t)unit;
    }
    return rows->bytes * finest;
}

/* The unit itself, or, where other operators have rows of another length in the same weight, one that fits all of them.
 */
static size_t fitting_unit(size_t unit, const struct swn_row_geometry *rows, size_t bytes)
{
    if (unit && unit % (rows->bytes * (rows->exact ? rows->block : 1)) == 0)
        return unit;
    size_t own = unit_of(rows, bytes);
    if (!unit || !own)
        return unit ? unit : own;
    uint64_t both = lcm(unit / SWN_GRANULE, own / SWN_GRANULE);
    return both && both < bytes / SWN_GRANULE ? (size_t)both * SWN_GRANULE : unit;
}

/* A profile is for any budget. The times of operators, and the disk's speed, are known once there has been a plan. */
static int worth_slicing(struct swn_engine *e, const struct swn_range *r)
{
    size_t bytes = r->len;
    if (e->config.without & SWN_WITHOUT_SLICES)
        return 0;
    if (swn_plan_worth_slicing(bytes, e->features.record && !e->pool ? 0 : e->budget.target))
        return 1;
    return e->plan.planned && e->plan.short_of_disk && r->weight >= 0 &&
           swn_plan_gains_by_slices(bytes, e->budget.target, e->weights.all[r->weight].compute_ns,
                                    e->plan.replan.speed);
}

static void set_unit(struct swn_engine *e, struct swn_range *r, size_t unit)
{
    if (swn_tensor_of(r)->slice_unit == unit)
        return;
    swn_tensor_of(r)->slice_unit = unit;
    e->plan.dirty = 1;
}

/* The budget limits the length of slices, and whether there is room to try them. A decision within one budget, that
 * there are no slices or that they are longer, does not hold for another, which may have room for longer ones, or too
 * little room for those. */
static void forget_other_budget(struct swn_engine *e, struct swn_range *r)
{
    uint64_t then = swn_tensor_of(r)->slicing.budget, now = e->budget.target;
    if (!then ||
        (now < OTHER_BUDGET * then && now > then / OTHER_BUDGET && swn_tensor_of(r)->slice_unit <= now / LONGEST_PART))
        return;
    swn_tensor_of(r)->slicing = (struct swn_slicing){0};
    set_unit(e, r, 0);
}

/* Whether the weight is still given up, when an operator of this shape comes. */
static int given_up(struct swn_slicing *s, uint64_t shape)
{
    if (s->given_up_for && s->given_up_for != shape && ++s->others >= s->patience)
        s->given_up_for = s->budget = 0;
    return s->given_up_for != 0;
}

/* The argument's weight, if it can be sliced; NULL: not by this operator. */
static struct swn_range *weight_of(const struct swn_arg *arg)
{
    struct swn_range *r = arg->range;
    return r && r->id == arg->range_id && r->addr == arg->data && !r->mapped_file ? r : NULL;
}

/* While a model is profiled in memory nothing is cut, but the profile must have the slices in which its weights can be
 * lent: those of a narrow ring, or longer ones where these are not right. */
static size_t supposed(const struct swn_engine *e, const struct swn_arg *arg, const struct swn_range *r)
{
    size_t slice = e->features.record && !e->pool && !arg->sliced
                       ? (size_t)swn_plan_slice(swn_tensor_of(r)->slice_unit, SWN_PLAN_NARROW_WINDOW)
                       : 0;
    return slice <= r->len / 2 ? slice : 0;
}

/* The ring as the plan has counted it, so that slices are as long as in the plan; before there is a plan, the present
 * ring. */
static size_t window_of(const struct swn_engine *e)
{
    return e->pool ? e->plan.ring_goal - (e->plan.planned ? swn_pool_unit(e->pool) : 0) : 0;
}

/* The slices in which a weight fits the present ring: two of them have to fit. 0: none. */
static size_t fitting_slice(const struct swn_engine *e, const struct swn_range *r)
{
    size_t slice =
        swn_tensor_of(r)->slice_unit ? (size_t)swn_plan_slice(swn_tensor_of(r)->slice_unit, window_of(e)) : 0;
    return slice && 2 * slice <= window_of(e) && 2 * slice <= r->len ? slice : 0;
}

/* The slices of a plan, which knows whole chunks only: slices of whole rows may have to be a little shorter. */
static size_t planned_slice(const struct swn_engine *e, const struct swn_range *r)
{
    size_t unit = swn_tensor_of(r)->slice_unit, slice = fitting_slice(e, r),
           most = window_of(e) < r->len ? window_of(e) : r->len;
    return slice || !unit ? slice : most / 2 / unit * unit;
}

void swn_slice_set(struct swn_engine *e, struct swn_range *r, int sliced)
{
    if (swn_tensor_of(r)->sliced &&
        swn_tensor_of(r)->readers) /* an operator that has begun to take slices takes all of them unchanged */
        return;
    swn_tensor_of(r)->slice = sliced ? planned_slice(e, r) : 0;
    swn_tensor_of(r)->sliced = swn_tensor_of(r)->slice != 0;
}

/* Before there is a plan: a weight that does not fit the ring is sliced from the start. */
static void slice_early(struct swn_engine *e, struct swn_arg *arg)
{
    struct swn_range *r = arg->range;
    size_t least = 2 * (size_t)swn_plan_slice(swn_tensor_of(r)->slice_unit, SWN_PLAN_NARROW_WINDOW);
    /* Without a pool nothing has left yet, or this is a forked child that has not computed yet. */
    if (!e->pool || e->plan.planned || swn_tensor_of(r)->written || atomic_load(&r->state) != SWN_FILE_BACKED ||
        swn_tensor_of(r)->readers != arg->reading)
        return;
    if (least > window_of(e) && least <= e->budget.limit / 3)
        swn_ring_resize(e, least);
    if (r->len <= window_of(e))
        return;
    swn_tensor_of(r)->slice = fitting_slice(e, r);
    swn_tensor_of(r)->sliced = arg->sliced = swn_tensor_of(r)->slice != 0;
    if (!swn_tensor_of(r)->sliced)
        return;
    arg->slice = swn_tensor_of(r)->slice;
    arg->remap = 0;
    swn_window_release(e, arg); /* the part that was read before the offer stays while there is room */
}

size_t swn_slice_offer(struct swn_op *op, unsigned index, const struct swn_row_geometry *rows)
{
    SWN_SECTION();
    struct swn_engine *e = &swn_engine_one;
    struct swn_arg *arg = &op->args[index];
    size_t to_try = 0;
    swn_lock(&e->lock);
    struct swn_range *r = weight_of(arg);
    if (r)
        forget_other_budget(e, r);
    if (r && !given_up(&swn_tensor_of(r)->slicing, rows->shape)) {
        size_t bytes = r->len;
        if (swn_tensor_of(r)->slice_unit || worth_slicing(e, r))
            set_unit(e, r, fitting_unit(swn_tensor_of(r)->slice_unit, rows, bytes));
        /* At any time before the plan: at its first operator the weight may still have been in memory. */
        if (swn_tensor_of(r)->slice_unit) {
            slice_early(e, arg);
            to_try = supposed(e, arg, r);
        }
    }
    swn_unlock(&e->lock);
    return to_try;
}

size_t swn_slice_least(void)
{
    return atomic_load_explicit(&swn_engine_one.budget.slices_least, memory_order_relaxed);
}

void swn_slice_set_least(struct swn_engine *e)
{
    uint64_t least = SWN_PLAN_SLICED_LEAST;
    while (!e->features.record && least < SLICED_ALWAYS && !swn_plan_worth_slicing(least + 1, e->budget.target))
        least *= 2;
    atomic_store_explicit(&e->budget.slices_least, (size_t)least, memory_order_relaxed);
}

int swn_slice_wanted(struct swn_op *op, unsigned index, uint64_t shape)
{
    SWN_SECTION();
    struct swn_engine *e = &swn_engine_one;
    swn_lock(&e->lock);
    struct swn_range *r = weight_of(&op->args[index]);
    int wanted =
        r && swn_tensor_of(r)->slicing.given_up_for != shape && (swn_tensor_of(r)->slice_unit || worth_slicing(e, r));
    swn_unlock(&e->lock);
    return wanted;
}

/* The shortest slice of the weight, apart from the limit of the ring. */
static size_t shortest(const struct swn_engine *e, const struct swn_range *r)
{
    size_t window = window_of(e);
    size_t own = (size_t)swn_plan_slice(swn_tensor_of(r)->slice_unit, window ? window : (size_t)SWN_PLAN_NARROW_WINDOW);
    return swn_tensor_of(r)->sliced && swn_tensor_of(r)->slice > own ? swn_tensor_of(r)->slice : own;
}

/* The next longer slices than `tried` bytes; 0: those are the longest. */
static size_t longer(const struct swn_engine *e, const struct swn_range *r, size_t tried)
{
    size_t next = 2 * tried;
    return next <= r->len / 2 && next <= e->budget.target / LONGEST_PART ? next : 0;
}

/* No slices are right for this shape. If they are right for other shapes, only this one takes the weight whole. */
static void give_up(struct swn_engine *e, struct swn_range *r, uint64_t shape)
{
    struct swn_slicing *s = &swn_tensor_of(r)->slicing;
    if (!s->accepted) {
        s->given_up_for = shape;
        s->budget = e->budget.target;
        s->others = 0;
        s->patience = !s->patience ? FIRST_PATIENCE : s->patience < MOST_PATIENCE ? 2 * s->patience : s->patience;
        set_unit(e, r, 0);
    }
}

/* When an operator cannot use the slices, other lengths are tried for that operator, and it gets longer slices if these
 * are right. Later operators get other slices only if this keeps happening: a program that once has another batch, or
 * another number of threads, continues as before. Slices only become longer, and each time only after twice as long, so
 * that plans do not alternate. */
/* From now on the weight has slices of `tried` bytes, which are right for the recurring shape; or none, if `next` is 0.
 */
static void decide(struct swn_engine *e, struct swn_arg *arg, uint64_t shape, size_t tried, int right, size_t next)
{
    struct swn_slicing *s = &swn_tensor_of(arg->range)->slicing;
    if (!right && (next || s->refused < RECURS))
        return;
    if (right) {
        set_unit(e, arg->range, tried);
        s->budget = e->budget.target;
        slice_early(e, arg);
    } else {
        give_up(e, arg->range, shape);
    }
    s->refused = 0;
    s->accepted = 0;
    s->plan = right ? e->plan.made + 1 : 0;
}

size_t swn_slice_refused(struct swn_op *op, unsigned index, uint64_t shape, size_t tried, int right)
{
    SWN_SECTION();
    struct swn_engine *e = &swn_engine_one;
    size_t next = 0;
    swn_lock(&e->lock);
    struct swn_arg *arg = &op->args[index];
    struct swn_range *r = weight_of(arg);
    struct swn_slicing *s = r ? &swn_tensor_of(r)->slicing : NULL;
    if (r && !tried && swn_tensor_of(r)->slice_unit && e->plan.made >= s->plan)
        s->refused += REFUSED;
    /* Before there is a plan the present slices serve no other operator, and each pass that reads the weight through
     * its mapping may take long: slices that are right this once are better. */
    int recurs = r && s->refused >= (e->plan.planned ? RECURS : REFUSED);
    if (recurs || (r && swn_tensor_of(r)->slice_unit && e->plan.planned))
        next = right ? 0 : longer(e, r, tried ? tried : shortest(e, r));
    /* This once, and one at a time if there is no room for two: reading through the mapping would take far longer. */
    if (right && r && arg->sliced && e->pool && tried + swn_pool_unit(e->pool) <= e->plan.ring_goal)
        arg->slice = tried;
    if (recurs)
        decide(e, arg, shape, tried, right, next);
    swn_unlock(&e->lock);
    return next;
}

size_t swn_slice_list(struct swn_op *op, unsigned index, struct swn_slices *slices, size_t most)
{
    SWN_SECTION();
    struct swn_engine *e = &swn_engine_one;
    swn_lock(&e->lock);
    const struct swn_arg *arg = &op->args[index];
    const struct swn_range *r = weight_of(arg);
    size_t each = arg->slice, count = r && each ? r->len / each : 0, n = 0;
    if (count > 1 && most >= 2)
        slices[n++] = (struct swn_slices){each, count - 1};
    if (count && most >= 2)
        slices[n++] = (struct swn_slices){r->len - (count - 1) * each, 1};
    swn_unlock(&e->lock);
    return n;
}

void swn_slice_next(struct swn_thread_state *t, const struct swn_arg *arg, size_t off)
{
    t->slicing = off < arg->upto ? arg->data + off : 0;
    t->slicing_end = arg->data + arg->upto;
}

const void *swn_slice_lend(struct swn_op *op, unsigned index, size_t off, size_t bytes)
{
    SWN_SECTION();
    struct swn_engine *e = &swn_engine_one;
    struct swn_arg *arg = &op->args[index];
    swn_lock(&e->lock);
    uint64_t begin = swn_now_ns();
    struct swn_thread_state *t = swn_window_thread(e);
    struct swn_range *r = weight_of(arg);
    int lent = r && bytes && off < r->len && bytes <= r->len - off;
    if (lent) {
        arg->sliced = 2;
        e->counters.slices++;
        swn_tensor_of(r)->last_use = e->ops.seq;
        swn_slice_next(t, arg, off + bytes);
        if (swn_arg_is_file_backed(arg) && (e->fetch || !swn_open_pool(e)) && e->pool) {
            swn_window_hold(e, arg, off, off + bytes);
            swn_window_lend(e, arg, t);
        }
    } else {
        swn_window_release(e, arg);
        t->slicing = 0;
        if (bytes) /* the rest is read at its own address */
            arg->sliced = !r || !swn_window_whole(e, arg, t);
    }
    swn_prefetch_run(e, t);
    t->ready_ns += swn_now_ns() - begin; /* waiting is not computing */
    swn_unlock(&e->lock);
    return lent ? (const char *)arg->data + off : NULL;
}

void swn_slice_end(struct swn_engine *e, struct swn_op *op, struct swn_arg *arg)
{
    (void)op;
    int alive = arg->range && arg->range->id == arg->range_id;
    if (alive && arg->sliced == 2) {
        swn_tensor_of(arg->range)->slicing.accepted = 1;
        swn_tensor_of(arg->range)->slicing.refused -= swn_tensor_of(arg->range)->slicing.refused > 0;
    }
    if (alive && arg->sliced == 1) { /* not taken in slices after all: pages of its mapping have been read */
        swn_load_verify(e, arg->range);
        arg->remap = 1;
    }
}

/* Where a pass is laid out, the copy has its place in the region like any other tensor. */
int swn_slice_copy_room(size_t bytes)
{
    SWN_SECTION();
    struct swn_engine *e = &swn_engine_one;
    swn_lock(&e->lock);
    size_t placed = swn_arena_region_idle(e->arena);
    int fits = placed >= bytes || swn_reclaim_if_idle(e, bytes) == 0;
    swn_unlock(&e->lock);
    return fits;
}
