/* Whether requests are joined, from what is known: each rule by itself, and what runs teach. */
#define _GNU_SOURCE
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "skeleton/tape/join.h"

#define MS UINT64_C(1000000)

/* One request takes 8 ms; all numbers of requests have equal bits, and take half the time. */
static struct swn_join_group gainful(void)
{
    struct swn_join_group g = {.alone_ns = 8 * MS, .peak_bytes = 1000};

    for (unsigned i = 0; i < SWN_JOIN_SIZES; i++)
        g.of[i] = (struct swn_join_case){.verdict = SWN_JOIN_EQUAL, .ns = swn_join_size(i) * 4 * MS};
    return g;
}

static const struct swn_join_limits plenty = {
    .bits = SWN_JOIN_EXACT, .batch_most = 1000, .samples = 1, .room_bytes = UINT64_MAX};

static uint32_t chosen(const struct swn_join_group *g, struct swn_join_limits limits, uint32_t count)
{
    unsigned which = 99;
    uint32_t n = swn_join_choose(g, &limits, count, &which);

    if (n > 1)
        assert_int_equal(swn_join_size(which), n);
    return n;
}

static void test_the_largest_number_that_waits(void **state)
{
    static const uint32_t expected[] = {1, 1, 2, 2, 4, 4, 4, 4, 8};
    struct swn_join_group g = gainful();

    (void)state;
    for (uint32_t n = 0; n < sizeof expected / sizeof *expected; n++)
        assert_int_equal(chosen(&g, plenty, n), expected[n]);
    assert_int_equal(chosen(&g, plenty, 31), 16);
    assert_int_equal(chosen(&g, plenty, 1000), 32);
}

/* rows: verdict; columns: exact, batch */
static void test_verdicts(void **state)
{
    static const uint32_t expected[][2] = {[SWN_JOIN_UNTRIED] = {1, 2},
                                           [SWN_JOIN_EQUAL] = {2, 2},
                                           [SWN_JOIN_DIFFERS] = {1, 2},
                                           [SWN_JOIN_CANNOT] = {1, 1}};

    (void)state;
    for (unsigned verdict = SWN_JOIN_UNTRIED; verdict <= SWN_JOIN_CANNOT; verdict++)
        for (unsigned bits = SWN_JOIN_EXACT; bits <= SWN_JOIN_BATCH; bits++) {
            struct swn_join_group g = gainful();
            struct swn_join_limits limits = plenty;
            g.of[0].verdict = (enum swn_join_verdict)verdict;
            limits.bits = (enum swn_join_bits)bits;
            assert_int_equal(chosen(&g, limits, 3), expected[verdict][bits]);
        }
}

static void test_a_number_that_may_not_leaves_room_for_smaller_ones(void **state)
{
    struct swn_join_group g = gainful();

    (void)state;
    g.of[1].verdict = SWN_JOIN_DIFFERS; /* four, but not two and eight */
    assert_int_equal(chosen(&g, plenty, 7), 2);
    assert_int_equal(chosen(&g, plenty, 8), 8);
}

static void test_limits(void **state)
{
    struct swn_join_group g = gainful();
    struct swn_join_limits limits = plenty;

    (void)state;
    limits.batch_most = 8;
    assert_int_equal(chosen(&g, limits, 32), 8);
    limits.samples = 3;
    assert_int_equal(chosen(&g, limits, 32), 2);
    limits.samples = UINT64_MAX / 2;
    assert_int_equal(chosen(&g, limits, 32), 1);
    limits.samples = 0;
    assert_int_equal(chosen(&g, limits, 32), 1);
    limits = plenty;
    limits.room_bytes = 4000;
    assert_int_equal(chosen(&g, limits, 32), 4);
    limits.room_bytes = 1999;
    assert_int_equal(chosen(&g, limits, 32), 1);
    g.peak_bytes = UINT64_MAX;
    limits.room_bytes = UINT64_MAX - 1;
    assert_int_equal(chosen(&g, limits, 32), 1);
}

static void test_a_trial_needs_room_and_time(void **state)
{
    struct swn_join_group g = {.alone_ns = 100 * MS, .peak_bytes = 1000};
    struct swn_join_limits limits = plenty;

    (void)state;
    assert_true(swn_join_may_try(&g, 2, &limits)); /* whatever is known of bits */
    assert_false(swn_join_may_try(&g, 3, &limits));
    g.alone_ns = MS;
    assert_true(swn_join_may_try(&g, 3, &limits));
    limits.room_bytes = 15999;
    assert_false(swn_join_may_try(&g, 3, &limits));
    assert_true(swn_join_may_try(&g, 2, &limits));
    limits.batch_most = 7;
    assert_false(swn_join_may_try(&g, 2, &limits));
    limits.samples = 0;
    assert_false(swn_join_may_try(&g, 0, &limits));
    limits = plenty;
    g.peak_bytes = UINT64_MAX;
    limits.room_bytes = UINT64_MAX - 1;
    assert_false(swn_join_may_try(&g, 0, &limits));
}

static void test_only_where_it_takes_less_time(void **state)
{
    struct swn_join_group g = gainful();

    (void)state;
    g.of[0].ns = 15 * MS;
    assert_int_equal(chosen(&g, plenty, 3), 2);
    g.of[0].ns = 15 * MS + 1; /* a sixteenth is the least */
    assert_int_equal(chosen(&g, plenty, 3), 1);
    g = gainful();
    g.alone_ns = 0; /* nothing has run */
    assert_int_equal(chosen(&g, plenty, 32), 1);
    g = gainful();
    g.alone_ns = 200 * MS; /* no request waits for others for longer than a second */
    for (unsigned i = 0; i < SWN_JOIN_SIZES; i++)
        g.of[i].ns = swn_join_size(i) * 100 * MS;
    assert_int_equal(chosen(&g, plenty, 32), 8);
}

static void test_what_was_not_measured_is_tried(void **state)
{
    struct swn_join_group g = {.alone_ns = 8 * MS};
    struct swn_join_limits limits = plenty;

    (void)state;
    limits.bits = SWN_JOIN_BATCH;
    assert_int_equal(chosen(&g, limits, 4), 4);
    assert_int_equal(swn_join_expected_ns(&g, 1), 28 * MS);
    swn_join_ran(&g.of[1], 900 * MS); /* which prepared kernels */
    assert_int_equal(chosen(&g, limits, 4), 4);
    swn_join_ran(&g.of[1], 31 * MS);
    assert_int_equal(chosen(&g, limits, 4), 2);
    swn_join_ran(&g.of[1], 16 * MS);
    assert_int_equal(chosen(&g, limits, 4), 4);
    swn_join_ran(&g.of[1], 24 * MS); /* somebody else had the processor, perhaps */
    assert_int_equal(g.of[1].ns, 17 * MS);
}

static void test_failures_in_a_row_end_it(void **state)
{
    struct swn_join_group g = gainful();

    (void)state;
    for (int i = 0; i < 10; i++) {
        swn_join_failed(&g.of[0]);
        swn_join_failed(&g.of[0]);
        assert_int_equal(chosen(&g, plenty, 2), 2);
        swn_join_ran(&g.of[0], 8 * MS);
    }
    for (int i = 0; i < SWN_JOIN_FAILURES; i++)
        swn_join_failed(&g.of[0]);
    assert_int_equal(g.of[0].verdict, SWN_JOIN_CANNOT);
    assert_int_equal(chosen(&g, plenty, 2), 1);
}

static void test_times_alone_are_learned(void **state)
{
    struct swn_join_group g = {0};

    (void)state;
    swn_join_ran_alone(&g, 100 * MS);
    assert_int_equal(g.alone_ns, 0);
    swn_join_ran_alone(&g, 8 * MS);
    assert_int_equal(g.alone_ns, 8 * MS);
    swn_join_ran_alone(&g, 16 * MS);
    assert_int_equal(g.alone_ns, 9 * MS);
    swn_join_ran_alone(&g, 5 * MS);
    assert_int_equal(g.alone_ns, 5 * MS);
}

static void test_what_took_too_long_is_tried_again(void **state)
{
    struct swn_join_group g = gainful();
    unsigned runs = 0;

    (void)state;
    g.of[0].ns = 20 * MS; /* in turn 16 */
    for (; chosen(&g, plenty, 2) == 1 && runs < 1000; runs++)
        swn_join_ran_alone(&g, 8 * MS);
    assert_in_range(runs, 50, 100);
    swn_join_ran(&g.of[0], 20 * MS);
    swn_join_ran(&g.of[0], 20 * MS);
    assert_int_equal(chosen(&g, plenty, 2), 1);
    for (int i = 0; i < 1000; i++)
        swn_join_ran_alone(&g, 8 * MS);
    assert_in_range(g.of[0].ns, 14 * MS, 15 * MS); /* nothing is forgotten of what is allowed */
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_the_largest_number_that_waits),
        cmocka_unit_test(test_verdicts),
        cmocka_unit_test(test_a_number_that_may_not_leaves_room_for_smaller_ones),
        cmocka_unit_test(test_limits),
        cmocka_unit_test(test_a_trial_needs_room_and_time),
        cmocka_unit_test(test_only_where_it_takes_less_time),
        cmocka_unit_test(test_what_was_not_measured_is_tried),
        cmocka_unit_test(test_failures_in_a_row_end_it),
        cmocka_unit_test(test_times_alone_are_learned),
        cmocka_unit_test(test_what_took_too_long_is_tried_again),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
