/* Operator windows: from "this operator is about to read these weights" to the operator's end. The chunks of the
 * weights are read into frames, mapped at their own addresses, and held until the operator ends. Weights that an
 * operator reads unannounced come through the mapping of their extent: more slowly, with the same bytes. */
#define _GNU_SOURCE
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "blocks/memory/publish.h"
#include "base/huge_pages.h"
#include "skeleton/core/overwrite.h"
#include "skeleton/core/write_behind.h"
#include "skeleton/engine/engine_internal.h"
#include "skeleton/core/expected_read.h"
#include "skeleton/core/prefault.h"
#include "skeleton/engine/subsystem.h"
#include "skeleton/core/eviction.h"
#include "skeleton/core/op_window.h"
#include "skeleton/core/prefetch.h"
#include "skeleton/core/replan.h"
#include "skeleton/core/plan.h"
#include "skeleton/engine/experts.h"
#include "skeleton/engine/weights.h"
#include "skeleton/engine/accounting.h"
#include "skeleton/core/residency_steps.h"
#include "skeleton/core/restore.h"
#include "skeleton/engine/thread_state.h"
#include "skeleton/engine/section.h"

/* Longer than the time that Python and PyTorch take between two operators. */
#define IDLE_LEAST_NS (uint64_t)2000000
/* Frames that are mapped together. */
#define MAPPED_TOGETHER 8

void swn_window_hold(struct swn_engine *e, struct swn_arg *arg, size_t from, size_t upto)
{
    const struct swn_range *r = arg->range;
    size_t unit = swn_pool_unit(e->pool);
    upto = upto < r->len ? upto : r->len;
    if (from >= upto)
        return;
    uint64_t first = (r->place + from) / unit, end = (r->place + upto + unit - 1) / unit;
    for (uint64_t c = first; c < end; c++)
        swn_pool_chunk(e->pool, c)->users++;
    swn_window_release(e, arg);
    arg->first_chunk = first;
    arg->end_chunk = end;
}

void swn_window_release(struct swn_engine *e, struct swn_arg *arg)
{
    for (uint64_t c = arg->first_chunk; e->pool && c < arg->end_chunk; c++) {
        struct swn_chunk *chunk = swn_pool_chunk(e->pool, c);
        struct swn_frame *f = chunk->frame;
        chunk->users--;
        if (!f)
            continue;
        struct swn_frame_use *use = swn_frame_use(f);
        if (!use->cursor || !use->cursor->settled) /* no walk would come across it again */
            use->wanted = 0;
        use->last_op = e->ops.seq;
        use->last_access = e->weights.accesses;
        swn_pool_touch(e->pool, f);
    }
    arg->first_chunk = arg->end_chunk = 0;
}

/* Collects frames of the chunks that arg holds, from the c-th on, that are read completely. */
static unsigned run_of(struct swn_engine *e, const struct swn_arg *arg, uint64_t c, struct swn_frame **run)
{
    unsigned n = 0;
    for (; n < MAPPED_TOGETHER && c + n < arg->end_chunk; n++)
        if (!(run[n] = swn_pool_chunk(e->pool, c + n)->frame) || run[n]->pending)
            break;
    return n;
}

/* For a store that has one checksum for each extent. */
static void check_whole(struct swn_engine *e, const struct swn_frame *f)
{
    for (unsigned i = 0; i < f->n; i++)
        if (f->parts[i].range && f->parts[i].there && !f->parts[i].mapped && !f->parts[i].checked)
            e->features.source->verify(e, f->parts[i].range);
}

/* Maps the frames that have arrived, of the chunks that arg holds, at their addresses. */
static void publish(struct swn_engine *e, const struct swn_arg *arg)
{
    for (uint64_t c = arg->first_chunk; c < arg->end_chunk;) {
        struct swn_frame *run[MAPPED_TOGETHER];
        struct swn_range *written;
        unsigned n = run_of(e, arg, c, run);
        for (unsigned i = 0; i < n; i++)
            check_whole(e, run[i]);
        swn_residency_publish(&e->res, run, n, &written);
        if (!written || swn_restore_resident(e, written, 0))
            c += n ? n : 1;
    }
}

/* Waits for the chunks that arg holds, and maps them. */
void swn_window_lend(struct swn_engine *e, struct swn_arg *arg, struct swn_thread_state *t)
{
    struct swn_range *r = arg->range;
    struct swn_chunks chunks = {arg->first_chunk, arg->end_chunk};
    swn_prefetch_claim(e, r, &chunks, t);
    swn_prefetch_await(e, &chunks, t);
    if (r->id != arg->range_id)
        return;
    publish(e, arg);
    if (atomic_load(&r->state) != SWN_FILE_BACKED) {
        e->counters.window_hits++; /* became resident meanwhile */
        return;
    }
    size_t unit = swn_pool_unit(e->pool), missing = 0;
    for (uint64_t c = chunks.first; c < chunks.end; c++) {
        uint64_t lo = c * unit > r->place ? c * unit - r->place : 0;
        missing += lo < r->len && !swn_residency_mapped(&e->res, r, r->addr + lo);
    }
    e->counters.window_hits += !missing;
    e->counters.window_misses += missing != 0;
    if (!missing)
        return;
    e->features.source->verify(e, r);
    arg->remap = 1;
    /* Kernels read a large matrix in several streams at once, and in less memory than it needs: the system's read-ahead
     * would be dropped before it is used. */
    if (r->len > e->budget.limit / 4 && swn_residency_unmapped(&e->res, r) >= r->len)
        madvise((void *)r->addr, swn_round_up(r->len, SWN_PAGE), MADV_RANDOM);
}

/* Whether the weight has room beside what else the program needs, before there is a plan. */
static int has_room(const struct swn_engine *e, const struct swn_arg *arg)
{
    size_t unit = e->pool ? swn_pool_unit(e->pool) : SWN_HUGE;
    size_t bytes = arg->upto - arg->from + 2 * unit; /* it may begin and end within chunks */
    return swn_nonweight_needed(e) + bytes <= e->budget.limit;
}

/* Whether the operator's kernel may yet ask for slices of the weight. It does so after the operator has begun; a kernel
 * that has computed without them asks for none. */
static int may_be_sliced(const struct swn_engine *e, const struct swn_range *r)
{
    return !r->mapped_file &&
           (swn_tensor_of(r)->slice_unit || r->weight < 0 || e->weights.all[r->weight].compute_ns <= 0);
}

/* Whether the weight would push out everything else, and still not fit. */
static int is_too_large(const struct swn_engine *e, const struct swn_arg *arg)
{
    const struct swn_range *r = arg->range;
    if (e->plan.planned && r->weight >= 0)
        return e->weights.all[r->weight].oversize;
    return arg->upto - arg->from > e->budget.limit / 2 && (may_be_sliced(e, r) || !has_room(e, arg));
}

int swn_window_whole(struct swn_engine *e, struct swn_arg *arg, struct swn_thread_state *t)
{
    if (e->plan.planned || is_too_large(e, arg) || !swn_arg_is_file_backed(arg) || (!e->fetch && swn_open_pool(e)) ||
        !e->pool)
        return 0;
    swn_window_hold(e, arg, 0, arg->range->len);
    swn_window_lend(e, arg, t);
    return 1;
}

/* First holds the chunks that are in memory, so that making room for one argument does not evict another's. Then starts
 * all missing reads, so that they are under way together; then waits for them. */
static void lend_all(struct swn_engine *e, struct swn_op *op, struct swn_thread_state *t)
{
    int any = 0;
    for (unsigned i = 0; i < op->n; i++) {
        struct swn_arg *arg = &op->args[i];
        if (arg->use == SWN_USE_ROWS && arg->reading)
            e->features.tiling->rows_begin(e, arg);
        if (arg->use <= SWN_USE_EXPERTS || !swn_arg_is_file_backed(arg) || arg->sliced)
            continue;
        if (is_too_large(e, arg))
            arg->remap = 1;
        else
            any = 1;
    }
    if (!any)
        return;
    if (!e->fetch || !e->pool) /* a forked child that computes gets its own ring and queue now */
        swn_open_pool(e);
    if (!e->fetch || !e->pool)
        return;
    for (int step = 0; step < 3; step++)
        for (unsigned i = 0; i < op->n; i++) {
            struct swn_arg *arg = &op->args[i];
            if (!swn_arg_is_file_backed(arg) || arg->use <= SWN_USE_EXPERTS || arg->sliced || arg->range->shared ||
                arg->remap)
                continue;
            struct swn_chunks held = {arg->first_chunk, arg->end_chunk};
            if (step == 0)
                swn_window_hold(e, arg, arg->data - arg->range->addr + arg->from,
                                arg->data - arg->range->addr + arg->upto);
            else if (step == 1)
                swn_prefetch_claim(e, arg->range, &held, t);
            else
                swn_window_lend(e, arg, t);
        }
}

/* Whether r counts as a weight from now on. */
static int is_weight(struct swn_engine *e, struct swn_range *r)
{
    if (r->weight >= 0)
        return 1;
    if (swn_tensor_of(r)->registered) /* it stays, whatever the plan */
        return 0;
    int loaded = atomic_load(&r->state) == SWN_FILE_BACKED && r->file->immutable; /* programs do not compute these */
    if (!loaded && !swn_is_aged(e, r))
        return 0;
    return (++swn_tensor_of(r)->aged_reads >= 2 || atomic_load(&r->state) == SWN_FILE_BACKED) && swn_weight_add(e, r);
}

/* joined: its operator has read another weight before. */
static void access(struct swn_engine *e, struct swn_thread_state *t, struct swn_range *r, int joined, uint64_t now)
{
    struct swn_weight *last = t->last_weight ? swn_weight_of(e, t->last_weight) : NULL;
    uint64_t since = t->ready_ns + t->idle_ns;
    double took = now > since ? (double)(now - since) : 0;
    t->pass_idle += t->idle_ns;
    t->idle_ns = 0;
    double own = t->op_ns && (double)t->op_ns < took ? (double)t->op_ns : took;
    t->op_ns = 0;
    if (last && took > 0) {
        last->compute_ns = last->compute_ns > 0 ? last->compute_ns * 0.7 + took * 0.3 : took;
        last->op_ns = last->op_ns > 0 ? last->op_ns * 0.7 + own * 0.3 : own;
    }
    if (last && e->features.record) /* even if its operator reads the next weight, too, and this one has no time */
        e->features.observer->computed(e, last, took, own, t);
    t->flops = 0;
    t->small = (struct swn_small){0};
    t->nonweight = 0;
    t->last_weight = e->weights.all[r->weight].id;
    if (last) {
        last->then = t->last_weight;
        last->joined = joined;
    }
    t->ready_ns = now;
    t->last_access = ++e->weights.accesses;
    swn_prefetch_note_read(e, r);
    struct swn_weight *weight = &e->weights.all[r->weight];
    if (weight->read_at && t->last_access - weight->read_at > weight->widest_gap)
        weight->widest_gap = t->last_access - weight->read_at;
    weight->read_at = t->last_access;
    uint64_t passes = t->cursor.passes;
    if (!swn_access_order_record(e->weights.order, &t->cursor, t->last_weight))
        t->next_plan_try = 0;
    if (t->cursor.passes == passes)
        return;
    e->features.placement->passed(e, t);
    swn_replan_passed(e);
    if (e->features.record && passes)
        now += e->features.observer->passed(e, (double)(now - t->pass_ns) - (double)t->pass_idle, (double)t->pass_idle);
    t->ready_ns = t->pass_ns = now;
    t->pass_idle = 0;
}

/* Between operators a program does other things. If these take long they are not part of an inference: the program
 * waits for its next input, or makes one. */
static void begin_counting(struct swn_thread_state *t, uint64_t now)
{
    if (!t->open++ && t->left_ns && now > t->left_ns + IDLE_LEAST_NS)
        t->idle_ns += now - t->left_ns;
}

static void end_counting(struct swn_thread_state *t, uint64_t now)
{
    if (!t->open || !--t->open)
        t->left_ns = now;
}

/* Operations, small parameters and activations belong to the last weight that was read. */
static void note_nonweight(struct swn_engine *e, struct swn_thread_state *t, uint64_t flops, struct swn_small small)
{
    size_t other = swn_nonweight_bytes(e);
    t->flops += flops;
    t->small.count += small.count;
    t->small.bytes += small.bytes;
    t->nonweight = other > t->nonweight ? other : t->nonweight;
}

/* Whether the operator overwrites all of the range. */
static int overwrites_all(const struct swn_arg *arg, const struct swn_range *r)
{
    return arg->data == r->addr && arg->bytes >= r->len;
}

/* Whether the operator will ask for this argument slice by slice. */
static int comes_in_slices(const struct swn_arg *arg, const struct swn_range *r)
{
    return r && swn_tensor_of(r)->sliced && r->addr == arg->data && arg->use == SWN_USE_WEIGHT && !arg->mapped;
}

/* The operator's next weight in the order. */
static void begin_weight(struct swn_engine *e, struct swn_op *op, struct swn_arg *arg, struct swn_thread_state *t)
{
    access(e, t, arg->range, op->accesses > 0, op->begin_ns);
    arg->accessed = 1;
    op->accesses++;
    if (arg->experts && t->experts)
        t->experts->is_told = 0;
    if (arg->sliced) /* the thread reads this weight next, not the one after it */
        e->features.tiling->slice_next(t, arg, arg->from);
}

static void begin_arg(struct swn_engine *e, struct swn_op *op, struct swn_arg *arg, struct swn_thread_state *t)
{
    struct swn_range *r = swn_arena_find(e->arena, arg->data);
    arg->afresh = arg->afresh_bytes = 0;
    arg->first_chunk = arg->end_chunk = 0;
    arg->remap = arg->pinned = arg->reading = arg->accessed = arg->rows = arg->prefaulting = 0;
    arg->sliced = comes_in_slices(arg, r);
    arg->slice = arg->sliced ? swn_tensor_of(r)->slice : 0;
    arg->experts = arg->use == SWN_USE_EXPERTS;
    arg->range = r;
    if (!r)
        return;
    arg->range_id = r->id;
    swn_write_behind_cancel(e, r);
    int twice = swn_tensor_of(r)->last_use == e->ops.seq;
    swn_tensor_of(r)->last_use = e->ops.seq;
    if (arg->use >= SWN_USE_WRITE) {
        arg->pinned = 1;
        r->pins++;
        if (swn_is_weight(r) && !swn_tensor_of(r)->written) {
            swn_tensor_of(r)->written = 1;
            e->plan.dirty = 1;
        }
        int streamed = atomic_load(&r->state) == SWN_FILE_BACKED;
        /* Pages that are made read like pages that are not yet made: if the operator is refused nothing has changed. */
        int all = swn_tensor_of(r)->untouched && arg->use == SWN_USE_OVERWRITE && overwrites_all(arg, r);
        swn_tensor_of(r)->untouched = 0;
        if (streamed && op->asks && arg == op->args && swn_afresh_waits(e, arg, r))
            return;
        if (streamed && swn_restore_resident(e, r, 0))
            return;
        if (all && atomic_load(&r->state) == SWN_RESIDENT)
            arg->prefaulting = swn_prefault_begin(&e->prefault, r->addr, swn_round_up(r->len, SWN_PAGE));
        return;
    }
    if (r->shared && !r->pins)
        swn_unshare(e, r);
    if (arg->use == SWN_USE_INPUT)
        swn_restore_input(e, r);
    arg->reading = 1;
    swn_tensor_of(r)->readers++;
    if ((arg->use == SWN_USE_WEIGHT || arg->experts) && !twice && is_weight(e, r))
        begin_weight(e, op, arg, t);
}

void swn_engine_op_begin(struct swn_op *op)
{
    SWN_SECTION();
    struct swn_engine *e = &swn_engine_one;
    op->accesses = 0;
    op->begin_ns = swn_now_ns();
    SWN_EACH_SUBSYSTEM (s, unlocked)
        s->unlocked();
    SWN_EACH_SUBSYSTEM (s, op)
        if (s->op->before)
            s->op->before(op);
    swn_lock(&e->lock);
    SWN_EACH_SUBSYSTEM (s, op)
        if (s->op->make_way)
            s->op->make_way(e, op);
    struct swn_thread_state *t = swn_window_thread(e);
    swn_expected_read_cancel(e, 1);
    swn_restore_written(e, op->begin_ns);
    op->seq = ++e->ops.seq;
    op->unlisted = 0;
    op->prev_open = NULL;
    op->next_open = e->ops.open;
    if (e->ops.open)
        e->ops.open->prev_open = op;
    e->ops.open = op;
    if (t)
        begin_counting(t, op->begin_ns);
    else
        op->n = 0; /* no memory for a cursor: all arguments are read at their own addresses */
    SWN_EACH_SUBSYSTEM (s, op)
        if (s->op->begin)
            s->op->begin(e, op);
    if (e->features.record && t)
        note_nonweight(e, t, op->flops_before, op->small_before);
    for (int writes = 1; writes >= 0; writes--)
        for (unsigned i = 0; i < op->n; i++)
            if ((op->args[i].use >= SWN_USE_WRITE) == writes)
                begin_arg(e, op, &op->args[i], t);
    lend_all(e, op, t);
    if (e->features.record && t)
        note_nonweight(e, t, op->flops, op->small);
    if (op->accesses) {
        swn_prefetch_run(e, t);
        t->ready_ns = swn_now_ns();
    }
    swn_unlock(&e->lock);
}

void swn_window_forget(struct swn_engine *e, struct swn_range *r)
{
    if (!swn_tensor_of(r)->readers && !r->shared && atomic_load(&r->state) == SWN_FILE_BACKED &&
        swn_residency_remap(&e->res, r) == -EBUSY)
        swn_restore_resident(e, r, 0);
}

void swn_window_end_arg(struct swn_engine *e, struct swn_arg *arg)
{
    struct swn_range *r = arg->range;
    if (!r)
        return;
    if (arg->prefaulting && e->prefault)
        swn_prefault_end(e->prefault, arg->data);
    swn_window_release(e, arg);
    if (r->id != arg->range_id)
        return;
    r->pins -= arg->pinned;
    swn_tensor_of(r)->readers -= arg->reading;
    if (r->shared && !r->pins)
        swn_unshare(e, r);
    if (arg->remap) { /* the bytes that it has read are checked before it ends */
        e->features.source->verify(e, r);
        swn_window_forget(e, r);
    }
    e->features.tiling->rows_end(e, arg);
    swn_plan_apply_to(e, r);
}

void swn_engine_op_end(struct swn_op *op)
{
    SWN_SECTION();
    struct swn_engine *e = &swn_engine_one;
    uint64_t now = swn_now_ns();
    swn_lock(&e->lock);
    if (!op->unlisted) {
        *(op->prev_open ? &op->prev_open->next_open : &e->ops.open) = op->next_open;
        if (op->next_open)
            op->next_open->prev_open = op->prev_open;
    }
    struct swn_thread_state *t = swn_window_self();
    if (t)
        end_counting(t, now);
    for (unsigned i = 0; i < op->n; i++) {
        if (op->args[i].sliced)
            e->features.tiling->slice_end(e, op, &op->args[i]);
        if (op->args[i].experts && op->args[i].range)
            e->features.tiling->experts_end(e, &op->args[i]);
        swn_window_end_arg(e, &op->args[i]);
    }
    if (t)
        t->slicing = 0;
    if (op->accesses && t) {
        t->op_ns = now > t->ready_ns ? now - t->ready_ns : 0;
        if (e->trace)
            swn_trace_span(e->trace, SWN_TRACK_COMPUTE, t->index, op->name, t->ready_ns, now, 0);
        uint64_t plans = e->plan.made;
        swn_ring_shrink(e);
        swn_plan_if_due(e, t);
        if (t->walks.starved || e->plan.made > plans) /* otherwise no frame has become available for it */
            swn_prefetch_run(e, t);
    }
    if (op->seq <= e->budget.target_seq)
        e->budget.in_flight_ns = swn_now_ns();
    if (e->budget.target < e->budget.limit)
        pthread_cond_broadcast(&e->changed); /* memory that was in use can leave now */
    swn_unlock(&e->lock);
}

/* In a child, the operators of other threads never end. The forking thread's own operator may end (a Python operator
 * may fork): it holds nothing here, and is in no list. */
void swn_window_fork_child(struct swn_engine *e)
{
    for (struct swn_op *op = e->ops.open, *next; op; op = next) {
        next = op->next_open;
        swn_afresh_fork_child(op);
        op->n = 0;
        op->accesses = 0;
        op->unlisted = 1;
    }
    e->ops.open = NULL;
    for (struct swn_thread_state *t = e->ops.threads; t; t = t->next) {
        t->listed = t == swn_window_self();
        t->slicing = 0;
        t->open = 0; /* its operator never ends here */
        t->walks.settled = 0;
    }
}
