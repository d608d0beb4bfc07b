/* Description: policies over load and compute tasks, as policies of a lane: which request runs, what is foretold, jobs.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "scheduler/policies/policy.h"
#include "tests/unit/support/lane_fixture.h"
#include "tests/unit/support/random.h"

#define MS 1000000
#define MOST 16

static struct swn_lane_decision decision;
static struct lane_scene scene;
static struct swn_lane_step steps[MOST];
static uint32_t count;

/* Models of two groups, which compute for a ms each; of `missing` ms of reading. */
static void scene_of(uint32_t models, uint64_t missing)
{
    lane_scene_init(&scene, models, 2, LANE_CPU);
    for (uint32_t m = 0; m < models; m++)
        for (uint32_t g = 0; g < 2; g++)
            scene.groups[m][g] =
                (struct swn_lane_group){.compute_ns = MS, .weight_bytes = 2 * MS, .missing_bytes = missing * MS};
}

static uint32_t add(uint32_t model, uint64_t job)
{
    uint32_t i = lane_scene_add(&scene, model, 0, scene.state.now_ns, 0);

    scene.requests[i].job = job;
    return i;
}

static void decide(enum swn_lane_policy policy)
{
    assert_int_equal(swn_lane_decide(policy, &scene.state, lane_scratch, &decision), 0);
    lane_check(&scene, &decision);
    count = swn_lane_foretell(policy, &scene.state, &decision, lane_scratch, steps, MOST);
}

/* Runs all; the models and groups that ran, as decimal digits: 10 times the model, and the group. */
static void expect_order(enum swn_lane_policy policy, const uint32_t *order, uint32_t n)
{
    for (uint32_t i = 0; i < n; i++) {
        decide(policy);
        assert_int_equal(decision.member_count, 1);
        assert_int_equal(decision.model * 10 + decision.group, order[i]);
        scene.groups[decision.model][decision.group].missing_bytes = 0;
        lane_apply(&scene, &decision);
    }
    assert_int_equal(scene.state.request_count, 0);
}

static void expect_foretold(const uint32_t *order, uint32_t n)
{
    assert_int_equal(count, n);
    for (uint32_t i = 0; i < n; i++)
        assert_int_equal(steps[i].model * 10 + steps[i].group, order[i]);
}

/* In the order of arrival, and nothing is read for another network before one has ended. */
static void bulk(void **state)
{
    (void)state;
    scene_of(2, 2);
    scene.groups[1][0].compute_ns = 1; /* shorter, and younger */
    add(0, 0);
    add(1, 0);
    add(0, 0);
    decide(SWN_LANE_BULK);
    expect_foretold((uint32_t[]){1}, 1);
    expect_order(SWN_LANE_BULK, (uint32_t[]){0, 1, 10, 11, 0, 1}, 6);
}

/* Convolutions of all networks of a job before its dense layers; job after job. */
static void deepeye(void **state)
{
    static const enum swn_lane_policy both[] = {SWN_LANE_DEEPEYE, SWN_LANE_DEEPEYE_FRUGAL};

    (void)state;
    for (unsigned k = 0; k < 2; k++) {
        scene_of(3, 2);
        scene.next_id = 10;
        for (uint32_t m = 0; m < 3; m++)
            scene.groups[m][1].dense_bytes = 2 * MS;
        add(0, 7);
        add(2, 0);
        add(1, 7);
        expect_order(both[k], (uint32_t[]){0, 10, 1, 11, 20, 21}, 6);
        for (uint32_t m = 0; m < 2; m++)
            add(m, 0);
        expect_order(both[k], (uint32_t[]){0, 1, 10, 11}, 4);
    }
}

/* What can compute goes first; what is read meanwhile is the least that fits. */
static void masa(void **state)
{
    (void)state;
    scene_of(3, 2);
    scene.groups[0][0].missing_bytes = 8 * MS / 10;
    scene.groups[0][1].missing_bytes = 2 * MS / 10;
    scene.groups[1][0].missing_bytes = scene.groups[1][1].missing_bytes = 0;
    scene.groups[1][0].compute_ns = scene.groups[1][1].compute_ns = 10 * MS;
    scene.groups[2][1].missing_bytes = 4 * MS / 10;
    for (uint32_t m = 0; m < 3; m += 2)
        for (uint32_t g = 0; g < 2; g++)
            scene.groups[m][g].weight_bytes = scene.groups[m][g].missing_bytes;
    for (uint32_t m = 0; m < 3; m++)
        add(m, 0);
    decide(SWN_LANE_MASA);
    assert_int_equal(decision.model, 1);
    expect_foretold((uint32_t[]){11, 1, 21, 0, 20}, 5); /* what stays, then loads by bytes */
    decide(SWN_LANE_MASA_ORDERED);
    assert_int_equal(decision.model, 1);
    expect_foretold((uint32_t[]){11, 0, 1, 20, 21}, 5);
    scene.state.memory_bytes = 5 * MS; /* 4 are the second model's */
    decide(SWN_LANE_MASA);
    assert_int_equal(decision.model, 1);
    expect_foretold((uint32_t[]){11, 1, 21}, 3);
}

/* The answer of a job needs all of its requests, so one of another job goes first that is shorter than they are
 * together. */
static void lookahead_knows_jobs(void **state)
{
    (void)state;
    for (unsigned is_job = 0; is_job < 2; is_job++) {
        scene_of(3, 0);
        scene.groups[1][0].compute_ns = 20 * MS;
        scene.groups[2][0].compute_ns = 8 * MS;
        scene.next_id = 10;
        add(0, is_job ? 1 : 0);
        add(1, is_job ? 1 : 0);
        add(2, 0);
        decide(SWN_LANE_LOOKAHEAD);
        assert_int_equal(decision.model, is_job ? 2 : 0);
    }
}

/* Of a job's requests that are alike the one goes on that has begun. */
static void lookahead_goes_on(void **state)
{
    (void)state;
    scene_of(3, 0);
    scene.next_id = 10;
    for (uint32_t m = 0; m < 3; m++)
        add(m, 1);
    scene.groups[2][0].compute_ns = 2 * MS; /* so that as much is left of it */
    scene.groups[2][1].compute_ns = 2 * MS;
    scene.requests[2].group = 1;
    decide(SWN_LANE_LOOKAHEAD);
    assert_int_equal(decision.model, 2);
}

/* It computes what is there while it reads what is not, and foretells that in the order of its plan. */
static void lookahead_hides_reading(void **state)
{
    (void)state;
    scene_of(2, 0);
    scene.groups[0][0].missing_bytes = scene.groups[0][1].missing_bytes = MS;
    scene.groups[1][1].compute_ns = MS / 2;
    add(0, 0);
    add(1, 0);
    decide(SWN_LANE_LOOKAHEAD);
    assert_int_equal(decision.model, 1);
    assert_int_equal(count, 3);
    assert_int_equal(steps[0].model * 10 + steps[0].group, 11);
    assert_int_equal(steps[1].model * 10 + steps[1].group, 0);
    assert_int_equal(steps[2].model * 10 + steps[2].group, 1);
}

/* Requests of one model one after the other in each group, where reading it takes longer than computing. */
static void lookahead_shares_what_is_read(void **state)
{
    (void)state;
    scene_of(1, 2);
    scene.groups[0][0].compute_ns = scene.groups[0][1].compute_ns = MS / 10;
    scene.groups[0][0].missing_bytes = scene.groups[0][1].missing_bytes = 20 * MS;
    scene.groups[0][0].weight_bytes = scene.groups[0][1].weight_bytes = 20 * MS;
    scene.state.memory_bytes = 30 * MS; /* not for both groups */
    add(0, 0);
    add(0, 0);
    for (uint32_t i = 0; i < 4; i++) {
        decide(SWN_LANE_LOOKAHEAD);
        assert_int_equal(decision.group, i / 2);
        scene.groups[0][0].missing_bytes = i < 1 ? 0 : 20 * MS;
        scene.groups[0][1].missing_bytes = i < 2 ? 20 * MS : 0;
        lane_apply(&scene, &decision);
    }
    assert_int_equal(scene.ended, 2);
}

/* A plan is for four networks; what the others of two jobs need is foretold behind it, so it stays in memory. */
static void lookahead_foretells_what_it_does_not_plan(void **state)
{
    (void)state;
    scene_of(6, 2);
    scene.next_id = 10;
    for (uint32_t m = 0; m < 6; m++)
        add(m, 7 + m / 3);
    decide(SWN_LANE_LOOKAHEAD);
    assert_int_equal(count, 11);
    for (uint32_t m = 0; m < 6; m++)
        for (uint32_t g = 0; g < 2; g++) {
            uint32_t times = decision.model == m && decision.group == g;

            for (uint32_t k = 0; k < count; k++)
                times += steps[k].model == m && steps[k].group == g;
            assert_int_equal(times, 1);
        }
}

/* Whatever is foretold is still to be run, and of a plan no more often than there are requests. */
static void only_what_is_to_come(void **state)
{
    (void)state;
    for (unsigned p = SWN_LANE_LOOKAHEAD; p < SWN_LANE_POLICIES; p++)
        for (unsigned round = 0; round < 100; round++) {
            lane_scene_init(&scene, 4, 1 + (uint32_t)rnd_below(8), LANE_DISK);
            if (round % 2)
                lane_scene_memory(&scene);
            lane_scene_fill(&scene, 1 + (uint32_t)rnd_below(40));
            for (uint32_t i = 0; i < scene.state.request_count; i++)
                scene.requests[i].job = rnd_below(5);
            assert_int_equal(swn_lane_decide(p, &scene.state, lane_scratch, &decision), 0);
            count = swn_lane_foretell(p, &scene.state, &decision, lane_scratch, steps, MOST);
            for (uint32_t k = 0; k < count; k++) {
                uint32_t waiting = 0, times = 0;

                for (uint32_t i = 0; i < scene.state.request_count; i++)
                    waiting += scene.requests[i].model == steps[k].model && scene.requests[i].group <= steps[k].group;
                for (uint32_t i = 0; i < count; i++)
                    times += steps[i].model == steps[k].model && steps[i].group == steps[k].group;
                assert_true(waiting > 0 && times <= waiting);
                assert_true(k == 0 || steps[k].model != steps[k - 1].model || steps[k].group != steps[k - 1].group);
            }
        }
}

static void they_have_the_names_of_tasks(void **state)
{
    (void)state;
    for (unsigned p = 0; p < SWN_LANE_POLICIES; p++) {
        enum swn_task_policy task = swn_lane_task_policy(p);

        assert_true((p < SWN_LANE_LOOKAHEAD) == (task == SWN_TASK_POLICIES));
        if (task != SWN_TASK_POLICIES)
            assert_string_equal(swn_lane_policy_name(p), swn_task_policy_name(task));
    }
    assert_int_equal(SWN_LANE_POLICIES - SWN_LANE_LOOKAHEAD, SWN_TASK_POLICIES);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(bulk),
        cmocka_unit_test(deepeye),
        cmocka_unit_test(masa),
        cmocka_unit_test(lookahead_knows_jobs),
        cmocka_unit_test(lookahead_goes_on),
        cmocka_unit_test(lookahead_hides_reading),
        cmocka_unit_test(lookahead_shares_what_is_read),
        cmocka_unit_test(lookahead_foretells_what_it_does_not_plan),
        cmocka_unit_test(only_what_is_to_come),
        cmocka_unit_test(they_have_the_names_of_tasks),
    };
    return cmocka_run_group_tests(tests, lane_scratch_make, lane_scratch_done);
}
