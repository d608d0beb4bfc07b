/* blocks/memory/transition.c - see transition.h. */
#define _GNU_SOURCE
#include "blocks/memory/transition.h"

#include <errno.h>
#include <sched.h>
#include <stdatomic.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "base/huge_pages.h"
#include "blocks/memory/reserve.h"

static unsigned char *huge_at(const struct swn_residency *s, uintptr_t at)
{
    return &s->huge[(at - swn_arena_lo(s->arena)) / SWN_HUGE];
}

/* Huge pages in mappings of the program are not tracked. */
static int is_arenas(const struct swn_residency *s, uintptr_t at)
{
    return at >= swn_arena_lo(s->arena) && at < swn_arena_hi(s->arena);
}

void swn_residency_made_huge(struct swn_residency *s, uintptr_t at)
{
    *huge_at(s, at) = 1;
}

void swn_transition_divide_huge(struct swn_residency *s, uintptr_t at, uintptr_t end)
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

void swn_transition_forget_huge(struct swn_residency *s, uintptr_t at, uintptr_t end)
{
    for (; is_arenas(s, at) && at < end; at = at / SWN_HUGE * SWN_HUGE + SWN_HUGE)
        *huge_at(s, at) = 0;
}

int swn_transition_map(struct swn_residency *s, const struct swn_range *r, uintptr_t addr, size_t size, int how,
                       const struct swn_extent_file *file, uint64_t off)
{
    void *at = (void *)addr;
    swn_transition_divide_huge(s, addr, addr + size);
    int err = s->io->mmap(s->io->ctx, &at, size, PROT_READ | PROT_WRITE, how | MAP_FIXED | MAP_NORESERVE,
                          file->fetch.fd, off);
    if (!err)
        swn_transition_forget_huge(s, addr, addr + size);
    if (!err && r->mapped_file) /* like the rest of the program's mapping */
        madvise((void *)addr, size, MADV_RANDOM);
    if (!err && !r->mapped_file)
        swn_reserve_dump((void *)addr, size, 0);
    return err;
}

int swn_transition_map_anonymous(struct swn_residency *s, uintptr_t addr, size_t bytes)
{
    swn_transition_divide_huge(s, addr, addr + bytes);
    void *at = mmap((void *)addr, bytes, PROT_READ | PROT_WRITE,
                    MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED | MAP_NORESERVE, -1, 0);
    if (at == MAP_FAILED)
        return -errno;
    swn_transition_forget_huge(s, addr, addr + bytes);
    swn_huge_refuse(addr, bytes);
    return 0;
}

int swn_transition_protect(uintptr_t addr, size_t bytes, int prot)
{
    return mprotect((void *)addr, bytes, prot) ? -errno : 0;
}

int swn_transition_begin(struct swn_range *r)
{
    size_t size = swn_round_up(r->len, SWN_PAGE);
    atomic_store(&r->state, SWN_EVICTING);
    int err = swn_transition_protect(r->addr, size, PROT_READ);
    if (err)
        swn_transition_protect(r->addr, size, PROT_READ | PROT_WRITE);
    return err;
}

#define YIELDS 1000        /* the other one needs microseconds */
#define TURNS_MOST 200000u /* half a minute */

/* A real-time thread yields to its equals only, and where it has the processor the one that it waits for never runs: it
 * has to sleep. Not by the C library, in whose sleep a thread may be cancelled. */
static void let_others_run(unsigned turn)
{
    static const struct timespec moment = {.tv_nsec = 100000};
    if (turn < YIELDS)
        sched_yield();
    else if (syscall(SYS_clock_nanosleep, CLOCK_MONOTONIC, 0, &moment, NULL))
        sched_yield(); /* a filter of system calls forbids it */
}

/* The handler's mprotect must not come late and undo the protection of the next transition, nor its EVICT_ABORTED
 * replace the state that comes next. */
void swn_transition_stop(struct swn_range *r)
{
    int now = SWN_EVICTING;
    unsigned turn = 0;
    while (!atomic_compare_exchange_strong(&r->state, &now, SWN_EVICT_COMMIT) && now == SWN_EVICT_ABORTING) {
        let_others_run(turn++);
        now = SWN_EVICTING;
    }
}

void swn_transition_undo(struct swn_range *r, uintptr_t addr, size_t bytes, int state)
{
    swn_transition_stop(r);
    swn_transition_protect(addr, bytes, PROT_READ | PROT_WRITE);
    atomic_store(&r->state, state);
}

int swn_transition_commit(struct swn_range *r)
{
    int leaving = SWN_EVICTING;
    return atomic_compare_exchange_strong(&r->state, &leaving, SWN_EVICT_COMMIT) ? 0 : -EBUSY;
}

int swn_transition_begin_clean(struct swn_residency *s, struct swn_range *r, uintptr_t addr, size_t bytes,
                               struct swn_pages *pages)
{
    atomic_store(&r->state, SWN_EVICTING);
    int err = swn_transition_protect(addr, bytes, PROT_READ);
    if (!err)
        err = swn_pagemap_scan(&s->pagemap_fd, addr, bytes, pages);
    if (!err && pages->private_pages)
        err = -EBUSY;
    return err ? err : swn_transition_commit(r);
}

int swn_residency_trap(struct swn_residency *s, uintptr_t addr)
{
    struct swn_range *r = swn_arena_find(s->arena, addr);
    if (!r)
        return 0;
    int waited = 0;
    for (unsigned turn = 0; turn < TURNS_MOST; turn++) {
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
            let_others_run(turn);
            continue;
        }
        /* The transition is over: the store will find a writable mapping. */
        return state == SWN_FREE ? 0 : 1 + waited;
    }
    return 0;
}
