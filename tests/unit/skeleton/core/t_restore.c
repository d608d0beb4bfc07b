/* Description: bytes that a program stores behind the engine's back, as compiled code and numpy do, come to count, are
 * said where they do not fit, and leave memory again. */
#define _GNU_SOURCE
#include "tests/unit/support/engine_fixture.h"

#include <setjmp.h>
#include <stdarg.h>
#include <time.h>

#include <cmocka.h>

#define ALL (96 * MIB)
#define MOST 384
#define BUDGET (24 * MIB)

static struct tensor tensors[MOST], small;
static unsigned count;
static size_t bytes; /* of each */

/* Memory of the tensors, whatever the engine takes it for. */
static size_t own_memory(void)
{
    size_t all = 0, pages;
    for (unsigned i = 0; i < count; i++) {
        CHECK(swn_residency_private(&swn_engine_one.res, tensors[i].own, bytes, &pages) == 0);
        all += pages * SWN_PAGE;
    }
    return all;
}

static void pause_ms(long ms)
{
    struct timespec t = {ms / 1000, ms % 1000 * 1000000};
    nanosleep(&t, NULL);
}

/* Operators that have nothing to do with the tensors, until these leave. */
static void compute_something(void)
{
    for (int i = 0; i < 500 && (i < 5 || own_memory() > BUDGET); i++) {
        op_read(&small);
        pause_ms(30);
    }
}

static void make_all(unsigned n)
{
    count = n;
    bytes = ALL / n;
    CHECK(engine_begin(BUDGET, SWN_CONFIG_AUTO, NULL) == 0);
    CHECK(tensor_make(&small, MIB, 99));
    for (unsigned i = 0; i < count; i++)
        CHECK(tensor_make(&tensors[i], bytes, i + 1));
    /* The oldest tensor is not the one with the lowest address. */
    tensor_free(&tensors[0]);
    CHECK(tensor_make(&tensors[0], bytes, 1) && tensors[0].own < tensors[1].own);
    CHECK(own_memory() <= BUDGET);
}

static void check_all(uint64_t stamp)
{
    for (unsigned i = 0; i < count; i++) {
        CHECK(tensors[i].stamp == stamp + i);
        CHECK(tensor_right(&tensors[i], tensors[i].own));
    }
}

static void write_all(unsigned n)
{
    make_all(n);
    for (unsigned round = 1; round < 4; round++) {
        for (unsigned i = 0; i < count; i++)
            tensor_stamp(&tensors[i], tensors[i].own, 100 * round + i);
        CHECK(own_memory() == ALL); /* else the test shows nothing */
        compute_something();
        CHECK(own_memory() <= BUDGET);
        check_all(100 * round);
    }
    CHECK(engine_counters().over_budget_peak > ALL - BUDGET - 8 * MIB);
}

static void all_at_once(void *arg)
{
    (void)arg;
    write_all(12);
}

static void many_at_once(void *arg)
{
    (void)arg;
    write_all(MOST);
}

static void one_by_one(void *arg)
{
    (void)arg;
    make_all(12);
    for (unsigned i = 0; i < count; i++) {
        tensor_stamp(&tensors[i], tensors[i].own, 500 + i);
        compute_something();
        CHECK(own_memory() <= BUDGET);
    }
    check_all(500);
    CHECK(engine_counters().over_budget_peak == 0);
}

IN_A_CHILD(all_at_once, 60)
IN_A_CHILD(many_at_once, 60)
IN_A_CHILD(one_by_one, 60)

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_all_at_once),
        cmocka_unit_test(test_many_at_once),
        cmocka_unit_test(test_one_by_one),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
