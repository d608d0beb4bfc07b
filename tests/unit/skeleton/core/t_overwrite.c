/* Description: a tensor on the disk that is overwritten from end to end holds what it held until the new bytes are
 * there, or for ever if its kernel fails, within the budget. */
#define _GNU_SOURCE
#include "tests/unit/support/engine_fixture.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "skeleton/core/overwrite.h"
#include "skeleton/core/op_window.h"

#define BUDGET (16 * MIB)
#define BYTES (3 * MIB + 64 * 1024)
#define MANY 8

static struct tensor tensors[MANY];
static struct swn_engine *const e = &swn_engine_one;

/* The first tensor has left for the others. */
static struct swn_range *begin(void)
{
    CHECK(engine_begin(BUDGET, SWN_CONFIG_AUTO, NULL) == 0);
    for (unsigned i = 0; i < MANY; i++)
        CHECK(tensor_make(&tensors[i], BYTES, i));
    struct swn_range *r = swn_arena_find(e->arena, tensors[0].own);
    CHECK(atomic_load(&r->state) == SWN_FILE_BACKED);
    return r;
}

static void end(void)
{
    CHECK(engine_counters().peak_resident <= BUDGET && !engine_counters().over_budget_peak &&
          atomic_load(&e->nonweight.small_bytes) == 0);
    for (unsigned i = 0; i < MANY; i++) {
        CHECK(tensor_right(&tensors[i], tensors[i].own));
        tensor_free(&tensors[i]);
    }
    engine_is_empty();
}

static void begin_op(struct swn_op *op, struct tensor *t)
{
    *op = (struct swn_op){.name = "aten::test", .n = 1, .asks = 1};
    op->args[0] = (struct swn_arg){.data = t->own, .bytes = t->len, .upto = t->len, .use = SWN_USE_OVERWRITE};
    swn_engine_op_begin(op);
}

static void overwritten_tensor_has_its_new_bytes(void *arg)
{
    struct swn_op op;
    struct swn_range *r = begin();
    (void)arg;
    begin_op(&op, &tensors[0]);
    CHECK(atomic_load(&r->state) == SWN_FILE_BACKED && r->pins == 1);
    void *at = swn_afresh_begin(&op, 0);
    CHECK(at && atomic_load(&r->state) == SWN_FILE_BACKED &&
          atomic_load(&e->nonweight.small_bytes) >= (long long)BYTES);
    struct tensor other = {.len = BYTES};
    tensor_stamp(&other, (uintptr_t)at, 50);
    CHECK(tensor_right(&tensors[0], tensors[0].own)); /* nothing is seen yet */
    swn_afresh_end(&op, 0, 1);
    CHECK(atomic_load(&r->state) == SWN_RESIDENT && r->pins == 1);
    tensors[0].stamp = 50;
    CHECK(tensor_right(&tensors[0], tensors[0].own));
    swn_engine_op_end(&op);
    for (unsigned i = 0; i < MANY; i++) /* it can leave as any other */
        op_read(&tensors[i]);
    end();
}

static void failed_overwrite_leaves_the_old_bytes(void *arg)
{
    struct swn_op op;
    struct swn_range *r = begin();
    (void)arg;
    begin_op(&op, &tensors[0]);
    void *at = swn_afresh_begin(&op, 0);
    CHECK(at);
    struct tensor other = {.len = BYTES};
    tensor_stamp(&other, (uintptr_t)at, 50);
    swn_afresh_end(&op, 0, 0);
    swn_engine_op_end(&op);
    CHECK(atomic_load(&r->state) == SWN_FILE_BACKED && r->pins == 0);
    end();
}

/* Another operator has written it meanwhile, so that it is in memory: the later one's bytes are what stays. */
static void later_writer_wins_over_an_overwrite(void *arg)
{
    static const enum swn_use use = SWN_USE_WRITE;
    struct swn_op op, other;
    struct tensor *t = &tensors[0];
    struct swn_range *r = begin();
    (void)arg;
    begin_op(&op, t);
    void *at = swn_afresh_begin(&op, 0);
    CHECK(at);
    op_open(&other, &t, &use, 1);
    tensor_stamp(t, t->own, 60);
    op_close(&other);
    CHECK(atomic_load(&r->state) == SWN_RESIDENT);
    struct tensor like = {.len = BYTES};
    tensor_stamp(&like, (uintptr_t)at, 50);
    swn_afresh_end(&op, 0, 1);
    t->stamp = 50;
    CHECK(tensor_right(t, t->own));
    swn_engine_op_end(&op);
    end();
}

/* What is in memory, and what only a part of is overwritten, has no need of it. */
static void tensor_in_memory_needs_no_fresh_memory(void *arg)
{
    struct swn_op op;
    struct swn_range *r = begin();
    (void)arg;
    begin_op(&op, &tensors[MANY - 1]);
    CHECK(!swn_afresh_begin(&op, 0));
    swn_engine_op_end(&op);
    struct tensor part = tensors[0];
    part.len -= 4096;
    begin_op(&op, &part);
    CHECK(atomic_load(&r->state) == SWN_RESIDENT && !swn_afresh_begin(&op, 0));
    swn_engine_op_end(&op);
    end();
}

IN_A_CHILD(overwritten_tensor_has_its_new_bytes, 120)
IN_A_CHILD(failed_overwrite_leaves_the_old_bytes, 120)
IN_A_CHILD(later_writer_wins_over_an_overwrite, 120)
IN_A_CHILD(tensor_in_memory_needs_no_fresh_memory, 120)

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_overwritten_tensor_has_its_new_bytes),
        cmocka_unit_test(test_failed_overwrite_leaves_the_old_bytes),
        cmocka_unit_test(test_later_writer_wins_over_an_overwrite),
        cmocka_unit_test(test_tensor_in_memory_needs_no_fresh_memory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
