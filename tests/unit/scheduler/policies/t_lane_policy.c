/* Description: what every policy keeps to: valid decisions, memory, an end for every request, whatever the numbers. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include <errno.h>
#include <math.h>

#include "scheduler/policies/policy.h"
#include "tests/unit/support/lane_fixture.h"
#include "tests/unit/support/random.h"

static struct swn_lane_decision decision;
static struct lane_scene scene;

static void decide(enum swn_lane_policy policy)
{
    assert_int_equal(swn_lane_decide(policy, &scene.state, lane_scratch, &decision), 0);
}

static void names(void **state)
{
    enum swn_lane_policy policy;

    (void)state;
    for (unsigned p = 0; p < SWN_LANE_POLICIES; p++) {
        assert_int_equal(swn_lane_policy_parse(swn_lane_policy_name(p), &policy), 0);
        assert_int_equal(policy, p);
    }
    assert_int_equal(swn_lane_policy_parse("", &policy), -EINVAL);
    assert_int_equal(swn_lane_policy_parse("batches", &policy), -EINVAL);
    assert_string_equal(swn_lane_policy_name(SWN_LANE_POLICIES), "?");
}

static void nothing_to_do(void **state)
{
    (void)state;
    for (unsigned p = 0; p < SWN_LANE_POLICIES; p++) {
        lane_scene_init(&scene, 1, 5, LANE_DISK);
        decide(p);
        assert_int_equal(decision.member_count, 0);
        assert_true(decision.wake_ns == 0);
    }
}

/* Requests come while others run; memory is narrow. Each decision keeps to the rules (lane_check), and all end. */
static void all_requests_end(void **state)
{
    (void)state;
    for (unsigned p = 0; p < SWN_LANE_POLICIES; p++)
        for (unsigned round = 0; round < rounds_of(40); round++) {
            unsigned steps = 0, coming = 60;
            lane_scene_init(&scene, 1 + (uint32_t)rnd_below(LANE_MODELS), 1 + (uint32_t)rnd_below(6), LANE_DISK);
            if (round % 4)
                lane_scene_memory(&scene);
            scene.state.batch_most = round % 3 ? 0 : 1 + (uint32_t)rnd_below(6);
            scene.state.turn_ns = round % 5 ? 0 : rnd_below(5 * scene.groups[0][0].compute_ns + 1);
            while (coming || scene.state.request_count) {
                for (; coming && (!scene.state.request_count || rnd_below(3) == 0); coming--)
                    lane_scene_add(&scene, (uint32_t)rnd_below(scene.state.model_count), 0, scene.state.now_ns, 0);
                decide(p);
                lane_check(&scene, &decision);
                assert_true(decision.member_count > 0 || decision.wake_ns > scene.state.now_ns);
                if (!decision.member_count)
                    scene.state.now_ns = decision.wake_ns;
                lane_apply(&scene, &decision);
                assert_true(++steps < 10000);
            }
            assert_int_equal(scene.ended, 60);
        }
}

/* A request that fits nowhere is named, alone; the others go on. */
static void one_that_never_fits(void **state)
{
    (void)state;
    for (unsigned p = 0; p < SWN_LANE_POLICIES; p++) {
        unsigned refused = 0, steps = 0;
        lane_scene_init(&scene, 2, 3, LANE_DISK);
        lane_scene_memory(&scene);
        scene.groups[1][2].activation_bytes = scene.state.memory_bytes;
        scene.groups[1][2].window_bytes = 1;
        for (unsigned i = 0; i < 8; i++)
            lane_scene_add(&scene, i % 2, 0, scene.state.now_ns, 0);
        while (scene.state.request_count) {
            decide(p);
            assert_true(++steps < 200);
            if (!decision.member_count) {
                assert_true(decision.wake_ns > scene.state.now_ns);
                scene.state.now_ns = decision.wake_ns;
                continue;
            }
            if (decision.model == 1 && decision.group == 2) { /* what the server does: it answers and forgets it */
                assert_int_equal(decision.member_count, 1);
                decision.dropped[0] = decision.members[0];
                decision.dropped_count = 1;
                decision.member_count = 0;
                refused++;
            } else {
                lane_check(&scene, &decision);
            }
            lane_apply(&scene, &decision);
        }
        assert_int_equal(refused, 4);
        assert_int_equal(scene.ended, 4);
    }
}

/* Two could begin, but what they then hold leaves neither of them the room to go on. */
static void nothing_begins_that_could_not_end(void **state)
{
    (void)state;
    for (unsigned p = 0; p < SWN_LANE_POLICIES; p++) {
        lane_scene_init(&scene, 1, 2, LANE_DISK);
        scene.groups[0][0] = (struct swn_lane_group){.compute_ns = 10, .missing_bytes = 1000, .activation_bytes = 45};
        scene.groups[0][1] =
            (struct swn_lane_group){.compute_ns = 10, .missing_bytes = 1000, .activation_bytes = 70, .state_bytes = 40};
        scene.state.memory_bytes = 100;
        lane_scene_add(&scene, 0, 0, scene.state.now_ns, 0);
        lane_scene_add(&scene, 0, 0, scene.state.now_ns, 0);
        for (unsigned step = 0; step < 4; step++) {
            decide(p);
            assert_int_equal(decision.member_count, 1);
            assert_int_equal(decision.group, step % 2);
            lane_apply(&scene, &decision);
        }
        assert_int_equal(scene.ended, 2);
        scene.state.memory_bytes = 110;
        for (unsigned i = 0; i < 2; i++)
            lane_scene_add(&scene, 0, 0, scene.state.now_ns, 0);
        decide(p);
        if (p < SWN_LANE_LOOKAHEAD) /* which takes one after the other */
            assert_int_equal(decision.member_count, p == SWN_LANE_NO_BATCH ? 1 : 2);
    }
}

/* What requests take in a group that has not run is learned when one runs it, with all memory to itself. All end, and
 * no decision takes more than there is, whoever knows what. */
static void what_is_not_known_runs_alone(void **state)
{
    (void)state;
    for (unsigned p = 0; p < SWN_LANE_POLICIES; p++)
        for (unsigned round = 0; round < rounds_of(20); round++) {
            uint64_t really[LANE_MODELS][SWN_LANE_GROUPS];
            unsigned steps = 0, coming = 30;
            lane_scene_init(&scene, 1 + (uint32_t)rnd_below(LANE_MODELS), 1 + (uint32_t)rnd_below(6), LANE_DISK);
            lane_scene_memory(&scene);
            for (uint32_t m = 0; m < scene.state.model_count; m++)
                for (uint32_t g = 0; g < scene.models[m].group_count; g++) {
                    really[m][g] = scene.groups[m][g].activation_bytes;
                    scene.groups[m][g].activation_bytes = SWN_LANE_NOT_KNOWN;
                }
            while (coming || scene.state.request_count) {
                for (; coming && (!scene.state.request_count || rnd_below(3) == 0); coming--)
                    lane_scene_add(&scene, (uint32_t)rnd_below(scene.state.model_count), 0, scene.state.now_ns, 0);
                decide(p);
                assert_true(++steps < 10000);
                if (!decision.member_count) {
                    assert_true(decision.wake_ns > scene.state.now_ns);
                    scene.state.now_ns = decision.wake_ns;
                    continue;
                }
                struct swn_lane_group *g = &scene.groups[decision.model][decision.group];
                if (g->activation_bytes == SWN_LANE_NOT_KNOWN) {
                    assert_int_equal(decision.member_count, 1);
                    for (uint32_t i = 0; i < scene.state.request_count; i++)
                        assert_true(i == decision.members[0] || scene.requests[i].group == 0);
                    g->activation_bytes = really[decision.model][decision.group];
                }
                lane_check(&scene, &decision);
                lane_apply(&scene, &decision);
            }
            assert_int_equal(scene.ended, 30);
        }
}

/* More requests wait than memory has room for states of. They do not begin one by one as others end: then each would
 * read all weights for itself. Ten have room at once. */
static void many_begin_together_where_few_have_room(void **state)
{
    static const enum swn_lane_policy sharing[] = {SWN_LANE_COMPLETION, SWN_LANE_EXACT, SWN_LANE_BATCH, SWN_LANE_EDF,
                                                   SWN_LANE_TARDY};

    (void)state;
    for (unsigned p = 0; p < sizeof sharing / sizeof *sharing; p++) {
        unsigned decisions = 0, members = 0, coming = 200;
        lane_scene_init(&scene, 1, 4, LANE_DISK);
        for (unsigned g = 0; g < 4; g++)
            scene.groups[0][g] = (struct swn_lane_group){.compute_ns = 10,
                                                         .weight_bytes = 1000,
                                                         .missing_bytes = 1000,
                                                         .activation_bytes = 100,
                                                         .state_bytes = g ? 100 : 0};
        scene.state.memory_bytes = 2000;
        while (coming || scene.state.request_count) {
            for (; coming && scene.state.request_count < 60; coming--)
                lane_scene_add(&scene, 0, 0, scene.state.now_ns, 0);
            decide(sharing[p]);
            lane_check(&scene, &decision);
            assert_true(decision.member_count > 0);
            decisions++;
            members += decision.member_count;
            lane_apply(&scene, &decision);
        }
        assert_int_equal(scene.ended, 200);
        assert_int_equal(members, 800);
        assert_true(members >= 6 * decisions);
    }
}

/* Small groups have room for the states of nineteen requests, and the large one behind them for those of ten. No more
 * begin than can share the large one's weights. */
static void states_leave_room_for_the_largest_group(void **state)
{
    static const enum swn_lane_policy sharing[] = {SWN_LANE_COMPLETION, SWN_LANE_EXACT, SWN_LANE_BATCH,
                                                   SWN_LANE_EDF,        SWN_LANE_TARDY, SWN_LANE_LAZY};

    (void)state;
    for (unsigned p = 0; p < sizeof sharing / sizeof *sharing; p++) {
        unsigned turns = 0, members = 0, coming = 200;
        lane_scene_init(&scene, 1, 4, LANE_DISK);
        for (unsigned g = 0; g < 4; g++)
            scene.groups[0][g] = (struct swn_lane_group){.compute_ns = 10,
                                                         .weight_bytes = g < 3 ? 100 : 1000,
                                                         .missing_bytes = g < 3 ? 100 : 1000,
                                                         .window_bytes = 100,
                                                         .activation_bytes = 100,
                                                         .state_bytes = g ? 100 : 0};
        scene.state.memory_bytes = 2000;
        while (coming || scene.state.request_count) {
            unsigned begun = 0;
            for (; coming && scene.state.request_count < 60; coming--)
                lane_scene_add(&scene, 0, 0, scene.state.now_ns, 0);
            decide(sharing[p]);
            lane_check(&scene, &decision);
            assert_true(decision.member_count > 0);
            turns += decision.group == 3;
            members += decision.group == 3 ? decision.member_count : 0;
            lane_apply(&scene, &decision);
            for (uint32_t i = 0; i < scene.state.request_count; i++)
                begun += scene.requests[i].group > 0;
            assert_true(begun <= 10);
        }
        assert_int_equal(scene.ended, 200);
        assert_true(members >= 4 * turns);
    }
}

/* One that is due soon waits for no others whose run could make it late if times were a fifth longer; alone it runs. */
static void deadlines_leave_time_for_errors(void **state)
{
    static const enum swn_lane_policy due[] = {SWN_LANE_EDF, SWN_LANE_TARDY};

    (void)state;
    for (unsigned p = 0; p < 2; p++) {
        lane_scene_init(&scene, 1, 1, LANE_DISK);
        scene.groups[0][0] = (struct swn_lane_group){.compute_ns = 100, .weight_bytes = 300, .missing_bytes = 300};
        for (unsigned i = 0; i < 4; i++)
            lane_scene_add(&scene, 0, 0, scene.state.now_ns, scene.state.now_ns + (i ? 4000 : 310));
        for (unsigned error = 0; error < 2; error++) {
            scene.state.time_error = error ? 0.2 : 0;
            decide(due[p]); /* reading takes 300, and three compute as long: nobody makes it later than it is alone */
            assert_true(decision.members[0] == 0 && !decision.dropped_count);
            assert_true(decision.member_count == 3 || due[p] == SWN_LANE_TARDY);
        }
        scene.groups[0][0].missing_bytes = 0;
        decide(due[p]);
        assert_true(decision.member_count <= 2 && decision.members[0] == 0 && !decision.dropped_count);
        scene.state.time_error = 0;
        decide(due[p]);
        assert_true(decision.member_count == 3 || due[p] == SWN_LANE_TARDY);
    }
}

/* A short request of another model would go first, and would hold what the long one needs to go on, and the other way
 * round. */
static void nobody_holds_what_another_needs(void **state)
{
    (void)state;
    for (unsigned p = 0; p < SWN_LANE_POLICIES; p++) {
        lane_scene_init(&scene, 2, 2, LANE_CPU);
        for (unsigned m = 0; m < 2; m++) {
            uint64_t ns = m ? 10 : 100000;
            scene.groups[m][0] = (struct swn_lane_group){.compute_ns = ns, .activation_bytes = 45};
            scene.groups[m][1] = (struct swn_lane_group){.compute_ns = ns, .activation_bytes = 70, .state_bytes = 40};
        }
        lane_scene_add(&scene, 0, 1, scene.state.now_ns, 0);
        lane_scene_add(&scene, 1, 0, scene.state.now_ns, 0);
        scene.state.memory_bytes = 100;
        decide(p);
        assert_int_equal(decision.member_count, 1);
        assert_int_equal(decision.members[0], 0);
        scene.state.memory_bytes = 110;
        decide(p);
        if (p == SWN_LANE_COMPLETION || p == SWN_LANE_EXACT)
            assert_int_equal(decision.members[0], 1);
    }
}

/* Waiting time of all requests together until the last one has ended; nobody gets old. */
static double total_wait(const struct lane_scene *from, enum swn_lane_policy policy)
{
    double sum = 0;

    scene = *from;
    scene.state.models = scene.models;
    scene.state.requests = scene.requests;
    while (scene.state.request_count) {
        uint64_t before = scene.state.now_ns;
        uint32_t n = scene.state.request_count;
        for (uint32_t i = 0; i < n; i++)
            scene.requests[i].arrived_ns = before;
        decide(policy);
        if (!decision.member_count)
            scene.state.now_ns = decision.wake_ns;
        lane_apply(&scene, &decision);
        sum += n * (double)(scene.state.now_ns - before);
    }
    return sum;
}

static void exact_is_least(void **state)
{
    static struct lane_scene from;
    double mean = 0;

    (void)state;
    for (unsigned round = 0; round < rounds_of(60); round++) {
        double least, plan;
        lane_scene_init(&from, 1 + round % 2, 3, (enum lane_family)rnd_below(LANE_FAMILIES));
        for (uint32_t m = 0; m < 2; m++)
            from.models[m].groups = from.groups[m];
        from.state.batch_most = round % 3 ? 0 : 2;
        lane_scene_fill(&from, 2 + (uint32_t)rnd_below(6));
        least = total_wait(&from, SWN_LANE_EXACT);
        plan = total_wait(&from, SWN_LANE_COMPLETION);
        assert_true(plan >= least * (1 - 1e-6) && plan <= least * 1.1);
        mean += plan / least / rounds_of(60);
        assert_true(total_wait(&from, SWN_LANE_BATCH) >= least * (1 - 1e-6));
        assert_true(total_wait(&from, SWN_LANE_NO_BATCH) >= least * (1 - 1e-6));
    }
    assert_true(mean < 1.01); /* also of two models */
}

/* Times that are off by a quarter either way cost a tenth at most: decisions see them, the lane takes the true ones. */
static void wrong_times_cost_little(void **state)
{
    static struct lane_scene from, believed;
    double with_true = 0, with_wrong = 0;

    (void)state;
    for (unsigned round = 0; round < rounds_of(100); round++) {
        lane_scene_init(&from, 1 + round % 2, 5, LANE_DISK);
        lane_scene_fill(&from, 4 + (uint32_t)rnd_below(9));
        with_true += total_wait(&from, SWN_LANE_COMPLETION);
        scene = from;
        believed = from;
        for (uint32_t m = 0; m < 2; m++) {
            scene.models[m].groups = from.groups[m];
            believed.models[m].groups = believed.groups[m];
            for (uint32_t g = 0; g < 5; g++) {
                believed.groups[m][g].compute_ns =
                    (uint64_t)((double)from.groups[m][g].compute_ns * uniform(0.75, 1.25));
                believed.groups[m][g].missing_bytes =
                    (uint64_t)((double)from.groups[m][g].missing_bytes * uniform(0.75, 1.25));
            }
        }
        scene.state.models = scene.models;
        scene.state.requests = scene.requests;
        while (scene.state.request_count) {
            uint64_t before = scene.state.now_ns;
            uint32_t n = scene.state.request_count;
            struct swn_lane_state seen = scene.state;
            for (uint32_t i = 0; i < n; i++)
                scene.requests[i].arrived_ns = before;
            seen.models = believed.models;
            assert_int_equal(swn_lane_decide(SWN_LANE_COMPLETION, &seen, lane_scratch, &decision), 0);
            lane_apply(&scene, &decision);
            with_wrong += n * (double)(scene.state.now_ns - before);
        }
    }
    print_message("times off by a quarter: %.3f\n", with_wrong / with_true);
    assert_true(with_wrong <= with_true * 1.10);
}

/* Memory has become smaller than what is set aside: something is decided all the same, and it is one that has begun. */
static void memory_that_shrank(void **state)
{
    (void)state;
    for (unsigned p = 0; p < SWN_LANE_POLICIES; p++)
        for (unsigned round = 0; round < rounds_of(50); round++) {
            lane_scene_init(&scene, 2, 4, LANE_DISK);
            lane_scene_memory(&scene);
            for (unsigned i = 0; i < 20; i++)
                lane_scene_add(&scene, i % 2, i < 6 ? 1 : (uint32_t)rnd_below(4), scene.state.now_ns, 0);
            scene.groups[0][1].state_bytes = scene.groups[1][1].state_bytes = scene.state.memory_bytes / 2;
            decide(p);
            assert_int_equal(decision.member_count, 1);
            assert_true(decision.group > 0);
        }
}

static uint64_t any_number(void)
{
    switch (rnd_below(6)) {
    case 0:
        return 0;
    case 1:
        return UINT64_MAX - rnd_below(3);
    case 2:
        return rnd_below(4);
    case 3:
        return rnd_below(1000000);
    default:
        return rnd() >> rnd_below(64);
    }
}

static double any_double(void)
{
    static const double odd[] = {0, -1, NAN, INFINITY, -INFINITY, 1e-300, 1e300, 1, 0.5, 2.6};

    return odd[rnd_below(sizeof odd / sizeof *odd)];
}

static void odd_numbers(void **state)
{
    static uint64_t table[4];

    (void)state;
    for (unsigned round = 0; round < rounds_of(1500); round++) {
        unsigned p = round % SWN_LANE_POLICIES, n = (unsigned)rnd_below(round % 50 ? 20 : 520);
        lane_scene_init(&scene, 1 + (uint32_t)rnd_below(LANE_MODELS), 1 + (uint32_t)rnd_below(SWN_LANE_GROUPS),
                        LANE_CPU);
        for (uint32_t m = 0; m < scene.state.model_count; m++) {
            for (uint32_t g = 0; g < scene.models[m].group_count; g++) {
                for (unsigned k = 0; k < 4; k++)
                    table[k] = any_number();
                scene.groups[m][g] = (struct swn_lane_group){.compute_ns = any_number(),
                                                             .weight_bytes = any_number(),
                                                             .missing_bytes = any_number(),
                                                             .window_bytes = any_number(),
                                                             .activation_bytes = any_number(),
                                                             .state_bytes = any_number(),
                                                             .identity = rnd_below(3),
                                                             .batch_ns = rnd_below(2) ? table : NULL,
                                                             .batch_count = (uint32_t)rnd_below(5)};
            }
            scene.models[m].output_bytes = any_number();
            scene.models[m].switch_ns = any_number();
            scene.models[m].batch_delay_ns = any_number();
            scene.models[m].batch_full = (uint32_t)any_number();
        }
        for (unsigned i = 0; i < n; i++) {
            uint32_t m = (uint32_t)rnd_below(scene.state.model_count);
            uint32_t k =
                lane_scene_add(&scene, m, (uint32_t)rnd_below(scene.models[m].group_count), any_number(), any_number());
            scene.requests[k].weight = any_double();
        }
        scene.state.now_ns = any_number();
        scene.state.last_model = (uint32_t)any_number();
        scene.state.disk_bytes_per_ns = any_double();
        scene.state.memory_bytes = any_number();
        scene.state.batch_most = (uint32_t)any_number();
        scene.state.time_error = any_double();
        decide(p);
        scene.state.memory_bytes = 0;
        lane_check(&scene, &decision);
        assert_true(!n || decision.member_count || decision.dropped_count || decision.wake_ns);
    }
}

static void refused_states(void **state)
{
    (void)state;
    for (unsigned p = 0; p < SWN_LANE_POLICIES; p++)
        for (unsigned fault = 0; fault < 4; fault++) {
            lane_scene_init(&scene, 2, 3, LANE_DISK);
            lane_scene_fill(&scene, 5);
            scene.requests[2].model = 0;
            if (fault == 0)
                scene.requests[2].model = 2;
            if (fault == 1)
                scene.requests[2].group = 3;
            if (fault == 2)
                scene.models[0].group_count = 0;
            if (fault == 3)
                scene.models[0].group_count = SWN_LANE_GROUPS + 1;
            assert_int_equal(swn_lane_decide(p, &scene.state, lane_scratch, &decision), -EINVAL);
            assert_int_equal(decision.member_count, 0);
        }
    lane_scene_init(&scene, 1, 1, LANE_DISK);
    assert_int_equal(swn_lane_decide(SWN_LANE_POLICIES, &scene.state, lane_scratch, &decision), -EINVAL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(names),
        cmocka_unit_test(nothing_to_do),
        cmocka_unit_test(all_requests_end),
        cmocka_unit_test(one_that_never_fits),
        cmocka_unit_test(nothing_begins_that_could_not_end),
        cmocka_unit_test(what_is_not_known_runs_alone),
        cmocka_unit_test(many_begin_together_where_few_have_room),
        cmocka_unit_test(states_leave_room_for_the_largest_group),
        cmocka_unit_test(deadlines_leave_time_for_errors),
        cmocka_unit_test(nobody_holds_what_another_needs),
        cmocka_unit_test(exact_is_least),
        cmocka_unit_test(wrong_times_cost_little),
        cmocka_unit_test(memory_that_shrank),
        cmocka_unit_test(odd_numbers),
        cmocka_unit_test(refused_states),
    };
    return cmocka_run_group_tests(tests, lane_scratch_make, lane_scratch_done);
}
