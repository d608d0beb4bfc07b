/* Description: a plan is made anew where the disk or the operators have been others than it is for, for long, and less
 * often each time; and where pages go and come back in every pass for what it leaves too little. */
#define _GNU_SOURCE
#include "swn_engine_fixture.h"

#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>

#define PASS_NS (uint64_t)300000000
#define SPEED 2.0
#define COMPUTE_NS 10e6

static struct swn_engine *const e = &swn_engine_one;
static double speed = SPEED;
static uint64_t clock_ns;
static struct swn_range range;
static struct swn_node nodes[3] = {{.range = &range, .compute_ns = COMPUTE_NS / 2},
                                   {.range = NULL, .compute_ns = 1e12}, /* gone */
                                   {.range = &range, .compute_ns = COMPUTE_NS / 2}};

struct swn_plan_disk __wrap_swn_policy_disk(struct swn_engine *engine);
uint64_t __wrap_swn_now_ns(void);
uint64_t __real_swn_now_ns(void);

struct swn_plan_disk __wrap_swn_policy_disk(struct swn_engine *engine)
{
    (void)engine;
    return (struct swn_plan_disk){.bytes_per_ns = speed, .read_ns = 1e5};
}

uint64_t __wrap_swn_now_ns(void)
{
    return clock_ns ? clock_ns : __real_swn_now_ns();
}

/* After how many passes, of at most so many, a plan is due. */
static unsigned due_after(unsigned most)
{
    for (unsigned i = 1; i <= most; i++) {
        clock_ns += PASS_NS;
        swn_policy_passed(e);
        if (e->plan_dirty)
            return i;
    }
    return 0;
}

static void adopt(void)
{
    e->plan_dirty = 0;
    swn_policy_drift_begin(e, speed);
}

static void begin(void)
{
    CHECK(engine_begin(8 * MIB, SWN_CONFIG_AUTO, NULL) == 0);
    e->nodes = nodes;
    e->node_count = 3;
    e->planned = 1;
    clock_ns = 1;
    e->drift.plans = 0;
    adopt();
}

static void another_disk(void *arg)
{
    (void)arg;
    begin();
    CHECK(due_after(100) == 0);
    speed = SPEED * 1.2;
    CHECK(due_after(100) == 0);
    speed = SPEED * 1.3;
    CHECK(due_after(100) == 8);
    adopt();
    CHECK(due_after(100) == 0);
    speed = SPEED;
    CHECK(due_after(100) == 16); /* the second time it takes longer */
    adopt();
    speed = SPEED / 2;
    CHECK(due_after(31) == 0);
    speed = SPEED; /* one pass as planned: from the beginning */
    CHECK(due_after(1) == 0);
    speed = SPEED / 2;
    CHECK(due_after(100) == 32);
}

static void other_operators(void *arg)
{
    (void)arg;
    begin();
    nodes[0].compute_ns = COMPUTE_NS / 2 * 1.2;
    CHECK(due_after(100) == 0);
    nodes[2].compute_ns = COMPUTE_NS / 2 * 1.2;
    CHECK(due_after(100) == 8);
    adopt();
    nodes[0].compute_ns = nodes[2].compute_ns = COMPUTE_NS / 2;
    CHECK(due_after(100) == 16);
}

/* Passes that are over at once are no evidence, however many; nor are those in which nothing is where it will be. */
static void not_at_once(void *arg)
{
    (void)arg;
    begin();
    speed = SPEED * 3;
    for (unsigned i = 0; i < 1000; i++) {
        clock_ns += 900000;
        swn_policy_passed(e);
        CHECK(!e->plan_dirty);
    }
    clock_ns += 200000000;
    swn_policy_passed(e);
    CHECK(e->plan_dirty);
    adopt();
    speed = SPEED;
    e->settling = 1;
    CHECK(due_after(100) == 0);
    e->settling = e->planned = 0;
    CHECK(due_after(100) == 0);
}

static void too_little_room(void *arg)
{
    (void)arg;
    begin();
    e->planned_other = MIB;
    for (unsigned i = 0; i < 12; i++) {
        e->other_peak = MIB + 1;
        e->dropped += i % 4 != 3; /* not in each pass */
        swn_policy_passed(e);
        CHECK(!e->plan_dirty);
    }
    for (unsigned i = 0; i < 12; i++) {
        e->other_peak = MIB; /* something went, but not for want of room */
        e->dropped += 4096;
        swn_policy_passed(e);
        CHECK(!e->plan_dirty);
    }
    for (unsigned i = 0; i < 4; i++) {
        CHECK(!e->plan_dirty);
        e->other_peak = MIB + 1;
        e->dropped += 4096;
        swn_policy_passed(e);
    }
    CHECK(e->plan_dirty);
}

/* Where two activations at once leave no room for weights beside the window, the one that an operator is using is
 * written out. What is seen of them is then less than they need: no plan may take the difference for room, pass after
 * pass. */
static void room_for_what_leaves(void *arg)
{
    static struct tensor weights[24];
    (void)arg;
    CHECK(engine_begin(12 * MIB, SWN_CONFIG_AUTO, NULL) == 0);
    for (unsigned i = 0; i < 24; i++)
        CHECK(tensor_make(&weights[i], MIB / 2, i + 1));
    uint64_t plans = 0;
    for (unsigned n = 0; n < 60; n++) {
        static const enum swn_use reads[] = {SWN_USE_INPUT};
        struct tensor input, result, *in[] = {&input};
        struct swn_op op;
        CHECK(tensor_make(&input, 5 * MIB, n));
        op_open(&op, in, reads, 1);
        CHECK(tensor_make(&result, 13 * MIB / 2, n));
        op_close(&op);
        CHECK(tensor_right(&input, input.own));
        tensor_free(&result);
        tensor_free(&input);
        for (unsigned i = 0; i < 24; i++)
            op_read(&weights[i]);
        if (n == 29)
            plans = e->plans;
    }
    CHECK(plans > 0 && e->plans <= plans + 2);
}

IN_A_CHILD(another_disk, 60)
IN_A_CHILD(other_operators, 60)
IN_A_CHILD(not_at_once, 60)
IN_A_CHILD(too_little_room, 60)
IN_A_CHILD(room_for_what_leaves, 60)

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_another_disk),         cmocka_unit_test(test_other_operators),
        cmocka_unit_test(test_not_at_once),          cmocka_unit_test(test_too_little_room),
        cmocka_unit_test(test_room_for_what_leaves),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
