/* Description: a weight that is lent slice by slice has the right bytes in every slice, however small the budget and
 * whatever else goes on, and is used whole where slices do not work out. */
#define _GNU_SOURCE
#include "swn_engine_fixture.h"

#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>

#include <cmocka.h>

#define LARGE_BYTES (17 * MIB)
#define ROW_BYTES ((size_t)6144)
#define UNIT ((size_t)3 * 65536) /* where rows and granules meet */
#define SMALL 12
#define SMALL_BYTES ((size_t)256 << 10)
#define BUDGET (14 * MIB)
#ifdef __SANITIZE_THREAD__
#define STORM_PASSES 6
#else
#define STORM_PASSES 16
#endif

static struct tensor large[2], small[SMALL];
static struct swn_engine *const e = &swn_engine_one;
static const enum swn_use weight = SWN_USE_WEIGHT;

static void begin(void *arg)
{
    CHECK(engine_begin(BUDGET, *(enum swn_config_fetch *)arg, NULL) == 0);
    for (unsigned i = 0; i < 2; i++)
        CHECK(tensor_make(&large[i], LARGE_BYTES / ROW_BYTES * ROW_BYTES, 100 + i));
    for (unsigned i = 0; i < SMALL; i++)
        CHECK(tensor_make(&small[i], SMALL_BYTES, i + 1));
}

static void end(void)
{
    for (unsigned i = 0; i < 2; i++)
        tensor_free(&large[i]);
    for (unsigned i = 0; i < SMALL; i++)
        tensor_free(&small[i]);
    engine_is_empty();
}

/* Slices of t, no more than `most`, as a kernel takes them. Returns how many there were. */
static size_t take_slices(struct swn_op *op, const struct tensor *t, size_t most)
{
    static __thread size_t bytes[4096];
    size_t n = swn_slice_list(op, 0, bytes, 4096), off = 0;
    CHECK(n > 0);
    for (size_t i = 0; i < n; i++, off += bytes[i - 1]) {
        CHECK(bytes[i] % ROW_BYTES == 0);
        if (i >= most)
            continue;
        const void *at = swn_slice_lend(op, 0, off, bytes[i]);
        if (!at) /* another thread's plan */
            return i;
        CHECK(tensor_right_part(t, (uintptr_t)at, off, bytes[i]));
    }
    CHECK(off == t->len);
    if (most >= n)
        CHECK(swn_slice_lend(op, 0, off, 0) == NULL);
    return n;
}

/* A product that can take its weight in slices. Returns how many it took; 0: it used the weight whole. */
static size_t product(struct tensor *t, size_t most)
{
    struct swn_op op;
    op_open(&op, &t, &weight, 1);
    if (!op.args[0].sliced)
        swn_slice_offer(&op, 0, ROW_BYTES);
    size_t n = op.args[0].sliced ? take_slices(&op, t, most) : 0;
    if (!n || most < n) /* its own address is right, too */
        CHECK(tensor_right(t, (uintptr_t)__atomic_load_n(&t->word, __ATOMIC_ACQUIRE)));
    op_close(&op);
    CHECK((uintptr_t)__atomic_load_n(&t->word, __ATOMIC_ACQUIRE) == t->own);
    return n;
}

static size_t pass(void)
{
    size_t n = 0;
    for (unsigned i = 0; i < SMALL; i++) {
        op_read(&small[i]);
        if (i % (SMALL / 2) == 2)
            n += product(&large[i / (SMALL / 2)], SIZE_MAX);
    }
    return n;
}

static void slice_by_slice(void *arg)
{
    begin(arg);
    size_t first = pass();
    CHECK(first > 4); /* from the first time on */
    for (unsigned i = 0; i < 16; i++)
        CHECK(pass() > 4);
    CHECK(e->planned && large[0].own);
    CHECK(swn_arena_find(e->arena, large[0].own)->sliced);
    CHECK(swn_arena_find(e->arena, large[0].own)->slice_unit == UNIT);
    CHECK(e->over_budget_peak == 0 && e->peak_resident <= BUDGET);
    uint64_t strays = e->res.stray_pages, misses = e->window_misses;
    for (unsigned i = 0; i < 4; i++)
        pass();
    CHECK(e->res.stray_pages == strays && e->window_misses == misses);
    end();
}

/* Bytes that the plan in force has to read in each pass. */
static size_t streamed_bytes(void)
{
    size_t bytes = 0;
    for (size_t i = 0; i < e->node_count; i++)
        for (struct swn_range *r = e->nodes[i].range; r; r = r->rest)
            bytes += r->keep ? 0 : r->len;
    return bytes;
}

static void neighbours_pass(void)
{
    for (unsigned i = 0; i < SMALL; i++)
        op_read(&small[i]);
    usleep(20000); /* what is read ahead has arrived, so it could be evicted */
    for (unsigned i = 0; i < 2; i++)
        product(&large[i], SIZE_MAX);
}

/* When an operator begins, its own slices are what is read ahead, not those of the next one in their place. */
static void each_slice_once(void *arg)
{
    enum { PASSES = 8 };
    struct swn_fetch_stats before, after;
    begin(arg);
    for (unsigned i = 0; i < 16; i++)
        neighbours_pass();
    uint64_t plans = e->plans;
    swn_fetch_stats_get(e->fetch, &before);
    for (unsigned i = 0; i < PASSES; i++)
        neighbours_pass();
    swn_fetch_stats_get(e->fetch, &after);
    size_t read = (size_t)(after.bytes - before.bytes) / PASSES, least = streamed_bytes();
    if (read > least + least / 50)
        fprintf(stderr, "%zu KiB a pass, %zu KiB planned\n", read >> 10, least >> 10);
    CHECK(e->plans == plans && read <= least + least / 50);
    end();
}

/* What fits while it is made, and is in the way later: sliced as soon as it has left, not only when it is first seen.
 */
static void left_later(void *arg)
{
    CHECK(engine_begin(20 * MIB, *(enum swn_config_fetch *)arg, NULL) == 0);
    CHECK(tensor_make(&large[0], LARGE_BYTES / ROW_BYTES * ROW_BYTES, 100));
    CHECK(product(&large[0], SIZE_MAX) == 0); /* in memory */
    CHECK(tensor_make(&large[1], LARGE_BYTES / ROW_BYTES * ROW_BYTES, 101));
    for (unsigned i = 0; i < SMALL; i++)
        CHECK(tensor_make(&small[i], SMALL_BYTES, i + 1));
    CHECK(atomic_load(&swn_arena_find(e->arena, large[0].own)->state) == SWN_STREAMED);
    for (unsigned i = 0; i < 3; i++)
        pass();
    CHECK(e->window_misses == 0 && e->res.stray_pages == 0);
    end();
}

/* A kernel that stops half-way, or never starts: the rest is read at the weight's own address, and nothing stays. */
static void given_up(void *arg)
{
    begin(arg);
    for (unsigned i = 0; i < 10; i++)
        pass();
    for (size_t most = 0; most < 4; most++) {
        CHECK(product(&large[most % 2], most) > most);
        pass();
    }
    struct swn_op op;
    struct tensor *t = &large[0];
    op_open(&op, &t, &weight, 1);
    CHECK(op.args[0].sliced);
    CHECK(tensor_right(t, t->own));
    op_close(&op);
    end();
}

/* Slices that are not there: a stale list, a hostile offset. */
static void not_a_slice(void *arg)
{
    begin(arg);
    for (unsigned i = 0; i < 10; i++)
        pass();
    struct swn_op op;
    struct tensor *t = &large[1];
    size_t bytes[2];
    op_open(&op, &t, &weight, 1);
    CHECK(op.args[0].sliced);
    CHECK(swn_slice_list(&op, 0, bytes, 2) == 0); /* more than two */
    CHECK(swn_slice_lend(&op, 0, 0, ROW_BYTES) == NULL);
    CHECK(swn_slice_lend(&op, 0, ROW_BYTES, ROW_BYTES) == NULL);
    CHECK(swn_slice_lend(&op, 0, t->len, 65536) == NULL);
    CHECK(swn_slice_lend(&op, 0, SIZE_MAX - 65535, 65536) == NULL);
    CHECK(tensor_right(t, t->own));
    op_close(&op);
    pass();
    end();
}

/* Other bits in slices: whole from the next plan on. */
static void refused(void *arg)
{
    begin(arg);
    for (unsigned i = 0; i < 10; i++)
        pass();
    struct swn_op op;
    struct tensor *t = &large[0];
    op_open(&op, &t, &weight, 1);
    swn_slice_offer(&op, 0, 0);
    CHECK(tensor_right(t, t->own));
    op_close(&op);
    for (unsigned i = 0; i < 4; i++)
        pass();
    CHECK(product(t, SIZE_MAX) == 0);
    CHECK(product(&large[1], SIZE_MAX) > 1);
    end();
}

/* Raw stores into any piece, kept or streamed, are seen in the next slice. */
static void written(void *arg)
{
    begin(arg);
    for (unsigned i = 0; i < 8; i++)
        pass();
    for (unsigned i = 0; i < 6; i++) {
        tensor_stamp(&large[i % 2], large[i % 2].own, 1000 + i);
        pass();
    }
    end();
}

static void *storm(void *arg)
{
    for (unsigned i = 0; i < STORM_PASSES; i++) {
        if ((uintptr_t)arg % 2)
            CHECK(tensor_right(&large[i % 2], large[i % 2].own));
        pass();
    }
    return NULL;
}

static void threads(void *arg)
{
    begin(arg);
    pthread_t t[3];
    for (uintptr_t i = 0; i < 3; i++)
        CHECK(pthread_create(&t[i], NULL, storm, (void *)i) == 0);
    for (unsigned i = 0; i < 3; i++)
        CHECK(pthread_join(t[i], NULL) == 0);
    CHECK(e->slices > 0);
    end();
}

static void run(void (*test)(void *))
{
    enum swn_config_fetch paths[] = {SWN_CONFIG_AUTO, SWN_CONFIG_PREAD};
    /* What comes through a mapping is slow, and the same on every path. */
    for (unsigned i = 0; i < (test == slice_by_slice || test == threads ? 2 : 1); i++)
        assert_int_equal(run_alone(test, &paths[i], 240), 0);
}

#define IN_A_CHILD(name)                                                                                               \
    static void test_##name(void **state)                                                                              \
    {                                                                                                                  \
        (void)state;                                                                                                   \
        run(name);                                                                                                     \
    }

IN_A_CHILD(slice_by_slice)
IN_A_CHILD(each_slice_once)
IN_A_CHILD(left_later)
IN_A_CHILD(given_up)
IN_A_CHILD(not_a_slice)
IN_A_CHILD(refused)
IN_A_CHILD(written)
IN_A_CHILD(threads)

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_slice_by_slice), cmocka_unit_test(test_each_slice_once),
        cmocka_unit_test(test_left_later),     cmocka_unit_test(test_given_up),
        cmocka_unit_test(test_not_a_slice),    cmocka_unit_test(test_refused),
        cmocka_unit_test(test_written),        cmocka_unit_test(test_threads),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
