#define _GNU_SOURCE
#include "blocks/memory/residency.h"

#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/huge_pages.h"
#include "base/fd_registry.h"
#include "blocks/memory/pagemap_proof.h"
#include "blocks/memory/reserve.h"

/* /proc/self/pagemap, Documentation/admin-guide/mm/pagemap.rst */
#define PM_PRESENT (1ULL << 63)
#define PM_SWAPPED (1ULL << 62)
#define PM_FILE (1ULL << 61)
/* Parts that are mapped, or go, together. */
#define STRETCH_MOST 64

static int scan(struct swn_residency *s, uintptr_t addr, size_t bytes, struct swn_pages *out);

static int ask(void *s, uintptr_t addr, size_t bytes, struct swn_pages *out)
{
    return scan(s, addr, bytes, out);
}

int swn_residency_init(struct swn_residency *s, const struct swn_io *io, struct swn_arena *a)
{
    memset(s, 0, sizeof *s);
    s->io = io;
    s->arena = a;
    s->huge = calloc((swn_arena_hi(a) - swn_arena_lo(a)) / SWN_HUGE + 1, 1);
    if (!s->huge)
        return -ENOMEM;
    s->pagemap_fd = swn_fd_registry(open("/proc/self/pagemap", O_RDONLY | O_CLOEXEC));
    int err = s->pagemap_fd < 0 ? -errno : swn_pagemap_proof(ask, s);
    if (err) {
        swn_residency_fini(s);
        s->huge = NULL;
        s->pagemap_fd = -1;
    }
    return err;
}

static void close_pagemap(struct swn_residency *s)
{
    if (s->pagemap_fd >= 0)
        swn_fd_registry_close(s->pagemap_fd);
}

void swn_residency_fini(struct swn_residency *s)
{
    close_pagemap(s);
    free(s->huge);
}

static unsigned char *huge_at(const struct swn_residency *s, uintptr_t at)
{
    return &s->huge[(at - swn_arena_lo(s->arena)) / SWN_HUGE];
}

/* Of memory that the program has mapped nothing is known. */
static int is_arenas(const struct swn_residency *s, uintptr_t at)
{
    return at >= swn_arena_lo(s->arena) && at < swn_arena_hi(s->arena);
}

void swn_residency_made_huge(struct swn_residency *s, uintptr_t at)
{
    *huge_at(s, at) = 1;
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

/* Before the pages of [at, end) go: what stays of the huge pages at its ends is small from now on. */
static void part_with(struct swn_residency *s, uintptr_t at, uintptr_t end)
{
    for (uintptr_t next; is_arenas(s, at) && at < end; at = next) {
        next = at / SWN_HUGE * SWN_HUGE + SWN_HUGE;
        next = next < end ? next : end;
        if (!*huge_at(s, at) || next - at == SWN_HUGE)
            continue;
        swn_huge_divide(at, next - at);
        *huge_at(s, at) = 0;
    }
}

/* They have gone. */
static void parted(struct swn_residency *s, uintptr_t at, uintptr_t end)
{
    for (; is_arenas(s, at) && at < end; at = at / SWN_HUGE * SWN_HUGE + SWN_HUGE)
        *huge_at(s, at) = 0;
}

void swn_residency_drop(struct swn_residency *s, uintptr_t at, size_t bytes)
{
    part_with(s, at, at + bytes);
    swn_reserve_drop((void *)at, bytes);
    parted(s, at, at + bytes);
    swn_huge_refuse(at, bytes); /* whoever gets it next may have other neighbours there */
}

/* For a child, which has pages of its own, and where the program has closed ours. */
static void reopen(struct swn_residency *s)
{
    close_pagemap(s);
    s->pagemap_fd = swn_fd_registry(open("/proc/self/pagemap", O_RDONLY | O_CLOEXEC));
}

static int scan(struct swn_residency *s, uintptr_t addr, size_t bytes, struct swn_pages *out)
{
    uint64_t entries[512];
    size_t first = addr / SWN_PAGE, pages = bytes / SWN_PAGE;
    *out = (struct swn_pages){0};
    if (!swn_fd_is_ours(s->pagemap_fd))
        reopen(s);
    for (size_t done = 0; done < pages;) {
        size_t n = pages - done < 512 ? pages - done : 512;
        ssize_t got = pread(s->pagemap_fd, entries, n * 8, (off_t)((first + done) * 8));
        if (got < 8)
            return got < 0 ? -errno : -EIO;
        n = (size_t)got / 8;
        for (size_t i = 0; i < n; i++) {
            if (!(entries[i] & (PM_PRESENT | PM_SWAPPED)))
                continue;
            if (entries[i] & PM_FILE)
                out->mapped++;
            else
                out->private_pages++;
        }
        done += n;
    }
    return 0;
}

int swn_residency_knows_huge(struct swn_residency *s)
{
    struct swn_pages pages = {0};
    int fd = memfd_create("swapnet-probe", MFD_CLOEXEC), knows = 1;
    void *at = fd >= 0 && !ftruncate(fd, SWN_HUGE) ? swn_huge_map(fd, 0, SWN_HUGE, PROT_READ | PROT_WRITE) : MAP_FAILED;
    if (at != MAP_FAILED && !swn_huge_collapse(at, SWN_HUGE) &&
        mmap(at, SWN_HUGE, PROT_READ, MAP_PRIVATE | MAP_FIXED, fd, 0) == at) {
        (void)*(volatile char *)at;
        knows = !scan(s, (uintptr_t)at, SWN_HUGE, &pages) && !pages.private_pages;
    }
    if (at != MAP_FAILED)
        munmap(at, SWN_HUGE);
    if (fd >= 0)
        close(fd);
    return knows;
}

int swn_residency_scan(struct swn_residency *s, const struct swn_range *r, struct swn_pages *out)
{
    return scan(s, r->addr, swn_round_up(r->len, SWN_PAGE), out);
}

int swn_residency_own(struct swn_residency *s, uintptr_t addr, size_t bytes, size_t *own)
{
    struct swn_pages pages;
    int err = scan(s, addr, bytes, &pages);
    *own = pages.private_pages;
    return err;
}

static int state_of(const struct swn_range *r)
{
    return atomic_load(&((struct swn_range *)r)->state);
}

/* One mmap in place of what is there, so that a reader sees the old pages or the new ones, never a hole. */
static int map_bytes(struct swn_residency *s, const struct swn_range *r, uintptr_t addr, size_t size, int how,
                     const struct swn_extent_file *file, uint64_t off)
{
    void *at = (void *)addr;
    part_with(s, addr, addr + size);
    int err = s->io->mmap(s->io->ctx, &at, size, PROT_READ | PROT_WRITE, how | MAP_FIXED | MAP_NORESERVE,
                          file->fetch.fd, off);
    if (!err)
        parted(s, addr, addr + size);
    if (!err && r->mapped_file) /* as the rest of the program's mapping is */
        madvise((void *)addr, size, MADV_RANDOM);
    if (!err && !r->mapped_file)
        swn_reserve_dump((void *)addr, size, 0);
    return err;
}

static int map_at(struct swn_residency *s, const struct swn_range *r, int how, const struct swn_extent_file *file,
                  uint64_t off)
{
    return map_bytes(s, r, r->addr, swn_round_up(r->len, SWN_PAGE), how, file, off);
}

/* Ordinary pages in place of what is there; they are zero. */
static int map_anonymous_at(struct swn_residency *s, uintptr_t addr, size_t bytes)
{
    part_with(s, addr, addr + bytes);
    void *at = mmap((void *)addr, bytes, PROT_READ | PROT_WRITE,
                    MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED | MAP_NORESERVE, -1, 0);
    if (at == MAP_FAILED)
        return -errno;
    parted(s, addr, addr + bytes);
    swn_huge_refuse(addr, bytes);
    return 0;
}

static int map_anonymous(struct swn_residency *s, const struct swn_range *r)
{
    return map_anonymous_at(s, r->addr, r->span); /* where a frame was mapped, up to the last granule's end */
}

static int protect(uintptr_t addr, size_t bytes, int prot)
{
    return mprotect((void *)addr, bytes, prot) ? -errno : 0;
}

/* First half of a pending_write: from here on a store faults. */
static int leave_begin(struct swn_range *r)
{
    size_t size = swn_round_up(r->len, SWN_PAGE);
    atomic_store(&r->state, SWN_EVICTING);
    int err = protect(r->addr, size, PROT_READ);
    if (err)
        protect(r->addr, size, PROT_READ | PROT_WRITE);
    return err;
}

/* Ends what fault handlers do to the range: one that is recalling it is waited for, and none may begin. Its mprotect
 * must not come late and undo the protection of the next pending_write, nor its EVICT_ABORTED replace the state that
 * comes next.
 */
static void leave_stop(struct swn_range *r)
{
    int now = SWN_EVICTING;
    while (!atomic_compare_exchange_strong(&r->state, &now, SWN_EVICT_COMMIT) && now == SWN_EVICT_ABORTING) {
        sched_yield();
        now = SWN_EVICTING;
    }
}

/* The range stays what it was, writable again. */
static void leave_undo_part(struct swn_range *r, uintptr_t addr, size_t bytes, int state)
{
    leave_stop(r);
    protect(addr, bytes, PROT_READ | PROT_WRITE);
    atomic_store(&r->state, state);
}

static void leave_undo(struct swn_range *r, int state)
{
    leave_undo_part(r, r->addr, swn_round_up(r->len, SWN_PAGE), state);
}

/* Second half: from here on a store waits, and whatever gets mapped next is what it finds. -EBUSY when a store sent the
 * range back. */
static int leave_commit(struct swn_range *r)
{
    int leaving = SWN_EVICTING;
    return atomic_compare_exchange_strong(&r->state, &leaving, SWN_EVICT_COMMIT) ? 0 : -EBUSY;
}

/* Both halves for bytes of a range that its extent has already. -EBUSY also for private copies. */
static int leave_clean(struct swn_residency *s, struct swn_range *r, uintptr_t addr, size_t bytes,
                       struct swn_pages *pages)
{
    atomic_store(&r->state, SWN_EVICTING);
    int err = protect(addr, bytes, PROT_READ);
    if (!err)
        err = scan(s, addr, bytes, pages);
    if (!err && pages->private_pages)
        err = -EBUSY;
    return err ? err : leave_commit(r);
}

static void drop_extent(struct swn_residency *s, struct swn_extent_file *file, uint64_t off, size_t size,
                        uint64_t epoch)
{
    file->refs--;
    /* A child forked since still maps it, and children never write their parent's file. */
    if (epoch == s->fork_epoch && file == s->spill)
        swn_spill_drop(file, off, size);
}

/* The range's ordinary pages are gone. */
static void left_home(struct swn_residency *s, struct swn_range *r)
{
    size_t size = swn_round_up(r->len, SWN_PAGE);
    if (r->span > size) /* warm pages behind the last one asked for */
        swn_residency_drop(s, r->addr + size, r->span - size);
    s->resident_bytes -= r->size;
    r->size = size;
}

static void name_extent(struct swn_residency *s, struct swn_range *r, struct swn_extent_file *file, uint64_t off)
{
    file->refs++;
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
    if (state_of(r) != SWN_RESIDENT || r->pins || !s->spill || s->pagemap_fd < 0)
        return -EBUSY;
    int err = leave_begin(r);
    if (err)
        leave_undo(r, SWN_RESIDENT);
    return err;
}

int swn_residency_left(struct swn_residency *s, struct swn_range *r, uint64_t off)
{
    int err = leave_commit(r);
    if (!err)
        err = map_at(s, r, MAP_PRIVATE, s->spill, off);
    if (err) {
        s->recalls += err == -EBUSY;
        leave_undo(r, SWN_RESIDENT);
        return err;
    }
    left_home(s, r);
    name_extent(s, r, s->spill, off);
    return 0;
}

void swn_residency_stay(struct swn_range *r)
{
    leave_undo(r, SWN_RESIDENT);
}

/* Whether the range's place in the spill file is nobody else's: not a child's either, who may have it mapped. */
static int has_berth(const struct swn_residency *s, const struct swn_range *r)
{
    return r->reserved_extent == s->spill && r->extent_epoch == s->fork_epoch;
}

/* Where the range is written. */
static uint64_t berth_of(struct swn_residency *s, struct swn_range *r)
{
    if (has_berth(s, r))
        return r->extent;
    r->reserved_extent = s->spill;
    r->extent = swn_spill_lay_out(s->spill, r->span);
    r->extent_epoch = s->fork_epoch;
    return r->extent;
}

int swn_residency_spill(struct swn_residency *s, struct swn_range *r)
{
    size_t size = swn_round_up(r->len, SWN_PAGE);
    int err = swn_residency_leave(s, r);
    if (err)
        return err;
    uint64_t off = berth_of(s, r);
    err = swn_spill_write(s->spill, (void *)r->addr, size, off);
    if (err) {
        swn_residency_stay(r);
        return err;
    }
    err = swn_residency_left(s, r, off);
    if (err)
        swn_spill_drop(s->spill, off, size);
    return err;
}

int swn_residency_register(struct swn_residency *s, struct swn_range *r, struct swn_extent_file *file, uint64_t off)
{
    int state = state_of(r);
    if ((state != SWN_RESIDENT && state != SWN_FILE_BACKED) || r->pins || s->pagemap_fd < 0)
        return -EBUSY;
    int err = map_at(s, r, MAP_PRIVATE, file, off);
    if (err)
        return err;
    swn_residency_forget(s, r);
    if (state == SWN_RESIDENT)
        left_home(s, r);
    else
        drop_extent(s, r->file, r->extent, swn_round_up(r->len, SWN_PAGE), r->extent_epoch);
    name_extent(s, r, file, off);
    return 0;
}

static int share_fresh(struct swn_residency *s, struct swn_range *r)
{
    size_t size = swn_round_up(r->len, SWN_PAGE);
    uint64_t off;
    int err = s->spill ? swn_spill_reserve(s->spill, size, &off) : -EBUSY;
    if (err)
        return err;
    err = map_at(s, r, MAP_SHARED, s->spill, off);
    if (err) {
        swn_spill_drop(s->spill, off, size);
        return err;
    }
    left_home(s, r);
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
    if (state_of(r) == SWN_RESIDENT)
        return share_fresh(s, r);
    if (state_of(r) != SWN_FILE_BACKED || r->file != s->spill || r->extent_epoch != s->fork_epoch ||
        swn_residency_unmapped(s, r) < size)
        return -EBUSY;
    int err = leave_clean(s, r, r->addr, size, &pages);
    if (!err)
        err = map_at(s, r, MAP_SHARED, r->file, r->extent);
    r->shared = !err;
    leave_undo(r, SWN_FILE_BACKED);
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
    /* Stores of other threads land in the same page cache until this moment, and in private copies from then on. */
    int err = swn_residency_take_over(s, r);
    if (err)
        return err;
    err = s->io->fsync(s->io->ctx, r->file->fetch.fd);
    swn_spill_uncache(r->file, r->extent, swn_round_up(r->len, SWN_PAGE));
    return err;
}

static void forget_extent(struct swn_residency *s, struct swn_range *r)
{
    drop_extent(s, r->file, r->extent, swn_round_up(r->len, SWN_PAGE), r->extent_epoch);
    r->reserved_extent = r->filling ? NULL : r->file;
    r->file = NULL;
    s->resident_bytes += r->size;
    atomic_store(&r->state, SWN_RESIDENT);
}

/* The pages at `from` in place of what is there, likewise in one step. */
static int move_here(struct swn_residency *s, struct swn_range *r, void *from)
{
    size_t size = swn_round_up(r->len, SWN_PAGE);
    part_with(s, r->addr, r->addr + size);
    if (mremap(from, size, size, MREMAP_MAYMOVE | MREMAP_FIXED, (void *)r->addr) == MAP_FAILED) {
        int err = -errno;
        map_at(s, r, MAP_PRIVATE, r->file, r->extent); /* the kernel may have made room already */
        swn_residency_forget(s, r);
        return err;
    }
    parted(s, r->addr, r->addr + size);
    for (uintptr_t at = swn_round_up(r->addr, SWN_HUGE); !r->mapped_file && at + SWN_HUGE <= r->addr + size;
         at += SWN_HUGE)
        swn_residency_made_huge(s, at);
    return 0;
}

int swn_residency_make_resident(struct swn_residency *s, struct swn_range *r, void *pages)
{
    size_t size = swn_round_up(r->len, SWN_PAGE);
    if (state_of(r) != SWN_FILE_BACKED)
        return 0;
    int err = swn_residency_unshare(s, r);
    if (err)
        return err;
    if (pages) {
        err = move_here(s, r, pages);
        if (err)
            return err;
    } else {
        /* An atomic no-op store gives every page its private copy, whatever other threads do to it meanwhile. */
        for (uintptr_t page = r->addr; page < r->addr + size; page += SWN_PAGE)
            atomic_fetch_or((_Atomic unsigned char *)page, 0);
        if (swn_residency_unmapped(s, r) < size)
            madvise((void *)r->addr, size, MADV_DOFORK);
        swn_reserve_dump((void *)r->addr, size, 1);
    }
    swn_residency_forget(s, r);
    forget_extent(s, r);
    return 0;
}

/* --- frames at their parts' addresses --- */

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

/* A child must not see frames: we reuse them. Its fork handler maps the extents into the hole. Nor is what the file has
 * in core dumps. */
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
    return p->range && p->there && !p->mapped && state_of(p->range) == SWN_FILE_BACKED && !p->range->shared;
}

static int is_mapped(const struct swn_part *p)
{
    return p->range && p->mapped;
}

/* Parts that lie one behind the other, of one frame or of several. What is done to all of them at once takes one system
 * call, and, what costs more, interrupts other processors once. */
struct stretch {
    struct swn_part *parts[STRETCH_MOST];
    unsigned n;
};

/* Where the next one begins. */
struct reached {
    unsigned frame, part;
};

static uintptr_t addr_of(const struct swn_part *p)
{
    return p->frame->addr + p->at;
}

/* From the first part to the end of the one before `upto`. */
static size_t bytes_of(const struct stretch *st, unsigned from, unsigned upto)
{
    const struct swn_part *last = st->parts[upto - 1];
    return addr_of(last) + last->bytes - addr_of(st->parts[from]);
}

/* The next one of parts for which `is` holds. 0: there is none. */
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

/* The first `mapped` have been mapped anew, writable, while they were in EVICT_COMMIT. */
static void stretch_stays(const struct stretch *st, unsigned mapped)
{
    for (unsigned i = mapped; i < st->n; i++)
        leave_stop(st->parts[i]->range);
    if (mapped < st->n)
        protect(addr_of(st->parts[mapped]), bytes_of(st, mapped, st->n), PROT_READ | PROT_WRITE);
    for (unsigned i = 0; i < st->n; i++)
        atomic_store(&st->parts[i]->range->state, SWN_FILE_BACKED);
}

/* From here on a store into any part of the stretch faults. Returns the index of the first part that the program has
 * written to, or n. The ranges of the parts before it are in EVICT_COMMIT. */
static unsigned stretch_leaves(struct swn_residency *s, const struct stretch *st, size_t *touched)
{
    const struct swn_range *committed = NULL;
    unsigned i = 0;
    for (unsigned k = 0; k < st->n; k++)
        atomic_store(&st->parts[k]->range->state, SWN_EVICTING);
    if (protect(addr_of(st->parts[0]), bytes_of(st, 0, st->n), PROT_READ))
        return 0;
    for (; i < st->n; i++) {
        struct swn_part *p = st->parts[i];
        struct swn_pages pages;
        if (scan(s, addr_of(p), p->bytes, &pages) || pages.private_pages ||
            (p->range != committed && leave_commit(p->range)))
            break;
        committed = p->range;
        *touched += p->mapped ? 0 : pages.mapped;
    }
    return i;
}

/* The end of those parts from `from` on, of n, of which each follows the one before it. */
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

/* Maps the frames of the first n parts, which are in EVICT_COMMIT. Returns of how many it could. */
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

/* Whether b's bytes lie behind a's in the file as they do in memory. */
static int follows_in_file(const struct swn_part *a, const struct swn_part *b)
{
    return a->file == b->file && a->off + a->bytes == b->off && !a->range->mapped_file == !b->range->mapped_file;
}

/* Maps the extents of the first n parts, which are in EVICT_COMMIT. Returns of how many it could. */
static unsigned map_extents(struct swn_residency *s, const struct stretch *st, unsigned n)
{
    unsigned done = 0;
    /* Where one mapping is not enough: page-table entries go once for all of them. A thread that reads meanwhile finds
     * the frames again. */
    if (n && group_end(st, 0, n, follows_in_file) < n)
        madvise((void *)addr_of(st->parts[0]), bytes_of(st, 0, n), MADV_DONTNEED);
    for (unsigned end; done < n; done = end) {
        const struct swn_part *first = st->parts[done];
        end = group_end(st, done, n, follows_in_file);
        if (map_bytes(s, first->range, addr_of(first), bytes_of(st, done, end), MAP_PRIVATE, first->file, first->off))
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

/* Maps [addr, addr + bytes) of r's extent again, where nothing else is mapped. */
static int remap_part(struct swn_residency *s, struct swn_range *r, uintptr_t addr, size_t bytes)
{
    struct swn_pages pages = {0};
    uint64_t off = r->extent + (addr - r->addr);
    int err = leave_clean(s, r, addr, bytes, &pages);
    if (!err)
        err = map_bytes(s, r, addr, bytes, MAP_PRIVATE, r->file, off);
    if (err) {
        s->recalls += err == -EBUSY;
        leave_undo_part(r, addr, bytes, SWN_FILE_BACKED);
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
    if (state_of(r) != SWN_FILE_BACKED)
        return -EINVAL;
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
    int streamed = state_of(r) == SWN_FILE_BACKED;
    swn_residency_forget(s, r);
    /* What stays mapped for now must be nobody's memory, and no page that anything else changes. */
    int later = r->foreign_map && streamed && !r->mapped_file && !r->planned_place && !r->shared;
    if (r->mapped_file) {
        warm = 1; /* whatever is mapped there is the program's */
    } else if (later) {
        warm = 0;
    } else if (r->foreign_map) {
        /* Its address space must be ordinary memory again before anybody else gets it. */
        if (map_anonymous(s, r))
            return; /* out of mappings: the range is lost, not reused */
        warm = 0;
    }
    if (streamed)
        drop_extent(s, r->file, r->extent, size, r->extent_epoch);
    else
        s->resident_bytes -= r->size;
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
        if (!map_anonymous_at(s, piece.addr, piece.bytes)) /* else out of mappings: it is lost, not used again */
            swn_arena_unmapped(s->arena, &piece);
}

int swn_residency_trap(struct swn_residency *s, uintptr_t addr)
{
    struct swn_range *r = swn_arena_find(s->arena, addr);
    if (!r)
        return 0;
    int waited = 0;
    for (unsigned spins = 0; spins < 20000000; spins++) {
        int state = atomic_load(&r->state);
        if (state == SWN_EVICTING) {
            if (!atomic_compare_exchange_strong(&r->state, &state, SWN_EVICT_ABORTING))
                continue;
            mprotect((void *)r->addr, swn_round_up(r->len, SWN_PAGE), PROT_READ | PROT_WRITE);
            atomic_store(&r->state, SWN_EVICT_ABORTED);
            return 2;
        }
        if (state == SWN_EVICT_COMMIT || state == SWN_EVICT_ABORTING) {
            waited = 1;
            sched_yield();
            continue;
        }
        /* The transition is over: the store will find a writable mapping. */
        return state == SWN_FREE ? 0 : 1 + waited;
    }
    return 0;
}

void swn_residency_child(struct swn_residency *s)
{
    for (struct swn_frame *f = s->pool ? swn_pool_first(s->pool) : NULL; f; f = f->next)
        for (unsigned i = 0; i < f->n; i++) {
            struct swn_part *p = &f->parts[i];
            if (p->range && p->mapped)
                map_bytes(s, p->range, f->addr + p->at, p->bytes, MAP_PRIVATE, p->file, p->off);
        }
    if (s->pool)
        swn_pool_destroy(s->pool);
    s->pool = NULL;
    reopen(s);
}
