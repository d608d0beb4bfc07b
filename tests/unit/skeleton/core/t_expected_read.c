/* Description: nothing leaves for a tensor that a checkpoint's bytes are about to be registered to; and if they are
 * not, the budget holds from the next allocation or operator on. */
#define _GNU_SOURCE
#include "tests/unit/support/engine_fixture.h"

#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>

#include "skeleton/load/load.h"
#include "skeleton/engine/accounting.h"

#define WEIGHTS 12
#define WEIGHT_BYTES MIB
#define BUDGET (8 * MIB)

static struct swn_engine *const e = &swn_engine_one;
static struct tensor model[WEIGHTS], loaded[WEIGHTS];
static uint64_t data_off;
static int fd;

static void name_in_a_row(char *name, unsigned i)
{
    sprintf(name, "layer%02u.weight", i);
}

static void allocate(unsigned i)
{
    int strict;
    loaded[i] = (struct tensor){.word = swn_engine_alloc(WEIGHT_BYTES, &strict), .len = WEIGHT_BYTES, .stamp = i + 100};
    loaded[i].own = (uintptr_t)loaded[i].word;
    CHECK(loaded[i].own);
}

static void read_in(unsigned i)
{
    off_t off = (off_t)(data_off + i * WEIGHT_BYTES);
    CHECK(swn_load_read(fd, loaded[i].word, WEIGHT_BYTES, off) == (ssize_t)WEIGHT_BYTES);
}

/* A model larger than the budget, and the first of its weights loaded. */
static void begin(void)
{
    CHECK(engine_begin(BUDGET, SWN_CONFIG_AUTO, NULL) == 0);
    fd = weights_file(WEIGHTS, WEIGHT_BYTES, name_in_a_row, &data_off);
    for (unsigned i = 0; i < WEIGHTS; i++)
        CHECK(tensor_make(&model[i], WEIGHT_BYTES, i + 1));
    CHECK(swn_engine_resident(e) > BUDGET - 2 * MIB);
    allocate(0);
    read_in(0);
}

static uint64_t spilled(void)
{
    struct swn_stats stats;
    swn_engine_stats(&stats);
    return stats.spilled_bytes;
}

static void all_right(void)
{
    for (unsigned i = 0; i < WEIGHTS; i++)
        CHECK(tensor_right(&model[i], model[i].own) && (!loaded[i].own || tensor_right(&loaded[i], loaded[i].own)));
}

static void loads(void *arg)
{
    (void)arg;
    begin();
    uint64_t before = spilled();
    for (unsigned i = 1; i < WEIGHTS; i++) {
        allocate(i);
        CHECK(swn_engine_resident(e) <= BUDGET);
        read_in(i);
    }
    CHECK(spilled() == before && swn_engine_resident(e) <= BUDGET);
    all_right();
}

static void another_is_allocated(void)
{
    struct tensor other;
    CHECK(tensor_make(&other, WEIGHT_BYTES, 9));
    CHECK(swn_engine_resident(e) <= BUDGET);
    tensor_free(&other);
}

static void an_operator_runs(void)
{
    op_read(&loaded[1]);
}

static void it_is_freed(void)
{
    tensor_free(&loaded[1]);
    loaded[1].own = 0;
    CHECK(!swn_expected_read_bytes(e));
}

/* Written instead, and read by nobody. */
static void written(void *arg)
{
    void (*then)(void) = *(void (**)(void))arg;
    begin();
    allocate(1);
    tensor_stamp(&loaded[1], loaded[1].own, 7);
    then();
    CHECK(!swn_expected_read_bytes(e));
    CHECK(swn_engine_resident(e) <= BUDGET && !engine_counters().over_budget_peak);
    all_right();
    if (loaded[1].own)
        tensor_free(&loaded[1]);
    for (unsigned i = 0; i < WEIGHTS; i++)
        tensor_free(&model[i]);
    tensor_free(&loaded[0]);
    engine_is_empty();
}

static void *allocate_elsewhere(void *none)
{
    uint64_t before = spilled();
    allocate(1);
    CHECK(spilled() > before || swn_engine_resident(e) <= BUDGET);
    CHECK(!swn_expected_read_bytes(e));
    return none;
}

/* What this thread loads says nothing of others. */
static void by_another_thread(void *arg)
{
    pthread_t thread;
    (void)arg;
    begin();
    CHECK(!pthread_create(&thread, NULL, allocate_elsewhere, NULL) && !pthread_join(thread, NULL));
    CHECK(swn_engine_resident(e) <= BUDGET);
}

static void loads_alone(void **state)
{
    (void)state;
    assert_int_equal(run_alone(loads, NULL, 60), 0);
    assert_int_equal(run_alone(by_another_thread, NULL, 60), 0);
}

static void written_alone(void **state)
{
    static void (*const then[])(void) = {another_is_allocated, an_operator_runs, it_is_freed};
    (void)state;
    for (unsigned i = 0; i < sizeof then / sizeof then[0]; i++)
        assert_int_equal(run_alone(written, (void *)&then[i], 60), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(loads_alone), cmocka_unit_test(written_alone)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
