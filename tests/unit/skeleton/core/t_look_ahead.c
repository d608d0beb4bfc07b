/* Description: an operator that reads what is there looks at the frames that it reads next, and not at all that there
 * are; and what an earlier look ahead wanted may leave. */
/* wraps: swn_now_ns swn_cond_wait_until swn_disk_speed_get swn_engine_op_end swn_pool_first */
#define _GNU_SOURCE
#include "tests/unit/support/engine_fixture.h"
#include "tests/unit/support/plan_clock.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>

#include <cmocka.h>

#define WEIGHTS 40u
#define BYTES (2 * MIB)
#define STREAMED 6u
#define PASSES 5u

static struct tensor weights[WEIGHTS];
static struct swn_engine *const e = &swn_engine_one;

static unsigned looks;

struct swn_frame *__wrap_swn_pool_first(struct swn_pool *p);
struct swn_frame *__real_swn_pool_first(struct swn_pool *p);

/* Whoever looks at all frames begins with the first one. */
struct swn_frame *__wrap_swn_pool_first(struct swn_pool *p)
{
    looks++;
    return __real_swn_pool_first(p);
}

static void looks_only_to_replace(void *arg)
{
    (void)arg;
    CHECK(engine_begin((WEIGHTS - STREAMED) * BYTES, SWN_CONFIG_AUTO, NULL) == 0);
    for (unsigned i = 0; i < WEIGHTS; i++)
        CHECK(tensor_make(&weights[i], BYTES, i + 1));
    uint64_t read = 0;
    for (unsigned pass = 0; pass < PASSES; pass++) {
        looks = 0;
        read = engine_counters().swap_ins;
        for (unsigned i = 0; i < WEIGHTS; i++)
            op_read(&weights[i]);
    }
    read = engine_counters().swap_ins - read;
    fprintf(stderr, "%u operators, %u reads, all frames looked at %u times\n", WEIGHTS, (unsigned)read, looks);
    CHECK(e->plan.planned && read >= STREAMED && looks < WEIGHTS / 2);
    for (unsigned i = 0; i < WEIGHTS; i++)
        tensor_free(&weights[i]);
    engine_is_empty();
}

/* What a thread wanted when it looked ahead is wanted until it looks again. */
static void wanted_until_the_next_look(void *arg)
{
    (void)arg;
    struct swn_walks walks = {0};
    struct swn_frame *f = calloc(1, sizeof *f + sizeof(struct swn_frame_use));
    CHECK(f && !swn_frame_is_wanted(f));
    swn_frame_want(f, &walks, 1);
    CHECK(swn_frame_is_wanted(f));
    walks.count++;
    CHECK(!swn_frame_is_wanted(f));
    swn_frame_want(f, &walks, 1);
    swn_frame_use(f)->next = 5; /* the announced order has it */
    walks.count++;
    CHECK(swn_frame_is_wanted(f));
    swn_frame_want(f, &walks, 0);
    CHECK(!swn_frame_is_wanted(f));
    free(f);
}

IN_A_CHILD(looks_only_to_replace, 30)

static void test_wanted_until_the_next_look(void **state)
{
    wanted_until_the_next_look(*state);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_looks_only_to_replace),
                                       cmocka_unit_test(test_wanted_until_the_next_look)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
