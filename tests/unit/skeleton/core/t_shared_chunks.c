/* Description: where weights that lie beside each other are read far apart, a plan keeps the chunks that they share,
 * which would be read twice in a pass. */
/* wraps: swn_now_ns swn_cond_wait_until swn_spin_wait_wait swn_disk_speed_get swn_engine_op_end */
#define _GNU_SOURCE
#include "blocks/memory/publish.h"
#include "tests/unit/support/engine_fixture.h"
#include "tests/unit/support/plan_clock.h"

#include <setjmp.h>
#include <stdarg.h>
#include <string.h>

#include <cmocka.h>

#define WEIGHTS 48u
#define BYTES (3 * MIB) /* one and a half chunks */
#define PASSES 5u
#define BUDGET (WEIGHTS * BYTES * 6 / 10)

static struct tensor weights[WEIGHTS];
static struct swn_engine *const e = &swn_engine_one;

static struct swn_chunks chunks_of(unsigned i)
{
    return swn_residency_chunks(&e->res, swn_arena_find(e->arena, weights[i].own));
}

/* Chunks that two weights share. */
struct shared {
    unsigned n, kept;
    unsigned twice, left; /* would be read twice in a pass; and are, as they do not stay */
};

static struct shared shared(void)
{
    struct shared all = {0};
    for (unsigned i = 0; i + 1 < WEIGHTS; i++) {
        struct swn_chunks one = chunks_of(i), next = chunks_of(i + 1);
        if (one.end - 1 != next.first)
            continue;
        const struct swn_chunk *chunk = swn_pool_chunk(e->pool, next.first);
        all.n++;
        all.kept += chunk->plan_keep;
        all.twice += chunk->read_twice;
        all.left += chunk->read_twice && !chunk->plan_keep;
    }
    return all;
}

/* Reads the weights `stride` apart, so that neighbours follow each other only where that is 1. Returns what the plan
 * has done with the chunks that two weights share. */
static struct shared planned(unsigned stride)
{
    CHECK(engine_begin(BUDGET, SWN_CONFIG_AUTO, NULL) == 0);
    for (unsigned i = 0; i < WEIGHTS; i++)
        CHECK(tensor_make(&weights[i], BYTES, i + 1));
    for (unsigned pass = 0; pass < PASSES; pass++)
        for (unsigned first = 0; first < stride; first++)
            for (unsigned i = first; i < WEIGHTS; i += stride)
                op_read(&weights[i]);
    struct shared all = shared();
    fprintf(stderr, "in steps of %u: %u chunks are shared, of which %u stay; %u would be read twice, and %u are\n",
            stride, all.n, all.kept, all.twice, all.left);
    CHECK(e->plan.planned && all.n >= WEIGHTS / 3 && engine_counters().over_budget_peak == 0 &&
          engine_counters().window_misses == 0);
    for (unsigned i = 0; i < WEIGHTS; i++)
        tensor_free(&weights[i]);
    engine_is_empty();
    return all;
}

static void neighbours_in_time(void *arg)
{
    (void)arg;
    struct shared all = planned(1);
    CHECK(!all.twice && all.kept < all.n); /* the plan has them come and go like others */
}

/* Where the plan keeps all that is read between two neighbours, nothing has to leave there, and their chunk is read
 * once. */
static void apart_in_time(void *arg)
{
    (void)arg;
    struct shared all = planned(4);
    CHECK(all.twice && !all.left);
}

IN_A_CHILD(neighbours_in_time, 30)
IN_A_CHILD(apart_in_time, 30)

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_neighbours_in_time), cmocka_unit_test(test_apart_in_time)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
