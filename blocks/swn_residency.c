#define _GNU_SOURCE
#include "swn_residency.h"

#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "swn_huge.h"
#include "swn_own.h"

/* /proc/self/pagemap, Documentation/admin-guide/mm/pagemap.rst */
#define PM_PRESENT (1ULL << 63)
#define PM_SWAPPED (1ULL << 62)
#define PM_FILE (1ULL << 61)

int swn_residency_init(struct swn_residency *s, const struct swn_io *io, struct swn_arena *a)
{
    memset(s, 0, sizeof *s);
    s->io = io;
    s->arena = a;
    s->huge = calloc((swn_arena_hi(a) - swn_arena_lo(a)) / SWN_HUGE + 1, 1);
    if (!s->huge)
        return -ENOMEM;
    s->pagemap_fd = swn_own(open("/proc/self/pagemap", O_RDONLY | O_CLOEXEC));
    int err = s->pagemap_fd < 0 ? -errno : 0;
    if (err) {
        free(s->huge);
        s->huge = NULL;
    }
    return err;
}

static void close_pagemap(struct swn_residency *s)
{
    if (s->pagemap_fd >= 0)
        swn_own_close(s->pagemap_fd);
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
    if (r->guest)
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
    madvise((void *)at, bytes, MADV_DONTNEED);
    parted(s, at, at + bytes);
    swn_huge_refuse(at, bytes); /* whoever gets it next may have other neighbours there */
}

/* For a child, which has pages of its own, and where the program has closed ours. */
static void reopen(struct swn_residency *s)
{
    close_pagemap(s);
    s->pagemap_fd = swn_own(open("/proc/self/pagemap", O_RDONLY | O_CLOEXEC));
}

static int scan(struct swn_residency *s, uintptr_t addr, size_t bytes, struct swn_pages *out)
{
    uint64_t entries[512];
    size_t first = addr / SWN_PAGE, pages = bytes / SWN_PAGE;
    *out = (struct swn_pages){0};
    if (!swn_owns(s->pagemap_fd))
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
                out->own++;
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
        knows = !scan(s, (uintptr_t)at, SWN_HUGE, &pages) && !pages.own;
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
    *own = pages.own;
    return err;
}

static int state_of(const struct swn_range *r)
{
    return atomic_load(&((struct swn_range *)r)->state);
}

/* One mmap in place of what is there, so that a reader sees the old pages or the new ones, never a hole. */
static int map_at(struct swn_residency *s, const struct swn_range *r, int how, const struct swn_extent_file *file,
                  uint64_t off)
{
    void *at = (void *)r->addr;
    size_t size = swn_round_up(r->len, SWN_PAGE);
    part_with(s, r->addr, r->addr + size);
    int err = s->io->mmap(s->io->ctx, &at, size, PROT_READ | PROT_WRITE, how | MAP_FIXED | MAP_NORESERVE,
                          file->fetch.fd, off);
    if (!err)
        parted(s, r->addr, r->addr + size);
    if (!err && r->guest) /* as the rest of the program's mapping is */
        madvise((void *)r->addr, size, MADV_RANDOM);
    return err;
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
    /* A lodged place that a child inherits as a hole is one up to its last granule's end. */
    return map_anonymous_at(s, r->addr, r->lodges ? r->span : swn_round_up(r->len, SWN_PAGE));
}

/* First half of a departure: from here on a store faults. */
static int leave_begin(struct swn_range *r)
{
    atomic_store(&r->state, SWN_LEAVING);
    if (mprotect((void *)r->addr, swn_round_up(r->len, SWN_PAGE), PROT_READ)) {
        int err = -errno;
        mprotect((void *)r->addr, swn_round_up(r->len, SWN_PAGE), PROT_READ | PROT_WRITE);
        return err;
    }
    return 0;
}

/* The range stays what it was, writable again. A handler that is at the same thing is waited for, and none may begin:
 * its mprotect must not come late and undo the protection of the next departure, nor its RECALLED replace `state`. */
static void leave_undo(struct swn_range *r, int state)
{
    int now = SWN_LEAVING;
    while (!atomic_compare_exchange_strong(&r->state, &now, SWN_COMMIT) && now == SWN_RECALLING) {
        sched_yield();
        now = SWN_LEAVING;
    }
    mprotect((void *)r->addr, swn_round_up(r->len, SWN_PAGE), PROT_READ | PROT_WRITE);
    atomic_store(&r->state, state);
}

/* Second half: from here on a store waits, and whatever gets mapped next is what it finds. -EBUSY when a store sent the
 * range back. */
static int leave_commit(struct swn_range *r)
{
    int leaving = SWN_LEAVING;
    return atomic_compare_exchange_strong(&r->state, &leaving, SWN_COMMIT) ? 0 : -EBUSY;
}

/* Both halves for a range whose bytes are in its extent already. -EBUSY also for private copies. */
static int leave_clean(struct swn_residency *s, struct swn_range *r, struct swn_pages *pages)
{
    int err = leave_begin(r);
    if (!err)
        err = swn_residency_scan(s, r, pages);
    if (!err && pages->own)
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
    s->home_bytes -= r->size;
    r->size = size;
}

static void name_extent(struct swn_residency *s, struct swn_range *r, struct swn_extent_file *file, uint64_t off)
{
    file->refs++;
    r->berth = NULL;
    r->extent_turn = ++s->turns;
    r->file = file;
    r->extent = off;
    r->extent_epoch = s->fork_epoch;
    r->foreign_map = 1;
    r->published = 0;
    r->shared = 0;
    atomic_store(&r->state, SWN_STREAMED);
}

int swn_residency_leave(struct swn_residency *s, struct swn_range *r)
{
    if (state_of(r) != SWN_HOME || r->pins || !s->spill || s->pagemap_fd < 0)
        return -EBUSY;
    int err = leave_begin(r);
    if (err)
        leave_undo(r, SWN_HOME);
    return err;
}

int swn_residency_left(struct swn_residency *s, struct swn_range *r, uint64_t off)
{
    int err = leave_commit(r);
    if (!err)
        err = map_at(s, r, MAP_PRIVATE, s->spill, off);
    if (err) {
        s->recalls += err == -EBUSY;
        leave_undo(r, SWN_HOME);
        return err;
    }
    left_home(s, r);
    name_extent(s, r, s->spill, off);
    return 0;
}

void swn_residency_stay(struct swn_range *r)
{
    leave_undo(r, SWN_HOME);
}

/* Whether the range's place in the spill file is nobody else's: not a child's either, who may have it mapped. */
static int has_berth(const struct swn_residency *s, const struct swn_range *r)
{
    return r->berth == s->spill && r->extent_epoch == s->fork_epoch;
}

/* Where the range is written. All that is here of a tensor in pieces gets its places at once. */
static uint64_t berth_of(struct swn_residency *s, struct swn_range *r)
{
    if (has_berth(s, r))
        return r->extent;
    size_t bytes = 0;
    for (struct swn_range *p = r->lead; p; p = p->rest)
        bytes += p->span;
    uint64_t off = swn_spill_lay_out(s->spill, bytes);
    for (struct swn_range *p = r->lead; p; p = p->rest) {
        if (p != r && (state_of(p) != SWN_HOME || has_berth(s, p)))
            continue;
        p->berth = s->spill;
        p->extent = off + (p->addr - r->lead->addr);
        p->extent_epoch = s->fork_epoch;
    }
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
    if ((state != SWN_HOME && state != SWN_STREAMED) || r->pins || s->pagemap_fd < 0)
        return -EBUSY;
    int err = map_at(s, r, MAP_PRIVATE, file, off);
    if (err)
        return err;
    if (state == SWN_HOME)
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
    if (r->shared)
        return 0;
    if (state_of(r) == SWN_HOME)
        return share_fresh(s, r);
    if (state_of(r) != SWN_STREAMED || r->file != s->spill || r->extent_epoch != s->fork_epoch || r->published)
        return -EBUSY;
    int err = leave_clean(s, r, &pages);
    if (!err)
        err = map_at(s, r, MAP_SHARED, r->file, r->extent);
    r->shared = !err;
    leave_undo(r, SWN_STREAMED);
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
    r->berth = r->filling ? NULL : r->file;
    r->file = NULL;
    r->published = 0;
    s->home_bytes += r->size;
    atomic_store(&r->state, SWN_HOME);
}

int swn_residency_home(struct swn_residency *s, struct swn_range *r, int discard)
{
    size_t size = swn_round_up(r->len, SWN_PAGE);
    if (state_of(r) != SWN_STREAMED)
        return 0;
    int err = swn_residency_unshare(s, r);
    if (err)
        return err;
    if (discard) {
        err = map_anonymous(s, r);
        if (err)
            return err;
        swn_residency_fresh(s, r);
        r->foreign_map = 0;
    } else {
        /* An atomic no-op store gives every page its private copy, whatever other threads do to it meanwhile. */
        for (uintptr_t page = r->addr; page < r->addr + size; page += SWN_PAGE)
            atomic_fetch_or((_Atomic unsigned char *)page, 0);
        if (r->published)
            madvise((void *)r->addr, size, MADV_DOFORK);
    }
    forget_extent(s, r);
    return 0;
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

int swn_residency_publish(struct swn_residency *s, struct swn_range *r, struct swn_frame *f, size_t bytes)
{
    struct swn_pages pages;
    if (state_of(r) != SWN_STREAMED)
        return -EINVAL;
    int err = leave_clean(s, r, &pages);
    if (!err)
        err = swn_pool_lend(s->pool, f, (void *)r->addr, bytes);
    leave_undo(r, SWN_STREAMED);
    if (err) {
        s->recalls += err == -EBUSY;
        return err;
    }
    s->stray_pages += pages.mapped;
    /* A child must not see pool pages: we reuse them. Its fork handler maps the extent into the hole. */
    madvise((void *)r->addr, bytes, MADV_DONTFORK);
    r->published = bytes;
    populate(r->addr, bytes);
    return 0;
}

int swn_residency_remap(struct swn_residency *s, struct swn_range *r)
{
    struct swn_pages pages;
    if (state_of(r) != SWN_STREAMED)
        return -EINVAL;
    int err = leave_clean(s, r, &pages);
    if (!err)
        err = map_at(s, r, MAP_PRIVATE, r->file, r->extent);
    if (err) {
        s->recalls += err == -EBUSY;
        leave_undo(r, SWN_STREAMED);
        return err;
    }
    if (!r->published) {
        s->stray_pages += pages.mapped;
        if (pages.mapped)
            swn_spill_uncache(r->file, r->extent, swn_round_up(r->len, SWN_PAGE));
    }
    r->published = 0;
    atomic_store(&r->state, SWN_STREAMED);
    return 0;
}

void swn_residency_free(struct swn_residency *s, struct swn_range *r, int warm)
{
    size_t size = swn_round_up(r->len, SWN_PAGE);
    int streamed = state_of(r) == SWN_STREAMED;
    /* What stays mapped for now must be nobody's memory, and no page that anything else changes. */
    int later = r->foreign_map && streamed && !r->guest && !r->plotted && !r->shared && !r->published;
    if (r->guest) {
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
        s->home_bytes -= r->size;
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
        if (state == SWN_LEAVING) {
            if (!atomic_compare_exchange_strong(&r->state, &state, SWN_RECALLING))
                continue;
            mprotect((void *)r->addr, swn_round_up(r->len, SWN_PAGE), PROT_READ | PROT_WRITE);
            atomic_store(&r->state, SWN_RECALLED);
            return 2;
        }
        if (state == SWN_COMMIT || state == SWN_RECALLING) {
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
    for (struct swn_range *r = swn_arena_first(s->arena); r; r = r->next) {
        if (state_of(r) != SWN_STREAMED || !r->published)
            continue;
        map_at(s, r, MAP_PRIVATE, r->file, r->extent);
        r->published = 0;
        r->frame = NULL;
    }
    reopen(s);
}
