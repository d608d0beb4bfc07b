/* Where all requests are for one answer, the order of models ends the job first, and reads what did not stay. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <math.h>

#include "scheduler/policies/policy.h"
#include "tests/unit/support/lane_fixture.h"
#include "tests/unit/support/random.h"

#define MODELS 5
#define GROUPS 3

static struct swn_lane_decision decision;
static struct lane_scene scene;

static void add_job(uint32_t models, uint64_t job)
{
    for (uint32_t m = 0; m < models; m++)
        scene.requests[lane_scene_add(&scene, m, 0, scene.state.now_ns, 0)].job = job;
}

static void decide(enum swn_lane_policy policy)
{
    assert_int_equal(swn_lane_decide(policy, &scene.state, lane_scratch, &decision), 0);
    lane_check(&scene, &decision);
    assert_true(decision.member_count > 0);
}

/* The order in which models run, once each; a model that has begun is ended first. */
static void order_of(enum swn_lane_policy policy, uint32_t models, uint32_t *order)
{
    for (uint32_t i = 0; i < models; i++)
        for (uint32_t g = 0; g < GROUPS; g++) {
            decide(policy);
            if (!g)
                order[i] = decision.model;
            assert_int_equal(decision.model, order[i]);
            assert_int_equal(decision.group, g);
            lane_apply(&scene, &decision);
        }
    assert_int_equal(scene.state.request_count, 0);
}

/* The end of a job whose groups are read one after the other, and compute in that order. */
static double end_of(const uint32_t *order, uint32_t models)
{
    double read = 0, computed = 0;

    for (uint32_t i = 0; i < models; i++)
        for (uint32_t g = 0; g < GROUPS; g++) {
            const struct swn_lane_group *group = &scene.groups[order[i]][g];
            read += (double)group->missing_bytes / scene.state.disk_bytes_per_ns;
            computed = fmax(read, computed) + (double)group->compute_ns;
        }
    return computed;
}

/* Of all orders of the models from `at` on. */
static double best_end(uint32_t *order, uint32_t at, uint32_t models)
{
    double best = at == models ? end_of(order, models) : INFINITY;

    for (uint32_t k = at; k < models; k++) {
        uint32_t other = order[at];
        order[at] = order[k];
        order[k] = other;
        best = fmin(best, best_end(order, at + 1, models));
        order[k] = order[at];
        order[at] = other;
    }
    return best;
}

static void no_other_order_ends_sooner(void **state)
{
    static const enum swn_lane_policy policies[] = {SWN_LANE_COMPLETION, SWN_LANE_EXACT};
    uint32_t differs = 0;

    (void)state;
    for (unsigned round = 0; round < 300; round++) {
        uint32_t models = 2 + (uint32_t)rnd_below(MODELS - 1), order[MODELS], all[MODELS];
        double best;
        lane_scene_init(&scene, models, GROUPS, LANE_DISK);
        for (uint32_t m = 0; m < models; m++) {
            int is_there = !rnd_below(4);
            for (uint32_t g = 0; g < GROUPS; g++) {
                scene.groups[m][g].weight_bytes = rnd_below(3000000);
                scene.groups[m][g].missing_bytes = is_there ? 0 : scene.groups[m][g].weight_bytes;
            }
            all[m] = m;
        }
        add_job(models, 7);
        order_of(policies[round % 2], models, order);
        best = best_end(all, 0, models);
        assert_true(end_of(order, models) <= best * (1 + 1e-9));
        differs += end_of(all, models) > best * 1.01;
    }
    assert_true(differs > 100); /* the order decides */
}

/* Four models of a megabyte, memory for two of them, from which the one leaves that was used longest ago. */
static void what_stayed_is_not_read_again(void **state)
{
    uint32_t order[4], used[4] = {0}, clock = 0;

    (void)state;
    lane_scene_init(&scene, 4, GROUPS, LANE_DISK);
    for (unsigned job = 1; job <= 6; job++) {
        uint32_t read = 0;
        for (uint32_t m = 0; m < 4; m++)
            for (uint32_t g = 0; g < GROUPS; g++) {
                uint32_t newer = 0;
                for (uint32_t k = 0; k < 4; k++)
                    newer += used[k] > used[m];
                /* The disk is fast: by their times alone all models are alike, but for how long they compute. */
                scene.groups[m][g] = (struct swn_lane_group){.compute_ns = 1000000 + 100000 * m,
                                                             .weight_bytes = 333333,
                                                             .missing_bytes = used[m] && newer < 2 ? 0 : 333333};
            }
        add_job(4, job);
        for (uint32_t m = 0; m < 4; m++)
            read += scene.groups[m][0].missing_bytes != 0;
        order_of(SWN_LANE_COMPLETION, 4, order);
        for (uint32_t i = 0; i < 4; i++) {
            if (job > 1) /* what is there goes first */
                assert_int_equal(scene.groups[order[i]][0].missing_bytes != 0, i >= 2);
            used[order[i]] = ++clock;
        }
        assert_int_equal(read, job > 1 ? 2 : 4);
    }
}

/* The largest of the model's weights are what it would lose: it goes first although others are as long. */
static void of_those_that_wait_the_one_with_most_in_memory(void **state)
{
    (void)state;
    lane_scene_init(&scene, 3, 1, LANE_DISK);
    for (uint32_t m = 0; m < 3; m++)
        scene.groups[m][0] = (struct swn_lane_group){
            .compute_ns = 1000 + m, .weight_bytes = 4000000, .missing_bytes = m == 1 ? 3000000 : 4000000};
    add_job(3, 7);
    decide(SWN_LANE_COMPLETION);
    assert_int_equal(decision.model, 1);
}

/* Model 0 is in memory and computes for long, model 1 is not and is short: alone in a job, 0 goes first. */
static void two_models(void)
{
    lane_scene_init(&scene, 2, 1, LANE_DISK);
    scene.groups[0][0] = (struct swn_lane_group){.compute_ns = 9000000, .weight_bytes = 1000};
    scene.groups[1][0] = (struct swn_lane_group){.compute_ns = 1000, .weight_bytes = 1000, .missing_bytes = 1000};
}

static void other_requests_go_by_their_own_ends(void **state)
{
    (void)state;
    two_models();
    add_job(2, 7);
    decide(SWN_LANE_COMPLETION);
    assert_int_equal(decision.model, 0);

    two_models(); /* for answers of their own */
    add_job(2, 0);
    decide(SWN_LANE_COMPLETION);
    assert_int_equal(decision.model, 1);

    two_models(); /* of two jobs */
    add_job(2, 7);
    scene.requests[1].job = 8;
    decide(SWN_LANE_COMPLETION);
    assert_int_equal(decision.model, 1);

    two_models(); /* it may turn out that one is not needed */
    add_job(2, 7);
    scene.requests[1].upstream = scene.requests[0].id;
    scene.requests[1].probability = 0.9;
    decide(SWN_LANE_COMPLETION);
    assert_int_equal(decision.model, 1);
}

/* A model that an ensemble has twice runs each group for both. */
static void steps_of_one_model_go_together(void **state)
{
    (void)state;
    two_models();
    add_job(2, 7);
    scene.requests[lane_scene_add(&scene, 0, 0, scene.state.now_ns, 0)].job = 7;
    decide(SWN_LANE_COMPLETION);
    assert_int_equal(decision.model, 0);
    assert_int_equal(decision.member_count, 2);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(no_other_order_ends_sooner),
        cmocka_unit_test(what_stayed_is_not_read_again),
        cmocka_unit_test(of_those_that_wait_the_one_with_most_in_memory),
        cmocka_unit_test(other_requests_go_by_their_own_ends),
        cmocka_unit_test(steps_of_one_model_go_together),
    };
    return cmocka_run_group_tests(tests, lane_scratch_make, lane_scratch_done);
}
