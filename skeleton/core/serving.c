/* skeleton/core/serving.c - see serving.h. */
#define _GNU_SOURCE
#include "skeleton/core/serving.h"

#include "blocks/memory/publish.h"
#include "skeleton/core/prefetch.h"
#include "skeleton/engine/accounting.h"
#include "skeleton/engine/engine_internal.h"
#include "skeleton/engine/section.h"
#include "skeleton/engine/thread_state.h"

/* Bytes of r that no frame has. */
static size_t missing_of(struct swn_engine *e, const struct swn_range *r)
{
    size_t there = 0;

    if (atomic_load(&((struct swn_range *)r)->state) != SWN_FILE_BACKED)
        return 0;
    if (e->pool) {
        struct swn_chunks all = swn_residency_chunks(&e->res, r);
        for (uint64_t c = all.first; c < all.end; c++) {
            const struct swn_part *p = swn_pool_part_of(swn_pool_chunk(e->pool, c)->frame, r);
            there += p && p->there ? p->bytes : 0;
        }
    }
    return there < r->len ? r->len - there : 0;
}

uint64_t swn_serving_missing(const struct swn_serving_weight *weights, size_t n)
{
    struct swn_engine *e = &swn_engine_one;
    uint64_t missing = 0;

    if (!atomic_load(&e->life.running))
        return 0;
    swn_lock(&e->lock);
    for (size_t i = 0; i < n; i++) {
        const struct swn_range *r = swn_arena_find(e->arena, weights[i].address);
        size_t bytes = r ? missing_of(e, r) : 0;
        missing += bytes < weights[i].bytes ? bytes : weights[i].bytes;
    }
    swn_unlock(&e->lock);
    return missing;
}

void swn_serving_progress(uint64_t *read_bytes, uint64_t *wait_ns)
{
    struct swn_engine *e = &swn_engine_one;
    struct swn_fetch_stats fetch = {0};

    *read_bytes = *wait_ns = 0;
    if (!atomic_load(&e->life.running))
        return;
    swn_lock(&e->lock);
    if (e->fetch)
        swn_fetch_stats_get(e->fetch, &fetch);
    *read_bytes = fetch.bytes + e->res.fallback_pages * SWN_PAGE;
    *wait_ns = e->counters.stall_ns + e->disk.row_ns;
    swn_unlock(&e->lock);
}

uint64_t swn_serving_tensors(uint64_t *peak)
{
    struct swn_engine *e = &swn_engine_one;
    uint64_t now;

    *peak = 0;
    if (!atomic_load(&e->life.running))
        return 0;
    swn_lock(&e->lock);
    now = e->counters.live_bytes + swn_small_bytes(e);
    *peak = e->counters.live_mark > now ? e->counters.live_mark : now;
    e->counters.live_mark = now;
    swn_unlock(&e->lock);
    return now;
}

uint64_t swn_serving_budget(void)
{
    struct swn_engine *e = &swn_engine_one;
    uint64_t bytes;

    if (!atomic_load(&e->life.running))
        return 0;
    swn_lock(&e->lock);
    bytes = e->budget.target;
    swn_unlock(&e->lock);
    return bytes;
}

/* Reading begins at once where the thread has run operators before; else its first one begins it. */
void swn_serving_announce(const struct swn_serving_weight *weights, size_t n, uintptr_t own)
{
    SWN_SECTION();
    struct swn_engine *e = &swn_engine_one;
    struct swn_thread_state *t = swn_window_self();

    if (!atomic_load(&e->life.running))
        return;
    swn_lock(&e->lock);
    if (e->ops.announced.count || n || own) {
        swn_announced_set(e, weights, n, own);
        swn_prefetch_announced(e, t);
    }
    swn_unlock(&e->lock);
}
