/* Classes of an output are its largest numbers, as texts with their labels. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include <errno.h>
#include <float.h>
#include <math.h>
#include <stdio.h>

#include "scheduler/oip/oip_classes.h"
#include "tests/unit/support/random.h"

static struct swn_oip_error error;

static struct swn_wire_tensor tensor(enum swn_element element, unsigned rank, int64_t a, int64_t b)
{
    struct swn_wire_tensor t = {.name = "y", .element = element, .rank = (uint8_t)rank, .shape = {a, b}};

    assert_int_equal(swn_wire_tensor_bytes(&t, &t.bytes), 0);
    return t;
}

/* The texts, each with a space behind it; *out: their tensor. Memory is of just the size that was asked for. */
static char *classes_of(const struct swn_wire_tensor *t, const void *data, uint32_t count, int has_batch,
                        const struct swn_labels *labels, struct swn_wire_tensor *out)
{
    uint64_t room, elements;
    char *to, *text, *end;

    assert_int_equal(swn_oip_classes_room(t, count, has_batch, labels, &room, &error), 0);
    to = malloc(room ? room : 1);
    assert_non_null(to);
    assert_int_equal(swn_oip_classes_write(t, data, count, has_batch, labels, to, out), 0);
    assert_true(out->bytes <= room && out->element == SWN_ELEMENT_BYTES);
    assert_int_equal(swn_wire_tensor_elements(out, &elements), 0);
    end = text = calloc(1, out->bytes + 1);
    assert_non_null(text);
    for (uint64_t at = 0; at < out->bytes; elements--) {
        uint32_t length;
        memcpy(&length, to + at, sizeof length);
        assert_true(length <= out->bytes - at - 4);
        memcpy(end, to + at + 4, length);
        end += length;
        *end++ = ' ';
        at += 4 + length;
    }
    assert_int_equal(elements, 0);
    free(to);
    return text;
}

static void expect(const struct swn_wire_tensor *t, const void *data, uint32_t count, int has_batch,
                   const struct swn_labels *labels, const char *want)
{
    struct swn_wire_tensor out;
    char *text = classes_of(t, data, count, has_batch, labels, &out);

    assert_string_equal(text, want);
    assert_int_equal(out.rank, has_batch ? 2 : 1);
    free(text);
}

static void test_samples_have_their_largest(void **state)
{
    const float data[] = {0.25f, 3, -1, 3, 7, 0, 0, -2};
    struct swn_wire_tensor t = tensor(SWN_ELEMENT_FP32, 2, 2, 4);

    (void)state;
    expect(&t, data, 2, 1, NULL, "3.000000:1 3.000000:3 7.000000:0 0.000000:1 ");
    expect(&t, data, 3, 0, NULL, "7.000000:4 3.000000:1 3.000000:3 ");
    expect(&t, data, UINT32_MAX, 1, NULL,
           "3.000000:1 3.000000:3 0.250000:0 -1.000000:2 7.000000:0 0.000000:1 0.000000:2 -2.000000:3 ");
}

static void test_every_type_that_has_an_order(void **state)
{
    static const struct {
        enum swn_element element;
        unsigned char data[16];
        int64_t count;
        const char *want;
    } cases[] = {
        {SWN_ELEMENT_UINT8, {1, 0xff, 2}, 3, "255:1 2:2 "},
        {SWN_ELEMENT_INT8, {1, 0xff, 2}, 3, "2:2 1:0 "},
        {SWN_ELEMENT_UINT16, {0xfe, 0xff, 0, 1}, 2, "65534:0 256:1 "},
        {SWN_ELEMENT_INT16, {0xfe, 0xff, 0, 1}, 2, "256:1 -2:0 "},
        {SWN_ELEMENT_UINT32, {0xfe, 0xff, 0xff, 0xff, 1}, 2, "4294967294:0 1:1 "},
        {SWN_ELEMENT_INT32, {0xfe, 0xff, 0xff, 0xff, 1}, 2, "1:1 -2:0 "},
        {SWN_ELEMENT_UINT64, {1, 0, 0, 0, 0, 0, 0, 0x80, 1}, 2, "9223372036854775809:0 1:1 "},
        {SWN_ELEMENT_INT64, {0, 0, 0, 0, 0, 0, 0, 0x80, 1}, 2, "1:1 -9223372036854775808:0 "},
    };
    const double doubles[] = {NAN, -DBL_MAX, DBL_MAX, INFINITY, -NAN};
    const double small[] = {-0.0, -5e-324, 0.0, 5e-324, -INFINITY};
    struct swn_wire_tensor t = tensor(SWN_ELEMENT_FP64, 1, 5, 0), out;
    char *text;

    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct swn_wire_tensor one = tensor(cases[i].element, 1, cases[i].count, 0);
        expect(&one, cases[i].data, 2, 0, NULL, cases[i].want);
    }
    text = classes_of(&t, doubles, 5, 0, NULL, &out);
    assert_true(strncmp(text, "inf:3 179769313486231570", 24) == 0 && strstr(text, ":2 -179769313486231570"));
    assert_non_null(strstr(text, ":1 nan:0 -nan:4 "));
    free(text);
    expect(&t, small, 5, 0, NULL, "0.000000:3 -0.000000:0 0.000000:2 -0.000000:1 -inf:4 ");
}

static void test_what_has_no_order_is_refused(void **state)
{
    static const enum swn_element types[] = {SWN_ELEMENT_BOOL, SWN_ELEMENT_FP16, SWN_ELEMENT_BF16, SWN_ELEMENT_BYTES};
    struct swn_wire_tensor t = tensor(SWN_ELEMENT_FP32, 1, 4, 0);
    uint64_t room;

    (void)state;
    t.bytes--;
    assert_int_equal(swn_oip_classes_room(&t, 1, 0, NULL, &room, &error), -EINVAL);
    assert_int_equal(error.status, 500);
    for (size_t i = 0; i < sizeof types / sizeof *types; i++) {
        t = tensor(types[i], 1, 4, 0);
        assert_int_equal(swn_oip_classes_room(&t, 1, 0, NULL, &room, &error), -EINVAL);
        assert_int_equal(error.status, 400);
        assert_non_null(strstr(error.text, "'y': class result not available for output due to unsupported type"));
    }
    t = tensor(SWN_ELEMENT_UINT8, 2, 2, 500000);
    assert_int_equal(swn_oip_classes_room(&t, 1, 1, NULL, &room, &error), 0);
    t = tensor(SWN_ELEMENT_UINT8, 2, 1, 1000001);
    assert_int_equal(swn_oip_classes_room(&t, 1, 1, NULL, &room, &error), -EINVAL);
    assert_int_equal(error.status, 400);
    assert_non_null(strstr(error.text, "classification output tensor too large"));
}

static void test_nothing_has_no_classes(void **state)
{
    struct swn_wire_tensor t = tensor(SWN_ELEMENT_FP32, 2, 0, 4), out;
    float one = 2.5f;
    char *text;

    (void)state;
    text = classes_of(&t, NULL, 3, 1, NULL, &out);
    assert_true(*text == '\0' && out.rank == 2 && out.shape[0] == 0 && out.shape[1] == 3);
    free(text);
    t = tensor(SWN_ELEMENT_FP32, 2, 3, 0);
    text = classes_of(&t, NULL, 3, 1, NULL, &out);
    assert_true(*text == '\0' && out.rank == 2 && out.shape[0] == 3 && out.shape[1] == 0);
    free(text);
    t = tensor(SWN_ELEMENT_FP32, 0, 0, 0); /* a single number, of a model with batches as well */
    text = classes_of(&t, &one, 3, 1, NULL, &out);
    assert_string_equal(text, "2.500000:0 ");
    free(text);
}

static void test_classes_have_the_labels_of_their_output(void **state)
{
    const float data[] = {1, 2, 3, 4};
    static const char lines[] = "zero\r\n\ntwo words";
    struct swn_wire_tensor t = tensor(SWN_ELEMENT_FP32, 1, 4, 0);
    struct swn_labels *labels = swn_labels_new(), *other;
    char *large = malloc(SWN_LABELS_BYTES + 1);

    (void)state;
    assert_non_null(labels);
    assert_non_null(large);
    memset(large, 'a', SWN_LABELS_BYTES + 1);
    assert_int_equal(swn_labels_add(labels, "x", "wrong\nwrong\nwrong\nwrong", 23), 0);
    assert_int_equal(swn_labels_add(labels, "y", lines, sizeof lines - 1), 0);
    assert_int_equal(swn_labels_add(labels, "z", large, SWN_LABELS_BYTES + 1), -EFBIG);
    assert_int_equal(swn_labels_add(labels, "z", large, SWN_LABEL_BYTES + 1), -EFBIG);
    assert_int_equal(swn_labels_add(labels, "z", "\xe9", 1), -EILSEQ);
    memcpy(large + SWN_LABEL_BYTES, "\r\na\r", 4); /* the last has no end */
    assert_int_equal(swn_labels_add(labels, "w", large, SWN_LABEL_BYTES + 4), 0);
    assert_int_equal(swn_labels_room(labels, "w", 2), SWN_LABEL_BYTES + 1);
    memset(large, '\n', SWN_LABELS_BYTES);
    assert_int_equal(swn_labels_add(labels, "z", large, SWN_LABELS_BYTES / 4), -EFBIG); /* lines take memory, too */
    free(large);
    assert_int_equal(swn_labels_room(labels, "y", 1), 9);
    assert_int_equal(swn_labels_room(labels, "y", 3), 13);
    assert_int_equal(swn_labels_room(labels, "z", 3), 0);
    other = swn_labels_hold(labels);
    swn_labels_drop(labels);
    expect(&t, data, 4, 0, other, "4.000000:3 3.000000:2:two words 2.000000:1: 1.000000:0:zero ");
    swn_labels_drop(other);
    swn_labels_drop(NULL);
    assert_null(swn_labels_hold(NULL));
}

static int descending(const void *a, const void *b)
{
    return *(const int32_t *)b > *(const int32_t *)a ? 1 : *(const int32_t *)b < *(const int32_t *)a ? -1 : 0;
}

static void test_many_numbers_against_sorting(void **state)
{
    enum { COUNT = 1000 };
    static int32_t data[COUNT], sorted[COUNT];
    uint64_t seed = 7;

    (void)state;
    for (int turn = 0; turn < 20; turn++) {
        struct swn_wire_tensor t = tensor(SWN_ELEMENT_INT32, 1, COUNT, 0), out;
        uint32_t wanted = turn ? (uint32_t)(next_random(&seed) % COUNT) + 1 : COUNT;
        char *text, *at;

        for (int i = 0; i < COUNT; i++)
            sorted[i] = data[i] = (int32_t)(next_random(&seed) % (turn % 2 ? 50 : 1u << 30)) - 25;
        qsort(sorted, COUNT, sizeof *sorted, descending);
        at = text = classes_of(&t, data, wanted, 0, NULL, &out);
        for (uint32_t k = 0, last = 0; k < wanted; k++) {
            long value = strtol(at, &at, 10), class = strtol(at + 1, &at, 10);
            assert_true(value == sorted[k] && data[class] == value);
            assert_true(k == 0 || sorted[k] < sorted[k - 1] || (uint32_t) class > last);
            last = (uint32_t) class;
        }
        free(text);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_samples_have_their_largest),
        cmocka_unit_test(test_every_type_that_has_an_order),
        cmocka_unit_test(test_what_has_no_order_is_refused),
        cmocka_unit_test(test_nothing_has_no_classes),
        cmocka_unit_test(test_classes_have_the_labels_of_their_output),
        cmocka_unit_test(test_many_numbers_against_sorting),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
