/* Scenarios have the networks, loads and shares that they are to have. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>
#include <errno.h>

#include "scheduler/simulation/workload.h"

#define JOBS 3000

static struct swn_network_table networks;
static struct swn_workload load;
static struct swn_arrival_table table;

/* Three networks that take 100, 200 and 300 ns alone, by one layer each: half reading, half computing. */
static void begin(enum swn_scenario scenario)
{
    static const char text[] = "network,dense,load_bytes,compute_ns,activation_bytes,output_bytes,peak_bytes\n"
                               "a,0,50,50,1,0,0\nb,0,100,100,1,0,0\nc,0,150,150,1,0,0\n";
    uint32_t line;

    assert_int_equal(swn_networks_parse(text, strlen(text), &networks, &line), 0);
    load = (struct swn_workload){.scenario = scenario,
                                 .jobs = JOBS,
                                 .inputs = 1,
                                 .rho = 0.5,
                                 .probability = 1,
                                 .seed = 7,
                                 .member_count = 3,
                                 .members = {0, 1, 2},
                                 .deviation_ns = 10};
    for (uint32_t k = 0; k < SWN_TABLE_NETWORKS; k++)
        load.upstream[k] = SWN_TABLE_NONE;
}

static void make(void)
{
    swn_arrivals_free(&table);
    assert_int_equal(swn_workload_make(&networks, &load, 1, &table), 0);
    assert_int_equal(table.job_count, JOBS);
}

static double interval(void)
{
    return (double)table.arrivals[table.count - 1].arrived_ns / (JOBS - 1);
}

static void near(double got, double want)
{
    assert_true(got > 0.93 * want && got < 1.07 * want);
}

static void a_network_alone_reads_while_it_computes(void **state)
{
    static const struct swn_task_layer layers[] = {{.load_bytes = 10, .compute_ns = 50},
                                                   {.load_bytes = 100, .compute_ns = 5}};
    struct swn_task_network network = {.layers = layers, .layer_count = 2};

    (void)state;
    assert_int_equal(swn_workload_alone_ns(&network, 1, 1), 115);
    assert_int_equal(swn_workload_alone_ns(&network, 1, 3), 175);
    assert_int_equal(swn_workload_alone_ns(&network, 10, 1), 56);
}

static void jobs_have_the_networks_of_their_scenario(void **state)
{
    uint32_t ones = 0;

    (void)state;
    begin(SWN_SCENARIO_ONE);
    make();
    assert_int_equal(table.count, JOBS);
    near(interval(), 200 / 0.5);
    load.scenario = SWN_SCENARIO_ONE_AS_PRINTED;
    make();
    near(interval(), 600); /* the sum of all */
    load.scenario = SWN_SCENARIO_THREE;
    make();
    assert_int_equal(table.count, 3 * JOBS);
    near(interval(), 600 / 0.5);
    load.scenario = SWN_SCENARIO_SUBSET;
    make();
    near(table.count, JOBS * 12 / 7.0); /* seven sets, of 12 networks together */
    near(interval(), 200 * 12 / 7.0 / 0.5);
    load.scenario = SWN_SCENARIO_GEOMETRIC;
    make();
    near(table.count, JOBS * (0.5 + 2 * 0.25 + 3 * 0.25));
    for (uint32_t i = 0; i < table.count; i++) {
        for (uint32_t k = i + 1; k < table.count && table.arrivals[k].job == table.arrivals[i].job; k++)
            assert_int_not_equal(table.arrivals[k].network, table.arrivals[i].network);
        ones += table.arrivals[i].network == 0;
    }
    near(3 * ones, table.count);
    swn_arrivals_free(&table);
}

static void jobs_are_spaced_as_asked(void **state)
{
    (void)state;
    begin(SWN_SCENARIO_ONE);
    load.interval_ns = 1000;
    for (load.spacing = SWN_SPACING_CONSTANT; load.spacing <= SWN_SPACING_POISSON; load.spacing++) {
        make();
        near(interval(), 1000);
    }
    load.spacing = SWN_SPACING_PARETO; /* its mean converges slowly: the least gap is what is certain */
    make();
    for (uint32_t i = 1; i < table.count; i++)
        assert_true(table.arrivals[i].arrived_ns - table.arrivals[i - 1].arrived_ns >= 333);
    swn_arrivals_free(&table);
}

static void the_share_of_positive_jobs_is_exact(void **state)
{
    uint32_t positive = 0, first = 0;

    (void)state;
    begin(SWN_SCENARIO_FIXED);
    load.upstream[1] = 0;
    load.upstream[2] = 1;
    load.probability = 0.3;
    make();
    for (uint32_t i = 0; i < table.count; i += 3) {
        positive += table.arrivals[i].outcome;
        first += i < table.count / 2 ? table.arrivals[i].outcome : 0;
        assert_int_equal(table.arrivals[i + 1].upstream, i);
        assert_int_equal(table.arrivals[i + 2].upstream, i + 1);
        assert_int_equal(table.arrivals[i + 1].outcome, 1);
    }
    assert_int_equal(positive, JOBS * 3 / 10);
    near(2 * first, positive); /* and they are mixed */
    swn_arrivals_free(&table);
}

static void what_is_out_of_range_is_refused(void **state)
{
    struct swn_arrival_table none;
    enum swn_scenario scenario;
    enum swn_spacing spacing;

    (void)state;
    begin(SWN_SCENARIO_FIXED);
    load.upstream[1] = 1;
    assert_int_equal(swn_workload_make(&networks, &load, 1, &none), -EINVAL);
    begin(SWN_SCENARIO_FIXED);
    load.members[0] = 3;
    assert_int_equal(swn_workload_make(&networks, &load, 1, &none), -EINVAL);
    begin(SWN_SCENARIO_FIXED);
    load.rho = 0;
    assert_int_equal(swn_workload_make(&networks, &load, 1, &none), -EINVAL);
    assert_int_equal(swn_scenario_parse("geometric", &scenario), 0);
    assert_int_equal(scenario, SWN_SCENARIO_GEOMETRIC);
    assert_int_equal(swn_scenario_parse("two", &scenario), -EINVAL);
    assert_int_equal(swn_spacing_parse("pareto", &spacing), 0);
    assert_int_equal(swn_spacing_parse("", &spacing), -EINVAL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_network_alone_reads_while_it_computes),
        cmocka_unit_test(jobs_have_the_networks_of_their_scenario),
        cmocka_unit_test(jobs_are_spaced_as_asked),
        cmocka_unit_test(the_share_of_positive_jobs_is_exact),
        cmocka_unit_test(what_is_out_of_range_is_refused),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
