/* Description: a pass that recurs gets the same memory for the same tensors, faults nothing in and lets nothing go, and
 * no tensor is ever given memory that another one has. */
/* wraps: swn_now_ns swn_cond_wait_until swn_spin_wait_wait swn_disk_speed_get swn_engine_op_end */
#define _GNU_SOURCE
#include "tests/unit/support/engine_fixture.h"

#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <sys/mman.h>

#include <cmocka.h>

#include "base/huge_pages.h"
#include "tests/unit/support/smaps.h"
#include "skeleton/core/eviction.h"
#include "skeleton/core/op_window.h"
#include "skeleton/core/plan.h"
#include "skeleton/tiling/slice.h"
#include "skeleton/engine/accounting.h"
#include "skeleton/engine/thread_state.h"

#define WEIGHTS 24
#define WEIGHT_BYTES ((size_t)512 << 10)
#define BUDGET (10 * MIB)
#define TENSORS 12

static struct swn_engine *const e = &swn_engine_one;
static struct tensor weights[2][WEIGHTS];

/* What a pass allocates: one tensor after every other weight; it lives while the next `lives` are made. */
struct shape {
    size_t bytes[TENSORS];
    unsigned lives[TENSORS];
};

/* Sizes that go up and down: on demand they do not find each other's memory. */
static const struct shape large = {{900000, 300000, 70000, 1200000, 65536, 800000, 131072, 500000, 900001, 66000,
                                    1000000, 100000},
                                   {2, 1, 5, 1, 1, 3, 1, 2, 1, 4, 1, 1}},
                          small = {{200000, 700000, 70000, 90000, 600000, 65536, 400000, 131072, 66000, 300000, 100000,
                                    80000},
                                   {1, 2, 1, 6, 1, 1, 2, 1, 1, 2, 1, 3}};

static void make_weights(unsigned model)
{
    for (unsigned i = 0; i < WEIGHTS; i++)
        CHECK(tensor_make(&weights[model][i], WEIGHT_BYTES, 100 * model + i + 1));
}

static void free_weights(unsigned model)
{
    for (unsigned i = 0; i < WEIGHTS; i++)
        tensor_free(&weights[model][i]);
}

/* One pass. Every tensor has the bytes it was given when it is freed. The one called `keep` is not, if *kept is free;
 * addresses[], if not NULL, are where they were. */
static void pass(unsigned model, const struct shape *shape, int keep, struct tensor *kept, uintptr_t *addresses)
{
    static _Atomic uint64_t stamp = 1000;
    struct tensor live[TENSORS] = {{0}};
    /* Nothing computes here, so every byte counts that has to be read, and regions could be refused as too large. */
    pthread_mutex_lock(&e->lock);
    e->regions.nonweight_without = e->regions.nonweight_without ? SIZE_MAX : 0;
    pthread_mutex_unlock(&e->lock);
    for (unsigned i = 0; i < WEIGHTS; i++) {
        op_read(&weights[model][i]);
        if (i % 2)
            continue;
        unsigned k = i / 2;
        CHECK(tensor_make(&live[k], shape->bytes[k], ++stamp));
        if (addresses)
            addresses[k] = live[k].own;
        for (unsigned j = 0; j <= k; j++) {
            if (!live[j].own || (k < TENSORS - 1 && j + shape->lives[j] > k))
                continue;
            CHECK(tensor_right(&live[j], live[j].own));
            if ((int)j == keep && !kept->own)
                *kept = live[j];
            else
                tensor_free(&live[j]);
            live[j].own = 0;
        }
    }
}

static void begin(void)
{
    CHECK(engine_begin(BUDGET, SWN_CONFIG_AUTO, NULL) == 0);
    make_weights(0);
}

static void end(void)
{
    free_weights(0);
    CHECK(swn_arena_region_idle(e->arena) == 0);
    engine_is_empty();
}

struct counters {
    uint64_t filled, dropped, placed, plans;
};

static struct counters count(void)
{
    struct swn_stats s;
    swn_engine_stats(&s);
    return (struct counters){s.filled_bytes, s.dropped_bytes, s.placed_bytes, s.plans};
}

/* Whether nothing was filled or let go since. */
static int steady(const struct counters *before)
{
    struct counters now = count();
    int same = now.filled == before->filled && now.dropped == before->dropped;
    if (!same)
        fprintf(stderr, "filled %llu, dropped %llu, plans %llu\n", (unsigned long long)(now.filled - before->filled),
                (unsigned long long)(now.dropped - before->dropped), (unsigned long long)(now.plans - before->plans));
    return same;
}

static void settled(void *arg)
{
    (void)arg;
    uintptr_t first[TENSORS], again[TENSORS];
    begin();
    for (unsigned i = 0; i < 16; i++)
        pass(0, &large, -1, NULL, first);
    struct counters before = count();
    for (unsigned i = 0; i < 10; i++) {
        pass(0, &large, -1, NULL, again);
        for (unsigned k = 0; k < TENSORS; k++)
            CHECK(again[k] == first[k]);
    }
    struct counters after = count();
    uint64_t bytes = 0;
    for (unsigned k = 0; k < TENSORS; k++)
        bytes += swn_round_up(large.bytes[k], SWN_GRANULE);
    CHECK(steady(&before));
    CHECK(after.placed == before.placed + 10 * bytes);
    CHECK(engine_counters().over_budget_peak == 0);
    end();
}

static long huge_kib(uintptr_t at)
{
    return swn_smaps_kib(at, "AnonHugePages");
}

/* Whether this kernel makes huge pages of private memory when asked to: Linux 6.1 and later, and no emulator. */
static int makes_huge_pages(void)
{
    void *at = mmap(NULL, 2 * SWN_HUGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    CHECK(at != MAP_FAILED);
    uintptr_t huge = swn_round_up((uintptr_t)at, SWN_HUGE);
    int does = !swn_huge_collapse((void *)huge, SWN_HUGE) && huge_kib(huge) > 0;
    munmap(at, 2 * SWN_HUGE);
    return does;
}

/* All of a region that is a huge page's is one, also after it was given back in part, and no more is counted for it. */
static void huge_pages(void *arg)
{
    (void)arg;
    if (!makes_huge_pages()) {
        fprintf(stderr, "skipped: no huge pages here\n");
        return;
    }
    begin();
    uintptr_t addresses[TENSORS], at = UINTPTR_MAX;
    for (unsigned i = 0; i < 16; i++)
        pass(0, &large, -1, NULL, addresses);
    for (unsigned k = 0; k < TENSORS; k++)
        at = addresses[k] < at ? addresses[k] : at;
    at -= at % SWN_HUGE;
    long all = (long)(swn_arena_region_bytes(e->arena) / SWN_HUGE * (SWN_HUGE >> 10));
    CHECK(all > 0 && huge_kib(at) >= all);
    long before_it_went = huge_kib(at);
    pthread_mutex_lock(&e->lock);
    while (swn_arena_warm_bytes(e->arena))
        CHECK(swn_shrink_step(e, 0, 1) == 0);
    pthread_mutex_unlock(&e->lock);
    CHECK(huge_kib(at) <= before_it_went - all);
    for (unsigned i = 0; i < 4; i++)
        pass(0, &large, -1, NULL, NULL);
    CHECK(huge_kib(at) >= all);
    struct counters before = count();
    for (unsigned i = 0; i < 4; i++)
        pass(0, &large, -1, NULL, NULL);
    CHECK(steady(&before));
    CHECK(engine_counters().over_budget_peak == 0);
    end();
}

/* A copy that a kernel would make has its place in the region: asking for it costs nothing, and is not needing it. */
static void copies_have_places(void *arg)
{
    (void)arg;
    begin();
    CHECK(swn_slice_copy_room(MIB) && !swn_slice_copy_room(BUDGET + 1)); /* without a region, like anything else */
    for (unsigned i = 0; i < 16; i++)
        pass(0, &large, -1, NULL, NULL);
    struct counters before = count();
    size_t peak = swn_nonweight_peak(e);
    for (unsigned i = 0; i < 5; i++) {
        CHECK(swn_slice_copy_room(swn_arena_region_idle(e->arena)));
        pass(0, &large, -1, NULL, NULL);
    }
    CHECK(steady(&before) && count().plans == before.plans);
    CHECK(swn_nonweight_peak(e) == peak && !e->plan.dirty);
    end();
}

static void other_shapes(void *arg)
{
    (void)arg;
    begin();
    /* A pass begins at any weight, so each shape has to have come after each. */
    for (unsigned i = 0; i < 48; i++)
        pass(0, i & 2 ? &large : &small, -1, NULL, NULL);
    struct counters before = count();
    for (unsigned i = 0; i < 12; i++)
        pass(0, i & 2 ? &large : &small, -1, NULL, NULL);
    struct counters after = count();
    CHECK(steady(&before));
    CHECK(after.placed > before.placed);
    end();
}

/* What the program keeps of a pass keeps its bytes, and the passes go on around it. */
static void kept_by_the_program(void *arg)
{
    (void)arg;
    struct tensor kept[TENSORS] = {{0}};
    begin();
    for (unsigned i = 0; i < 12; i++)
        pass(0, &large, -1, NULL, NULL);
    for (unsigned i = 0; i < TENSORS; i++) {
        pass(0, &large, (int)i, &kept[i], NULL);
        for (unsigned k = 0; k <= i; k++)
            CHECK(tensor_right(&kept[k], kept[k].own));
    }
    for (unsigned i = 0; i < 6; i++)
        pass(0, &large, -1, NULL, NULL);
    for (unsigned k = 0; k < TENSORS; k++) {
        CHECK(tensor_right(&kept[k], kept[k].own));
        tensor_free(&kept[k]);
    }
    /* They are not in the way any more. */
    for (unsigned i = 0; i < 12; i++)
        pass(0, &large, -1, NULL, NULL);
    struct counters before = count();
    for (unsigned i = 0; i < 5; i++)
        pass(0, &large, -1, NULL, NULL);
    CHECK(steady(&before));
    end();
}

/* A tensor that every pass keeps until the next one has taken its place: lives change once, and the plan is mended. */
static void lives_change(void *arg)
{
    (void)arg;
    struct tensor last = {0}, new = {0};
    begin();
    for (unsigned i = 0; i < 12; i++)
        pass(0, &large, -1, NULL, NULL);
    struct counters before = {0};
    for (unsigned i = 0; i < 20; i++) {
        if (i == 14)
            before = count();
        pass(0, &large, 3, &new, NULL);
        if (last.own) {
            CHECK(tensor_right(&last, last.own));
            tensor_free(&last);
        }
        last = new;
        new.own = 0;
    }
    CHECK(steady(&before));
    tensor_free(&last);
    end();
}

/* Where weights have a better use for what regions take, there are none, until the budget is another one. */
static void refused(void *arg)
{
    (void)arg;
    struct swn_plan_candidate d;
    begin();
    for (unsigned i = 0; i < 16; i++)
        pass(0, &large, -1, NULL, NULL);
    CHECK(swn_arena_region_bytes(e->arena) > 0);
    pthread_mutex_lock(&e->lock);
    CHECK(swn_plan_candidate_make(e, swn_window_self(), &d) == 0);
    size_t other = d.nonweight;
    d.disk.bytes_per_ns = 0.01; /* so slow a disk that every byte counts */
    d.region_extra = MIB;
    d.region_gain_ns = 1e12;
    CHECK(swn_plan_candidate_solve(&d) == 0 && !d.drop_regions && d.nonweight == other);
    double plotted_ns = d.plan.latency_ns;
    d.region_gain_ns = 0;
    CHECK(swn_plan_candidate_solve(&d) == 0 && d.drop_regions && d.nonweight == other - MIB &&
          d.plan.latency_ns < plotted_ns);
    /* What is gained beside what regions gain is less than predictions are worth. */
    d.region_gain_ns = 0.99 * (plotted_ns - d.plan.latency_ns);
    d.nonweight = other;
    CHECK(swn_plan_candidate_solve(&d) == 0 && !d.drop_regions && d.nonweight == other &&
          d.plan.latency_ns == plotted_ns);
    d.region_gain_ns = 0;
    CHECK(swn_plan_candidate_solve(&d) == 0 && d.drop_regions);
    CHECK(swn_plan_commit(e, &d) == 0);
    pthread_mutex_unlock(&e->lock);
    swn_plan_candidate_free(&d);
    CHECK(swn_arena_region_bytes(e->arena) == 0);
    struct counters before = count();
    for (unsigned i = 0; i < 8; i++)
        pass(0, &large, -1, NULL, NULL);
    CHECK(swn_arena_region_bytes(e->arena) == 0 && count().placed == before.placed);
    CHECK(swn_engine_set_budget(BUDGET + MIB, 100, &(struct swn_budget_change){0}) == 0);
    for (unsigned i = 0; i < 4; i++)
        pass(0, &large, -1, NULL, NULL);
    CHECK(count().placed > before.placed);
    end();
}

static void *run_model(void *arg)
{
    unsigned model = *(unsigned *)arg;
    for (unsigned i = 0; i < 40; i++)
        pass(model, model ? &small : &large, -1, NULL, NULL);
    swn_window_thread_exit();
    return NULL;
}

static void two_threads(void *arg)
{
    (void)arg;
    static unsigned models[] = {0, 1};
    pthread_t threads[2];
    begin();
    make_weights(1);
    for (unsigned i = 0; i < 2; i++)
        CHECK(pthread_create(&threads[i], NULL, run_model, &models[i]) == 0);
    for (unsigned i = 0; i < 2; i++)
        CHECK(pthread_join(threads[i], NULL) == 0);
    CHECK(count().placed > 0);
    free_weights(1);
    end();
}

/* Whatever happens: shapes come and go, tensors stay and die in any order, the budget changes. */
static void storm(void *arg)
{
    (void)arg;
    static struct shape shapes[5];
    struct tensor kept[8] = {{0}};
    uint64_t chance = 11;
    begin();
    for (unsigned s = 0; s < 5; s++)
        for (unsigned k = 0; k < TENSORS; k++) {
            shapes[s].bytes[k] = SWN_GRANULE + next_random(&chance) % 700000;
            shapes[s].lives[k] = 1 + next_random(&chance) % 4;
        }
    for (unsigned i = 0; i < 150; i++) {
        struct tensor *one = &kept[next_random(&chance) % 8];
        if (one->own) {
            CHECK(tensor_right(one, one->own));
            tensor_free(one);
        }
        int keep = next_random(&chance) % 3 ? -1 : (int)(next_random(&chance) % TENSORS);
        pass(0, &shapes[next_random(&chance) % (i < 75 ? 2 : 5)], keep, one, NULL);
        if (i % 20 == 10)
            swn_engine_set_budget(BUDGET + next_random(&chance) % (2 * MIB), 100, &(struct swn_budget_change){0});
    }
    for (unsigned k = 0; k < 8; k++)
        if (kept[k].own) {
            CHECK(tensor_right(&kept[k], kept[k].own));
            tensor_free(&kept[k]);
        }
    CHECK(count().placed > 0);
    end();
}

IN_A_CHILD(settled, 120)
IN_A_CHILD(huge_pages, 120)
IN_A_CHILD(copies_have_places, 120)
IN_A_CHILD(other_shapes, 120)
IN_A_CHILD(kept_by_the_program, 120)
IN_A_CHILD(lives_change, 120)
IN_A_CHILD(refused, 120)
IN_A_CHILD(two_threads, 120)
IN_A_CHILD(storm, 120)

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_settled),
        cmocka_unit_test(test_huge_pages),
        cmocka_unit_test(test_copies_have_places),
        cmocka_unit_test(test_other_shapes),
        cmocka_unit_test(test_kept_by_the_program),
        cmocka_unit_test(test_lives_change),
        cmocka_unit_test(test_refused),
        cmocka_unit_test(test_two_threads),
        cmocka_unit_test(test_storm),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
