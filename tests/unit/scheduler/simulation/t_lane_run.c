/* A simulated lane takes the times that can be worked out by hand: with all weights in memory, with half of them, and
 * where requests share what is read. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include <errno.h>

#include "scheduler/policies/server.h"
#include "scheduler/simulation/lane_run.h"
#include "tests/unit/support/random.h"

#define MS UINT64_C(1000000)
#define S (1000 * MS)
#define MIB (UINT64_C(1) << 20)
#define DISK ((double)MIB / 1e6) /* a MiB takes a millisecond */

static struct swn_lane_group groups[2];
static struct swn_lane_load load;
static struct swn_lane_run run;
static struct swn_lane_outcome outcome;
static struct swn_lane_totals totals;

/* Two groups of 10 MiB each, 4 ms of computing each. */
static int begin(void **state)
{
    (void)state;
    for (int g = 0; g < 2; g++)
        groups[g] = (struct swn_lane_group){.compute_ns = 4 * MS, .weight_bytes = 10 * MIB};
    load = (struct swn_lane_load){.model = {.groups = groups, .group_count = 2}, .rate_per_s = 1};
    run = (struct swn_lane_run){.loads = &load,
                                .count = 1,
                                .policy = SWN_LANE_COMPLETION,
                                .disk_bytes_per_ns = DISK,
                                .duration_ns = 400 * S,
                                .seed = 1};
    return 0;
}

static void simulate(void)
{
    assert_int_equal(swn_lane_run(&run, &outcome, &totals), 0);
    assert_int_equal(outcome.arrived, outcome.done + outcome.dropped + outcome.refused);
}

static void assert_near(double found, double wanted, double part)
{
    if (found < wanted * (1 - part) || found > wanted * (1 + part))
        fail_msg("%g is not near %g", found, wanted);
}

static void test_weights_that_fit_are_read_once(void **state)
{
    (void)state;
    load.deadline_ns = 30 * MS;
    simulate();
    assert_near((double)outcome.arrived, 400, 0.15);
    assert_int_equal(outcome.done, outcome.arrived);
    assert_true(totals.read_bytes == 20 * MIB);
    assert_true(outcome.p50_ns >= 8e6 && outcome.p50_ns < 8.001e6);
    assert_near(outcome.mean_ns, 8e6, 0.05); /* now and then two come at once */
    assert_near(outcome.resident_bytes, (double)(20 * MIB), 0.02);
    assert_true(outcome.late <= 2);
    assert_near((double)totals.busy_ns, 8e6 * (double)outcome.done, 0.02);
}

static void test_weights_that_do_not_fit_are_read_each_time(void **state)
{
    (void)state;
    run.memory_bytes = 10 * MIB;
    load.deadline_ns = 15 * MS;
    simulate();
    /* A group's reading takes 10 ms, its computing 4 ms beside that. */
    assert_true(outcome.p50_ns >= 20e6 && outcome.p50_ns < 20.001e6);
    assert_near((double)totals.read_bytes, (double)(20 * MIB * outcome.done), 0.05);
    assert_near(outcome.resident_bytes, (double)(10 * MIB), 0.02);
    assert_true(outcome.late + 5 > outcome.done); /* now and then one finds what another has read */
}

static void test_requests_share_what_is_read(void **state)
{
    struct swn_lane_outcome alone;

    (void)state;
    run.memory_bytes = 10 * MIB;
    run.duration_ns = 20 * S;
    load.rate_per_s = 70; /* one after the other the lane does 50 a second */
    simulate();
    assert_true(outcome.refused == 0 && (double)outcome.members / (double)outcome.batches > 1.3);
    run.policy = SWN_LANE_NO_BATCH;
    assert_int_equal(swn_lane_run(&run, &alone, &totals), 0);
    assert_true(alone.members == alone.batches);
    assert_true(alone.p50_ns > 5 * outcome.p50_ns);
}

static void test_more_than_can_be_done_is_refused(void **state)
{
    (void)state;
    load.rate_per_s = 400; /* computing alone allows 125 */
    run.duration_ns = 10 * S;
    simulate();
    assert_true(outcome.refused > outcome.arrived / 3);
    assert_near((double)outcome.done, 125 * (double)totals.span_ns / 1e9, 0.05);
}

static void test_two_models_take_turns_in_memory(void **state)
{
    struct swn_lane_load loads[2];
    struct swn_lane_outcome outcomes[2];

    (void)state;
    loads[0] = loads[1] = load;
    loads[1].rate_per_s = 0.01;
    run.loads = loads;
    run.count = 2;
    run.memory_bytes = 20 * MIB;
    assert_int_equal(swn_lane_run(&run, outcomes, &totals), 0);
    assert_true(outcomes[0].p50_ns < 8.1e6); /* it is in memory for nearly all of its requests */
    assert_true(outcomes[1].done && outcomes[1].p50_ns > 19e6);
    assert_near(outcomes[0].resident_bytes + outcomes[1].resident_bytes, (double)(20 * MIB), 0.02);
}

static void test_same_seed_gives_the_same(void **state)
{
    struct swn_lane_outcome again;

    (void)state;
    load.rate_per_s = 100;
    run.duration_ns = 10 * S;
    simulate();
    assert_int_equal(swn_lane_run(&run, &again, &totals), 0);
    assert_memory_equal(&again, &outcome, sizeof again);
    run.seed = 2;
    assert_int_equal(swn_lane_run(&run, &again, &totals), 0);
    assert_true(again.arrived != outcome.arrived || again.mean_ns < outcome.mean_ns || again.mean_ns > outcome.mean_ns);
}

/* Gaps of one model between arrivals, seen by a lane that never waits: as each request is done in no time, its batches
 * are as many as arrivals. */
static void test_arrivals_are_spaced_as_told(void **state)
{
    struct swn_lane_outcome even, crowds;

    (void)state;
    load.rate_per_s = 100;
    run.spacing = SWN_LANE_CONSTANT;
    simulate();
    even = outcome;
    assert_in_range(even.arrived, 39990, 40000);
    assert_true(even.p99_ns < 8.001e6); /* each 10 ms, and done in 8 */
    run.spacing = SWN_LANE_PARETO;
    simulate();
    crowds = outcome;
    run.spacing = SWN_LANE_POISSON;
    simulate();
    assert_near((double)crowds.arrived, 40000, 0.35);
    assert_true(crowds.p50_ns > even.p50_ns && outcome.p99_ns > even.p99_ns);
}

/* The same requests come, and take as long; only the policy knows less. */
static void test_wrong_times_change_decisions_only(void **state)
{
    struct swn_lane_outcome known;

    (void)state;
    run.memory_bytes = 10 * MIB;
    run.duration_ns = 100 * S;
    run.policy = SWN_LANE_TARDY;
    load.rate_per_s = 60;
    load.deadline_ns = 60 * MS;
    simulate();
    known = outcome;
    run.time_error = 0.9;
    simulate();
    assert_int_equal(outcome.arrived, known.arrived);
    assert_true(outcome.done - outcome.late != known.done - known.late);
    run.policy = SWN_LANE_NO_BATCH; /* it looks at no times */
    simulate();
    known = outcome;
    run.time_error = 0;
    simulate();
    assert_memory_equal(&known, &outcome, sizeof known);
}

/* ResNet-50 in half of its weights, at a rate of so many times that at which requests are served one by one. */
static double on_time(enum swn_lane_policy policy, enum swn_lane_spacing spacing, double error, double times)
{
    static const uint64_t weights_mib[] = {5, 5, 8, 4, 8, 0, 23, 0, 17, 0, 17, 0, 0, 0, 7};
    static struct swn_lane_group resnet[15];
    double alone = 0, all = 0;

    for (int g = 0; g < 15; g++) {
        resnet[g] = (struct swn_lane_group){.compute_ns = 11 * MS,
                                            .weight_bytes = weights_mib[g] * MIB,
                                            .activation_bytes = 3 * MIB,
                                            .state_bytes = g ? MIB / 5 : 0};
        alone += weights_mib[g] ? 1e9 * (double)weights_mib[g] / 90 : 11e6;
    }
    load = (struct swn_lane_load){.model = {.groups = resnet, .group_count = 15},
                                  .rate_per_s = times * 1e9 / alone,
                                  .deadline_ns = (uint64_t)(4 * alone)};
    run = (struct swn_lane_run){.loads = &load,
                                .count = 1,
                                .policy = policy,
                                .memory_bytes = 47 * MIB,
                                .disk_bytes_per_ns = 90 * (double)MIB / 1e9,
                                .duration_ns = 100 * S,
                                .spacing = spacing,
                                .time_error = error};
    for (run.seed = 1; run.seed <= 2; run.seed++) {
        simulate();
        all += (double)(outcome.done - outcome.late) / (double)outcome.arrived;
    }
    return all / 2;
}

/* Whatever the arrivals, and whether or not times are right. Where more come than can be served, the earliest deadline
 * first is the worse choice. */
static void test_tardy_has_more_on_time_than_edf(void **state)
{
    static const double rates[] = {3, 4.5, 6};

    (void)state;
    for (unsigned spacing = SWN_LANE_POISSON; spacing < SWN_LANE_SPACINGS; spacing++)
        for (unsigned k = 0; k < 6; k += 8 / rounds_of(8)) { /* all, or the first and the fifth */
            double rate = rates[k % 3], error = k < 3 ? 0 : 0.25;
            double tardy = on_time(SWN_LANE_TARDY, spacing, error, rate), mean_ns = outcome.mean_ns;
            double edf = on_time(SWN_LANE_EDF, spacing, error, rate);
            print_message("spacing %u, error %.2f, rate %.1f: tardy %.3f, edf %.3f\n", spacing, error, rate, tardy,
                          edf);
            assert_true(tardy >= edf - 0.002);
            assert_true(tardy >= 1.1 * edf || edf > 0.9);
            assert_true(k % 3 || mean_ns < 0.9 * outcome.mean_ns); /* and where all are, they end sooner */
        }
}

/* As in the server, or as one with another bound. */
static void test_a_batch_is_bounded_at_any_load(void **state)
{
    static const enum swn_lane_policy policies[] = {SWN_LANE_BATCH, SWN_LANE_COMPLETION, SWN_LANE_TARDY, SWN_LANE_LAZY};
    static const uint32_t bounds[] = {0, 1, 4, 100};

    (void)state;
    run.duration_ns = S / 2;
    for (unsigned k = 0; k < 16; k++)
        for (load.rate_per_s = 100; load.rate_per_s < 2000; load.rate_per_s *= 16) {
            uint32_t bound = bounds[k / 4];
            run.policy = policies[k % 4];
            run.batch_most = bound;
            simulate();
            assert_true(outcome.members <= (bound ? bound : SWN_LANE_TURNS) * outcome.batches);
            /* Batch takes all that it may. */
            assert_true(run.policy != SWN_LANE_BATCH || bound || load.rate_per_s < 1000 ||
                        outcome.members > SWN_LANE_TURNS / 2 * outcome.batches);
        }
}

/* One request alone needs a part of a group's weights in memory at once. Were it all of them, memory would have no room
 * beside the second group for the state of another request, and each would run to its end before the next one. */
static void test_a_request_alone_streams_its_weights(void **state)
{
    (void)state;
    groups[0].activation_bytes = groups[1].activation_bytes = MIB;
    groups[1].state_bytes = 2 * MIB;
    groups[1].weight_bytes = 18 * MIB;
    run.memory_bytes = 20 * MIB;
    run.duration_ns = 2 * S;
    load.rate_per_s = 200;
    simulate();
    assert_true(outcome.members > outcome.batches);
}

static void test_wrong_numbers_are_refused(void **state)
{
    (void)state;
    load.rate_per_s = 0;
    assert_int_equal(swn_lane_run(&run, &outcome, &totals), -EINVAL);
    load.rate_per_s = 1;
    run.disk_bytes_per_ns = -1;
    assert_int_equal(swn_lane_run(&run, &outcome, &totals), -EINVAL);
    run.disk_bytes_per_ns = DISK;
    load.model.group_count = SWN_LANE_GROUPS + 1;
    assert_int_equal(swn_lane_run(&run, &outcome, &totals), -EINVAL);
    load.model.group_count = 2;
    groups[1].weight_bytes = UINT64_MAX;
    assert_int_equal(swn_lane_run(&run, &outcome, &totals), -EINVAL);
    groups[1].weight_bytes = MIB;
    run.count = 0;
    assert_int_equal(swn_lane_run(&run, &outcome, &totals), -EINVAL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(test_weights_that_fit_are_read_once, begin),
        cmocka_unit_test_setup(test_weights_that_do_not_fit_are_read_each_time, begin),
        cmocka_unit_test_setup(test_requests_share_what_is_read, begin),
        cmocka_unit_test_setup(test_more_than_can_be_done_is_refused, begin),
        cmocka_unit_test_setup(test_two_models_take_turns_in_memory, begin),
        cmocka_unit_test_setup(test_same_seed_gives_the_same, begin),
        cmocka_unit_test_setup(test_arrivals_are_spaced_as_told, begin),
        cmocka_unit_test_setup(test_wrong_times_change_decisions_only, begin),
        cmocka_unit_test_setup(test_tardy_has_more_on_time_than_edf, begin),
        cmocka_unit_test_setup(test_a_batch_is_bounded_at_any_load, begin),
        cmocka_unit_test_setup(test_a_request_alone_streams_its_weights, begin),
        cmocka_unit_test_setup(test_wrong_numbers_are_refused, begin),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
