/* blocks/memory/frame_pool.c - see frame_pool.h. */
#define _GNU_SOURCE
#include "blocks/memory/frame_pool.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/falloc.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "blocks/memory/arena.h"
#include "base/io.h"
#include "base/huge_pages.h"
#include "base/fd_registry.h"
#include "blocks/memory/reserve.h"

/* After this many refusals the memory counts as too fragmented, or the kernel as too old. */
#define REFUSALS_MOST 3
/* Address space for frames is reserved in slabs of this size. */
#define SLAB ((size_t)64 << 20)
/* A frame's pages have page-table entries at the weight's address and in the fetcher's mapping, and the kernel counts
 * them as resident for each. When this many bytes are counted twice, the pool drops the fetcher's entries. */
#define SEEN_MOST ((size_t)8 << 20)

enum slot { SLOT_EMPTY, SLOT_FREE, SLOT_TAKEN };

struct swn_pool {
    int fd;
    size_t unit, chunks;
    size_t use_bytes; /* of each frame, for the caller */
    char **slabs;     /* the fetcher's mappings, where slots have memory */
    size_t slab_count;
    unsigned char *slots; /* state of each slot of all slabs */
    size_t slot_count, free, taken, kept;
    struct swn_chunk *table; /* reserved addresses, which take memory where used */
    struct swn_frame *first, *last, *spare;
    struct swn_frame *ring_first, *ring_last; /* of those that the plan does not keep, in the same order */
    size_t seen, seen_from, seen_upto;        /* frames that are also mapped elsewhere; the range of their slots */
    uint64_t changes;                         /* frames taken and put */
    unsigned refusals;
    unsigned most_room; /* for parts, of any frame that was given back */
    int huge;
};

int swn_pool_create(struct swn_pool **out, size_t unit, size_t chunks, size_t use_bytes)
{
    struct swn_pool *p = calloc(1, sizeof *p);
    if (!p)
        return -ENOMEM;
    *p = (struct swn_pool){.unit = unit, .chunks = chunks, .use_bytes = use_bytes, .huge = unit == SWN_HUGE};
    p->fd = swn_fd_registry(memfd_create("swapnet-pool", MFD_CLOEXEC));
    int err = p->fd < 0 ? -errno : 0;
    p->table = calloc(chunks + 1, sizeof *p->table); /* takes memory where used; the last entry has a neighbour, too */
    if (!err && !p->table)
        err = -ENOMEM;
    if (err) {
        swn_pool_destroy(p);
        return err;
    }
    *out = p;
    return 0;
}

void swn_pool_destroy(struct swn_pool *p)
{
    for (size_t i = 0; i < p->slab_count; i++)
        swn_reserve_release(p->slabs[i], SLAB);
    free(p->slabs);
    free(p->table);
    if (p->fd >= 0)
        swn_fd_registry_close(p->fd);
    struct swn_frame *lists[] = {p->first, p->spare};
    for (size_t i = 0; i < 2; i++)
        for (struct swn_frame *f = lists[i], *n; f; f = n) {
            n = f->next;
            free(f->parts);
            free(f);
        }
    free(p->slots);
    free(p);
}

size_t swn_pool_unit(const struct swn_pool *p)
{
    return p->unit;
}

struct swn_chunk *swn_pool_chunk(struct swn_pool *p, uint64_t chunk)
{
    return &p->table[chunk];
}

static char *slot_at(const struct swn_pool *p, size_t slot)
{
    size_t each = SLAB / p->unit;
    return p->slabs[slot / each] + slot % each * p->unit;
}

/* By address where the program has closed the descriptor; locked pages (mlockall) can be punched by descriptor only. */
static void punch(const struct swn_pool *p, size_t slot)
{
    if (!swn_fd_is_ours(p->fd) ||
        fallocate(p->fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, (off_t)(slot * p->unit), (off_t)p->unit))
        madvise(slot_at(p, slot), p->unit, MADV_REMOVE);
}

int swn_pool_is_limited(const struct swn_pool *p)
{
    return swn_file_limit_below((p->slab_count + 1) * SLAB);
}

/* Reserves addresses for more slots. */
static int add_slab(struct swn_pool *p)
{
    size_t each = SLAB / p->unit, n = p->slab_count + 1;
    unsigned char *slots = realloc(p->slots, n * each);
    if (!slots)
        return -ENOMEM;
    p->slots = slots;
    char **slabs = realloc(p->slabs, n * sizeof *slabs);
    if (!slabs)
        return -ENOMEM;
    p->slabs = slabs;
    if (swn_pool_is_limited(p))
        return -ENOMEM;
    if (!swn_fd_is_ours(p->fd) || ftruncate(p->fd, (off_t)(n * SLAB)))
        return -EBADF;
    if (!(slabs[n - 1] = swn_reserve(SLAB)))
        return -ENOMEM;
    memset(slots + p->slot_count, SLOT_EMPTY, each);
    p->slab_count = n;
    p->slot_count += each;
    return 0;
}

/* Gives a slot memory. 0 or -errno. */
static int fill_slot(struct swn_pool *p, size_t slot)
{
    char *at = slot_at(p, slot);
    if (!swn_fd_is_ours(p->fd))
        return -EBADF;
    int err = swn_reserve_open_file(at, p->unit, PROT_READ | PROT_WRITE, p->fd, slot * p->unit);
    if (err)
        return err;
    if (p->huge && p->refusals < REFUSALS_MOST && swn_huge_collapse(at, p->unit) && ++p->refusals == REFUSALS_MOST)
        p->huge = 0;
    return 0;
}

/* Finds a slot, *out: a free one, or an empty one that gets memory. 0 or -errno. */
static int find_slot(struct swn_pool *p, size_t *out)
{
    unsigned char want = p->free ? SLOT_FREE : SLOT_EMPTY;
    size_t slot = 0;
    if (p->taken == p->chunks)
        return -ENOMEM;
    while (slot < p->slot_count && p->slots[slot] != want)
        slot++;
    if (slot == p->slot_count) {
        int err = add_slab(p);
        if (err)
            return err;
    }
    if (p->slots[slot] == SLOT_EMPTY) {
        int err = fill_slot(p, slot);
        if (err)
            return err;
    } else {
        p->free--;
    }
    p->slots[slot] = SLOT_TAKEN;
    p->taken++;
    *out = slot;
    return 0;
}

static void link_last(struct swn_pool *p, struct swn_frame *f)
{
    f->prev = p->last;
    f->next = NULL;
    *(p->last ? &p->last->next : &p->first) = f;
    p->last = f;
}

static void unlink_frame(struct swn_pool *p, struct swn_frame *f)
{
    *(f->prev ? &f->prev->next : &p->first) = f->next;
    *(f->next ? &f->next->prev : &p->last) = f->prev;
}

/* Behind `before`, or first. */
static void link_ring(struct swn_pool *p, struct swn_frame *f, struct swn_frame *before)
{
    f->ring_prev = before;
    f->ring_next = before ? before->ring_next : p->ring_first;
    *(before ? &before->ring_next : &p->ring_first) = f;
    *(f->ring_next ? &f->ring_next->ring_prev : &p->ring_last) = f;
}

static void unlink_ring(struct swn_pool *p, struct swn_frame *f)
{
    *(f->ring_prev ? &f->ring_prev->ring_next : &p->ring_first) = f->ring_next;
    *(f->ring_next ? &f->ring_next->ring_prev : &p->ring_last) = f->ring_prev;
}

struct swn_frame *swn_pool_take(struct swn_pool *p, uint64_t chunk, uintptr_t addr)
{
    size_t slot;
    struct swn_frame *f = p->spare ? p->spare : calloc(1, sizeof *f + p->use_bytes);
    if (!f)
        return NULL;
    int reused = f == p->spare;
    if (find_slot(p, &slot)) {
        if (!reused)
            free(f);
        return NULL;
    }
    if (reused)
        p->spare = f->next;
    *f = (struct swn_frame){.chunk = chunk, .addr = addr, .slot = slot, .parts = f->parts, .room = f->room};
    memset(f->use, 0, p->use_bytes);
    link_last(p, f);
    link_ring(p, f, p->ring_last);
    p->table[chunk].frame = f;
    p->changes++;
    return f;
}

uint64_t swn_pool_changes(const struct swn_pool *p)
{
    return p->changes;
}

int swn_pool_is_full(const struct swn_pool *p)
{
    return !p->free;
}

/* 0 or -ENOMEM. */
static int make_room(struct swn_frame *f, unsigned room)
{
    struct swn_part *parts = room > f->room ? realloc(f->parts, room * sizeof *parts) : f->parts;
    if (!parts)
        return room > f->room ? -ENOMEM : 0;
    f->parts = parts;
    f->room = room > f->room ? room : f->room;
    return 0;
}

struct swn_part *swn_pool_part(struct swn_frame *f)
{
    if (f->n == f->room && make_room(f, f->room ? 2 * f->room : 2))
        return NULL;
    f->parts[f->n] = (struct swn_part){.frame = f};
    return &f->parts[f->n++];
}

struct swn_part *swn_pool_part_of(const struct swn_frame *f, const struct swn_range *r)
{
    for (unsigned i = 0; f && i < f->n; i++)
        if (f->parts[i].range == r)
            return &f->parts[i];
    return NULL;
}

/* Gives the frames that wait to be taken as much room as any has needed: which of them gets the chunk with the most
 * parts depends on the order in which reads end, and a pass that is like the one before takes no memory. Without memory
 * the room is made when it is needed. */
static void share_room(struct swn_pool *p, struct swn_frame *f)
{
    if (f->room > p->most_room) {
        p->most_room = f->room;
        for (struct swn_frame *g = p->spare; g; g = g->next)
            make_room(g, p->most_room);
    }
    make_room(f, p->most_room);
}

void swn_pool_put(struct swn_pool *p, struct swn_frame *f)
{
    unlink_frame(p, f);
    if (!f->pinned_by_plan)
        unlink_ring(p, f);
    p->table[f->chunk].frame = NULL;
    p->changes++;
    p->slots[f->slot] = SLOT_FREE;
    p->free++;
    p->taken--;
    p->kept -= f->pinned_by_plan != 0;
    share_room(p, f);
    f->next = p->spare;
    p->spare = f;
}

size_t swn_pool_trim(struct swn_pool *p, size_t n)
{
    size_t done = 0;
    for (size_t slot = p->slot_count; p->free && done < n && slot-- > 0;) {
        if (p->slots[slot] != SLOT_FREE)
            continue;
        punch(p, slot);
        swn_reserve_close(slot_at(p, slot), p->unit);
        p->slots[slot] = SLOT_EMPTY;
        p->free--;
        done++;
    }
    return done;
}

size_t swn_pool_bytes(const struct swn_pool *p)
{
    return (p->taken + p->free) * p->unit;
}

size_t swn_pool_free_bytes(const struct swn_pool *p)
{
    return p->free * p->unit;
}

size_t swn_pool_pinned(const struct swn_pool *p)
{
    return p->kept;
}

size_t swn_pool_ring(const struct swn_pool *p)
{
    return p->taken - p->kept;
}

void swn_pool_set_pinned(struct swn_pool *p, struct swn_frame *f, int kept)
{
    if ((kept != 0) == (f->pinned_by_plan != 0))
        return;
    f->pinned_by_plan = kept != 0;
    if (kept) {
        p->kept++;
        unlink_ring(p, f);
        return;
    }
    p->kept--;
    struct swn_frame *before = f->prev;
    while (before && before->pinned_by_plan)
        before = before->prev;
    link_ring(p, f, before);
}

void swn_pool_touch(struct swn_pool *p, struct swn_frame *f)
{
    if (f == p->last)
        return;
    unlink_frame(p, f);
    link_last(p, f);
    if (f->pinned_by_plan)
        return;
    unlink_ring(p, f);
    link_ring(p, f, p->ring_last);
}

struct swn_frame *swn_pool_first(struct swn_pool *p)
{
    return p->first;
}

struct swn_frame *swn_pool_ring_first(struct swn_pool *p)
{
    return p->ring_first;
}

void *swn_pool_at(const struct swn_pool *p, const struct swn_frame *f)
{
    return slot_at(p, f->slot);
}

void swn_pool_unsee(struct swn_pool *p, const struct swn_frame *f)
{
    p->seen_from = !p->seen || f->slot < p->seen_from ? f->slot : p->seen_from;
    p->seen_upto = !p->seen || f->slot >= p->seen_upto ? f->slot + 1 : p->seen_upto;
    if (++p->seen * p->unit < SEEN_MOST)
        return;
    size_t each = SLAB / p->unit;
    for (size_t from = p->seen_from, next; from < p->seen_upto; from = next) {
        next = from - from % each + each;
        next = next < p->seen_upto ? next : p->seen_upto;
        madvise(slot_at(p, from), (next - from) * p->unit, MADV_DONTNEED);
    }
    p->seen = 0;
}

int swn_pool_follows(const struct swn_frame *a, const struct swn_frame *b)
{
    return b == a || b->slot == a->slot + 1;
}

int swn_pool_map(const struct swn_pool *p, const struct swn_frame *f, size_t off, size_t bytes, void *at)
{
    if (!swn_fd_is_ours(p->fd))
        return -EBADF;
    return mmap(at, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_FIXED | MAP_NORESERVE, p->fd,
                (off_t)(f->slot * p->unit + off)) == MAP_FAILED
               ? -errno
               : 0;
}

void swn_pool_keep_small(struct swn_pool *p)
{
    p->huge = 0;
}

int swn_pool_is_huge(const struct swn_pool *p)
{
    return p->huge;
}
