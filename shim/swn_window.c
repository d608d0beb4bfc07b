/* Operator windows: what happens between "this operator is about to read these weights" and its end, and the fetching
 * ahead that follows from it.
 *
 * With one program thread a weight is lent by pointer: the storage's data pointer names the pool frame while the
 * operator runs (assembly by reference, SwapNet 5.2). As soon as a second thread could copy that pointer out and keep
 * it, frames are mapped at the weight's own address instead, which stays right for ever. */
#define _GNU_SOURCE
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "swn_engine_priv.h"
#include "swn_guest.h"
#include "swn_load.h"

/* A cursor that has not moved for so many visits has no claim on the window. */
#define IDLE_VISITS 4096
#define CHAIN_MOST 4096

unsigned swn_window_wait_ms = 30000;

static __thread struct swn_thread_state *self_state;

static struct swn_thread_state *thread_state(struct swn_engine *e)
{
    struct swn_thread_state *t = self_state;
    if (t)
        return t;
    /* States of threads that ended are taken over: a program that starts a thread per inference needs no more than it
     * ever had at once. The cursor stays where it was: the step from the last weight of one inference to the first of
     * the next closes the cycle, without which there is no plan. A wrong successor costs one wrong guess. */
    for (t = e->threads; t; t = t->next)
        if (!t->listed)
            break;
    if (!t) {
        if (!(t = calloc(1, sizeof *t)))
            return NULL;
        t->index = e->thread_count++;
        t->next = e->threads;
        e->threads = t;
    }
    t->listed = 1;
    t->last_node = 0;
    t->next_plan_try = 0;
    self_state = t;
    return t;
}

void swn_window_thread_exit(void)
{
    struct swn_engine *e = &swn_engine_one;
    if (!self_state)
        return;
    pthread_mutex_lock(&e->lock);
    self_state->listed = 0;
    self_state->last_visit = 0;
    for (struct swn_frame *f = e->pool ? swn_pool_first(e->pool) : NULL; f; f = f->next)
        if (f->owner == self_state)
            f->wanted = 0;
    pthread_mutex_unlock(&e->lock);
    self_state = NULL;
}

/* --- fetching --- */

static void fetch_done(struct swn_fetch_job *job, int err)
{
    struct swn_engine *e = &swn_engine_one;
    struct swn_frame *f = job->user;
    uint64_t now = swn_now_ns();
    if (!err && swn_load_check(f, job->buf)) {
        if (f->checked++ == 1 && !swn_fetch_submit(e->fetch, job, 1))
            return; /* a bit may have flipped on the way: once more */
        swn_engine_corrupt(e, swn_frame_file(f), f->range_id, job->off);
    }
    pthread_mutex_lock(&e->lock);
    struct swn_range *r = f->range;
    swn_frame_file(f)->refs--;
    f->state = SWN_FRAME_READY;
    e->swap_ins += !err;
    if (e->trace) {
        char name[SWN_TRACE_NAME];
        snprintf(name, sizeof name, "block %u", f->range_id);
        swn_trace_span(e->trace, SWN_TRACK_DISK, 0, name, f->start_ns, now, job->len);
    }
    if (err && r) {
        const struct swn_extent_file *file = r->file;
        char name[4200];
        e->read_errors++;
        r->io_failed = 1;
        r->frame = NULL;
        f->range = r = NULL;
        if (!e->said_read++)
            swn_say("cannot read block %u (offset %llu, %zu bytes) from %s: %s; trying its mapping", f->range_id,
                    (unsigned long long)job->off, job->len, swn_load_name(file, name, sizeof name), strerror(-err));
    }
    if (!r && !f->users) {
        if (f->kept)
            e->kept_bytes -= f->size;
        swn_pool_release(e->pool, f);
    }
    pthread_cond_broadcast(&e->changed);
    pthread_mutex_unlock(&e->lock);
}

/* Submits the read that fills f with the first bytes of r. NULL when the queue takes no more. */
static struct swn_frame *fill(struct swn_engine *e, struct swn_range *r, struct swn_frame *f, const void *owner,
                              int urgent)
{
    f->range = r;
    f->range_id = r->id;
    f->checked = r->file->immutable;
    f->owner = owner;
    f->wanted = 1;
    f->state = SWN_FRAME_FILLING;
    f->start_ns = swn_now_ns();
    f->job = (struct swn_fetch_job){.file = &r->file->fetch,
                                    .off = r->extent,
                                    .buf = swn_pool_rw(e->pool, f),
                                    .len = f->size,
                                    .done = fetch_done,
                                    .user = f};
    r->frame = f;
    if (swn_fetch_submit(e->fetch, &f->job, urgent)) {
        r->frame = NULL;
        swn_pool_release(e->pool, f);
        return NULL;
    }
    r->file->refs++;
    return f;
}

/* Begins to bring r into the window. NULL when there is no place that `force` could make. */
static struct swn_frame *fetch_start(struct swn_engine *e, struct swn_range *r, enum swn_pool_force force,
                                     const void *owner)
{
    struct swn_frame *f = swn_pool_place(e->pool, swn_round_up(r->len, SWN_PAGE), force, swn_policy_evict, e);
    return f ? fill(e, r, f, owner, force == SWN_POOL_READY) : NULL;
}

/* Brings r to stay: too large for any window, or wanted resident by the plan. */
static struct swn_frame *keep_start(struct swn_engine *e, struct swn_range *r)
{
    size_t bytes = swn_round_up(r->len, SWN_PAGE);
    if (r->oversize || bytes > e->config.budget_bytes || swn_policy_try_room(e, bytes, r))
        return NULL;
    struct swn_frame *f = swn_pool_keep(e->pool, r->place, bytes);
    if (!f || !fill(e, r, f, NULL, 1))
        return NULL;
    e->kept_bytes += bytes;
    swn_engine_note_peak(e);
    return f;
}

static size_t share_of_window(struct swn_engine *e)
{
    size_t active = 0;
    for (struct swn_thread_state *t = e->threads; t; t = t->next)
        active += t->listed && t->last_visit && e->visits - t->last_visit < IDLE_VISITS;
    return swn_pool_window(e->pool) / (active ? active : 1);
}

/* 0: no more fits ahead. */
static int prefetch_one(struct swn_engine *e, struct swn_thread_state *t, struct swn_range *r, size_t share,
                        size_t *ahead)
{
    size_t size = swn_round_up(r->len, SWN_PAGE);
    if (atomic_load(&r->state) != SWN_STREAMED || r->shared || r->oversize || r->io_failed ||
        (r->frame && r->frame->kept))
        return 1;
    if (*ahead && *ahead + size > share)
        return 0;
    if (r->frame) {
        r->frame->wanted = 1;
        r->frame->owner = t;
    } else if (r->keep && (r->lead->rest || size > swn_pool_window(e->pool))) {
        return 1; /* comes to stay when it is read */
    } else if (!fetch_start(e, r, SWN_POOL_STALE, t)) {
        return 0;
    }
    *ahead += size;
    return 1;
}

/* Fetches what the learned order says this thread will want next, as far as its share of the window goes. */
static void prefetch(struct swn_engine *e, struct swn_thread_state *t)
{
    if (!e->pool || !e->fetch || !t->cursor.at)
        return;
    size_t share = share_of_window(e), ahead = 0;
    for (struct swn_frame *f = swn_pool_first(e->pool); f; f = f->next)
        if (f->owner == t)
            f->wanted = 0;
    uint32_t before = t->cursor.before, at = t->cursor.at;
    size_t most = e->node_live + 2 < CHAIN_MOST ? e->node_live + 2 : CHAIN_MOST;
    for (size_t i = 0; i < most; i++) {
        uint32_t next = swn_order_next(e->order, before, at);
        struct swn_node *node = next ? swn_node_of(e, next) : NULL;
        if (!node)
            return;
        before = at;
        at = next;
        for (struct swn_range *r = node->range; r; r = r->rest)
            if (!prefetch_one(e, t, r, share, &ahead))
                return;
    }
}

/* --- one argument --- */

static void release_user(struct swn_engine *e, struct swn_frame *f)
{
    if (--f->users)
        return;
    if (!f->range && f->state != SWN_FRAME_FILLING) {
        if (f->kept)
            e->kept_bytes -= f->size;
        swn_pool_release(e->pool, f);
    }
}

/* Whether the engine hands out r's bytes to this argument, rather than leave it to the mapping. */
static int lendable(struct swn_engine *e, const struct swn_arg *arg)
{
    struct swn_range *r = arg->range;
    return r && arg->reading && arg->use != SWN_USE_READ && atomic_load(&r->state) == SWN_STREAMED && !r->io_failed &&
           !r->shared && e->fetch;
}

/* Waits for a change until `until`. 0, or ETIMEDOUT. */
static int wait_change(struct swn_engine *e, const struct timespec *until)
{
    return pthread_cond_timedwait(&e->changed, &e->lock, until);
}

static struct timespec longest_wait(void)
{
    struct timespec until;
    clock_gettime(CLOCK_MONOTONIC, &until);
    until.tv_sec += swn_window_wait_ms / 1000;
    until.tv_nsec += (long)(swn_window_wait_ms % 1000) * 1000000;
    until.tv_sec += until.tv_nsec / 1000000000;
    until.tv_nsec %= 1000000000;
    return until;
}

/* Whether there will be more room soon: a read ahead is under way, and nobody waits for its frame. */
static int room_will_come(struct swn_engine *e)
{
    for (struct swn_frame *f = swn_pool_first(e->pool); f; f = f->next)
        if (f->state == SWN_FRAME_FILLING && !f->users)
            return 1;
    return 0;
}

/* A frame in the window for r, which has none; if need be after reads ahead have arrived, since only then can their
 * frames go. */
static struct swn_frame *window_frame(struct swn_engine *e, struct swn_arg *arg, struct swn_thread_state *t)
{
    struct swn_range *r = arg->range;
    struct timespec until = longest_wait();
    for (;;) {
        struct swn_frame *f = fetch_start(e, r, SWN_POOL_READY, t);
        if (f || !room_will_come(e) || wait_change(e, &until) || !lendable(e, arg) || r->frame)
            return f ? f : r->frame;
    }
}

/* Takes hold of r's frame: the one that is there or on its way, or a new one. */
static void claim(struct swn_engine *e, struct swn_arg *arg, struct swn_thread_state *t, int fresh)
{
    struct swn_range *r = arg->range;
    struct swn_frame *f = r->frame;
    size_t size = swn_round_up(r->len, SWN_PAGE);
    if (!f && !fresh)
        return;
    /* A head that is to stay goes where it stays: the window has to hold its tail. */
    if (!f && r->keep && r->lead->rest)
        f = keep_start(e, r);
    if (!f && size <= swn_pool_window(e->pool))
        f = r->oversize ? NULL : window_frame(e, arg, t);
    else if (!f && (e->planned || !swn_policy_widen(e, size) || !(f = fetch_start(e, r, SWN_POOL_READY, t))))
        f = keep_start(e, r);
    if (!f)
        return;
    f->users++;
    arg->frame = f;
}

/* Waits until the claimed frame is filled. 0, or -1 when it will not be: the claim is given up. */
static int await(struct swn_engine *e, struct swn_arg *arg, struct swn_thread_state *t)
{
    struct swn_range *r = arg->range;
    struct swn_frame *f = arg->frame;
    if (f->state == SWN_FRAME_FILLING && f->range == r) {
        swn_fetch_promote(e->fetch, &f->job);
        uint64_t begin = swn_now_ns();
        struct timespec until = longest_wait();
        while (f->range == r && f->state == SWN_FRAME_FILLING)
            if (wait_change(e, &until) == ETIMEDOUT)
                break;
        uint64_t end = swn_now_ns();
        e->stall_ns += end - begin;
        if (e->trace)
            swn_trace_span(e->trace, SWN_TRACK_STALL, t->index, "waiting", begin, end, f->size);
    }
    if (f->range == r && f->state != SWN_FRAME_FILLING)
        return 0;
    arg->frame = NULL;
    release_user(e, f);
    return -1;
}

/* Lends r's bytes to the operator: by pointer or at its own address. */
static void lend(struct swn_engine *e, struct swn_arg *arg, struct swn_thread_state *t)
{
    struct swn_range *r = arg->range;
    struct swn_frame *f = arg->frame;
    struct swn_pages pages;
    if (f && f->kept && r->published) {
        e->window_hits++;
        return;
    }
    if (!f || await(e, arg, t)) {
        if (atomic_load(&r->state) != SWN_STREAMED)
            return; /* came home while we waited */
        if (swn_load_verify(e, r) == -EILSEQ)
            swn_engine_corrupt(e, r->file, r->id, r->extent);
        e->window_misses++;
        arg->remap = !r->published;
        /* Kernels go through a large matrix in several streams at once, and there is less memory than it needs: what
         * the system reads ahead is gone before it is used. */
        if (r->len > e->config.budget_bytes / 4 && !r->published)
            madvise((void *)r->addr, swn_round_up(r->len, SWN_PAGE), MADV_RANDOM);
        return;
    }
    if (swn_residency_scan(&e->res, r, &pages) || pages.own) {
        /* Written behind our back: the private copies are the truth. */
        arg->frame = NULL;
        swn_policy_bring_home(e, r, 0);
        release_user(e, f);
        e->window_misses++;
        return;
    }
    if (!r->published && pages.mapped)
        arg->remap = 1;
    e->window_hits++;
    if (f->kept) {
        if (!r->published && swn_residency_publish(&e->res, r, f, f->size))
            arg->remap = 1;
    } else if (!swn_threads_many() && arg->word && r->lead == r && !r->rest) {
        arg->borrowed = (uintptr_t)swn_pool_ro(e->pool, f) + (arg->data - r->addr);
        __atomic_store_n(arg->word, (void *)arg->borrowed, __ATOMIC_RELEASE);
    } else if (!r->published && swn_residency_publish(&e->res, r, f, f->size)) {
        arg->remap = 1;
    }
}

/* Frames that are there are held first, so that making place for one argument does not evict another's; then all reads
 * that are missing are under way together; then they are waited for. */
static void lend_all(struct swn_engine *e, struct swn_op *op, struct swn_thread_state *t)
{
    int any = 0;
    for (unsigned i = 0; i < op->total; i++) {
        struct swn_arg *arg = &op->args[i];
        struct swn_range *r = arg->range;
        if (!r || !arg->reading || atomic_load(&r->state) != SWN_STREAMED)
            continue;
        if (arg->use != SWN_USE_READ) {
            any = 1;
        } else if (!r->published) {
            if (swn_load_verify(e, r) == -EILSEQ)
                swn_engine_corrupt(e, r->file, r->id, r->extent);
            arg->remap = 1;
        }
    }
    if (!any)
        return;
    if (!e->fetch) /* a forked child that computes: it gets its own window and queue now */
        swn_policy_pool(e);
    for (int fresh = 0; fresh < 2; fresh++)
        for (unsigned i = 0; i < op->total; i++)
            if (!op->args[i].frame && lendable(e, &op->args[i]))
                claim(e, &op->args[i], t, fresh);
    for (unsigned i = 0; i < op->total; i++) {
        struct swn_arg *arg = &op->args[i];
        if (arg->range && arg->reading && arg->use != SWN_USE_READ && atomic_load(&arg->range->state) == SWN_STREAMED)
            lend(e, arg, t);
    }
}

/* Whether r counts as a weight from now on. */
static int is_weight(struct swn_engine *e, struct swn_range *r)
{
    if (r->node >= 0)
        return 1;
    if (e->seq - r->alloc_seq < SWN_AGED_OPS)
        return 0;
    return (++r->aged_reads >= 2 || atomic_load(&r->state) == SWN_STREAMED) && swn_node_add(e, r);
}

static void visit(struct swn_engine *e, struct swn_thread_state *t, struct swn_range *r, uint64_t now)
{
    struct swn_node *last = t->last_node ? swn_node_of(e, t->last_node) : NULL;
    if (last && now > t->ready_ns) {
        double took = (double)(now - t->ready_ns);
        last->compute_ns = last->compute_ns > 0 ? last->compute_ns * 0.7 + took * 0.3 : took;
    }
    t->last_node = e->nodes[r->node].id;
    t->ready_ns = now;
    t->last_visit = ++e->visits;
    if (!swn_order_visit(e->order, &t->cursor, t->last_node))
        t->next_plan_try = 0;
}

/* Whether nobody will want what the range holds now: not another thread, not this operator through another storage. */
static int overwrites_all(const struct swn_op *op, const struct swn_arg *arg, const struct swn_range *r)
{
    uintptr_t end = r->lead->addr + swn_weight_bytes(r->lead);
    for (unsigned i = 0; i < op->n; i++)
        if (i != arg->origin && op->args[i].data >= r->lead->addr && op->args[i].data < end)
            return 0;
    return arg->data == r->addr && arg->bytes >= r->len && !r->readers;
}

/* A tensor that is cut into pieces is an argument per piece. Pieces that no longer fit the table are used as they are,
 * through their mappings. */
static void add_pieces(struct swn_engine *e, struct swn_op *op)
{
    op->total = op->n;
    for (unsigned i = 0; i < op->n; i++) {
        struct swn_arg *arg = &op->args[i];
        struct swn_range *r = swn_arena_find(e->arena, arg->data);
        uintptr_t end = arg->data + arg->bytes;
        arg->origin = i;
        while (r && (r = r->rest) && r->addr < end && op->total < SWN_OP_ARGS + SWN_OP_PIECES)
            op->args[op->total++] =
                (struct swn_arg){.data = r->addr, .bytes = end - r->addr, .use = arg->use, .origin = i};
    }
}

static void begin_arg(struct swn_engine *e, struct swn_op *op, struct swn_arg *arg, struct swn_thread_state *t)
{
    struct swn_range *r = swn_arena_find(e->arena, arg->data);
    arg->borrowed = 0;
    arg->frame = NULL;
    arg->remap = arg->pinned = arg->reading = arg->visited = 0;
    arg->range = r;
    if (!r)
        return;
    arg->range_id = r->id;
    int twice = r->last_use == e->seq;
    r->last_use = e->seq;
    if (arg->use >= SWN_USE_WRITE) {
        arg->pinned = 1;
        r->pins++;
        if (swn_is_weight(r) && !r->written) {
            for (struct swn_range *p = r->lead; p; p = p->rest)
                p->written = 1;
            e->plan_dirty = 1;
        }
        if (atomic_load(&r->state) == SWN_STREAMED) {
            swn_policy_bring_home(e, r, arg->use == SWN_USE_OVERWRITE && overwrites_all(op, arg, r));
        }
        return;
    }
    if (r->shared && !r->pins)
        swn_residency_unshare(&e->res, r);
    arg->reading = 1;
    r->readers++;
    if (arg->use == SWN_USE_WEIGHT && !twice && r->lead == r && is_weight(e, r)) {
        visit(e, t, r, op->begin_ns);
        arg->visited = 1;
        op->visits++;
    }
}

void swn_engine_op_begin(struct swn_op *op)
{
    struct swn_engine *e = &swn_engine_one;
    op->visits = 0;
    op->begin_ns = swn_now_ns();
    int prepared = op->copies && op->n == 2 && swn_load_prepare(op);
    pthread_mutex_lock(&e->lock);
    struct swn_thread_state *t = thread_state(e);
    e->seq++;
    op->prev_open = NULL;
    op->next_open = e->open_ops;
    if (e->open_ops)
        e->open_ops->prev_open = op;
    e->open_ops = op;
    if (!t)
        op->n = 0; /* no memory for a cursor: everything at its own address */
    op->skip = op->copies && op->n == 2 && swn_load_move(e, op);
    if (prepared)
        swn_load_done();
    if (op->skip)
        op->n = 0;
    swn_guest_resolve(e, op);
    add_pieces(e, op);
    for (int writes = 1; writes >= 0; writes--)
        for (unsigned i = 0; i < op->total; i++)
            if ((op->args[i].use >= SWN_USE_WRITE) == writes)
                begin_arg(e, op, &op->args[i], t);
    lend_all(e, op, t);
    if (op->visits) {
        prefetch(e, t);
        t->ready_ns = swn_now_ns();
    }
    pthread_mutex_unlock(&e->lock);
}

/* A store went through the read-only view of a frame: an operator that should only read wrote. Its bytes go home. */
static void take_tainted(struct swn_engine *e, struct swn_range *r, struct swn_frame *f)
{
    swn_policy_make_room(e, f->size, r);
    void *bytes = swn_pool_rw(e->pool, f);
    if (!swn_residency_home(&e->res, r, 0)) {
        if (swn_is_weight(r))
            e->node_home_bytes += r->size;
        memcpy((void *)r->addr, bytes, r->len);
        r->written = 1;
    }
    mprotect(swn_pool_ro(e->pool, f), f->size, PROT_READ);
    atomic_store(&f->tainted, 0);
    r->frame = NULL;
    f->range = NULL;
}

static void end_arg(struct swn_engine *e, struct swn_arg *arg)
{
    struct swn_range *r = arg->range;
    if (!r)
        return;
    if (arg->borrowed) {
        void *expected = (void *)arg->borrowed;
        /* A lost exchange means that the storage was given other memory meanwhile (resize_, set_): leave that alone. */
        __atomic_compare_exchange_n(arg->word, &expected, (void *)arg->data, 0, __ATOMIC_ACQ_REL, __ATOMIC_RELAXED);
    }
    int alive = r->id == arg->range_id;
    if (arg->frame) {
        if (alive && arg->frame->range == r && atomic_load(&arg->frame->tainted))
            take_tainted(e, r, arg->frame);
        arg->frame->state = SWN_FRAME_USED;
        arg->frame->wanted = 0;
        release_user(e, arg->frame);
    }
    if (!alive)
        return;
    r->pins -= arg->pinned;
    r->readers -= arg->reading;
    if (r->shared && !r->pins)
        swn_residency_unshare(&e->res, r);
    if (arg->remap && !r->readers && !r->shared && !r->published && atomic_load(&r->state) == SWN_STREAMED &&
        swn_residency_remap(&e->res, r) == -EBUSY) {
        swn_policy_bring_home(e, r, 0);
    }
    swn_policy_cut_oversize(e, r);
    swn_policy_settle(e, r);
}

void swn_engine_op_end(struct swn_op *op)
{
    struct swn_engine *e = &swn_engine_one;
    uint64_t now = op->visits && e->trace ? swn_now_ns() : 0;
    pthread_mutex_lock(&e->lock);
    *(op->prev_open ? &op->prev_open->next_open : &e->open_ops) = op->next_open;
    if (op->next_open)
        op->next_open->prev_open = op->prev_open;
    for (unsigned i = 0; i < op->total; i++)
        end_arg(e, &op->args[i]);
    struct swn_thread_state *t = self_state;
    if (op->visits && t) {
        if (now)
            swn_trace_span(e->trace, SWN_TRACK_COMPUTE, t->index, op->name, t->ready_ns, now, 0);
        swn_policy_window(e);
        swn_policy_plan(e, t);
        prefetch(e, t);
    }
    pthread_mutex_unlock(&e->lock);
}

/* In a child, the operators of other threads will never end: their storages get their own addresses back. */
void swn_window_fork_child(struct swn_engine *e)
{
    for (struct swn_op *op = e->open_ops; op; op = op->next_open)
        for (unsigned i = 0; i < op->n; i++) {
            struct swn_arg *arg = &op->args[i];
            if (arg->borrowed && *arg->word == (void *)arg->borrowed)
                *arg->word = (void *)arg->data;
        }
    e->open_ops = NULL;
    for (struct swn_thread_state *t = e->threads; t; t = t->next)
        t->listed = t == self_state;
}
