/* Description: which tensor leaves memory to make room: of those that nothing tells apart the one that was used longest
 * ago, and none that an operator is reading as long as another can go. */
#define _GNU_SOURCE
#include "tests/unit/support/engine_fixture.h"

#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>

#define TENSORS 4
#define BYTES (2 * MIB)
#define BUDGET (9 * MIB) /* for all of them, and the first ring */

static struct swn_engine *const e = &swn_engine_one;
static struct tensor tensors[TENSORS];

static int is_resident(unsigned i)
{
    return atomic_load(&swn_arena_find(e->arena, tensors[i].own)->state) == SWN_RESIDENT;
}

/* An operator that reads one of them as an input: so it is used, and is no weight. */
static void open_input(struct swn_op *op, unsigned i)
{
    struct tensor *t = &tensors[i];
    enum swn_use use = SWN_USE_INPUT;
    op_open(op, &t, &use, 1);
}

static void use(unsigned i)
{
    struct swn_op op;
    open_input(&op, i);
    CHECK(tensor_right(&tensors[i], tensors[i].own));
    op_close(&op);
}

static void begin(void)
{
    CHECK(engine_begin(BUDGET, SWN_CONFIG_AUTO, NULL) == 0);
    for (unsigned i = 0; i < TENSORS; i++)
        CHECK(tensor_make(&tensors[i], BYTES, i + 1));
    for (unsigned i = 0; i < TENSORS; i++)
        CHECK(is_resident(i));
}

/* Used in this order: 2, 0, 3, 1. */
static void use_all(void)
{
    static const unsigned order[TENSORS] = {2, 0, 3, 1};
    for (unsigned i = 0; i < TENSORS; i++)
        use(order[i]);
}

/* The one of `before` has left, and `after` has not. */
static int leaves_first(unsigned before, unsigned after)
{
    return !is_resident(before) && is_resident(after);
}

static void least_recently_used(void *arg)
{
    struct tensor more;
    (void)arg;
    begin();
    use_all();
    CHECK(tensor_make(&more, 2 * MIB, 9));
    CHECK(leaves_first(2, 1) && leaves_first(2, 3));
    for (unsigned i = 0; i < TENSORS; i++)
        CHECK(tensor_right(&tensors[i], tensors[i].own));
}

static void not_what_is_read(void *arg)
{
    struct tensor more;
    struct swn_op op;
    (void)arg;
    begin();
    open_input(&op, 2); /* and it goes on */
    for (unsigned i = 0; i < TENSORS; i++)
        if (i != 2)
            use(i);
    CHECK(tensor_make(&more, 2 * MIB, 9));
    CHECK(is_resident(2) && !is_resident(0));
    op_close(&op);
    CHECK(tensor_right(&tensors[2], tensors[2].own));
}

IN_A_CHILD(least_recently_used, 60)
IN_A_CHILD(not_what_is_read, 60)

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_least_recently_used),
        cmocka_unit_test(test_not_what_is_read),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
