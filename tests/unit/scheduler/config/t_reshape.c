/* A reshape of config.pbtxt keeps all elements, and sizes that may be any go where they are in the other shape. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include <errno.h>

#include "scheduler/config/reshape.h"

static const struct swn_shape none = {0}, one = {1, {1}}, four = {1, {4}}, pairs = {2, {2, 2}};
static const struct swn_shape any = {1, {-1}}, any_row = {2, {1, -1}}, image = {4, {2, 4, -1, 6}};
static const struct swn_shape other_image = {4, {8, -1, 1, 6}}, two_of_any = {2, {-1, -1}};

static void test_elements_have_to_be_as_many(void **state)
{
    const struct swn_shape huge = {3, {INT64_MAX, INT64_MAX, INT64_MAX}};

    (void)state;
    assert_true(swn_reshape_is_sound(&one, &none));
    assert_true(swn_reshape_is_sound(&none, &one));
    assert_true(swn_reshape_is_sound(&four, &pairs));
    assert_true(swn_reshape_is_sound(&any, &any_row));
    assert_true(swn_reshape_is_sound(&image, &other_image));
    assert_false(swn_reshape_is_sound(&four, &one));
    assert_false(swn_reshape_is_sound(&four, &none));
    assert_false(swn_reshape_is_sound(&four, &any));
    assert_false(swn_reshape_is_sound(&any, &two_of_any));
    assert_false(swn_reshape_is_sound(&two_of_any, &any));
    assert_false(swn_reshape_is_sound(&any, &(struct swn_shape){2, {2, -1}}));
    assert_false(swn_reshape_is_sound(&huge, &huge)); /* no tensor is so large */
}

/* The tensor's shape is `before`, and has to be `after` then. */
static void expect(struct swn_shape before, unsigned batch, const struct swn_shape *from, const struct swn_shape *to,
                   struct swn_shape after)
{
    struct swn_wire_tensor t = {.rank = before.rank};

    memcpy(t.shape, before.sizes, sizeof t.shape);
    assert_int_equal(swn_reshape(&t, batch, from, to), 0);
    assert_int_equal(t.rank, after.rank);
    assert_memory_equal(t.shape, after.sizes, after.rank * sizeof *t.shape);
}

static void test_the_batch_stays_in_front(void **state)
{
    (void)state;
    expect((struct swn_shape){2, {3, 4}}, 1, &four, &pairs, (struct swn_shape){3, {3, 2, 2}});
    expect((struct swn_shape){3, {3, 2, 2}}, 1, &pairs, &four, (struct swn_shape){2, {3, 4}});
    expect((struct swn_shape){2, {3, 1}}, 1, &one, &none, (struct swn_shape){1, {3}});
    expect((struct swn_shape){1, {3}}, 1, &none, &one, (struct swn_shape){2, {3, 1}});
    expect((struct swn_shape){1, {1}}, 0, &one, &none, (struct swn_shape){0});
}

static void test_sizes_that_may_be_any_are_kept(void **state)
{
    (void)state;
    expect((struct swn_shape){1, {7}}, 0, &any, &any_row, (struct swn_shape){2, {1, 7}});
    expect((struct swn_shape){5, {9, 2, 4, 0, 6}}, 1, &image, &other_image, (struct swn_shape){5, {9, 8, 0, 1, 6}});
    expect((struct swn_shape){2, {7, 8}}, 0, &two_of_any, &two_of_any, (struct swn_shape){2, {7, 8}});
}

static void test_another_shape_stays_as_it_is(void **state)
{
    struct swn_wire_tensor t = {.rank = 2, .shape = {1, 5}}, before = t;
    struct swn_shape deep = {SWN_WIRE_RANK, {1}};

    (void)state;
    for (unsigned d = 0; d < SWN_WIRE_RANK; d++)
        deep.sizes[d] = 1;
    assert_int_equal(swn_reshape(&t, 1, &four, &pairs), -EINVAL);
    assert_int_equal(swn_reshape(&t, 0, &four, &pairs), -EINVAL);
    assert_int_equal(swn_reshape(&t, 1, &any, &two_of_any), -EINVAL);
    assert_int_equal(swn_reshape(&t, 0, &two_of_any, &any), -EINVAL);
    assert_int_equal(swn_reshape(&t, 1, &any, &deep), -EINVAL);
    assert_memory_equal(&t, &before, sizeof t);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_elements_have_to_be_as_many),
        cmocka_unit_test(test_the_batch_stays_in_front),
        cmocka_unit_test(test_sizes_that_may_be_any_are_kept),
        cmocka_unit_test(test_another_shape_stays_as_it_is),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
