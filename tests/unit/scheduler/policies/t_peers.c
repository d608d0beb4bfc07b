/* Description: the policies of other servers do what their papers and manuals say, case by case. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "scheduler/policies/policy.h"
#include "tests/unit/support/lane_fixture.h"

static struct swn_lane_decision decision;
static struct lane_scene scene;

/* Two groups of 100 each for one request, n * 100 for a batch; at 10000. */
static void init(void)
{
    lane_scene_init(&scene, 2, 2, LANE_CPU);
    for (unsigned m = 0; m < 2; m++)
        for (unsigned g = 0; g < 2; g++)
            scene.groups[m][g] = (struct swn_lane_group){.compute_ns = 10000};
    scene.state.now_ns = 1000000;
}

static void expect(enum swn_lane_policy policy, uint32_t group, uint32_t members, uint64_t wake_ns)
{
    assert_int_equal(swn_lane_decide(policy, &scene.state, lane_scratch, &decision), 0);
    assert_int_equal(decision.member_count, members);
    assert_int_equal(decision.group, group);
    assert_int_equal(decision.wake_ns, wake_ns);
}

static void dynamic_waits_for_a_full_batch(void **state)
{
    (void)state;
    init();
    scene.state.batch_most = 3;
    scene.models[0].batch_delay_ns = scene.models[1].batch_delay_ns = 50000;
    lane_scene_add(&scene, 0, 0, 990000, 0);
    lane_scene_add(&scene, 0, 0, 995000, 0);
    expect(SWN_LANE_DYNAMIC, 0, 0, 1040000);
    scene.state.now_ns = 1040000;
    expect(SWN_LANE_DYNAMIC, 0, 2, 0);
    scene.state.now_ns = 1000000;
    lane_scene_add(&scene, 0, 0, 996000, 0);
    lane_scene_add(&scene, 0, 0, 997000, 0);
    expect(SWN_LANE_DYNAMIC, 0, 3, 0);
    scene.requests[0].group = scene.requests[1].group = 1; /* a closed batch: nobody joins */
    lane_scene_add(&scene, 1, 0, 900000, 0);
    expect(SWN_LANE_DYNAMIC, 1, 2, 0);
    assert_int_equal(decision.members[0], 0);
    scene.requests[0].group = scene.requests[1].group = 0;
    scene.state.request_count = 0;
    lane_scene_add(&scene, 0, 0, 1000000, 0); /* another model's queue is due before */
    lane_scene_add(&scene, 1, 0, 999000, 0);
    expect(SWN_LANE_DYNAMIC, 0, 0, 1049000);
}

static void dynamic_has_the_terms_of_each_model(void **state)
{
    (void)state;
    init();
    scene.models[0].batch_delay_ns = 50000;
    scene.models[0].batch_full = 2;
    scene.models[1].batch_delay_ns = 20000;
    lane_scene_add(&scene, 0, 0, 990000, 0);
    lane_scene_add(&scene, 1, 0, 991000, 0);
    expect(SWN_LANE_DYNAMIC, 0, 0, 1011000); /* the second model's is due first */
    scene.state.now_ns = 1011000;
    expect(SWN_LANE_DYNAMIC, 0, 1, 0);
    assert_int_equal(decision.members[0], 1);
    scene.state.now_ns = 1000000;
    lane_scene_add(&scene, 0, 0, 992000, 0);
    lane_scene_add(&scene, 0, 0, 993000, 0);
    expect(SWN_LANE_DYNAMIC, 0, 2, 0); /* it is full, and the third one is left for the next batch */
    assert_int_equal(decision.members[1], 2);
}

static void lazy_lets_requests_catch_up(void **state)
{
    (void)state;
    init();
    lane_scene_add(&scene, 0, 1, 900000, 1040000);
    lane_scene_add(&scene, 0, 0, 990000, 1100000);
    expect(SWN_LANE_LAZY, 0, 1, 0); /* 10000 to catch up, 20000 together: both are on time */
    assert_int_equal(decision.members[0], 1);
    scene.requests[0].deadline_ns = 1029000;
    expect(SWN_LANE_LAZY, 1, 1, 0); /* one would be late */
    assert_int_equal(decision.members[0], 0);
    scene.requests[0].deadline_ns = 1030000;
    lane_scene_add(&scene, 0, 0, 990000, 1200000); /* the second one of those who wait is too many */
    expect(SWN_LANE_LAZY, 0, 1, 0);
    scene.requests[0].group = 0;
    scene.requests[0].deadline_ns = 0;
    expect(SWN_LANE_LAZY, 0, 3, 0); /* nothing has begun */
}

static void nexus_drops_early(void **state)
{
    (void)state;
    init();
    for (unsigned i = 0; i < 4; i++) /* 100000 in all: a batch of two takes 40000, of three 60000; so the target is 2 */
        lane_scene_add(&scene, 0, 0, 940000 + 10000 * i, 1040000 + 10000 * i);
    scene.requests[0].arrived_ns -= 15000;
    scene.requests[0].deadline_ns -= 15000; /* alone it would do */
    expect(SWN_LANE_NEXUS, 0, 2, 0);
    assert_int_equal(decision.dropped_count, 1);
    assert_int_equal(decision.dropped[0], 0);
    assert_int_equal(decision.members[0], 1);
    assert_int_equal(decision.members[1], 2);
}

static void symphony_starts_late(void **state)
{
    (void)state;
    init();
    lane_scene_add(&scene, 0, 0, 990000, 1200000);
    lane_scene_add(&scene, 0, 0, 995000, 1300000);
    expect(SWN_LANE_SYMPHONY, 0, 0, 1140000); /* three would take 60000 */
    scene.state.time_error = 0.5;
    expect(SWN_LANE_SYMPHONY, 0, 0, 1110000);
    scene.state.time_error = 0;
    scene.state.now_ns = 1140000;
    expect(SWN_LANE_SYMPHONY, 0, 2, 0);
    scene.state.now_ns = 1000000;
    scene.state.batch_most = 2; /* it cannot grow */
    expect(SWN_LANE_SYMPHONY, 0, 2, 0);
    scene.state.batch_most = 0;
    scene.requests[0].deadline_ns = 1035000; /* the other one does not fit */
    expect(SWN_LANE_SYMPHONY, 0, 1, 0);
    scene.requests[0].deadline_ns = scene.requests[1].deadline_ns = 0; /* nobody is pressed */
    expect(SWN_LANE_SYMPHONY, 0, 2, 0);
    scene.requests[0].deadline_ns = 1010000;
    expect(SWN_LANE_SYMPHONY, 0, 1, 0);
    assert_int_equal(decision.dropped_count, 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(dynamic_waits_for_a_full_batch), cmocka_unit_test(dynamic_has_the_terms_of_each_model),
        cmocka_unit_test(lazy_lets_requests_catch_up),    cmocka_unit_test(nexus_drops_early),
        cmocka_unit_test(symphony_starts_late),
    };
    return cmocka_run_group_tests(tests, lane_scratch_make, lane_scratch_done);
}
