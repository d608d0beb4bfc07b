/* Description: what a client is told, when its request will be done, is when the lane is done with it if nothing else
 * comes. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include <errno.h>

#include "scheduler/policies/policy.h"
#include "tests/unit/support/lane_fixture.h"
#include "tests/unit/support/random.h"

static struct swn_lane_decision decision;
static struct lane_scene scene;
static uint64_t done_ns[LANE_FIXTURE_REQUESTS + 1];

/* end[id - 1] of each request that the lane runs to its end. Nobody gets old, as estimates do not foresee that. */
static void run(enum swn_lane_policy policy, uint64_t *end)
{
    while (scene.state.request_count) {
        for (uint32_t i = 0; i < scene.state.request_count; i++)
            scene.requests[i].arrived_ns = scene.state.now_ns;
        assert_int_equal(swn_lane_decide(policy, &scene.state, lane_scratch, &decision), 0);
        if (!decision.member_count)
            scene.state.now_ns = decision.wake_ns;
        lane_apply(&scene, &decision);
        for (uint32_t id = 1; id <= scene.next_id; id++) {
            uint32_t left = 0;
            for (uint32_t i = 0; i < scene.state.request_count; i++)
                left |= scene.requests[i].id == id;
            if (!left && !end[id - 1])
                end[id - 1] = scene.state.now_ns;
        }
    }
}

static double sum_of(const uint64_t *end, uint32_t n, uint64_t now)
{
    double sum = 0;

    for (uint32_t i = 0; i < n; i++)
        sum += (double)(end[i] - now);
    return sum;
}

static void as_it_happens(void **state)
{
    (void)state;
    for (unsigned p = 0; p < SWN_LANE_POLICIES; p++)
        for (unsigned round = 0; round < 40; round++) {
            struct swn_lane_request added;
            uint64_t end[40] = {0}, begin;
            uint32_t n;
            double told, took;
            lane_scene_init(&scene, p == SWN_LANE_NO_BATCH ? 2 : 1, 4, (enum lane_family)rnd_below(LANE_FAMILIES));
            scene.state.batch_most = 5;
            lane_scene_fill(&scene, 1 + (uint32_t)rnd_below(9));
            begin = scene.state.now_ns;
            added = (struct swn_lane_request){.model = 0, .group = 0, .weight = 1};
            if (scene.requests[0].model) /* No-Batch finishes what has begun, of any model */
                added.model = scene.requests[0].model;
            n = scene.state.request_count + 1;
            assert_int_equal(swn_lane_estimate(p, &scene.state, &added, lane_scratch, done_ns), 0);
            lane_scene_add(&scene, added.model, added.group, begin, 0);
            run(p, end);
            told = sum_of(done_ns, n, begin);
            took = sum_of(end, n, begin);
            if (p == SWN_LANE_BATCH)
                for (uint32_t i = 0; i < n; i++)
                    assert_true(done_ns[i] + 100 > end[i] && done_ns[i] < end[i] + 100);
            if (p <= SWN_LANE_EXACT || p == SWN_LANE_NO_BATCH || p == SWN_LANE_BATCH)
                assert_true(took <= told * (1 + 1e-6) && took >= told * 0.8); /* plans become better on the way */
            else
                assert_true(took <= told * 3 && told <= took * 3); /* those that are planned as another policy */
        }
}

/* One more request makes none of the others earlier, and is not done before it can be. */
static void one_more(void **state)
{
    static uint64_t without[LANE_FIXTURE_REQUESTS];

    (void)state;
    for (uint32_t n = 0; n <= 510; n += n < 10 ? 1 : 100) {
        struct swn_lane_request added = {.model = 0, .group = 1, .weight = 1};
        lane_scene_init(&scene, 1, 3, LANE_CPU);
        for (uint32_t i = 0; i < n; i++)
            lane_scene_add(&scene, 0, 1, scene.state.now_ns, 0);
        assert_int_equal(swn_lane_estimate(SWN_LANE_COMPLETION, &scene.state, NULL, lane_scratch, without), 0);
        assert_int_equal(swn_lane_estimate(SWN_LANE_COMPLETION, &scene.state, &added, lane_scratch, done_ns), 0);
        for (uint32_t i = 0; i < n; i++)
            assert_true(done_ns[i] >= without[i]);
        assert_true(done_ns[n] >= scene.state.now_ns + scene.groups[0][1].compute_ns + scene.groups[0][2].compute_ns);
        if (n) /* also where it is behind what a policy looks at */
            assert_true(done_ns[n] > done_ns[n - 1]);
    }
}

static void refused(void **state)
{
    struct swn_lane_request added = {.model = 1};

    (void)state;
    lane_scene_init(&scene, 1, 3, LANE_CPU);
    done_ns[0] = 7;
    assert_int_equal(swn_lane_estimate(SWN_LANE_COMPLETION, &scene.state, &added, lane_scratch, done_ns), -EINVAL);
    added = (struct swn_lane_request){.group = 3};
    assert_int_equal(swn_lane_estimate(SWN_LANE_COMPLETION, &scene.state, &added, lane_scratch, done_ns), -EINVAL);
    added.group = 2;
    assert_int_equal(swn_lane_estimate(SWN_LANE_POLICIES, &scene.state, &added, lane_scratch, done_ns), -EINVAL);
    assert_int_equal(done_ns[0], 7);
    scene.groups[0][2].compute_ns = UINT64_MAX;
    assert_int_equal(swn_lane_estimate(SWN_LANE_BATCH, &scene.state, &added, lane_scratch, done_ns), 0);
    assert_true(done_ns[0] >= (uint64_t)9e18);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(as_it_happens),
        cmocka_unit_test(one_more),
        cmocka_unit_test(refused),
    };
    return cmocka_run_group_tests(tests, lane_scratch_make, lane_scratch_done);
}
