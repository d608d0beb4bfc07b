/* Description: what is foretold behind a decision is what the lane runs then, if nothing else comes. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "scheduler/policies/policy.h"
#include "tests/unit/support/lane_fixture.h"
#include "tests/unit/support/random.h"

#define STEPS 16

static struct swn_lane_decision decision;
static struct lane_scene scene, before;
static struct swn_lane_step steps[STEPS + 1];

/* Runs what is decided; the weights that were read are in memory then. */
static void run(void)
{
    uint32_t model[LANE_FIXTURE_REQUESTS], group[LANE_FIXTURE_REQUESTS];

    for (uint32_t k = 0; k < decision.member_count; k++) {
        model[k] = scene.requests[decision.members[k]].model;
        group[k] = scene.requests[decision.members[k]].group;
    }
    lane_apply(&scene, &decision);
    for (uint32_t k = 0; k < decision.member_count; k++) {
        scene.groups[model[k]][group[k]].missing_bytes = 0;
        scene.state.last_model = model[k];
    }
}

/* The next steps that really run, at most `most`. */
static uint32_t really(enum swn_lane_policy policy, struct swn_lane_step *to, uint32_t most)
{
    uint32_t n = 0;

    for (unsigned idle = 0; n < most && scene.state.request_count && idle < 4;) {
        assert_int_equal(swn_lane_decide(policy, &scene.state, lane_scratch, &decision), 0);
        for (uint32_t k = 0; k < decision.member_count && n < most; k++) {
            const struct swn_lane_request *r = &scene.requests[decision.members[k]];
            if (n && to[n - 1].model == r->model && to[n - 1].group == r->group)
                continue;
            to[n++] = (struct swn_lane_step){.model = r->model, .group = r->group};
        }
        if (!decision.member_count && !decision.dropped_count) {
            scene.state.now_ns = decision.wake_ns > scene.state.now_ns ? decision.wake_ns : scene.state.now_ns;
            idle++;
        }
        run();
    }
    return n;
}

static void as_it_happens(void **state)
{
    struct swn_lane_step found[STEPS];

    (void)state;
    for (unsigned p = 0; p < SWN_LANE_LOOKAHEAD; p++) /* those behind it: t_lane_tasks.c */
        for (unsigned round = 0; round < 60; round++) {
            enum swn_lane_policy then = p == SWN_LANE_EXACT ? SWN_LANE_COMPLETION : (enum swn_lane_policy)p;
            uint32_t n, count, requests = 2 + (uint32_t)rnd_below(round < 40 ? 8 : 40);
            lane_scene_init(&scene, 3, 1 + (uint32_t)rnd_below(5), (enum lane_family)rnd_below(LANE_FAMILIES));
            if (round % 3 == 0)
                lane_scene_memory(&scene);
            scene.state.batch_most = 4;
            lane_scene_fill(&scene, requests);
            for (uint32_t i = 0; i < requests && round % 2; i++)
                scene.requests[i].deadline_ns = scene.state.now_ns + rnd_below(40000000);
            assert_int_equal(swn_lane_decide(p, &scene.state, lane_scratch, &decision), 0);
            if (!decision.member_count)
                continue;
            before = scene;
            memset(steps, 0xff, sizeof steps);
            n = swn_lane_foretell(p, &scene.state, &decision, lane_scratch, steps, STEPS);
            assert_memory_equal(&before, &scene, sizeof scene);
            assert_true(n <= STEPS && steps[STEPS].model == UINT32_MAX);
            run();
            count = really(then, found, n ? n : 1);
            if (scene.state.request_count == 0 && count <= n)
                assert_int_equal(count, n); /* all that there was */
            assert_true(n >= 1 || count == 0);
            assert_memory_equal(found, steps, n * sizeof *found);
        }
}

/* However many requests there are, and whatever room is given. */
static void bounded(void **state)
{
    uint32_t room, n;

    (void)state;
    for (uint32_t requests = 1; requests <= LANE_FIXTURE_REQUESTS; requests += requests < 70 ? 1 : 90) {
        lane_scene_init(&scene, 3, 4, LANE_DISK);
        for (uint32_t i = 0; i < requests; i++)
            lane_scene_add(&scene, i % 3, 0, scene.state.now_ns, 0);
        assert_int_equal(swn_lane_decide(SWN_LANE_COMPLETION, &scene.state, lane_scratch, &decision), 0);
        for (room = 0; room <= 3; room++) {
            memset(steps, 0xff, sizeof steps);
            n = swn_lane_foretell(SWN_LANE_COMPLETION, &scene.state, &decision, lane_scratch, steps, room);
            assert_true(n <= room && (room == 0 || n >= 1) && steps[room].model == UINT32_MAX);
        }
    }
}

static void nothing_to_come(void **state)
{
    (void)state;
    lane_scene_init(&scene, 1, 2, LANE_DISK);
    decision = (struct swn_lane_decision){.member_count = 0};
    assert_int_equal(swn_lane_foretell(SWN_LANE_COMPLETION, &scene.state, &decision, lane_scratch, steps, STEPS), 0);
    lane_scene_add(&scene, 0, 1, scene.state.now_ns, 0);
    assert_int_equal(swn_lane_decide(SWN_LANE_COMPLETION, &scene.state, lane_scratch, &decision), 0);
    assert_int_equal(decision.member_count, 1);
    assert_int_equal(swn_lane_foretell(SWN_LANE_COMPLETION, &scene.state, &decision, lane_scratch, steps, STEPS), 0);
}

/* A server may have more models than requests are looked at. */
static void many_models(void **state)
{
    static struct swn_lane_model models[SWN_LANE_REQUESTS + 9];

    (void)state;
    lane_scene_init(&scene, 1, 3, LANE_DISK);
    for (uint32_t m = 0; m < SWN_LANE_REQUESTS + 9; m++)
        models[m] = scene.models[0];
    scene.state.models = models;
    scene.state.model_count = SWN_LANE_REQUESTS + 9;
    lane_scene_add(&scene, SWN_LANE_REQUESTS + 8, 0, scene.state.now_ns, 0);
    assert_int_equal(swn_lane_decide(SWN_LANE_COMPLETION, &scene.state, lane_scratch, &decision), 0);
    assert_int_equal(swn_lane_foretell(SWN_LANE_COMPLETION, &scene.state, &decision, lane_scratch, steps, STEPS), 2);
    for (uint32_t k = 0; k < 2; k++) {
        assert_int_equal(steps[k].model, SWN_LANE_REQUESTS + 8);
        assert_int_equal(steps[k].group, k + 1);
    }
}

/* What may come is behind all that does: all of it where it is as likely as not, else its first group, if nothing has
 * to leave for it. */
static void expected_behind_the_rest(void **state)
{
    static const enum swn_lane_policy some[] = {SWN_LANE_COMPLETION, SWN_LANE_LOOKAHEAD, SWN_LANE_BULK};
    struct swn_lane_expected expected = {.model = 1, .probability = 0.5};
    uint32_t known, n;
    uint64_t coming; /* what the steps that are known to come read: free memory is theirs first */

    (void)state;
    for (unsigned p = 0; p < 3; p++) {
        lane_scene_init(&scene, 2, 3, LANE_DISK);
        lane_scene_add(&scene, 0, 1, scene.state.now_ns, 0);
        coming = scene.groups[0][1].missing_bytes + scene.groups[0][2].missing_bytes;
        assert_true(coming > 0);
        assert_int_equal(swn_lane_decide(some[p], &scene.state, lane_scratch, &decision), 0);
        known = swn_lane_foretell(some[p], &scene.state, &decision, lane_scratch, steps, STEPS);
        scene.state.expected = &expected;
        scene.state.expected_count = 1;
        expected.probability = 0.75;
        n = swn_lane_foretell(some[p], &scene.state, &decision, lane_scratch, steps, STEPS);
        assert_int_equal(n, known + 3);
        for (uint32_t g = 0; g < 3; g++)
            assert_true(steps[known + g].model == 1 && steps[known + g].group == g);
        assert_int_equal(swn_lane_foretell(some[p], &scene.state, &decision, lane_scratch, steps, 2), 2);
        expected.probability = 0.5; /* all of it, as far as nothing has to leave */
        scene.state.free_bytes = coming + scene.groups[1][0].missing_bytes + scene.groups[1][1].missing_bytes;
        n = swn_lane_foretell(some[p], &scene.state, &decision, lane_scratch, steps, STEPS);
        assert_int_equal(n, known + 2);
        assert_true(steps[known + 1].model == 1 && steps[known + 1].group == 1);
        expected.probability = 0.4;
        scene.state.free_bytes = coming + scene.groups[1][0].missing_bytes - 1;
        n = swn_lane_foretell(some[p], &scene.state, &decision, lane_scratch, steps, STEPS);
        assert_int_equal(n, known);
        scene.state.free_bytes = coming + scene.groups[1][0].missing_bytes;
        n = swn_lane_foretell(some[p], &scene.state, &decision, lane_scratch, steps, STEPS);
        assert_int_equal(n, known + 1);
        assert_true(steps[known].model == 1 && steps[known].group == 0);
    }
}

/* The next request is like this one: what has run by now is needed behind what has not, each group once. Of one model
 * alone nothing is told. */
static void all_round(void **state)
{
    static const struct swn_lane_step round[] = {{0, 2}, {1, 0}, {1, 1}, {1, 2}, {0, 0}, {0, 1}};
    static const struct swn_lane_expected expected[] = {
        {.model = 0, .probability = 1, .is_again = 1},
        {.model = 1, .probability = 0.75},
        {.model = 1, .probability = 0.75, .is_again = 1},
    };

    (void)state;
    lane_scene_init(&scene, 2, 3, LANE_DISK);
    lane_scene_add(&scene, 0, 1, scene.state.now_ns, 0);
    assert_int_equal(swn_lane_decide(SWN_LANE_COMPLETION, &scene.state, lane_scratch, &decision), 0);
    scene.state.expected = expected;
    scene.state.expected_count = 3;
    assert_int_equal(swn_lane_foretell(SWN_LANE_COMPLETION, &scene.state, &decision, lane_scratch, steps, STEPS), 6);
    for (uint32_t i = 0; i < 6; i++)
        assert_true(steps[i].model == round[i].model && steps[i].group == round[i].group);
    assert_int_equal(swn_lane_foretell(SWN_LANE_COMPLETION, &scene.state, &decision, lane_scratch, steps, 5), 5);
    scene.state.expected_count = 1;
    assert_int_equal(swn_lane_foretell(SWN_LANE_COMPLETION, &scene.state, &decision, lane_scratch, steps, STEPS), 1);
}

/* Sums that do not fit, and times that are no numbers elsewhere. */
static void any_numbers(void **state)
{
    (void)state;
    for (unsigned p = 0; p < SWN_LANE_POLICIES; p++) {
        lane_scene_init(&scene, 2, 3, LANE_DISK);
        lane_scene_fill(&scene, 6);
        scene.state.now_ns = UINT64_MAX - 1;
        scene.state.disk_bytes_per_ns = -1;
        for (uint32_t g = 0; g < 3; g++) {
            scene.groups[0][g].compute_ns = UINT64_MAX;
            scene.groups[1][g].missing_bytes = UINT64_MAX;
        }
        scene.models[0].switch_ns = UINT64_MAX;
        assert_int_equal(swn_lane_decide(p, &scene.state, lane_scratch, &decision), 0);
        assert_true(swn_lane_foretell(p, &scene.state, &decision, lane_scratch, steps, STEPS) <= STEPS);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(as_it_happens), cmocka_unit_test(bounded),     cmocka_unit_test(nothing_to_come),
        cmocka_unit_test(many_models),   cmocka_unit_test(any_numbers), cmocka_unit_test(expected_behind_the_rest),
        cmocka_unit_test(all_round),
    };
    return cmocka_run_group_tests(tests, lane_scratch_make, lane_scratch_done);
}
