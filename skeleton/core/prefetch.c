/* Swap-in: brings chunks of weights into frames, both those that an operator waits for and those ahead of it in the
 * learned order. No function here waits for a particular frame to go, so a wrong guess costs a read and cannot hang.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "blocks/memory/publish.h"
#include "blocks/memory/transition.h"
#include "skeleton/engine/engine_internal.h"
#include "base/huge_pages.h"
#include "skeleton/engine/subsystem.h"
#include "base/thread.h"
#include "skeleton/core/eviction.h"
#include "skeleton/core/prefetch.h"
#include "skeleton/core/plan.h"
#include "skeleton/engine/experts.h"
#include "skeleton/engine/weights.h"
#include "skeleton/engine/accounting.h"
#include "skeleton/core/residency_steps.h"
#include "skeleton/core/ring_size.h"
#include "skeleton/engine/section.h"

/* A cursor that has not moved for this many accesses has no share of the ring. */
#define IDLE_ACCESSES 4096
#define CHAIN_MOST 4096
/* The number of weights that the ring should hold in a first pass. */
#define UNTRIED_RING 4
/* This part of the budget is for what is needed soon. */
#define SOON_PART 4
/* So many times in a row a mixture has to have had the experts of the one before it: once it may be chance. */
#define FOLLOWS_SURELY 2
/* This part of the room for experts is for those that are read ahead. */
#define AHEAD_PART 2
/* Frames that leave together. */
#define EVICTED_TOGETHER 4

unsigned swn_prefetch_wait_ms = 30000;

/* For whom a frame is looked for. */
struct reader {
    const struct swn_walks *cursor;
    int force;      /* an operator waits for it */
    uint32_t place; /* of the read in the announced order, from 1 on; 0: an operator's; BEHIND: behind all announced */
    size_t frames;  /* of the walk, before it */
};
#define BEHIND UINT32_MAX

/* Whether f, which is needed later than the read or maybe not at all, may leave for it by now. Only a plan says which
 * frames have done their work. Without one, as with many models, all that was used may be used again: what is not in
 * the announced order is expected as far ahead as its last use lies back; and what is makes room for what is needed
 * soon, so that operators need not wait, but not for more: read sooner, everything would be read in every turn of
 * models that have room for a part of them (Belady's rule evicts when a frame is needed, and no sooner). */
static int may_make_room(const struct swn_engine *e, const struct swn_frame *f, const struct reader *reader)
{
    const struct swn_frame_use *use = swn_frame_use(f);
    if (!swn_announced_is_all(e) || !reader->place)
        return 1;
    if (use->next || swn_announced_is_round(e))
        return reader->frames * swn_pool_unit(e->pool) <= e->budget.limit / SOON_PART;
    return e->weights.accesses - use->last_access > reader->place - e->ops.announced.first;
}

/* What the announced order does not need again (its place is 0 then) is needed last. */
static int is_needed_later(const struct swn_frame *a, const struct swn_frame *b)
{
    return swn_frame_use(a)->next - 1 > swn_frame_use(b)->next - 1;
}

/* Whether what an operator reads now is needed later than `last`: in a round a read ahead waits for it. Else each pass
 * of a model that fills most of the memory would throw out what the models behind it have there. */
static int will_be_better(struct swn_engine *e, const struct swn_frame *last, const struct reader *reader)
{
    if (!last || reader->force || !swn_announced_is_round(e))
        return 0;
    for (const struct swn_frame *f = swn_pool_first(e->pool); f; f = f->next)
        if (swn_pool_chunk(e->pool, f->chunk)->users && is_needed_later(f, last))
            return 1;
    return 0;
}

/* The frame that may leave for another one; or NULL. That is the least recently used one of the ring
 * that nothing wants; then the expert that is used least often; then the one that the announced order needs
 * last, if that is behind the read that the frame is for; frames that were read ahead by the learned order leave only
 * where nothing else can. A frame that the plan keeps leaves only in the place of one that the announced order reads
 * several times, and sooner. */
static struct swn_frame *stale_frame(struct swn_engine *e, const struct reader *reader)
{
    struct swn_frame *ahead = NULL, *last = NULL, *kept = NULL, *rarest = NULL;
    /* Where nothing is announced, and for one model, kept frames stay: most of all, and not worth a visit each. */
    int all = e->ops.announced.count || e->config.stores & SWN_MANY_MODELS;
    for (struct swn_frame *f = all ? swn_pool_first(e->pool) : swn_pool_ring_first(e->pool); f;
         f = all ? f->next : f->ring_next) {
        uint32_t next = swn_frame_use(f)->next;
        if (!swn_frame_may_go(e, f))
            continue;
        if (f->pinned_by_plan && !(e->config.stores & SWN_MANY_MODELS && swn_reclaim_is_idle(e, f))) {
            kept = swn_reclaim_later_kept(f, kept);
            continue;
        }
        if (!may_make_room(e, f, reader))
            continue;
        if (next) {
            if (next > reader->place && (!last || next > swn_frame_use(last)->next))
                last = f;
            continue;
        }
        if (!swn_frame_is_wanted(f) && !swn_frame_has_experts(f))
            return f;
        if (!swn_frame_is_wanted(f))
            rarest = swn_frame_rarer(e, f, rarest);
        else
            ahead = f; /* the one that is needed last, as they were read in order */
    }
    if (rarest)
        return rarest;
    if (will_be_better(e, last, reader))
        return NULL;
    return reader->force && ahead ? ahead : swn_reclaim_kept_instead(kept, last) ? kept : last;
}

/* Whether f may leave with `first`, which is the one whose leaving costs least. */
static int may_go_with(struct swn_engine *e, const struct swn_frame *f, const struct swn_frame *first)
{
    if (swn_frame_has_experts(f) && (!swn_frame_has_experts(first) || !swn_frames_of_one_expert(f, first)))
        return 0;
    const struct swn_frame_use *use = swn_frame_use(f);
    int is_needed_later = swn_frame_use(first)->next ? use->next >= swn_frame_use(first)->next : !use->next;
    return is_needed_later && !f->pinned_by_plan && (use->next || !swn_frame_is_wanted(f)) && swn_frame_may_go(e, f);
}

/* Evicts f, and with it up to three frames of the chunks behind it that no thread needs: they are next anyway, and
 * evicting them one by one interrupts other processors more often. */
static void evict_run(struct swn_engine *e, struct swn_frame *f)
{
    struct swn_frame *run[EVICTED_TOGETHER] = {f};
    unsigned n = 1;
    while (n < EVICTED_TOGETHER && (f = swn_pool_chunk(e->pool, f->chunk + 1)->frame) && may_go_with(e, f, run[0]))
        run[n++] = f;
    swn_frames_evict(e, run, n);
}

/* --- reads --- */

/* Reads are served one after the other: the time of this one is that since the end of the one before. */
static void note_read(struct swn_engine *e, const struct swn_part *p, uint64_t now)
{
    const struct swn_frame_use *use = swn_frame_use(p->frame);
    uint64_t begin = use->start_ns > e->disk.read_done_ns ? use->start_ns : e->disk.read_done_ns;
    double ns = now > begin ? (double)(now - begin) : 0;
    /* A read for a kept frame happens once, into pages that are made for it; and a disk that also writes is slower. */
    if (!p->frame->pinned_by_plan && use->spilled_before == swn_spilled_so_far(e))
        swn_disk_speed_add(&e->disk.speed, (double)p->job.len, (double)use->start_ns, (double)now);
    else
        swn_disk_speed_skip(&e->disk.speed, (double)now);
    if (e->features.record && p->range && swn_is_weight(p->range))
        e->features.observer->read(e, &e->weights.all[p->range->weight], p->job.len, ns);
}

static void read_failed(struct swn_engine *e, struct swn_part *p, int err)
{
    struct swn_range *r = p->range;
    char name[4200];
    e->counters.read_errors++;
    swn_tensor_of(r)->io_failed = 1;
    p->range = NULL;
    if (!e->said.read++)
        swn_say("cannot read block %u (offset %llu, %zu bytes) from %s: %s; trying its mapping", p->range_id,
                (unsigned long long)p->job.off, p->job.len, e->features.source->name(p->file, name, sizeof name),
                strerror(-err));
}

static void fetch_done(struct swn_fetch_job *job, int err)
{
    struct swn_engine *e = &swn_engine_one;
    struct swn_part *p = job->user;
    struct swn_frame *f = p->frame;
    uint64_t now = swn_now_ns();
    if (err && e->features.source->retry(e, p, err))
        return;
    if (!err && !p->compressed && e->features.source->check(p, job->buf)) {
        if (!p->repeated++ && !swn_fetch_submit(e->fetch, job, 1))
            return; /* a bit may have flipped during the read: try once more */
        swn_engine_corrupt(p->file, p->range_id, job->off);
    }
    swn_lock(&e->lock);
    p->file->refs--;
    p->there = !err;
    e->counters.swap_ins += !err;
    if (!err)
        note_read(e, p, now);
    else
        swn_disk_speed_skip(&e->disk.speed, (double)now);
    e->disk.read_done_ns = now;
    uint64_t start_ns = swn_frame_use(f)->start_ns; /* of all that is pending in it */
    if (start_ns <= e->budget.target_since_ns)
        e->budget.in_flight_ns = now;
    if (e->trace) {
        char name[SWN_TRACE_NAME];
        snprintf(name, sizeof name, "block %u", p->range_id);
        swn_trace_span(e->trace, SWN_TRACK_DISK, 0, name, start_ns, now, job->len);
    }
    if (err && p->range)
        read_failed(e, p, err);
    if (!--f->pending && !swn_frame_is_alive(f))
        swn_pool_put(e->pool, f);
    swn_spin_wait_tell(&e->spin_wait);
    pthread_cond_broadcast(&e->changed);
    swn_unlock(&e->lock);
}

static int is_fetched(const struct swn_range *r)
{
    return atomic_load(&((struct swn_range *)r)->state) == SWN_FILE_BACKED && !r->shared && !r->filling &&
           !swn_tensor_of(r)->io_failed;
}

/* Removes the parts of ranges that have left the frame. Nothing is being read into it. */
static void compact(struct swn_frame *f)
{
    unsigned n = 0;
    for (unsigned i = 0; i < f->n; i++)
        if (f->parts[i].range)
            f->parts[n++] = f->parts[i];
    f->n = n;
}

/* Notes of f where the announced order needs it next. */
static void place_frame(struct swn_engine *e, struct swn_frame *f)
{
    struct swn_frame_use *use = swn_frame_use(f);
    int wanted = swn_frame_is_wanted(f);

    use->next = 0;
    for (unsigned i = 0; i < f->n; i++) {
        uint32_t place = f->parts[i].range ? swn_announced_place(e, f->parts[i].range_id) : 0;
        if (place && (!use->next || place < use->next))
            use->next = place;
    }
    use->is_repeated = use->next && e->ops.announced.reads[use->next - 1].is_repeated;
    swn_frame_want(f, use->cursor, wanted); /* until its thread looks ahead again, if the order has it no more */
}

void swn_prefetch_note_read(struct swn_engine *e, const struct swn_range *r)
{
    swn_announced_note_read(e, r);
    if (!e->ops.announced.count || !e->pool)
        return; /* no ordinary program announces anything */
    struct swn_chunks all = swn_residency_chunks(&e->res, r);
    for (uint64_t c = all.first; c < all.end; c++) {
        struct swn_frame *f = swn_pool_chunk(e->pool, c)->frame;
        if (f)
            place_frame(e, f);
    }
}

/* Whether f's chunk is one of r's. Mapped files that are neighbours in memory may have addresses in one unit, but each
 * has chunks of its own: in another's frame nothing of r would be found. */
static int is_chunk_of(const struct swn_engine *e, const struct swn_frame *f, const struct swn_range *r)
{
    struct swn_chunks own = swn_residency_chunks(&e->res, r);
    return f->chunk >= own.first && f->chunk < own.end;
}

/* Starts reading the streamed bytes of the chunk that are not in its frame yet, unless a read into the frame is under
 * way. */
static void fill(struct swn_engine *e, struct swn_frame *f, const struct swn_walks *cursor, int urgent)
{
    size_t unit = swn_pool_unit(e->pool);
    if (f->pending)
        return;
    compact(f);
    for (uintptr_t at = f->addr; at < f->addr + unit;) {
        struct swn_range *r = swn_arena_in(e->arena, at, f->addr + unit);
        if (!r)
            break;
        at = r->addr + r->span;
        if (is_fetched(r) && is_chunk_of(e, f, r) && !swn_pool_part_of(f, r) && !swn_residency_part(&e->res, f, r))
            break;
    }
    place_frame(e, f);
    struct swn_frame_use *use = swn_frame_use(f);
    swn_frame_want(f, cursor, 1);
    use->start_ns = swn_now_ns();
    use->spilled_before = swn_spilled_so_far(e);
    for (unsigned i = 0; i < f->n; i++)
        f->pending += !f->parts[i].there;
    for (unsigned i = 0; i < f->n; i++) {
        struct swn_part *p = &f->parts[i];
        if (p->there)
            continue;
        p->job = (struct swn_fetch_job){.file = &p->file->fetch,
                                        .off = p->off,
                                        .buf = (char *)swn_pool_at(e->pool, f) + p->at,
                                        .len = p->fill,
                                        .group = p->range_id,
                                        .done = fetch_done,
                                        .user = p};
        e->features.source->prepare(p);
        p->file->refs++;
        if (swn_fetch_submit(e->fetch, &p->job, urgent)) {
            p->file->refs--;
            p->range = NULL;
            f->pending--;
        }
    }
}

static size_t ring_frames(const struct swn_engine *e)
{
    return e->plan.ring_goal / swn_pool_unit(e->pool);
}

/* The frames of the ring, and those for experts. */
static size_t all_frames(const struct swn_engine *e)
{
    return swn_ring_goal(e) / swn_pool_unit(e->pool);
}

/* How far the learned order is followed, for all threads together. */
static size_t window_frames(const struct swn_engine *e)
{
    size_t soon = e->budget.limit / SOON_PART / swn_pool_unit(e->pool), ring = ring_frames(e);
    /* Room for experts is left over where everything else is kept, so that they are all that is read ahead. */
    ring += e->plan.experts_room / AHEAD_PART / swn_pool_unit(e->pool);
    return e->config.stores & SWN_MANY_MODELS && !e->plan.planned && soon > ring ? soon : ring;
}

/* Whether f has an expert that is used more often than the expert of r's chunk, which is not needed that soon. A prompt
 * has tokens for nearly all experts, each of which it reads once: read far ahead, they would take the places of half of
 * those that all of its tokens use. So many as the ring is wide keep the disk busy, and leave first when they have been
 * used. */
static int is_worth_more(struct swn_engine *e, struct swn_frame *f, const struct swn_range *r, struct swn_chunk *c,
                         const struct reader *reader)
{
    return !reader->force && swn_is_mixture(r) && !c->plan_keep && reader->frames > ring_frames(e) &&
           swn_frame_has_experts(f) && swn_frame_uses(e, f) > swn_chunk_uses(e, c);
}

/* Finds memory for one more frame. 0 or -ENOMEM: without `force`, only if nothing has to leave; with it, if nothing
 * can. */
static int room_for_frame(struct swn_engine *e, const struct swn_range *spare, int force)
{
    size_t unit = swn_pool_unit(e->pool);
    if (!swn_pool_is_full(e->pool))
        return 0;
    if (force)
        return swn_reclaim_try(e, unit, spare);
    return swn_reclaim_free_fits(e, unit) ? 0 : -ENOMEM;
}

/* Whether there will be more room soon: a read ahead is under way, and no thread waits for its frame. */
static int room_will_come(struct swn_engine *e)
{
    for (struct swn_frame *f = swn_pool_first(e->pool); f; f = f->next)
        if (f->pending && !swn_pool_chunk(e->pool, f->chunk)->users)
            return 1;
    return 0;
}

static void say_small(struct swn_engine *e)
{
    if (swn_pool_unit(e->pool) == SWN_HUGE && !swn_pool_is_huge(e->pool) && !e->said.small++)
        swn_say(
            "the kernel gives no huge pages for weights that come and go (they are disabled for this process, memory "
            "is fragmented, or it is older than 6.1): slower but with the same result");
}

/* Whether there is memory for one more frame, for the chunk c of r; *kept: as one that the plan keeps. Frames that it
 * keeps do not make room for the ring, nor for more kept frames. In a round all are alike. */
static int fits(struct swn_engine *e, const struct swn_range *r, const struct swn_chunk *c, int force, int *kept)
{
    int is_round = swn_announced_is_round(e), push = force && !e->plan.planned;

    *kept = c->plan_keep && !is_round && !room_for_frame(e, r, push);
    if (*kept)
        return 1;
    if ((is_round || swn_pool_ring(e->pool) >= all_frames(e)) && !swn_ring_may_exceed(e, swn_pool_unit(e->pool)))
        return 0;
    return !room_for_frame(e, r, push);
}

/* A frame for the chunk of r, with its bytes, or to be filled. NULL: there is none. */
static struct swn_frame *place(struct swn_engine *e, const struct swn_range *r, uint64_t chunk,
                               const struct reader *reader)
{
    struct swn_chunk *c = swn_pool_chunk(e->pool, chunk);
    struct swn_frame *f = c->frame;
    int force = reader->force;
    if (f) {
        if (!swn_pool_part_of(f, r))
            fill(e, f, reader->cursor, force);
        return f;
    }
    int kept, room = fits(e, r, c, force, &kept);
    if (!room && (f = stale_frame(e, reader)) && !is_worth_more(e, f, r, c, reader)) {
        int is_idle = swn_reclaim_is_idle(e, f);
        /* The next plan brings kept frames back, once the order is settled again. */
        e->plan.dirty |= f->pinned_by_plan && !is_idle;
        /* A model that was idle gets what the plan keeps of it in the place of what others had. */
        kept = c->plan_keep && (f->pinned_by_plan || (is_idle && swn_pool_ring(e->pool) > all_frames(e)));
        evict_run(e, f);
        room = 1;
    }
    /* The operator needs more at once than the ring holds; but first frames that were read ahead leave. */
    if (!room && force && !room_will_come(e))
        room = !room_for_frame(e, r, force);
    if (!room || c->frame)
        return c->frame;
    int fresh = swn_pool_is_full(e->pool);
    f = swn_pool_take(e->pool, chunk, swn_residency_chunk_at(&e->res, r, chunk));
    if (!f) {
        if (swn_pool_is_limited(e->pool) && !e->said.limited++)
            swn_say("a limit on the size of files (ulimit -f) leaves no more memory for weights that are read ahead: "
                    "they are read through their mappings, more slowly");
        return NULL;
    }
    say_small(e);
    e->counters.filled += fresh ? swn_pool_unit(e->pool) : 0;
    /* A round leaves no mark on the plan. */
    swn_pool_set_pinned(e->pool, f, kept || (swn_announced_is_round(e) && c->plan_keep));
    fill(e, f, reader->cursor, force);
    if (!f->n) {
        swn_pool_put(e->pool, f);
        return NULL;
    }
    if (fresh)
        swn_engine_note_peak(e);
    return f;
}

void swn_prefetch_claim(struct swn_engine *e, const struct swn_range *r, const struct swn_chunks *chunks,
                        struct swn_thread_state *t)
{
    uint64_t until = swn_now_ns() + swn_prefetch_wait_ms * 1000000ull;
    const struct reader reader = {.cursor = t ? &t->walks : NULL, .force = 1};
    uint32_t id = r->id;
    for (uint64_t c = chunks->first; c < chunks->end; c++)
        while (r->id == id && is_fetched(r) && !place(e, r, c, &reader)) {
            /* If need be after reads ahead have ended, as their frames can leave only then. */
            if (swn_frame_cancel_one(e))
                continue;
            if (!room_will_come(e) || swn_cond_wait_until(&e->changed, &e->lock, until))
                return;
        }
}

/* Waits until something has changed, but no longer than a wait that began at begin_ns may take: then ETIMEDOUT. */
static int wait_for_change(struct swn_engine *e, uint64_t begin_ns)
{
    unsigned seen = swn_spin_wait_told(&e->spin_wait);
    if (!swn_spin_wait_worth(&e->spin_wait, begin_ns))
        return swn_cond_wait_until(&e->changed, &e->lock, begin_ns + swn_prefetch_wait_ms * 1000000ull);
    swn_unlock(&e->lock);
    swn_spin_wait_wait(&e->spin_wait, seen, begin_ns);
    swn_lock(&e->lock);
    return 0;
}

static void promote(struct swn_engine *e, struct swn_frame *f)
{
    for (unsigned i = 0; i < f->n; i++)
        if (!f->parts[i].there && f->parts[i].range)
            swn_fetch_promote(e->fetch, &f->parts[i].job);
}

void swn_prefetch_await(struct swn_engine *e, const struct swn_chunks *chunks, struct swn_thread_state *t)
{
    uint64_t begin = 0;
    for (uint64_t c = chunks->first; c < chunks->end; c++) {
        struct swn_chunk *chunk = swn_pool_chunk(e->pool, c);
        int asked = 0;
        while (chunk->frame && chunk->frame->pending) {
            if (!asked++)
                promote(e, chunk->frame);
            begin = begin ? begin : swn_now_ns();
            if (wait_for_change(e, begin) == ETIMEDOUT)
                break;
        }
    }
    if (!begin)
        return;
    uint64_t end = swn_now_ns();
    e->counters.stalls++;
    e->counters.stall_ns += end - begin;
    swn_spin_wait_learn(&e->spin_wait, end - begin);
    if (e->trace)
        swn_trace_span(e->trace, SWN_TRACK_STALL, t->index, "waiting", begin, end,
                       (chunks->end - chunks->first) * swn_pool_unit(e->pool));
}

/* --- reading ahead --- */

static size_t active_threads(struct swn_engine *e)
{
    size_t active = 0;
    for (struct swn_thread_state *t = e->ops.threads; t; t = t->next)
        active += t->listed && t->last_access && e->weights.accesses - t->last_access < IDLE_ACCESSES;
    return active ? active : 1;
}

/* How far ahead a thread reads, in frames. First all frames that exist are marked as needed, so that no read that
 * starts then evicts a frame that is needed a little later. */
struct ahead {
    struct swn_thread_state *t;
    size_t share, frames;
    uint64_t last;  /* the last chunk that was looked at, plus one */
    uint32_t place; /* as of a reader; never 0 */
    int fetch, missing;
    int unsure; /* passed bytes that may have to be read soon, though they are not streamed now */
    int round;  /* has come round to where the thread is */
};

/* 0: no more fits ahead. */
static int prefetch_chunk(struct swn_engine *e, struct ahead *a, const struct swn_range *r, uint64_t chunk)
{
    struct swn_chunk *c = swn_pool_chunk(e->pool, chunk);
    struct swn_frame *f = c->frame;
    int is_round = swn_announced_is_round(e), is_kept = c->plan_keep && !is_round;
    if (a->last == chunk + 1 || (f && f->pinned_by_plan && !is_round && swn_pool_part_of(f, r)))
        return 1;
    a->last = chunk + 1;
    if (a->place == BEHIND && a->frames >= a->share && !is_kept)
        return 0;
    a->frames += !is_kept;
    if (f && swn_pool_part_of(f, r)) {
        swn_frame_want(f, &a->t->walks, a->place == BEHIND || swn_frame_is_wanted(f));
        return 1;
    }
    a->missing = 1;
    if (!a->fetch)
        return 1;
    f = place(e, r, chunk, &(struct reader){.cursor = &a->t->walks, .place = a->place, .frames = a->frames});
    if (!f) {
        a->t->walks.starved = 1;
        return 0;
    }
    return 1;
}

/* Prefetches bytes `from` to `upto` of r. */
static int prefetch_bytes(struct swn_engine *e, struct ahead *a, const struct swn_range *r, size_t from, size_t upto)
{
    size_t unit = swn_pool_unit(e->pool);
    uint64_t end = (r->place + upto + unit - 1) / unit;
    a->unsure |= !is_fetched(r) && swn_state_of(r) != SWN_RESIDENT;
    for (uint64_t c = (r->place + from) / unit; is_fetched(r) && c < end; c++)
        if (!prefetch_chunk(e, a, r, c))
            return 0;
    return 1;
}

/* Prefetches the experts of r that the list has from its i-th on. */
static int prefetch_experts(struct swn_engine *e, struct ahead *a, const struct swn_range *r,
                            const struct swn_expert_list *list, size_t i)
{
    size_t from, upto;
    for (; i < list->n; i++) {
        swn_expert_bounds(r, list->numbers[i], &from, &upto);
        if (from < upto && !prefetch_bytes(e, a, r, from, upto))
            return 0;
    }
    return 1;
}

/* Of a mixture only experts are read ahead that it is going to read: those that the weight before it reads, if that
 * has been so the last times. Otherwise *list is NULL for the mixtures behind it. */
static int prefetch_mixture(struct swn_engine *e, struct ahead *a, const struct swn_range *r,
                            const struct swn_expert_list **list)
{
    const struct swn_mixture *p = &swn_tensor_of(r)->mixture;
    if (!*list || p->follows < FOLLOWS_SURELY || (*list)->count != p->count)
        *list = NULL;
    return !*list || prefetch_experts(e, a, r, *list, 0);
}

static int prefetch_one(struct swn_engine *e, struct ahead *a, const struct swn_range *r)
{
    return prefetch_bytes(e, a, r, 0, r->len);
}

/* Whether r was read when expected: right behind `before`, or soon after, as not everything in a store is read as a
 * weight. Without a prediction the answer is yes. */
static int as_expected(struct swn_engine *e, const struct swn_range *before, const struct swn_range *r)
{
    const struct swn_range *first = e->features.source->successor(e, before), *next = first;
    for (int step = 0; next && next != r && step < 3; step++)
        next = e->features.source->successor(e, next);
    return next == r || !first;
}

/* In a first pass predictions are used as long as the last two weights were as expected; half of the ring is for chunks
 * that operators actually ask for. */
static void prefetch_untried(struct swn_engine *e, struct swn_thread_state *t, uint32_t before, uint32_t last)
{
    struct swn_weight *weight = swn_weight_of(e, last), *previous = before ? swn_weight_of(e, before) : NULL;
    struct swn_range *r = weight ? weight->range : NULL, *next = r ? e->features.source->successor(e, r) : NULL;
    if (!next || (previous && !as_expected(e, previous->range, r)))
        return;
    swn_ring_lend(e, UNTRIED_RING * swn_round_up(r->len > next->len ? r->len : next->len, SWN_PAGE));
    struct ahead a = {.t = t, .share = ring_frames(e) / active_threads(e) / 2, .place = BEHIND, .fetch = 1};
    /* Predictions for a mapped file may go round in circles, and lead past ranges that need no room. */
    for (size_t i = 0; next && !swn_is_weight(next) && i < CHAIN_MOST; i++) {
        if (!prefetch_one(e, &a, next))
            return;
        next = e->features.source->successor(e, next);
    }
}

/* Whether a read ahead of r could be of use. Of what is the larger part of the memory its operator may find no place
 * for all of it, and then takes nothing from frames, unless it takes slices: then each chunk that is there is not read.
 */
static int is_worth_reading(const struct swn_engine *e, const struct swn_range *r)
{
    if (swn_is_mixture(r) || (swn_is_weight(r) && e->weights.all[r->weight].oversize))
        return 0;
    return r->len <= e->budget.limit / 2 || swn_tensor_of(r)->sliced;
}

/* Walks along the announced order, from the first read that may be missing on, until there is no frame that it needs
 * later than a missing one. 0: there is none, or the order does not say how the learned one goes on. Otherwise what
 * follows, the last two weights, are in before and last. */
static int walk_announced(struct swn_engine *e, struct ahead *a, uint32_t *before, uint32_t *last)
{
    struct swn_announced *order = &e->ops.announced;
    int is_all = swn_announced_is_all(e);
    /* What follows is of no interest then, and all that is needed is known from its place. */
    size_t at = is_all ? order->settled : 0;
    for (struct swn_frame *f = at ? swn_pool_first(e->pool) : NULL; f; f = f->next)
        a->frames += swn_frame_use(f)->next && swn_frame_use(f)->next <= at;
    for (struct swn_range *r; (r = swn_announced_next(e, &at));) {
        *before = *last;
        *last = swn_is_weight(r) ? e->weights.all[r->weight].id : 0;
        a->place = (uint32_t)at;
        if (is_worth_reading(e, r) && !prefetch_one(e, a, r))
            return 0;
        if (a->missing && !a->fetch && is_all)
            return 0;
        order->settled = is_all ? at : 0;
    }
    a->place = BEHIND;
    return *last != 0 && !is_all;
}

/* Walks along the announced order, and then along the learned order of t's next weights, as far as t's share of the
 * ring goes. */
static void walk_ahead(struct swn_engine *e, struct ahead *a)
{
    struct swn_thread_state *t = a->t;
    const struct swn_range *slice = t->slicing ? swn_arena_find(e->arena, t->slicing) : NULL;
    if (slice && t->slicing_end > t->slicing && t->slicing_end <= slice->addr + slice->span &&
        !prefetch_bytes(e, a, slice, t->slicing - slice->addr, t->slicing_end - slice->addr))
        return;
    uint32_t before = t->cursor.before, at = t->cursor.at;
    const struct swn_expert_list *list = t->experts && t->experts->is_told ? t->experts : NULL;
    struct swn_weight *reads = list && list->range_id ? swn_weight_of(e, at) : NULL;
    if (reads && reads->range->id == list->range_id && !prefetch_experts(e, a, reads->range, list, list->next))
        return;
    if (!walk_announced(e, a, &before, &at))
        return;
    size_t most = e->weights.live + 2 < CHAIN_MOST ? e->weights.live + 2 : CHAIN_MOST;
    for (size_t i = 0; i < most; i++) {
        uint32_t next = swn_access_order_next(e->weights.order, before, at);
        struct swn_weight *weight = next ? swn_weight_of(e, next) : NULL;
        if (!weight) {
            a->missing |= !a->frames;
            if (!a->frames && a->fetch)
                prefetch_untried(e, t, before, at);
            return;
        }
        before = at;
        at = next;
        int is_mixture = swn_is_mixture(weight->range);
        a->unsure |= is_mixture;
        if (!(is_mixture ? prefetch_mixture(e, a, weight->range, &list) : prefetch_one(e, a, weight->range)))
            return;
        a->round = before == t->cursor.before && at == t->cursor.at;
        if (a->round)
            return;
    }
}

/* What decides whether a walk finds something missing: where frames are, which ranges are streamed, and the order. */
static uint64_t state_of(const struct swn_engine *e)
{
    return 1 + swn_pool_changes(e->pool) + e->res.turns + swn_access_order_changes(e->weights.order);
}

/* Whether a walk of t would come round once more and find nothing missing, as its last one did. Where all weights are
 * kept, walking round them before each operator takes a time that is quadratic in their number: 63 us for each of 1000
 * weights. */
static int is_settled(const struct swn_engine *e, const struct swn_thread_state *t)
{
    return t->walks.settled == state_of(e) && !t->slicing && !e->ops.announced.count;
}

void swn_prefetch_run(struct swn_engine *e, struct swn_thread_state *t)
{
    if (!e->pool || !e->fetch || e->config.without & SWN_WITHOUT_PREFETCH || (!t->cursor.at && !e->ops.announced.room))
        return;
    t->walks.starved = 0;
    if (is_settled(e, t))
        return;
    t->walks.count++; /* what earlier walks wanted is wanted no more */
    size_t share = window_frames(e) / active_threads(e);
    for (int fetch = 0, missing = 1; fetch < 2 && missing; fetch++) {
        struct ahead a = {.t = t, .share = share ? share : 1, .place = BEHIND, .fetch = fetch};
        walk_ahead(e, &a);
        missing = a.missing;
        t->walks.settled = a.round && !missing && !a.unsure ? state_of(e) : 0;
    }
}

void swn_prefetch_announced(struct swn_engine *e, struct swn_thread_state *t)
{
    for (struct swn_frame *f = e->pool ? swn_pool_first(e->pool) : NULL; f; f = f->next)
        place_frame(e, f);
    if (t)
        swn_prefetch_run(e, t);
}
