/* Memory for trials. A trial computes with weights and inputs of full size, to see whether slices give the bits of the
 * whole (shim/torch/trials.cpp), and there may be no room for these. So they consist of a few pages, mapped over and
 * over; and so does a kernel's own copy of the whole weight in another order. */
#define _GNU_SOURCE
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "skeleton/engine/engine_internal.h"
#include "base/io.h"
#include "skeleton/core/eviction.h"
#include "skeleton/tiling/trial_memory.h"
#include "skeleton/engine/accounting.h"
#include "skeleton/engine/section.h"

/* The part that kernels add to a copy of the weight, to fill up its last block. */
#define FOLD_PART 8
/* The most allocations that are folded at once, by all threads: more get ordinary memory. */
#define MOST 16

static __thread size_t fold_bytes, fold_period;

/* Guarded by the engine's lock, except that `count` is read before. */
static struct {
    void *at;
    size_t bytes, period;
} folded[MOST];
static _Atomic unsigned count;
static size_t counted; /* of small_bytes */

/* A weight that can be sliced can always be computed in smaller parts instead: so nothing leaves for a trial. */
static int take(size_t bytes)
{
    struct swn_engine *e = &swn_engine_one;
    swn_lock(&e->lock);
    int fits = swn_reclaim_if_idle(e, bytes) == 0;
    if (fits) {
        swn_engine_count_small((long long)bytes);
        counted += bytes;
        swn_engine_note_peak(e);
    }
    swn_unlock(&e->lock);
    return fits;
}

static void give_back(size_t bytes)
{
    struct swn_engine *e = &swn_engine_one;
    swn_lock(&e->lock);
    /* After a fork, memory from before it is not counted in the child. */
    size_t ours = bytes < counted ? bytes : counted;
    swn_engine_count_small(-(long long)ours);
    counted -= ours;
    swn_unlock(&e->lock);
}

/* A child does not inherit the memory: a thread that was in a trial is in the middle of an operator that will never end
 * there. */
static void *map_over_and_over(size_t size, size_t period)
{
    int fd = memfd_create("swapnet-trial", MFD_CLOEXEC);
    if (fd < 0)
        return NULL;
    char *base = MAP_FAILED;
    if (!swn_file_limit_below(period) && ftruncate(fd, (off_t)period) == 0)
        base = mmap(NULL, size, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    for (size_t at = 0; base != MAP_FAILED && at < size; at += period)
        if (mmap(base + at, period, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, fd, 0) == MAP_FAILED) {
            munmap(base, size);
            base = MAP_FAILED;
        }
    close(fd);
    if (base == MAP_FAILED)
        return NULL;
    madvise(base, size, MADV_DONTFORK);
    return base;
}

void *swn_trial_map(size_t bytes, size_t period)
{
    SWN_SECTION();
    if (!take(period))
        return NULL;
    void *at = map_over_and_over(swn_round_up(bytes, period), period);
    if (!at)
        give_back(period);
    return at;
}

void swn_trial_unmap(void *at, size_t bytes, size_t period)
{
    SWN_SECTION();
    munmap(at, swn_round_up(bytes, period));
    give_back(period);
}

int swn_trial_room(size_t bytes)
{
    int fits = take(bytes);
    if (fits)
        give_back(bytes);
    return fits;
}

void swn_trial_alias_allocations(size_t bytes, size_t period)
{
    fold_bytes = bytes;
    fold_period = period;
}

void *swn_trial_alloc(size_t n)
{
    if (!fold_bytes || n < fold_bytes || n - fold_bytes > fold_bytes / FOLD_PART)
        return NULL;
    struct swn_engine *e = &swn_engine_one;
    void *at = swn_trial_map(n, fold_period);
    if (!at)
        return NULL;
    unsigned i = 0;
    swn_lock(&e->lock);
    while (i < MOST && folded[i].at)
        i++;
    if (i < MOST) {
        folded[i].at = at;
        folded[i].bytes = n;
        folded[i].period = fold_period;
        atomic_fetch_add(&count, 1);
    }
    swn_unlock(&e->lock);
    if (i < MOST)
        return at;
    swn_trial_unmap(at, n, fold_period);
    return NULL;
}

int swn_trial_free(void *p)
{
    if (!atomic_load(&count))
        return 0;
    struct swn_engine *e = &swn_engine_one;
    size_t bytes = 0, period = 0;
    swn_lock(&e->lock);
    for (unsigned i = 0; i < MOST && !bytes; i++)
        if (folded[i].at == p) {
            bytes = folded[i].bytes;
            period = folded[i].period;
            folded[i].at = NULL;
            atomic_fetch_sub(&count, 1);
        }
    swn_unlock(&e->lock);
    if (bytes)
        swn_trial_unmap(p, bytes, period);
    return bytes != 0;
}

void swn_trial_fork_child(struct swn_engine *e)
{
    (void)e;
    memset(folded, 0, sizeof folded);
    atomic_store(&count, 0);
    swn_engine_count_small(-(long long)counted);
    counted = 0;
    fold_bytes = 0;
}
