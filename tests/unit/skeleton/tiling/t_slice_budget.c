/* Description: what became of taking a weight in slices within one budget is not what becomes of it within another. */
/* wraps: swn_now_ns swn_cond_wait_until swn_spin_wait_wait swn_disk_speed_get swn_engine_op_end */
#define _GNU_SOURCE
#include "scheduler/planner/plan.h"
#include "tests/unit/support/sliced_op.h"

#include <errno.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>

#include <cmocka.h>

#define ROW_BYTES ((size_t)6144)
#define UNIT ((size_t)3 * 65536) /* where rows and granules meet */
#define LARGE_BYTES (4096 * ROW_BYTES)
#define SMALL 12
#define SMALL_BYTES ((size_t)256 << 10)
#define NARROW (14 * MIB)
#define BETWEEN (25 * MIB)
#define WIDE (37 * MIB) /* less than all weights take */

static struct tensor large[2], small[SMALL];
static struct swn_engine *const e = &swn_engine_one;

static void begin(size_t budget)
{
    CHECK(engine_begin(budget, SWN_CONFIG_AUTO, NULL) == 0);
    for (unsigned i = 0; i < 2; i++)
        CHECK(tensor_make(&large[i], LARGE_BYTES, 100 + i));
    for (unsigned i = 0; i < SMALL; i++)
        CHECK(tensor_make(&small[i], SMALL_BYTES, i + 1));
    op_age();
}

static void end(void)
{
    for (unsigned i = 0; i < 2; i++)
        tensor_free(&large[i]);
    for (unsigned i = 0; i < SMALL; i++)
        tensor_free(&small[i]);
    engine_is_empty();
}

static void set(uint64_t bytes)
{
    struct swn_budget_change change;
    CHECK(swn_engine_set_budget(bytes, 20000, &change) == 0 && change.bound);
}

static unsigned seen; /* of the large ones: that came in the most slices */

static const struct swn_range *range(void)
{
    return swn_arena_find(e->arena, large[seen].own);
}

/* Returns in how many slices a weight came in the last one: the first, unless it came whole and the second did not. The
 * large budget has room for one of them, and which is to stay is a matter of what their operators happened to take. */
static size_t passes(unsigned n)
{
    size_t slices[2] = {0};
    while (n--) {
        for (unsigned i = 0; i < SMALL; i++)
            op_read(&small[i]);
        for (unsigned i = 0; i < 2; i++)
            slices[i] = op_sliced(&large[i], ROW_BYTES, SIZE_MAX);
    }
    seen = slices[0] <= 1 && slices[1] > 1;
    return slices[seen];
}

/* Slices that are long enough for the bits are too long for the first budget. */
static void given_up_in_a_small_one(void *arg)
{
    (void)arg;
    begin(NARROW);
    op_right_from = 4 * MIB;
    CHECK(passes(16) == 0 && swn_tensor_of(range())->slice_unit == 0 &&
          swn_tensor_of(range())->slicing.given_up_for == op_shape);
    /* A little more is no reason to try again: the next weight to be given up would be no wiser. */
    set(NARROW + NARROW / 2);
    CHECK(passes(12) == 0 && swn_tensor_of(range())->slice_unit == 0 &&
          swn_tensor_of(range())->slicing.given_up_for == op_shape);
    set(WIDE);
    CHECK(passes(24) > 1 && swn_tensor_of(range())->slice_unit >= op_right_from &&
          swn_tensor_of(range())->slice_unit % UNIT == 0);
    uint64_t plans = e->plan.made;
    CHECK(passes(8) > 1 && e->plan.made == plans);
    end();
}

/* And the other way round: the slices of a large budget, for a shape that has gone, are longer than what there is. */
static void lengthened_in_a_large_one(void *arg)
{
    (void)arg;
    begin(WIDE);
    op_right_from = 5 * MIB;
    passes(12);
    CHECK(swn_tensor_of(range())->slice_unit >=
          op_right_from); /* 8 MiB and a little, of which two are more than the next budget */
    op_right_from = 0;
    op_shape = 2;
    set(NARROW);
    CHECK(passes(24) > 4 && swn_tensor_of(range())->slice_unit == UNIT);
    uint64_t plans = e->plan.made, strays = e->res.fallback_pages;
    CHECK(passes(8) > 4 && e->plan.made == plans && e->res.fallback_pages == strays);
    end();
}

/* Before there is a plan one refusal is enough: an operator that reads such a weight through its mapping may take long.
 */
static void lengthened_before_a_plan(void *arg)
{
    (void)arg;
    begin(BETWEEN);
    op_right_from = 4 * MIB;
    passes(2); /* at first there may be room for one of them */
    CHECK(!e->plan.planned && passes(1) > 1 && swn_tensor_of(range())->slice_unit >= op_right_from);
    CHECK(passes(12) > 1 && e->plan.planned && swn_tensor_of(range())->slice_unit >= op_right_from);
    end();
}

/* Longer slices for which there is still room stay as they are. */
static void lengthened_and_still_right(void *arg)
{
    (void)arg;
    begin(WIDE);
    op_right_from = 4 * MIB;
    CHECK(passes(24) > 1);
    size_t unit = swn_tensor_of(range())->slice_unit;
    CHECK(unit >= op_right_from);
    set(WIDE * 2 / 3);
    CHECK(passes(16) > 1 && swn_tensor_of(range())->slice_unit == unit);
    end();
}

#define IN_CHILD(name)                                                                                                 \
    static void test_##name(void **state)                                                                              \
    {                                                                                                                  \
        (void)state;                                                                                                   \
        assert_int_equal(run_alone(name, NULL, 120), 0);                                                               \
    }

IN_CHILD(given_up_in_a_small_one)
IN_CHILD(lengthened_in_a_large_one)
IN_CHILD(lengthened_before_a_plan)
IN_CHILD(lengthened_and_still_right)

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_given_up_in_a_small_one),
        cmocka_unit_test(test_lengthened_in_a_large_one),
        cmocka_unit_test(test_lengthened_before_a_plan),
        cmocka_unit_test(test_lengthened_and_still_right),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
