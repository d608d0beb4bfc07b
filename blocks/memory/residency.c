/* blocks/memory/residency.c - see residency.h. */
#define _GNU_SOURCE
#include "blocks/memory/residency.h"

#include <errno.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "base/huge_pages.h"
#include "blocks/memory/held_signals.h"
#include "blocks/memory/pagemap_proof.h"
#include "blocks/memory/publish.h"
#include "blocks/memory/reserve.h"
#include "blocks/memory/transition.h"

int swn_residency_init(struct swn_residency *s, const struct swn_io *io, struct swn_arena *a)
{
    memset(s, 0, sizeof *s);
    s->io = io;
    s->arena = a;
    s->huge = calloc((swn_arena_hi(a) - swn_arena_lo(a)) / SWN_HUGE + 1, 1);
    if (!s->huge)
        return -ENOMEM;
    s->pagemap_fd = swn_pagemap_open();
    int err = s->pagemap_fd < 0 ? s->pagemap_fd : swn_pagemap_proof_of(&s->pagemap_fd);
    if (err) {
        swn_residency_fini(s);
        s->huge = NULL;
        s->pagemap_fd = -1;
    }
    return err;
}

void swn_residency_fini(struct swn_residency *s)
{
    swn_pagemap_close(s->pagemap_fd);
    free(s->huge);
}

void swn_residency_fresh(struct swn_residency *s, struct swn_range *r)
{
    uintptr_t end = r->addr + swn_round_up(r->len, SWN_PAGE);
    if (r->mapped_file)
        return;
    swn_huge_advise(r->addr, end - r->addr);
    for (uintptr_t at = swn_round_up(r->addr, SWN_HUGE); at + SWN_HUGE <= end; at += SWN_HUGE)
        swn_residency_made_huge(s, at);
}

void swn_residency_drop(struct swn_residency *s, uintptr_t at, size_t bytes)
{
    swn_transition_divide_huge(s, at, at + bytes);
    swn_reserve_drop((void *)at, bytes);
    swn_transition_forget_huge(s, at, at + bytes);
    swn_huge_refuse(at, bytes); /* the next range there may have other neighbours */
}

int swn_residency_scan(struct swn_residency *s, const struct swn_range *r, struct swn_pages *out)
{
    return swn_pagemap_scan(&s->pagemap_fd, r->addr, swn_round_up(r->len, SWN_PAGE), out);
}

int swn_residency_private(struct swn_residency *s, uintptr_t addr, size_t bytes, size_t *own)
{
    struct swn_pages pages;
    int err = swn_pagemap_scan(&s->pagemap_fd, addr, bytes, &pages);
    *own = pages.private_pages;
    return err;
}

static int map_at(struct swn_residency *s, const struct swn_range *r, int how, const struct swn_extent_file *file,
                  uint64_t off)
{
    return swn_transition_map(s, r, r->addr, swn_round_up(r->len, SWN_PAGE), how, file, off);
}

static void undo(struct swn_range *r, int state)
{
    swn_transition_undo(r, r->addr, swn_round_up(r->len, SWN_PAGE), state);
}

static void drop_extent(struct swn_residency *s, struct swn_extent_file *file, uint64_t off, size_t size,
                        uint64_t epoch)
{
    file->refs--;
    /* A child forked since then still maps the extent, and children never write their parent's file, whose extents
     * they have from an epoch before theirs. */
    if (file->immutable)
        return;
    if (epoch == s->fork_epoch)
        swn_spill_drop(file, off, size);
    else
        swn_spill_leave(file, size);
}

/* Accounts for a range whose ordinary pages are gone. */
static void pages_left(struct swn_residency *s, struct swn_range *r)
{
    size_t size = swn_round_up(r->len, SWN_PAGE);
    if (r->span > size) /* warm pages behind the last requested byte */
        swn_residency_drop(s, r->addr + size, r->span - size);
    s->resident_bytes -= r->size;
    r->size = size;
}

void swn_residency_give_up_place(struct swn_residency *s, struct swn_range *r)
{
    struct swn_extent_file *file = r->reserved_extent;
    r->reserved_extent = NULL;
    if (file)
        drop_extent(s, file, r->extent, swn_round_up(r->len, SWN_PAGE), r->extent_epoch);
}

int swn_residency_give_up_places(struct swn_residency *s, const struct swn_extent_file *file)
{
    int any = 0;
    for (struct swn_range *r = swn_arena_first(s->arena); r; r = r->next)
        if (r->reserved_extent == file) {
            swn_residency_give_up_place(s, r);
            any = 1;
        }
    return any;
}

static void name_extent(struct swn_residency *s, struct swn_range *r, struct swn_extent_file *file, uint64_t off)
{
    if (r->reserved_extent != file || r->extent != off) {
        swn_residency_give_up_place(s, r);
        file->refs++;
    }
    r->reserved_extent = NULL;
    r->extent_turn = ++s->turns;
    r->file = file;
    r->extent = off;
    r->extent_epoch = s->fork_epoch;
    r->foreign_map = 1;
    r->shared = 0;
    atomic_store(&r->state, SWN_FILE_BACKED);
}

int swn_residency_leave(struct swn_residency *s, struct swn_range *r)
{
    if (swn_state_of(r) != SWN_RESIDENT || r->pins || !s->spill || s->pagemap_fd < 0)
        return -EBUSY;
    int err = swn_transition_begin(r);
    if (err)
        swn_residency_stay(r);
    return err;
}

int swn_residency_left(struct swn_residency *s, struct swn_range *r, uint64_t off)
{
    SWN_HOLD_SIGNALS();
    int err = swn_transition_commit(r);
    if (!err)
        err = map_at(s, r, MAP_PRIVATE, s->spill, off);
    if (err) {
        s->recalls += err == -EBUSY;
        undo(r, SWN_RESIDENT);
        return err;
    }
    pages_left(s, r);
    name_extent(s, r, s->spill, off);
    return 0;
}

void swn_residency_stay(struct swn_range *r)
{
    SWN_HOLD_SIGNALS();
    undo(r, SWN_RESIDENT);
}

/* Writes the range's bytes to its place in the spill file. It gets one if it has none, or one that a child may have
 * mapped, or one in a file that is full. */
static int write_to_place(struct swn_residency *s, struct swn_range *r)
{
    size_t size = swn_round_up(r->len, SWN_PAGE);
    int err;
    if (r->reserved_extent == s->spill && r->extent_epoch == s->fork_epoch) {
        err = swn_spill_write_again(s->spill, (void *)r->addr, size, r->extent);
        if (err) { /* which drops it */
            s->spill->refs--;
            r->reserved_extent = NULL;
        }
        return err;
    }
    swn_residency_give_up_place(s, r);
    uint64_t off = swn_spill_lay_out(s->spill, r->span);
    err = swn_spill_write(s->spill, (void *)r->addr, size, off);
    if (err)
        return err;
    s->spill->refs++;
    r->reserved_extent = s->spill;
    r->extent = off;
    r->extent_epoch = s->fork_epoch;
    return 0;
}

int swn_residency_spill(struct swn_residency *s, struct swn_range *r)
{
    int err = swn_residency_leave(s, r);
    if (err)
        return err;
    err = write_to_place(s, r);
    if (err) {
        swn_residency_stay(r);
        return err;
    }
    return swn_residency_left(s, r, r->extent);
}

/* Frames are mapped up to the end of a range's last granule, and a child does not get what they are mapped to. Whatever
 * takes the place of r's pages ends before that: without this the rest would be a hole in a child, into which its own
 * mappings fall, and over which its arena maps later. */
static void end_padding(struct swn_residency *s, const struct swn_range *r)
{
    uintptr_t end = r->addr + swn_round_up(r->len, SWN_PAGE);
    size_t padding = r->addr + r->span - end;
    if (padding && swn_residency_mapped(s, r, end) && swn_transition_map_anonymous(s, end, padding))
        madvise((void *)end, padding,
                MADV_DOFORK); /* out of mappings: the child gets the frame's padding, which no tensor reads */
}

int swn_residency_register(struct swn_residency *s, struct swn_range *r, struct swn_extent_file *file, uint64_t off)
{
    int state = swn_state_of(r);
    if ((state != SWN_RESIDENT && state != SWN_FILE_BACKED) || r->pins || s->pagemap_fd < 0)
        return -EBUSY;
    int err = map_at(s, r, MAP_PRIVATE, file, off);
    if (err)
        return err;
    end_padding(s, r);
    swn_residency_forget(s, r);
    if (state == SWN_RESIDENT)
        pages_left(s, r);
    else
        drop_extent(s, r->file, r->extent, swn_round_up(r->len, SWN_PAGE), r->extent_epoch);
    name_extent(s, r, file, off);
    return 0;
}

static int share_fresh(struct swn_residency *s, struct swn_range *r)
{
    size_t size = swn_round_up(r->len, SWN_PAGE);
    uint64_t off;
    int err = s->spill && !s->spill->sync_err ? swn_spill_reserve(s->spill, size, &off) : -EBUSY;
    if (err)
        return err;
    err = map_at(s, r, MAP_SHARED, s->spill, off);
    if (err) {
        swn_spill_drop(s->spill, off, size);
        return err;
    }
    pages_left(s, r);
    name_extent(s, r, s->spill, off);
    r->shared = 1;
    return 0;
}

int swn_residency_share(struct swn_residency *s, struct swn_range *r)
{
    struct swn_pages pages;
    size_t size = swn_round_up(r->len, SWN_PAGE);
    if (r->shared)
        return 0;
    if (swn_state_of(r) == SWN_RESIDENT)
        return share_fresh(s, r);
    if (swn_state_of(r) != SWN_FILE_BACKED || r->file->immutable || r->extent_epoch != s->fork_epoch || r->receiving ||
        swn_residency_unmapped(s, r) < size || r->file->sync_err)
        return -EBUSY;
    SWN_HOLD_SIGNALS();
    int err = swn_transition_begin_clean(s, r, r->addr, size, &pages);
    if (!err)
        err = map_at(s, r, MAP_SHARED, r->file, r->extent);
    r->shared = !err;
    undo(r, SWN_FILE_BACKED);
    return err;
}

int swn_residency_take_over(struct swn_residency *s, struct swn_range *r)
{
    int err = map_at(s, r, MAP_PRIVATE, r->file, r->extent);
    if (!err)
        r->shared = 0;
    return err;
}

int swn_residency_unshare(struct swn_residency *s, struct swn_range *r)
{
    if (!r->shared)
        return 0;
    /* Stores of other threads reach the same page cache until this moment, and private copies from then on. */
    int err = swn_residency_take_over(s, r);
    if (err)
        return err;
    return swn_spill_sync(r->file, r->extent, swn_round_up(r->len, SWN_PAGE));
}

/* Its place in the spill file stays the range's: to write there again costs the file system less than a hole and a new
 * place do. All such places together take no more of the disk than the budget has. */
static void forget_extent(struct swn_residency *s, struct swn_range *r)
{
    if (r->file == s->spill && r->extent_epoch == s->fork_epoch && !r->filling && !s->spill_in_memory)
        r->reserved_extent = r->file;
    else
        drop_extent(s, r->file, r->extent, swn_round_up(r->len, SWN_PAGE), r->extent_epoch);
    r->file = NULL;
    s->resident_bytes += r->size;
    atomic_store(&r->state, SWN_RESIDENT);
}

/* Moves the pages at `from` to the range's address, also in one step. */
static int move_here(struct swn_residency *s, struct swn_range *r, void *from)
{
    size_t size = swn_round_up(r->len, SWN_PAGE);
    swn_transition_divide_huge(s, r->addr, r->addr + size);
    if (mremap(from, size, size, MREMAP_MAYMOVE | MREMAP_FIXED, (void *)r->addr) == MAP_FAILED) {
        int err = -errno;
        map_at(s, r, MAP_PRIVATE, r->file, r->extent); /* the kernel may already have unmapped the address */
        end_padding(s, r);
        swn_residency_forget(s, r);
        return err;
    }
    swn_transition_forget_huge(s, r->addr, r->addr + size);
    for (uintptr_t at = swn_round_up(r->addr, SWN_HUGE); !r->mapped_file && at + SWN_HUGE <= r->addr + size;
         at += SWN_HUGE)
        swn_residency_made_huge(s, at);
    return 0;
}

int swn_residency_make_resident(struct swn_residency *s, struct swn_range *r, void *pages)
{
    size_t size = swn_round_up(r->len, SWN_PAGE);
    if (swn_state_of(r) != SWN_FILE_BACKED)
        return 0;
    int err = swn_residency_unshare(s, r);
    if (err)
        return err;
    if (pages) {
        err = move_here(s, r, pages);
        if (err)
            return err;
    } else {
        for (uintptr_t page = r->addr; page < r->addr + size; page += SWN_PAGE)
            swn_page_touch(page);
        if (swn_residency_unmapped(s, r) < size)
            madvise((void *)r->addr, size, MADV_DOFORK);
        swn_reserve_dump((void *)r->addr, size, 1);
    }
    end_padding(s, r);
    swn_residency_forget(s, r);
    forget_extent(s, r);
    return 0;
}

/* Maps [addr, addr + bytes) of r's extent again, except where frames are mapped. */
static int remap_part(struct swn_residency *s, struct swn_range *r, uintptr_t addr, size_t bytes)
{
    struct swn_pages pages = {0};
    uint64_t off = r->extent + (addr - r->addr);
    SWN_HOLD_SIGNALS();
    int err = swn_transition_begin_clean(s, r, addr, bytes, &pages);
    if (!err)
        err = swn_transition_map(s, r, addr, bytes, MAP_PRIVATE, r->file, off);
    if (err) {
        s->recalls += err == -EBUSY;
        swn_transition_undo(r, addr, bytes, SWN_FILE_BACKED);
        return err;
    }
    s->fallback_pages += pages.mapped;
    if (pages.mapped)
        swn_spill_uncache(r->file, off, bytes);
    atomic_store(&r->state, SWN_FILE_BACKED);
    return 0;
}

int swn_residency_remap(struct swn_residency *s, struct swn_range *r)
{
    if (swn_state_of(r) != SWN_FILE_BACKED)
        return -EINVAL;
    if (r->receiving)
        return -EBUSY;
    uintptr_t end = r->addr + swn_round_up(r->len, SWN_PAGE), from = r->addr;
    size_t unit = s->pool ? swn_pool_unit(s->pool) : SWN_HUGE;
    int err = 0;
    for (uintptr_t at = r->addr; at < end && !err;) {
        uintptr_t next = at + unit - (r->place + (at - r->addr)) % unit;
        next = next < end ? next : end;
        int mapped = swn_residency_mapped(s, r, at) != NULL;
        if (mapped && from < at)
            err = remap_part(s, r, from, at - from);
        if (mapped)
            from = next;
        at = next;
    }
    return !err && from < end ? remap_part(s, r, from, end - from) : err;
}

void swn_residency_free(struct swn_residency *s, struct swn_range *r, int warm)
{
    size_t size = swn_round_up(r->len, SWN_PAGE);
    int streamed = swn_state_of(r) == SWN_FILE_BACKED;
    swn_residency_forget(s, r);
    /* The mapping may stay for now only if it holds no memory that counts, and no page that other code changes. */
    int later = r->foreign_map && streamed && !r->mapped_file && !r->planned_place && !r->shared;
    if (r->mapped_file) {
        warm = 1; /* the mapping there is the program's */
    } else if (later) {
        warm = 0;
    } else if (r->foreign_map) {
        /* The addresses must be ordinary memory again before another range gets them. */
        if (swn_transition_map_anonymous(s, r->addr, r->span)) /* up to the last granule's end: a frame was mapped */
            return; /* no mappings left: the addresses are lost, not reused */
        warm = 0;
    }
    if (streamed)
        drop_extent(s, r->file, r->extent, size, r->extent_epoch);
    else
        s->resident_bytes -= r->size;
    swn_residency_give_up_place(s, r);
    if (!warm)
        swn_residency_drop(s, r->addr, r->span);
    if (later)
        swn_arena_free_mapped(s->arena, r);
    else
        swn_arena_free(s->arena, r, warm);
}

void swn_residency_tidy(struct swn_residency *s)
{
    struct swn_piece piece;
    while (swn_arena_take_mapped(s->arena, &piece))
        if (!swn_transition_map_anonymous(s, piece.addr,
                                          piece.bytes)) /* else no mappings left: the addresses are lost, not reused */
            swn_arena_unmapped(s->arena, &piece);
}

void swn_residency_child(struct swn_residency *s)
{
    for (struct swn_frame *f = s->pool ? swn_pool_first(s->pool) : NULL; f; f = f->next)
        for (unsigned i = 0; i < f->n; i++) {
            struct swn_part *p = &f->parts[i];
            if (p->range && p->mapped)
                swn_transition_map(s, p->range, f->addr + p->at, p->bytes, MAP_PRIVATE, p->file, p->off);
        }
    if (s->pool)
        swn_pool_destroy(s->pool);
    s->pool = NULL;
    swn_pagemap_reopen(&s->pagemap_fd);
}
