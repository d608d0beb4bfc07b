#define _GNU_SOURCE
#include "swn_pool.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/falloc.h>
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
    char *rw, *ro;
    size_t window, window_max, total;
    size_t limit; /* new frames end here: below window while it waits to shrink */
    size_t head;  /* where the next frame is tried first */
    struct swn_frame *frames, *spare;
    unsigned char *asked; /* for each SWN_HUGE of the window: it is a huge page, or was refused */
    unsigned refusals;
};

int swn_pool_create(struct swn_pool **out, size_t window_max, size_t arena_bytes)
{
    struct swn_pool *p = calloc(1, sizeof *p);
    if (!p)
        return -ENOMEM;
    p->window_max = swn_round_up(window_max, SWN_HUGE);
    p->total = p->window_max + arena_bytes;
    p->fd = swn_own(memfd_create("swapnet-pool", MFD_CLOEXEC));
    int err = p->fd < 0 ? -errno : 0;
    if (!err && ftruncate(p->fd, (off_t)p->total))
        err = -errno;
    p->rw = p->ro = MAP_FAILED;
    if (!err && !(p->asked = calloc(p->window_max / SWN_HUGE, 1)))
        err = -ENOMEM;
    if (!err) {
        p->rw = swn_huge_map(p->fd, p->total, PROT_READ | PROT_WRITE);
        p->ro = swn_huge_map(p->fd, p->window_max, PROT_READ);
        if (p->rw == MAP_FAILED || p->ro == MAP_FAILED)
            err = -errno;
    }
    if (err) {
        swn_pool_destroy(p);
        return err;
    }
    madvise(p->rw, p->total, MADV_DONTFORK);
    madvise(p->ro, p->window_max, MADV_DONTFORK);
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
    if (p->rw != MAP_FAILED && p->rw)
        munmap(p->rw, p->total);
    if (p->ro != MAP_FAILED && p->ro)
        munmap(p->ro, p->window_max);
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
static void punch(const struct swn_pool *p, size_t off, size_t size)
{
    if (madvise(p->rw + off, size, MADV_REMOVE) && swn_owns(p->fd))
        fallocate(p->fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, (off_t)off, (off_t)size);
}

int swn_pool_resize(struct swn_pool *p, size_t window)
{
    if (window > p->window_max)
        return -EINVAL;
    p->limit = window;
    if (p->head > window)
        p->head = 0;
    for (struct swn_frame *f = p->frames; f; f = f->next)
        if (f->off < LODGED && f->off + f->size > window)
            return -EBUSY;
    if (window < p->window) {
        punch(p, window, p->window - window);
        memset(p->asked + window / SWN_HUGE, 0, p->window_max / SWN_HUGE - window / SWN_HUGE);
    }
    p->window = window;
    return 0;
}

/* Makes huge pages of the window where the new frame lies, and of some more that is next. */
static void make_huge(struct swn_pool *p, uint64_t at, size_t size)
{
    size_t last = p->window / SWN_HUGE, from = (size_t)at / SWN_HUGE,
           to = ((size_t)at + size + SWN_HUGE - 1) / SWN_HUGE;
    while (p->refusals < REFUSALS_MOST && from < to && from < last) {
        size_t n = 0;
        while (from + n < last && n < HUGE_AT_ONCE / SWN_HUGE && !p->asked[from + n])
            n++;
        if (n && swn_huge_collapse(p->rw + from * SWN_HUGE, n * SWN_HUGE))
            p->refusals++;
        memset(p->asked + from, 1, n);
        from += n ? n : 1;
    }
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

/* The first frame that overlaps [at, at+size) and may not be evicted, or NULL. */
static struct swn_frame *blocker(struct swn_pool *p, uint64_t at, size_t size, enum swn_pool_force force)
{
    for (struct swn_frame *f = p->frames; f && f->off < at + size; f = f->next)
        if (f->off + f->size > at && in_the_way(f, force))
            return f;
    return NULL;
}

/* Next fit: behind the last frame placed, then behind each frame that stands in the way, once around. In the steady
 * state frames are let go in the order they came, and this is a ring; out of order it never waits for a particular
 * frame. */
static int find_place(struct swn_pool *p, size_t size, enum swn_pool_force force, uint64_t *at)
{
    uint64_t from = p->head;
    for (int lap = 0; lap < 2; lap++) {
        while (from + size <= p->limit) {
            struct swn_frame *b = blocker(p, from, size, force);
            if (!b) {
                /* What is left of the window behind it would be too little for another such frame, and so would be what
                 * is free before it. At the very end of the window it leaves both in one piece. */
                uint64_t end = p->limit - size;
                *at = end > from && end - from < size && !blocker(p, end, size, force) ? end : from;
                return 1;
            }
            from = b->off + b->size;
        }
        from = 0;
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
    for (struct swn_frame *v = p->frames, *n; v && v->off < at + size; v = n) {
        n = v->next;
        if (v->off + v->size > at)
            evict(ctx, v);
    }
    f->off = at;
    f->size = size;
    insert(p, f);
    p->head = at + size;
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

void swn_pool_release(struct swn_pool *p, struct swn_frame *f)
{
    if (f->kept) {
        punch(p, f->off, f->size);
    } else {
        struct swn_frame **link = &p->frames;
        while (*link != f)
            link = &(*link)->next;
        *link = f->next;
    }
    f->next = p->spare;
    p->spare = f;
}

struct swn_frame *swn_pool_first(struct swn_pool *p)
{
    return p->frames;
}

void *swn_pool_rw(const struct swn_pool *p, const struct swn_frame *f)
{
    return f->lodged ? f->lodged : p->rw + f->off;
}

void *swn_pool_ro(const struct swn_pool *p, const struct swn_frame *f)
{
    return f->lodged ? f->lodged : p->ro + f->off;
}

int swn_pool_fd(const struct swn_pool *p)
{
    return p->fd;
}

int swn_pool_in_ro(const struct swn_pool *p, uintptr_t addr)
{
    return addr >= (uintptr_t)p->ro && addr < (uintptr_t)p->ro + p->window_max;
}

struct swn_frame *swn_pool_find_ro(const struct swn_pool *p, uintptr_t addr)
{
    uint64_t off = addr - (uintptr_t)p->ro;
    for (struct swn_frame *f = p->frames; f; f = f->next)
        if (off >= f->off && off - f->off < f->size)
            return f;
    return NULL;
}
