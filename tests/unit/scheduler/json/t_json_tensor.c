/* Arrays of JSON become tensors with the exact bits of their numbers, and numbers become text that reads back the same.
 */
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

#include "scheduler/json/json_number.h"
#include "scheduler/json/json_tensor.h"
#include "scheduler/json/number_text.h"
#include "tests/unit/support/random.h"

#define ROUNDS 200000

static const char *why, *where;

/* Copies of just their size, so that a sanitizer sees a byte too much. */
static char *exact(const char *text, size_t length)
{
    char *copy = malloc(length ? length : 1);

    assert_non_null(copy);
    memcpy(copy, text, length);
    return copy;
}

/* 0 or -EINVAL; `to` gets the elements. */
static int convert(const char *text, enum swn_element element, void *to, size_t bytes)
{
    size_t length = strlen(text);
    char *copy = exact(text, length);
    struct swn_json_array array;
    const char *after = swn_json_array_measure(copy, copy + length, SWN_JSON_DEPTH, &array, &why, &where);
    int rc = -EINVAL;

    if (after == copy + length)
        rc = swn_json_array_write(copy, after, element, to, bytes, &why, &where);
    free(copy);
    return rc;
}

static int measured(const char *text, struct swn_json_array *array)
{
    size_t length = strlen(text);
    char *copy = exact(text, length);
    int whole = swn_json_array_measure(copy, copy + length, SWN_JSON_DEPTH, array, &why, &where) == copy + length;

    free(copy);
    return whole;
}

static void test_floats_are_rounded_as_strtof_does(void **state)
{
    static const char *const numbers[] = {
        "0",
        "-0",
        "-0.0",
        "0e999",
        "1",
        "0.1",
        "16777217",
        "16777219",
        "33554435",
        "1e-45",
        "0.7e-45",
        "0.70064923216240853e-45",
        "0.70064923216240854e-45",
        "1.17549435e-38",
        "1.1754943e-38",
        "3.4028235e38",
        "3.4028235677973365e38",
        "340282356779733661637539395458142568447",
        "1e-400",
        "-1e-400",
        "0.1e1",
        "123456789012345678901234567890",
        "9007199791611905",
        "9007199254740993",
        "1.00000005960464477539062500",
        "1.000000059604644775390625000000000000001",
        "8388608.5",
        "8388609.5",
        "1E+2",
        "1e-0",
        "5e-324",
        "2.2250738585072011e-308",
    };
    float value;

    (void)state;
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++) {
        char array[128];
        float expected = strtof(numbers[i], NULL);
        snprintf(array, sizeof array, "[%s]", numbers[i]);
        assert_int_equal(convert(array, SWN_ELEMENT_FP32, &value, sizeof value), 0);
        assert_memory_equal(&value, &expected, sizeof value);
    }
}

static void test_doubles_are_rounded_as_strtod_does(void **state)
{
    static const char *const numbers[] = {
        "-0",
        "0.1",
        "1e22",
        "1e23",
        "9007199254740993",
        "9007199254740992.5",
        "9007199254740993.00000000000000000001",
        "5e-324",
        "2.5e-324",
        "2.2250738585072011e-308",
        "2.2250738585072014e-308",
        "1.7976931348623157e308",
        "179769313486231570793e288",
        "1e-400",
        "18446744073709551615",
        "18446744073709551616",
        "0.30000000000000004",
    };
    double value;

    (void)state;
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++) {
        char array[128];
        double expected = strtod(numbers[i], NULL);
        snprintf(array, sizeof array, "[%s]", numbers[i]);
        assert_int_equal(convert(array, SWN_ELEMENT_FP64, &value, sizeof value), 0);
        assert_memory_equal(&value, &expected, sizeof value);
    }
}

static float random_float(uint64_t bits)
{
    uint32_t word = (uint32_t)bits;
    float value;

    memcpy(&value, &word, sizeof value);
    return value;
}

/* Numbers of all sizes, and those half way between two floats. */
static void make_number(uint64_t *seed, char *text, size_t room)
{
    uint64_t digits = next_random(seed) >> (next_random(seed) % 64);
    uint64_t bits = next_random(seed) & 0x7f7fffff;
    float low = random_float(bits), high = random_float(bits + 1);

    switch (next_random(seed) % 4) {
    case 0:
        snprintf(text, room, "%llue%d", (unsigned long long)digits, (int)(next_random(seed) % 700) - 370);
        break;
    case 1:
        snprintf(text, room, "-%llue%d", (unsigned long long)digits, (int)(next_random(seed) % 60) - 40);
        break;
    case 2:
        snprintf(text, room, "%.17e", ((double)low + (double)high) / 2);
        break;
    default:
        snprintf(text, room, "%.9g", (double)low);
    }
}

static void test_any_number_reads_as_libc_reads_it(void **state)
{
    uint64_t seed = 1;

    (void)state;
    for (unsigned i = 0; i < ROUNDS; i++) {
        char text[64];
        struct swn_json_number number;
        float as_float, expected_float;
        double as_double, expected_double;
        make_number(&seed, text, sizeof text);
        if (strchr(text, 'n')) /* an infinity */
            continue;
        expected_float = strtof(text, NULL);
        expected_double = strtod(text, NULL);
        assert_int_equal(swn_json_number_scan(text, text + strlen(text), &number), strlen(text));
        assert_int_equal(swn_json_number_float(&number, &as_float), isinf(expected_float) ? -ERANGE : 0);
        assert_int_equal(swn_json_number_double(&number, &as_double), isinf(expected_double) ? -ERANGE : 0);
        assert_memory_equal(&as_float, &expected_float, sizeof as_float);
        assert_memory_equal(&as_double, &expected_double, sizeof as_double);
    }
}

static void test_text_of_a_float_has_nine_right_digits_and_reads_back(void **state)
{
    uint64_t seed = 2;

    (void)state;
    for (unsigned i = 0; i < ROUNDS; i++) {
        char text[SWN_NUMBER_TEXT + 1], digits[32], expected[32];
        struct swn_json_number number;
        float value = random_float(next_random(&seed)), back;
        unsigned length = swn_float_text(value, text);
        if (isnan(value) || isinf(value))
            continue;
        text[length] = '\0';
        assert_int_equal(swn_json_number_scan(text, text + length, &number), length);
        assert_false(number.is_integer);
        assert_int_equal(swn_json_number_float(&number, &back), 0);
        assert_memory_equal(&back, &value, sizeof value);
        snprintf(digits, sizeof digits, "%.8e", strtod(text, NULL));
        snprintf(expected, sizeof expected, "%.8e", (double)value);
        assert_string_equal(digits, expected);
    }
}

static void test_text_of_a_double_reads_back(void **state)
{
    uint64_t seed = 3;

    (void)state;
    for (unsigned i = 0; i < ROUNDS; i++) {
        char text[SWN_NUMBER_TEXT + 1];
        uint64_t bits = next_random(&seed);
        double value, back;
        unsigned length;
        /* every second one of common size */
        if (i & 1)
            bits = (bits & ~(UINT64_C(0x7ff) << 52)) | (UINT64_C(1023) - 40 + bits % 80) << 52;
        memcpy(&value, &bits, sizeof value);
        length = swn_double_text(value, text);
        text[length] = '\0';
        if (isnan(value) || isinf(value))
            continue;
        back = strtod(text, NULL);
        assert_memory_equal(&back, &value, sizeof value);
    }
}

static void expect_text(double value, const char *as_double, const char *as_float)
{
    char text[SWN_NUMBER_TEXT + 1];

    text[swn_double_text(value, text)] = '\0';
    assert_string_equal(text, as_double);
    text[swn_float_text((float)value, text)] = '\0';
    assert_string_equal(text, as_float);
}

static void test_text_of_numbers_is_what_clients_expect(void **state)
{
    (void)state;
    expect_text(0, "0.0", "0.0");
    expect_text(-0.0, "-0.0", "-0.0");
    expect_text(1, "1.0", "1.0");
    expect_text(-2.5, "-2.5", "-2.5");
    expect_text(100, "100.0", "100.0");
    expect_text(0.0625, "0.0625", "0.0625");
    expect_text(16777216, "16777216.0", "16777216.0");
    expect_text(123456789, "123456789.0", "123456792.0");
    expect_text(1234567890123, "1234567890123.0", "1.23456795e+12");
    expect_text(1e20, "1e+20", "1.00000002e+20");
    expect_text(0.1, "0.10000000000000001", "0.100000001");
    expect_text(0x1p-16, "0.0000152587890625", "0.0000152587891");
    expect_text(0x1p-20, "9.5367431640625e-07", "9.53674316e-07");
    expect_text(0x1p-149, "1.4012984643248171e-45", "1.40129846e-45");
    expect_text(NAN, "NaN", "NaN");
    expect_text(INFINITY, "Infinity", "Infinity");
    expect_text(-INFINITY, "-Infinity", "-Infinity");
}

static void test_numbers_that_a_type_does_not_have_are_refused(void **state)
{
    static const struct {
        enum swn_element element;
        const char *array;
        int takes;
    } cases[] = {
        {SWN_ELEMENT_FP32, "[1e39]", 0},
        {SWN_ELEMENT_FP32, "[1e400]", 0},
        {SWN_ELEMENT_FP32, "[-3.4028236e38]", 0},
        {SWN_ELEMENT_FP64, "[1e400]", 0},
        {SWN_ELEMENT_FP64, "[1e99999999999999999999]", 0},
        {SWN_ELEMENT_FP64, "[1.7976931348623159e308]", 0},
        {SWN_ELEMENT_UINT8, "[255]", 1},
        {SWN_ELEMENT_UINT8, "[256]", 0},
        {SWN_ELEMENT_UINT8, "[-1]", 0},
        {SWN_ELEMENT_UINT8, "[-0]", 1},
        {SWN_ELEMENT_UINT8, "[1.0]", 0},
        {SWN_ELEMENT_UINT8, "[1e0]", 0},
        {SWN_ELEMENT_UINT16, "[65535]", 1},
        {SWN_ELEMENT_UINT16, "[65536]", 0},
        {SWN_ELEMENT_UINT32, "[4294967295]", 1},
        {SWN_ELEMENT_UINT32, "[4294967296]", 0},
        {SWN_ELEMENT_UINT64, "[18446744073709551615]", 1},
        {SWN_ELEMENT_UINT64, "[18446744073709551616]", 0},
        {SWN_ELEMENT_UINT64, "[184467440737095516150]", 0},
        {SWN_ELEMENT_INT8, "[-128]", 1},
        {SWN_ELEMENT_INT8, "[-129]", 0},
        {SWN_ELEMENT_INT8, "[127]", 1},
        {SWN_ELEMENT_INT8, "[128]", 0},
        {SWN_ELEMENT_INT16, "[-32768]", 1},
        {SWN_ELEMENT_INT16, "[32768]", 0},
        {SWN_ELEMENT_INT32, "[-2147483648]", 1},
        {SWN_ELEMENT_INT32, "[2147483648]", 0},
        {SWN_ELEMENT_INT64, "[-9223372036854775808]", 1},
        {SWN_ELEMENT_INT64, "[-9223372036854775809]", 0},
        {SWN_ELEMENT_INT64, "[9223372036854775807]", 1},
        {SWN_ELEMENT_INT64, "[9223372036854775808]", 0},
        {SWN_ELEMENT_INT32, "[true]", 0},
        {SWN_ELEMENT_INT32, "[NaN]", 0},
        {SWN_ELEMENT_INT32, "[\"1\"]", 0},
        {SWN_ELEMENT_BOOL, "[1]", 0},
        {SWN_ELEMENT_BOOL, "[true]", 1},
        {SWN_ELEMENT_FP32, "[true]", 0},
        {SWN_ELEMENT_FP32, "[null]", 0},
        {SWN_ELEMENT_FP16, "[1]", 0},
        {SWN_ELEMENT_BF16, "[1]", 0},
        {SWN_ELEMENT_BYTES, "[1]", 0},
    };

    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        uint64_t value = 0;
        size_t bytes = cases[i].element == SWN_ELEMENT_BYTES ? 8 : swn_element_bytes(cases[i].element);
        assert_int_equal(convert(cases[i].array, cases[i].element, &value, bytes), cases[i].takes ? 0 : -EINVAL);
        if (!cases[i].takes)
            assert_true(why[0] != '\0');
    }
}

static void test_least_and_most_integers_keep_their_value(void **state)
{
    int64_t longs[3];
    int8_t bytes[2];
    uint64_t most;

    (void)state;
    assert_int_equal(convert("[-9223372036854775808, 9223372036854775807, -0]", SWN_ELEMENT_INT64, longs, sizeof longs),
                     0);
    assert_true(longs[0] == INT64_MIN && longs[1] == INT64_MAX && longs[2] == 0);
    assert_int_equal(convert("[-128,127]", SWN_ELEMENT_INT8, bytes, sizeof bytes), 0);
    assert_true(bytes[0] == -128 && bytes[1] == 127);
    assert_int_equal(convert("[18446744073709551615]", SWN_ELEMENT_UINT64, &most, sizeof most), 0);
    assert_true(most == UINT64_MAX);
}

static void test_not_a_number_and_infinities_are_words(void **state)
{
    float value[3];

    (void)state;
    assert_int_equal(convert("[NaN, Infinity, -Infinity]", SWN_ELEMENT_FP32, value, sizeof value), 0);
    assert_true(isnan(value[0]) && value[1] == INFINITY && value[2] == -INFINITY);
    assert_int_equal(convert("[nan]", SWN_ELEMENT_FP32, value, 4), -EINVAL);
    assert_int_equal(convert("[-NaN]", SWN_ELEMENT_FP32, value, 4), -EINVAL);
    assert_int_equal(convert("[Inf]", SWN_ELEMENT_FP32, value, 4), -EINVAL);
}

static void test_what_is_no_array_of_elements_is_refused(void **state)
{
    static const char *const arrays[] = {
        "",
        "[",
        "]",
        "[1",
        "[1,",
        "[1,]",
        "[,1]",
        "[1 2]",
        "[01]",
        "[1.]",
        "[.5]",
        "[+1]",
        "[1e]",
        "[1e+]",
        "[-]",
        "[--1]",
        "[0x1]",
        "[1]]",
        "[[1]",
        "[1}",
        "[{}]",
        "[1:2]",
        "[tru]",
        "[truee]",
        "[\"a]",
        "[\"\\x\"]",
        "[\"\\ud800\"]",
        "[\"\\udc00\"]",
        "[\"\\ud800\\u0041\"]",
        "[\"\\u12g4\"]",
        "[\"\x01\"]",
        "[\"\xff\"]",
        "[\"\xc0\x80\"]",
        "[\"\xed\xa0\x80\"]",
        "[\"\xf4\x90\x80\x80\"]",
        "1",
        "{}",
        "[1,,2]",
        "[[],]",
        "[1]\x01",
    };
    struct swn_json_array array;

    (void)state;
    for (size_t i = 0; i < sizeof arrays / sizeof *arrays; i++)
        assert_false(measured(arrays[i], &array));
}

static void test_nesting_has_a_bound(void **state)
{
    char text[2 * SWN_JSON_DEPTH + 4];
    struct swn_json_array array;

    (void)state;
    for (unsigned depth = SWN_JSON_DEPTH; depth <= SWN_JSON_DEPTH + 1; depth++) {
        memset(text, '[', depth);
        text[depth] = '7';
        memset(text + depth + 1, ']', depth);
        text[2 * depth + 1] = '\0';
        assert_int_equal(measured(text, &array), depth == SWN_JSON_DEPTH);
    }
    assert_string_equal(why, "the nesting is too deep");
}

static void test_numbers_have_a_bound(void **state)
{
    char text[SWN_JSON_NUMBER_MOST + 8];
    struct swn_json_array array;
    double value;

    (void)state;
    text[0] = '[';
    memset(text + 1, '1', sizeof text - 1);
    memcpy(text + SWN_JSON_NUMBER_MOST + 1, "]", 2);
    assert_true(measured(text, &array));
    assert_int_equal(convert(text, SWN_ELEMENT_FP64, &value, sizeof value), -EINVAL); /* about 1e1024 */
    text[2] = '.';
    assert_int_equal(convert(text, SWN_ELEMENT_FP64, &value, sizeof value), 0);
    assert_true(value > 1.11 && value < 1.12);
    memcpy(text + SWN_JSON_NUMBER_MOST + 1, "1]", 3);
    assert_false(measured(text, &array));
}

static int fits(const char *text, const int64_t *shape, unsigned rank)
{
    struct swn_json_array array;

    assert_true(measured(text, &array));
    return swn_json_array_fits(&array, shape, rank);
}

static void test_nesting_may_only_be_that_of_the_shape(void **state)
{
    static const int64_t two_three[] = {2, 3}, batch[] = {1, 2, 3}, column[] = {4, 1}, none[] = {2, 0},
                         large[] = {INT64_MAX, 3};

    (void)state;
    assert_true(fits("[1,2,3,4,5,6]", two_three, 2));
    assert_true(fits("[[1,2,3],[4,5,6]]", two_three, 2));
    assert_true(fits("[[[1,2,3],[4,5,6]]]", two_three, 2));
    assert_true(fits("[[1,2,3],[4,5,6]]", batch, 3));
    assert_true(fits("[[1,2,3,4,5,6]]", batch, 3));
    assert_true(fits("[[1],[2],[3],[4]]", column, 2));
    assert_true(fits("[7]", NULL, 0));
    assert_true(fits("[]", none, 2));
    assert_true(fits("[[],[]]", none, 2));
    assert_false(fits("[[1,2],[3,4],[5,6]]", two_three, 2));
    assert_false(fits("[[1,2],[3,4]]", column, 2));
    assert_false(fits("[[1,2,3,4],[5,6]]", two_three, 2));
    assert_false(fits("[[1,2,3],4,5,6]", two_three, 2));
    assert_false(fits("[[[1,2,3]],[4,5,6]]", two_three, 2));
    assert_false(fits("[1,2,3,4,5]", two_three, 2));
    assert_false(fits("[1]", none, 2));
    assert_false(fits("[1]", large, 2));
}

static void test_strings_have_their_length_in_front(void **state)
{
    static const char text[] =
        "[\"\", \"a\\u0000b\", \"\\ud83d\\ude00\\\"\\\\\\/\\b\\f\\n\\r\\t\", \"\xc3\xa9\\u00e9\\uFFFF\"]";
    static const unsigned char expected[] = "\0\0\0\0"
                                            "\3\0\0\0a\0b"
                                            "\14\0\0\0\xf0\x9f\x98\x80\"\\/\b\f\n\r\t"
                                            "\7\0\0\0\xc3\xa9\xc3\xa9\xef\xbf\xbf";
    unsigned char value[sizeof expected - 1];
    struct swn_json_array array;

    (void)state;
    assert_true(measured(text, &array));
    assert_int_equal(array.strings, 4);
    assert_int_equal(array.string_bytes + 16, sizeof value);
    assert_int_equal(convert(text, SWN_ELEMENT_BYTES, value, sizeof value), 0);
    /* the third has 4 + 8 bytes: \14 is twelve, written in octal */
    assert_memory_equal(value, expected, sizeof value);
    assert_int_equal(convert(text, SWN_ELEMENT_BYTES, value, sizeof value - 1), -EINVAL);
}

static void test_another_number_of_elements_than_the_memory_has_is_refused(void **state)
{
    float value[4] = {0, 0, 0, 99};

    (void)state;
    assert_int_equal(convert("[1,2,3]", SWN_ELEMENT_FP32, value, 8), -EINVAL);
    assert_int_equal(convert("[1,2,3]", SWN_ELEMENT_FP32, value, 16), -EINVAL);
    assert_int_equal(convert("[1,2,3]", SWN_ELEMENT_FP32, value, 11), -EINVAL);
    assert_int_equal(convert("[1,2,3]", SWN_ELEMENT_FP32, value, 12), 0);
    assert_true(value[2] == 3 && value[3] == 99);
}

static void test_truncated_arrays_are_refused_at_every_byte(void **state)
{
    static const char text[] = "[[1.5e3, NaN], [-Infinity, 2], [true, \"\\ud83d\\ude00\xc3\xa9\"]]";
    struct swn_json_array array;

    (void)state;
    for (size_t length = 0; length < sizeof text - 1; length++) {
        char *copy = exact(text, length);
        assert_null(swn_json_array_measure(copy, copy + length, SWN_JSON_DEPTH, &array, &why, &where));
        assert_true(where >= copy && where <= copy + length);
        free(copy);
    }
    assert_true(measured(text, &array));
    assert_true(array.numbers == 2 && array.words == 2 && array.booleans == 1 && array.strings == 1 &&
                !array.is_ragged);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_floats_are_rounded_as_strtof_does),
        cmocka_unit_test(test_doubles_are_rounded_as_strtod_does),
        cmocka_unit_test(test_any_number_reads_as_libc_reads_it),
        cmocka_unit_test(test_text_of_a_float_has_nine_right_digits_and_reads_back),
        cmocka_unit_test(test_text_of_a_double_reads_back),
        cmocka_unit_test(test_text_of_numbers_is_what_clients_expect),
        cmocka_unit_test(test_numbers_that_a_type_does_not_have_are_refused),
        cmocka_unit_test(test_least_and_most_integers_keep_their_value),
        cmocka_unit_test(test_not_a_number_and_infinities_are_words),
        cmocka_unit_test(test_what_is_no_array_of_elements_is_refused),
        cmocka_unit_test(test_nesting_has_a_bound),
        cmocka_unit_test(test_numbers_have_a_bound),
        cmocka_unit_test(test_nesting_may_only_be_that_of_the_shape),
        cmocka_unit_test(test_strings_have_their_length_in_front),
        cmocka_unit_test(test_another_number_of_elements_than_the_memory_has_is_refused),
        cmocka_unit_test(test_truncated_arrays_are_refused_at_every_byte),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
