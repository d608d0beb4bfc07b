/* A request's priority, time and place in the queue are what its model's configuration and its parameters say. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "scheduler/config/queue_terms.h"

static struct swn_model_config config;

static const struct swn_config_batching *read_config(const char *text)
{
    char why[SWN_ERRMSG];

    swn_model_config_free(&config);
    assert_int_equal(swn_model_config_parse(text, strlen(text), &config, why), 0);
    return &config.batching;
}

static void test_without_a_policy_the_request_decides(void **state)
{
    struct swn_queue_terms t = swn_queue_terms(read_config(""), 3, 5000);

    (void)state;
    assert_true(t.weight == 1); /* the model has no levels */
    assert_int_equal(t.timeout_us, 5000);
    assert_int_equal(t.queue_most, 0);
}

static void test_levels_are_worth_eight_of_the_next(void **state)
{
    const struct swn_config_batching *b =
        read_config("dynamic_batching { priority_levels: 3 default_priority_level: 2 }");

    (void)state;
    assert_true(swn_queue_terms(b, 1, 0).weight == 64);
    assert_true(swn_queue_terms(b, 2, 0).weight == 8);
    assert_true(swn_queue_terms(b, 3, 0).weight == 1);
    assert_true(swn_queue_terms(b, 0, 0).weight == 8);          /* the default level */
    assert_true(swn_queue_terms(b, 4, 0).weight == 8);          /* there is no such level */
    assert_true(swn_queue_terms(b, UINT64_MAX, 0).weight == 8); /* nor such a number */
}

static void test_many_levels_stay_numbers(void **state)
{
    const struct swn_config_batching *b =
        read_config("dynamic_batching { priority_levels: 2000000000 default_priority_level: 2000000000 }");

    (void)state;
    assert_true(swn_queue_terms(b, 1, 0).weight > 1e6 && swn_queue_terms(b, 1, 0).weight < 1e9);
    assert_true(swn_queue_terms(b, 0, 0).weight == 1);
}

static void test_each_of_many_levels_goes_before_the_next(void **state)
{
    const struct swn_config_batching *b =
        read_config("dynamic_batching { priority_levels: 20 default_priority_level: 20 }");

    (void)state;
    for (uint32_t level = 1; level < 20; level++)
        assert_true(swn_queue_terms(b, level, 0).weight > 2 * swn_queue_terms(b, level + 1, 0).weight);
    assert_true(swn_queue_terms(b, 1, 0).weight < 1e9);
}

static void test_timeouts_are_overridden_only_where_allowed(void **state)
{
    const struct swn_config_batching *b = read_config(
        "dynamic_batching { default_queue_policy { default_timeout_microseconds: 1000 max_queue_size: 7 } }");

    (void)state;
    assert_int_equal(swn_queue_terms(b, 0, 0).timeout_us, 1000);
    assert_int_equal(swn_queue_terms(b, 0, 500).timeout_us, 1000);
    assert_int_equal(swn_queue_terms(b, 0, 0).queue_most, 7);
    b = read_config("dynamic_batching { default_queue_policy { default_timeout_microseconds: 1000 "
                    "allow_timeout_override: true } }");
    assert_int_equal(swn_queue_terms(b, 0, 500).timeout_us, 500);
    assert_int_equal(swn_queue_terms(b, 0, 2000).timeout_us, 1000); /* never a longer one */
    b = read_config("dynamic_batching { default_queue_policy { timeout_action: DELAY "
                    "default_timeout_microseconds: 1000 } }");
    assert_int_equal(swn_queue_terms(b, 0, 0).timeout_us, 0); /* it is not refused */
}

static void test_a_level_has_a_policy_of_its_own(void **state)
{
    const struct swn_config_batching *b = read_config(
        "dynamic_batching { priority_levels: 2 default_priority_level: 1 default_queue_policy { max_queue_size: 9 } "
        "priority_queue_policy { key: 2 value { default_timeout_microseconds: 20 max_queue_size: 1 } } }");

    (void)state;
    assert_int_equal(swn_queue_terms(b, 1, 0).queue_most, 9);
    assert_int_equal(swn_queue_terms(b, 1, 0).timeout_us, 0);
    assert_int_equal(swn_queue_terms(b, 2, 0).queue_most, 1);
    assert_int_equal(swn_queue_terms(b, 2, 0).timeout_us, 20);
}

static void test_a_step_is_due_with_its_ensemble(void **state)
{
    struct swn_queue_terms t = {.timeout_us = 5};

    (void)state;
    assert_int_equal(swn_queue_deadline(&t, 1000, 0), 6000);
    assert_int_equal(swn_queue_deadline(&t, 1000, 5000), 5000);
    assert_int_equal(swn_queue_deadline(&t, 1000, 7000), 6000);
    t.timeout_us = 0;
    assert_int_equal(swn_queue_deadline(&t, 1000, 0), 0);
    assert_int_equal(swn_queue_deadline(&t, 1000, 7000), 7000);
    t.timeout_us = UINT64_MAX; /* a time that no number holds is none */
    assert_int_equal(swn_queue_deadline(&t, 1000, 0), 0);
    t.timeout_us = UINT64_MAX / 1000;
    assert_int_equal(swn_queue_deadline(&t, UINT64_MAX / 2, 7000), 7000);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_without_a_policy_the_request_decides),
        cmocka_unit_test(test_levels_are_worth_eight_of_the_next),
        cmocka_unit_test(test_each_of_many_levels_goes_before_the_next),
        cmocka_unit_test(test_many_levels_stay_numbers),
        cmocka_unit_test(test_timeouts_are_overridden_only_where_allowed),
        cmocka_unit_test(test_a_level_has_a_policy_of_its_own),
        cmocka_unit_test(test_a_step_is_due_with_its_ensemble),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
