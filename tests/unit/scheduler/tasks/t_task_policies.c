/* What Masa's paper says, what its code does, Bulk and DeepEye, and which passes of a cascade may do what: case by
 * case.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <errno.h>

#include "tests/unit/support/task_fixture.h"

#define CONV(load, compute, activations)                                                                               \
    {                                                                                                                  \
        load, compute, activations, 0, 0                                                                               \
    }
#define DENSE(load, compute, activations)                                                                              \
    {                                                                                                                  \
        load, compute, activations, 0, 1                                                                               \
    }

static struct task_fixture x;

static void add(struct swn_task_layer a, struct swn_task_layer b)
{
    uint32_t n = task_add(&x, 2);

    x.layers[n][0] = a;
    x.layers[n][1] = b;
}

static void expect(enum swn_task_policy policy, enum swn_task_kind kind, uint32_t pass, uint32_t layer)
{
    struct swn_task_decision d = swn_task_decide(policy, SWN_TASK_RESPONSE, &x.s);

    assert_int_equal(d.kind, kind);
    if (kind) {
        assert_int_equal(d.pass, pass);
        assert_int_equal(d.layer, layer);
        swn_task_apply(&x.s, &d);
    }
    assert_int_equal(x.s.used_bytes, swn_task_used(&x.s));
}

static void go_on(void)
{
    swn_task_advance(&x.s, swn_task_next_ns(&x.s));
    assert_int_equal(x.s.used_bytes, swn_task_used(&x.s));
}

static void masa_takes_the_smallest_task_and_computes_before_it_loads(void **state)
{
    (void)state;
    task_begin(&x, 2, 100);
    add((struct swn_task_layer)CONV(30, 5, 10), (struct swn_task_layer)CONV(20, 5, 10));
    add((struct swn_task_layer)CONV(25, 5, 5), (struct swn_task_layer)CONV(40, 5, 5));
    expect(SWN_TASK_MASA, SWN_TASK_LOAD, 0, 1); /* a later layer: the smallest of all */
    expect(SWN_TASK_MASA, SWN_TASK_LOAD, 1, 0);
    expect(SWN_TASK_MASA, SWN_TASK_NONE, 0, 0); /* no worker */
    go_on();                                    /* 20 ns: layer 1 of pass 0 is there, and of no use yet */
    expect(SWN_TASK_MASA, SWN_TASK_LOAD, 0, 0);
    go_on(); /* 25 ns */
    expect(SWN_TASK_MASA, SWN_TASK_COMPUTE, 1, 0);
    go_on();
    expect(SWN_TASK_MASA, SWN_TASK_DROP, 1, 0); /* unloaded */
    expect(SWN_TASK_MASA, SWN_TASK_LOAD, 1, 1);
}

static void masa_exceeds_memory_when_nothing_else_runs(void **state)
{
    (void)state;
    task_begin(&x, 2, 50);
    add((struct swn_task_layer)CONV(30, 5, 30), (struct swn_task_layer)CONV(20, 5, 10));
    expect(SWN_TASK_MASA, SWN_TASK_LOAD, 0, 1);
    expect(SWN_TASK_MASA, SWN_TASK_LOAD, 0, 0);
    go_on();
    go_on();
    expect(SWN_TASK_MASA, SWN_TASK_COMPUTE, 0, 0);
    assert_int_equal(x.s.used_bytes, 80);
}

static void masa_in_order_loads_no_later_layer_first(void **state)
{
    (void)state;
    task_begin(&x, 2, 100);
    add((struct swn_task_layer)CONV(30, 5, 10), (struct swn_task_layer)CONV(20, 5, 10));
    expect(SWN_TASK_MASA_ORDERED, SWN_TASK_LOAD, 0, 0);
    expect(SWN_TASK_MASA_ORDERED, SWN_TASK_LOAD, 0, 1);
}

static void masa_code_reserves_for_whole_networks_in_the_order_of_their_times(void **state)
{
    (void)state;
    task_begin(&x, 4, 100);
    add((struct swn_task_layer)CONV(30, 9, 10), (struct swn_task_layer)CONV(20, 9, 10));
    add((struct swn_task_layer)CONV(10, 5, 10), (struct swn_task_layer)CONV(40, 5, 5));
    x.networks[0].peak_bytes = 60;
    x.networks[1].peak_bytes = 50;
    expect(SWN_TASK_MASA_CODE, SWN_TASK_LOAD, 1, 0); /* the quicker network */
    expect(SWN_TASK_MASA_CODE, SWN_TASK_LOAD, 1, 1); /* in the order of creation */
    expect(SWN_TASK_MASA_CODE, SWN_TASK_NONE, 0, 0); /* 60 beside 50 do not fit, although only 50 are used */
    x.networks[0].peak_bytes = 50;
    expect(SWN_TASK_MASA_CODE, SWN_TASK_LOAD, 0, 0);
    expect(SWN_TASK_MASA_CODE, SWN_TASK_LOAD, 0, 1); /* never checked again */
    assert_int_equal(x.s.used_bytes, 100);
}

static void bulk_runs_one_network_after_the_other_and_keeps_all_of_it(void **state)
{
    (void)state;
    task_begin(&x, 2, 10);
    add((struct swn_task_layer)CONV(30, 5, 10), (struct swn_task_layer)CONV(30, 5, 10));
    add((struct swn_task_layer)CONV(10, 5, 10), (struct swn_task_layer)CONV(10, 5, 10));
    expect(SWN_TASK_BULK, SWN_TASK_LOAD, 0, 0);
    expect(SWN_TASK_BULK, SWN_TASK_LOAD, 0, 1);
    expect(SWN_TASK_BULK, SWN_TASK_NONE, 0, 0);
    go_on(); /* both at once */
    expect(SWN_TASK_BULK, SWN_TASK_COMPUTE, 0, 0);
    expect(SWN_TASK_BULK, SWN_TASK_NONE, 0, 0);
    go_on();
    expect(SWN_TASK_BULK, SWN_TASK_COMPUTE, 0, 1);
    assert_int_equal(x.s.used_bytes, 70);
    go_on();
    assert_int_equal(x.s.used_bytes, 0);
    expect(SWN_TASK_BULK, SWN_TASK_LOAD, 1, 0);
}

static void deepeye_has_a_thread_for_convolutions_and_one_for_dense_layers(void **state)
{
    (void)state;
    for (int frugal = 0; frugal < 2; frugal++) {
        enum swn_task_policy policy = frugal ? SWN_TASK_DEEPEYE_FRUGAL : SWN_TASK_DEEPEYE;

        task_begin(&x, 2, 10);
        add((struct swn_task_layer)CONV(20, 50, 1), (struct swn_task_layer)DENSE(30, 5, 1));
        add((struct swn_task_layer)CONV(20, 50, 1), (struct swn_task_layer)DENSE(30, 5, 1));
        x.passes[1].job = 0;
        expect(policy, SWN_TASK_LOAD, 0, 0);
        expect(policy, SWN_TASK_LOAD, 0, 1);
        go_on(); /* 20 ns */
        expect(policy, SWN_TASK_LOAD, 1, 0);
        go_on(); /* 30 ns: dense of 0 */
        if (!frugal)
            expect(policy, SWN_TASK_LOAD, 1, 1);
        expect(policy, SWN_TASK_NONE, 0, 0);
        go_on(); /* 40 ns: all convolutions are there */
        expect(policy, SWN_TASK_COMPUTE, 0, 0);
        go_on();
        if (!frugal)
            go_on(); /* 60 ns, and 90: convolution of 0 */
        expect(policy, SWN_TASK_DROP, 0, 0);
        expect(policy, SWN_TASK_COMPUTE, 1, 0);
        expect(policy, SWN_TASK_COMPUTE, 0, 1);
    }
}

static void a_cascade_says_what_may_begin_before_the_result(void **state)
{
    static const struct {
        enum swn_task_cascade cascade;
        int loads, computes;
    } rules[] = {{SWN_CASCADE_IGNORE, 1, 1},
                 {SWN_CASCADE_WAIT, 0, 0},
                 {SWN_CASCADE_PREEMPT, 1, 1},
                 {SWN_CASCADE_PREFETCH, 1, 0}};

    (void)state;
    task_begin(&x, 2, 100);
    add((struct swn_task_layer)CONV(10, 5, 1), (struct swn_task_layer)CONV(10, 5, 1));
    add((struct swn_task_layer)CONV(10, 5, 1), (struct swn_task_layer)CONV(10, 5, 1));
    x.passes[1].upstream = 1;
    x.passes[1].is_undecided = 1;
    x.s.cascade = SWN_CASCADE_PREEMPT;
    assert_false(swn_task_may_load(&x.s, &x.passes[1])); /* the first has not begun */
    x.copies[0].blocks[0] = SWN_BLOCK_LOADING;
    for (unsigned i = 0; i < sizeof rules / sizeof *rules; i++) {
        x.s.cascade = rules[i].cascade;
        assert_int_equal(swn_task_may_load(&x.s, &x.passes[1]), rules[i].loads);
        assert_int_equal(swn_task_may_compute(&x.s, &x.passes[1]), rules[i].computes);
    }
    x.passes[1].is_undecided = 0;
    assert_true(swn_task_may_compute(&x.s, &x.passes[1]));
    x.passes[1].is_aborted = 1;
    assert_false(swn_task_may_compute(&x.s, &x.passes[1]));
}

static void loads_share_the_disk_where_it_is_divided(void **state)
{
    struct swn_task_decision load = {SWN_TASK_LOAD, 0, 0, 0};

    (void)state;
    task_begin(&x, 2, 100);
    add((struct swn_task_layer)CONV(10, 5, 1), (struct swn_task_layer)CONV(30, 5, 1));
    x.s.machine.is_disk_divided = 1;
    swn_task_apply(&x.s, &load);
    load.layer = 1;
    swn_task_apply(&x.s, &load);
    go_on();
    assert_int_equal(x.s.now_ns, 20);
    go_on();
    assert_int_equal(x.s.now_ns, 40);
}

static void policies_have_names(void **state)
{
    enum swn_task_policy found;

    (void)state;
    for (unsigned p = 0; p < SWN_TASK_POLICIES; p++) {
        assert_int_equal(swn_task_policy_parse(swn_task_policy_name(p), &found), 0);
        assert_int_equal(found, p);
    }
    assert_int_equal(swn_task_policy_parse("mas", &found), -EINVAL);
    assert_string_equal(swn_task_policy_name(SWN_TASK_POLICIES), "?");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(masa_takes_the_smallest_task_and_computes_before_it_loads),
        cmocka_unit_test(masa_exceeds_memory_when_nothing_else_runs),
        cmocka_unit_test(masa_in_order_loads_no_later_layer_first),
        cmocka_unit_test(masa_code_reserves_for_whole_networks_in_the_order_of_their_times),
        cmocka_unit_test(bulk_runs_one_network_after_the_other_and_keeps_all_of_it),
        cmocka_unit_test(deepeye_has_a_thread_for_convolutions_and_one_for_dense_layers),
        cmocka_unit_test(a_cascade_says_what_may_begin_before_the_result),
        cmocka_unit_test(loads_share_the_disk_where_it_is_divided),
        cmocka_unit_test(policies_have_names),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
