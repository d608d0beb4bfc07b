/* Weights that their operator takes slice by slice: which ones can, and the lending of one slice after the other. The
 * kernel that does it is in aten_slices.cpp; no one else ever sees a slice's address, so it may lie in the pool
 * whatever threads there are. */
#define _GNU_SOURCE

#include "swn_engine_priv.h"
#include "swn_gcd.h"
#include "swn_load.h"

/* An operator that had to take the weight whole weighs as much as so many that had not. */
#define REFUSED 4
/* So many of them in a row, or a little more among others, and they are what the weight really gets. */
#define RECURS (3 * REFUSED)
/* Slices are made longer up to this part of the budget. */
#define LONGEST_PART 4
/* So many operators of other shapes, then twice as many each time, before a weight that was given up is sliced again.
 */
#define FIRST_PATIENCE 4
#define MOST_PATIENCE (1u << 20)
/* From this size up kernels always offer a weight, as a copy of part of it may be all that there is room for. */
#define SLICED_ALWAYS ((uint64_t)4 << 20)
/* So many times as large or as small, and a budget is another one. */
#define OTHER_BUDGET 2

/* Of a and b, neither more than 2^32; 0: more than that. */
static uint64_t lcm(uint64_t a, uint64_t b)
{
    uint64_t found = a / swn_gcd(a, b) * b;
    return found >> 32 ? 0 : found;
}

/* Cuts fall on whole rows and on granules of the arena; and on whole blocks of rows, where it has to be; or on those
 * for every thread, or at least for one, where that makes the shortest slices hardly longer. 0: they never meet within
 * the weight. */
static size_t unit_of(const struct swn_rows *rows, size_t bytes)
{
    size_t most = bytes / rows->bytes, finest = SWN_GRANULE / (size_t)swn_gcd(SWN_GRANULE, rows->bytes);
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

/* As it is, or, where others have rows of another length in the same weight, one that fits all of them. */
static size_t fitting_unit(size_t unit, const struct swn_rows *rows, size_t bytes)
{
    if (unit && unit % (rows->bytes * (rows->exact ? rows->block : 1)) == 0)
        return unit;
    size_t own = unit_of(rows, bytes);
    if (!unit || !own)
        return unit ? unit : own;
    uint64_t both = lcm(unit / SWN_GRANULE, own / SWN_GRANULE);
    return both && both < bytes / SWN_GRANULE ? (size_t)both * SWN_GRANULE : unit;
}

/* A profile is for any budget. What an operator takes, and what the disk gives, is known once there has been a plan. */
static int worth_slicing(struct swn_engine *e, const struct swn_range *r)
{
    size_t bytes = swn_weight_len(r);
    if (e->config.without & SWN_WITHOUT_SLICES)
        return 0;
    if (swn_plan_worth_slicing(bytes, e->record && !e->pool ? 0 : e->goal_bytes))
        return 1;
    return e->planned && e->plan_short && r->node >= 0 &&
           swn_plan_gains_by_slices(bytes, e->goal_bytes, e->nodes[r->node].compute_ns, e->drift.speed);
}

static void set_unit(struct swn_engine *e, struct swn_range *r, size_t unit)
{
    if (r->slice_unit == unit)
        return;
    r->slice_unit = unit;
    e->plan_dirty = 1;
}

/* How long slices may be, and whether there is room to try them, is the budget's to say. What was decided within one,
 * that there are no slices or that they are longer, says nothing of another, which may have room for longer ones, or
 * none for those. */
static void forget_other_budget(struct swn_engine *e, struct swn_range *r)
{
    uint64_t then = r->slicing.budget, now = e->goal_bytes;
    if (!then || (now < OTHER_BUDGET * then && now > then / OTHER_BUDGET && r->slice_unit <= now / LONGEST_PART))
        return;
    r->slicing = (struct swn_slicing){0};
    set_unit(e, r, 0);
}

/* Whether the weight is still given up, of which an operator of this shape has come. */
static int given_up(struct swn_slicing *s, uint64_t shape)
{
    if (s->given_up_for && s->given_up_for != shape && ++s->others >= s->patience)
        s->given_up_for = s->budget = 0;
    return s->given_up_for != 0;
}

/* The argument's weight, where it can be sliced; NULL: not by this operator. */
static struct swn_range *weight_of(const struct swn_arg *arg)
{
    struct swn_range *r = arg->range;
    return r && r->id == arg->range_id && r->lead == r && r->addr == arg->data && !r->guest ? r : NULL;
}

/* While a model is profiled in memory nothing is cut, and still the profile has to say in which slices its weights can
 * be lent: those that a narrow window would get, or longer ones where they are not right. */
static size_t supposed(const struct swn_engine *e, const struct swn_arg *arg, const struct swn_range *r)
{
    size_t slice =
        e->record && !e->pool && !arg->sliced ? (size_t)swn_plan_slice(r->slice_unit, SWN_PLAN_NARROW_WINDOW) : 0;
    return slice <= swn_weight_len(r) / 2 ? slice : 0;
}

size_t swn_slice_offer(struct swn_op *op, unsigned index, const struct swn_rows *rows)
{
    struct swn_engine *e = &swn_engine_one;
    struct swn_arg *arg = &op->args[index];
    size_t to_try = 0;
    pthread_mutex_lock(&e->lock);
    struct swn_range *r = weight_of(arg);
    if (r)
        forget_other_budget(e, r);
    if (r && !given_up(&r->slicing, rows->shape)) {
        size_t bytes = swn_weight_len(r);
        if (r->slice_unit || worth_slicing(e, r))
            set_unit(e, r, fitting_unit(r->slice_unit, rows, bytes));
        /* At any time before the plan: the first time it may still have been in memory. */
        if (r->slice_unit) {
            swn_cut_early(e, arg);
            to_try = supposed(e, arg, r);
        }
    }
    pthread_mutex_unlock(&e->lock);
    return to_try;
}

size_t swn_slice_least(void)
{
    return atomic_load_explicit(&swn_engine_one.slices_least, memory_order_relaxed);
}

void swn_slice_set_least(struct swn_engine *e)
{
    uint64_t least = SWN_PLAN_SLICED_LEAST;
    while (!e->record && least < SLICED_ALWAYS && !swn_plan_worth_slicing(least + 1, e->goal_bytes))
        least *= 2;
    atomic_store_explicit(&e->slices_least, (size_t)least, memory_order_relaxed);
}

int swn_slice_wanted(struct swn_op *op, unsigned index, uint64_t shape)
{
    struct swn_engine *e = &swn_engine_one;
    pthread_mutex_lock(&e->lock);
    struct swn_range *r = weight_of(&op->args[index]);
    int wanted = r && r->slicing.given_up_for != shape && (r->slice_unit || worth_slicing(e, r));
    pthread_mutex_unlock(&e->lock);
    return wanted;
}

/* The shortest slice that the weight is cut into, or would be: the first that kernels compute in another way. */
static size_t shortest(const struct swn_engine *e, const struct swn_range *lead)
{
    if (!lead->rest)
        return (size_t)swn_plan_slice(lead->slice_unit, e->pool ? swn_pool_window(e->pool) : SWN_PLAN_NARROW_WINDOW);
    size_t bytes = lead->len;
    for (const struct swn_range *r = lead->rest; r; r = r->rest)
        bytes = r->len < bytes ? r->len : bytes;
    return (bytes + lead->slice_unit - 1) / lead->slice_unit * lead->slice_unit;
}

/* Slices after those of `tried` bytes; 0: those are the longest. */
static size_t longer(const struct swn_engine *e, const struct swn_range *r, size_t tried)
{
    size_t next = 2 * tried;
    return next <= swn_weight_len(r) / 2 && next <= e->goal_bytes / LONGEST_PART ? next : 0;
}

/* No slices are right for this shape. Where others are served by them, it alone comes whole. */
static void give_up(struct swn_engine *e, struct swn_range *r, uint64_t shape)
{
    struct swn_slicing *s = &r->slicing;
    if (!s->accepted) {
        s->given_up_for = shape;
        s->budget = e->goal_bytes;
        s->others = 0;
        s->patience = !s->patience ? FIRST_PATIENCE : s->patience < MOST_PATIENCE ? 2 * s->patience : s->patience;
        set_unit(e, r, 0);
    }
}

/* That is tried out already, when it happens, for one operator, and where longer slices are right, that one has them.
 * The next ones get other slices only if it keeps happening: a program that has another batch once, or another number
 * of threads, goes on as before. Slices only become longer, and waiting twice as long each time, so that plans do not
 * go to and fro. */
size_t swn_slice_refused(struct swn_op *op, unsigned index, uint64_t shape, size_t tried, int right)
{
    struct swn_engine *e = &swn_engine_one;
    size_t next = 0;
    pthread_mutex_lock(&e->lock);
    struct swn_range *r = weight_of(&op->args[index]);
    struct swn_slicing *s = r ? &r->slicing : NULL;
    if (r && !tried && r->slice_unit && e->plans >= s->plan && !r->cut_otherwise)
        s->refused += REFUSED;
    /* Before there is a plan nothing else is served by slices as they are, and each pass that reads the weight through
     * its mapping may take long: what is right this once is better than that. */
    int recurs = r && s->refused >= (e->planned ? RECURS : REFUSED);
    if (recurs || (r && r->slice_unit && e->planned))
        next = right ? 0 : longer(e, r, tried ? tried : shortest(e, r));
    if (right && r && e->planned)
        swn_cut_once(e, op, &op->args[index], tried);
    if (recurs && right) {
        set_unit(e, r, tried);
        s->budget = e->goal_bytes;
        swn_cut_early(e, &op->args[index]);
    } else if (recurs && !next && s->refused >= RECURS) {
        give_up(e, r, shape);
    }
    if (recurs && (right || (!next && s->refused >= RECURS))) {
        s->refused = 0;
        s->accepted = 0;
        s->plan = right ? e->plans + 1 : 0;
    }
    pthread_mutex_unlock(&e->lock);
    return next;
}

size_t swn_slice_bytes(const struct swn_range *r)
{
    size_t slice = r->lead->slice;
    return slice && (r->addr - r->lead->addr) % slice == 0 && r->len % slice == 0 ? slice : r->len;
}

size_t swn_slice_list(struct swn_op *op, unsigned index, struct swn_slices *slices, size_t most)
{
    struct swn_engine *e = &swn_engine_one;
    size_t n = 0;
    pthread_mutex_lock(&e->lock);
    swn_cut_again(e, op, &op->args[index], swn_window_thread(e));
    struct swn_range *r = op->args[index].range;
    for (; r; r = r->rest) {
        size_t bytes = swn_slice_bytes(r);
        if (!n || slices[n - 1].bytes != bytes) {
            if (n == most)
                break;
            slices[n++] = (struct swn_slices){bytes, 0};
        }
        slices[n - 1].count += r->len / bytes;
    }
    pthread_mutex_unlock(&e->lock);
    return r ? 0 : n;
}

/* The piece of the weight that these bytes are a slice of, or NULL. */
static struct swn_range *piece_at(struct swn_engine *e, const struct swn_arg *arg, size_t off, size_t bytes)
{
    struct swn_range *r = off < arg->bytes ? swn_arena_find(e->arena, arg->data + off) : NULL;
    if (!r || r->lead != arg->range || swn_slice_bytes(r) != bytes || (arg->data + off - r->addr) % bytes)
        return NULL;
    return r;
}

void swn_slice_next(struct swn_thread_state *t, const struct swn_arg *arg, const struct swn_range *r)
{
    t->slicing = r ? r->addr : 0;
    t->slicing_end = arg->data + arg->upto;
}

const void *swn_slice_lend(struct swn_op *op, unsigned index, size_t off, size_t bytes)
{
    struct swn_engine *e = &swn_engine_one;
    struct swn_arg *arg = &op->args[index], *slice = &op->slice;
    pthread_mutex_lock(&e->lock);
    uint64_t begin = swn_now_ns();
    struct swn_thread_state *t = swn_window_thread(e);
    struct swn_range *r = bytes ? piece_at(e, arg, off, bytes) : NULL;
    int lent = r && slice->range == r && slice->range_id == r->id; /* it is, for the slice before this one */
    if (!lent) {
        swn_window_end_arg(e, slice);
        *slice = (struct swn_arg){.use = SWN_USE_WEIGHT, .ours = 1};
        t->slicing = 0;
    }
    e->slices += r != NULL;
    if (r && !lent) {
        swn_cut_unkept(e, op, arg, r);
        arg->sliced = 2;
        slice->data = r->addr;
        slice->bytes = r->len;
        slice->range = r;
        slice->range_id = r->id;
        slice->reading = 1;
        r->readers++;
        r->last_use = e->seq;
        swn_slice_next(t, arg, r->rest);
        if (swn_reads_streamed(slice)) {
            if (!e->fetch)
                swn_policy_pool(e);
            swn_swapin_claim(e, slice, t, 1);
            swn_window_lend(e, slice, t);
            swn_load_slice(e, t, slice);
        }
    } else if (bytes && !r) {
        arg->sliced = 1; /* from here on by its own address */
    }
    swn_swapin_ahead(e, t);
    t->ready_ns += swn_now_ns() - begin; /* waiting is not computing */
    const void *at = r ? (char *)(slice->borrowed ? slice->borrowed : slice->data) + (arg->data + off - r->addr) : NULL;
    pthread_mutex_unlock(&e->lock);
    return at;
}

void swn_slice_end(struct swn_engine *e, struct swn_op *op, struct swn_arg *arg)
{
    swn_window_end_arg(e, &op->slice);
    op->slice = (struct swn_arg){0};
    int alive = arg->range && arg->range->id == arg->range_id;
    struct swn_thread_state *t = swn_window_thread(e);
    if (alive && t)
        swn_load_slices_end(e, t, arg->range, arg->sliced == 2);
    if (alive && arg->sliced == 2) {
        arg->range->slicing.accepted = 1;
        arg->range->slicing.refused -= arg->range->slicing.refused > 0;
    }
    /* Not in slices after all: pages of its mapping have been read. */
    struct swn_range *r = arg->sliced == 1 && alive ? arg->range->rest : NULL;
    for (; r; r = r->rest) {
        swn_window_forget(e, r);
        swn_policy_settle(e, r);
    }
    arg->remap = arg->sliced == 1;
}

/* Where a pass is laid out, the copy has its place in the plot like any other tensor. */
int swn_slice_copy_room(size_t bytes)
{
    struct swn_engine *e = &swn_engine_one;
    pthread_mutex_lock(&e->lock);
    size_t placed = swn_arena_plot_idle(e->arena) + e->lodged_plotted;
    int fits = placed >= bytes || swn_policy_offer_room(e, bytes) == 0;
    pthread_mutex_unlock(&e->lock);
    return fits;
}
