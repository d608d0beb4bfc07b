/* skeleton/load/mapped_file.c - see mapped_file.h. */
#define _GNU_SOURCE
#include "skeleton/load/mapped_file.h"

#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <sys/mman.h>

#include "blocks/memory/publish.h"
#include "skeleton/core/reentry.h"
#include "skeleton/load/load.h"
#include "skeleton/load/untracked.h"
#include "skeleton/core/prefetch.h"
#include "skeleton/core/plan.h"
#include "skeleton/engine/weights.h"
#include "skeleton/engine/accounting.h"
#include "skeleton/core/residency_steps.h"
#include "skeleton/core/restore.h"
#include "skeleton/engine/program_threads.h"
#include "skeleton/engine/section.h"

#define ADDRESS_BITS 56 /* the most that a process has on x86-64, and more than on AArch64 */

static void widen_bounds(uintptr_t lo, uintptr_t hi)
{
    if (!swn_mapped_bounds[1] || lo < swn_mapped_bounds[0])
        __atomic_store_n(&swn_mapped_bounds[0], lo, __ATOMIC_RELEASE);
    if (hi > swn_mapped_bounds[1])
        __atomic_store_n(&swn_mapped_bounds[1], hi, __ATOMIC_RELEASE);
}

/* Without this, a fault on a small tensor, or on the page at the edge of a large one, would read ahead through
 * megabytes of weights that the fetch queue reads: 100 of 100 MB, with the advice that safetensors and PyTorch give.
 * The read-ahead of the header is dropped again. */
static void keep_out_of_the_cache(struct swn_engine *e, void *addr, size_t len, int fd)
{
    madvise(addr, len, MADV_RANDOM);
    e->io->fadvise(e->io->ctx, fd, 0, 0, POSIX_FADV_DONTNEED);
}

void swn_mapped_file_looking(size_t len, int fd)
{
    SWN_SECTION();
    if (swn_engine_running() && len >= SWN_MAPPED_LEAST)
        swn_load_ask_for_header(fd);
}

void swn_mapped_file_begin(void *addr, size_t len, int fd, off_t off)
{
    SWN_SECTION();
    struct swn_engine *e = &swn_engine_one;
    if (!swn_engine_running() || len < SWN_MAPPED_LEAST || !e->torch || atomic_load(&e->life.retired))
        return;
    struct swn_extent_file *file = swn_load_mapped(fd);
    int watched = 0;
    if (!file)
        return;
    swn_lock(&e->lock);
    uintptr_t lo = (uintptr_t)addr, hi = lo + swn_round_up(len, SWN_PAGE);
    struct swn_mapped_file *g = swn_arena_register_mapping(e->arena, lo, hi);
    if (g) {
        g->file = file;
        g->file_off = (uint64_t)off;
        widen_bounds(lo, hi);
        e->counters.mapped_file_bytes += hi - lo;
        /* A file that fits beside everything else may stay in the page cache, and is not watched. */
        if (e->counters.mapped_file_bytes + swn_engine_resident(e) > e->budget.limit) {
            atomic_store(&e->life.want_hook, 1);
            keep_out_of_the_cache(e, addr, len, fd);
            watched = 1;
            file->refs++;
        }
    } else {
        file->refs--;
    }
    swn_unlock(&e->lock);
    if (watched) {
        swn_load_look_into(file);
        swn_lock(&e->lock);
        file->refs--;
        swn_unlock(&e->lock);
    }
    swn_engine_settle();
}

/* Ends the range; the pages that stay mapped, if any, have its bytes. */
static void evict(struct swn_engine *e, struct swn_range *r, int all_goes)
{
    struct swn_chunks chunks = swn_residency_chunks(&e->res, r);
    for (uint64_t c = chunks.first; !all_goes && e->pool && c < chunks.end; c++) {
        struct swn_range *written = NULL;
        for (struct swn_frame *f; (f = swn_pool_chunk(e->pool, c)->frame);) {
            written = swn_residency_unpublish(&e->res, &f, 1); /* also where a neighbour is being read into it */
            if (!written)
                break;
            swn_make_resident(e, written, 0);
        }
    }
    if (!all_goes && r->file != r->mapped_file->file)
        swn_restore_resident(e, r, 0);
    swn_plan_weight_leaves(e, r);
    swn_weight_remove(e, r);
    e->counters.live_bytes -= r->len;
    swn_residency_free(&e->res, r, 0);
    swn_frames_drop_dead(e, &chunks);
}

int swn_mapped_file_is_at(const void *addr, size_t len)
{
    uintptr_t lo = (uintptr_t)addr, hi = lo + swn_round_up(len, SWN_PAGE); /* as the kernel rounds */
    return swn_engine_running() && hi > __atomic_load_n(&swn_mapped_bounds[0], __ATOMIC_ACQUIRE) &&
           lo < __atomic_load_n(&swn_mapped_bounds[1], __ATOMIC_ACQUIRE) &&
           swn_arena_mapped_file_in(swn_engine_one.arena, lo, hi);
}

/* Maps [lo, hi) of the mapped file anew. Ranges that have some of it end; what they have elsewhere stays in memory. */
static int map_again(struct swn_engine *e, struct swn_mapped_file *g, uintptr_t lo, uintptr_t hi)
{
    if (!swn_spill_is_ours(g->file))
        return -EBADF;
    for (struct swn_range *r = swn_arena_first(e->arena), *next; r; r = next) {
        next = r->next;
        if (r->mapped_file == g && r->addr < hi && r->addr + r->len > lo)
            evict(e, r, 0);
    }
    if (mmap((void *)lo, hi - lo, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_FIXED | MAP_NORESERVE, g->file->fetch.fd,
             (off_t)(g->file_off + (lo - g->lo))) == MAP_FAILED)
        return -errno;
    madvise((void *)lo, hi - lo, MADV_RANDOM); /* like the rest */
    return 0;
}

/* Several files may be mapped in [lo, hi). */
static int drop(struct swn_engine *e, uintptr_t lo, uintptr_t hi)
{
    struct swn_mapped_file *g = lo < hi ? swn_arena_mapped_file_in(e->arena, lo, hi) : NULL;
    if (!g)
        return 0;
    uintptr_t from = lo > g->lo ? lo : g->lo, to = hi < g->hi ? hi : g->hi;
    int err = map_again(e, g, from, to);
    if (!err)
        err = drop(e, lo, from);
    return err ? err : drop(e, to, hi);
}

int swn_mapped_file_drop(void *addr, size_t len)
{
    struct swn_engine *e = &swn_engine_one;
    uintptr_t lo = (uintptr_t)addr;
    if (lo % SWN_PAGE || !swn_mapped_file_is_at(addr, len))
        return 0;
    if (swn_section_interrupted())
        return -EAGAIN;
    swn_lock(&e->lock);
    int err = drop(e, lo, lo + swn_round_up(len, SWN_PAGE));
    swn_unlock(&e->lock);
    return err;
}

/* `kept`: what is stored there stays in memory. */
static void end(const void *addr, size_t len, int kept)
{
    struct swn_engine *e = &swn_engine_one;
    uintptr_t lo = (uintptr_t)addr, hi = lo + swn_round_up(len, SWN_PAGE);
    if (lo % SWN_PAGE || hi >> ADDRESS_BITS || !swn_mapped_file_is_at(addr, len)) /* the kernel refuses the former */
        return;
    swn_lock(&e->lock);
    for (struct swn_mapped_file *g; (g = swn_arena_mapped_file_in(e->arena, lo, hi));) {
        int all_goes = !kept && lo <= g->lo && hi >= g->hi;
        for (struct swn_range *r = swn_arena_first(e->arena), *next; r; r = next) {
            next = r->next;
            if (r->mapped_file == g)
                evict(e, r, all_goes);
        }
        e->counters.mapped_file_bytes -= g->hi - g->lo;
        g->file->refs--;
        swn_arena_unregister_mapping(e->arena, g);
    }
    swn_unlock(&e->lock);
}

void swn_mapped_file_end(void *addr, size_t len)
{
    end(addr, len, 0);
}

void swn_mapped_file_end_kept(const void *addr, size_t len)
{
    if (swn_mapped_file_is_at(addr, len) && !swn_section_interrupted() && swn_threads_number() >= 0)
        end(addr, len, 1);
}

static struct swn_range *adopt(struct swn_engine *e, uintptr_t lo, uintptr_t hi)
{
    struct swn_mapped_file *g = swn_arena_mapped_file(e->arena, lo);
    int may = g && hi <= g->hi && !atomic_load(&e->life.retired);
    struct swn_range *r = may ? swn_arena_carve(e->arena, g, lo, hi) : NULL;
    if (r) {
        g->file->refs++;
        swn_tensor_of(r)->alloc_seq = e->ops.seq - SWN_AGED_OPS_MOST; /* no program computes activations into a file */
        r->extent_epoch = e->res.fork_epoch;
        e->counters.live_bytes += r->len;
        if (e->counters.live_bytes > e->counters.demand_peak)
            e->counters.demand_peak = e->counters.live_bytes;
    }
    return r;
}

void swn_mapped_file_cover(struct swn_engine *e, uintptr_t lo, uintptr_t hi)
{
    for (uintptr_t at = lo, end; at < hi; at = end) {
        struct swn_mapped_file *g = swn_arena_mapped_file(e->arena, at);
        for (end = at; end < hi && swn_arena_mapped_file(e->arena, end) == g && !swn_arena_find(e->arena, end);)
            end += SWN_PAGE;
        if (end == at)
            end += SWN_PAGE; /* a range has the page */
        else if (g)
            adopt(e, at, end);
    }
}

/* The range for a tensor at [lo, hi), or NULL: its pages, but the last one if another tensor begins in it. Two tensors
 * meet within a page where the file's header is no whole number of pages, and a page of neither range would keep the
 * whole chunk in which they meet from being mapped as a huge page. */
static struct swn_range *range_for(struct swn_engine *e, uintptr_t lo, uintptr_t hi)
{
    lo = lo / SWN_PAGE * SWN_PAGE;
    hi = hi / SWN_PAGE * SWN_PAGE;
    struct swn_range *r = hi > lo && hi - lo >= SWN_GRANULE ? swn_arena_find(e->arena, lo) : NULL;
    return !r && hi > lo && hi - lo >= SWN_GRANULE ? adopt(e, lo, hi) : r;
}

struct swn_range *swn_mapped_file_successor(struct swn_engine *e, const struct swn_range *r)
{
    const struct swn_mapped_file *g = r->mapped_file;
    const struct swn_ckpt_storage *next = swn_load_predict_next(e, r);
    if (!next || next->off < g->file_off || next->off + next->bytes > g->file_off + (g->hi - g->lo))
        return NULL;
    uintptr_t at = g->lo + (uintptr_t)(next->off - g->file_off);
    return range_for(e, at, at + next->bytes);
}

void swn_mapped_file_woken(const struct swn_op *op)
{
    for (unsigned i = 0; i < op->n; i++) {
        struct swn_mapped_file *g =
            op->args[i].mapped ? swn_arena_mapped_file(swn_engine_one.arena, op->args[i].data) : NULL;
        if (g)
            swn_load_ask_for_edges(g->file);
    }
}

void swn_mapped_file_resolve(struct swn_engine *e, struct swn_op *op)
{
    for (unsigned i = 0; i < op->n; i++) {
        struct swn_arg *arg = &op->args[i];
        if (!arg->mapped)
            continue;
        uintptr_t lo = arg->data / SWN_PAGE * SWN_PAGE, hi = (arg->data + arg->bytes) / SWN_PAGE * SWN_PAGE;
        struct swn_range *r = range_for(e, arg->data, arg->data + arg->bytes);
        if (!r && (arg->use == SWN_USE_WEIGHT || arg->use == SWN_USE_EXPERTS) &&
            !swn_mapped_file_is_at((void *)arg->data, arg->bytes) && !swn_arena_find(e->arena, arg->data))
            swn_untracked_read(e, arg->data, arg->bytes);
        arg->data = r ? lo : 0;
        arg->bytes = arg->upto = r ? hi - lo : 0;
    }
}
