/* Description: an operator that reads what is there looks at the frames that it reads next, and not at all that there
 * are; where nothing is missing it does not look at all; and what an earlier look ahead wanted may leave. */
/* wraps: swn_now_ns swn_cond_wait_until swn_spin_wait_wait swn_disk_speed_get swn_engine_op_end swn_pool_first */
/* wraps: swn_access_order_next */
#define _GNU_SOURCE
#include "tests/unit/support/engine_fixture.h"
#include "tests/unit/support/plan_clock.h"

#include "skeleton/engine/access_order.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>

#include <cmocka.h>

#define WEIGHTS 40u
#define BYTES (2 * MIB)
#define STREAMED 6u
#define PASSES 5u
#define MANY 200u
#define SMALL ((size_t)192 << 10)

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

static unsigned steps;

uint32_t __wrap_swn_access_order_next(const struct swn_access_order *o, uint32_t before, uint32_t at);
uint32_t __real_swn_access_order_next(const struct swn_access_order *o, uint32_t before, uint32_t at);

/* Whoever looks ahead follows the order. */
uint32_t __wrap_swn_access_order_next(const struct swn_access_order *o, uint32_t before, uint32_t at)
{
    steps++;
    return __real_swn_access_order_next(o, before, at);
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

static unsigned steps_of_a_pass(struct tensor *many)
{
    steps = 0;
    for (unsigned i = 0; i < MANY; i++)
        op_read(&many[i]);
    return steps;
}

/* With everything in memory, walking round it at each operator would take time that is quadratic in the weights. When
 * something has left the next operator looks again. */
static void looks_while_something_is_missing(void *arg)
{
    (void)arg;
    static struct tensor many[MANY];
    struct swn_budget_change change;
    CHECK(engine_begin(MANY * SMALL / 2, SWN_CONFIG_AUTO, NULL) == 0);
    for (unsigned i = 0; i < MANY; i++)
        CHECK(tensor_make(&many[i], SMALL, i + 1));
    steps_of_a_pass(many);
    CHECK(swn_engine_set_budget(MANY * SMALL * 2 + 64 * MIB, 1000, &change) == 0);
    for (unsigned pass = 0; pass < 2 * PASSES; pass++)
        steps_of_a_pass(many);
    uint64_t read = engine_counters().swap_ins;
    unsigned there = steps_of_a_pass(many);
    CHECK(e->plan.planned && engine_counters().swap_ins == read);
    CHECK(there < 4 * MANY);
    CHECK(swn_engine_set_budget(MANY * SMALL / 2, 20000, &change) == 0);
    CHECK(steps_of_a_pass(many) > there && engine_counters().swap_ins > read);
    for (unsigned i = 0; i < MANY; i++)
        tensor_free(&many[i]);
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
IN_A_CHILD(looks_while_something_is_missing, 30)

static void test_wanted_until_the_next_look(void **state)
{
    wanted_until_the_next_look(*state);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_looks_only_to_replace),
                                       cmocka_unit_test(test_looks_while_something_is_missing),
                                       cmocka_unit_test(test_wanted_until_the_next_look)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
