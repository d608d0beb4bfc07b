/* Simulations small enough to be worked out by hand: the disk reads a byte in a nanosecond. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>
#include <errno.h>

#include "scheduler/simulation/simulation.h"
#include "scheduler/simulation/workload.h"

#define HEAD "network,dense,load_bytes,compute_ns,activation_bytes,output_bytes,peak_bytes\n"
#define ARRIVALS "arrived_ns,job,network,inputs,upstream,outcome\n"

static struct swn_network_table networks;
static struct swn_arrival_table arrivals;
static struct swn_simulation how;
static struct swn_simulation_result result;
static uint64_t response[64];

static void begin(const char *layers, const char *passes, enum swn_task_policy policy, uint64_t memory_bytes)
{
    uint32_t line;

    assert_int_equal(swn_networks_parse(layers, strlen(layers), &networks, &line), 0);
    assert_int_equal(swn_arrivals_parse(passes, strlen(passes), &networks, &arrivals, &line), 0);
    how = (struct swn_simulation){.policy = policy, .estimate = 1, .paging = 2, .probability = 0.5};
    how.machine = (struct swn_task_machine){.disk_bytes_per_ns = 1, .memory_bytes = memory_bytes, .workers = 2};
}

static void simulate(void)
{
    assert_int_equal(swn_simulate_tasks(&networks, &arrivals, &how, response, &result), 0);
    swn_arrivals_free(&arrivals);
}

static void a_response_is_from_arrival_to_the_last_end(void **state)
{
    (void)state;
    begin(HEAD "a,0,10,100,5,0,0\na,0,20,100,5,0,0\n", ARRIVALS "1000,0,a,1,-,1\n2000,1,a,2,-,1\n", SWN_TASK_MASA,
          1000);
    simulate();
    assert_int_equal(response[0], 10 + 100 + 100);
    assert_int_equal(response[1], 10 + 200 + 200); /* two inputs */
    assert_int_equal(result.bytes_read, 60);
    assert_int_equal(result.compute_ns, 600);
    assert_int_equal(result.end_ns, 2410);
    assert_int_equal(result.over_commits, 0);
    assert_true(result.mean_response_ns == 310);
}

static void memory_that_is_exceeded_is_paid_for(void **state)
{
    (void)state;
    begin(HEAD "a,0,80,100,80,0,0\n", ARRIVALS "0,0,a,1,-,1\n", SWN_TASK_BULK, 100);
    simulate();
    /* 160 used, 60 too many: of the 160 that are touched 60 move in and 60 out. */
    assert_int_equal(response[0], 80 + 100 + 120);
    assert_int_equal(result.over_commits, 1);
    assert_int_equal(result.paged_bytes, 120);
    assert_int_equal(result.peak_bytes, 160);
}

static void weights_that_are_shared_are_read_once(void **state)
{
    static const char layers[] = HEAD "a,0,10,100,5,0,0\na,0,20,100,5,0,0\n";
    static const char passes[] = ARRIVALS "0,0,a,1,-,1\n1000,1,a,1,-,1\n";

    (void)state;
    begin(layers, passes, SWN_TASK_LOOKAHEAD, 1000);
    simulate();
    assert_int_equal(result.bytes_read, 30);
    assert_int_equal(response[1], 200);
    begin(layers, passes, SWN_TASK_LOOKAHEAD, 1000);
    how.is_private = 1;
    simulate();
    assert_int_equal(result.bytes_read, 60);
    assert_int_equal(response[1], 210);
}

/* b is behind a, c behind b. */
static void cascade(enum swn_task_cascade kind, int outcome)
{
    static const char layers[] = HEAD "a,0,10,100,5,0,0\nb,0,10,40,5,0,0\nc,0,10,300,5,0,0\n";

    begin(layers,
          outcome ? ARRIVALS "0,0,a,1,-,1\n0,0,b,1,a,1\n0,0,c,1,b,1\n"
                  : ARRIVALS "0,0,a,1,-,0\n0,0,b,1,a,1\n0,0,c,1,b,1\n",
          SWN_TASK_MASA, 1000);
    how.machine.readers = 1;
    how.machine.workers = 3;
    how.cascade = kind;
    simulate();
}

static void what_is_not_needed_does_not_run(void **state)
{
    (void)state;
    cascade(SWN_CASCADE_WAIT, 1);
    assert_int_equal(response[0], 110 + 50 + 310);
    cascade(SWN_CASCADE_WAIT, 0);
    assert_int_equal(response[0], 110);
    assert_int_equal(result.bytes_read, 10);
    assert_int_equal(result.wasted_ns, 0);
}

static void what_ran_for_nothing_is_wasted(void **state)
{
    (void)state;
    cascade(SWN_CASCADE_IGNORE, 0);
    assert_int_equal(response[0], 30 + 300);
    assert_int_equal(result.wasted_ns, 0); /* all of it was asked for */
    cascade(SWN_CASCADE_PREEMPT, 1);
    assert_int_equal(response[0], 30 + 300);
    cascade(SWN_CASCADE_PREEMPT, 0);
    assert_int_equal(response[0], 110);      /* c is aborted with a's answer, although b had ended by then */
    assert_int_equal(result.wasted_ns, 300); /* its layer runs to its end */
    assert_int_equal(result.compute_ns, 440);
}

static void a_limit_that_holds_is_not_exceeded_by_wrong_estimates(void **state)
{
    static const char layers[] = HEAD "a,0,40,100,60,10,0\na,0,40,100,50,0,0\nb,0,30,50,40,5,0\nb,0,20,50,40,0,0\n";

    (void)state;
    for (int quarter = 1; quarter <= 8; quarter++) {
        begin(layers, ARRIVALS "0,0,a,1,-,1\n0,0,b,1,-,1\n10,1,b,1,-,1\n", SWN_TASK_LOOKAHEAD, 110);
        how.estimate = quarter / 4.0;
        simulate();
        assert_int_equal(result.over_commits, 0);
        assert_int_equal(result.compute_ns, 400);
        if (quarter >= 4)
            assert_true(result.peak_bytes <= 110);
    }
}

static void the_same_seed_is_the_same_result(void **state)
{
    struct swn_workload load = {.scenario = SWN_SCENARIO_GEOMETRIC,
                                .jobs = 30,
                                .inputs = 1,
                                .rho = 1,
                                .seed = 3,
                                .member_count = 2,
                                .members = {0, 1},
                                .upstream = {SWN_TABLE_NONE, SWN_TABLE_NONE}};
    double mean = 0;

    (void)state;
    for (int again = 0; again < 2; again++) {
        begin(HEAD "a,0,40,100,60,10,0\na,0,40,100,50,0,0\nb,0,30,50,40,5,0\nb,0,20,50,40,0,0\n",
              ARRIVALS "0,0,a,1,-,1\n", SWN_TASK_LOOKAHEAD, 110);
        swn_arrivals_free(&arrivals);
        assert_int_equal(swn_workload_make(&networks, &load, 1, &arrivals), 0);
        simulate();
        assert_int_equal(result.over_commits, 0);
        assert_true(result.peak_bytes <= 110);
        assert_true(!again || mean == result.mean_response_ns);
        mean = result.mean_response_ns;
    }
}

static void what_cannot_run_is_refused(void **state)
{
    (void)state;
    begin(HEAD "a,0,80,100,80,0,0\n", ARRIVALS "0,0,a,1,-,1\n", SWN_TASK_LOOKAHEAD, 100);
    assert_int_equal(swn_simulate_tasks(&networks, &arrivals, &how, response, &result), -ENOSPC);
    how.machine.workers = 9;
    assert_int_equal(swn_simulate_tasks(&networks, &arrivals, &how, response, &result), -EINVAL);
    swn_arrivals_free(&arrivals);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_response_is_from_arrival_to_the_last_end),
        cmocka_unit_test(memory_that_is_exceeded_is_paid_for),
        cmocka_unit_test(weights_that_are_shared_are_read_once),
        cmocka_unit_test(what_is_not_needed_does_not_run),
        cmocka_unit_test(what_ran_for_nothing_is_wasted),
        cmocka_unit_test(a_limit_that_holds_is_not_exceeded_by_wrong_estimates),
        cmocka_unit_test(the_same_seed_is_the_same_result),
        cmocka_unit_test(what_cannot_run_is_refused),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
