/* config.pbtxt is read as Triton reads it, or refused with the line and the column of what is wrong. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include <errno.h>
#include <malloc.h>
#include <stdio.h>

#include <jansson.h>

#include "scheduler/config/model_config.h"

static struct swn_model_config config;
static char why[SWN_ERRMSG];

static int parse_bytes(const char *text, size_t bytes)
{
    char *copy = malloc(bytes ? bytes : 1);
    int rc;

    assert_non_null(copy);
    memcpy(copy, text, bytes);
    why[0] = '\0';
    swn_model_config_free(&config);
    rc = swn_model_config_parse(copy, bytes, &config, why);
    free(copy);
    if (rc < 0)
        assert_true(why[0] != '\0');
    return rc;
}

static int parse(const char *text)
{
    return parse_bytes(text, strlen(text));
}

static void expect_refused(const char *text, const char *expected)
{
    assert_int_equal(parse(text), -EINVAL);
    if (!strstr(why, expected))
        fail_msg("\"%s\" does not say \"%s\"", why, expected);
}

static const char whole[] =
    "# a comment\n"
    "name: \"res\" 'net'\n"
    "platform: \"pytorch_libtorch\", backend: \"pytorch\";\n"
    "max_batch_size : 0x10\n"
    "input [\n"
    "  { name: \"INPUT__0\" data_type: TYPE_FP32 dims: [ 3, -1, 224 ] format: FORMAT_NCHW },\n"
    "  { name: \"s\", data_type: TYPE_STRING, dims: 1, reshape { shape: [ ] }, optional: true }\n"
    "]\n"
    "output { name: \"OUTPUT__0\" data_type: TYPE_BF16 dims: [ 1000 ] label_filename: \"l.txt\" }\n"
    "dynamic_batching {\n"
    "  preferred_batch_size: [ 4, 8 ]\n"
    "  preferred_batch_size: 16\n"
    "  max_queue_delay_microseconds: 100\n"
    "  priority_levels: 2 default_priority_level: 1\n"
    "  default_queue_policy < timeout_action: DELAY max_queue_size: 7 >\n"
    "  priority_queue_policy { key: 2 value: { default_timeout_microseconds: 5 allow_timeout_override: "
    "true } }\n"
    "}\n"
    "version_policy: { specific: { versions: [ 1, 3 ] } }\n"
    "parameters { key: \"a\\n\\101\\x42\" value: { string_value: \"\xc3\xa9\" } }\n"
    "parameters: { key: \"b\" value { string_value: \"2\" } }\n"
    "instance_group [ { count: 2 kind: KIND_CPU gpus: [ 0 ] rate_limiter { resources [ { name: \"R}\" } ] } } ]\n"
    "model_warmup { name: \"w\" inputs { key: \"x\" value: { dims: [ -1 ] } } }\n"
    "model_warmup { }\n"
    "optimization { cuda { graphs: 1.5e3 } }\n"
    "default_model_filename: \"m.pt\"\n"
    "model_transaction_policy { decoupled: false }\n";

static void test_a_whole_config_is_read(void **state)
{
    (void)state;
    if (parse(whole))
        fail_msg("%s", why);
    assert_string_equal(config.name, "resnet");
    assert_string_equal(config.platform, "pytorch_libtorch");
    assert_string_equal(config.backend, "pytorch");
    assert_string_equal(config.file, "m.pt");
    assert_int_equal(config.max_batch_size, 16);
    assert_int_equal(config.input_count, 2);
    assert_string_equal(config.inputs[0].tensor.name, "INPUT__0");
    assert_int_equal(config.inputs[0].tensor.element, SWN_ELEMENT_FP32);
    assert_int_equal(config.inputs[0].tensor.rank, 3);
    assert_true(config.inputs[0].tensor.shape[1] == -1 && config.inputs[0].tensor.shape[2] == 224);
    assert_false(config.inputs[0].has_reshape);
    assert_int_equal(config.inputs[1].tensor.element, SWN_ELEMENT_BYTES);
    assert_true(config.inputs[1].has_reshape && config.inputs[1].reshape.rank == 0 && config.inputs[1].is_optional);
    assert_int_equal(config.output_count, 1);
    assert_int_equal(config.outputs[0].tensor.element, SWN_ELEMENT_BF16);
    assert_true(config.batching.is_dynamic);
    assert_int_equal(config.batching.preferred_count, 3);
    assert_int_equal(config.batching.preferred[2], 16);
    assert_int_equal(config.batching.max_queue_delay_us, 100);
    assert_int_equal(config.batching.policy.timeout_action, SWN_QUEUE_DELAY);
    assert_int_equal(config.batching.policy.max_queue_size, 7);
    assert_int_equal(config.batching.level_count, 1);
    assert_int_equal(config.batching.levels[0].priority, 2);
    assert_true(config.batching.levels[0].policy.default_timeout_us == 5 &&
                config.batching.levels[0].policy.allow_override);
    assert_int_equal(config.versions.policy, SWN_VERSIONS_SPECIFIC);
    assert_true(config.versions.count == 2 && config.versions.versions[1] == 3);
    assert_int_equal(config.parameter_count, 2);
    assert_string_equal(config.parameters[0].key, "a\nAB");
    assert_string_equal(config.parameters[0].value, "\xc3\xa9");
    assert_string_equal(config.ignored, "instance_group, model_warmup, optimization");
}

static void test_nothing_is_a_config(void **state)
{
    (void)state;
    assert_int_equal(parse(""), 0);
    assert_int_equal(parse(" \n# only this"), 0);
    assert_int_equal(config.versions.policy, SWN_VERSIONS_LATEST);
    assert_int_equal(config.versions.latest, 1);
    assert_int_equal(config.max_batch_size, 0);
    assert_false(config.batching.is_dynamic);
    assert_string_equal(config.ignored, "");
}

static void test_faults_are_told_with_line_and_column(void **state)
{
    (void)state;
    expect_refused("max_batch: 1", "line 1, column 1: there is no field 'max_batch' here");
    expect_refused("\n  input { nam: \"x\" }", "line 2, column 11: there is no field 'nam' here");
    expect_refused("name: \"a\"\nname: \"b\"", "line 2, column 1: 'name' is here twice");
    expect_refused("name: 5", "line 1, column 7: a string is expected");
    expect_refused("name: \"a\nb\"", "does not end on its line");
    expect_refused("name: \"a", "does not end");
    expect_refused("name: \"\\q\"", "line 1, column 8: this escape");
    expect_refused("name: \"\\777\"", "escape");
    expect_refused("name: \"\\0\"", "code 0");
    expect_refused("name: \"\xff\"", "UTF-8");
    expect_refused("name \"a\"", "must be followed by ':'");
    expect_refused("max_batch_size: -1", "negative");
    expect_refused("max_batch_size: 1.5", "integer");
    expect_refused("max_batch_size: 08", "integer");
    expect_refused("max_batch_size: 0x", "integer");
    expect_refused("max_batch_size: 2147483648", "too large");
    expect_refused("max_batch_size: 99999999999999999999999", "too large");
    expect_refused("input { data_type: TYPE_FLOAT }", "'TYPE_FLOAT' is no data type");
    expect_refused("input { data_type: TYPE_BYTES }", "no data type");
    expect_refused("input { data_type: TYPE_INVALID }", "no data type");
    expect_refused("input { dims: 0 }", "line 1, column 15: a dimension");
    expect_refused("input { dims: [ 1, -2 ] }", "a dimension");
    expect_refused("input { dims: [ 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1 ] }", "more than 15");
    expect_refused("input { dims: [ 1 2 ] }", "',' or ']'");
    expect_refused("input { dims: 9223372036854775808 }", "too large");
    expect_refused("input { name: \"a\" data_type: TYPE_BOOL dims: [ 4 ] reshape { shape: [ 2, 3 ] } }",
                   "different size");
    expect_refused("output { name: \"a\" data_type: TYPE_BOOL dims: [ -1 ] reshape { shape: [ 3 ] } }",
                   "different size");
    expect_refused("input { name: \"a\" data_type: TYPE_BOOL reshape { shape: [ 1 ] } }", "different size");
    expect_refused("input { name: \"a\" data_type: TYPE_BOOL", "the file ends too early");
    expect_refused("input { name: \"a\" data_type: TYPE_BOOL > }", "a name is expected");
    expect_refused("input { data_type: TYPE_BOOL }", "input 0 has no name");
    expect_refused("output { name: \"a\" }", "output 'a' has no data_type");
    expect_refused("input { name: \"a\" data_type: TYPE_BOOL } input { name: \"a\" data_type: TYPE_BOOL }",
                   "two of input 'a'");
    expect_refused("input { allow_ragged_batch: true }", "not supported");
    expect_refused("sequence_batching { }", "line 1, column 1: 'sequence_batching' is not supported");
    expect_refused("ensemble_scheduling { }", "an ensemble has steps, inputs and outputs");
    expect_refused("model_transaction_policy { decoupled: true }", "not supported");
    expect_refused("version_policy { all { } latest { } }", "'latest' is one too many");
    expect_refused("version_policy { latest { num_versions: 0 } }", "at least 1");
    expect_refused("version_policy { specific { } }", "names no versions");
    expect_refused("version_policy { specific { versions: 0 } }", "at least 1");
    expect_refused("dynamic_batching { preferred_batch_size: 3 }", "exceeds max_batch_size 0");
    expect_refused("dynamic_batching { priority_levels: 2 }", "default_priority_level");
    expect_refused("dynamic_batching { priority_queue_policy { key: 1 } }", "keys are from 1");
    expect_refused(
        "dynamic_batching { priority_levels: 2 default_priority_level: 2 priority_queue_policy [ { key: 1 }, { "
        "key: 1 } ] }",
        "two of priority_queue_policy 1");
    expect_refused("dynamic_batching { default_queue_policy { timeout_action: DROP } }", "'DROP' is neither");
    expect_refused("parameters { key: \"a\" } parameters { key: \"a\" }", "two of parameter 'a'");
    expect_refused("parameters { key: \"swapnet_bits\" value { string_value: \"any\" } }", "is \"exact\" or \"batch\"");
    expect_refused("parameters { key: \"swapnet_bits\" }", "is \"exact\" or \"batch\"");
    expect_refused("instance_group [ { ]", "not expected");
    expect_refused("instance_group 5", "':' or '{'");
    expect_refused("\x01", "a name is expected");
    expect_refused("}", "a name is expected");
}

static void test_which_requests_are_joined(void **state)
{
    static const struct {
        const char *text;
        unsigned joins, may_differ;
    } cases[] = {
        {"", 0, 0},
        {"max_batch_size: 8", 0, 0},
        {"max_batch_size: 1 dynamic_batching { }", 0, 0},
        {"max_batch_size: 8 dynamic_batching { }", 8, 0},
        {"dynamic_batching { }", 0, 0},
        {"max_batch_size: 8 dynamic_batching { } parameters { key: \"swapnet_bits\" value { string_value: \"batch\" } "
         "}",
         8, 1},
        {"parameters { key: \"swapnet_bits\" value { string_value: \"exact\" } }", 0, 0},
    };

    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        assert_int_equal(parse(cases[i].text), 0);
        assert_int_equal(swn_model_config_joins(&config), cases[i].joins);
        assert_int_equal(swn_model_config_may_differ(&config), cases[i].may_differ);
    }
}

static void test_sizes_and_depth_have_a_bound(void **state)
{
    char text[4096], *large = calloc(1, SWN_CONFIG_BYTES + 1);
    size_t used = 0;

    (void)state;
    for (unsigned i = 0; i <= SWN_WIRE_TENSORS; i++)
        used += (size_t)snprintf(text + used, sizeof text - used, "%s{name:'%u' data_type:TYPE_BOOL}",
                                 i % 2 ? "input" : "output", i);
    assert_int_equal(parse(text), -EINVAL);
    assert_non_null(strstr(why, "one too many"));
    *strrchr(text, '{') = '\0';
    *(strrchr(text, '}') + 1) = '\0';
    assert_int_equal(parse(text), 0);

    for (unsigned levels = SWN_CONFIG_LIST; levels <= SWN_CONFIG_LIST + 1; levels++) {
        used = (size_t)snprintf(text, sizeof text, "max_batch_size:9 dynamic_batching{preferred_batch_size:[1");
        for (unsigned i = 1; i < levels; i++)
            used += (size_t)snprintf(text + used, sizeof text - used, ",1");
        snprintf(text + used, sizeof text - used, "]}");
        assert_int_equal(parse(text), levels > SWN_CONFIG_LIST ? -EINVAL : 0);
    }

    memset(text, '{', 100);
    memcpy(text, "optimization", 12);
    text[100] = '\0';
    expect_refused(text, "too deep");

    memset(text, 'n', SWN_CONFIG_NAME + 10);
    memcpy(text, "name:'", 6);
    memcpy(text + 6 + SWN_CONFIG_NAME, "'", 2);
    expect_refused(text, "more than 255 bytes");

    assert_non_null(large);
    memset(large, '\n', SWN_CONFIG_BYTES + 1);
    assert_int_equal(parse_bytes(large, SWN_CONFIG_BYTES), 0);
    assert_int_equal(parse_bytes(large, SWN_CONFIG_BYTES + 1), -EFBIG);
    free(large);
}

static void test_truncated_and_changed_configs_do_no_harm(void **state)
{
    char changed[sizeof whole], *json = malloc(1 << 20);

    (void)state;
    assert_non_null(json);
    for (size_t length = 0; length < sizeof whole; length++)
        parse_bytes(whole, length);
    for (size_t i = 0; i < sizeof whole - 1; i++)
        for (size_t c = i % 5; c < 256; c += 5) {
            memcpy(changed, whole, sizeof whole);
            changed[i] = (char)c;
            if (parse_bytes(changed, sizeof whole - 1) == 0)
                assert_true(swn_model_config_json(&config, json, 1 << 20) < 1 << 20);
        }
    free(json);
}

/* A server keeps one for each model, and --memory counts them as little. */
static void test_a_copy_takes_what_its_lists_have(void **state)
{
    struct swn_model_config copy;
    size_t taken;

    (void)state;
    assert_int_equal(parse(whole), 0);
    assert_int_equal(swn_model_config_copy(&copy, &config), 0);
    taken = malloc_usable_size(copy.inputs) + malloc_usable_size(copy.outputs) + malloc_usable_size(copy.parameters);
    assert_true(sizeof copy + taken < 12 << 10);
    assert_true(copy.inputs != config.inputs && copy.outputs != config.outputs && copy.parameters != config.parameters);
    assert_int_equal(copy.input_count, 2);
    assert_string_equal(copy.inputs[1].tensor.name, "s");
    assert_string_equal(copy.outputs[0].labels, "l.txt");
    swn_model_config_free(&config);
    assert_string_equal(copy.parameters[0].key, "a\nAB");
    swn_model_config_free(&copy);
    assert_true(copy.inputs == NULL && copy.input_count == 0);
    assert_int_equal(parse(""), 0);
    assert_int_equal(swn_model_config_copy(&copy, &config), 0);
    assert_true(copy.inputs == NULL && copy.parameters == NULL);
    assert_true(sizeof copy < 8 << 10);
    swn_model_config_free(&copy);
}

static void test_its_json_is_what_clients_read(void **state)
{
    size_t bytes;
    char *text;
    json_t *json, *part;

    (void)state;
    assert_int_equal(parse(whole), 0);
    bytes = swn_model_config_json(&config, NULL, 0);
    text = malloc(bytes);
    assert_non_null(text);
    assert_int_equal(swn_model_config_json(&config, text, bytes), bytes);
    json = json_loadb(text, bytes, JSON_REJECT_DUPLICATES, NULL);
    assert_non_null(json);
    assert_int_equal(json_integer_value(json_object_get(json, "max_batch_size")), 16);
    part = json_array_get(json_object_get(json, "input"), 0);
    assert_string_equal(json_string_value(json_object_get(part, "data_type")), "TYPE_FP32");
    assert_int_equal(json_integer_value(json_array_get(json_object_get(part, "dims"), 1)), -1);
    part = json_array_get(json_object_get(json, "input"), 1);
    assert_string_equal(json_string_value(json_object_get(part, "data_type")), "TYPE_STRING");
    assert_true(json_is_true(json_object_get(part, "optional")));
    assert_int_equal(json_array_size(json_object_get(json_object_get(part, "reshape"), "shape")), 0);
    part = json_object_get(json, "dynamic_batching");
    assert_int_equal(json_integer_value(json_array_get(json_object_get(part, "preferred_batch_size"), 0)), 4);
    part = json_object_get(json_object_get(part, "priority_queue_policy"), "2");
    assert_int_equal(json_integer_value(json_object_get(part, "default_timeout_microseconds")), 5);
    part = json_object_get(json_object_get(json_object_get(json, "version_policy"), "specific"), "versions");
    assert_int_equal(json_array_size(part), 2);
    part = json_object_get(json_object_get(json_object_get(json, "parameters"), "a\nAB"), "string_value");
    assert_string_equal(json_string_value(part), "\xc3\xa9");
    json_decref(json);
    free(text);
    assert_int_equal(parse(""), 0);
    assert_true(swn_model_config_json(&config, NULL, 0) > 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_whole_config_is_read),
        cmocka_unit_test(test_nothing_is_a_config),
        cmocka_unit_test(test_faults_are_told_with_line_and_column),
        cmocka_unit_test(test_which_requests_are_joined),
        cmocka_unit_test(test_sizes_and_depth_have_a_bound),
        cmocka_unit_test(test_truncated_and_changed_configs_do_no_harm),
        cmocka_unit_test(test_a_copy_takes_what_its_lists_have),
        cmocka_unit_test(test_its_json_is_what_clients_read),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
