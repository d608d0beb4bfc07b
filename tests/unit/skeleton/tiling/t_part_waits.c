/* Description: while parts are computed, and once a yield has given a processor away, a thread that waits for another
 * one keeps its processor for a moment, and then sleeps; at all other times sched_yield is what it was. */
/* wraps: swn_now_ns */
#define _GNU_SOURCE
#include "skeleton/tiling/part_waits.h"

#include <errno.h>
#include <sched.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/resource.h>

#include <cmocka.h>

#define US ((uint64_t)1000)

/* Each look at the clock takes so long. */
static uint64_t clock_ns = 1000000 * US, tick_ns;

uint64_t __wrap_swn_now_ns(void);
uint64_t __wrap_swn_now_ns(void)
{
    return clock_ns += tick_ns;
}

/* A page that is not in memory may make a thread sleep, too. */
#define A_FEW 5

static long times_asleep(void)
{
    struct rusage use;
    assert_int_equal(getrusage(RUSAGE_THREAD, &use), 0);
    return use.ru_nvcsw;
}

static unsigned processors(void)
{
    cpu_set_t set;
    assert_int_equal(sched_getaffinity(0, sizeof set, &set), 0);
    return (unsigned)CPU_COUNT(&set);
}

static void nothing_without_parts(void **state)
{
    (void)state;
    assert_int_equal(swn_part_wait(), 0);
    swn_parts_end(0);
    assert_int_equal(swn_part_wait(), 0);
}

static void as_long_as_an_operator_computes(void **state)
{
    (void)state;
    if (processors() < 2)
        skip();
    int outer = swn_parts_begin(2), inner = swn_parts_begin(2);
    assert_true(outer && inner);
    assert_int_equal(swn_part_wait(), 1);
    swn_parts_end(inner);
    assert_int_equal(swn_part_wait(), 1);
    swn_parts_end(outer);
    assert_int_equal(swn_part_wait(), 0);
}

static void not_with_more_threads_than_processors(void **state)
{
    (void)state;
    int alone = swn_parts_begin(1), many = swn_parts_begin(processors() + 1);
    assert_false(alone || many);
    assert_int_equal(swn_part_wait(), 0);
    swn_parts_end(alone);
    swn_parts_end(many);
    cpu_set_t before, one;
    assert_int_equal(sched_getaffinity(0, sizeof before, &before), 0);
    CPU_ZERO(&one);
    int here = sched_getcpu();
    assert_true(here >= 0);
    CPU_SET((size_t)here, &one);
    assert_int_equal(sched_setaffinity(0, sizeof one, &one), 0);
    assert_false(swn_parts_begin(2));
    assert_int_equal(sched_setaffinity(0, sizeof before, &before), 0);
}

static void yields_while_nobody_else_computes(void **state)
{
    (void)state;
    if (processors() < 2)
        skip();
    int begun = swn_parts_begin(2);
    long asleep = times_asleep();
    tick_ns = 10 * US;
    for (int i = 0; i < 1000; i++)
        assert_int_equal(swn_part_wait(), 1);
    assert_in_range(times_asleep(), asleep, asleep + A_FEW);
    swn_parts_end(begun);
}

static void stays_awake_and_then_sleeps_where_others_compute(void **state)
{
    (void)state;
    if (processors() < 2)
        skip();
    int begun = swn_parts_begin(2);
    tick_ns = 1000 * US; /* a yield that gave the processor away */
    assert_int_equal(swn_part_wait(), 1);
    long asleep = times_asleep();
    tick_ns = 10 * US;
    errno = ENOTTY;
    for (int i = 0; i < 10; i++)
        assert_int_equal(swn_part_wait(), 1);
    assert_in_range(times_asleep(), asleep, asleep + A_FEW); /* 0.1 ms */
    asleep = times_asleep();
    for (int i = 0; i < 100; i++)
        assert_int_equal(swn_part_wait(), 1);
    assert_true(times_asleep() > asleep + 50);
    assert_int_equal(errno, ENOTTY);
    asleep = times_asleep();
    clock_ns += 100 * US; /* computes, and waits again */
    for (int i = 0; i < 10; i++)
        assert_int_equal(swn_part_wait(), 1);
    assert_in_range(times_asleep(), asleep, asleep + A_FEW);
    clock_ns += 600000 * US; /* half a second later it yields, to see whether others still compute */
    for (int i = 0; i < 1000; i++)
        assert_int_equal(swn_part_wait(), 1);
    assert_in_range(times_asleep(), asleep, asleep + A_FEW);
    swn_parts_end(begun);
}

static void a_forked_child_begins_anew(void **state)
{
    (void)state;
    if (processors() < 2)
        skip();
    assert_true(swn_parts_begin(2));
    swn_parts_fork_child();
    assert_int_equal(swn_part_wait(), 0);
    swn_parts_end(1); /* of the parent's operator, if a handler has forked */
    assert_int_equal(swn_part_wait(), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(nothing_without_parts),
        cmocka_unit_test(as_long_as_an_operator_computes),
        cmocka_unit_test(not_with_more_threads_than_processors),
        cmocka_unit_test(yields_while_nobody_else_computes),
        cmocka_unit_test(stays_awake_and_then_sleeps_where_others_compute),
        cmocka_unit_test(a_forked_child_begins_anew),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
