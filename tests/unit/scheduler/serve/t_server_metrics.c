/* What swapnet-serve counts comes out under the names that dashboards know, and as Triton's statistics. */
#define _GNU_SOURCE
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include <jansson.h>

#include "scheduler/serve/server_metrics.h"

static const struct swn_serve_counts counts = {
    .success = 3,
    .inferences = 7,
    .executions = 2,
    .batches = {[0] = {1, 4000, 30}, [5] = {1, 5996000, 470}},
    .failure = {[SWN_FAILURE_REJECTED] = 1, [SWN_FAILURE_BACKEND] = 2},
    .request_ns = 9000000,
    .queue_ns = 1000999,
    .infer_ns = 6000000,
    .output_ns = 500000,
    .fail_ns = 40,
    .last_ms = 1700000000123,
    .pending = 4,
};
static const struct swn_metrics_model models[] = {
    {.name = "a", .version = 1, .counts = &counts, .weight_bytes = 1 << 20, .is_ready = 1},
    {.name = "b.x", .version = 12, .counts = &(const struct swn_serve_counts){.success = 0}, .is_quarantined = 1},
};

static void has_line(const char *text, const char *line)
{
    const char *at = strstr(text, line);
    if (!at || (at != text && at[-1] != '\n') || at[strlen(line)] != '\n')
        fail_msg("no line '%s' in:\n%s", line, text);
}

static void test_names_of_triton(void **state)
{
    const struct swn_metrics m = {.models = models, .count = 2, .buffer_bytes = 77, .engine_restarts = 5};
    char *text = swn_metrics_text(&m);

    (void)state;
    assert_non_null(text);
    has_line(text, "nv_inference_request_success{model=\"a\",version=\"1\"} 3");
    has_line(text, "nv_inference_request_failure{model=\"a\",version=\"1\",reason=\"REJECTED\"} 1");
    has_line(text, "nv_inference_request_failure{model=\"a\",version=\"1\",reason=\"BACKEND\"} 2");
    has_line(text, "nv_inference_count{model=\"a\",version=\"1\"} 7");
    has_line(text, "nv_inference_exec_count{model=\"a\",version=\"1\"} 2");
    has_line(text, "nv_inference_count{model=\"b.x\",version=\"12\"} 0");
    has_line(text, "nv_inference_request_duration_us{model=\"a\",version=\"1\"} 9000");
    has_line(text, "nv_inference_queue_duration_us{model=\"a\",version=\"1\"} 1000");
    has_line(text, "nv_inference_compute_input_duration_us{model=\"a\",version=\"1\"} 0");
    has_line(text, "nv_inference_compute_infer_duration_us{model=\"a\",version=\"1\"} 6000");
    has_line(text, "nv_inference_pending_request_count{model=\"a\",version=\"1\"} 4");
    has_line(text, "swapnet_serve_model_weight_bytes{model=\"a\",version=\"1\"} 1048576");
    has_line(text, "swapnet_serve_model_quarantined{model=\"b.x\",version=\"12\"} 1");
    has_line(text, "swapnet_serve_buffer_bytes 77");
    has_line(text, "swapnet_serve_engine_restarts_total 5");
    free(text);
}

/* Each family has its head once, and its lines together: others refuse the text. */
static void test_families_are_whole(void **state)
{
    const struct swn_metrics m = {.models = models, .count = 2};
    char *text = swn_metrics_text(&m), *save = text, *line, family[128] = "";
    int heads = 0;

    (void)state;
    while ((line = strsep(&save, "\n")) && *line) {
        if (strncmp(line, "# TYPE ", 7) == 0) {
            snprintf(family, sizeof family, "%.*s", (int)strcspn(line + 7, " "), line + 7);
            heads++;
        } else if (*line != '#') {
            assert_int_equal(strncmp(line, family, strlen(family)), 0);
            assert_non_null(strchr("{ ", line[strlen(family)]));
        }
    }
    assert_true(heads > 15);
    free(text);
}

static json_int_t at(const json_t *stats, const char *what, const char *field)
{
    return json_integer_value(json_object_get(json_object_get(json_object_get(stats, "inference_stats"), what), field));
}

static void test_statistics_of_triton(void **state)
{
    char *text = swn_metrics_statistics(models, 2);
    json_t *root = json_loads(text, 0, NULL), *list = json_object_get(root, "model_stats"), *one;

    (void)state;
    assert_int_equal(json_array_size(list), 2);
    one = json_array_get(list, 0);
    assert_string_equal(json_string_value(json_object_get(one, "version")), "1");
    assert_int_equal(json_integer_value(json_object_get(one, "inference_count")), 7);
    assert_int_equal(json_integer_value(json_object_get(one, "execution_count")), 2);
    assert_int_equal(json_integer_value(json_object_get(one, "last_inference")), 1700000000123);
    assert_int_equal(at(one, "success", "count"), 3);
    assert_int_equal(at(one, "success", "ns"), 9000000);
    assert_int_equal(at(one, "fail", "count"), 3);
    assert_int_equal(at(one, "queue", "ns"), 1000999);
    assert_int_equal(at(one, "compute_infer", "ns"), 6000000);
    assert_int_equal(at(one, "cache_hit", "count"), 0);
    assert_int_equal(json_array_size(json_object_get(one, "batch_stats")), 2);
    const json_t *six = json_array_get(json_object_get(one, "batch_stats"), 1);
    assert_int_equal(json_integer_value(json_object_get(six, "batch_size")), 6);
    assert_int_equal(json_integer_value(json_object_get(json_object_get(six, "compute_infer"), "count")), 1);
    assert_int_equal(json_integer_value(json_object_get(json_object_get(six, "compute_infer"), "ns")), 5996000);
    assert_int_equal(json_array_size(json_object_get(json_array_get(list, 1), "batch_stats")), 0);
    json_decref(root);
    free(text);
}

static void test_no_models_at_all(void **state)
{
    const struct swn_metrics m = {.count = 0};
    char *text = swn_metrics_text(&m), *statistics = swn_metrics_statistics(NULL, 0);

    (void)state;
    assert_non_null(text);
    assert_string_equal(statistics, "{\"model_stats\":[]}");
    free(text);
    free(statistics);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_names_of_triton),
        cmocka_unit_test(test_families_are_whole),
        cmocka_unit_test(test_statistics_of_triton),
        cmocka_unit_test(test_no_models_at_all),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
