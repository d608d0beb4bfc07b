/* blocks/memory/publish.c - see publish.h. */
#define _GNU_SOURCE
#include "blocks/memory/publish.h"

#include <stdatomic.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/huge_pages.h"
#include "blocks/memory/reserve.h"
#include "blocks/memory/transition.h"
#include "blocks/memory/held_signals.h"

/* The most parts that are mapped or unmapped together. */
#define STRETCH_MOST 64

struct swn_chunks swn_residency_chunks(const struct swn_residency *s, const struct swn_range *r)
{
    size_t unit = s->pool ? swn_pool_unit(s->pool) : SWN_HUGE;
    return (struct swn_chunks){.first = r->place / unit, .end = (r->place + r->span - 1) / unit + 1};
}

uintptr_t swn_residency_chunk_at(const struct swn_residency *s, const struct swn_range *r, uint64_t chunk)
{
    return r->addr - r->place + chunk * swn_pool_unit(s->pool);
}

struct swn_part *swn_residency_mapped(const struct swn_residency *s, const struct swn_range *r, uintptr_t addr)
{
    if (!s->pool)
        return NULL;
    uint64_t chunk = (r->place + (addr - r->addr)) / swn_pool_unit(s->pool);
    struct swn_part *p = swn_pool_part_of(swn_pool_chunk(s->pool, chunk)->frame, r);
    return p && p->mapped ? p : NULL;
}

size_t swn_residency_unmapped(const struct swn_residency *s, const struct swn_range *r)
{
    size_t size = swn_round_up(r->len, SWN_PAGE), mapped = 0;
    struct swn_chunks all = swn_residency_chunks(s, r);
    for (uint64_t c = all.first; s->pool && c < all.end; c++) {
        const struct swn_part *p = swn_pool_part_of(swn_pool_chunk(s->pool, c)->frame, r);
        mapped += p && p->mapped ? p->fill : 0;
    }
    return size > mapped ? size - mapped : 0;
}

void swn_residency_forget(struct swn_residency *s, const struct swn_range *r)
{
    struct swn_chunks all = swn_residency_chunks(s, r);
    for (uint64_t c = all.first; s->pool && c < all.end; c++) {
        struct swn_part *p = swn_pool_part_of(swn_pool_chunk(s->pool, c)->frame, r);
        if (p)
            p->range = NULL;
    }
}

static void populate(uintptr_t addr, size_t bytes)
{
#ifdef MADV_POPULATE_READ
    if (!madvise((void *)addr, bytes, MADV_POPULATE_READ))
        return;
#endif
    for (uintptr_t page = addr; page < addr + bytes; page += SWN_PAGE)
        (void)*(volatile unsigned char *)page;
}

/* A child must not see frames, as their bytes change: its fork handler maps the extents into the hole. Core dumps leave
 * out bytes that a file has. */
static void leave_out(void *at, size_t bytes)
{
    madvise(at, bytes, MADV_DONTFORK);
    swn_reserve_dump(at, bytes, 0);
}

struct swn_part *swn_residency_part(const struct swn_residency *s, struct swn_frame *f, struct swn_range *r)
{
    uintptr_t lo = r->addr > f->addr ? r->addr : f->addr, end = r->addr + r->span;
    uintptr_t frame_end = f->addr + swn_pool_unit(s->pool), hi = end < frame_end ? end : frame_end;
    uintptr_t filled = swn_round_up(r->addr + r->len, SWN_PAGE);
    struct swn_part *p = swn_pool_part(f);
    if (!p)
        return NULL;
    p->range = r;
    p->range_id = r->id;
    p->at = lo - f->addr;
    p->bytes = hi - lo;
    p->fill = filled > lo ? (filled < hi ? filled : hi) - lo : 0;
    p->file = r->file;
    p->off = r->extent + (lo - r->addr);
    p->there = !p->fill;
    struct swn_part own = *p;
    unsigned i = f->n - 1;
    for (; i && f->parts[i - 1].at > own.at; i--)
        f->parts[i] = f->parts[i - 1];
    f->parts[i] = own;
    return &f->parts[i];
}

static int can_be_mapped(const struct swn_part *p)
{
    return p->range && p->there && !p->mapped && swn_state_of(p->range) == SWN_FILE_BACKED && !p->range->shared &&
           !p->range->filling;
}

static int is_mapped(const struct swn_part *p)
{
    return p->range && p->mapped;
}

/* Adjacent parts of one frame or several. An operation on all of them takes one system call, and, more important,
 * interrupts other processors once. */
struct stretch {
    struct swn_part *parts[STRETCH_MOST];
    unsigned n;
};

/* The begin of the next stretch. */
struct reached {
    unsigned frame, part;
};

static uintptr_t addr_of(const struct swn_part *p)
{
    return p->frame->addr + p->at;
}

/* Bytes from part `from` to the end of the part before `upto`. */
static size_t bytes_of(const struct stretch *st, unsigned from, unsigned upto)
{
    const struct swn_part *last = st->parts[upto - 1];
    return addr_of(last) + last->bytes - addr_of(st->parts[from]);
}

/* Finds the next stretch of parts for which `is` holds. 0: there is none. */
static int next_stretch(struct swn_frame *const *frames, unsigned count, struct reached *at,
                        int (*is)(const struct swn_part *), struct stretch *out)
{
    out->n = 0;
    for (; at->frame < count; at->frame++, at->part = 0)
        for (; at->part < frames[at->frame]->n; at->part++) {
            struct swn_part *p = &frames[at->frame]->parts[at->part];
            const struct swn_part *last = out->n ? out->parts[out->n - 1] : NULL;
            if (last && (!is(p) || out->n == STRETCH_MOST || addr_of(p) != addr_of(last) + last->bytes))
                return 1;
            if (is(p))
                out->parts[out->n++] = p;
        }
    return out->n > 0;
}

/* Ends the transition of parts that stay. The first `mapped` have been mapped anew, writable, in EVICT_COMMIT. */
static void stretch_stays(const struct stretch *st, unsigned mapped)
{
    for (unsigned i = mapped; i < st->n; i++)
        swn_transition_stop(st->parts[i]->range);
    if (mapped < st->n)
        swn_transition_protect(addr_of(st->parts[mapped]), bytes_of(st, mapped, st->n), PROT_READ | PROT_WRITE);
    for (unsigned i = 0; i < st->n; i++)
        atomic_store(&st->parts[i]->range->state, SWN_FILE_BACKED);
}

/* So many parts from the first on may become read-only: a system call that writes into a range would fail. What it
 * writes makes private copies of pages, so the range counts as written to. */
static unsigned may_leave(const struct stretch *st)
{
    unsigned n = 0;
    while (n < st->n && !st->parts[n]->range->receiving)
        n++;
    return n;
}

/* From here on a store into any part of the stretch faults. Returns the index of the first part that the program has
 * written to, or n. The ranges of the parts before it are in EVICT_COMMIT. */
static unsigned stretch_leaves(struct swn_residency *s, const struct stretch *st, size_t *touched)
{
    const struct swn_range *committed = NULL;
    unsigned i = 0, n = may_leave(st);
    for (unsigned k = 0; k < n; k++)
        atomic_store(&st->parts[k]->range->state, SWN_EVICTING);
    if (!n || swn_transition_protect(addr_of(st->parts[0]), bytes_of(st, 0, n), PROT_READ))
        return 0;
    for (; i < n; i++) {
        struct swn_part *p = st->parts[i];
        struct swn_pages pages;
        if (swn_pagemap_scan(&s->pagemap_fd, addr_of(p), p->bytes, &pages) || pages.private_pages ||
            (p->range != committed && swn_transition_commit(p->range)))
            break;
        committed = p->range;
        *touched += p->mapped ? 0 : pages.mapped;
    }
    return i;
}

/* The end of the group from part `from` on, within n parts, in which each part follows the one before. */
static unsigned group_end(const struct stretch *st, unsigned from, unsigned n,
                          int (*follows)(const struct swn_part *, const struct swn_part *))
{
    unsigned end = from + 1;
    while (end < n && follows(st->parts[end - 1], st->parts[end]))
        end++;
    return end;
}

static int follows_in_pool(const struct swn_part *a, const struct swn_part *b)
{
    return swn_pool_follows(a->frame, b->frame);
}

/* Maps the frames of the first n parts, which are in EVICT_COMMIT. Returns the number of parts mapped. */
static unsigned map_frames(struct swn_residency *s, const struct stretch *st, unsigned n)
{
    unsigned done = 0;
    for (unsigned end; done < n; done = end) {
        const struct swn_part *first = st->parts[done];
        end = group_end(st, done, n, follows_in_pool);
        if (swn_pool_map(s->pool, first->frame, first->at, bytes_of(st, done, end), (void *)addr_of(first)))
            break;
        s->mappings++;
        for (unsigned i = done; i < end; i++)
            st->parts[i]->mapped = 1;
    }
    return done;
}

void swn_residency_publish(struct swn_residency *s, struct swn_frame *const *frames, unsigned n,
                           struct swn_range **written)
{
    struct reached at = {0};
    struct stretch st;
    *written = NULL;
    while (next_stretch(frames, n, &at, can_be_mapped, &st)) {
        SWN_HOLD_SIGNALS();
        size_t touched = 0;
        unsigned good = stretch_leaves(s, &st, &touched);
        if (good < st.n) {
            s->recalls++;
            *written = st.parts[good]->range;
        }
        unsigned mapped = map_frames(s, &st, good);
        if (mapped)
            leave_out((void *)addr_of(st.parts[0]), bytes_of(&st, 0, mapped));
        s->fallback_pages += mapped ? touched : 0;
        stretch_stays(&st, mapped);
        if (!mapped)
            continue;
        for (unsigned i = 0; i < mapped; i++)
            if (!i || st.parts[i]->frame != st.parts[i - 1]->frame)
                swn_pool_unsee(s->pool, st.parts[i]->frame);
        populate(addr_of(st.parts[0]), bytes_of(&st, 0, mapped));
    }
}

/* Whether b's bytes follow a's in the file as in memory. */
static int follows_in_file(const struct swn_part *a, const struct swn_part *b)
{
    return a->file == b->file && a->off + a->bytes == b->off && !a->range->mapped_file == !b->range->mapped_file;
}

/* Maps the extents of the first n parts, which are in EVICT_COMMIT. Returns the number of parts mapped. */
static unsigned map_extents(struct swn_residency *s, const struct stretch *st, unsigned n)
{
    unsigned done = 0;
    /* If one mapping does not suffice, removes the page-table entries of all of them at once. A thread that reads
     * meanwhile finds the frames again. */
    if (n && group_end(st, 0, n, follows_in_file) < n) /* not by madvise(), which a hook of ours has */
        syscall(SYS_madvise, addr_of(st->parts[0]), bytes_of(st, 0, n), MADV_DONTNEED);
    for (unsigned end; done < n; done = end) {
        const struct swn_part *first = st->parts[done];
        end = group_end(st, done, n, follows_in_file);
        if (swn_transition_map(s, first->range, addr_of(first), bytes_of(st, done, end), MAP_PRIVATE, first->file,
                               first->off))
            break;
        for (unsigned i = done; i < end; i++)
            st->parts[i]->mapped = 0;
    }
    return done;
}

struct swn_range *swn_residency_unpublish(struct swn_residency *s, struct swn_frame *const *frames, unsigned n)
{
    struct reached at = {0};
    struct stretch st;
    while (next_stretch(frames, n, &at, is_mapped, &st)) {
        SWN_HOLD_SIGNALS();
        size_t touched = 0;
        unsigned good = stretch_leaves(s, &st, &touched);
        unsigned mapped = map_extents(s, &st, good);
        stretch_stays(&st, mapped);
        if (mapped < st.n) {
            s->recalls++;
            return st.parts[mapped]->range;
        }
    }
    return NULL;
}
