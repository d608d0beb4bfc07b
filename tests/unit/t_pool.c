/* Description: the read window as a ring, what may be evicted from it, and frames kept behind it. */
#define _GNU_SOURCE
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "swn_arena.h"
#include "swn_huge.h"
#include "swn_kernel_does.h"
#include "swn_pool.h"
#include "swn_random.h"
#include "swn_smaps.h"

#ifndef MADV_COLLAPSE /* of Linux 6.1 */
#define MADV_COLLAPSE 25
#endif
#define KIB ((size_t)1024)
#define MIB (KIB * KIB)
#define WINDOW_MAX (16 * MIB)
#define ARENA (64 * MIB)

static struct swn_pool *pool;

static int setup_unplanned(void **state)
{
    (void)state;
    return swn_pool_create(&pool, WINDOW_MAX, ARENA);
}

static int setup(void **state)
{
    int err = setup_unplanned(state);
    if (!err)
        swn_pool_ring(pool);
    return err;
}

static int teardown(void **state)
{
    (void)state;
    swn_pool_destroy(pool);
    return 0;
}

static size_t evicted;
static struct swn_frame *last_evicted;

static void evict(void *ctx, struct swn_frame *f)
{
    assert_ptr_equal(ctx, &evicted);
    assert_int_equal(f->users, 0);
    assert_int_not_equal(f->state, SWN_FRAME_FILLING);
    evicted++;
    last_evicted = f;
    swn_pool_release(pool, f);
}

static struct swn_frame *place(size_t size, enum swn_pool_force force)
{
    return swn_pool_place(pool, size, force, evict, &evicted);
}

static long long blocks(void)
{
    struct stat st;
    assert_int_equal(fstat(swn_pool_fd(pool), &st), 0);
    return (long long)st.st_blocks * 512;
}

/* Frames begin in the window, by offset, and never overlap, the last one with the first one neither. */
static void check_frames(size_t expect)
{
    uint64_t end = 0;
    size_t n = 0;
    const struct swn_frame *first = swn_pool_first(pool);
    for (const struct swn_frame *f = first; f; f = f->next, n++) {
        assert_true(f->off >= end && f->off < swn_pool_window(pool));
        assert_false(f->kept);
        end = f->off + f->size;
    }
    assert_true(end <= swn_pool_window(pool) + (first ? first->off : 0));
    assert_int_equal(n, expect);
}

static size_t count_frames(void)
{
    size_t n = 0;
    for (const struct swn_frame *f = swn_pool_first(pool); f; f = f->next)
        n++;
    return n;
}

/* `held` frames in use at any time, let go in the order they came: there is room for the next one whenever its bytes
 * are free. */
static void fifo_round(size_t held, size_t window, size_t largest, int uniform)
{
    struct swn_frame *queue[16];
    size_t head = 0, tail = 0, in_use = 0;
    assert_int_equal(swn_pool_resize(pool, window), 0);
    for (int i = 0; i < 5000; i++) {
        size_t size = uniform ? largest : (1 + rnd() % (largest / 4096)) * 4096;
        while (tail - head == held || in_use + size > window) {
            struct swn_frame *old = queue[head++ % 16];
            old->state = SWN_FRAME_USED;
            old->users--;
            in_use -= old->size;
        }
        in_use += size;
        struct swn_frame *f = place(size, SWN_POOL_STALE);
        assert_non_null(f);
        assert_int_equal(f->size, size);
        assert_int_equal(f->state, SWN_FRAME_FILLING);
        f->state = SWN_FRAME_READY;
        f->wanted = 1;
        f->users = 1;
        queue[tail++ % 16] = f;
        check_frames(count_frames());
    }
    while (swn_pool_first(pool))
        swn_pool_release(pool, swn_pool_first(pool));
}

static void fifo_never_refuses(void **state)
{
    (void)state;
    for (size_t held = 1; held <= 6; held++) {
        fifo_round(held, (held + 1) * MIB, MIB, 0);
        fifo_round(held, (held + 1) * MIB, MIB, 1);
        fifo_round(held, held * MIB + 256 * KIB, MIB, 0);
        fifo_round(held, held * MIB, MIB, 1);
    }
}

static void ring_order(void **state)
{
    (void)state;
    assert_int_equal(swn_pool_window(pool), 0);
    assert_null(place(4096, SWN_POOL_READY)); /* no window yet */
    assert_int_equal(swn_pool_resize(pool, 4 * MIB), 0);
    assert_null(place(4 * MIB + 4096, SWN_POOL_READY));
    struct swn_frame *f[4];
    for (size_t i = 0; i < 4; i++) {
        f[i] = place(MIB, SWN_POOL_STALE);
        assert_int_equal(f[i]->off, i * MIB);
    }
    assert_null(place(MIB, SWN_POOL_READY)); /* all are being read */
    evicted = 0;
    f[0]->state = f[1]->state = SWN_FRAME_USED;
    struct swn_frame *g = place(MIB / 2, SWN_POOL_STALE);
    assert_non_null(g);
    assert_int_equal(g->off, 0);
    assert_int_equal(evicted, 1);
    g = place(MIB, SWN_POOL_STALE);
    assert_non_null(g);
    assert_int_equal(g->off, MIB / 2); /* behind the last one, and over what stands there */
    assert_int_equal(evicted, 2);
    check_frames(4);
    f[3]->state = SWN_FRAME_USED;
    g = place(MIB, SWN_POOL_STALE);
    assert_int_equal(g->off, 3 * MIB); /* passes what is in the way */
}

/* What is free stays in one piece: two frames of a size fit a window of that much, whatever was there before. */
static void no_room_wasted(void **state)
{
    (void)state;
    assert_int_equal(swn_pool_resize(pool, 4 * MIB), 0);
    struct swn_frame *small = place(MIB, SWN_POOL_STALE), *first = place(2 * MIB, SWN_POOL_STALE);
    assert_non_null(first);
    assert_null(place(2 * MIB, SWN_POOL_READY));
    small->state = SWN_FRAME_USED;
    struct swn_frame *second = place(2 * MIB, SWN_POOL_STALE);
    assert_non_null(second);
    first->state = SWN_FRAME_USED;
    struct swn_frame *third = place(2 * MIB, SWN_POOL_STALE);
    assert_non_null(third);
    second->state = SWN_FRAME_USED;
    small = place(MIB / 2, SWN_POOL_STALE); /* where less is left than it takes there is still room for less */
    assert_non_null(small);
    check_frames(2);
}

static void eviction_rules(void **state)
{
    (void)state;
    static const struct {
        enum swn_frame_state state;
        int users, wanted, stale, ready; /* whether it may go under each force */
    } rows[] = {
        {SWN_FRAME_FILLING, 0, 0, 0, 0}, {SWN_FRAME_FILLING, 0, 1, 0, 0}, {SWN_FRAME_FILLING, 1, 0, 0, 0},
        {SWN_FRAME_READY, 0, 0, 1, 1},   {SWN_FRAME_READY, 0, 1, 0, 1},   {SWN_FRAME_READY, 1, 0, 0, 0},
        {SWN_FRAME_READY, 2, 1, 0, 0},   {SWN_FRAME_USED, 0, 0, 1, 1},    {SWN_FRAME_USED, 0, 1, 1, 1},
        {SWN_FRAME_USED, 1, 0, 0, 0},    {SWN_FRAME_USED, 3, 1, 0, 0},
    };
    assert_int_equal(swn_pool_resize(pool, 2 * MIB), 0);
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        for (int force = 0; force < 2; force++) {
            struct swn_frame *f = place(2 * MIB, SWN_POOL_STALE);
            assert_non_null(f);
            f->state = rows[i].state;
            f->users = rows[i].users;
            f->wanted = rows[i].wanted;
            evicted = 0;
            struct swn_frame *g = place(4096, force ? SWN_POOL_READY : SWN_POOL_STALE);
            int goes = force ? rows[i].ready : rows[i].stale;
            assert_int_equal(g != NULL, goes);
            assert_int_equal(evicted, goes);
            if (goes)
                assert_ptr_equal(last_evicted, f);
            swn_pool_release(pool, goes ? g : f);
        }
    }
    check_frames(0);
}

static int stays(const struct swn_frame *f, enum swn_pool_force force)
{
    return f->users || f->state == SWN_FRAME_FILLING ||
           (force == SWN_POOL_STALE && f->state == SWN_FRAME_READY && f->wanted);
}

/* Between two that stay, or around the window's end from the last of them to the first. */
static size_t largest_gap(enum swn_pool_force force)
{
    uint64_t end = 0, gap = 0, first = 0;
    size_t n = 0;
    for (const struct swn_frame *f = swn_pool_first(pool); f; f = f->next) {
        if (!stays(f, force))
            continue;
        if (!n++)
            first = f->off;
        else
            gap = f->off - end > gap ? f->off - end : gap;
        end = f->off + f->size;
    }
    uint64_t around = swn_pool_window(pool) + first - end;
    return around > gap ? around : gap;
}

/* Frames come, are used and let go in any order. A place is refused exactly when no gap between what must stay is large
 * enough, so nothing ever waits for a particular frame. */
static void out_of_order(void **state)
{
    (void)state;
    size_t refused = 0, placed = 0;
    assert_int_equal(swn_pool_resize(pool, 8 * MIB), 0);
    for (int step = 0; step < 40000; step++) {
        if (rnd() % 3 == 0) {
            size_t size = (1 + rnd() % 512) * 4096;
            enum swn_pool_force force = rnd() % 2 ? SWN_POOL_READY : SWN_POOL_STALE;
            size_t gap = largest_gap(force), stay = 0, stay_after = 0;
            for (struct swn_frame *f = swn_pool_first(pool); f; f = f->next)
                stay += (size_t)stays(f, force);
            struct swn_frame *f = place(size, force);
            assert_int_equal(f != NULL, gap >= size);
            for (struct swn_frame *g = swn_pool_first(pool); g; g = g->next)
                stay_after += (size_t)(g != f && stays(g, force));
            assert_int_equal(stay_after, stay);
            *(f ? &placed : &refused) += 1;
            if (f)
                f->wanted = rnd() % 2 != 0;
        } else {
            size_t n = count_frames();
            if (!n)
                continue;
            struct swn_frame *f = swn_pool_first(pool);
            for (size_t k = rnd() % n; k; k--)
                f = f->next;
            if (f->state == SWN_FRAME_FILLING) {
                f->state = SWN_FRAME_READY;
            } else if (f->users) {
                f->users--;
            } else if (rnd() % 8 == 0) {
                swn_pool_release(pool, f);
            } else {
                f->state = SWN_FRAME_USED;
                f->users = rnd() % 4 != 0;
            }
        }
        check_frames(count_frames());
    }
    assert_true(placed > 1000 && refused > 100);
    /* Once everything is let go, the whole window can be had. */
    for (struct swn_frame *f = swn_pool_first(pool); f; f = f->next) {
        f->state = SWN_FRAME_USED;
        f->users = 0;
    }
    assert_non_null(place(8 * MIB, SWN_POOL_STALE));
    check_frames(1);
}

/* A frame that begins before the window's end and goes on at its beginning is one piece of memory, in both views and
 * where it is lent, and that of nobody else. */
static void around_the_end(void **state)
{
    (void)state;
    assert_int_equal(swn_pool_resize(pool, 4 * MIB), 0);
    struct swn_frame *a = place(3 * MIB, SWN_POOL_STALE), *b = place(MIB / 2, SWN_POOL_STALE);
    a->state = SWN_FRAME_USED;
    struct swn_frame *c = place(2 * MIB, SWN_POOL_STALE);
    assert_non_null(c);
    assert_int_equal(c->off, 3 * MIB + MIB / 2);
    struct swn_frame *d = place(MIB + MIB / 2, SWN_POOL_STALE);
    assert_non_null(d);
    assert_int_equal(d->off, MIB + MIB / 2);
    assert_null(place(4096, SWN_POOL_READY)); /* all of it is taken */
    check_frames(3);
    memset(swn_pool_rw(pool, b), 2, b->size);
    memset(swn_pool_rw(pool, d), 4, d->size);
    unsigned char *rw = swn_pool_rw(pool, c), *ro = swn_pool_ro(pool, c);
    for (size_t i = 0; i < c->size; i++)
        rw[i] = (unsigned char)(i * 11 + i / 4096);
    assert_memory_equal(rw, ro, c->size);
    assert_ptr_equal(swn_pool_find_ro(pool, (uintptr_t)ro + c->size - 1), c);
    assert_ptr_equal(swn_pool_find_ro(pool, (uintptr_t)ro - 1), b);
    static const size_t lengths[] = {4096, MIB / 2, MIB / 2 + 4096, 2 * MIB};
    for (size_t i = 0; i < sizeof lengths / sizeof *lengths; i++) {
        unsigned char *at = mmap(NULL, 3 * MIB, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        assert_ptr_not_equal(at, MAP_FAILED);
        assert_int_equal(swn_pool_lend(pool, c, at, lengths[i]), 0);
        assert_memory_equal(at, rw, lengths[i]);
        assert_int_equal(at[lengths[i]], 0);
        munmap(at, 3 * MIB);
    }
    for (size_t i = 0; i < b->size; i += 4096)
        assert_int_equal(((unsigned char *)swn_pool_ro(pool, b))[i], 2);
    for (size_t i = 0; i < d->size; i += 4096)
        assert_int_equal(((unsigned char *)swn_pool_ro(pool, d))[i], 4);
}

/* Until it is made a ring nothing goes on behind its end, so it can be widened whatever is in use: then there is room
 * for two and a bit of the largest where a ring has room for all that fits. */
static void unplanned(void **state)
{
    (void)state;
    for (size_t held = 1; held <= 6; held++) {
        fifo_round(held, (held + 2) * MIB, MIB, 0);
        fifo_round(held, (held + 1) * MIB, MIB, 1);
    }
    assert_int_equal(swn_pool_resize(pool, 4 * MIB), 0);
    struct swn_frame *a = place(2 * MIB, SWN_POOL_STALE), *b = place(MIB, SWN_POOL_STALE);
    a->state = SWN_FRAME_USED;
    b->users = 1;
    struct swn_frame *c = place(2 * MIB, SWN_POOL_STALE);
    assert_true(c && c->off + c->size <= 4 * MIB);
    c->users = 1;
    assert_null(place(2 * MIB, SWN_POOL_READY));
    assert_int_equal(swn_pool_resize(pool, 6 * MIB), 0);
    struct swn_frame *d = place(2 * MIB, SWN_POOL_STALE);
    assert_true(d && d->off == 4 * MIB);
    swn_pool_ring(pool);
    d->state = SWN_FRAME_USED;
    b->users = c->users = 0;
    b->state = c->state = SWN_FRAME_USED;
    a = place(5 * MIB, SWN_POOL_STALE);
    a->state = SWN_FRAME_USED;
    a = place(2 * MIB, SWN_POOL_STALE);
    assert_true(a && a->off == 5 * MIB);
    memset(swn_pool_rw(pool, a), 6, a->size);
    assert_memory_equal(swn_pool_rw(pool, a), swn_pool_ro(pool, a), a->size);
}

/* The window's end does not move under a frame that goes on behind it, and no other such frame comes meanwhile. */
static void resizing_a_ring(void **state)
{
    (void)state;
    assert_int_equal(swn_pool_resize(pool, 4 * MIB), 0);
    struct swn_frame *a = place(3 * MIB, SWN_POOL_STALE);
    a->state = SWN_FRAME_USED;
    struct swn_frame *b = place(2 * MIB, SWN_POOL_STALE), *c = place(MIB, SWN_POOL_STALE);
    assert_true(b->off == 3 * MIB && c->off == MIB);
    memset(swn_pool_rw(pool, b), 2, b->size);
    memset(swn_pool_rw(pool, c), 3, c->size);
    assert_int_equal(swn_pool_resize(pool, 6 * MIB), -EBUSY);
    assert_int_equal(swn_pool_window(pool), 4 * MIB);
    b->state = SWN_FRAME_USED;
    struct swn_frame *d = place(MIB, SWN_POOL_STALE);
    assert_true(d && d->off == 2 * MIB);
    d->state = SWN_FRAME_USED;
    d = place(2 * MIB, SWN_POOL_STALE);
    assert_true(d && d->off == 2 * MIB);                 /* not at 3 MiB, around the end */
    assert_int_equal(swn_pool_resize(pool, 4 * MIB), 0); /* never mind */
    assert_int_equal(swn_pool_resize(pool, 6 * MIB), 0);
    memset(swn_pool_rw(pool, d), 4, d->size);
    struct swn_frame *e = place(2 * MIB, SWN_POOL_STALE), *f = place(MIB, SWN_POOL_STALE);
    assert_true(e->off == 4 * MIB && f->off == 0);
    memset(swn_pool_rw(pool, e), 5, e->size);
    for (size_t i = 0; i < MIB; i += 4096) {
        assert_int_equal(((unsigned char *)swn_pool_ro(pool, c))[i], 3);
        assert_int_equal(((unsigned char *)swn_pool_ro(pool, d))[MIB + i], 4);
        assert_int_equal(((unsigned char *)swn_pool_ro(pool, e))[MIB + i], 5);
    }
    c->state = d->state = e->state = SWN_FRAME_USED;
    struct swn_frame *g = place(4 * MIB + MIB / 2, SWN_POOL_STALE);
    assert_true(g && g->off == MIB);
    g->state = f->state = SWN_FRAME_USED;
    g = place(2 * MIB, SWN_POOL_STALE);
    assert_true(g->off == 5 * MIB + MIB / 2);
    assert_true(swn_pool_in_the_way(pool, g, 8 * MIB) && swn_pool_in_the_way(pool, g, 5 * MIB));
    assert_false(swn_pool_in_the_way(pool, g, 6 * MIB));
    swn_pool_release(pool, g);
    assert_int_equal(swn_pool_resize(pool, 3 * MIB), 0); /* and back, over what was the ring's second view */
    assert_int_equal(swn_pool_resize(pool, WINDOW_MAX), 0);
    g = place(WINDOW_MAX, SWN_POOL_STALE);
    assert_non_null(g);
    for (size_t i = 0; i < WINDOW_MAX; i += 4096)
        memcpy((char *)swn_pool_rw(pool, g) + i, &i, sizeof i);
    for (size_t i = 0; i < WINDOW_MAX; i += 4096)
        assert_memory_equal((const char *)swn_pool_ro(pool, g) + i, &i, sizeof i);
}

/* A frame never begins at the window's very end, which is its beginning. */
static void at_the_very_end(void **state)
{
    (void)state;
    assert_int_equal(swn_pool_resize(pool, 8 * MIB), 0);
    struct swn_frame *a = place(4 * MIB, SWN_POOL_STALE);
    assert_int_equal(swn_pool_resize(pool, 4 * MIB), 0);
    a->state = SWN_FRAME_USED;
    struct swn_frame *b = place(2 * MIB, SWN_POOL_STALE);
    assert_true(b && b->off == 0);
}

/* A window that was to be narrower, and is not after all, is a ring all the same. */
static void called_off(void **state)
{
    (void)state;
    assert_int_equal(swn_pool_resize(pool, 8 * MIB), 0);
    struct swn_frame *b = place(2 * MIB, SWN_POOL_STALE);
    b->state = SWN_FRAME_USED;
    b = place(6 * MIB, SWN_POOL_STALE);
    assert_true(b && b->off == 2 * MIB);
    b->users = 1;
    assert_int_equal(swn_pool_resize(pool, 4 * MIB), -EBUSY);
    swn_pool_ring(pool);
    assert_int_equal(swn_pool_resize(pool, 8 * MIB), 0); /* never mind */
    b->users = 0;
    b->state = SWN_FRAME_USED;
    place(5 * MIB, SWN_POOL_STALE)->state = SWN_FRAME_USED;
    b = place(7 * MIB, SWN_POOL_STALE);
    assert_true(b && b->off == 5 * MIB);
}

/* A program that closes the memfd keeps the window that there is. */
static void closed_memfd(void **state)
{
    (void)state;
    assert_int_equal(swn_pool_resize(pool, 4 * MIB), 0);
    close(swn_pool_fd(pool));
    assert_int_equal(swn_pool_resize(pool, 6 * MIB), -EBADF);
    assert_int_equal(swn_pool_resize(pool, 4 * MIB), 0);
    struct swn_frame *a = place(4 * MIB, SWN_POOL_STALE);
    assert_non_null(a);
    memset(swn_pool_rw(pool, a), 1, a->size);
    assert_memory_equal(swn_pool_rw(pool, a), swn_pool_ro(pool, a), a->size);
    swn_pool_release(pool, a);
    assert_int_equal(swn_pool_resize(pool, 2 * MIB), 0);
    assert_non_null(place(2 * MIB, SWN_POOL_STALE));
}

static void resizing(void **state)
{
    (void)state;
    if (!swn_probe_removes())
        skip();
    assert_int_equal(swn_pool_resize(pool, WINDOW_MAX + 1), -EINVAL);
    assert_int_equal(swn_pool_resize(pool, WINDOW_MAX), 0);
    struct swn_frame *low = place(2 * MIB, SWN_POOL_STALE), *high = place(2 * MIB, SWN_POOL_STALE);
    memset(swn_pool_rw(pool, low), 1, 2 * MIB);
    memset(swn_pool_rw(pool, high), 2, 2 * MIB);
    long long full = blocks();
    assert_in_range(full, 4 * MIB, WINDOW_MAX); /* huge pages are made ahead */
    /* Every kind of frame stands in the way, even one that might be evicted. */
    assert_int_equal(swn_pool_resize(pool, 4 * MIB - 4096), -EBUSY);
    high->state = SWN_FRAME_USED;
    assert_int_equal(swn_pool_resize(pool, 2 * MIB), -EBUSY);
    /* Behind them the window goes at once, */
    assert_int_equal(swn_pool_window(pool), 4 * MIB);
    assert_int_equal(blocks(), 4 * MIB);
    /* ... and nothing new is placed in the part that is waiting to be given up. */
    assert_null(place(4096, SWN_POOL_READY));
    low->state = SWN_FRAME_USED;
    low->users = 1;
    assert_null(place(2 * MIB, SWN_POOL_READY));
    low->users = 0;
    low->state = SWN_FRAME_FILLING;
    assert_int_equal(swn_pool_resize(pool, 4 * MIB), 0);
    swn_pool_release(pool, high);
    assert_int_equal(blocks(), 4 * MIB); /* window pages stay where they are */
    assert_int_equal(swn_pool_resize(pool, 2 * MIB), 0);
    assert_int_equal(blocks(), 2 * MIB);
    const unsigned char *bytes = swn_pool_ro(pool, low);
    assert_int_equal(bytes[0], 1);
    assert_int_equal(bytes[2 * MIB - 1], 1);
    assert_null(place(4096, SWN_POOL_READY));
    assert_int_equal(swn_pool_resize(pool, 4 * MIB), 0);
    struct swn_frame *again = place(2 * MIB, SWN_POOL_STALE);
    assert_int_equal(again->off, 2 * MIB);
    swn_pool_release(pool, low);
    swn_pool_release(pool, again);
    assert_int_equal(swn_pool_resize(pool, 0), 0);
    assert_int_equal(blocks(), 0);
}

static void kept_frames(void **state)
{
    (void)state;
    if (!swn_probe_removes())
        skip();
    assert_int_equal(swn_pool_resize(pool, 2 * MIB), 0);
    long long before = blocks();
    struct swn_frame *a = swn_pool_keep(pool, 4 * MIB, 2 * MIB), *b = swn_pool_keep(pool, 8 * MIB, 4 * MIB);
    struct swn_frame *end = swn_pool_keep(pool, ARENA - 2 * MIB, 2 * MIB);
    assert_true(a->kept && b->kept && end->kept);
    assert_null(swn_pool_first(pool)); /* not part of the window */
    memset(swn_pool_rw(pool, a), 3, a->size);
    memset(swn_pool_rw(pool, b), 4, b->size);
    memset(swn_pool_rw(pool, end), 5, end->size);
    assert_int_equal(blocks(), before + (long long)(8 * MIB));
    struct swn_frame *w = place(2 * MIB, SWN_POOL_STALE);
    memset(swn_pool_rw(pool, w), 6, w->size);
    const unsigned char *bytes = swn_pool_rw(pool, b);
    for (size_t i = 0; i < b->size; i += 4096)
        assert_int_equal(bytes[i], 4);
    long long all = blocks();
    swn_pool_release(pool, b);
    assert_int_equal(blocks(), all - (long long)(4 * MIB));
    bytes = swn_pool_rw(pool, a);
    assert_int_equal(bytes[0], 3);
    assert_int_equal(bytes[a->size - 1], 3);
    swn_pool_release(pool, a);
    swn_pool_release(pool, end);
    assert_int_equal(blocks(), all - (long long)(8 * MIB));
    assert_int_equal(*(unsigned char *)swn_pool_rw(pool, w), 6);
    /* A place given back starts from zeros. */
    a = swn_pool_keep(pool, 4 * MIB, 2 * MIB);
    assert_int_equal(*(unsigned char *)swn_pool_rw(pool, a), 0);
    swn_pool_release(pool, a);
}

/* What is cut off a kept frame, or joined with one, stays where it is and as it is. */
static void kept_frames_cut(void **state)
{
    (void)state;
    if (!swn_probe_removes())
        skip();
    assert_int_equal(swn_pool_resize(pool, 2 * MIB), 0);
    long long before = blocks();
    struct swn_frame *a = swn_pool_keep(pool, 4 * MIB, 3 * MIB);
    a->state = SWN_FRAME_USED;
    unsigned char *bytes = swn_pool_rw(pool, a);
    memset(bytes, 3, a->size);
    struct swn_frame *b = swn_pool_cut(pool, a, MIB), *c = swn_pool_cut(pool, b, MIB);
    assert_true(b->kept && c->kept && b->state == SWN_FRAME_USED);
    assert_true(a->size == MIB && b->size == MIB && c->size == MIB);
    assert_ptr_equal(swn_pool_rw(pool, b), bytes + MIB);
    assert_ptr_equal(swn_pool_rw(pool, c), bytes + 2 * MIB);
    assert_null(swn_pool_first(pool));
    assert_int_equal(blocks(), before + (long long)(3 * MIB));
    swn_pool_release(pool, c);
    assert_int_equal(blocks(), before + (long long)(2 * MIB));
    swn_pool_join(pool, a, b);
    assert_int_equal(a->size, 2 * MIB);
    for (size_t i = 0; i < a->size; i += 4096)
        assert_int_equal(bytes[i], 3);
    swn_pool_release(pool, a);
    assert_int_equal(blocks(), before);
}

static void read_only_view(void **state)
{
    (void)state;
    assert_int_equal(swn_pool_resize(pool, 4 * MIB), 0);
    struct swn_frame *f = place(MIB, SWN_POOL_STALE), *g = place(MIB, SWN_POOL_STALE);
    unsigned char *rw = swn_pool_rw(pool, g), *ro = swn_pool_ro(pool, g);
    assert_ptr_not_equal(rw, ro);
    for (size_t i = 0; i < MIB; i++)
        rw[i] = (unsigned char)(i * 7);
    assert_memory_equal(rw, ro, MIB);

    uintptr_t at = (uintptr_t)ro;
    assert_ptr_equal(swn_pool_find_ro(pool, at), g);
    assert_ptr_equal(swn_pool_find_ro(pool, at + MIB - 1), g);
    assert_ptr_equal(swn_pool_find_ro(pool, at - 1), f);
    assert_null(swn_pool_find_ro(pool, at + MIB));
    assert_null(swn_pool_find_ro(pool, at - MIB - 1));
    assert_null(swn_pool_find_ro(pool, 0));
    assert_true(swn_pool_in_ro(pool, at + MIB));
    assert_true(swn_pool_in_ro(pool, at - MIB + 2 * WINDOW_MAX - 1));
    assert_false(swn_pool_in_ro(pool, at - MIB + 2 * WINDOW_MAX));
    assert_false(swn_pool_in_ro(pool, at - MIB - 1));
    assert_false(swn_pool_in_ro(pool, (uintptr_t)rw));

    /* The store that traps is made by a child that builds a pool of its own: fork hides the pool's views from it. */
    pid_t writer = fork();
    assert_true(writer >= 0);
    if (!writer) {
        struct swn_pool *own;
        signal(SIGSEGV, SIG_DFL);
        if (swn_pool_create(&own, 2 * MIB, MIB) || swn_pool_resize(own, 2 * MIB))
            _exit(1);
        struct swn_frame *frame = swn_pool_place(own, 4096, SWN_POOL_STALE, evict, &evicted);
        if (!frame)
            _exit(2);
        *(volatile unsigned char *)swn_pool_rw(own, frame) = 9;
        if (*(volatile unsigned char *)swn_pool_ro(own, frame) != 9)
            _exit(3);
        *(volatile unsigned char *)swn_pool_ro(own, frame) = 1;
        _exit(0);
    }
    int fate = 0;
    assert_int_equal(waitpid(writer, &fate, 0), writer);
    assert_true(WIFSIGNALED(fate) && WTERMSIG(fate) == SIGSEGV);

    int ends[2];
    assert_int_equal(pipe(ends), 0);
    assert_int_equal(write(ends[1], "x", 1), 1);
    assert_int_equal(read(ends[0], ro, 1), -1); /* the kernel refuses to store there, too */
    assert_int_equal(errno, EFAULT);
    assert_int_equal(read(ends[0], rw, 1), 1);
    assert_int_equal(ro[0], 'x');
    close(ends[0]);
    close(ends[1]);
    int hides = swn_probe_hides_from_children();
    for (int view = 0; hides && view < 2; view++) {
        pid_t pid = fork();
        assert_true(pid >= 0);
        if (!pid) {
            signal(SIGSEGV, SIG_DFL);
            *(volatile unsigned char *)(view ? rw : ro) = 1;
            _exit(0);
        }
        int status = 0;
        assert_int_equal(waitpid(pid, &status, 0), pid);
        assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGSEGV); /* MADV_DONTFORK */
    }
    assert_int_equal(ro[0], 'x');
}

static long huge_kib(const void *at)
{
    return swn_smaps_kib((uintptr_t)at, "ShmemPmdMapped");
}

/* Whether this kernel makes them at all of shared memory. */
static void needs_huge_pages(void)
{
    int fd = memfd_create("probe", MFD_CLOEXEC);
    assert_true(fd >= 0 && !ftruncate(fd, SWN_HUGE));
    void *at = swn_huge_map(fd, 0, SWN_HUGE, PROT_READ | PROT_WRITE);
    assert_ptr_not_equal(at, MAP_FAILED);
    memset(at, 1, SWN_HUGE);
    int refused = madvise(at, SWN_HUGE, MADV_COLLAPSE) || huge_kib(at) <= 0; /* an emulator ignores the advice */
    munmap(at, SWN_HUGE);
    close(fd);
    if (!refused)
        return;
    print_message("skipped: no huge pages for shared memory here\n");
    skip();
}

static void collapsed(void **state)
{
    (void)state;
    needs_huge_pages();
    size_t size = 4 * SWN_HUGE;
    int fd = memfd_create("pages", MFD_CLOEXEC);
    assert_true(fd >= 0 && !ftruncate(fd, (off_t)size));
    unsigned char *at = swn_huge_map(fd, 0, size, PROT_READ | PROT_WRITE);
    assert_ptr_not_equal(at, MAP_FAILED);
    assert_int_equal((uintptr_t)at % SWN_HUGE, 0);
    for (size_t i = 0; i < SWN_HUGE + 4096; i += 12288)
        memset(at + i, 1 + (int)(i / 12288 % 255), 4096);
    assert_int_equal(swn_huge_collapse(at, 3 * SWN_HUGE), 0);
    assert_int_equal(huge_kib(at), 3 * SWN_HUGE / KIB);
    for (size_t i = 0; i < size; i += 4096) {
        int want = i < SWN_HUGE + 4096 && i % 12288 == 0 ? 1 + (int)(i / 12288 % 255) : 0;
        assert_true(at[i] == want && at[i + 4095] == want);
    }
    munmap(at, size);
    close(fd);
}

/* The window's pages are huge before anything is read into them; those outside it are nobody's. */
static void huge_pages(void **state)
{
    (void)state;
    needs_huge_pages();
    assert_int_equal(swn_pool_resize(pool, 5 * MIB), 0);
    struct swn_frame *first = place(300 * KIB, SWN_POOL_STALE);
    const void *rw = swn_pool_rw(pool, first);
    assert_int_equal(huge_kib(rw), 4 * KIB);
    struct swn_frame *second = place(4 * MIB, SWN_POOL_STALE);
    memset(swn_pool_rw(pool, second), 2, second->size);
    assert_int_equal(huge_kib(rw), 4 * KIB);
    assert_true(blocks() <= (long long)(5 * MIB));
    first->state = second->state = SWN_FRAME_USED;
    swn_pool_release(pool, second);
    assert_int_equal(swn_pool_resize(pool, 3 * MIB), 0);
    assert_int_equal(swn_pool_resize(pool, WINDOW_MAX), 0);
    second = place(WINDOW_MAX - 300 * KIB, SWN_POOL_STALE);
    assert_non_null(second);
    assert_int_equal(huge_kib(rw), WINDOW_MAX / KIB);
}

/* What stays is in huge pages as far as these are its own, at its weight's address as well; and goes as it came. */
static void kept_in_huge_pages(void **state)
{
    (void)state;
    needs_huge_pages();
    struct swn_frame *f = swn_pool_keep(pool, 3 * MIB, 6 * MIB); /* MiB 4 to 8 are whole huge pages */
    assert_non_null(f);
    swn_pool_make_huge(pool, f, 0, 2 * MIB); /* part by part, as it is read */
    assert_int_equal(huge_kib(swn_pool_rw(pool, f)), 2 * KIB);
    swn_pool_make_huge(pool, f, 2 * MIB, 6 * MIB);
    memset(swn_pool_rw(pool, f), 7, f->size);
    assert_int_equal(huge_kib(swn_pool_rw(pool, f)), 4 * KIB);
    assert_int_equal(blocks(), 6 * MIB);
    char *room = mmap(NULL, 16 * MIB, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    assert_ptr_not_equal(room, MAP_FAILED);
    char *own = (char *)swn_round_up((uintptr_t)room, SWN_HUGE) + 3 * MIB; /* as the arena has it */
    assert_int_equal(swn_pool_lend(pool, f, own, f->size), 0);
    for (size_t i = 0; i < f->size; i += 4096)
        assert_int_equal(((volatile char *)own)[i], 7);
    assert_int_equal(swn_smaps_kib((uintptr_t)own, "FilePmdMapped") + huge_kib(own), 4 * KIB);
    own[3 * MIB] = 8; /* a private copy of one page, as ever */
    assert_int_equal(((char *)swn_pool_rw(pool, f))[3 * MIB], 7);
    munmap(room, 16 * MIB);
    swn_pool_release(pool, f);
    assert_int_equal(blocks(), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(ring_order, setup, teardown),
        cmocka_unit_test_setup_teardown(fifo_never_refuses, setup, teardown),
        cmocka_unit_test_setup_teardown(no_room_wasted, setup, teardown),
        cmocka_unit_test_setup_teardown(eviction_rules, setup, teardown),
        cmocka_unit_test_setup_teardown(out_of_order, setup, teardown),
        cmocka_unit_test_setup_teardown(around_the_end, setup, teardown),
        cmocka_unit_test_setup_teardown(unplanned, setup_unplanned, teardown),
        cmocka_unit_test_setup_teardown(resizing_a_ring, setup, teardown),
        cmocka_unit_test_setup_teardown(at_the_very_end, setup, teardown),
        cmocka_unit_test_setup_teardown(called_off, setup_unplanned, teardown),
        cmocka_unit_test_setup_teardown(closed_memfd, setup, teardown),
        cmocka_unit_test_setup_teardown(resizing, setup, teardown),
        cmocka_unit_test_setup_teardown(kept_frames, setup, teardown),
        cmocka_unit_test_setup_teardown(kept_frames_cut, setup, teardown),
        cmocka_unit_test_setup_teardown(read_only_view, setup, teardown),
        cmocka_unit_test(collapsed),
        cmocka_unit_test_setup_teardown(huge_pages, setup, teardown),
        cmocka_unit_test_setup_teardown(kept_in_huge_pages, setup, teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
