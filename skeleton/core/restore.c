/* skeleton/core/restore.c - gives a range ordinary pages again, with room for them, or moves it to where the plan wants
 * it. */
#define _GNU_SOURCE
#include <errno.h>
#include <time.h>

#include "base/process.h"
#include "blocks/memory/publish.h"
#include "skeleton/engine/engine_internal.h"
#include "skeleton/engine/accounting.h"
#include "skeleton/core/eviction.h"
#include "skeleton/core/residency_steps.h"
#include "skeleton/core/restore.h"
#include "skeleton/engine/weights.h"

/* Inputs up to this part of the budget may become resident again for good. */
#define RESTORE_PART 16

/* Stores of which no operator tells come to notice as anonymous memory that does not count. A look costs some
 * microseconds. */
#define LOOK_NS (uint64_t)20000000
#define LOOK_LONGEST_NS (uint64_t)1000000000
/* More than the program's other memory grows by in a few operators. */
#define NOTICED_LEAST ((int64_t)4 << 20)
#define NOTICED_PART 8 /* of the budget */
/* Of a range: with less, reading all the rest of it costs more memory than it gives back. */
#define WRITTEN_PART 4
/* Ranges that one search finds at most, and bytes that one operator restores. */
#define LISTED 4096
#define BYTES_AT_ONCE ((size_t)64 << 20)
/* Searching for the ranges takes at most 1 / SEARCH_PART of the time. */
#define SEARCH_PART 100

/* From now on all of r is read through the mapping of its extent. -EBUSY: it was written to, and its frames stay
 * mapped. */
static int take_back(struct swn_engine *e, struct swn_range *r)
{
    struct swn_chunks chunks = swn_residency_chunks(&e->res, r);
    for (uint64_t c = chunks.first; c < chunks.end; c++) {
        struct swn_range *written = NULL;
        for (struct swn_frame *f; (f = swn_pool_chunk(e->pool, c)->frame);) {
            written = swn_residency_unpublish(&e->res, &f, 1);
            if (!written || written == r)
                break;
            swn_make_resident(e, written, 0);
        }
        if (written)
            return -EBUSY;
    }
    return 0;
}

/* Writes a tensor that alone exceeds the budget through a mapping of its file. 0, or -errno: impossible. */
int swn_restore_share(struct swn_engine *e, struct swn_range *r)
{
    if (!e->config.enforce || !e->torch || atomic_load(&e->life.hook_state) == 3 || swn_open_pool(e))
        return -EBUSY;
    int err = take_back(e, r); /* or frames that get other bytes would stay mapped, if it cannot be shared */
    if (err)
        return err;
    swn_frames_forget(e, r);
    err = swn_residency_share(&e->res, r);
    if (err && swn_spill_again(e, err))
        err = swn_residency_share(&e->res, r);
    if (!err)
        atomic_store(&e->life.want_hook, 1);
    return err;
}

/* Makes room, and gives the range ordinary pages; a range that is resident already needs no room. */
int swn_restore_resident(struct swn_engine *e, struct swn_range *r, void *pages)
{
    if (atomic_load(&r->state) != SWN_FILE_BACKED)
        return 0;
    if (!pages && r->len > e->budget.limit && swn_restore_share(e, r) == 0)
        return 0;
    int fresh = atomic_load(&r->state) == SWN_FILE_BACKED; /* else it counts already */
    swn_reclaim_must(e, fresh ? swn_round_up(r->len, SWN_PAGE) : 0, r);
    int err = swn_make_resident(e, r, pages);
    swn_engine_note_peak(e);
    return err;
}

/* An input (a mask, a table, the same image over and over) that left while a model was built becomes resident again
 * when it is read repeatedly, as no order tells when to read it ahead; and as soon as there is a plan with room for it.
 * If it has to leave each time, this happens ever more rarely. */
void swn_restore_input(struct swn_engine *e, struct swn_range *r)
{
    size_t size = swn_round_up(r->len, SWN_PAGE);
    if (!e->plan.planned || r->weight >= 0 || r->mapped_file || swn_tensor_of(r)->readers || r->shared ||
        !swn_is_aged(e, r) || r->len > e->budget.limit / RESTORE_PART || atomic_load(&r->state) != SWN_FILE_BACKED ||
        r->file->immutable)
        return;
    uint32_t n = ++swn_tensor_of(r)->evicted_reads;
    if (swn_tensor_of(r)->recalled && !e->plan.dirty) {
        swn_tensor_of(r)->recalled = 0;
        if (swn_reclaim_free_fits(e, size))
            swn_restore_resident(e, r, 0);
    } else if (!swn_tensor_of(r)->recalled && n > 1 && !(n & (n - 1))) {
        swn_tensor_of(r)->recalled = 1;
        e->plan.dirty = 1;
    }
}

/* Anonymous memory beyond what counts. Negative: tensors without pages count already. 0 or -errno. */
static int uncounted(struct swn_engine *e, int64_t *bytes)
{
    uint64_t anonymous;
    int err = swn_process_anonymous(0, &anonymous);
    if (!err)
        *bytes = (int64_t)anonymous - (int64_t)(swn_engine_resident(e) - swn_pool_bytes(e->pool));
    return err;
}

static size_t written_bytes(struct swn_engine *e, const struct swn_range *r)
{
    size_t own;
    /* The program may have protected its own mapping, and what is not in memory of it is read page by page. */
    if (atomic_load(&r->state) != SWN_FILE_BACKED || r->mapped_file || r->shared || r->pins ||
        swn_tensor_of(r)->readers || r->len > e->budget.limit ||
        swn_residency_private(&e->res, r->addr, swn_round_up(r->len, SWN_PAGE), &own))
        return 0;
    return own * SWN_PAGE >= r->len / WRITTEN_PART ? own * SWN_PAGE : 0;
}

/* Ranges of which a good part was written, and how far they have been gone through. Guarded by the engine's lock. */
static struct {
    size_t bytes; /* of all of them */
    unsigned n, at;
    struct {
        uintptr_t at;
        uint32_t id;
    } some[LISTED];
} written;

static void find_written(struct swn_engine *e)
{
    written.bytes = written.n = written.at = 0;
    for (struct swn_range *r = swn_arena_first(e->arena); r; r = r->next) {
        size_t bytes = written_bytes(e, r);
        written.bytes += bytes;
        if (!bytes || written.n == LISTED)
            continue;
        written.some[written.n].at = r->addr;
        written.some[written.n++].id = r->id;
    }
}

/* The bytes that were written of the range that was found there; 0: it is gone, or has changed. */
static size_t still_written(struct swn_engine *e, uintptr_t at, uint32_t id, struct swn_range **r)
{
    *r = swn_arena_find(e->arena, at);
    return *r && (*r)->id == id ? written_bytes(e, *r) : 0;
}

/* Goes on with those that were found. Other operators wait meanwhile, so it ends after some bytes. -ENOMEM: nothing can
 * leave for them now. */
static int restore_some(struct swn_engine *e)
{
    size_t done = 0;
    while (written.at < written.n && done < BYTES_AT_ONCE) {
        uintptr_t at = written.some[written.at].at;
        uint32_t id = written.some[written.at++].id;
        struct swn_range *r;
        if (!still_written(e, at, id, &r))
            continue;
        if (swn_reclaim_try(e, swn_round_up(r->len, SWN_PAGE), r)) {
            written.at = written.n;
            return -ENOMEM;
        }
        size_t bytes = still_written(e, at, id, &r); /* the lock may have been released */
        if (bytes && !swn_restore_resident(e, r, 0))
            done += bytes;
    }
    return 0;
}

/* Of this thread: on a busy machine a search takes far longer than it costs. */
static uint64_t cpu_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return (uint64_t)t.tv_sec * 1000000000 + (uint64_t)t.tv_nsec;
}

void swn_restore_written(struct swn_engine *e, uint64_t now)
{
    /* Guarded by the engine's lock. */
    static uint64_t next, wait = LOOK_NS;
    static int64_t least = INT64_MAX;
    int64_t is, much = (int64_t)(e->budget.limit / NOTICED_PART);
    if (!e->pool || !e->config.enforce || (written.at == written.n && now < next))
        return;
    if (written.at < written.n) {
        (void)restore_some(e);
        return;
    }
    next = now + wait;
    if (uncounted(e, &is))
        return;
    int first = least == INT64_MAX;
    least = is < least ? is : least;
    if (!first && is - least < (much > NOTICED_LEAST ? much : NOTICED_LEAST)) {
        wait = wait / 2 > LOOK_NS ? wait / 2 : LOOK_NS;
        return;
    }
    uint64_t began = cpu_ns(), longer = 2 * wait < LOOK_LONGEST_NS ? 2 * wait : LOOK_LONGEST_NS;
    find_written(e);
    uint64_t search = (cpu_ns() - began) * SEARCH_PART;
    wait = longer;
    if (written.bytes) {
        swn_reclaim_note_written(e, written.bytes);
        wait = restore_some(e) ? longer : LOOK_NS;
    } else {
        least = is; /* the memory is other than tensors' */
    }
    next = now + (wait > search ? wait : search);
}

/* Whether the chunk has bytes in a frame, or bytes that need a frame. */
static int has_file_backed(struct swn_engine *e, const struct swn_range *r, uint64_t chunk)
{
    uintptr_t at = swn_residency_chunk_at(&e->res, r, chunk), end = at + swn_pool_unit(e->pool);
    for (struct swn_range *next; (next = swn_arena_in(e->arena, at, end)); at = next->addr + next->span)
        if (atomic_load(&next->state) == SWN_FILE_BACKED)
            return 1;
    return 0;
}

/* Whether the plan streams a part of it, or neighbours in its chunks, which take frames anyway. */
static int streams(struct swn_engine *e, const struct swn_range *r)
{
    struct swn_chunks all = swn_residency_chunks(&e->res, r);
    for (uint64_t c = all.first; c < all.end; c++)
        if (!swn_pool_chunk(e->pool, c)->plan_keep || has_file_backed(e, r, c))
            return 1;
    return 0;
}

/* Moves one weight to where the plan wants it; called when an operator is done with it. */
void swn_plan_apply_to(struct swn_engine *e, struct swn_range *r)
{
    if (!e->plan.planned || !e->pool || !swn_is_weight(r) || swn_tensor_of(r)->written || r->pins ||
        swn_tensor_of(r)->readers)
        return;
    if (atomic_load(&r->state) == SWN_RESIDENT && e->counters.allocs >= e->writes.spill_retry && streams(e, r))
        swn_spill_range(e, r);
}
