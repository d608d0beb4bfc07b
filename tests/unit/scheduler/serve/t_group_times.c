/* What layer groups cost is learned from their runs: the first one sets it, later ones move it. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "scheduler/policies/server.h"
#include "scheduler/serve/group_times.h"

#define MS UINT64_C(1000000)
#define MIB (UINT64_C(1) << 20)

static struct swn_group_times times;
static struct swn_lane_group now[SWN_GROUPS_MOST];

static int forget(void **state)
{
    (void)state;
    memset(&times, 0, sizeof times);
    return 0;
}

static void run(uint32_t group, uint32_t groups, uint64_t ns, uint64_t wait)
{
    swn_group_times_ran(&times, &(struct swn_group_run){.group = group, .groups = groups, .ns = ns, .wait_ns = wait});
}

static void test_first_run_sets_and_later_ones_move(void **state)
{
    (void)state;
    run(0, 2, 10 * MS, 4 * MS);
    assert_int_equal(swn_group_times_now(&times, 0, 0, now), 2);
    assert_int_equal(now[0].compute_ns, 6 * MS);
    run(0, 2, 2 * MS, 0);
    swn_group_times_now(&times, 0, 0, now);
    assert_int_equal(now[0].compute_ns, 5 * MS);
    assert_int_equal(now[1].compute_ns, 1); /* it has not run, and reads nothing */
}

static void test_nothing_has_run_so_all_is_read(void **state)
{
    (void)state;
    assert_int_equal(swn_group_times_now(&times, 8 * MIB, 5, now), 1);
    assert_int_equal(now[0].weight_bytes, 8 * MIB);
    assert_int_equal(now[0].missing_bytes, 8 * MIB);
    assert_true(now[0].compute_ns > 0);
}

static void test_a_new_division_keeps_the_whole(void **state)
{
    (void)state;
    run(0, 2, 10 * MS, 0);
    run(1, 2, 30 * MS, 0);
    run(0, 4, 12 * MS, 0);
    assert_int_equal(swn_group_times_now(&times, 0, 0, now), 4);
    assert_int_equal(now[0].compute_ns, 12 * MS); /* it has run */
    assert_int_equal(now[1].compute_ns, 10 * MS); /* a quarter of all */
}

static void test_what_others_read_took_the_place_of_weights(void **state)
{
    const struct swn_wire_group weights[] = {{.bytes = 8 * MIB, .in_memory = 8 * MIB, .identity = 3},
                                             {.bytes = 4 * MIB, .in_memory = MIB, .dense = 3 * MIB}};

    (void)state;
    swn_group_times_weigh(&times, weights, 2, 100 * MIB);
    swn_group_times_now(&times, 0, 100 * MIB, now);
    assert_int_equal(now[0].missing_bytes, 0);
    assert_int_equal(now[1].missing_bytes, 3 * MIB);
    assert_int_equal(now[0].identity, 3);
    assert_int_equal(now[1].identity, 0);
    assert_int_equal(now[0].dense_bytes, 0);
    assert_int_equal(now[1].dense_bytes, 3 * MIB);
    swn_group_times_now(&times, 0, 106 * MIB, now); /* 4 of the 6 took from the group of 8 */
    assert_in_range(now[0].missing_bytes, 4 * MIB - 1, 4 * MIB);
    assert_int_equal(now[1].missing_bytes, 4 * MIB); /* it had one */
    swn_group_times_now(&times, 0, UINT64_MAX, now);
    assert_int_equal(now[0].missing_bytes, 8 * MIB);
    run(1, 2, MS, 0); /* a run leaves alone what was weighed */
    swn_group_times_now(&times, 0, 100 * MIB, now);
    assert_int_equal(now[1].missing_bytes, 3 * MIB);
    assert_int_equal(now[1].compute_ns, MS);
}

static void test_what_requests_need_is_what_the_engine_says(void **state)
{
    const struct swn_wire_group seen[] = {
        {.bytes = MIB, .in_memory = MIB, .activation_bytes = 9 * MIB, .state_bytes = MIB},
        {.bytes = MIB, .in_memory = MIB, .activation_bytes = 7 * MIB, .state_bytes = 5 * MIB}};
    const struct swn_wire_group partly[] = {
        {.bytes = MIB, .in_memory = MIB, .activation_bytes = 9 * MIB, .state_bytes = MIB},
        {.bytes = MIB, .in_memory = MIB}};
    const struct swn_wire_group anew[] = {
        {.bytes = MIB, .in_memory = MIB}, {.bytes = MIB, .in_memory = MIB}, {.bytes = MIB, .in_memory = MIB}};

    (void)state;
    swn_group_times_now(&times, MIB, 0, now);
    assert_true(now[0].activation_bytes == SWN_LANE_NOT_KNOWN);
    swn_group_times_weigh(&times, partly, 2, 0);
    swn_group_times_now(&times, 0, 0, now);
    assert_int_equal(now[0].activation_bytes, 9 * MIB);
    assert_int_equal(now[0].state_bytes, 0); /* nothing has begun there */
    assert_true(now[1].activation_bytes == SWN_LANE_NOT_KNOWN);
    swn_group_times_weigh(&times, seen, 2, 0);
    swn_group_times_now(&times, 0, 0, now);
    assert_int_equal(now[1].activation_bytes, 7 * MIB);
    assert_int_equal(now[1].state_bytes, 5 * MIB);
    swn_group_times_weigh(&times, anew, 3, 0);
    swn_group_times_now(&times, 0, 0, now);
    assert_true(now[2].activation_bytes == SWN_LANE_NOT_KNOWN);
    swn_group_times_ran(&times, &(struct swn_group_run){.group = 2, .groups = 3, .ns = MS, .output_bytes = 3 * MIB});
    swn_group_times_ran(&times, &(struct swn_group_run){.group = 2, .groups = 3, .ns = MS, .output_bytes = MIB});
    assert_int_equal(times.output_bytes, 3 * MIB);
}

static void test_large_groups_are_streamed(void **state)
{
    (void)state;
    assert_int_equal(swn_lane_window(MIB, 0), MIB); /* no bound */
    assert_int_equal(swn_lane_window(MIB, 80 * MIB), MIB);
    assert_int_equal(swn_lane_window(400 * MIB, 80 * MIB), 10 * MIB);
    assert_int_equal(swn_lane_window(0, 80 * MIB), 0);
}

static void test_what_was_read_ahead_is_there(void **state)
{
    const struct swn_wire_group weights[] = {{.bytes = 8 * MIB}, {.bytes = 8 * MIB, .in_memory = 4 * MIB}};
    struct swn_group_times other = {0};
    const struct swn_group_ahead ahead[] = {{&times, 1}, {&other, 0}, {&times, 7}, {&times, 0}};

    (void)state;
    swn_group_times_weigh(&times, weights, 2, 100 * MIB);
    swn_group_times_weigh(&other, weights, 2, 100 * MIB);
    /* Two MiB of the four that were there had left before. */
    swn_group_times_ahead(ahead, 4, 102 * MIB, 120 * MIB, 18 * MIB);
    swn_group_times_now(&times, 0, 120 * MIB, now);
    assert_int_equal(now[1].missing_bytes, 0); /* 5 of the 18 */
    assert_int_equal(now[0].missing_bytes, 3 * MIB);
    swn_group_times_now(&other, 0, 120 * MIB, now);
    assert_int_equal(now[0].missing_bytes, 0); /* 8 of them */
    assert_int_equal(now[1].missing_bytes, 5 * MIB);
    swn_group_times_ahead(ahead, 1, 120 * MIB, 121 * MIB, UINT64_MAX);
    swn_group_times_now(&times, 0, 121 * MIB, now);
    assert_int_equal(now[0].missing_bytes, 3 * MIB); /* it was none of those */
}

static void test_what_the_engine_says_of_other_models_counts(void **state)
{
    const struct swn_wire_group weights[] = {{.bytes = 8 * MIB, .in_memory = 8 * MIB},
                                             {.bytes = 8 * MIB, .in_memory = 8 * MIB}};

    (void)state;
    swn_group_times_weigh(&times, weights, 2, 100 * MIB);
    swn_group_times_now(&times, 0, 108 * MIB, now);
    assert_int_equal(now[0].missing_bytes, 4 * MIB); /* as nobody knows whose place was taken */
    swn_group_times_place(&times, 1, 8 * MIB, 108 * MIB);
    swn_group_times_now(&times, 0, 108 * MIB, now);
    assert_int_equal(now[0].missing_bytes, 4 * MIB);
    assert_int_equal(now[1].missing_bytes, 0);
    swn_group_times_place(&times, 0, UINT64_MAX, 108 * MIB); /* more than there is */
    swn_group_times_place(&times, 2, 0, 108 * MIB);
    swn_group_times_place(&times, UINT32_MAX, 0, 108 * MIB);
    swn_group_times_now(&times, 0, 108 * MIB, now);
    assert_int_equal(now[0].missing_bytes, 0);
    swn_group_times_place(&times, 0, MIB, 108 * MIB);
    swn_group_times_now(&times, 0, 108 * MIB, now);
    assert_int_equal(now[0].missing_bytes, 7 * MIB);
}

/* An engine is not believed: no number that it sends writes beyond the groups. */
static void test_numbers_out_of_range_are_left_aside(void **state)
{
    const struct swn_wire_group more[] = {
        {.bytes = 1, .in_memory = UINT64_MAX, .activation_bytes = UINT64_MAX, .state_bytes = UINT64_MAX},
        {.bytes = 1, .activation_bytes = UINT64_MAX, .state_bytes = UINT64_MAX}};

    (void)state;
    run(0, 0, MS, 0);
    run(7, 7, MS, 0);
    run(UINT32_MAX, UINT32_MAX, MS, 0);
    swn_group_times_weigh(&times, more, 0, 0);
    assert_int_equal(times.count, 0);
    run(SWN_GROUPS_MOST - 1, UINT32_MAX, MS, UINT64_MAX);
    assert_int_equal(swn_group_times_now(&times, 0, 0, now), SWN_GROUPS_MOST);
    assert_int_equal(now[SWN_GROUPS_MOST - 1].compute_ns, 0); /* it waited longer than it took */
    swn_group_times_weigh(&times, more, 2, 0);
    run(6, 7, MS, 0); /* of an older division */
    assert_int_equal(times.count, 2);
    swn_group_times_now(&times, 0, UINT64_MAX, now);
    assert_int_equal(now[0].missing_bytes, 1);
}

/* Two at once take half the time that they take alone, eight a quarter, four more than that. */
static void test_a_curve_is_what_the_engine_joins(void **state)
{
    static const unsigned expected[] = {0, 8, 8, 16, 16, 24, 24, 32, 16, 24, 24, 32};
    const struct swn_wire_group weights[] = {
        {.bytes = 1, .in_memory = 1, .alone_ns = 100, .joined_ns = {100, 500, 200}},
        {.bytes = 1, .in_memory = 1, .alone_ns = 100},
        {.bytes = 1, .in_memory = 1, .alone_ns = 0, .joined_ns = {UINT64_MAX, UINT64_MAX, 1, 1, 1}},
        {.bytes = 1, .in_memory = 1, .alone_ns = UINT64_MAX, .joined_ns = {1, UINT64_MAX, 0, 1, UINT64_MAX}}};
    uint64_t curve[SWN_CURVE_MOST];

    (void)state;
    swn_group_times_weigh(&times, weights, 4, 0);
    assert_int_equal(swn_group_times_curve(&times, 0, 8 * MS, curve), 1);
    for (unsigned n = 1; n < sizeof expected / sizeof *expected; n++)
        assert_int_equal(curve[n - 1], expected[n] * MS);
    assert_int_equal(curve[SWN_CURVE_MOST - 1], 4 * 16 * MS);
    assert_int_equal(swn_group_times_curve(&times, 1, 8 * MS, curve), 0);
    assert_int_equal(swn_group_times_curve(&times, 2, 8 * MS, curve), 0);
    swn_group_times_curve(&times, 3, UINT64_MAX, curve);
    for (unsigned n = 0; n < SWN_CURVE_MOST; n++)
        assert_true(curve[n] <= UINT64_C(9000000000000000000));
    run(0, 4, 10 * MS, 0);
    swn_group_times_ran(&times, &(struct swn_group_run){.group = 0, .groups = 4, .ns = MS, .is_joined = 1});
    swn_group_times_now(&times, 0, 0, now);
    assert_int_equal(now[0].compute_ns, 10 * MS); /* a part of a joined run is not what a request takes alone */
    run(0, 3, 10 * MS, 0);
    swn_group_times_weigh(&times, weights, 3, 0); /* divided anew */
    assert_int_equal(swn_group_times_curve(&times, 1, 8 * MS, curve), 0);
}

static void test_the_disk_is_known_from_runs_that_waited(void **state)
{
    struct swn_disk_rate r = {.bytes_per_ns = 0};

    (void)state;
    assert_true(swn_disk_rate(&r) > 0); /* a guess */
    swn_disk_rate_add(&r, &(struct swn_group_run){.ns = 100 * MS, .wait_ns = MS, .read_bytes = 100 * MIB});
    swn_disk_rate_add(&r, &(struct swn_group_run){.ns = 100, .wait_ns = 100, .read_bytes = 10});
    swn_disk_rate_add(&r, &(struct swn_group_run){.ns = 0, .wait_ns = 1, .read_bytes = 100 * MIB});
    assert_true(r.bytes_per_ns == 0); /* the first was held up by computing, the second is too small */
    swn_disk_rate_add(&r, &(struct swn_group_run){.ns = 2 * MIB, .wait_ns = MIB, .read_bytes = 2 * MIB});
    assert_true(swn_disk_rate(&r) == 1.0);
    swn_disk_rate_add(&r, &(struct swn_group_run){.ns = MIB, .wait_ns = MIB, .read_bytes = 2 * MIB});
    assert_true(swn_disk_rate(&r) == 1.25);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(test_first_run_sets_and_later_ones_move, forget),
        cmocka_unit_test_setup(test_nothing_has_run_so_all_is_read, forget),
        cmocka_unit_test_setup(test_a_new_division_keeps_the_whole, forget),
        cmocka_unit_test_setup(test_what_others_read_took_the_place_of_weights, forget),
        cmocka_unit_test_setup(test_what_requests_need_is_what_the_engine_says, forget),
        cmocka_unit_test(test_large_groups_are_streamed),
        cmocka_unit_test_setup(test_what_was_read_ahead_is_there, forget),
        cmocka_unit_test_setup(test_what_the_engine_says_of_other_models_counts, forget),
        cmocka_unit_test_setup(test_numbers_out_of_range_are_left_aside, forget),
        cmocka_unit_test_setup(test_a_curve_is_what_the_engine_joins, forget),
        cmocka_unit_test(test_the_disk_is_known_from_runs_that_waited),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
