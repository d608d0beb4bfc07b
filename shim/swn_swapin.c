/* Swap-in: bringing weights into the pool. Reads that an operator waits for, and those ahead of it, as the learned
 * order says. Nothing here waits for a particular frame to go, so a wrong guess costs a read and cannot hang. */
#define _GNU_SOURCE
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "swn_encoded.h"
#include "swn_engine_priv.h"
#include "swn_guest.h"
#include "swn_load.h"
#include "swn_record.h"
#include "swn_thread.h"

/* A cursor that has not moved for so many visits has no claim on the window. */
#define IDLE_VISITS 4096
#define CHAIN_MOST 4096
/* A first pass wants a window of so many weights. */
#define UNTRIED_WINDOW 4

unsigned swn_swapin_wait_ms = 30000;

/* --- frames --- */

void swn_swapin_free(struct swn_engine *e, struct swn_frame *f)
{
    if (f->lodged) {
        swn_lodge_end(e, f);
        return;
    }
    if (f->kept)
        e->kept_bytes -= f->size;
    swn_pool_release(e->pool, f);
}

void swn_swapin_release(struct swn_engine *e, struct swn_frame *f)
{
    if (--f->users || f->state == SWN_FRAME_FILLING || (f->range && !f->lodged))
        return;
    if (f->range) /* one that was lodged is not at home: activations want the place */
        f->range->frame = NULL;
    swn_swapin_free(e, f);
}

/* How much of the window there is to place anything in: not the end that it is about to lose. */
static size_t window_room(const struct swn_engine *e)
{
    size_t window = swn_pool_window(e->pool);
    return window < e->window_goal ? window : e->window_goal;
}

/* --- reads --- */

/* Reads are served one after the other: what this one took is the time since the one before was done. */
static void note_read(struct swn_engine *e, const struct swn_frame *f, uint64_t now)
{
    uint64_t begin = f->start_ns > e->read_done_ns ? f->start_ns : e->read_done_ns;
    double ns = now > begin ? (double)(now - begin) : 0;
    /* What comes to stay comes once, and into pages that are made for it; and a disk that writes as well is slower. */
    if (!f->kept && f->written == swn_policy_written(e))
        swn_pace_add(&e->disk, (double)f->job.len, (double)f->start_ns, (double)now);
    else
        swn_pace_skip(&e->disk, (double)now);
    if (e->record && f->range && swn_is_weight(f->range))
        swn_record_read(e->record, &e->nodes[f->range->lead->node], f->job.len, ns);
}

static void fetch_done(struct swn_fetch_job *job, int err)
{
    struct swn_engine *e = &swn_engine_one;
    struct swn_frame *f = job->user;
    uint64_t now = swn_now_ns();
    if (err && swn_encoded_retry(e, f, err))
        return;
    if (!err && !f->copy && swn_load_check(f, job->buf)) {
        if (f->checked++ == 1 && !swn_fetch_submit(e->fetch, job, 1))
            return; /* a bit may have flipped on the way: once more */
        swn_engine_corrupt(swn_frame_file(f), f->range_id, job->off);
    }
    pthread_mutex_lock(&e->lock);
    struct swn_range *r = f->range;
    swn_frame_file(f)->refs--;
    f->state = SWN_FRAME_READY;
    e->swap_ins += !err;
    if (!err)
        note_read(e, f, now);
    else
        swn_pace_skip(&e->disk, (double)now);
    e->read_done_ns = now;
    if (f->start_ns <= e->goal_since_ns)
        e->in_flight_ns = now;
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
    if (!r && !f->users)
        swn_swapin_free(e, f);
    swn_awake_tell(&e->awake);
    pthread_cond_broadcast(&e->changed);
    pthread_mutex_unlock(&e->lock);
}

/* What stays is in huge pages. Those of the window are there already. */
static void prepare_kept(struct swn_fetch_job *job, size_t from, size_t upto)
{
    struct swn_frame *f = job->user;
    size_t before = f->size - job->len; /* encoded bytes come to the frame's end */
    swn_pool_make_huge(swn_engine_one.pool, f, from ? from + before : 0, upto + before);
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
    f->written = swn_policy_written(e);
    f->job = (struct swn_fetch_job){.file = &r->file->fetch,
                                    .off = r->extent,
                                    .buf = swn_pool_rw(e->pool, f),
                                    .len = f->size,
                                    .done = fetch_done,
                                    .prepare = f->kept ? prepare_kept : NULL,
                                    .user = f};
    f->copy = NULL;
    swn_encoded_prepare(f);
    r->frame = f;
    if (swn_fetch_submit(e->fetch, &f->job, urgent)) {
        r->frame = NULL;
        if (f->lodged)
            swn_lodge_end(e, f);
        else
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
    size_t size = swn_round_up(r->len, SWN_PAGE);
    /* What was read ahead has to go only where nothing else can. */
    struct swn_frame *f = swn_pool_place(e->pool, size, SWN_POOL_STALE, swn_policy_evict, e);
    if (!f && force != SWN_POOL_STALE)
        f = swn_pool_place(e->pool, size, force, swn_policy_evict, e);
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
    e->filled += bytes;
    swn_engine_note_peak(e);
    return f;
}

/* --- what an operator waits for --- */

/* Whether the engine hands out the bytes to this argument, rather than leave it to the mapping. */
static int lendable(const struct swn_engine *e, const struct swn_arg *arg)
{
    return swn_reads_streamed(arg) && arg->use > SWN_USE_ROWS && !arg->range->io_failed && !arg->range->shared &&
           e->fetch;
}

/* Whether there will be more room soon: a read ahead is under way, and nobody waits for its frame. */
static int room_will_come(struct swn_engine *e)
{
    for (struct swn_frame *f = swn_pool_first(e->pool); f; f = f->next)
        if (!f->lodged && f->state == SWN_FRAME_FILLING && !f->users)
            return 1;
    return 0;
}

int swn_swapin_cancel(struct swn_engine *e, struct swn_frame *f)
{
    if (f->state != SWN_FRAME_FILLING || swn_fetch_cancel(e->fetch, &f->job))
        return 0;
    swn_frame_file(f)->refs--;
    f->state = SWN_FRAME_USED; /* fetch_done will not, so whoever waits for it finds a frame that can go */
    return 1;
}

/* Takes back one read ahead that has not begun. */
static int cancel_one(struct swn_engine *e)
{
    for (struct swn_frame *f = swn_pool_first(e->pool); f; f = f->next)
        if (!f->lodged && !f->users && f->range && swn_swapin_cancel(e, f)) {
            swn_policy_drop_frame(e, f->range);
            return 1;
        }
    return 0;
}

/* A frame in the window for r, which has none; if need be after reads ahead have arrived, since only then can their
 * frames go. */
static struct swn_frame *window_frame(struct swn_engine *e, struct swn_arg *arg, struct swn_thread_state *t)
{
    struct swn_range *r = arg->range;
    uint64_t until = swn_now_ns() + swn_swapin_wait_ms * 1000000ull;
    for (;;) {
        struct swn_frame *f = fetch_start(e, r, SWN_POOL_READY, t);
        if (!f && cancel_one(e))
            continue;
        if (f || !room_will_come(e) || swn_cond_wait_until(&e->changed, &e->lock, until) || !lendable(e, arg) ||
            r->frame)
            return f ? f : r->frame;
    }
}

void swn_swapin_claim(struct swn_engine *e, struct swn_arg *arg, struct swn_thread_state *t, int fresh)
{
    struct swn_range *r = arg->range;
    if (r && r->frame && r->frame->lodged && !arg->ours)
        swn_policy_drop_frame(e, r);
    if (arg->frame || !lendable(e, arg) || (!r->frame && !fresh))
        return;
    struct swn_frame *f = r->frame;
    size_t size = swn_round_up(r->len, SWN_PAGE);
    /* A piece that is to stay goes where it stays: the window has to hold the others. */
    if (!f && r->keep && r->lead->rest)
        f = keep_start(e, r);
    if (!f && size <= window_room(e)) {
        f = r->oversize ? NULL : window_frame(e, arg, t);
        if (!f && r->keep && lendable(e, arg)) /* its operator's others have the window */
            f = keep_start(e, r);
    } else if (!f && (e->planned || !swn_policy_widen(e, size) || !(f = fetch_start(e, r, SWN_POOL_READY, t)))) {
        f = keep_start(e, r);
    }
    if (!f)
        return;
    f->users++;
    arg->frame = f;
}

/* Until something has changed, but not for longer than a wait that began at begin_ns may take: then ETIMEDOUT. */
static int wait_for_change(struct swn_engine *e, uint64_t begin_ns)
{
    unsigned seen = swn_awake_told(&e->awake);
    if (!swn_awake_worth(&e->awake, begin_ns))
        return swn_cond_wait_until(&e->changed, &e->lock, begin_ns + swn_swapin_wait_ms * 1000000ull);
    pthread_mutex_unlock(&e->lock);
    swn_awake_wait(&e->awake, seen, begin_ns);
    pthread_mutex_lock(&e->lock);
    return 0;
}

int swn_swapin_await(struct swn_engine *e, struct swn_arg *arg, struct swn_thread_state *t)
{
    struct swn_range *r = arg->range;
    struct swn_frame *f = arg->frame;
    if (f->state == SWN_FRAME_FILLING && f->range == r) {
        swn_fetch_promote(e->fetch, &f->job);
        uint64_t begin = swn_now_ns();
        while (f->range == r && f->state == SWN_FRAME_FILLING)
            if (wait_for_change(e, begin) == ETIMEDOUT)
                break;
        uint64_t end = swn_now_ns();
        e->stall_ns += end - begin;
        swn_awake_learn(&e->awake, end - begin);
        if (e->trace)
            swn_trace_span(e->trace, SWN_TRACK_STALL, t->index, "waiting", begin, end, f->size);
    }
    if (f->range == r && f->state != SWN_FRAME_FILLING)
        return 0;
    arg->frame = NULL;
    swn_swapin_release(e, f);
    return -1;
}

/* --- reading ahead --- */

static size_t active_threads(struct swn_engine *e)
{
    size_t active = 0;
    for (struct swn_thread_state *t = e->threads; t; t = t->next)
        active += t->listed && t->last_visit && e->visits - t->last_visit < IDLE_VISITS;
    return active ? active : 1;
}

static size_t share_of_window(struct swn_engine *e)
{
    return window_room(e) / active_threads(e);
}

/* How far ahead a thread looks. Frames that are there are marked as wanted first, all of them, so that no read that is
 * started then evicts what is needed a little later. */
struct ahead {
    struct swn_thread_state *t;
    size_t share, bytes;
    int alone;                /* no other thread reads weights */
    struct swn_lodging lodge; /* for the node that the walk has come to */
    int fetch;
};

/* A slice for which the window has no room. */
static int lodge_one(struct swn_engine *e, struct ahead *a, struct swn_range *r)
{
    if (!a->fetch || r->frame || r->keep || !r->lead->sliced)
        return 0;
    struct swn_frame *f = swn_lodge(e, swn_round_up(r->len, SWN_PAGE), &a->lodge);
    return f && fill(e, r, f, a->t, 0);
}

/* 0: no more fits ahead. */
static int prefetch_one(struct swn_engine *e, struct ahead *a, struct swn_range *r)
{
    size_t size = swn_round_up(r->len, SWN_PAGE);
    if (atomic_load(&r->state) != SWN_STREAMED || r->shared || r->oversize || r->io_failed ||
        (r->frame && r->frame->kept))
        return 1;
    if (r->frame && r->frame->lodged)
        return 1;
    if (a->bytes && a->bytes + size > a->share)
        return lodge_one(e, a, r);
    if (r->frame) {
        r->frame->wanted = 1;
        r->frame->owner = a->t;
    } else if (r->keep && (r->lead->rest || size > window_room(e))) {
        return 1; /* comes to stay when it is read */
    } else if (a->fetch && !fetch_start(e, r, SWN_POOL_STALE, a->t)) {
        return lodge_one(e, a, r);
    }
    a->bytes += size;
    return 1;
}

/* What is likely to be read after r while nothing is learned yet: a store is in the order of execution, more or less,
 * and the layers of a mapped file are alike. */
static struct swn_range *successor(struct swn_engine *e, const struct swn_range *r)
{
    return r->guest ? swn_guest_successor(e, r) : swn_load_successor(r);
}

/* Whether r was read when that was likely: right behind `before`, or soon, as not everything in a store is read as a
 * weight. What nothing is known of says nothing. */
static int as_expected(struct swn_engine *e, const struct swn_range *before, const struct swn_range *r)
{
    const struct swn_range *first = successor(e, before), *next = first;
    for (int step = 0; next && next != r && step < 3; step++)
        next = successor(e, next);
    return next == r || !first;
}

/* In a first pass guesses are believed as long as the last two weights were as expected; and half of the window is for
 * what operators really ask for. */
static void prefetch_untried(struct swn_engine *e, struct swn_thread_state *t, uint32_t before, uint32_t last)
{
    struct swn_node *node = swn_node_of(e, last), *previous = before ? swn_node_of(e, before) : NULL;
    struct swn_range *r = node ? node->range : NULL, *next = r ? successor(e, r) : NULL;
    if (!next || (previous && !as_expected(e, previous->range, r)))
        return;
    swn_policy_lend_room(e, UNTRIED_WINDOW * swn_round_up(r->len > next->len ? r->len : next->len, SWN_PAGE));
    struct ahead a = {.t = t, .share = share_of_window(e) / 2, .fetch = 1};
    /* What is foreseen of a mapped file may go round in circles, and past ranges that need no room. */
    for (size_t i = 0; next && !swn_is_weight(next) && i < CHAIN_MOST; i++) {
        if (!prefetch_one(e, &a, next))
            return;
        next = successor(e, next);
    }
}

/* Walks along what the learned order says that t will want next, as far as its share of the window goes. */
static void walk_ahead(struct swn_engine *e, struct ahead *a)
{
    struct swn_thread_state *t = a->t;
    struct swn_node *here = swn_node_of(e, t->cursor.at);
    a->lodge = (struct swn_lodging){.t = t};
    if (here && a->alone) {
        a->lodge.room = swn_lodge_room(e, here);
        a->lodge.allocs = here->allocs;
    }
    struct swn_range *slice = t->slicing ? swn_arena_find(e->arena, t->slicing) : NULL;
    for (struct swn_range *r = slice; r && r->addr < t->slicing_end; r = r->rest)
        if (!prefetch_one(e, a, r))
            return;
    uint32_t before = t->cursor.before, at = t->cursor.at;
    size_t most = e->node_live + 2 < CHAIN_MOST ? e->node_live + 2 : CHAIN_MOST;
    for (size_t i = 0; i < most; i++) {
        uint32_t next = swn_order_next(e->order, before, at);
        struct swn_node *node = next ? swn_node_of(e, next) : NULL;
        if (!node) {
            if (!a->bytes && a->fetch)
                prefetch_untried(e, t, before, at);
            return;
        }
        before = at;
        at = next;
        size_t room = swn_lodge_room(e, node);
        a->lodge.room = room < a->lodge.room ? room : a->lodge.room;
        a->lodge.allocs = node->allocs;
        a->lodge.next_pass |= next == t->cursor.anchor;
        for (struct swn_range *r = node->range; r; r = r->rest)
            if (!prefetch_one(e, a, r))
                return;
    }
}

void swn_swapin_ahead(struct swn_engine *e, struct swn_thread_state *t)
{
    if (!e->pool || !e->fetch || !t->cursor.at || e->config.without & SWN_WITHOUT_PREFETCH)
        return;
    for (struct swn_frame *f = swn_pool_first(e->pool); f; f = f->next)
        if (f->owner == t)
            f->wanted = 0;
    size_t active = active_threads(e);
    for (int fetch = 0; fetch < 2; fetch++) {
        struct ahead a = {.t = t, .share = window_room(e) / active, .alone = active == 1, .fetch = fetch};
        walk_ahead(e, &a);
    }
}
