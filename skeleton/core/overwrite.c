/* skeleton/core/overwrite.c - see overwrite.h. */
#define _GNU_SOURCE
#include "skeleton/core/overwrite.h"

#include <stdint.h>
#include <string.h>
#include <sys/mman.h>

#include "skeleton/engine/engine_internal.h"
#include "base/huge_pages.h"
#include "skeleton/core/prefault.h"
#include "skeleton/core/eviction.h"
#include "skeleton/core/plan.h"
#include "skeleton/engine/accounting.h"
#include "skeleton/core/restore.h"
#include "skeleton/engine/section.h"

int swn_afresh_waits(const struct swn_engine *e, const struct swn_arg *arg, const struct swn_range *r)
{
    return arg->data == r->addr && arg->bytes >= r->len && !r->mapped_file && !r->shared && r->len <= e->budget.limit;
}

/* Maps memory at the same offset within a huge page as its range, so that huge pages can be moved as such. */
static void *map_beside(const struct swn_range *r, size_t size)
{
    char *all = mmap(NULL, size + SWN_HUGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (all == MAP_FAILED)
        return NULL;
    size_t before = (r->addr - (uintptr_t)all) % SWN_HUGE;
    if (before)
        munmap(all, before);
    munmap(all + before + size, SWN_HUGE - before);
    swn_huge_refuse((uintptr_t)all + before, size);
    swn_huge_advise((uintptr_t)all + before, size);
    return all + before;
}

static void count(struct swn_arg *a, uintptr_t at, size_t bytes)
{
    swn_engine_count_small((long long)bytes - (long long)a->afresh_bytes);
    a->afresh = at;
    a->afresh_bytes = bytes;
}

void *swn_afresh_begin(struct swn_op *op, unsigned arg)
{
    SWN_SECTION();
    struct swn_engine *e = &swn_engine_one;
    struct swn_arg *a = &op->args[arg];
    void *at = NULL;
    swn_lock(&e->lock);
    struct swn_range *r = a->range;
    if (r && r->id == a->range_id && a->pinned && atomic_load(&r->state) == SWN_FILE_BACKED) {
        size_t size = swn_round_up(r->len, SWN_PAGE);
        if (swn_afresh_waits(e, a, r) && r->pins == 1) {
            swn_reclaim_must(e, size, r);
            at = map_beside(r, size);
        }
        if (at) {
            count(a, (uintptr_t)at, size);
            swn_engine_note_peak(e);
            a->prefaulting = swn_prefault_begin(&e->prefault, a->afresh, size);
        } else {
            swn_restore_resident(e, r, 0);
        }
    }
    swn_unlock(&e->lock);
    return at;
}

void swn_afresh_end(struct swn_op *op, unsigned arg, int made)
{
    SWN_SECTION();
    struct swn_engine *e = &swn_engine_one;
    struct swn_arg *a = &op->args[arg];
    swn_lock(&e->lock);
    struct swn_range *r = a->range;
    void *at = (void *)a->afresh;
    size_t size = a->afresh_bytes;
    if (a->prefaulting && e->prefault)
        swn_prefault_end(e->prefault, a->afresh);
    a->prefaulting = 0;
    count(a, 0, 0);
    int moved = 0;
    if (made && r->id == a->range_id) {
        /* Other threads may have used the tensor meanwhile. Their stores count as earlier than this operator. */
        if (atomic_load(&r->state) == SWN_FILE_BACKED && swn_afresh_waits(e, a, r) && r->pins == 1)
            moved = !swn_restore_resident(e, r, at);
        if (!moved) {
            swn_restore_resident(e, r, 0);
            memcpy((void *)a->data, at, a->bytes);
        }
    }
    if (!moved)
        munmap(at, size);
    swn_unlock(&e->lock);
}

void swn_afresh_fork_child(struct swn_op *op)
{
    for (unsigned i = 0; i < op->n; i++) {
        struct swn_arg *a = &op->args[i];
        if (a->afresh)
            munmap((void *)a->afresh, a->afresh_bytes);
        count(a, 0, 0);
    }
}
