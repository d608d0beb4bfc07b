/* Description: what counts as a weight in memory that PyTorch did not allocate, and for how long. */
#define _GNU_SOURCE
#include "tests/unit/support/engine_fixture.h"

#include <setjmp.h>
#include <stdarg.h>
#include <sys/mman.h>

#include <cmocka.h>

#include "skeleton/core/op_window.h"
#include "skeleton/load/untracked.h"

#define BUDGET (64 * MIB)

static struct swn_engine *const e = &swn_engine_one;

static char *map_bytes(size_t bytes)
{
    char *at = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    CHECK(at != MAP_FAILED);
    return at;
}

/* An operator that takes memory of somebody else's, as the torch backend announces it. */
static void use(const void *at, size_t bytes, enum swn_use as)
{
    struct swn_op op = {.name = "aten::linear", .n = 1};
    op.args[0] = (struct swn_arg){.mapped = 1, .data = (uintptr_t)at, .bytes = bytes, .upto = bytes, .use = as};
    swn_engine_op_begin(&op);
    swn_engine_op_end(&op);
}

static void use_often(const void *at, size_t bytes, enum swn_use as)
{
    for (unsigned i = 0; i < 4; i++)
        use(at, bytes, as);
}

static uint64_t counted(void)
{
    pthread_mutex_lock(&e->lock);
    uint64_t bytes = swn_untracked_bytes(e);
    pthread_mutex_unlock(&e->lock);
    return bytes;
}

static void begin(void)
{
    engine_watched = 1;
    CHECK(engine_begin(BUDGET, SWN_CONFIG_AUTO, NULL) == 0);
}

static void weights_count_from_their_second_read_on(void *arg)
{
    (void)arg;
    begin();
    char *a = map_bytes(MIB), *b = map_bytes(2 * MIB);
    use(a, MIB, SWN_USE_WEIGHT);
    CHECK(counted() == 0);
    use_often(a, MIB, SWN_USE_WEIGHT);
    CHECK(counted() == MIB);
    use_often(b, 2 * MIB, SWN_USE_WEIGHT);
    use_often(a, MIB, SWN_USE_WEIGHT);
    CHECK(counted() == 3 * MIB);
    CHECK(engine_counters().untracked == 0); /* that is of tensors */
}
IN_A_CHILD(weights_count_from_their_second_read_on, 60)

/* Rows of a data set, inputs, results, and what is too small to come and go. */
static void nothing_else_counts(void *arg)
{
    (void)arg;
    begin();
    char *a = map_bytes(MIB);
    use_often(a, MIB, SWN_USE_ROWS);
    use_often(a, MIB, SWN_USE_INPUT);
    use_often(a, MIB, SWN_USE_WRITE);
    use_often(a, SWN_GRANULE - 1, SWN_USE_WEIGHT);
    CHECK(counted() == 0);
    use_often(a, SWN_GRANULE, SWN_USE_WEIGHT);
    CHECK(counted() == SWN_GRANULE);
}
IN_A_CHILD(nothing_else_counts, 60)

static void what_is_freed_counts_no_longer(void *arg)
{
    (void)arg;
    begin();
    char *a = map_bytes(MIB), *b = map_bytes(MIB);
    use_often(a, MIB, SWN_USE_WEIGHT);
    use_often(b, MIB, SWN_USE_WEIGHT);
    CHECK(counted() == 2 * MIB && !munmap(a, MIB));
    CHECK(counted() == MIB && !munmap(b, MIB));
    CHECK(counted() == 0);
}
IN_A_CHILD(what_is_freed_counts_no_longer, 60)

/* An allocator that keeps its memory gives it to arrays of other sizes. */
static void of_storages_in_one_place_the_last_counts(void *arg)
{
    (void)arg;
    begin();
    char *a = map_bytes(8 * MIB);
    for (unsigned i = 0; i < 8; i++)
        use_often(a + i * MIB, MIB, SWN_USE_WEIGHT);
    CHECK(counted() == 8 * MIB);
    use_often(a + MIB / 2, MIB, SWN_USE_WEIGHT); /* in the place of two */
    CHECK(counted() == 7 * MIB);
    use(a + 4 * MIB, 3 * MIB, SWN_USE_WEIGHT); /* of three; once, so it may be an input */
    CHECK(counted() == 4 * MIB);
    use(a + 4 * MIB, 3 * MIB, SWN_USE_WEIGHT);
    CHECK(counted() == 7 * MIB);
    use_often(a, 8 * MIB, SWN_USE_WEIGHT);
    CHECK(counted() == 8 * MIB);
}
IN_A_CHILD(of_storages_in_one_place_the_last_counts, 60)

/* More arrays than are remembered: when they are gone there is room for others. */
static void many_come_and_go(void *arg)
{
    enum { MANY = 4500 };
    static char *many[MANY];

    (void)arg;
    begin();
    for (unsigned i = 0; i < MANY; i++)
        use_often(many[i] = map_bytes(SWN_GRANULE), SWN_GRANULE, SWN_USE_WEIGHT);
    CHECK(counted() > MANY / 2 * SWN_GRANULE);
    for (unsigned i = 0; i < MANY; i++)
        CHECK(!munmap(many[i], SWN_GRANULE));
    char *b = map_bytes(MIB);
    for (unsigned i = 0; i < 2 * MANY; i++)
        use(b, MIB, SWN_USE_WEIGHT);
    CHECK(counted() == MIB);
}
IN_A_CHILD(many_come_and_go, 60)

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_weights_count_from_their_second_read_on),
        cmocka_unit_test(test_nothing_else_counts),
        cmocka_unit_test(test_what_is_freed_counts_no_longer),
        cmocka_unit_test(test_of_storages_in_one_place_the_last_counts),
        cmocka_unit_test(test_many_come_and_go),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
