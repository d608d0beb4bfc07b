/* Description: the arena hands out address space in order, without overlap, and counts its warm bytes exactly. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

#include "blocks/memory/arena.h"
#include "base/huge_pages.h"
#include "tests/unit/support/kernel_does.h"
#include "tests/unit/support/random.h"
#include "tests/unit/support/smaps.h"

#define GRANULES 1024
#define ARENA (GRANULES * SWN_GRANULE)

static int setup(void **state)
{
    struct swn_arena *a = NULL;
    if (swn_arena_create(&a, ARENA, 0))
        return -1;
    *state = a;
    return 0;
}

static int teardown(void **state)
{
    swn_arena_destroy(*state);
    return 0;
}

static struct swn_range *take(struct swn_arena *a, size_t len)
{
    size_t fresh = 1;
    struct swn_range *r = swn_arena_alloc(a, len, SWN_LONG_TERM, &fresh);
    assert_non_null(r);
    return r;
}

static void allocation_order(void **state)
{
    static const size_t lens[] = {65536, 65537, 1 << 20, 100000, 196608, 300001};
    struct swn_arena *a = *state;
    struct swn_range *r[6];
    uintptr_t at = swn_arena_lo(a);
    assert_int_equal(at % SWN_GRANULE, 0);
    assert_int_equal(swn_arena_hi(a) - swn_arena_lo(a), ARENA);
    for (size_t i = 0; i < 6; i++) {
        size_t fresh = 0;
        r[i] = swn_arena_alloc(a, lens[i], SWN_LONG_TERM, &fresh);
        assert_non_null(r[i]);
        assert_int_equal(r[i]->addr, at);
        assert_int_equal(r[i]->len, lens[i]);
        assert_int_equal(r[i]->size, swn_round_up(lens[i], SWN_PAGE));
        assert_int_equal(r[i]->span, swn_round_up(lens[i], SWN_GRANULE));
        assert_int_equal(fresh, r[i]->size);
        assert_int_equal(r[i]->state, SWN_RESIDENT);
        assert_int_equal(r[i]->weight, -1);
        assert_true(r[i]->id > (i ? r[i - 1]->id : 0));
        at += r[i]->span;
    }
    struct swn_range *walk = swn_arena_first(a);
    for (size_t i = 0; i < 6; i++, walk = walk->next)
        assert_ptr_equal(walk, r[i]);
    assert_null(walk);

    /* An id is never used again, though the descriptor is. */
    uint32_t last = r[5]->id;
    swn_arena_free(a, r[2], 0);
    struct swn_range *again = take(a, lens[2]);
    assert_true(again->id > last);
    /* The newest comes last, wherever it lies. */
    walk = swn_arena_first(a);
    while (walk->next)
        walk = walk->next;
    assert_ptr_equal(walk, again);
}

static void find_every_address(void **state)
{
    struct swn_arena *a = *state;
    struct swn_range *r = take(a, 3 * SWN_GRANULE + 5), *s = take(a, SWN_GRANULE);
    assert_ptr_equal(swn_arena_find(a, r->addr), r);
    assert_ptr_equal(swn_arena_find(a, r->addr + 1), r);
    assert_ptr_equal(swn_arena_find(a, r->addr + SWN_GRANULE), r);
    assert_ptr_equal(swn_arena_find(a, r->addr + r->len - 1), r);
    assert_ptr_equal(swn_arena_find(a, r->addr + r->span - 1), r);
    assert_ptr_equal(swn_arena_find(a, r->addr + r->span), s);
    assert_null(swn_arena_find(a, s->addr + s->span));
    assert_null(swn_arena_find(a, 0));
    assert_null(swn_arena_find(a, UINTPTR_MAX));
    assert_null(swn_arena_find(a, swn_arena_lo(a) - 1));
    assert_null(swn_arena_find(a, swn_arena_hi(a)));
    assert_null(swn_arena_find(a, swn_arena_hi(a) - 1));
    uintptr_t gone = r->addr;
    swn_arena_free(a, r, 1);
    assert_null(swn_arena_find(a, gone));
    assert_null(swn_arena_find(a, gone + 3 * SWN_GRANULE));
    assert_ptr_equal(swn_arena_find(a, s->addr), s);
}

static void warm_reuse(void **state)
{
    struct swn_arena *a = *state;
    struct swn_range *big = take(a, 8 * SWN_GRANULE), *wall = take(a, SWN_GRANULE);
    struct swn_range *small = take(a, 3 * SWN_GRANULE), *wall2 = take(a, SWN_GRANULE);
    struct swn_range *cold = take(a, 2 * SWN_GRANULE), *wall3 = take(a, SWN_GRANULE);
    uintptr_t at_big = big->addr, at_small = small->addr, at_cold = cold->addr;
    (void)wall, (void)wall2, (void)wall3;
    assert_int_equal(swn_arena_fresh(a, 1, SWN_LONG_TERM), 4096);
    swn_arena_free(a, big, 1);
    swn_arena_free(a, small, 1);
    swn_arena_free(a, cold, 0);
    assert_int_equal(swn_arena_warm_bytes(a), 11 * SWN_GRANULE);

    /* The smallest warm piece that fits; warm before cold, even where the cold one would fit better. */
    size_t fresh = 99;
    assert_int_equal(swn_arena_fresh(a, 2 * SWN_GRANULE - 100, SWN_LONG_TERM), 0);
    struct swn_range *r = swn_arena_alloc(a, 2 * SWN_GRANULE - 100, SWN_LONG_TERM, &fresh);
    assert_int_equal(fresh, 0);
    assert_int_equal(r->addr, at_small);
    assert_int_equal(r->size, 2 * SWN_GRANULE); /* pages behind the last one asked for are there, too */
    assert_int_equal(swn_arena_warm_bytes(a), 9 * SWN_GRANULE);
    assert_int_equal(take(a, 4 * SWN_GRANULE)->addr, at_big);
    assert_int_equal(swn_arena_warm_bytes(a), 5 * SWN_GRANULE);

    assert_int_equal(swn_arena_fresh(a, 5 * SWN_GRANULE, SWN_LONG_TERM),
                     5 * SWN_GRANULE); /* no cold space beside them */
    assert_int_equal(swn_arena_fresh(a, 4 * SWN_GRANULE, SWN_LONG_TERM), 0);
    assert_int_equal(take(a, 4 * SWN_GRANULE)->addr, at_big + 4 * SWN_GRANULE);
    assert_int_equal(take(a, SWN_GRANULE)->addr, at_small + 2 * SWN_GRANULE);
    assert_int_equal(swn_arena_warm_bytes(a), 0);
    /* Cold space from the lowest address. */
    r = swn_arena_alloc(a, SWN_GRANULE, SWN_LONG_TERM, &fresh);
    assert_int_equal(fresh, SWN_GRANULE);
    assert_int_equal(r->addr, at_cold);
}

static void joins_neighbours(void **state)
{
    static const int orders[6][3] = {{0, 1, 2}, {0, 2, 1}, {1, 0, 2}, {1, 2, 0}, {2, 0, 1}, {2, 1, 0}};
    struct swn_arena *a = *state;
    for (int warm = 0; warm < 2; warm++) {
        for (size_t k = 0; k < 6; k++) {
            struct swn_range *r[3], *wall;
            for (size_t i = 0; i < 3; i++)
                r[i] = take(a, (i + 1) * SWN_GRANULE);
            wall = take(a, SWN_GRANULE);
            uintptr_t at = r[0]->addr;
            for (size_t i = 0; i < 3; i++)
                swn_arena_free(a, r[orders[k][i]], warm);
            assert_int_equal(swn_arena_fresh(a, 6 * SWN_GRANULE, SWN_LONG_TERM), warm ? 0 : 6 * SWN_GRANULE);
            struct swn_range *whole = take(a, 6 * SWN_GRANULE);
            assert_int_equal(whole->addr, at);
            assert_int_equal(swn_arena_warm_bytes(a), 0);
            swn_arena_free(a, whole, 0);
            swn_arena_free(a, wall, 0);
        }
    }
    assert_int_equal(take(a, ARENA)->addr, swn_arena_lo(a)); /* all of it in one piece again */
}

/* A warm piece that is too short is made longer by the cold space before or behind it: only that is fresh. */
static void grows_into_the_cold(void **state)
{
    struct swn_arena *a = *state;
    for (int before = 0; before < 2; before++) {
        struct swn_range *r[2], *wall;
        r[0] = take(a, 3 * SWN_GRANULE);
        r[1] = take(a, 5 * SWN_GRANULE);
        wall = take(a, SWN_GRANULE);
        struct swn_range *other = take(a, 2 * SWN_GRANULE), *wall2 = take(a, SWN_GRANULE);
        uintptr_t lo = r[0]->addr, hi = r[1]->addr + r[1]->span, at_other = other->addr;
        for (int i = 0; i < 2; i++)
            swn_arena_free(a, r[i], i == before);
        swn_arena_free(a, other, 1); /* shorter, and with no cold space beside it */
        size_t warm = before ? 5 : 3, fresh = 99, len = 6 * SWN_GRANULE - 100;
        assert_int_equal(swn_arena_fresh(a, len, SWN_LONG_TERM), (6 - warm) * SWN_GRANULE);
        struct swn_range *got = swn_arena_alloc(a, len, SWN_LONG_TERM, &fresh);
        assert_int_equal(fresh, (6 - warm) * SWN_GRANULE);
        assert_int_equal(got->size, 6 * SWN_GRANULE);
        assert_true(before ? got->addr + got->span == hi : got->addr == lo);
        assert_int_equal(swn_arena_warm_bytes(a), 2 * SWN_GRANULE);
        /* What is left of the cold piece is where it was. */
        other = take(a, 2 * SWN_GRANULE);
        assert_int_equal(other->addr, at_other);
        struct swn_range *rest = take(a, 2 * SWN_GRANULE);
        assert_int_equal(rest->addr, before ? lo : lo + 6 * SWN_GRANULE);
        swn_arena_free(a, rest, 0);
        swn_arena_free(a, got, 0);
        swn_arena_free(a, wall, 0);
        swn_arena_free(a, other, 0);
        swn_arena_free(a, wall2, 0);
    }
    assert_int_equal(take(a, ARENA)->addr, swn_arena_lo(a)); /* all of it in one piece again */
}

/* From the end, and no more than asked: what stays warm stays together. */
static void trims_the_end(void **state)
{
    static const size_t sizes[] = {2, 7, 1, 5};
    struct swn_arena *a = *state;
    struct swn_piece piece = {0, 0};
    struct swn_range *r[4];
    assert_int_equal(swn_arena_trim(a, SIZE_MAX, &piece), 0);
    for (size_t i = 0; i < 4; i++) {
        r[i] = take(a, sizes[i] * SWN_GRANULE - 4096);
        take(a, SWN_GRANULE);
    }
    uintptr_t at[4];
    for (size_t i = 0; i < 4; i++) {
        at[i] = r[i]->addr;
        swn_arena_free(a, r[i], 1);
    }
    static const struct {
        size_t bytes, piece, from, count; /* asked for; what goes: granules of that piece */
    } steps[] = {{1, 3, 4, 1},
                 {2 * SWN_GRANULE + 1, 3, 1, 3},
                 {SIZE_MAX, 3, 0, 1},
                 {SIZE_MAX, 2, 0, 1},
                 {3 * SWN_GRANULE, 1, 4, 3},
                 {SIZE_MAX, 1, 0, 4},
                 {2 * SWN_GRANULE, 0, 0, 2}};
    size_t left = 15;
    for (size_t i = 0; i < sizeof steps / sizeof steps[0]; i++) {
        assert_int_equal(swn_arena_warm_bytes(a), left * SWN_GRANULE);
        assert_int_equal(swn_arena_trim(a, steps[i].bytes, &piece), 1);
        assert_int_equal(piece.addr, at[steps[i].piece] + steps[i].from * SWN_GRANULE);
        assert_int_equal(piece.bytes, steps[i].count * SWN_GRANULE);
        left -= steps[i].count;
    }
    assert_int_equal(swn_arena_warm_bytes(a), 0);
    assert_int_equal(swn_arena_trim(a, SIZE_MAX, &piece), 0);
    size_t fresh = 0;
    struct swn_range *again = swn_arena_alloc(a, 2 * SWN_GRANULE, SWN_LONG_TERM, &fresh);
    assert_int_equal(again->addr, at[0]);
    assert_int_equal(fresh, 2 * SWN_GRANULE); /* what was trimmed is cold */
}

static void odd_sizes(void **state)
{
    struct swn_arena *a = *state;
    static const size_t bad[] = {0, ARENA + 1, SIZE_MAX, SIZE_MAX - SWN_GRANULE + 1, SIZE_MAX / 2};
    size_t fresh;
    swn_arena_free(a, take(a, 4 * SWN_GRANULE), 1);
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        assert_null(swn_arena_alloc(a, bad[i], SWN_LONG_TERM, &fresh));
        assert_int_equal(swn_arena_fresh(a, bad[i], SWN_LONG_TERM), swn_round_up(bad[i], 4096));
    }
    struct swn_range *r = take(a, 1);
    assert_int_equal(r->span, SWN_GRANULE);
    struct swn_piece piece;
    while (swn_arena_trim(a, SIZE_MAX, &piece))
        ;
    assert_null(swn_arena_alloc(a, ARENA, SWN_LONG_TERM, &fresh));
    swn_arena_free(a, r, 0);
    r = take(a, ARENA);
    assert_null(swn_arena_alloc(a, 1, SWN_LONG_TERM, &fresh));
    swn_arena_free(a, r, 0);

    struct swn_arena *large = NULL;
#ifndef __SANITIZE_THREAD__ /* which leaves much less address space than this */
    /* Reserving halves what the system refuses, down to a 64th. */
    struct rlimit lim;
    if (!getrlimit(RLIMIT_AS, &lim) && lim.rlim_cur == RLIM_INFINITY) {
        assert_int_equal(swn_arena_create(&large, (size_t)1 << 50, 0), 0);
        assert_true(swn_arena_hi(large) - swn_arena_lo(large) >= (size_t)1 << 44);
        r = take(large, SWN_GRANULE);
        assert_int_equal(r->addr, swn_arena_lo(large));
        swn_arena_destroy(large);
    } else {
        print_message("address space is limited: reserving 16 TiB is not tried\n");
    }
#endif
    assert_true(swn_arena_create(&large, SIZE_MAX / 4, 0) < 0);
    assert_true(swn_arena_create(&large, 0, 0) < 0);
}

/* Random use against one byte per granule. */

enum { WARM, WARM_SHORT, COLD, COLD_SHORT, LIVE }; /* each pair: by enum swn_term */
#define HUGE_GRANULES (SWN_HUGE / SWN_GRANULE)
#define APART_AT_ONCE ((8u << 20) / SWN_GRANULE)

/* Where a request of `count` goes among what is of one term: best fit among the warm runs, else a warm one with the
 * cold beside it, else the lowest cold place; -1: nowhere. */
static long place_in(const unsigned char *kind, size_t count, enum swn_term term, size_t *warm)
{
    long best = -1, grown = -1, cold = -1, before = -1; /* where the run before this one begins */
    size_t best_run = SIZE_MAX;
    unsigned own = WARM + term, own_cold = COLD + term;
    *warm = 0;
    for (size_t i = 0; i < GRANULES;) {
        size_t run = i + 1;
        while (run < GRANULES && kind[run] == kind[i])
            run++;
        size_t length = run - i, length_before = before < 0 ? 0 : i - (size_t)before;
        if (kind[i] == own && length >= count && length < best_run) {
            best = (long)i;
            best_run = length;
        } else if (kind[i] == own_cold && length >= count && cold < 0) {
            cold = (long)i;
        }
        int cold_first = kind[i] == own && before >= 0 && kind[before] == own_cold;
        int warm_first = kind[i] == own_cold && before >= 0 && kind[before] == own;
        size_t pages = warm_first ? length_before : length;
        if ((cold_first || warm_first) && length + length_before >= count && pages < count && pages > *warm) {
            *warm = pages;
            grown = cold_first ? (long)(i + pages - count) : before;
        }
        before = (long)i;
        i = run;
    }
    *warm = best >= 0 ? count : *warm;
    return best >= 0 ? best : grown >= 0 ? grown : cold;
}

/* Whole huge pages' addresses become the short term's. 0: there are none. */
static int set_apart(unsigned char *kind, unsigned char *apart, size_t count)
{
    count = swn_round_up(count, HUGE_GRANULES);
    for (size_t at = 0; at + count <= GRANULES; at += HUGE_GRANULES) {
        size_t n = 0;
        while (n < count && kind[at + n] == COLD)
            n++;
        if (n < count)
            continue;
        memset(kind + at, COLD_SHORT, count);
        memset(apart + at / HUGE_GRANULES, 1, count / HUGE_GRANULES);
        return 1;
    }
    return 0;
}

/* Where a request must go by the header. */
static long expected_place(unsigned char *kind, unsigned char *apart, size_t count, enum swn_term term, size_t *warm)
{
    long at = place_in(kind, count, term, warm);
    if (at < 0 && term == SWN_SHORT_TERM &&
        (set_apart(kind, apart, count > APART_AT_ONCE ? count : APART_AT_ONCE) || set_apart(kind, apart, count)))
        at = place_in(kind, count, term, warm);
    return at >= 0 ? at : place_in(kind, count, term == SWN_LONG_TERM ? SWN_SHORT_TERM : SWN_LONG_TERM, warm);
}

/* A piece is trimmed at its end; what lives long has had its warm pages taken first. */
static void check_trim(struct swn_arena *a, unsigned char *kind, size_t most)
{
    struct swn_piece piece;
    size_t end = 0, from;
    for (unsigned list = WARM; !end && list <= WARM_SHORT; list++)
        for (end = GRANULES; end && kind[end - 1] != list;)
            end--;
    assert_int_equal(swn_arena_trim(a, most * SWN_GRANULE, &piece), end > 0);
    if (!end)
        return;
    unsigned char list = kind[end - 1];
    for (from = end; from && kind[from - 1] == list && end - from < most; from--)
        kind[from - 1] = (unsigned char)(COLD + list - WARM);
    assert_int_equal((piece.addr - swn_arena_lo(a)) / SWN_GRANULE, from);
    assert_int_equal(piece.bytes, (end - from) * SWN_GRANULE);
}

static void check_ranges(struct swn_arena *a, const unsigned char *kind, size_t live_count, size_t count)
{
    size_t number = 0, listed = 0;
    for (struct swn_range *r = swn_arena_first(a); r; r = r->next) {
        listed += r->span / SWN_GRANULE;
        number++;
        assert_true(!r->next || r->next->id > r->id);
        assert_true(!r->next || r->next->prev == r);
        uintptr_t probe = r->addr + rnd() % r->span;
        assert_ptr_equal(swn_arena_find(a, probe), r);
    }
    assert_int_equal(listed, live_count);
    assert_int_equal(number, count);
    size_t probe = rnd() % GRANULES, end = probe + 1 + rnd() % (GRANULES - probe), first = probe;
    assert_int_equal(swn_arena_find(a, swn_arena_lo(a) + probe * SWN_GRANULE) != NULL, kind[probe] == LIVE);
    while (first < end && kind[first] != LIVE)
        first++;
    uintptr_t lo = swn_arena_lo(a);
    assert_ptr_equal(swn_arena_in(a, lo + probe * SWN_GRANULE, lo + end * SWN_GRANULE),
                     first < end ? swn_arena_find(a, lo + first * SWN_GRANULE) : NULL);
}

static void stress(void **state)
{
    static unsigned char kind[GRANULES];
    static struct swn_range *live[GRANULES];
    struct swn_arena *a = *state;
    size_t count = 0, refused = 0, reused[2] = {0}, grown[2] = {0}, others = 0;
    static unsigned char apart[GRANULES / HUGE_GRANULES];
    memset(kind, COLD, sizeof kind);
    memset(apart, 0, sizeof apart);
    for (int step = 0; step < 20000; step++) {
        unsigned dice = (unsigned)(rnd() % 100);
        if (dice < 50) {
            size_t len = rnd() % 16 ? 1 + rnd() % (12 * SWN_GRANULE) : 1 + rnd() % (200 * SWN_GRANULE);
            size_t n = swn_round_up(len, SWN_GRANULE) / SWN_GRANULE, fresh = 77, warm;
            enum swn_term term = rnd() % 2 ? SWN_LONG_TERM : SWN_SHORT_TERM;
            int own = place_in(kind, n, term, &warm) >= 0;
            size_t expected = warm ? (n - warm) * SWN_GRANULE : swn_round_up(len, 4096);
            assert_int_equal(swn_arena_fresh(a, len, term), own ? expected : swn_round_up(len, 4096));
            long at = expected_place(kind, apart, n, term, &warm);
            expected = warm ? (n - warm) * SWN_GRANULE : swn_round_up(len, 4096);
            others += at >= 0 && apart[(size_t)at / HUGE_GRANULES] != (term == SWN_SHORT_TERM);
            struct swn_range *r = swn_arena_alloc(a, len, term, &fresh);
            if (at < 0) {
                assert_null(r);
                refused++;
                continue;
            }
            assert_non_null(r);
            assert_int_equal(r->addr, swn_arena_lo(a) + (size_t)at * SWN_GRANULE);
            assert_int_equal(fresh, expected);
            assert_int_equal(r->size, warm ? r->span : expected);
            reused[term] += warm == n;
            grown[term] += warm && warm < n;
            for (size_t i = 0; i < n; i++) {
                assert_int_not_equal(kind[(size_t)at + i], LIVE);
                kind[(size_t)at + i] = LIVE;
            }
            live[count++] = r;
        } else if (dice < 97 && count) {
            size_t pick = rnd() % count;
            struct swn_range *r = live[pick];
            size_t at = (r->addr - swn_arena_lo(a)) / SWN_GRANULE;
            int stays = rnd() % 2 != 0;
            memset(kind + at, (stays ? WARM : COLD) + apart[at / HUGE_GRANULES], r->span / SWN_GRANULE);
            swn_arena_free(a, r, stays);
            live[pick] = live[--count];
        } else if (dice >= 97) {
            check_trim(a, kind, 1 + rnd() % 8);
        }
        size_t warm_count = 0, live_count = 0;
        for (size_t i = 0; i < GRANULES; i++) {
            warm_count += kind[i] <= WARM_SHORT;
            live_count += kind[i] == LIVE;
        }
        assert_int_equal(swn_arena_warm_bytes(a), warm_count * SWN_GRANULE);
        if (step % 16 == 0)
            check_ranges(a, kind, live_count, count);
    }
    /* The dice were rolled as meant. */
    assert_true(refused > 10 && reused[0] > 100 && reused[1] > 100 && grown[0] > 50 && grown[1] > 50 && others > 10);
}

/* What is gone soon lies in huge pages of its own, and its pages are not those of what is there to stay. */
static void short_term(void **state)
{
    struct swn_arena *a = *state;
    size_t fresh = 99;
    struct swn_range *weight = take(a, 3 * SWN_GRANULE);
    struct swn_range *first = swn_arena_alloc(a, 2 * SWN_GRANULE - 5, SWN_SHORT_TERM, &fresh);
    struct swn_range *second = swn_arena_alloc(a, 4 * SWN_GRANULE, SWN_SHORT_TERM, &fresh);
    assert_int_equal(first->addr % SWN_HUGE, 0);
    assert_true(first->addr / SWN_HUGE > (weight->addr + weight->span - 1) / SWN_HUGE);
    assert_int_equal(second->addr, first->addr + first->span);
    assert_int_equal(fresh, second->len);
    uintptr_t at = second->addr;
    swn_arena_free(a, second, 1);
    assert_int_equal(swn_arena_fresh(a, SWN_GRANULE, SWN_LONG_TERM), SWN_GRANULE);
    assert_int_equal(swn_arena_fresh(a, 4 * SWN_GRANULE, SWN_SHORT_TERM), 0);
    struct swn_range *next = take(a, SWN_GRANULE);
    assert_int_equal(next->addr, weight->addr + weight->span);
    /* A longer one takes the cold space behind it as well. */
    second = swn_arena_alloc(a, 6 * SWN_GRANULE, SWN_SHORT_TERM, &fresh);
    assert_int_equal(second->addr, at);
    assert_int_equal(fresh, 2 * SWN_GRANULE);
    /* Its huge pages stay its own, also when they are free and the long term goes on behind them. */
    swn_arena_free(a, second, 0);
    swn_arena_free(a, first, 0);
    size_t free_before = (size_t)(SWN_HUGE - (next->addr + next->span) % SWN_HUGE) % SWN_HUGE;
    if (free_before)
        take(a, free_before);
    struct swn_range *behind = take(a, SWN_HUGE);
    assert_true(behind->addr > at);
    first = swn_arena_alloc(a, SWN_GRANULE, SWN_SHORT_TERM, &fresh);
    assert_true(first->addr < behind->addr && first->addr / SWN_HUGE != behind->addr / SWN_HUGE);
}

/* The first of those that have a byte there; outside of all, none; in a mapped_file to the page. */
static void in_a_stretch(void **state)
{
    struct swn_arena *a = *state;
    struct swn_range *r = take(a, SWN_GRANULE + 1), *gap = take(a, SWN_GRANULE), *s = take(a, SWN_GRANULE);
    uintptr_t at = r->addr, hi = swn_arena_hi(a);
    swn_arena_free(a, gap, 0);
    assert_ptr_equal(swn_arena_in(a, at, at + 1), r);
    assert_ptr_equal(swn_arena_in(a, at + r->span - 1, hi), r);
    assert_ptr_equal(swn_arena_in(a, at + r->span, hi), s);
    assert_null(swn_arena_in(a, at + r->span, s->addr));
    assert_ptr_equal(swn_arena_in(a, at + r->span, s->addr + 1), s);
    assert_null(swn_arena_in(a, s->addr + s->span, hi));
    assert_null(swn_arena_in(a, at + 5, at + 5));
    assert_null(swn_arena_in(a, hi, hi + SWN_HUGE));
    uintptr_t lo = hi + SWN_HUGE + SWN_PAGE;
    struct swn_mapped_file *g = swn_arena_register_mapping(a, lo, lo + 40 * SWN_PAGE);
    assert_non_null(g);
    struct swn_range *page = swn_arena_carve(a, g, lo + 3 * SWN_PAGE, lo + 4 * SWN_PAGE);
    assert_non_null(page);
    assert_null(swn_arena_in(a, lo - SWN_HUGE, lo + 3 * SWN_PAGE));
    assert_ptr_equal(swn_arena_in(a, lo - SWN_HUGE, lo + 3 * SWN_PAGE + 1), page);
    assert_null(swn_arena_in(a, lo + 4 * SWN_PAGE, lo + SWN_HUGE));
    swn_arena_free(a, page, 1);
    swn_arena_unregister_mapping(a, g);
}

static void mapped_files(void **state)
{
    struct swn_arena *a = *state;
    static struct swn_extent_file *const file = (struct swn_extent_file *)0x1000; /* only handed on */
    uintptr_t lo = swn_arena_hi(a) + 16 * SWN_GRANULE + SWN_PAGE, hi = lo + 40 * SWN_PAGE;
    struct swn_mapped_file *g = swn_arena_register_mapping(a, lo, hi);
    assert_non_null(g);
    g->file = file;
    g->file_off = 3 * SWN_PAGE;
    assert_ptr_equal(swn_arena_mapped_file(a, lo), g);
    assert_ptr_equal(swn_arena_mapped_file(a, hi - 1), g);
    assert_null(swn_arena_mapped_file(a, hi));
    assert_null(swn_arena_mapped_file(a, lo - 1));
    assert_ptr_equal(swn_arena_mapped_file_in(a, lo - SWN_PAGE, lo + 1), g);
    assert_null(swn_arena_mapped_file_in(a, lo - SWN_PAGE, lo));
    assert_null(swn_arena_find(a, lo));
    struct swn_range *r = swn_arena_carve(a, g, lo + 2 * SWN_PAGE, lo + 20 * SWN_PAGE);
    assert_non_null(r);
    assert_int_equal(r->state, SWN_FILE_BACKED);
    assert_ptr_equal(r->file, file);
    assert_int_equal(r->extent, 5 * SWN_PAGE);
    assert_int_equal(r->len, 18 * SWN_PAGE);
    assert_int_equal(r->span, r->len);
    assert_ptr_equal(swn_arena_find(a, lo + 20 * SWN_PAGE - 1), r);
    assert_null(swn_arena_find(a, lo + 20 * SWN_PAGE));
    assert_null(swn_arena_find(a, lo + 2 * SWN_PAGE - 1));
    assert_null(swn_arena_carve(a, g, lo + 19 * SWN_PAGE, lo + 30 * SWN_PAGE)); /* a page of it is taken */
    struct swn_range *next = swn_arena_carve(a, g, lo + 20 * SWN_PAGE, hi);
    assert_non_null(next);
    /* Places are its own, among mapped_files and the arena's ranges alike. */
    struct swn_range *own = take(a, 5 * SWN_GRANULE);
    assert_int_equal(next->place, r->place + r->len);
    assert_true(own->place + own->span <= r->place || own->place >= next->place + next->len);
    uint32_t id = r->id;
    swn_arena_free(a, r, 1);
    assert_null(swn_arena_find(a, lo + 2 * SWN_PAGE));
    assert_int_equal(swn_arena_warm_bytes(a), 0);
    r = swn_arena_carve(a, g, lo + 2 * SWN_PAGE, lo + 3 * SWN_PAGE);
    assert_true(r && r->id != id);
    swn_arena_free(a, r, 1);
    swn_arena_free(a, next, 1);
    swn_arena_unregister_mapping(a, g);
    assert_null(swn_arena_mapped_file(a, lo));
    assert_null(swn_arena_mapped_file_in(a, 0, UINTPTR_MAX));
    /* The table is used again by one that fits it; nothing of the last mapped_file shows. */
    struct swn_mapped_file *again = swn_arena_register_mapping(a, lo, lo + 30 * SWN_PAGE);
    assert_ptr_equal(again, g);
    assert_null(swn_arena_find(a, lo + 25 * SWN_PAGE));
    struct swn_mapped_file *other = swn_arena_register_mapping(a, hi, hi + 3000 * SWN_PAGE);
    assert_true(other && other != again);
    assert_ptr_equal(swn_arena_mapped_file(a, hi), other);
    /* Its pages are huge where its places' are, and nobody else has a place in one of its huge pages. */
    assert_true(other->place % SWN_HUGE == hi % SWN_HUGE && again->place % SWN_HUGE == lo % SWN_HUGE);
    for (struct swn_mapped_file *one = other; one; one = one == other ? again : NULL) {
        assert_true(one->place / SWN_HUGE * SWN_HUGE >= one->at * SWN_GRANULE);
        assert_true(swn_round_up(one->place + (one->hi - one->lo), SWN_HUGE) <=
                    (one->at + one->granules) * SWN_GRANULE);
    }
    swn_arena_unregister_mapping(a, again);
    swn_arena_unregister_mapping(a, other);
    assert_null(swn_arena_register_mapping(a, lo, lo + ARENA + SWN_GRANULE)); /* more places than there are */
    swn_arena_free(a, own, 0);
    assert_int_equal(take(a, ARENA)->addr, swn_arena_lo(a)); /* all places came back */
}

/* A region of PLOT granules against a table of what each of them is. */
#define PLOT 40

static void regions(void **state)
{
    struct swn_arena *a = *state;
    struct swn_range *wall = take(a, SWN_GRANULE), *held[PLOT] = {NULL};
    struct swn_activation_region *p = swn_arena_reserve_region(a, PLOT * SWN_GRANULE - 5),
                                 *other = swn_arena_reserve_region(a, SWN_GRANULE);
    assert_non_null(p);
    assert_non_null(other);
    assert_int_equal(swn_region_bytes(p), PLOT * SWN_GRANULE);
    assert_int_equal(swn_region_addr(a, p) % SWN_HUGE, 0);
    int warm[PLOT] = {0};
    size_t taken = 0, warm_count = 0;
    for (unsigned round = 0; round < 20000; round++) {
        size_t at = rnd_below(PLOT), len = 1 + rnd_below(8 * SWN_GRANULE),
               count = (len + SWN_GRANULE - 1) / SWN_GRANULE;
        if (held[at] && held[at]->addr == swn_region_addr(a, p) + at * SWN_GRANULE && rnd_below(3)) {
            struct swn_range *r = held[at];
            int stays = rnd_below(4) != 0;
            count = r->span / SWN_GRANULE;
            for (size_t i = at; i < at + count; i++) {
                held[i] = NULL;
                warm[i] = stays;
            }
            taken -= count;
            warm_count += stays ? count : 0;
            swn_arena_free(a, r, stays);
        } else if (at + count <= PLOT) {
            struct swn_range *holder = NULL;
            size_t cold = 0, fresh = 99;
            for (size_t i = at; i < at + count; i++) {
                holder = holder ? holder : held[i];
                cold += !warm[i];
            }
            assert_ptr_equal(swn_region_holder(a, p, at * SWN_GRANULE, len), holder);
            if (!holder)
                assert_int_equal(swn_region_fresh(p, at * SWN_GRANULE, len), cold * SWN_GRANULE);
            struct swn_range *r = swn_region_alloc(a, p, at * SWN_GRANULE, len, &fresh);
            assert_int_equal(r != NULL, holder == NULL);
            if (r) {
                assert_int_equal(r->addr, swn_region_addr(a, p) + at * SWN_GRANULE);
                assert_int_equal(r->len, len);
                assert_int_equal(r->size, count * SWN_GRANULE);
                assert_int_equal(fresh, cold * SWN_GRANULE);
                assert_ptr_equal(swn_arena_find(a, r->addr + r->span - 1), r);
                for (size_t i = at; i < at + count; i++) {
                    held[i] = r;
                    warm[i] = 0;
                }
                taken += count;
                warm_count -= count - cold;
            }
        } else {
            /* Nobody else gets into it. */
            struct swn_range *r = take(a, 2 * SWN_GRANULE);
            assert_true(r->addr < swn_region_addr(a, p) || r->addr >= swn_region_addr(a, p) + PLOT * SWN_GRANULE);
            swn_arena_free(a, r, 1);
            struct swn_piece piece;
            assert_int_equal(swn_arena_trim(a, 2 * SWN_GRANULE, &piece), 1);
            assert_int_equal(piece.addr, r->addr);
            if (rnd_below(8))
                continue;
            size_t last = PLOT;
            for (size_t i = 0; i < PLOT; i++)
                last = warm[i] ? i : last;
            assert_int_equal(swn_arena_trim(a, 1, &piece), 0);
            assert_int_equal(swn_arena_trim_regions(a, 1, &piece), last < PLOT);
            if (last < PLOT) {
                assert_int_equal(piece.addr, swn_region_addr(a, p) + last * SWN_GRANULE);
                warm[last] = 0;
                warm_count--;
            }
        }
        assert_int_equal(swn_arena_region_idle(a), (PLOT + 1 - taken) * SWN_GRANULE);
        assert_int_equal(swn_arena_region_cold(a), (PLOT + 1 - taken - warm_count) * SWN_GRANULE);
        assert_int_equal(swn_arena_warm_bytes(a), warm_count * SWN_GRANULE);
    }
    assert_true(taken > 0);
    assert_int_equal(swn_arena_region_bytes(a), (PLOT + 1) * SWN_GRANULE);

    /* What is free is anybody's at once, the rest when it is freed. */
    swn_arena_release_region(a, p);
    swn_arena_release_region(a, other);
    assert_int_equal(swn_arena_region_bytes(a), 0);
    assert_int_equal(swn_arena_region_idle(a), 0);
    assert_int_equal(swn_arena_warm_bytes(a), warm_count * SWN_GRANULE);
    for (size_t i = 0; i < PLOT; i++)
        if (held[i] && (!i || held[i - 1] != held[i]))
            swn_arena_free(a, held[i], 0);
    swn_arena_free(a, wall, 0);
    for (struct swn_piece piece; swn_arena_trim(a, SIZE_MAX, &piece);) {
    }
    size_t fresh;
    size_t most = ARENA; /* no hole is left in the middle of what is for either term */
    while (most && !swn_arena_alloc(a, most, SWN_LONG_TERM, &fresh))
        most -= SWN_GRANULE;
    assert_true(most >= ARENA / 2);
    while (swn_arena_alloc(a, SWN_GRANULE, SWN_LONG_TERM, &fresh)) {
    }
    assert_null(swn_arena_reserve_region(a, 1));
}

/* Memory that the process may write, in KiB; 0 under sanitizers and emulators, which have some of their own there. */
static long data_kib(void)
{
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
    return 0;
#endif
    if (!swn_probe_leaves_out())
        return 0;
    char line[128];
    long kib = -1;
    FILE *f = fopen("/proc/self/status", "re");
    assert_non_null(f);
    while (fgets(line, sizeof line, f))
        if (!strncmp(line, "VmData:", 7))
            kib = strtol(line + 7, NULL, 10);
    fclose(f);
    return kib;
}

/* What is not handed out yet is no memory of the process: not before, and not much more than what is. */
static void opens_as_it_goes(void **state)
{
    (void)state;
    struct swn_arena *a;
    long before = data_kib(), given = 0;
    assert_int_equal(swn_arena_create(&a, (size_t)4 << 30, 0), 0);
    assert_true(data_kib() - before < 1024);
    for (int i = 0; i < 300; i++) {
        size_t len = SWN_GRANULE * (1 + (size_t)i % 40);
        struct swn_range *r = take(a, len);
        *(volatile char *)(r->addr + len - 1) = 1;
        given += (long)(r->span >> 10);
        assert_true(data_kib() - before <= given + given / 8 + 4096 + 1024);
        assert_true(swn_smaps_kib(swn_arena_lo(a), "Size") >= given); /* one mapping */
        assert_null(swn_arena_find(a, swn_arena_hi(a) - 1));
    }
    struct swn_activation_region *p = swn_arena_reserve_region(a, 100 * SWN_GRANULE);
    size_t fresh;
    struct swn_range *r = swn_region_alloc(a, p, 60 * SWN_GRANULE, 40 * SWN_GRANULE, &fresh);
    assert_non_null(r);
    *(volatile char *)(r->addr + r->span - 1) = 1;
    swn_arena_destroy(a);
    assert_true(data_kib() - before < 1024);
}

/* A mapped_file's place is only a name: nothing is opened for it, nor behind it. */
static void guests_open_nothing(void **state)
{
    (void)state;
    struct swn_arena *a;
    assert_int_equal(swn_arena_create(&a, (size_t)4 << 30, 0), 0);
    long before = data_kib();
    assert_non_null(swn_arena_register_mapping(a, (uintptr_t)1 << 40, ((uintptr_t)1 << 40) + ((uintptr_t)2 << 30)));
    assert_int_equal(take(a, SWN_GRANULE)->addr, swn_arena_lo(a));
    assert_true(data_kib() - before < 16384); /* the mapped_file's table, and what the tensor's granule lies in */
    swn_arena_destroy(a);
}

static int is_mapped(uintptr_t at)
{
    unsigned char in;
    return !mincore((void *)at, SWN_PAGE, &in);
}

static void gives_space_back(void **state)
{
    struct swn_arena *a = *state;
    if (!swn_probe_leaves_out()) /* an emulator keeps what is unmapped for itself */
        skip();
    struct swn_range *r = take(a, 100 * SWN_GRANULE), *s = take(a, 100 * SWN_GRANULE);
    uintptr_t lo = swn_arena_lo(a), hi = swn_arena_hi(a);
    size_t fresh;
    assert_int_equal(swn_arena_used(a), 200 * SWN_GRANULE);
    swn_arena_shrink(a, 300 * SWN_GRANULE);
    assert_int_equal(swn_arena_hi(a), lo + 300 * SWN_GRANULE);
    assert_true(is_mapped(lo + 300 * SWN_GRANULE - SWN_PAGE));
    assert_false(is_mapped(lo + 300 * SWN_GRANULE));
    assert_false(is_mapped(hi - SWN_PAGE));
    assert_null(swn_arena_find(a, hi - SWN_PAGE));
    assert_null(swn_arena_alloc(a, 101 * SWN_GRANULE, SWN_LONG_TERM, &fresh));
    memset((void *)take(a, 100 * SWN_GRANULE)->addr, 1, 100 * SWN_GRANULE);
    swn_arena_shrink(a, 0); /* all of it is in use */
    assert_int_equal(swn_arena_hi(a), lo + 300 * SWN_GRANULE);
    swn_arena_free(a, r, 0);
    memset((void *)s->addr, 2, s->len);
    swn_arena_seal(a);
    assert_null(swn_arena_alloc(a, SWN_GRANULE, SWN_LONG_TERM, &fresh));
    int ends[2];
    assert_int_equal(pipe(ends), 0);
    assert_int_equal(write(ends[1], (void *)lo, 1), -1); /* closed */
    assert_int_equal(write(ends[1], (void *)s->addr, 1), 1);
    close(ends[0]);
    close(ends[1]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(allocation_order, setup, teardown),
        cmocka_unit_test_setup_teardown(find_every_address, setup, teardown),
        cmocka_unit_test_setup_teardown(warm_reuse, setup, teardown),
        cmocka_unit_test_setup_teardown(joins_neighbours, setup, teardown),
        cmocka_unit_test_setup_teardown(grows_into_the_cold, setup, teardown),
        cmocka_unit_test_setup_teardown(trims_the_end, setup, teardown),
        cmocka_unit_test_setup_teardown(odd_sizes, setup, teardown),
        cmocka_unit_test_setup_teardown(short_term, setup, teardown),
        cmocka_unit_test_setup_teardown(in_a_stretch, setup, teardown),
        cmocka_unit_test_setup_teardown(mapped_files, setup, teardown),
        cmocka_unit_test_setup_teardown(regions, setup, teardown),
        cmocka_unit_test_setup_teardown(stress, setup, teardown),
        cmocka_unit_test(opens_as_it_goes),
        cmocka_unit_test(guests_open_nothing),
        cmocka_unit_test_setup_teardown(gives_space_back, setup, teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
