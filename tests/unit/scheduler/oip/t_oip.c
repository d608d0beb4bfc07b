/* Inference requests are read as they are meant or refused with a reason, and answers say what the tensors have. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include <errno.h>
#include <math.h>
#include <stdio.h>

#include <jansson.h>

#include "scheduler/oip/oip.h"
#include "scheduler/oip/oip_answer.h"
#include "scheduler/serve/repository_path.h"
#include "tests/unit/support/random.h"

static struct swn_oip_request request;
static struct swn_oip_error error;

/* A copy of just its size, so that a sanitizer sees a byte too much; the request points into it until the next. */
static char *body;

static int parse_bytes(const void *bytes, size_t count, size_t json_bytes)
{
    free(body);
    body = malloc(count ? count : 1);
    assert_non_null(body);
    memcpy(body, bytes, count);
    memset(&error, 0, sizeof error);
    return swn_oip_parse(body, count, json_bytes, &request, &error);
}

static int parse(const char *json)
{
    return parse_bytes(json, strlen(json), strlen(json));
}

/* JSON and binary data behind it. */
static int parse_binary(const char *json, const void *data, size_t bytes)
{
    size_t length = strlen(json);
    char *all = malloc(length + bytes + 1);
    int rc;

    assert_non_null(all);
    memcpy(all, json, length);
    if (bytes)
        memcpy(all + length, data, bytes);
    rc = parse_bytes(all, length + bytes, length);
    free(all);
    return rc;
}

static void expect_refused(const char *json, const char *part_of_text)
{
    assert_int_equal(parse(json), -EINVAL);
    assert_int_equal(error.status, 400);
    if (!strstr(error.text, part_of_text))
        fail_msg("\"%s\" does not say \"%s\"", error.text, part_of_text);
}

/* The tensor in memory of just its size. The caller frees. */
static void *tensor_of(unsigned input)
{
    size_t bytes = request.inputs[input].tensor.bytes;
    void *to = malloc(bytes ? bytes : 1);

    assert_non_null(to);
    assert_int_equal(swn_oip_tensor_write(&request, input, to, bytes, &error), 0);
    return to;
}

static void test_a_json_request_is_read_whole(void **state)
{
    float *value;

    (void)state;
    assert_int_equal(
        parse("{ \"id\": \"a\\u00e9\", \"model_name\": \"m\", \"parameters\": {\"priority\": 3, \"timeout\": "
              "1500, \"binary_data_output\": true, \"sequence_id\": \"s\", \"sequence_start\": true,"
              "\"other\": {\"x\": [1, {\"y\": null}]}},"
              "\"inputs\": [{\"data\": [[1, 2.5], [-3, 4e1]], \"name\": \"x\", \"datatype\": \"FP32\", \"shape\": "
              "[2, 2], \"parameters\": {\"content_type\": \"np\"}},"
              "{\"name\": \"\\u0079\", \"shape\": [1], \"datatype\": \"INT64\", \"data\": [-7]}],"
              "\"outputs\": [{\"name\": \"a\"}, {\"name\": \"b\", \"parameters\": {\"binary_data\": false}}] }"),
        0);
    assert_string_equal(request.id, "a\xc3\xa9");
    assert_int_equal(request.priority, 3);
    assert_int_equal(request.timeout_us, 1500);
    assert_int_equal(request.input_count, 2);
    assert_int_equal(request.output_count, 2);
    assert_true(request.outputs[0].is_binary && !request.outputs[1].is_binary);
    assert_string_equal(request.inputs[1].tensor.name, "y");
    assert_int_equal(request.inputs[0].tensor.bytes, 16);
    assert_int_equal(request.input_bytes, 24);
    value = tensor_of(0);
    assert_true(value[0] == 1 && value[1] == 2.5f && value[2] == -3 && value[3] == 40);
    free(value);
}

static void test_binary_data_follows_in_the_order_of_inputs(void **state)
{
    static const char data[] = {1, 0, 2, 0, 3, 0, 1, 1, 0, 0, 0, 'z'};
    int16_t *numbers;
    char *strings;

    (void)state;
    assert_int_equal(
        parse_binary("{\"inputs\":[{\"name\":\"n\",\"datatype\":\"INT16\",\"shape\":[3],\"parameters\":{\"binary_data_"
                     "size\":6}},"
                     "{\"name\":\"j\",\"datatype\":\"BOOL\",\"shape\":[1],\"data\":[true]},"
                     "{\"name\":\"b\",\"datatype\":\"BOOL\",\"shape\":[1,1],\"parameters\":{\"binary_data_size\":1}},"
                     "{\"name\":\"s\",\"datatype\":\"BYTES\",\"shape\":[1],\"parameters\":{\"binary_data_size\":5}}]}",
                     data, sizeof data),
        0);
    numbers = tensor_of(0);
    assert_true(numbers[0] == 1 && numbers[2] == 3);
    free(numbers);
    strings = tensor_of(3);
    assert_memory_equal(strings, data + 7, 5);
    free(strings);
    assert_int_equal(request.inputs[2].tensor.bytes, 1);
}

#define BINARY(type, shape, size)                                                                                      \
    "{\"inputs\":[{\"name\":\"n\",\"datatype\":\"" type "\",\"shape\":" shape                                          \
    ",\"parameters\":{\"binary_data_size\":" size "}}]}"

static void test_binary_sizes_that_lie_are_refused(void **state)
{
    static const char data[16] = {1, 0, 0, 0, 'a', 2};
    static const struct {
        const char *json;
        size_t bytes;
        int takes;
    } cases[] = {
        {BINARY("FP32", "[2]", "8"), 8, 1},
        {BINARY("FP32", "[2]", "8"), 7, 0},
        {BINARY("FP32", "[2]", "8"), 9, 0},
        {BINARY("FP32", "[2]", "7"), 7, 0},
        {BINARY("FP32", "[2]", "12"), 12, 0},
        {BINARY("FP32", "[2]", "-8"), 8, 0},
        {BINARY("FP32", "[2]", "8.0"), 8, 0},
        {BINARY("FP32", "[2]", "\"8\""), 8, 0},
        {BINARY("FP32", "[2]", "18446744073709551615"), 8, 0},
        {BINARY("FP32", "[2]", "9223372036854775807"), 8, 0},
        {BINARY("FP32", "[2]", "99999999999999999999"), 8, 0},
        {BINARY("FP32", "[0]", "0"), 0, 1},
        {BINARY("FP16", "[3]", "6"), 6, 1},
        {BINARY("BOOL", "[5]", "5"), 5, 0},
        {BINARY("BOOL", "[4]", "4"), 4, 1},
        {BINARY("BYTES", "[1]", "5"), 5, 1},
        {BINARY("BYTES", "[1]", "4"), 4, 0},
        {BINARY("BYTES", "[2]", "5"), 5, 0},
        {BINARY("BYTES", "[1]", "6"), 6, 0},
        {BINARY("BYTES", "[0]", "0"), 0, 1},
        {BINARY("BYTES", "[4611686018427387904]", "5"), 5, 0},
        {BINARY("FP32", "[4611686018427387904]", "8"), 8, 0},
        {BINARY("FP32", "[4294967296, 4294967296]", "0"), 0, 0},
        {BINARY("FP32", "[9223372036854775807, 9223372036854775807, 0]", "0"), 0, 0},
        {BINARY("FP32", "[9223372036854775808]", "0"), 0, 0},
        {BINARY("FP32", "[-1]", "8"), 8, 0},
        {BINARY("FP32", "[2.0]", "8"), 8, 0},
        {BINARY("FP32", "[1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1]", "4"), 4, 1},
        {BINARY("FP32", "[1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1]", "4"), 4, 0},
        {BINARY("FP32", "[]", "4"), 4, 1},
    };

    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        int rc = parse_binary(cases[i].json, data, cases[i].bytes);
        if (rc != (cases[i].takes ? 0 : -EINVAL))
            fail_msg("%s with %zu bytes: %d, %s", cases[i].json, cases[i].bytes, rc, error.text);
        if (rc < 0)
            assert_int_equal(error.status, 400);
    }
}

#define INPUT(fields) "{\"inputs\":[{" fields "}]}"

static void test_a_field_that_is_wrong_is_named(void **state)
{
    (void)state;
    expect_refused("", "ends too early");
    expect_refused("[]", "failed to parse the request JSON buffer");
    expect_refused("{}", "'inputs'");
    expect_refused("{\"inputs\":{}}", "'inputs'");
    expect_refused("{\"inputs\":[1]}", "'inputs'");
    expect_refused("{\"inputs\":[{}]}", "'name'");
    expect_refused(INPUT("\"name\":5"), "'name'");
    expect_refused(INPUT("\"name\":\"a\\u0000b\""), "code 0");
    expect_refused(INPUT("\"name\":\"a\",\"datatype\":\"FLOAT\""), "invalid datatype for input 'a'");
    expect_refused(INPUT("\"name\":\"a\",\"datatype\":\"fp32\""), "invalid datatype for input 'a'");
    expect_refused(INPUT("\"name\":\"a\",\"datatype\":\"FP32\",\"data\":[1]"), "'shape'");
    expect_refused(INPUT("\"name\":\"a\",\"datatype\":\"FP32\",\"shape\":[1]"), "sets none");
    expect_refused(INPUT("\"name\":\"a\",\"datatype\":\"FP32\",\"shape\":[1],\"data\":1"), "no array");
    expect_refused(INPUT("\"name\":\"a\",\"datatype\":\"FP32\",\"shape\":[-1],\"data\":[1]"), "'shape'");
    expect_refused(INPUT("\"name\":\"a\",\"datatype\":\"FP32\",\"shape\":[2],\"data\":[1]"), "shape [2] has 2");
    expect_refused(INPUT("\"name\":\"a\",\"datatype\":\"FP32\",\"shape\":[1,4],\"data\":[[1,2],[3,4]]"), "nesting");
    expect_refused(INPUT("\"name\":\"a\",\"datatype\":\"FP32\",\"shape\":[1],\"data\":[\"1\"]"), "not of type FP32");
    expect_refused(INPUT("\"name\":\"a\",\"datatype\":\"INT8\",\"shape\":[1],\"data\":[NaN]"), "not of type INT8");
    expect_refused(INPUT("\"name\":\"a\",\"datatype\":\"FP16\",\"shape\":[1],\"data\":[1]"), "FP16 data via JSON");
    expect_refused(INPUT("\"name\":\"a\",\"datatype\":\"BF16\",\"shape\":[1],\"data\":[1]"), "BF16 data via JSON");
    expect_refused(
        INPUT("\"name\":\"a\",\"datatype\":\"FP32\",\"shape\":[1],\"data\":[1],\"parameters\":{\"binary_data_"
              "size\":0}"),
        "sets both");
    expect_refused(INPUT("\"parameters\":{\"shared_memory_region\":\"r\"}"), "shared memory");
    expect_refused(INPUT("\"parameters\":7"), "'parameters'");
    expect_refused("{\"parameters\":{\"priority\":-1}}", "'priority'");
    expect_refused("{\"parameters\":{\"timeout\":1.5}}", "'timeout'");
    expect_refused("{\"parameters\":{\"timeout\":18446744073709551616}}", "'timeout'");
    expect_refused("{\"parameters\":{\"binary_data_output\":1}}", "'binary_data_output'");
    expect_refused("{\"parameters\":{\"sequence_id\":true}}", "'sequence_id'");
    expect_refused("{\"outputs\":[{\"name\":\"o\",\"parameters\":{\"classification\":-3}}]}", "classification");
    expect_refused("{\"outputs\":[{\"name\":\"o\"},{\"name\":\"o\"}]}", "already exists");
    expect_refused("{\"outputs\":[{}]}", "'name'");
    expect_refused("{\"id\":1}", "'id'");
}

static void test_keys_that_are_there_twice_are_refused(void **state)
{
    (void)state;
    expect_refused("{\"id\":\"a\",\"id\":\"b\"}", "twice");
    expect_refused("{\"id\":\"a\",\"\\u0069d\":\"b\"}", "twice");
    expect_refused("{\"\xc3\xa9\":1,\"\\u00e9\":1}", "twice");
    expect_refused("{\"x\":{\"y\":{\"a\":1,\"b\":2,\"a\":1}}}", "twice");
    expect_refused(INPUT("\"data\":[1],\"data\":[1]"), "twice");
    expect_refused("{\"x\":{\"a\":1},\"y\":{\"a\":1}}", "'inputs'");
}

static void test_names_and_ids_have_a_bound(void **state)
{
    char json[2048], name[300];

    (void)state;
    for (size_t length = 126; length <= 129; length++) {
        memset(name, 'n', length);
        name[length] = '\0';
        snprintf(json, sizeof json, INPUT("\"name\":\"%s\",\"datatype\":\"BOOL\",\"shape\":[1],\"data\":[true]"), name);
        assert_int_equal(parse(json), length < SWN_WIRE_TENSOR_NAME ? 0 : -EINVAL);
    }
    for (size_t length = 254; length <= 257; length++) {
        memset(name, 'n', length);
        name[length] = '\0';
        snprintf(json, sizeof json,
                 "{\"id\":\"%s\",\"inputs\":[{\"name\":\"a\",\"datatype\":\"BOOL\",\"shape\":[1],\"data\":[true]}]}",
                 name);
        assert_int_equal(parse(json), length < SWN_OIP_ID ? 0 : -EINVAL);
    }
}

/* `count` times `one`, which has a place for a number, between `begin` and `end`. */
static char *repeated(const char *begin, const char *one, unsigned count, const char *end)
{
    size_t room = strlen(begin) + (strlen(one) + 12) * count + strlen(end) + 1, used;
    char *text = malloc(room);

    assert_non_null(text);
    used = (size_t)snprintf(text, room, "%s", begin);
    for (unsigned i = 0; i < count; i++) {
        if (i)
            text[used++] = ',';
        for (const char *c = one; *c; c++) {
            if (*c == '#')
                used += (size_t)snprintf(text + used, room - used, "%u", i);
            else
                text[used++] = *c;
        }
    }
    snprintf(text + used, room - used, "%s", end);
    return text;
}

static void test_inputs_outputs_keys_and_levels_have_a_bound(void **state)
{
    static const char input[] = "{\"name\":\"#\",\"datatype\":\"BOOL\",\"shape\":[1],\"data\":[true]}";
    char *json, deep[400];

    (void)state;
    for (unsigned more = 0; more < 2; more++) {
        json = repeated("{\"inputs\":[", input, SWN_WIRE_TENSORS + more, "]}");
        assert_int_equal(parse(json), more ? -EINVAL : 0);
        free(json);
        json =
            repeated("{\"inputs\":[{\"name\":\"a\",\"datatype\":\"BOOL\",\"shape\":[1],\"data\":[true]}],\"outputs\":[",
                     "{\"name\":\"#\"}", SWN_WIRE_TENSORS + more, "]}");
        assert_int_equal(parse(json), more ? -EINVAL : 0);
        free(json);
    }
    json = repeated("{", "\"#\":1", 300, "}");
    expect_refused(json, "too many keys");
    free(json);
    memset(deep, '[', sizeof deep);
    memcpy(deep, "{\"x\":", 5);
    deep[sizeof deep - 1] = '\0';
    expect_refused(deep, "too deep");
    memcpy(deep, "{\"inputs\":[{\"data\":", 19);
    expect_refused(deep, "too deep");
}

/* Every prefix, and every byte changed: a reason, or a request whose tensors can be written. */
static void test_damaged_requests_are_refused_or_whole(void **state)
{
    static const char json[] = "{\"id\":\"i\\n\",\"inputs\":[{\"name\":\"a\",\"datatype\":\"FP32\",\"shape\":[2,1],"
                               "\"data\":[[1.5],[-2e3]]},{\"name\":"
                               "\"b\",\"shape\":[1],\"datatype\":\"BYTES\",\"data\":[\"\\u00e9x\"]},{\"name\":\"c\","
                               "\"shape\":[2],\"datatype\":\"UINT8\","
                               "\"parameters\":{\"binary_data_size\":2}}],\"outputs\":[{\"name\":\"o\",\"parameters\":{"
                               "\"binary_data\":true}}],"
                               "\"parameters\":{\"timeout\":7,\"x\":[null,false,{}]}}\1\2";
    size_t json_bytes = sizeof json - 3;
    char changed[sizeof json];

    (void)state;
    assert_int_equal(parse_bytes(json, sizeof json - 1, json_bytes), 0);
    for (size_t length = 0; length < sizeof json - 1; length++) {
        assert_int_equal(parse_bytes(json, length, length < json_bytes ? length : json_bytes), -EINVAL);
        assert_true(error.text[0] && error.status == 400);
    }
    for (size_t i = 0; i < json_bytes; i++)
        for (size_t c = 0; c < 256; c += 1 + i % 3) {
            memcpy(changed, json, sizeof json);
            changed[i] = (char)c;
            if (parse_bytes(changed, sizeof json - 1, json_bytes))
                continue;
            for (unsigned t = 0; t < request.input_count; t++) {
                size_t bytes = request.inputs[t].tensor.bytes;
                char *to = malloc(bytes ? bytes : 1);
                swn_oip_tensor_write(&request, t, to, bytes, &error);
                free(to);
            }
        }
}

/* Another process may write to the body after it has been checked. */
static void test_a_body_that_changes_meanwhile_is_no_harm(void **state)
{
    static const char json[] =
        INPUT("\"name\":\"a\",\"datatype\":\"BYTES\",\"shape\":[3],\"data\":[\"ab\",\"\\u00e9\",\"c\"]");
    uint64_t seed = 9;
    char to[16];

    (void)state;
    for (unsigned round = 0; round < 20000; round++) {
        assert_int_equal(parse(json), 0);
        assert_int_equal(request.inputs[0].tensor.bytes, 12 + 5);
        for (unsigned i = 0; i < 3; i++)
            body[request.inputs[0].at + next_random(&seed) % request.inputs[0].length] =
                "[]\"\\,u{1e\xc3"[next_random(&seed) % 10];
        char *exact = malloc(17);
        swn_oip_tensor_write(&request, 0, exact, 17, &error);
        free(exact);
        assert_int_equal(swn_oip_tensor_write(&request, 0, to, sizeof to, &error), -EINVAL);
    }
}

static void test_json_length_must_lie_in_the_body(void **state)
{
    (void)state;
    assert_int_equal(parse_bytes("{}", 2, 3), -EINVAL);
    assert_non_null(strstr(error.text, "inference header size"));
    assert_int_equal(parse_bytes("{}", 2, SIZE_MAX), -EINVAL);
    assert_int_equal(parse_bytes("{}", 2, 0), -EINVAL);
}

static struct swn_wire_tensor tensor(const char *name, enum swn_element element, unsigned rank, int64_t d0, int64_t d1)
{
    struct swn_wire_tensor t = {.element = element, .rank = rank, .shape = {d0, d1}};

    strcpy(t.name, name);
    swn_wire_tensor_bytes(&t, &t.bytes);
    return t;
}

static uint64_t optional; /* inputs, in expect_match */

static void expect_match(const char *json, const struct swn_wire_tensor *in, unsigned inputs, const char *part_of_text)
{
    struct swn_wire_tensor out = tensor("y", SWN_ELEMENT_FP32, 1, 1, 0);
    int rc;

    assert_int_equal(parse(json), 0);
    rc = swn_oip_match(&request, "m", in, inputs, optional, &out, 1, &error);
    assert_int_equal(rc, part_of_text ? -EINVAL : 0);
    if (part_of_text && !strstr(error.text, part_of_text))
        fail_msg("\"%s\" does not say \"%s\"", error.text, part_of_text);
}

static void test_a_model_takes_only_its_inputs(void **state)
{
    struct swn_wire_tensor in[2] = {tensor("x", SWN_ELEMENT_FP32, 2, -1, 2), tensor("z", SWN_ELEMENT_NONE, 0, 0, 0)};
    static const char x[] = "{\"name\":\"x\",\"datatype\":\"FP32\",\"shape\":[1,2],\"data\":[1,2]}";
    char json[512];

    (void)state;
    snprintf(json, sizeof json, "{\"inputs\":[%s]}", x);
    expect_match(json, in, 1, NULL);
    expect_match(json, in, 2, "expected 2 inputs but got 1 inputs for model 'm'");
    expect_match(json, in + 1, 1, "unexpected inference input 'x' for model 'm'");
    snprintf(json, sizeof json,
             "{\"inputs\":[%s,{\"name\":\"z\",\"datatype\":\"BOOL\",\"shape\":[1,1],\"data\":[true]}]}", x);
    expect_match(json, in, 2, NULL);
    expect_match(INPUT("\"name\":\"x\",\"datatype\":\"FP32\",\"shape\":[2],\"data\":[1,2]"), in, 1,
                 "Expected [-1,2], got [2]");
    expect_match(INPUT("\"name\":\"x\",\"datatype\":\"FP32\",\"shape\":[2,1],\"data\":[1,2]"), in, 1,
                 "unexpected shape");
    expect_match(INPUT("\"name\":\"x\",\"datatype\":\"INT8\",\"shape\":[1,2],\"data\":[1,2]"), in, 1,
                 "data-type is 'INT8', but model 'm' expects 'FP32'");
    snprintf(json, sizeof json, "{\"inputs\":[%s],\"outputs\":[{\"name\":\"w\"}]}", x);
    expect_match(json, in, 1, "unexpected inference output 'w'");
    snprintf(json, sizeof json, "{\"inputs\":[%s,%s]}", x, x);
    expect_refused(json, "already exists");
}

static void test_an_optional_input_can_be_left_out(void **state)
{
    struct swn_wire_tensor in[3] = {tensor("x", SWN_ELEMENT_NONE, 0, 0, 0), tensor("y", SWN_ELEMENT_NONE, 0, 0, 0),
                                    tensor("z", SWN_ELEMENT_NONE, 0, 0, 0)};
    static const char x[] = INPUT("\"name\":\"x\",\"datatype\":\"INT8\",\"shape\":[1],\"data\":[1]");
    static const char z[] = INPUT("\"name\":\"z\",\"datatype\":\"INT8\",\"shape\":[1],\"data\":[1]");

    (void)state;
    optional = 6;
    expect_match(x, in, 3, NULL);
    expect_match(z, in, 3,
                 "expected number of inputs between 1 and 3 but got 1 inputs for model 'm'. Got input(s) ['z'], but "
                 "missing required input(s) ['x'].");
    optional = 7;
    expect_match("{\"inputs\":[]}", in, 3, NULL);
    optional = 0;
    expect_match("{\"inputs\":[]}", in, 1, "Got input(s) [], but missing required input(s) ['x']");
    optional = 2;
    expect_match(x, in, 3, "missing required input(s) ['z']");
    optional = 0;
    expect_match(x, in, 3,
                 "expected 3 inputs but got 1 inputs for model 'm'. Got input(s) ['x'], but missing required input(s) "
                 "['y','z']. Please provide all required input(s).");
}

static void test_a_raw_body_is_the_only_input(void **state)
{
    static char room[SWN_OIP_RAW_ROOM + 24] = {1}, *data = room + SWN_OIP_RAW_ROOM;
    struct swn_wire_tensor x = tensor("x", SWN_ELEMENT_FP32, 2, -1, 3);

    (void)state;
    assert_int_equal(swn_oip_parse_raw(data, 24, &x, 0, &request, &error), 0);
    assert_true(request.inputs[0].tensor.shape[0] == 2 && request.inputs[0].tensor.bytes == 24 &&
                request.binary_output);
    assert_int_equal(swn_oip_parse_raw(data, 23, &x, 0, &request, &error), -EINVAL);
    assert_int_equal(swn_oip_parse_raw(data, 0, &x, 0, &request, &error), 0);
    assert_int_equal(request.inputs[0].tensor.shape[0], 0);
    x.shape[1] = -1;
    assert_int_equal(swn_oip_parse_raw(data, 24, &x, 0, &request, &error), -EINVAL);
    x = tensor("x", SWN_ELEMENT_FP32, 2, 2, 3);
    assert_int_equal(swn_oip_parse_raw(data, 24, &x, 0, &request, &error), 0);
    assert_int_equal(swn_oip_parse_raw(data, 12, &x, 0, &request, &error), -EINVAL);
    x.shape[0] = x.shape[1] = -1;
    assert_int_equal(swn_oip_parse_raw(data, 24, &x, 1, &request, &error), 0); /* a batch of one */
    assert_true(request.inputs[0].tensor.shape[0] == 1 && request.inputs[0].tensor.shape[1] == 6);
    x = tensor("x", SWN_ELEMENT_FP32, 2, -1, 0);
    assert_int_equal(swn_oip_parse_raw(data, 24, &x, 0, &request, &error), -EINVAL);
}

static void test_a_raw_body_can_be_one_string(void **state)
{
    char room[SWN_OIP_RAW_ROOM + 3] = "????abc", to[SWN_OIP_RAW_ROOM + 3];
    struct swn_wire_tensor x = tensor("x", SWN_ELEMENT_BYTES, 2, -1, 1);

    (void)state;
    assert_int_equal(swn_oip_parse_raw(room + SWN_OIP_RAW_ROOM, 3, &x, 0, &request, &error), -EINVAL);
    assert_int_equal(swn_oip_parse_raw(room + SWN_OIP_RAW_ROOM, 3, &x, 1, &request, &error), 0);
    assert_memory_equal(room, "\3\0\0\0abc", 7);
    assert_true(request.inputs[0].tensor.bytes == 7 && request.inputs[0].tensor.shape[0] == 1);
    assert_int_equal(swn_oip_tensor_write(&request, 0, to, 7, &error), 0);
    assert_memory_equal(to, room, 7);
    assert_int_equal(swn_oip_parse_raw(room + SWN_OIP_RAW_ROOM, 0, &x, 1, &request, &error), 0);
    assert_memory_equal(room, "\0\0\0\0abc", 7);
    assert_int_equal(request.inputs[0].tensor.bytes, 4);
    x.shape[1] = 2;
    assert_int_equal(swn_oip_parse_raw(room + SWN_OIP_RAW_ROOM, 3, &x, 1, &request, &error), -EINVAL);
    x.shape[1] = -1;
    assert_int_equal(swn_oip_parse_raw(room + SWN_OIP_RAW_ROOM, 3, &x, 1, &request, &error), -EINVAL);
    x = tensor("x", SWN_ELEMENT_BYTES, 1, -1, 0);
    assert_int_equal(swn_oip_parse_raw(room + SWN_OIP_RAW_ROOM, 3, &x, 0, &request, &error), -EINVAL);
    assert_non_null(strstr(error.text, "must have input shape [1]"));
    x = tensor("x", SWN_ELEMENT_BYTES, 1, 1, 0);
    assert_int_equal(swn_oip_parse_raw(room + SWN_OIP_RAW_ROOM, 3, &x, 0, &request, &error), 0);
}

static json_t *answer_json(struct swn_oip_answer *answer)
{
    ssize_t bytes = swn_oip_answer_json(answer, NULL, 0, &error);
    char *text;
    json_t *json;

    assert_true(bytes > 0);
    text = malloc((size_t)bytes);
    assert_non_null(text);
    assert_int_equal(swn_oip_answer_json(answer, text, (size_t)bytes, &error), bytes);
    json = json_loadb(text, (size_t)bytes, JSON_REJECT_DUPLICATES, NULL);
    assert_non_null(json);
    free(text);
    return json;
}

static void test_an_answer_has_what_was_asked_for(void **state)
{
    struct {
        float f[2];
        int64_t i[1];
        char s[8];
    } buffer = {{0.5f, -3}, {INT64_MIN}, {4, 0, 0, 0, 'a', '"', '\n', 1}};
    struct swn_wire_tensor out[3] = {tensor("f", SWN_ELEMENT_FP32, 2, 1, 2), tensor("i", SWN_ELEMENT_INT64, 1, 1, 0),
                                     tensor("s\"", SWN_ELEMENT_BYTES, 1, 1, 0)};
    struct swn_oip_answer answer;
    json_t *json, *one;

    (void)state;
    out[1].offset = 8;
    out[2].offset = 16;
    out[2].bytes = 8;
    assert_int_equal(
        parse("{\"id\":\"\\\"7\",\"inputs\":[{\"name\":\"x\",\"datatype\":\"BOOL\",\"shape\":[1],\"data\":[true]}],"
              "\"outputs\":[{\"name\":\"s\\\"\"},{\"name\":\"f\"},{\"name\":\"i\",\"parameters\":{\"binary_data\":true}"
              "}]}"),
        0);
    assert_int_equal(swn_oip_answer_select(&answer, &request, "m\\", "1", out, 3, &buffer, &error), 0);
    answer.bits = "exact";
    json = answer_json(&answer);
    assert_string_equal(json_string_value(json_object_get(json, "id")), "\"7");
    assert_string_equal(json_string_value(json_object_get(json, "model_name")), "m\\");
    assert_string_equal(json_string_value(json_object_get(json, "model_version")), "1");
    assert_string_equal(json_string_value(json_object_get(json_object_get(json, "parameters"), "swapnet_bits")),
                        "exact");
    one = json_array_get(json_object_get(json, "outputs"), 0);
    assert_string_equal(json_string_value(json_array_get(json_object_get(one, "data"), 0)), "a\"\n\x01");
    one = json_array_get(json_object_get(json, "outputs"), 1);
    assert_string_equal(json_string_value(json_object_get(one, "datatype")), "FP32");
    assert_int_equal(json_integer_value(json_array_get(json_object_get(one, "shape"), 1)), 2);
    assert_true(json_number_value(json_array_get(json_object_get(one, "data"), 1)) == -3);
    one = json_array_get(json_object_get(json, "outputs"), 2);
    assert_int_equal(json_integer_value(json_object_get(json_object_get(one, "parameters"), "binary_data_size")), 8);
    assert_null(json_object_get(one, "data"));
    assert_true(swn_oip_answer_has_binary(&answer) && swn_oip_answer_binary_bytes(&answer) == 8);
    assert_ptr_equal(answer.outputs[2].data, buffer.i);
    json_decref(json);
}

static void test_every_type_is_written_as_its_numbers(void **state)
{
    static const unsigned char ones[8] = {0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff};
    static const struct {
        enum swn_element element;
        const char *text;
    } cases[] = {
        {SWN_ELEMENT_UINT8, "255"},         {SWN_ELEMENT_UINT16, "65535"},
        {SWN_ELEMENT_UINT32, "4294967295"}, {SWN_ELEMENT_UINT64, "18446744073709551615"},
        {SWN_ELEMENT_INT8, "-1"},           {SWN_ELEMENT_INT16, "-1"},
        {SWN_ELEMENT_INT32, "-1"},          {SWN_ELEMENT_INT64, "-1"},
        {SWN_ELEMENT_FP32, "NaN"},          {SWN_ELEMENT_FP64, "NaN"},
        {SWN_ELEMENT_BOOL, "true"},
    };
    struct swn_oip_answer answer = {.model = "m", .version = "1", .id = "", .count = 1};

    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct swn_wire_tensor t = tensor("t", cases[i].element, 1, 1, 0);
        char text[256], expected[64];
        answer.outputs[0] = (struct swn_oip_answer_output){.tensor = &t, .data = ones};
        text[swn_oip_answer_json(&answer, text, sizeof text, &error)] = '\0';
        snprintf(expected, sizeof expected, "\"shape\":[1],\"data\":[%s]}]}", cases[i].text);
        assert_non_null(strstr(text, expected));
    }
}

static void test_outputs_that_cannot_be_answered_are_errors(void **state)
{
    struct swn_wire_tensor t = tensor("t", SWN_ELEMENT_FP16, 1, 1, 0);
    static const char bytes[8] = {1, 0, 0, 0, (char)0xff};
    struct swn_oip_answer answer;

    (void)state;
    memset(&request, 0, sizeof request);
    assert_int_equal(swn_oip_answer_select(&answer, &request, "m", "1", &t, 1, bytes, &error), -EINVAL);
    assert_non_null(strstr(error.text, "FP16 data via JSON"));
    request.output_count = 1;
    strcpy(request.outputs[0].name, "u");
    assert_int_equal(swn_oip_answer_select(&answer, &request, "m", "1", &t, 1, bytes, &error), -EINVAL);
    request.output_count = 0;
    t = tensor("t", SWN_ELEMENT_BYTES, 1, 1, 0);
    t.bytes = 5;
    assert_int_equal(swn_oip_answer_select(&answer, &request, "m", "1", &t, 1, bytes, &error), 0);
    assert_true(swn_oip_answer_json(&answer, NULL, 0, &error) < 0 && error.status == 400);
    /* an engine that lies */
    t.bytes = 4;
    assert_true(swn_oip_answer_json(&answer, NULL, 0, &error) < 0 && error.status == 500);
    t = tensor("t", SWN_ELEMENT_FP32, 1, 1, 0);
    t.bytes = 8;
    assert_true(swn_oip_answer_json(&answer, NULL, 0, &error) < 0 && error.status == 500);
    t.shape[0] = -1;
    assert_true(swn_oip_answer_json(&answer, NULL, 0, &error) < 0 && error.status == 500);
}

/* What an answer says as JSON, a request with it gives back, bit for bit. */
static void test_floats_come_back_from_json_with_their_bits(void **state)
{
    enum { COUNT = 20000 };
    static float values[COUNT];
    static uint64_t seed = 5;
    struct swn_wire_tensor t = tensor("t", SWN_ELEMENT_FP32, 1, COUNT, 0);
    struct swn_oip_answer answer = {.model = "m", .version = "1", .id = "", .count = 1};
    ssize_t bytes;
    char *text;
    float *back;

    (void)state;
    for (unsigned i = 0; i < COUNT; i++) {
        uint32_t bits = (uint32_t)next_random(&seed);
        memcpy(&values[i], &bits, sizeof bits);
        if (isnan(values[i]))
            values[i] = -0.0f;
    }
    answer.outputs[0] = (struct swn_oip_answer_output){.tensor = &t, .data = values};
    bytes = swn_oip_answer_json(&answer, NULL, 0, &error);
    text = malloc((size_t)bytes);
    assert_non_null(text);
    swn_oip_answer_json(&answer, text, (size_t)bytes, &error);
    memcpy(strstr(text, "\"outputs\""), " \"inputs\"", 9);
    assert_int_equal(parse_bytes(text, (size_t)bytes, (size_t)bytes), 0);
    back = tensor_of(0);
    assert_memory_equal(back, values, sizeof values);
    free(back);
    free(text);
}

static void test_metadata_is_json(void **state)
{
    static const char *const extensions[] = {"binary_tensor_data", "a\"b"}, *const versions[] = {"1", "12"};
    struct swn_wire_tensor in[2] = {tensor("x", SWN_ELEMENT_FP32, 2, -1, 3), tensor("z", SWN_ELEMENT_NONE, 0, 0, 0)};
    struct swn_oip_model model = {.name = "m",
                                  .platform = "pytorch_libtorch",
                                  .versions = versions,
                                  .version_count = 2,
                                  .inputs = in,
                                  .input_count = 2};
    char text[1024];
    size_t bytes = swn_oip_server_metadata(text, sizeof text, "swapnet", "1.0", extensions, 2);

    (void)state;
    text[bytes] = '\0';
    assert_string_equal(
        text, "{\"name\":\"swapnet\",\"version\":\"1.0\",\"extensions\":[\"binary_tensor_data\",\"a\\\"b\"]}");
    assert_int_equal(swn_oip_server_metadata(NULL, 0, "swapnet", "1.0", extensions, 2), bytes);
    text[swn_oip_model_metadata(text, sizeof text, &model)] = '\0';
    assert_string_equal(
        text, "{\"name\":\"m\",\"versions\":[\"1\",\"12\"],\"platform\":\"pytorch_libtorch\",\"inputs\":[{\"name\":"
              "\"x\",\"datatype\":\"FP32\",\"shape\":[-1,3]},{\"name\":\"z\",\"datatype\":\"UNKNOWN\",\"shape\":[]}],"
              "\"outputs\":[]}");
    model.bits = SWN_OIP_EXACT;
    text[swn_oip_model_metadata(text, sizeof text, &model)] = '\0';
    assert_non_null(strstr(text, "\"outputs\":[],\"parameters\":{\"swapnet_bits\":\"exact\"}}"));
}

static void test_hostile_text_in_an_error_stays_json(void **state)
{
    char text[SWN_OIP_ERROR_BODY], name[2000];
    json_t *json;

    (void)state;
    assert_int_equal(swn_oip_fail(&error, 404, "%s", "a\"\\\n\t\x1b[31m\x7f\xff\xc3\xa9"), -EINVAL);
    json = json_loadb(text, swn_oip_error_body(&error, text), 0, NULL);
    assert_string_equal(json_string_value(json_object_get(json, "error")), "a\"\\\n\t\x1b[31m\x7f\xef\xbf\xbd\xc3\xa9");
    json_decref(json);
    for (unsigned shift = 0; shift < 4; shift++) {
        for (unsigned i = 0; i < sizeof name - 4; i += 4)
            memcpy(name + i, "\xf0\x9f\x98\x80", 4);
        name[sizeof name - 4] = '\0';
        swn_oip_fail(&error, 400, "%.*s%s", (int)shift, "xyz", name);
        json = json_loadb(text, swn_oip_error_body(&error, text), 0, NULL);
        assert_non_null(json);
        assert_null(strstr(json_string_value(json_object_get(json, "error")), "\xef\xbf\xbd"));
        json_decref(json);
    }
    memset(name, 1, sizeof name - 1);
    name[sizeof name - 1] = '\0';
    swn_oip_fail(&error, 400, "%s", name);
    assert_true(swn_oip_error_body(&error, text) <= sizeof text);
}

static void test_names_that_are_paths_are_refused(void **state)
{
    static const char *const bad[] = {"", ".", "..", ".hidden", "a/b", "/", "a\n", "\x7f", "\xff", "\xc0\xaf"};
    static const char *const versions[] = {"0", "01", "-1", "+1", " 1", "1 ", "1a", "", "9223372036854775808"};
    char to[8];
    int64_t version;

    (void)state;
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        assert_false(swn_model_name_is_valid(bad[i], strlen(bad[i])));
    assert_false(swn_model_name_is_valid("a\0b", 3));
    assert_true(swn_model_name_is_valid("resnet-50 v1.5_\xc3\xa9", 17));
    for (size_t i = 0; i < sizeof versions / sizeof *versions; i++)
        assert_int_equal(swn_model_version_parse(versions[i], strlen(versions[i]), &version), -EINVAL);
    assert_int_equal(swn_model_version_parse("9223372036854775807", 19, &version), 0);
    assert_true(version == INT64_MAX);
    assert_int_equal(swn_url_segment_decode("a%20b", 5, to, sizeof to), 3);
    assert_string_equal(to, "a b");
    assert_int_equal(swn_url_segment_decode("a%2fb", 5, to, sizeof to), -EINVAL);
    assert_int_equal(swn_url_segment_decode("a%00b", 5, to, sizeof to), -EINVAL);
    assert_int_equal(swn_url_segment_decode("a%2", 3, to, sizeof to), -EINVAL);
    assert_int_equal(swn_url_segment_decode("a%g0", 4, to, sizeof to), -EINVAL);
    assert_int_equal(swn_url_segment_decode("12345678", 8, to, sizeof to), -EINVAL);
    assert_int_equal(swn_url_segment_decode("1234567", 7, to, sizeof to), 7);
}

static int free_body(void **state)
{
    (void)state;
    free(body);
    body = NULL;
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_json_request_is_read_whole),
        cmocka_unit_test(test_binary_data_follows_in_the_order_of_inputs),
        cmocka_unit_test(test_binary_sizes_that_lie_are_refused),
        cmocka_unit_test(test_a_field_that_is_wrong_is_named),
        cmocka_unit_test(test_keys_that_are_there_twice_are_refused),
        cmocka_unit_test(test_names_and_ids_have_a_bound),
        cmocka_unit_test(test_inputs_outputs_keys_and_levels_have_a_bound),
        cmocka_unit_test(test_damaged_requests_are_refused_or_whole),
        cmocka_unit_test(test_a_body_that_changes_meanwhile_is_no_harm),
        cmocka_unit_test(test_json_length_must_lie_in_the_body),
        cmocka_unit_test(test_a_model_takes_only_its_inputs),
        cmocka_unit_test(test_an_optional_input_can_be_left_out),
        cmocka_unit_test(test_a_raw_body_is_the_only_input),
        cmocka_unit_test(test_a_raw_body_can_be_one_string),
        cmocka_unit_test(test_an_answer_has_what_was_asked_for),
        cmocka_unit_test(test_every_type_is_written_as_its_numbers),
        cmocka_unit_test(test_outputs_that_cannot_be_answered_are_errors),
        cmocka_unit_test(test_floats_come_back_from_json_with_their_bits),
        cmocka_unit_test(test_metadata_is_json),
        cmocka_unit_test(test_hostile_text_in_an_error_stays_json),
        cmocka_unit_test(test_names_that_are_paths_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, free_body);
}
