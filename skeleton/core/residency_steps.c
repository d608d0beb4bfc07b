/* skeleton/core/residency_steps.c - the pool, and the steps of a weight: to its own pages, to its file, into and out of
 * frames. eviction.c, prefetch.c and plan.c decide which weight and when; the mechanism is in
 * blocks/memory/residency.c and publish.c. */
#define _GNU_SOURCE
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "blocks/memory/publish.h"
#include "skeleton/engine/engine_internal.h"
#include "base/backing.h"
#include "base/huge_pages.h"
#include "base/paths.h"
#include "base/size.h"
#include "skeleton/engine/accounting.h"
#include "skeleton/core/fetch_setup.h"
#include "skeleton/core/residency_steps.h"
#include "skeleton/engine/subsystem.h"
#include "skeleton/engine/weights.h"
#include "skeleton/core/ring_size.h"
#include "skeleton/core/write_behind.h"

/* A budget that holds at least this many huge pages has chunks of that size. With smaller chunks, and so small pages, a
 * pass of GPT-2 within 28 MiB takes 1.5 times as long. With fewer huge pages than this, activations and weights have
 * too few to share: MobileNetV2 within 16 MiB wrote activations out in every pass. */
#define HUGE_LEAST 9
/* The number of chunks of a smaller budget, none smaller than UNIT_LEAST: a chunk stays in memory as a whole even if
 * the plan keeps only one weight in it. */
#define UNIT_LEAST ((size_t)256 << 10)
#define UNITS_LEAST 32
/* Each full spill file that still has bytes of a range takes two descriptors from the program. */
#define FULL_MOST 64

int swn_open_spill(struct swn_engine *e)
{
    struct swn_writes *w = &e->writes;
    if (w->spill_dir[0])
        return swn_spill_open(&w->spill, e->io, w->spill_dir);
    int err = swn_spill_open(&w->spill, e->io, e->config.store_dir);
    if (!err) {
        snprintf(w->spill_dir, sizeof w->spill_dir, "%s", e->config.store_dir);
    } else if (swn_dir_is_for_reading(e->config.store_dir, err) &&
               !swn_default_store_dir(environ, w->spill_dir, sizeof w->spill_dir)) {
        if (swn_spill_open(&w->spill, e->io, w->spill_dir)) {
            w->spill_dir[0] = 0;
            return err;
        }
        swn_say("the store directory %s can only be read: what leaves memory is written to %s", e->config.store_dir,
                w->spill_dir);
        return 0;
    }
    return err;
}

int swn_look_at_store_disk(struct swn_engine *e)
{
    enum { UNKNOWN, ON_DISK, IN_MEMORY };
    const char *dir = e->writes.spill_dir[0] ? e->writes.spill_dir : e->config.store_dir; /* that is written to */
    int medium = atomic_load(&e->disk.looked_at);
    if (medium != UNKNOWN)
        return medium == IN_MEMORY;
    medium = swn_is_memory_backed(e->io, dir) ? IN_MEMORY : ON_DISK;
    if (atomic_exchange(&e->disk.looked_at, medium) == UNKNOWN && medium == IN_MEMORY)
        swn_say(
            "the store directory %s lies in memory (tmpfs, or an overlay over it): what is written there to keep the "
            "budget takes memory all the same; set SWAPNET_STORE to a directory on a disk",
            dir);
    return medium == IN_MEMORY;
}

/* The size of a chunk in bytes of addresses. */
static size_t unit_for(const struct swn_engine *e)
{
    size_t unit = SWN_HUGE;
    if (e->budget.target / HUGE_LEAST >= unit)
        return unit;
    while (unit > UNIT_LEAST && unit > e->budget.target / UNITS_LEAST)
        unit /= 2;
    return unit;
}

/* What lies in the full file stays there. */
static void replace_full_spill(struct swn_engine *e)
{
    struct swn_extent_file *full = e->writes.spill;
    unsigned others = 0;
    for (const struct swn_extent_file *f = e->writes.full; f; f = f->next)
        others++;
    if (others >= FULL_MOST || swn_write_behind_bytes(e) || swn_open_spill(e))
        return; /* perhaps later */
    e->res.spill = e->writes.spill;
    e->writes.spilled_before += full->written_bytes;
    swn_write_behind_use(e, e->writes.spill);
    swn_residency_give_up_places(&e->res, full);
    swn_spill_punch_all(full);
    full->next = e->writes.full;
    e->writes.full = full;
}

/* Closes those that no range and no thread uses any more. */
static void close_full_spills(struct swn_engine *e)
{
    struct swn_extent_file **link = &e->writes.full;
    while (*link) {
        struct swn_extent_file *f = *link;
        if (f->refs || swn_write_behind_uses(e, f)) {
            link = &f->next;
        } else {
            *link = f->next;
            swn_spill_close(f);
        }
    }
}

static int make_pool(struct swn_engine *e)
{
    if (!e->pool) {
        size_t unit = unit_for(e);
        int err = swn_pool_create(&e->pool, unit, (swn_arena_hi(e->arena) - swn_arena_lo(e->arena)) / unit,
                                  sizeof(struct swn_frame_use));
        if (err)
            return err;
        e->res.pool = e->pool;
        if (!swn_pagemap_knows_huge(&e->res.pagemap_fd))
            swn_pool_keep_small(e->pool);
        swn_ring_resize(e, swn_ring_first(e));
    }
    if (!e->writes.spill) {
        int err = swn_open_spill(e);
        if (err)
            return err;
        e->res.spill = e->writes.spill;
    }
    e->res.spill_in_memory = swn_look_at_store_disk(e);
    if (!e->fetch) {
        int err = swn_queue_start(e);
        if (err)
            return err;
    }
    return 0;
}

/* The program has closed the spill file, and only its mappings are left: they still serve the bytes in it, and later
 * ranges go to another file. */
static void lose_spill(struct swn_engine *e)
{
    if (!e->said.closed++)
        swn_say(
            "the program has closed descriptors that it did not open, the spill file's among them: what lies there is "
            "read through its mapping, more slowly");
    e->writes.spilled_before += e->writes.spill->written_bytes;
    e->writes.spill = e->res.spill = NULL;
}

const char *swn_pool_advice(int err)
{
    switch (-err) {
    case EMFILE:
    case ENFILE:
        return " (ulimit -n?)";
    case EFBIG:
        return " (ulimit -f?)";
    case ENOMEM:
        return " (ulimit -v?)";
    case EACCES:
    case EPERM:
    case EROFS:
    case ENOENT:
    case ENOTDIR:
        return ": set SWAPNET_STORE to a directory that you can write to";
    case ENOSPC:
    case EDQUOT:
        return ": set SWAPNET_STORE to a directory with more room";
    default:
        return "";
    }
}

/* The pool is made when the first byte has to leave: from then on it counts. */
int swn_open_pool(struct swn_engine *e)
{
    if (atomic_load(&e->life.retired))
        return -EBUSY;
    if (e->writes.spill && !swn_spill_is_ours(e->writes.spill))
        lose_spill(e);
    if (e->writes.spill && swn_spill_is_full(e->writes.spill))
        replace_full_spill(e);
    close_full_spills(e);
    if (e->pool && e->writes.spill && e->fetch)
        return 0;
    int err = make_pool(e);
    if (err && !e->said.pool++)
        swn_say(
            "cannot set up the pool and the spill file in %s: %s%s; weights stay in memory and the budget is not kept",
            e->writes.spill_dir, strerror(-err), swn_pool_advice(err));
    return err;
}

uint64_t swn_spilled_so_far(const struct swn_engine *e)
{
    return e->writes.spilled_before + (e->writes.spill ? e->writes.spill->written_bytes : 0);
}

/* Whether the frame still has bytes of any range. */
int swn_frame_is_alive(const struct swn_frame *f)
{
    for (unsigned i = 0; i < f->n; i++)
        if (f->parts[i].range)
            return 1;
    return 0;
}

void swn_frames_drop_dead(struct swn_engine *e, const struct swn_chunks *chunks)
{
    for (uint64_t c = chunks->first; e->pool && c < chunks->end; c++) {
        struct swn_frame *f = swn_pool_chunk(e->pool, c)->frame;
        if (f && !f->pending && !swn_frame_is_alive(f))
            swn_pool_put(e->pool, f);
    }
}

void swn_frames_forget(struct swn_engine *e, const struct swn_range *r)
{
    struct swn_chunks chunks = swn_residency_chunks(&e->res, r);
    swn_residency_forget(&e->res, r);
    swn_frames_drop_dead(e, &chunks);
}

int swn_unshare(struct swn_engine *e, struct swn_range *r)
{
    int err = swn_residency_unshare(&e->res, r);
    if (err && !r->shared)
        swn_engine_unwritable(r, err);
    return err;
}

int swn_make_resident(struct swn_engine *e, struct swn_range *r, void *pages)
{
    if (atomic_load(&r->state) != SWN_FILE_BACKED)
        return 0;
    if (!pages)
        e->features.source->verify(e, r);
    int err = swn_unshare(e, r);
    if (!err)
        err = swn_residency_make_resident(&e->res, r, pages);
    if (err)
        return err;
    e->counters.filled += r->size;
    if (swn_is_weight(r))
        e->weights.resident_bytes += r->size;
    swn_frames_forget(e, r);
    return 0;
}

/* Evicts frames of neighbouring chunks. */
void swn_frames_evict(struct swn_engine *e, struct swn_frame **frames, unsigned n)
{
    uint64_t begin = e->features.record ? swn_now_ns() : 0;
    struct swn_range *r = frames[0]->n ? frames[0]->parts[0].range : NULL;
    struct swn_weight *weight = e->features.record && r && swn_is_weight(r) ? &e->weights.all[r->weight] : NULL;
    for (unsigned i = 0; i < n; i++)
        frames[i]->pending++; /* so that swn_frames_drop_dead does not free them */
    /* Either a thread has written, and the private copies are valid now; or there is no memory for another mapping, and
     * the address must not show a frame that gets other bytes. */
    while ((r = swn_residency_unpublish(&e->res, frames, n)))
        swn_make_resident(e, r, 0);
    for (unsigned i = 0; i < n; i++) {
        swn_announced_unsettle(e, swn_frame_use(frames[i])->next);
        swn_pool_put(e->pool, frames[i]);
    }
    if (weight)
        e->features.observer->released(e, weight, (double)(swn_now_ns() - begin));
}

/* --- frames --- */

void swn_frame_evict(struct swn_engine *e, struct swn_frame *f)
{
    swn_frames_evict(e, &f, 1);
}

int swn_frame_may_go(const struct swn_engine *e, const struct swn_frame *f)
{
    return !f->pending && !swn_pool_chunk(e->pool, f->chunk)->users;
}

/* --- what an operator waits for --- */

int swn_frame_cancel_reads(struct swn_engine *e, struct swn_frame *f)
{
    for (unsigned i = 0; f->pending && i < f->n; i++) {
        struct swn_part *p = &f->parts[i];
        if (p->there || !p->range || swn_fetch_cancel(e->fetch, &p->job))
            continue;
        swn_announced_unsettle(e, swn_frame_use(f)->next);
        p->file->refs--;
        p->range = NULL; /* fetch_done will not see it */
        f->pending--;
    }
    return !f->pending;
}

/* Into a frame that no operator waits for. */
static int is_read_ahead(const struct swn_engine *e, const struct swn_frame *f)
{
    return f->pending && !swn_pool_chunk(e->pool, f->chunk)->users;
}

int swn_frame_cancel_one(struct swn_engine *e)
{
    struct swn_frame *last = NULL;
    for (struct swn_frame *f = swn_pool_first(e->pool); f; f = f->next)
        if (is_read_ahead(e, f) && swn_frame_use(f)->next > (last ? swn_frame_use(last)->next : 0))
            last = f; /* the announced order needs it last */
    if (last && swn_frame_cancel_reads(e, last)) {
        swn_frame_evict(e, last);
        return 1;
    }
    for (struct swn_frame *f = swn_pool_first(e->pool); f; f = f->next)
        if (is_read_ahead(e, f) && swn_frame_cancel_reads(e, f)) {
            swn_frame_evict(e, f);
            return 1;
        }
    return 0;
}

int swn_spill_again(struct swn_engine *e, int err)
{
    const struct swn_extent_file *file = e->writes.spill;
    if (err == -EBADF || (err == -EFBIG && file && swn_spill_is_full(file)))
        return !swn_open_pool(e) && e->writes.spill != file;
    return swn_spill_is_crowded(err) && file && swn_residency_give_up_places(&e->res, file);
}

void swn_note_spill(struct swn_engine *e, size_t size, int err)
{
    if (!err) {
        atomic_store(&e->life.want_hook, 1);
    } else if (err != -EBUSY && err != -EBADF) {
        char need[32];
        if (!e->said.full++)
            swn_say(
                "cannot write %s more to the store directory %s: %s; memory may exceed the budget until there is room",
                swn_format_mib(need, size), e->writes.spill_dir, strerror(-err));
        if (err != -EFBIG) /* which smaller ranges may not meet */
            e->writes.spill_retry = e->counters.allocs + 64;
    }
}

int swn_spill_range(struct swn_engine *e, struct swn_range *r)
{
    size_t size = r->size;
    uint64_t begin = swn_now_ns();
    int err = swn_residency_spill(&e->res, r);
    if (err && swn_spill_again(e, err))
        err = swn_residency_spill(&e->res, r);
    if (!err) {
        e->writes.bytes += size;
        e->writes.ns += swn_now_ns() - begin;
    }
    if (!err && swn_is_weight(r))
        e->weights.resident_bytes -= size;
    swn_note_spill(e, size, err);
    return err;
}
