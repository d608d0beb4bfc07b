/* Description: which of a tensor's pages are huge, so that its memory is faster and nobody else's is taken. */
#define _GNU_SOURCE
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include <fcntl.h>
#include <sys/mman.h>

#include "tests/unit/support/engine_fixture.h"
#include "base/huge_pages.h"
#include "tests/unit/support/smaps.h"
#include "skeleton/core/eviction.h"
#include "skeleton/core/plan.h"
#include "skeleton/engine/accounting.h"
#include "skeleton/core/residency_steps.h"

#define HUGE_KIB ((long)(SWN_HUGE >> 10))

static char *reserve(size_t bytes)
{
    char *at = mmap(NULL, bytes + SWN_HUGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    assert_ptr_not_equal(at, MAP_FAILED);
    return (char *)swn_round_up((uintptr_t)at, SWN_HUGE);
}

/* In huge pages, of all mappings that [at, at+bytes) has fallen into. */
static long huge_kib(const char *at, size_t bytes)
{
    long kib = 0;
    for (size_t off = 0; off < bytes;) {
        size_t size = (size_t)swn_smaps_kib((uintptr_t)at + off, "Size") << 10, next = off;
        kib += swn_smaps_kib((uintptr_t)at + off, "AnonHugePages");
        while (next < bytes && next - off < size)
            next += SWN_PAGE;
        off = next;
    }
    return kib;
}

/* Whether this kernel makes any of private memory at once: not "never", no emulator, memory not too fragmented. */
static int makes_huge_pages(void)
{
    char *at = reserve(SWN_HUGE);
    madvise(at, SWN_HUGE, MADV_HUGEPAGE);
    memset(at, 1, SWN_HUGE);
    int does = huge_kib(at, SWN_HUGE) == HUGE_KIB;
    if (!does)
        print_message("skipped: no huge pages here\n");
    return does;
}

static void inside_only(void **state)
{
    (void)state;
    if (!makes_huge_pages())
        skip();
    char *at = reserve(6 * SWN_HUGE);
    swn_huge_refuse((uintptr_t)at, 6 * SWN_HUGE);
    swn_huge_advise((uintptr_t)at + MIB, 3 * SWN_HUGE); /* two are its own, and half of two more */
    memset(at, 1, 5 * SWN_HUGE);
    assert_int_equal(huge_kib(at, 6 * SWN_HUGE), 2 * HUGE_KIB);
    assert_int_equal(huge_kib(at + SWN_HUGE, SWN_HUGE), 2 * HUGE_KIB);
}

static void untouched_is_none(void **state)
{
    (void)state;
    if (!makes_huge_pages())
        skip();
    char *at = reserve(4 * SWN_HUGE);
    swn_huge_advise((uintptr_t)at, 4 * SWN_HUGE);
    at[SWN_HUGE] = 1;
    assert_int_equal(huge_kib(at, 4 * SWN_HUGE), HUGE_KIB);
}

/* Another tensor where one with huge pages has been: it shares none of them with its neighbours. */
static void shorter_after(void **state)
{
    (void)state;
    if (!makes_huge_pages())
        skip();
    char *at = reserve(4 * SWN_HUGE);
    swn_huge_advise((uintptr_t)at, 4 * SWN_HUGE);
    memset(at, 1, 4 * SWN_HUGE);
    madvise(at, 4 * SWN_HUGE, MADV_DONTNEED);
    swn_huge_advise((uintptr_t)at + SWN_HUGE / 2, SWN_HUGE);
    memset(at + SWN_HUGE / 2, 1, SWN_HUGE);
    assert_int_equal(huge_kib(at, 4 * SWN_HUGE), 0);
}

/* The engine's tensors: the huge pages that are whole within one are there, and no byte more than is counted. */
static void tensors(void *arg)
{
    (void)arg;
    CHECK(engine_begin(64 * MIB, SWN_CONFIG_AUTO, &swn_io_sys) == 0);
    struct swn_engine *e = &swn_engine_one;
    struct tensor t[4];
    static const size_t lens[] = {5 * MIB, 3 * MIB, MIB, 7 * MIB};
    long all = 0;
    for (unsigned i = 0; i < 4; i++) {
        CHECK(tensor_make(&t[i], lens[i], i + 1));
        uintptr_t from = swn_round_up(t[i].own, SWN_HUGE), to = (t[i].own + lens[i]) / SWN_HUGE * SWN_HUGE;
        all += to > from ? (long)((to - from) >> 10) : 0;
    }
    CHECK(all >= 4 * HUGE_KIB);
    uintptr_t lo = swn_arena_lo(e->arena);
    long there = huge_kib((char *)lo, 16 * MIB); /* fewer where memory is fragmented */
    CHECK(there >= HUGE_KIB && there <= all);
    CHECK(swn_engine_resident(e) == 16 * MIB);
    for (unsigned i = 0; i < 4; i++)
        tensor_free(&t[i]);
    pthread_mutex_lock(&e->lock);
    while (swn_arena_warm_bytes(e->arena))
        CHECK(swn_shrink_step(e, 0, 1) == 0);
    pthread_mutex_unlock(&e->lock);
    /* A row of small ones where they were. */
    struct tensor small[16];
    for (unsigned i = 0; i < 16; i++)
        CHECK(tensor_make(&small[i], MIB, i + 1));
    CHECK(small[0].own == lo && huge_kib((char *)lo, 16 * MIB) == 0);
    for (unsigned i = 0; i < 16; i++)
        tensor_free(&small[i]);
    engine_is_empty();
}

static void test_tensors(void **state)
{
    (void)state;
    if (!makes_huge_pages())
        skip();
    assert_int_equal(run_alone(tensors, NULL, 60), 0);
}

/* 1: the page is part of a huge one, 0: it is not, -1: the kernel does not tell. */
static int is_of_a_huge_page(uintptr_t at)
{
    uint64_t entry = 0, flags = 0;
    int map = open("/proc/self/pagemap", O_RDONLY), kinds = open("/proc/kpageflags", O_RDONLY), known;
    known = pread(map, &entry, 8, (off_t)(at / SWN_PAGE * 8)) == 8 && entry & ((1ULL << 55) - 1);
    known = known && pread(kinds, &flags, 8, (off_t)((entry & ((1ULL << 55) - 1)) * 8)) == 8;
    close(map);
    close(kinds);
    return known ? (int)(flags >> 22 & 1) : -1; /* KPF_THP */
}

/* The last MiB of what is warm. Returns where it was. */
static uintptr_t give_back(struct swn_engine *e)
{
    struct swn_piece piece;
    pthread_mutex_lock(&e->lock);
    CHECK(swn_arena_warm_bytes(e->arena) == 8 * MIB && swn_arena_trim(e->arena, MIB, &piece));
    swn_residency_drop(&e->res, piece.addr, piece.bytes);
    pthread_mutex_unlock(&e->lock);
    return piece.addr;
}

/* Of a huge page that is given back in part the kernel keeps no more than the rest. */
static void given_back_in_part(void *arg)
{
    (void)arg;
    CHECK(engine_begin(64 * MIB, SWN_CONFIG_AUTO, &swn_io_sys) == 0);
    struct swn_engine *e = &swn_engine_one;
    struct tensor large, small;
    CHECK(tensor_make(&large, 8 * MIB, 1));
    uintptr_t at = large.own;
    if (is_of_a_huge_page(at) != 1 || is_of_a_huge_page(at + 2 * MIB) != 1 || is_of_a_huge_page(at + 7 * MIB) != 1) {
        fprintf(stderr, "skipped: memory is too fragmented\n");
        return;
    }
    tensor_free(&large);
    CHECK(give_back(e) == at + 7 * MIB);
    CHECK(is_of_a_huge_page(at + 7 * MIB - SWN_PAGE) == 0 && is_of_a_huge_page(at) == 1);
    /* The same where what is there leaves for the disk. */
    CHECK(tensor_make(&small, MIB, 2) && small.own == at);
    pthread_mutex_lock(&e->lock);
    CHECK(swn_spill_range(e, swn_arena_find(e->arena, at)) == 0);
    pthread_mutex_unlock(&e->lock);
    CHECK(is_of_a_huge_page(at + MIB) == 0 && is_of_a_huge_page(at + 2 * MIB) == 1);
    CHECK(tensor_right(&small, at));
    tensor_free(&small);
    engine_is_empty();
}

/* What has been given back is nobody's: the next tensor before it does not take it along when it is filled. */
static void not_taken_along(void *arg)
{
    (void)arg;
    CHECK(engine_begin(64 * MIB, SWN_CONFIG_AUTO, &swn_io_sys) == 0);
    struct swn_engine *e = &swn_engine_one;
    int strict;
    uintptr_t at = (uintptr_t)swn_engine_alloc(8 * MIB, &strict);
    CHECK(at && swn_engine_free((void *)at)); /* without having been touched */
    CHECK(give_back(e) == at + 7 * MIB);
    struct tensor t;
    CHECK(tensor_make(&t, 7 * MIB, 1) && t.own == at);
    long there = huge_kib((char *)at, 8 * MIB);
    CHECK(there >= HUGE_KIB && there <= 3 * HUGE_KIB); /* MiB 6 to 8 are two tensors' */
    tensor_free(&t);
    engine_is_empty();
}

static void test_not_taken_along(void **state)
{
    (void)state;
    if (!makes_huge_pages())
        skip();
    assert_int_equal(run_alone(not_taken_along, NULL, 60), 0);
}

static void test_given_back_in_part(void **state)
{
    (void)state;
    char *at = makes_huge_pages() ? reserve(SWN_HUGE) : NULL;
    if (!at)
        skip();
    madvise(at, SWN_HUGE, MADV_HUGEPAGE);
    memset(at, 1, SWN_HUGE);
    if (is_of_a_huge_page((uintptr_t)at) != 1) {
        print_message("skipped: /proc/kpageflags cannot be read\n");
        skip();
    }
    assert_int_equal(run_alone(given_back_in_part, NULL, 60), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(inside_only),          cmocka_unit_test(untouched_is_none),
        cmocka_unit_test(shorter_after),        cmocka_unit_test(test_tensors),
        cmocka_unit_test(test_not_taken_along), cmocka_unit_test(test_given_back_in_part),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
