/* Ends the engine in a process that continues.
 *
 * Why locked memory (mlockall) is a reason: a program that locks memory wants no access to wait for a disk, and the
 * kernel enforces that. With MCL_FUTURE the kernel gives every page of a writable private mapping its own copy as soon
 * as it is mapped, so a weight that leaves is back at once, and twice where a frame of the pool is mapped. With
 * MCL_CURRENT it does that to all weights that have left. Swapping cannot work against the kernel, so the engine stops:
 * the process takes as much memory as without swapnet.
 */
#define _GNU_SOURCE
#include "skeleton/core/retire.h"

#include <errno.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "skeleton/core/write_behind.h"
#include "skeleton/engine/engine_internal.h"
#include "skeleton/core/expected_read.h"
#include "blocks/memory/reserve.h"
#include "base/size.h"
#include "skeleton/core/prefetch.h"
#include "skeleton/core/plan.h"
#include "skeleton/engine/accounting.h"
#include "skeleton/core/residency_steps.h"
#include "skeleton/engine/section.h"

/* How long to wait for operators of other threads that hold frames; not for ever, as such an operator may be the
 * caller. */
#define PATIENCE_NS 5000000000u
#define BREATH_NS 500000
/* The least free address space beside a pool with which a program can continue. */
#define SPACE_LEAST ((uint64_t)64 << 20)

/* 0: all ranges are resident. -EBUSY: a range could not become resident now, or at all. */
static int all_resident(struct swn_engine *e)
{
    int err = 0;
    for (struct swn_range *r = swn_arena_first(e->arena); r; r = r->next) {
        swn_tensor_of(r)->sliced = 0;
        if (atomic_load(&r->state) == SWN_FILE_BACKED && (r->filling || swn_make_resident(e, r, 0)))
            err = -EBUSY;
    }
    return err;
}

/* Whether operators need the pool: those that began before `seq` may be using frames, and later ones hold chunks if
 * they are waiting for a read. The latter become none, as a resident weight needs no chunk. */
static int in_operators(const struct swn_engine *e, uint64_t seq)
{
    for (const struct swn_op *op = e->ops.open; op; op = op->next_open) {
        if (op->seq <= seq)
            return 1;
        for (unsigned i = 0; i < op->n; i++)
            if (op->args[i].range && op->args[i].end_chunk > op->args[i].first_chunk)
                return 1;
    }
    return 0;
}

static void close_pool(struct swn_engine *e)
{
    struct swn_frame *f = e->pool ? swn_pool_first(e->pool) : NULL;
    while (f) {
        if (!swn_frame_may_go(e, f)) {
            f = f->next;
            continue;
        }
        swn_frame_evict(e, f); /* and neighbours, if a range was written to that has to become resident */
        f = swn_pool_first(e->pool);
    }
    if (!e->pool || swn_pool_first(e->pool))
        return;
    swn_pool_destroy(e->pool);
    e->pool = e->res.pool = NULL;
}

static void free_warm(struct swn_engine *e)
{
    struct swn_piece piece;
    swn_residency_tidy(&e->res);
    while (swn_arena_trim(e->arena, SIZE_MAX, &piece) || swn_arena_trim_regions(e->arena, SIZE_MAX, &piece))
        swn_residency_drop(&e->res, piece.addr, piece.bytes);
}

/* 0, or -EBUSY: to be tried again. */
static int try_to_retire(struct swn_engine *e, uint64_t seq)
{
    struct swn_fetch *fetch = __atomic_load_n(&e->fetch, __ATOMIC_ACQUIRE);
    if (fetch) /* reads in flight end in fetch_done, which takes the lock */
        swn_fetch_pause(fetch);
    swn_lock(&e->lock);
    swn_write_behind_drain(e);
    int err = all_resident(e);
    if (!err && in_operators(e, seq))
        err = -EBUSY;
    if (!err) {
        close_pool(e);
        free_warm(e);
        swn_arena_shrink(e->arena, 0);
        swn_arena_seal(e->arena);
        err = e->pool ? -EBUSY : 0; /* reads that had not begun end once the queue goes on */
    }
    swn_unlock(&e->lock);
    if (fetch)
        swn_fetch_resume(fetch);
    return err;
}

static void retire(struct swn_engine *e, const char *why)
{
    if (atomic_exchange(&e->life.retired, 1))
        return;
    swn_lock(&e->lock);
    swn_expected_read_cancel(e, 1);
    e->config.enforce = 0;
    e->plan.planned = e->plan.dirty = 0;
    for (struct swn_range *r = swn_arena_first(e->arena); r; r = r->next)
        swn_write_behind_cancel(e, r);
    swn_residency_give_up_places(&e->res, e->writes.spill);
    e->res.spill = NULL; /* nothing can leave */
    uint64_t seq = e->ops.seq, until = swn_now_ns() + PATIENCE_NS;
    swn_unlock(&e->lock);
    swn_say("off from here on: %s; all weights come back into memory", why);
    while (try_to_retire(e, seq) && swn_now_ns() < until)
        nanosleep(&(struct timespec){.tv_nsec = BREATH_NS}, NULL);
}

/* Whether the kernel would let this process lock more than its limit (CAP_IPC_LOCK). Only the kernel knows: so this
 * locks a larger mapping, which has no pages and gets none. */
static int may_lock_any(uint64_t limit)
{
    size_t bytes = swn_round_up(limit, SWN_PAGE) + SWN_PAGE;
    void *at = mmap(NULL, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (at == MAP_FAILED)
        return 0;
    int may = !syscall(SYS_mlock2, at, bytes, MLOCK_ONFAULT);
    munmap(at, bytes);
    return may;
}

/* Whether mlockall would succeed once unused memory has been released. Many programs try mlockall, and continue
 * without. */
static int lock_succeeds(struct swn_engine *e, int flags)
{
    struct rlimit limit;
    if (!flags || flags & ~(MCL_CURRENT | MCL_FUTURE | MCL_ONFAULT) || flags == MCL_ONFAULT)
        return 0;
    if (getrlimit(RLIMIT_MEMLOCK, &limit) || limit.rlim_cur == RLIM_INFINITY || may_lock_any(limit.rlim_cur))
        return 1;
    swn_lock(&e->lock);
    uint64_t unused = swn_arena_hi(e->arena) - swn_arena_lo(e->arena) - swn_arena_used(e->arena);
    swn_unlock(&e->lock);
    uint64_t mapped = swn_engine_mapped_bytes();
    return limit.rlim_cur && (!(flags & MCL_CURRENT) || mapped <= limit.rlim_cur + unused);
}

void swn_retire_for_lock(int flags)
{
    SWN_SECTION();
    struct swn_engine *e = &swn_engine_one;
    int saved = errno;
    if (swn_engine_running() && !atomic_load(&e->life.retired) && lock_succeeds(e, flags))
        retire(e, "the program locks its memory (mlockall), and what is locked cannot leave it");
    errno = saved;
}

void swn_retire_for_space(uint64_t bytes)
{
    SWN_SECTION();
    struct swn_engine *e = &swn_engine_one;
    int saved = errno;
    if (!swn_engine_running() || e->life.pid != getpid() || atomic_load(&e->life.retired))
        return;
    uint64_t mapped = swn_engine_mapped_bytes();
    swn_lock(&e->lock);
    uint64_t whole = swn_arena_hi(e->arena) - swn_arena_lo(e->arena), used = swn_arena_used(e->arena);
    uint64_t least = mapped > whole ? mapped - whole + used : used; /* with the smallest possible arena */
    uint64_t left = bytes > least ? bytes - least : 0;
    swn_arena_shrink(e->arena, used + left / SWN_SPACE_PART);
    int tight = e->pool && left < SPACE_LEAST;
    swn_unlock(&e->lock);
    char limit[32], why[160];
    snprintf(why, sizeof why, "the program limits its address space (RLIMIT_AS) to %s, too little for a pool beside it",
             swn_format_mib(limit, bytes));
    if (tight)
        retire(e, why);
    errno = saved;
}
