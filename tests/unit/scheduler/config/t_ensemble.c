/* An ensemble's steps run when their tensors are there, and are skipped where their condition does not hold. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "scheduler/config/ensemble.h"
#include "scheduler/config/model_config.h"

static struct swn_model_config config;
static char why[SWN_ERRMSG];

#define ENDS                                                                                                           \
    "platform: 'ensemble' input { name: 'IN' data_type: TYPE_FP32 dims: 4 } "                                          \
    "output { name: 'OUT' data_type: TYPE_FP32 dims: 4 } "
#define STEP(model, from, to, more)                                                                                    \
    "{ model_name: '" model "' input_map { key: 'x' value: '" from "' } output_map { key: 'y' value: '" to "' } " more \
    "}"

static int forget(void **state)
{
    (void)state;
    swn_model_config_free(&config);
    return 0;
}

static const struct swn_ensemble *read_config(const char *text)
{
    swn_model_config_free(&config);
    int rc = swn_model_config_parse(text, strlen(text), &config, why);

    if (rc)
        print_message("%s\n", why);
    assert_int_equal(rc, 0);
    assert_non_null(config.ensemble);
    return config.ensemble;
}

static void assert_refused(const char *text, const char *reason)
{
    swn_model_config_free(&config);
    assert_int_not_equal(swn_model_config_parse(text, strlen(text), &config, why), 0);
    if (!strstr(why, reason))
        print_message("%s\n", why);
    assert_non_null(strstr(why, reason));
}

static void test_steps_run_in_the_order_of_their_tensors(void **state)
{
    const struct swn_ensemble *e = read_config(ENDS "ensemble_scheduling { step [ " STEP(
        "last", "B", "OUT", "") ", " STEP("first", "IN", "A", "") ", " STEP("middle", "A", "B", "") " ] }");
    struct swn_ensemble_progress p;

    (void)state;
    assert_int_equal(e->step_count, 3);
    assert_string_equal(e->steps[0].model, "first"); /* a file may name them in any order */
    assert_string_equal(e->steps[2].model, "last");
    swn_ensemble_begin(e, &p);
    for (int i = 0; i < 3; i++) {
        assert_false(swn_ensemble_is_over(e, &p));
        assert_int_equal(swn_ensemble_to_start(e, &p), i);
        p.steps[i] = SWN_STEP_RUNS;
        assert_int_equal(swn_ensemble_to_start(e, &p), -1);
        p.steps[i] = SWN_STEP_DONE;
    }
    assert_true(swn_ensemble_is_over(e, &p));
}

static void test_a_step_that_is_skipped_takes_its_users_with_it(void **state)
{
    const struct swn_ensemble *e = read_config(ENDS "ensemble_scheduling { step [ " STEP("a", "IN", "A", "") ", " STEP(
        "b", "A", "B", "condition { tensor: 'A' max_above: 0.5 }") ", " STEP("c", "B", "C",
                                                                             "") ", " STEP("d", "A", "OUT", "") " ] }");
    struct swn_ensemble_progress p;

    (void)state;
    swn_ensemble_begin(e, &p);
    assert_int_equal(swn_ensemble_to_judge(e, &p), -1);
    assert_int_equal(swn_ensemble_to_start(e, &p), 0);
    p.steps[0] = SWN_STEP_DONE;
    assert_int_equal(swn_ensemble_to_judge(e, &p), 1);
    p.verdicts[1] = 0;
    assert_int_equal(swn_ensemble_to_judge(e, &p), -1);
    assert_int_equal(swn_ensemble_to_start(e, &p), 3);
    assert_int_equal(p.steps[1], SWN_STEP_SKIPPED);
    assert_int_equal(p.steps[2], SWN_STEP_SKIPPED);
    p.steps[3] = SWN_STEP_DONE;
    assert_true(swn_ensemble_is_over(e, &p));
}

#define CHAIN                                                                                                          \
    ENDS "ensemble_scheduling { step [ " STEP("a", "IN", "A", "") ", " STEP(                                           \
        "b", "IN", "B", "condition { tensor: 'A' max_above: 0.5 }") ", " STEP("c", "IN", "OUT",                        \
                                                                              "condition { tensor: 'B' max_above: "    \
                                                                              "0.5 }") ", " STEP("d", "B", "D",        \
                                                                                                 "") " ] }"

static void test_a_step_begins_early_while_its_condition_is_made(void **state)
{
    const struct swn_ensemble *e = read_config(CHAIN);
    struct swn_ensemble_progress p;
    unsigned maker = 9;

    (void)state;
    swn_ensemble_begin(e, &p);
    assert_int_equal(swn_ensemble_to_begin_early(e, &p, &maker), -1); /* what says so has not begun */
    p.steps[0] = SWN_STEP_RUNS;
    assert_int_equal(swn_ensemble_to_begin_early(e, &p, &maker), 1);
    assert_int_equal(maker, 0);
    p.steps[1] = SWN_STEP_EARLY;
    assert_int_equal(swn_ensemble_to_begin_early(e, &p, &maker), 2);
    assert_int_equal(maker, 1);
    p.steps[2] = SWN_STEP_EARLY;
    assert_int_equal(swn_ensemble_to_begin_early(e, &p, &maker), -1);
    p.steps[1] = SWN_STEP_HELD;
    assert_int_equal(swn_ensemble_to_judge(e, &p), -1); /* B is there, and may not count */
    assert_int_equal(swn_ensemble_to_start(e, &p), -1); /* nor may d have it */
    p.steps[0] = SWN_STEP_DONE;
    assert_int_equal(swn_ensemble_to_judge(e, &p), 1);
    p.verdicts[1] = 1;
    assert_int_equal(swn_ensemble_to_abort(e, &p), -1);
    assert_int_equal(p.steps[1], SWN_STEP_DONE);
    assert_int_equal(swn_ensemble_to_judge(e, &p), 2);
    p.verdicts[2] = 1;
    assert_int_equal(swn_ensemble_to_abort(e, &p), -1);
    assert_int_equal(p.steps[2], SWN_STEP_RUNS);
    assert_int_equal(swn_ensemble_to_start(e, &p), 3);
}

static void test_early_steps_that_are_not_needed_are_ended(void **state)
{
    const struct swn_ensemble *e = read_config(CHAIN);
    struct swn_ensemble_progress p;
    unsigned maker;

    (void)state;
    for (int has_run = 0; has_run < 2; has_run++) {
        swn_ensemble_begin(e, &p);
        p.steps[0] = SWN_STEP_DONE;
        p.steps[1] = has_run ? SWN_STEP_HELD : SWN_STEP_EARLY;
        p.steps[2] = SWN_STEP_EARLY;
        p.verdicts[1] = 0;
        if (!has_run)
            assert_int_equal(swn_ensemble_to_abort(e, &p), 1);
        assert_int_equal(swn_ensemble_to_abort(e, &p), 2); /* what waits for its result is not, either */
        assert_int_equal(swn_ensemble_to_abort(e, &p), -1);
        assert_int_equal(swn_ensemble_to_start(e, &p), -1);
        assert_true(swn_ensemble_is_over(e, &p));
    }
    /* One that failed early is not needed in the end: what was made of its result before counts as skipped, too. */
    swn_ensemble_begin(e, &p);
    p.steps[0] = SWN_STEP_DONE;
    p.has_failed[1] = 1;
    p.verdicts[1] = 0;
    p.steps[2] = SWN_STEP_HELD;
    assert_int_equal(swn_ensemble_to_abort(e, &p), -1);
    assert_int_equal(p.steps[2], SWN_STEP_SKIPPED);
    assert_int_equal(swn_ensemble_to_start(e, &p), -1);
    assert_true(swn_ensemble_is_over(e, &p));
    swn_ensemble_begin(e, &p);
    p.steps[0] = SWN_STEP_RUNS;
    p.has_failed[1] = 1;
    assert_int_equal(swn_ensemble_to_begin_early(e, &p, &maker), -1); /* it is done again when it is needed */
}

static void test_what_may_be_needed_is_known_by_what_was(void **state)
{
    struct swn_ensemble *e = (struct swn_ensemble *)(uintptr_t)read_config(CHAIN);
    struct swn_ensemble_progress p;
    double probability[SWN_ENSEMBLE_STEPS];

    (void)state;
    swn_ensemble_begin(e, &p);
    p.steps[0] = SWN_STEP_RUNS;
    e->steps[2].asked = 8;
    e->steps[2].held = 8;
    swn_ensemble_expect(e, &p, probability);
    assert_true(probability[0] == 1 && probability[1] == 0.5 && probability[3] == 0.5);
    assert_true(probability[2] == 0.5 * 0.9); /* of the one that it waits for, and its own */
    p.steps[0] = SWN_STEP_DONE;
    p.verdicts[1] = 1;
    swn_ensemble_expect(e, &p, probability);
    assert_true(probability[1] == 1 && probability[2] == 0.9 && probability[3] == 1);
    p.verdicts[1] = 0;
    p.steps[1] = SWN_STEP_SKIPPED;
    swn_ensemble_expect(e, &p, probability);
    assert_true(probability[1] == 0 && probability[2] == 0 && probability[3] == 0);
}

static void test_a_step_that_nobody_needs_does_not_run(void **state)
{
    const struct swn_ensemble *e = read_config(ENDS "ensemble_scheduling { step [ " STEP("a", "IN", "A", "") ", " STEP(
        "b", "IN", "B", "") ", " STEP("c", "IN", "OUT", "condition { tensor: 'A' max_above: 0.5 }") " ] }");
    struct swn_ensemble_progress p;
    uint8_t wanted[SWN_ENSEMBLE_TENSORS] = {0};

    (void)state;
    swn_ensemble_begin(e, &p);
    wanted[swn_ensemble_tensor(e, "OUT")] = 1;
    swn_ensemble_want(e, &p, wanted);
    assert_true(p.steps[0] == SWN_STEP_WAITS && p.steps[1] == SWN_STEP_UNWANTED && p.steps[2] == SWN_STEP_WAITS);
    p.steps[0] = p.steps[2] = SWN_STEP_DONE;
    assert_true(swn_ensemble_is_over(e, &p));
    swn_ensemble_begin(e, &p);
    wanted[swn_ensemble_tensor(e, "OUT")] = 0;
    wanted[swn_ensemble_tensor(e, "B")] = 1;
    swn_ensemble_want(e, &p, wanted);
    assert_int_equal(swn_ensemble_to_start(e, &p), 1);
    p.steps[1] = SWN_STEP_DONE;
    assert_true(swn_ensemble_is_over(e, &p));
}

static void test_what_makes_no_sense_is_refused(void **state)
{
    (void)state;
    assert_refused(ENDS, "ensemble_scheduling is missing");
    assert_refused(ENDS "ensemble_scheduling { }", "has steps");
    assert_refused(ENDS "ensemble_scheduling { step { model_name: 'a' } }", "no input_map");
    assert_refused(ENDS "ensemble_scheduling { step [ " STEP("", "IN", "OUT", "") " ] }", "no model_name");
    assert_refused(ENDS "ensemble_scheduling { step [ " STEP("a", "NONE", "OUT", "") " ] }", "tensor 'NONE'");
    assert_refused(ENDS "ensemble_scheduling { step [ " STEP("a", "IN", "A", "") " ] }", "output 'OUT'");
    assert_refused(ENDS "ensemble_scheduling { step [ " STEP("a", "IN", "IN", "") " ] }", "made twice");
    assert_refused(ENDS "ensemble_scheduling { step [ " STEP("a", "B", "OUT", "") ", " STEP("b", "OUT", "B", "") " ] }",
                   "no step before it makes"); /* each waits for the other */
    assert_refused(ENDS
                   "ensemble_scheduling { step [ " STEP("a", "IN", "OUT", "condition { tensor: 'Z' argmax: 1 }") " ] }",
                   "tensor 'Z'");
    assert_refused(
        ENDS "ensemble_scheduling { step [ " STEP("a", "IN", "OUT", "condition { argmax: 1 max_above: 2 }") " ] }",
        "is one of");
    assert_refused(ENDS "ensemble_scheduling { step [ " STEP("a", "IN", "OUT", "condition { max_above: nan }") " ] }",
                   "a number is expected");
    assert_refused(ENDS "ensemble_scheduling { step [ " STEP("a", "IN", "OUT", "condition { max_above: 1e999 }") " ] }",
                   "a number is expected");
    assert_refused(ENDS
                   "ensemble_scheduling { step { model_name: 'a' input_map { key: 'x' value: 'IN' } input_map { key: "
                   "'x' value: 'IN' } output_map { key: 'y' value: 'OUT' } } }",
                   "maps 'x' twice");
    assert_refused("platform: 'onnx' input { name: 'IN' data_type: TYPE_FP32 dims: 4 } output { name: 'OUT' data_type: "
                   "TYPE_FP32 dims: 4 } ensemble_scheduling { step [ " STEP("a", "IN", "OUT", "") " ] }",
                   "needs platform");
}

static struct swn_wire_tensor tensor(enum swn_element element, uint64_t bytes)
{
    return (struct swn_wire_tensor){.element = element, .bytes = bytes};
}

static void test_argmax_is_the_first_largest(void **state)
{
    const float values[] = {NAN, 1, 3, 3, -INFINITY};
    const struct swn_wire_tensor t = tensor(SWN_ELEMENT_FP32, sizeof values);
    struct swn_ensemble_condition c = {.kind = SWN_CONDITION_ARGMAX, .label_count = 2, .labels = {7, 2}};

    (void)state;
    assert_int_equal(swn_condition_holds(&c, &t, values), 1);
    c.labels[1] = 3;
    assert_int_equal(swn_condition_holds(&c, &t, values), 0);
}

static void test_elements_of_each_type_are_numbers(void **state)
{
    const uint16_t halves[] = {0x3c00, 0xc000, 0x0001, 0x7c00, 0x7e00}; /* 1, -2, 2^-24, infinity, NaN */
    const uint16_t bfloats[] = {0x3f80, 0xbf80};                        /* 1, -1 */
    const int8_t small[] = {-128, 127};
    const uint64_t large[] = {UINT64_MAX, 0};
    struct swn_ensemble_condition c = {.kind = SWN_CONDITION_COUNT_ABOVE, .threshold = 0.5, .count = 2};
    struct swn_wire_tensor t = tensor(SWN_ELEMENT_FP16, sizeof halves);

    (void)state;
    assert_int_equal(swn_condition_holds(&c, &t, halves), 1); /* 1 and infinity */
    c.count = 3;
    assert_int_equal(swn_condition_holds(&c, &t, halves), 0);
    c.threshold = 0;
    assert_int_equal(swn_condition_holds(&c, &t, halves), 1); /* and the smallest one */
    c = (struct swn_ensemble_condition){.kind = SWN_CONDITION_MAX_ABOVE, .threshold = 0.999};
    t = tensor(SWN_ELEMENT_BF16, sizeof bfloats);
    assert_int_equal(swn_condition_holds(&c, &t, bfloats), 1);
    c.threshold = 1;
    assert_int_equal(swn_condition_holds(&c, &t, bfloats), 0); /* above, not equal */
    c.threshold = 126.5;
    t = tensor(SWN_ELEMENT_INT8, sizeof small);
    assert_int_equal(swn_condition_holds(&c, &t, small), 1);
    c.threshold = 1e19;
    t = tensor(SWN_ELEMENT_UINT64, sizeof large);
    assert_int_equal(swn_condition_holds(&c, &t, large), 1);
}

static void test_text_and_nothing_are_no_numbers(void **state)
{
    const struct swn_ensemble_condition c = {.kind = SWN_CONDITION_MAX_ABOVE};
    struct swn_wire_tensor t = tensor(SWN_ELEMENT_BYTES, 8);

    (void)state;
    assert_true(swn_condition_holds(&c, &t, "\4\0\0\0text") < 0);
    t = tensor(SWN_ELEMENT_FP32, 0);
    assert_true(swn_condition_holds(&c, &t, "") < 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_teardown(test_steps_run_in_the_order_of_their_tensors, forget),
        cmocka_unit_test_teardown(test_a_step_that_is_skipped_takes_its_users_with_it, forget),
        cmocka_unit_test_teardown(test_a_step_begins_early_while_its_condition_is_made, forget),
        cmocka_unit_test_teardown(test_early_steps_that_are_not_needed_are_ended, forget),
        cmocka_unit_test_teardown(test_what_may_be_needed_is_known_by_what_was, forget),
        cmocka_unit_test_teardown(test_a_step_that_nobody_needs_does_not_run, forget),
        cmocka_unit_test_teardown(test_what_makes_no_sense_is_refused, forget),
        cmocka_unit_test(test_argmax_is_the_first_largest),
        cmocka_unit_test(test_elements_of_each_type_are_numbers),
        cmocka_unit_test(test_text_and_nothing_are_no_numbers),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
