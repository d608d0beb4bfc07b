/* Description: a decision for 500 requests takes half a millisecond of processor time at most. */
/* timed: how long a decision takes */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include <cmocka.h>

#include "scheduler/policies/policy.h"
#include "tests/unit/support/lane_fixture.h"
#include "tests/unit/support/random.h"
#include "tests/unit/support/slowness.h"

#define GOAL_MS 0.5

static struct swn_lane_scratch *scratch;
static struct swn_lane_decision decision;
static struct lane_scene scene;

static double once(void *policy)
{
    double begin = cpu_ms();

    assert_int_equal(swn_lane_decide(*(enum swn_lane_policy *)policy, &scene.state, scratch, &decision), 0);
    return cpu_ms() - begin;
}

static double estimate_once(void *policy)
{
    static uint64_t done_ns[SWN_LANE_REQUESTS + 1];
    struct swn_lane_request added = {.weight = 1};
    double begin = cpu_ms();

    assert_int_equal(swn_lane_estimate(*(enum swn_lane_policy *)policy, &scene.state, &added, scratch, done_ns), 0);
    return cpu_ms() - begin;
}

/* All at the first group, at all five of them, with weights, of several models; a bound would only make it less. */
static void a_decision_is_quick(void **state)
{
    (void)state;
    for (enum swn_lane_policy p = 0; p < SWN_LANE_POLICIES; p++)
        for (unsigned kind = 0; kind < 5; kind++) {
            double goal = here_ms(GOAL_MS), took;
            lane_scene_init(&scene, kind == 4 ? LANE_MODELS : 1, 5, LANE_DISK);
            for (uint32_t i = 0; i < SWN_LANE_REQUESTS; i++) {
                uint32_t group = kind == 0 ? 0 : kind == 1 ? 4 - i / 100 : (uint32_t)rnd_below(5);
                lane_scene_add(&scene, kind == 4 ? i % LANE_MODELS : 0, group, scene.state.now_ns - 1000000 * i, 0);
                scene.requests[i].weight = kind == 3 ? 1 + (double)rnd_below(8) : 1;
            }
            took = least_ms(once, &p, goal);
            print_message("%s, kind %u: %.3f ms\n", swn_lane_policy_name(p), kind, took);
            assert_true(took <= goal);
            took = least_ms(estimate_once, &p, goal);
            assert_true(took <= goal);
        }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(a_decision_is_quick)};
    int failed;

    scratch = swn_lane_scratch_new();
    failed = !scratch || cmocka_run_group_tests(tests, NULL, NULL);
    swn_lane_scratch_free(scratch);
    return failed;
}
