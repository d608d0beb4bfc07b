/* Description: with requests that keep coming, no baseline has a shorter mean completion time than the plan, whether
 * batches gain anything or not, and nobody waits without end. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "scheduler/policies/curves.h"
#include "scheduler/policies/policy.h"
#include "tests/unit/support/lane_fixture.h"
#include "tests/unit/support/random.h"

#define REQUESTS 400

static struct swn_lane_scratch *scratch;
static struct swn_lane_decision decision;
static struct lane_scene scene;
static double solo_ns, longest_ns;

static void attach(struct lane_scene *s)
{
    s->state.models = s->models;
    s->state.requests = s->requests;
    for (uint32_t m = 0; m < LANE_MODELS; m++)
        s->models[m].groups = s->groups[m];
}

/* The mean completion time, in times that a request takes alone, when `load` requests come in that time. Each policy
 * gets the same arrivals. */
static double mean_time(const struct lane_scene *from, enum swn_lane_policy policy, double load)
{
    uint64_t seed = 88172645463325252, next;
    uint32_t come = 0;

    scene = *from;
    attach(&scene);
    next = scene.state.now_ns;
    longest_ns = 0;
    while (come < REQUESTS || scene.state.request_count) {
        for (; come < REQUESTS && next <= scene.state.now_ns; come++) {
            lane_scene_add(&scene, (uint32_t)(next_random(&seed) % scene.state.model_count), 0, next, 0);
            next += (uint64_t)(solo_ns / load * 2 * (double)(next_random(&seed) % 1000) / 1000);
        }
        if (!scene.state.request_count) {
            scene.state.now_ns = next;
            continue;
        }
        assert_int_equal(swn_lane_decide(policy, &scene.state, scratch, &decision), 0);
        lane_check(&scene, &decision);
        assert_true(decision.member_count > 0);
        for (uint32_t i = 0; i < scene.state.request_count; i++) {
            double age = (double)(scene.state.now_ns - scene.requests[i].arrived_ns);
            longest_ns = age > longest_ns ? age : longest_ns;
        }
        lane_apply(&scene, &decision);
    }
    assert_int_equal(scene.ended, REQUESTS);
    return scene.weighted_ns / REQUESTS / solo_ns;
}

static void no_baseline_is_better(void **state)
{
    static const enum swn_lane_policy others[] = {SWN_LANE_NO_BATCH, SWN_LANE_BATCH, SWN_LANE_DYNAMIC, SWN_LANE_LAZY};
    static const double loads[] = {0.5, 0.9, 1.4};
    static struct lane_scene from;

    (void)state;
    for (unsigned family = LANE_DISK; family <= LANE_CPU; family++)
        for (uint32_t models = 1; models <= 3; models++) {
            lane_scene_init(&from, models, 5, (enum lane_family)family);
            from.state.batch_most = 16;
            solo_ns = 0;
            for (uint32_t m = 0; m < models; m++)
                solo_ns += swn_curve_alone(&from.models[m], 1, 0) / models;
            for (unsigned k = 0; k < (family == LANE_CPU ? 2 : 3); k++) {
                double plan = mean_time(&from, SWN_LANE_COMPLETION, loads[k]);
                print_message("family %u, %u models, load %.1f: %.2f;", family, models, loads[k], plan);
                if (family == LANE_DISK)
                    assert_true(longest_ns < 20 * solo_ns);
                for (unsigned o = 0; o < sizeof others / sizeof *others; o++) {
                    double other = mean_time(&from, others[o], loads[k]);
                    print_message(" %s %.2f", swn_lane_policy_name(others[o]), other);
                    assert_true(plan <= other * 1.01);
                }
                print_message("\n");
            }
        }
}

/* Short requests alone would fill the lane; a long one is run all the same. */
static void a_long_request_ends(void **state)
{
    uint32_t steps = 0;
    int is_done = 0;

    (void)state;
    lane_scene_init(&scene, 2, 1, LANE_CPU);
    scene.groups[0][0].compute_ns = 1000000;
    scene.groups[1][0].compute_ns = 10000;
    lane_scene_add(&scene, 0, 0, scene.state.now_ns, 0);
    while (!is_done) {
        lane_scene_add(&scene, 1, 0, scene.state.now_ns, 0); /* one for each that is run */
        assert_int_equal(swn_lane_decide(SWN_LANE_COMPLETION, &scene.state, scratch, &decision), 0);
        is_done = decision.model == 0;
        lane_apply(&scene, &decision);
        assert_true(++steps < 40000);
    }
    assert_true(steps > 50); /* it is not first either */
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(no_baseline_is_better),
        cmocka_unit_test(a_long_request_ends),
    };
    int failed;

    scratch = swn_lane_scratch_new();
    failed = !scratch || cmocka_run_group_tests(tests, NULL, NULL);
    swn_lane_scratch_free(scratch);
    return failed;
}
