/* Turns that compute less than their way to the engine takes are filled with requests of the same group. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "scheduler/policies/policy.h"
#include "tests/unit/support/lane_fixture.h"

static struct swn_lane_decision decision;
static struct lane_scene scene;

/* Two models of two groups, which take 10 us each and whose weights are in memory; ten requests in turns. */
static int make(void **state)
{
    lane_scene_init(&scene, 2, 2, LANE_DISK);
    for (unsigned m = 0; m < 2; m++)
        for (unsigned g = 0; g < 2; g++)
            scene.groups[m][g] = (struct swn_lane_group){.compute_ns = 10000, .weight_bytes = 1000};
    scene.state.now_ns = 1000000;
    scene.state.last_model = 0;
    for (unsigned i = 0; i < 10; i++)
        lane_scene_add(&scene, i % 2, 0, 1000 * i, 0);
    return lane_scratch_make(state);
}

static void decide(enum swn_lane_policy policy)
{
    assert_int_equal(swn_lane_decide(policy, &scene.state, lane_scratch, &decision), 0);
    lane_check(&scene, &decision);
}

static void assert_members(uint32_t count)
{
    assert_int_equal(decision.member_count, count);
    for (uint32_t i = 0; i < count; i++) {
        assert_int_equal(scene.requests[decision.members[i]].model, decision.model);
        assert_int_equal(scene.requests[decision.members[i]].group, decision.group);
        for (uint32_t k = 0; k < i; k++)
            assert_int_not_equal(decision.members[i], decision.members[k]);
    }
}

static void a_short_turn_is_filled_with_its_group(void **state)
{
    (void)state;
    decide(SWN_LANE_COMPLETION);
    assert_members(1); /* computing gains nothing by waiting for others */
    scene.state.turn_ns = 100000;
    decide(SWN_LANE_COMPLETION);
    assert_members(5); /* all of the model */
    scene.requests[decision.members[4]].group = 1;
    decide(SWN_LANE_EDF);
    assert_true(decision.member_count < 5);
}

static void no_further_than_its_time(void **state)
{
    (void)state;
    scene.state.turn_ns = 39999;
    decide(SWN_LANE_COMPLETION);
    assert_members(3);
    scene.state.turn_ns = 9999;
    decide(SWN_LANE_COMPLETION);
    assert_members(1);
    scene.state.turn_ns = 100000;
    scene.state.batch_most = 2;
    decide(SWN_LANE_COMPLETION);
    assert_members(2);
}

static void one_that_is_too_late_does_not_join(void **state)
{
    (void)state;
    scene.state.turn_ns = 100000;
    scene.requests[4].deadline_ns = 1;
    decide(SWN_LANE_EDF);
    assert_int_equal(decision.dropped_count, 1);
    assert_int_equal(decision.dropped[0], 4);
    assert_members(decision.model ? 5 : 4);
}

static void nothing_joins_while_times_are_not_known(void **state)
{
    (void)state;
    scene.state.turn_ns = 100000;
    for (unsigned m = 0; m < 2; m++)
        scene.groups[m][0].compute_ns = 0;
    decide(SWN_LANE_TARDY);
    assert_members(1);
}

static void other_servers_turns_are_theirs(void **state)
{
    (void)state;
    scene.state.turn_ns = 100000;
    decide(SWN_LANE_NO_BATCH);
    assert_members(1);
}

/* The fifth request's state would leave no room to run the others to their ends. */
static void memory_is_a_bound(void **state)
{
    (void)state;
    for (unsigned m = 0; m < 2; m++)
        for (unsigned g = 0; g < 2; g++) {
            scene.groups[m][g].activation_bytes = 2000;
            scene.groups[m][g].state_bytes = g ? 1000 : 0;
        }
    scene.state.turn_ns = 100000;
    scene.state.memory_bytes = 1000 + 2000 + 3 * 1000;
    decide(SWN_LANE_COMPLETION);
    assert_true(decision.member_count > 1 && decision.member_count < 5);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(a_short_turn_is_filled_with_its_group, make, lane_scratch_done),
        cmocka_unit_test_setup_teardown(no_further_than_its_time, make, lane_scratch_done),
        cmocka_unit_test_setup_teardown(one_that_is_too_late_does_not_join, make, lane_scratch_done),
        cmocka_unit_test_setup_teardown(nothing_joins_while_times_are_not_known, make, lane_scratch_done),
        cmocka_unit_test_setup_teardown(other_servers_turns_are_theirs, make, lane_scratch_done),
        cmocka_unit_test_setup_teardown(memory_is_a_bound, make, lane_scratch_done),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
