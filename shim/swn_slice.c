/* Weights that their operator takes slice by slice: which ones can, and the lending of one slice after the other. The
 * kernel that does it is in aten_slices.cpp; no one else ever sees a slice's address, so it may lie in the pool
 * whatever threads there are. */
#define _GNU_SOURCE

#include "swn_engine_priv.h"
#include "swn_load.h"

static uint64_t gcd(uint64_t a, uint64_t b)
{
    while (b) {
        uint64_t rest = a % b;
        a = b;
        b = rest;
    }
    return a;
}

/* Cuts fall on whole rows and on granules of the arena. 0: they never meet within the weight. */
static size_t unit_of(size_t row_bytes, size_t bytes)
{
    size_t granules = SWN_GRANULE / (size_t)gcd(SWN_GRANULE, row_bytes);
    return granules < bytes / row_bytes ? row_bytes * granules : 0;
}

/* A profile is for any budget. */
static int worth_slicing(const struct swn_engine *e, size_t bytes)
{
    if (e->config.without & SWN_WITHOUT_SLICES)
        return 0;
    return swn_plan_worth_slicing(bytes, e->record && !e->pool ? 0 : e->goal_bytes);
}

void swn_slice_offer(struct swn_op *op, unsigned index, size_t row_bytes)
{
    struct swn_engine *e = &swn_engine_one;
    struct swn_arg *arg = &op->args[index];
    pthread_mutex_lock(&e->lock);
    struct swn_range *r = arg->range;
    if (r && r->id == arg->range_id && r->lead == r && r->addr == arg->data && !r->guest) {
        size_t before = r->slice_unit;
        r->unsliceable |= !row_bytes;
        if (r->unsliceable)
            r->slice_unit = 0;
        else if (!r->slice_unit && worth_slicing(e, arg->bytes))
            r->slice_unit = unit_of(row_bytes, arg->bytes);
        e->plan_dirty |= r->slice_unit != before;
        /* At any time before the plan: the first time it may still have been in memory. */
        if (r->slice_unit)
            swn_policy_slice_early(e, arg);
    }
    pthread_mutex_unlock(&e->lock);
}

size_t swn_slice_list(struct swn_op *op, unsigned index, size_t *bytes, size_t most)
{
    struct swn_engine *e = &swn_engine_one;
    size_t n = 0;
    pthread_mutex_lock(&e->lock);
    struct swn_range *r = op->args[index].range;
    for (; r && n < most; r = r->rest)
        bytes[n++] = r->len;
    pthread_mutex_unlock(&e->lock);
    return r ? 0 : n;
}

/* The piece of the weight that is just these bytes, or NULL. */
static struct swn_range *piece_at(struct swn_engine *e, const struct swn_arg *arg, size_t off, size_t bytes)
{
    struct swn_range *r = off < arg->bytes ? swn_arena_find(e->arena, arg->data + off) : NULL;
    return r && r->lead == arg->range && r->addr == arg->data + off && r->len == bytes ? r : NULL;
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
    swn_window_end_arg(e, slice);
    *slice = (struct swn_arg){.use = SWN_USE_WEIGHT, .ours = 1};
    struct swn_range *r = bytes ? piece_at(e, arg, off, bytes) : NULL;
    t->slicing = 0;
    if (r) {
        arg->sliced = 2;
        e->slices++;
        slice->data = r->addr;
        slice->bytes = bytes;
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
    } else if (bytes) {
        arg->sliced = 1; /* from here on by its own address */
    }
    swn_swapin_ahead(e, t);
    t->ready_ns += swn_now_ns() - begin; /* waiting is not computing */
    const void *at = r ? (void *)(slice->borrowed ? slice->borrowed : slice->data) : NULL;
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
    /* Not in slices after all: pages of its mapping have been read. */
    struct swn_range *r = arg->sliced == 1 && alive ? arg->range->rest : NULL;
    for (; r; r = r->rest)
        swn_window_forget(e, r);
    arg->remap = arg->sliced == 1;
}
