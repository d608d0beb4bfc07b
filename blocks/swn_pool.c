#define _GNU_SOURCE
#include "swn_pool.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/falloc.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "swn_arena.h"
#include "swn_huge.h"
#include "swn_own.h"

/* The offset of what lies elsewhere: behind everything. */
#define LODGED UINT64_MAX
/* Huge pages are made of so much at a time, as each time the kernel has all its processors empty their lists of pages.
 */
#define HUGE_AT_ONCE ((size_t)16 << 20)
/* After so many refusals the memory is too fragmented, or the kernel too old. */
#define REFUSALS_MOST 3

struct swn_pool {
    int fd;
    char *rw, *ro; /* of the window, and of its beginning once more behind its end */
    char *kept;    /* of what lies behind the window in the memfd */
    size_t window, window_max, arena_bytes;
    size_t limit; /* new frames end here: below window while it waits to shrink */
    int waits;    /* to be of another size */
    int ring;     /* it is to be closed */
    int closed;   /* a frame may begin before the window's end and go on at its beginning */
    size_t head;  /* where the next frame is tried first */
    struct swn_frame *frames, *spare;
    unsigned char *asked; /* for each SWN_HUGE of the window: it is a huge page, or was refused */
    unsigned refusals;
    _Atomic unsigned kept_refusals;
};

static int make_maps(struct swn_pool *p)
{
    p->fd = swn_own(memfd_create("swapnet-pool", MFD_CLOEXEC));
    if (p->fd < 0 || ftruncate(p->fd, (off_t)(p->window_max + p->arena_bytes)))
        return -errno;
    p->rw = swn_huge_map(p->fd, 0, 2 * p->window_max, PROT_READ | PROT_WRITE);
    p->ro = swn_huge_map(p->fd, 0, 2 * p->window_max, PROT_READ);
    p->kept = swn_huge_map(p->fd, p->window_max, p->arena_bytes, PROT_READ | PROT_WRITE);
    if (p->rw == MAP_FAILED || p->ro == MAP_FAILED || p->kept == MAP_FAILED)
        return -errno;
    madvise(p->rw, 2 * p->window_max, MADV_DONTFORK);
    madvise(p->ro, 2 * p->window_max, MADV_DONTFORK);
    madvise(p->kept, p->arena_bytes, MADV_DONTFORK);
    return 0;
}

int swn_pool_create(struct swn_pool **out, size_t window_max, size_t arena_bytes)
{
    struct swn_pool *p = calloc(1, sizeof *p);
    if (!p)
        return -ENOMEM;
    p->window_max = swn_round_up(window_max, SWN_HUGE);
    p->arena_bytes = arena_bytes;
    p->fd = -1;
    p->rw = p->ro = p->kept = MAP_FAILED;
    p->asked = calloc(p->window_max / SWN_HUGE, 1);
    int err = p->asked ? make_maps(p) : -ENOMEM;
    if (err) {
        swn_pool_destroy(p);
        return err;
    }
    *out = p;
    return 0;
}

static void frames_free(struct swn_frame *f)
{
    for (struct swn_frame *n; f; f = n) {
        n = f->next;
        free(f);
    }
}

void swn_pool_destroy(struct swn_pool *p)
{
    if (p->rw != MAP_FAILED)
        munmap(p->rw, 2 * p->window_max);
    if (p->ro != MAP_FAILED)
        munmap(p->ro, 2 * p->window_max);
    if (p->kept != MAP_FAILED)
        munmap(p->kept, p->arena_bytes);
    if (p->fd >= 0)
        swn_own_close(p->fd);
    frames_free(p->frames);
    frames_free(p->spare);
    free(p->asked);
    free(p);
}

size_t swn_pool_window(const struct swn_pool *p)
{
    return p->window;
}

size_t swn_pool_window_most(const struct swn_pool *p)
{
    return p->window_max;
}

/* By address, which the program cannot close; locked pages (mlockall) go by descriptor only. */
static void punch(const struct swn_pool *p, char *at, uint64_t off, size_t size)
{
    if (madvise(at, size, MADV_REMOVE) && swn_owns(p->fd))
        fallocate(p->fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, (off_t)off, (off_t)size);
}

/* Maps so much of the memfd, from `off` on, `at` so many bytes of both views, in place of what was there. -EBADF where
 * the program has closed it. */
static int map_views(struct swn_pool *p, size_t at, uint64_t off, size_t size)
{
    if (!swn_owns(p->fd))
        return -EBADF;
    char *views[] = {p->rw + at, p->ro + at};
    int prots[] = {PROT_READ | PROT_WRITE, PROT_READ};
    for (int i = 0; i < 2; i++) {
        if (mmap(views[i], size, prots[i], MAP_SHARED | MAP_NORESERVE | MAP_FIXED, p->fd, (off_t)off) == MAP_FAILED)
            return -errno;
        madvise(views[i], size, MADV_DONTFORK);
    }
    return 0;
}

static void close_ring(struct swn_pool *p)
{
    if (!p->closed)
        p->closed = p->ring && p->window && !map_views(p, p->window, 0, p->window);
}

void swn_pool_ring(struct swn_pool *p)
{
    p->ring = 1;
    if (!p->waits)
        close_ring(p);
}

int swn_pool_in_the_way(const struct swn_pool *p, const struct swn_frame *f, size_t window)
{
    return f->off < LODGED && window != p->window && f->off + f->size > (window < p->window ? window : p->window);
}

/* The end of the window goes, where nothing stands. */
static void cut_end(struct swn_pool *p, size_t window)
{
    p->closed = 0;
    punch(p, p->rw + window, window, p->window - window);
    memset(p->asked + window / SWN_HUGE, 0, p->window_max / SWN_HUGE - window / SWN_HUGE);
    p->window = window;
}

int swn_pool_resize(struct swn_pool *p, size_t window)
{
    size_t before = p->window, held = 0;
    if (window > p->window_max)
        return -EINVAL;
    p->limit = window < before ? window : before;
    p->waits = window != before;
    if (p->head >= p->limit)
        p->head = 0;
    for (struct swn_frame *f = p->frames; f; f = f->next)
        if (swn_pool_in_the_way(p, f, window) && f->off + f->size > held)
            held = f->off + f->size;
    if (held) {
        if (held < before && window < before)
            cut_end(p, held);
        return -EBUSY;
    }
    if (window == before) {
        close_ring(p);
        return 0;
    }
    if (window < before) {
        cut_end(p, window);
    } else {
        p->closed = 0;
        /* What comes to the window was its beginning's second view, or one of an earlier window's. */
        int err = map_views(p, before, before, window - before);
        if (err)
            return err;
    }
    p->window = p->limit = window;
    p->waits = 0;
    close_ring(p);
    return 0;
}

/* Makes huge pages of the window where the new frame lies, and of some more that is next. */
static void make_huge(struct swn_pool *p, size_t at, size_t size)
{
    size_t last = p->window / SWN_HUGE, from = at / SWN_HUGE, to = (at + size + SWN_HUGE - 1) / SWN_HUGE;
    while (p->refusals < REFUSALS_MOST && from < to && from < last) {
        size_t n = 0;
        while (from + n < last && n < HUGE_AT_ONCE / SWN_HUGE && !p->asked[from + n])
            n++;
        if (n && swn_huge_collapse(p->rw + from * SWN_HUGE, n * SWN_HUGE))
            p->refusals++;
        memset(p->asked + from, 1, n);
        from += n ? n : 1;
    }
    if (at + size > p->window)
        make_huge(p, 0, at + size - p->window);
}

static struct swn_frame *frame_new(struct swn_pool *p)
{
    struct swn_frame *f = p->spare;
    if (f)
        p->spare = f->next;
    else if (!(f = malloc(sizeof *f)))
        return NULL;
    memset(f, 0, sizeof *f);
    return f;
}

static int in_the_way(const struct swn_frame *f, enum swn_pool_force force)
{
    if (f->users || f->state == SWN_FRAME_FILLING)
        return 1;
    return force == SWN_POOL_STALE && f->state == SWN_FRAME_READY && f->wanted;
}

/* Whether the frame has a byte in [at, at+size), either of which may go on at the window's beginning. */
static int overlaps(const struct swn_pool *p, const struct swn_frame *f, uint64_t at, size_t size)
{
    uint64_t end = at + size, f_end = f->off + f->size;
    if (f->off >= LODGED)
        return 0;
    return (f->off < end && f_end > at) || (end > p->window && f->off < end - p->window) ||
           (f_end > p->window && at < f_end - p->window);
}

/* How far it is from `at` to where the frame ends, once around at most. */
static uint64_t way_past(const struct swn_pool *p, const struct swn_frame *f, uint64_t at)
{
    uint64_t end = f->off + f->size;
    return end > at ? (end - at > p->window ? end - at - p->window : end - at) : end + p->window - at;
}

/* Of the frames that are in [at, at+size) and may not be evicted, the one that ends first; or NULL. */
static const struct swn_frame *blocker(const struct swn_pool *p, uint64_t at, size_t size, enum swn_pool_force force)
{
    const struct swn_frame *first = NULL;
    for (const struct swn_frame *f = p->frames; f; f = f->next)
        if (in_the_way(f, force) && overlaps(p, f, at, size) && (!first || way_past(p, f, at) < way_past(p, first, at)))
            first = f;
    return first;
}

/* Next fit: behind the last frame placed, then behind each frame that stands in the way, once around. In the steady
 * state frames are let go in the order they came, and this is a ring; out of order it never waits for a particular
 * frame. */
static int find_place(const struct swn_pool *p, size_t size, enum swn_pool_force force, uint64_t *at)
{
    uint64_t from = p->head, gone = 0;
    size_t room = p->limit;
    int closed = p->closed && !p->waits;
    while (gone <= 2 * p->window) {
        const struct swn_frame *b = NULL;
        uint64_t on = room - from; /* to the window's end, where nothing goes on */
        if (closed || from + size <= room) {
            b = blocker(p, from, size, force);
            if (!b) {
                /* What is left of the window behind it would be too little for another such frame, and so would be what
                 * is free before it. At the very end of a window that is no ring it leaves both in one piece. */
                uint64_t end = room - size;
                int last = !closed && end > from && end - from < size && !blocker(p, end, size, force);
                *at = last ? end : from;
                return 1;
            }
            on = way_past(p, b, from);
        }
        gone += on ? on : 1;
        from = from + on >= room ? closed ? from + on - room : 0 : from + on;
    }
    return 0;
}

static void insert(struct swn_pool *p, struct swn_frame *f)
{
    struct swn_frame **link = &p->frames;
    while (*link && (*link)->off < f->off)
        link = &(*link)->next;
    f->next = *link;
    *link = f;
}

struct swn_frame *swn_pool_place(struct swn_pool *p, size_t size, enum swn_pool_force force,
                                 void (*evict)(void *ctx, struct swn_frame *f), void *ctx)
{
    uint64_t at;
    if (size > p->limit || !find_place(p, size, force, &at))
        return NULL;
    struct swn_frame *f = frame_new(p);
    if (!f)
        return NULL;
    for (struct swn_frame *v = p->frames, *n; v; v = n) {
        n = v->next;
        if (overlaps(p, v, at, size))
            evict(ctx, v);
    }
    f->off = at;
    f->size = size;
    insert(p, f);
    p->head = at + size < p->window ? at + size : at + size - p->window;
    make_huge(p, at, size);
    return f;
}

struct swn_frame *swn_pool_lodge(struct swn_pool *p, void *at, size_t size)
{
    struct swn_frame *f = frame_new(p);
    if (!f)
        return NULL;
    f->off = LODGED;
    f->size = size;
    f->lodged = at;
    insert(p, f);
    return f;
}

struct swn_frame *swn_pool_keep(struct swn_pool *p, uint64_t arena_off, size_t size)
{
    struct swn_frame *f = frame_new(p);
    if (!f)
        return NULL;
    f->off = p->window_max + arena_off;
    f->size = size;
    f->kept = 1;
    return f;
}

void swn_pool_keep_small(struct swn_pool *p)
{
    p->kept_refusals = REFUSALS_MOST;
}

void swn_pool_make_huge(struct swn_pool *p, const struct swn_frame *f, size_t from, size_t upto)
{
    uintptr_t at = (uintptr_t)swn_pool_rw(p, f);
    uintptr_t first = swn_round_up(at + from, SWN_HUGE), end = swn_round_up(at + upto, SWN_HUGE);
    if (end > at + f->size)
        end = (at + f->size) / SWN_HUGE * SWN_HUGE;
    if (first < end && atomic_load(&p->kept_refusals) < REFUSALS_MOST && swn_huge_collapse((void *)first, end - first))
        atomic_fetch_add(&p->kept_refusals, 1);
}

struct swn_frame *swn_pool_cut(struct swn_pool *p, struct swn_frame *f, size_t at)
{
    struct swn_frame *rest = frame_new(p);
    if (!rest)
        return NULL;
    rest->off = f->off + at;
    rest->size = f->size - at;
    rest->kept = 1;
    rest->state = f->state;
    rest->copy = f->copy;
    f->size = at;
    return rest;
}

static void put_by(struct swn_pool *p, struct swn_frame *f)
{
    f->next = p->spare;
    p->spare = f;
}

void swn_pool_join(struct swn_pool *p, struct swn_frame *f, struct swn_frame *rest)
{
    f->size += rest->size;
    put_by(p, rest);
}

void swn_pool_release(struct swn_pool *p, struct swn_frame *f)
{
    if (f->kept) {
        punch(p, swn_pool_rw(p, f), f->off, f->size);
    } else {
        struct swn_frame **link = &p->frames;
        while (*link != f)
            link = &(*link)->next;
        *link = f->next;
    }
    put_by(p, f);
}

struct swn_frame *swn_pool_first(struct swn_pool *p)
{
    return p->frames;
}

void *swn_pool_rw(const struct swn_pool *p, const struct swn_frame *f)
{
    return f->lodged ? f->lodged : f->kept ? p->kept + (f->off - p->window_max) : p->rw + f->off;
}

void *swn_pool_ro(const struct swn_pool *p, const struct swn_frame *f)
{
    return f->lodged ? f->lodged : p->ro + f->off;
}

int swn_pool_lend(const struct swn_pool *p, const struct swn_frame *f, void *at, size_t bytes)
{
    size_t to_end = f->kept ? f->size : p->window - (size_t)f->off, first = bytes < to_end ? bytes : to_end;
    if (!swn_owns(p->fd))
        return -EBADF;
    if (mmap(at, first, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_FIXED | MAP_NORESERVE, p->fd, (off_t)f->off) ==
        MAP_FAILED)
        return -errno;
    if (bytes > first)
        (void)!mmap((char *)at + first, bytes - first, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_FIXED | MAP_NORESERVE,
                    p->fd, 0);
    return 0;
}

int swn_pool_fd(const struct swn_pool *p)
{
    return p->fd;
}

int swn_pool_in_ro(const struct swn_pool *p, uintptr_t addr)
{
    return addr >= (uintptr_t)p->ro && addr < (uintptr_t)p->ro + 2 * p->window_max;
}

struct swn_frame *swn_pool_find_ro(const struct swn_pool *p, uintptr_t addr)
{
    uint64_t off = addr - (uintptr_t)p->ro;
    for (struct swn_frame *f = p->frames; f; f = f->next)
        if (off >= f->off && off - f->off < f->size)
            return f;
    return NULL;
}
