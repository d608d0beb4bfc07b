/* Description: a weight that is lent slice by slice has the right bytes in every slice, however small the budget and
 * whatever else goes on, and is used whole where slices do not work out. */
/* wraps: swn_now_ns swn_cond_wait_until swn_spin_wait_wait swn_disk_speed_get swn_engine_op_end */
#define _GNU_SOURCE
#include "blocks/memory/publish.h"
#include "tests/unit/support/plan_clock.h"
#include "tests/unit/support/sliced_op.h"
#include "skeleton/core/eviction.h"
#include "skeleton/core/op_window.h"
#include "skeleton/tiling/slice.h"
#include "skeleton/core/ring_size.h"

#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <sys/wait.h>

#include <cmocka.h>

#define LARGE_BYTES (2896 * ROW_BYTES) /* ends in the middle of a granule */
#define ROW_BYTES ((size_t)6144)
#define UNIT ((size_t)3 * 65536) /* where rows and granules meet */
#define SMALL 12
#define SMALL_BYTES ((size_t)256 << 10)
#define BUDGET (14 * MIB)
#define STORM_PASSES 6

static struct tensor large[2], small[SMALL];
static struct swn_engine *const e = &swn_engine_one;
static const enum swn_use weight = SWN_USE_WEIGHT;

static void begin_with(void *arg, size_t budget)
{
    CHECK(engine_begin(budget, *(enum swn_config_fetch *)arg, NULL) == 0);
    for (unsigned i = 0; i < 2; i++)
        CHECK(tensor_make(&large[i], LARGE_BYTES / ROW_BYTES * ROW_BYTES, 100 + i));
    for (unsigned i = 0; i < SMALL; i++)
        CHECK(tensor_make(&small[i], SMALL_BYTES, i + 1));
    op_age();
}

static void begin(void *arg)
{
    begin_with(arg, BUDGET);
}

static void end(void)
{
    for (unsigned i = 0; i < 2; i++)
        tensor_free(&large[i]);
    for (unsigned i = 0; i < SMALL; i++)
        tensor_free(&small[i]);
    engine_is_empty();
}

static size_t product(struct tensor *t, size_t most)
{
    return op_sliced(t, ROW_BYTES, most);
}

/* Every weight that comes whole. */
static void read_small(void)
{
    for (unsigned i = 0; i < SMALL; i++)
        op_read(&small[i]);
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

/* Until there is a plan, and what it keeps has come to stay: several passes go by without another one. */
static void settle(size_t (*one)(void))
{
    unsigned passes = 0, same = 0;
    while (same < 4) {
        size_t kept = engine_kept_bytes();
        uint64_t plans = e->plan.made;
        one();
        same = e->plan.planned && !e->plan.dirty && e->plan.made == plans && engine_kept_bytes() == kept ? same + 1 : 0;
        CHECK(++passes < 32);
    }
}

static void slice_by_slice(void *arg)
{
    begin(arg);
    size_t first = pass();
    CHECK(first > 4); /* from the first time on */
    settle(pass);
    CHECK(pass() > 4);
    CHECK(e->plan.planned && large[0].own);
    CHECK(swn_tensor_of(swn_arena_find(e->arena, large[0].own))->sliced);
    CHECK(swn_tensor_of(swn_arena_find(e->arena, large[0].own))->slice_unit == UNIT);
    CHECK(engine_counters().over_budget_peak == 0 && engine_counters().peak_resident <= BUDGET);
    uint64_t strays = e->res.fallback_pages, misses = engine_counters().window_misses;
    for (unsigned i = 0; i < 4; i++)
        pass();
    CHECK(e->res.fallback_pages == strays && engine_counters().window_misses == misses);
    end();
}

/* Bytes that the plan in force has to read in each pass. */
static size_t streamed_bytes(void)
{
    size_t bytes = 0, unit = swn_pool_unit(e->pool);
    for (size_t i = 0; i < e->weights.count; i++) {
        const struct swn_range *r = e->weights.all[i].range;
        struct swn_chunks all = swn_residency_chunks(&e->res, r);
        for (uint64_t c = all.first; c < all.end; c++) {
            uint64_t lo = c * unit > r->place ? c * unit : r->place, end = r->place + swn_weight_bytes(r);
            uint64_t hi = (c + 1) * unit < end ? (c + 1) * unit : end;
            bytes += swn_pool_chunk(e->pool, c)->plan_keep ? 0 : hi - lo;
        }
    }
    return bytes;
}

static size_t neighbours_pass(void)
{
    size_t n = 0;
    read_small();
    engine_reads_arrive(); /* what is read ahead could be evicted then */
    for (unsigned i = 0; i < 2; i++)
        n += product(&large[i], SIZE_MAX);
    return n;
}

/* When an operator begins, its own slices are what is read ahead, not those of the next one in their place. */
static void each_slice_once(void *arg)
{
    enum { PASSES = 4 };
    struct swn_fetch_stats before, after;
    begin(arg);
    settle(neighbours_pass);
    uint64_t plans = e->plan.made;
    engine_reads_arrive(); /* what is read ahead for the first of the passes is not counted */
    swn_fetch_stats_get(e->fetch, &before);
    for (unsigned i = 0; i < PASSES; i++)
        neighbours_pass();
    engine_reads_arrive();
    swn_fetch_stats_get(e->fetch, &after);
    size_t read = (size_t)(after.bytes - before.bytes) / PASSES, least = streamed_bytes();
    if (read > least + least / 50)
        fprintf(stderr, "%zu KiB a pass, %zu KiB planned\n", read >> 10, least >> 10);
    CHECK(e->plan.made == plans && read <= least + least / 50);
    end();
}

/* Rows of convolutions: no power of two, and where they meet granules is far apart. Slices of whole rows where two such
 * slices fit beside the rest, else whole; of whole blocks of rows for each of four threads where that makes slices
 * hardly longer, else for one, else of whole rows. */
static void rows_of_convolutions(void *arg)
{
    static const struct {
        size_t row, block, unit;
        int sliced;
    } of[] = {
        {512 * 3 * 3 * 4, 1, (size_t)9 << 16, 1},    /* 512 channels, 3x3 */
        {512 * 3 * 3 * 4, 16, (size_t)18 << 16, 1},  /* for four threads */
        {2048 * 4, 1, (size_t)1 << 16, 1},           /* 1x1 */
        {2048 * 4, 16, (size_t)8 << 16, 1},          /* for four threads */
        {4096 * 4, 16, (size_t)16 << 16, 1},         /* 1x1 */
        {12032 * 4, 16, (size_t)47 << 16, 0},        /* rows and granules meet no earlier */
        {36864 * 4, 16, (size_t)36 << 16, 1},        /* for one: 2.25 MiB, as is every slice of these rows */
        {40960 * 4, 16, (size_t)5 << 16, 1},         /* that would be 2.5 MiB rather than 2.2 */
        {1024 * 5 * 4, 1, (size_t)5 << 16, 1},       /* in one dimension */
        {256 * 256 * 9 * 4, 1, (size_t)36 << 16, 1}, /* a group of 256 by 256 */
        {256 * 27 * 4, 1, (size_t)27 << 16, 0},      /* 3x3x3: two slices of two units are too much for this budget */
        {3 * 7 * 7 * 4, 16, (size_t)147 << 16, 0},   /* a first layer's */
    };
    CHECK(engine_begin(BUDGET, *(enum swn_config_fetch *)arg, NULL) == 0);
    CHECK(tensor_make(&small[0], SMALL_BYTES, 1));
    for (unsigned i = 0; i < sizeof of / sizeof of[0]; i++) {
        CHECK(tensor_make(&large[0], LARGE_BYTES / of[i].row * of[i].row, 100 + i));
        op_read(&small[0]);
        const struct swn_row_geometry rows = {.bytes = of[i].row, .block = of[i].block, .threads = 4, .shape = 1};
        size_t n = op_sliced_by(&large[0], &rows, SIZE_MAX);
        if (swn_tensor_of(swn_arena_find(e->arena, large[0].own))->slice_unit != of[i].unit)
            fprintf(stderr, "%u: %zu\n", i, swn_tensor_of(swn_arena_find(e->arena, large[0].own))->slice_unit >> 16);
        CHECK(swn_tensor_of(swn_arena_find(e->arena, large[0].own))->slice_unit == of[i].unit);
        if (of[i].sliced ? n < 3 : n > 0)
            fprintf(stderr, "%u: %zu slices\n", i, n);
        CHECK(of[i].sliced ? n > 2 : n == 0);
        tensor_free(&large[0]);
    }
    tensor_free(&small[0]);
    engine_is_empty();
}

/* Rows that are summed over: slices of whole blocks or none. */
static void blocks_and_no_others(void *arg)
{
    static const struct {
        size_t row, block, unit;
        int sliced;
    } of[] = {
        {2048 * 4, 256, (size_t)32 << 16, 1}, /* 2 MiB */
        {4096 * 4, 384, (size_t)96 << 16, 0}, /* 6 MiB: no two of them fit */
        {1000 * 4, 320, 0, 0},                /* rows and granules meet after as much as there is */
    };
    CHECK(engine_begin(BUDGET, *(enum swn_config_fetch *)arg, NULL) == 0);
    CHECK(tensor_make(&small[0], SMALL_BYTES, 1));
    for (unsigned i = 0; i < sizeof of / sizeof of[0]; i++) {
        CHECK(tensor_make(&large[0], LARGE_BYTES / of[i].row * of[i].row, 100 + i));
        op_read(&small[0]);
        struct swn_row_geometry rows = {.bytes = of[i].row, .block = of[i].block, .threads = 1, .shape = 1, .exact = 1};
        size_t n = op_sliced_by(&large[0], &rows, SIZE_MAX);
        CHECK(swn_tensor_of(swn_arena_find(e->arena, large[0].own))->slice_unit == of[i].unit);
        CHECK(of[i].sliced ? n > 2 : n == 0);
        /* Who can take any rows is served by these as well. */
        rows.exact = 0;
        rows.block = 1;
        CHECK(!of[i].unit || op_sliced_by(&large[0], &rows, SIZE_MAX) == n);
        CHECK(!of[i].unit || swn_tensor_of(swn_arena_find(e->arena, large[0].own))->slice_unit == of[i].unit);
        tensor_free(&large[0]);
    }
    tensor_free(&small[0]);
    engine_is_empty();
}

/* A recurrent layer goes through its weight once for every step. */
static void again_in_one_operator(void *arg)
{
    begin(arg);
    settle(pass);
    struct swn_op op;
    struct tensor *t = &large[0];
    op_open(&op, &t, &weight, 1);
    for (unsigned i = 0; i < 3; i++)
        CHECK(op_take_slices(&op, t, ROW_BYTES, SIZE_MAX) > 4);
    op_close(&op);
    CHECK(engine_counters().over_budget_peak == 0);
    pass();
    end();
}

/* Of a weight of which an operator's tensor is a part (an expert of many), no more than that is read ahead. */
static void part_of_a_weight_is_read_alone(void *arg)
{
    begin(arg);
    settle(pass);
    size_t unit = swn_pool_unit(e->pool);
    for (unsigned i = 0; i < 4; i++) {
        struct swn_op op = {.name = "aten::test", .n = 1};
        struct tensor *t = &large[0];
        const struct swn_range *r = swn_arena_find(e->arena, t->own);
        CHECK(swn_tensor_of(r)->sliced && swn_tensor_of(r)->slice > 0 && r->len / swn_tensor_of(r)->slice > 3);
        size_t bytes = swn_tensor_of(r)->slice, off = (r->len / swn_tensor_of(r)->slice - 2) * bytes;
        uint64_t behind = (r->place + off + bytes + unit - 1) / unit, end = swn_residency_chunks(&e->res, r).end;
        CHECK(behind < end);
        for (uint64_t c = behind; c < end; c++)
            CHECK(!swn_pool_chunk(e->pool, c)->plan_keep && !swn_pool_chunk(e->pool, c)->frame);
        op.args[0] = (struct swn_arg){.data = t->own, .bytes = t->len, .use = weight, .from = off};
        op.args[0].upto = off + bytes;
        swn_engine_op_begin(&op);
        CHECK(op.args[0].sliced);
        const void *at = swn_slice_lend(&op, 0, off, bytes);
        CHECK((uintptr_t)at == t->own + off && tensor_right_part(t, (uintptr_t)at, off, bytes));
        for (uint64_t c = behind; c < end; c++)
            CHECK(!swn_pool_chunk(e->pool, c)->frame);
        swn_slice_lend(&op, 0, 0, 0);
        op_close(&op);
        read_small();
    }
    end();
}

/* What fits while it is made, and is in the way later: sliced as soon as it has left, not only when it is first seen.
 */
static void weight_that_leaves_later_is_sliced(void *arg)
{
    CHECK(engine_begin(20 * MIB, *(enum swn_config_fetch *)arg, NULL) == 0);
    CHECK(tensor_make(&large[0], LARGE_BYTES / ROW_BYTES * ROW_BYTES, 100));
    CHECK(product(&large[0], SIZE_MAX) == 0); /* in memory */
    CHECK(tensor_make(&large[1], LARGE_BYTES / ROW_BYTES * ROW_BYTES, 101));
    for (unsigned i = 0; i < SMALL; i++)
        CHECK(tensor_make(&small[i], SMALL_BYTES, i + 1));
    CHECK(atomic_load(&swn_arena_find(e->arena, large[0].own)->state) == SWN_FILE_BACKED);
    for (unsigned i = 0; i < 3; i++)
        pass();
    CHECK(engine_counters().window_misses == 0 && e->res.fallback_pages == 0);
    end();
}

/* A kernel that stops half-way, or never starts: the rest is read at the weight's own address, and nothing stays. */
static void operator_that_stops_half_way_leaves_nothing(void *arg)
{
    begin(arg);
    settle(pass);
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
static void hostile_slices_are_refused(void *arg)
{
    begin(arg);
    settle(pass);
    struct swn_op op;
    struct tensor *t = &large[1];
    struct swn_slices kinds[1];
    op_open(&op, &t, &weight, 1);
    CHECK(op.args[0].sliced);
    CHECK(swn_slice_list(&op, 0, kinds, 1) == 0); /* of more than one length */
    CHECK(swn_slice_lend(&op, 0, t->len, 65536) == NULL);
    CHECK(swn_slice_lend(&op, 0, t->len - ROW_BYTES, ROW_BYTES + 1) == NULL);
    CHECK(swn_slice_lend(&op, 0, SIZE_MAX - 65535, 65536) == NULL);
    CHECK(swn_slice_lend(&op, 0, 65536, SIZE_MAX - 65535) == NULL);
    CHECK(tensor_right(t, t->own));
    op_close(&op);
    pass();
    end();
}

static struct swn_range *range_of(unsigned i)
{
    return swn_arena_find(e->arena, large[i].own);
}

static void passes(unsigned n)
{
    for (unsigned i = 0; i < n; i++)
        pass();
}

/* A shape that comes once, and has other bits in slices, is computed whole; the next operator has its slices. */
static void shape_refused_once_is_sliced_next_time(void *arg)
{
    begin(arg);
    settle(pass);
    uint64_t plans = e->plan.made;
    for (unsigned i = 0; i < 8; i++) {
        op_shape = 2;
        op_right_from = SIZE_MAX;
        CHECK(product(&large[0], SIZE_MAX) == 0);
        op_shape = 1;
        op_right_from = 0;
        passes(4);
        CHECK(swn_tensor_of(range_of(0))->slice_unit == UNIT && product(&large[0], SIZE_MAX) > 4);
    }
    CHECK(e->plan.made == plans && engine_counters().over_budget_peak == 0);
    end();
}

/* A shape that keeps coming gets longer slices, if there are some that it can have, and all others get them, too. */
static void shape_that_recurs_gets_longer_slices(void *arg)
{
    begin_with(arg, 24 * MIB);
    settle(pass);
    op_shape = 2;
    op_right_from = 4 * MIB;
    unsigned whole = 0;
    for (unsigned i = 0; i < 12; i++) {
        read_small();
        whole += product(&large[0], SIZE_MAX) == 0;
        product(&large[1], SIZE_MAX);
    }
    CHECK(whole < 8);
    CHECK(swn_tensor_of(range_of(0))->slice_unit >= op_right_from &&
          swn_tensor_of(range_of(0))->slice_unit % UNIT == 0);
    uint64_t plans = e->plan.made;
    for (unsigned i = 0; i < 8; i++) {
        op_shape = 1 + i % 2;
        read_small();
        CHECK(product(&large[0], SIZE_MAX) > 1 && product(&large[1], SIZE_MAX) > 1);
    }
    CHECK(e->plan.made == plans && engine_counters().over_budget_peak == 0);
    end();
}

/* Longer slices of which the window has room for one only come one at a time: pages of the mapping would take far
 * longer. */
static void long_slices_come_one_at_a_time(void *arg)
{
    begin_with(arg, 24 * MIB);
    settle(pass);
    op_shape = 2;
    op_right_from = 4 * MIB;
    swn_ring_resize(e, 8 * MIB);
    CHECK(swn_tensor_of(range_of(0))->sliced && swn_tensor_of(range_of(0))->slice < op_right_from);
    uint64_t strays = e->res.fallback_pages;
    read_small();
    CHECK(product(&large[0], SIZE_MAX) > 1 && e->res.fallback_pages == strays);
    end();
}

/* One that cannot have any, and is all that comes, has the weight whole, for good. */
static void weight_never_right_in_slices_stays_whole(void *arg)
{
    begin(arg);
    settle(pass);
    op_shape = 2;
    op_right_from = SIZE_MAX;
    for (unsigned i = 0; i < 8; i++) {
        read_small();
        CHECK(product(&large[0], SIZE_MAX) == 0);
    }
    CHECK(swn_tensor_of(range_of(0))->slice_unit == 0 && !swn_tensor_of(range_of(0))->sliced);
    uint64_t plans = e->plan.made;
    for (unsigned i = 0; i < 32; i++) {
        read_small();
        CHECK(product(&large[0], SIZE_MAX) == 0);
    }
    CHECK(e->plan.made == plans && swn_tensor_of(range_of(0))->slice_unit == 0);
    /* Until another shape comes, and stays. */
    op_shape = 1;
    op_right_from = 0;
    unsigned whole = 0;
    for (unsigned i = 0; i < 12; i++) {
        read_small();
        whole += product(&large[0], SIZE_MAX) == 0;
    }
    CHECK(whole < 8 && swn_tensor_of(range_of(0))->sliced);
    end();
}

/* Whatever shapes come by turns, there are ever fewer plans for that. */
static void shapes_by_turns_need_ever_fewer_plans(void *arg)
{
    enum { TURNS = 32 };
    begin(arg);
    settle(pass);
    uint64_t first = e->plan.made, half = 0;
    for (unsigned turn = 0; turn < TURNS; turn++) {
        op_shape = 1 + turn % 2;
        op_right_from = turn % 2 ? SIZE_MAX : 0;
        for (unsigned i = 0; i < 8; i++) {
            op_read(&small[0]);
            product(&large[0], SIZE_MAX);
        }
        half = turn < TURNS / 2 ? e->plan.made : half;
    }
    CHECK(half - first > 0 && half - first <= 16 && e->plan.made - half <= half - first);
    end();
}

/* An operator on no weight, which takes so long. */
static void compute(uint64_t ns)
{
    struct swn_op op = {.name = "aten::test"};
    swn_engine_op_begin(&op);
    plan_clock_advance(ns);
    swn_engine_op_end(&op);
}

/* A weight that takes a little of the budget has slices if the disk takes longer for it than its operator, and comes
 * whole where computing takes longer anyway, be it with others. */
static void small_weight_is_sliced_where_the_disk_is_slower(void *arg)
{
    enum { N = 12, NOWHERE = 0, EVERYWHERE, ELSEWHERE };
    struct tensor some[N];
    const size_t rows = 1024, bytes = rows * ROW_BYTES; /* 6 MiB: less than an eighth */
    plan_clock_bytes_per_ns = 0.4;                      /* ten times as long as what an operator takes */
    const uint64_t read_ns = (uint64_t)((double)bytes / plan_clock_bytes_per_ns);
    for (unsigned slow = NOWHERE; slow <= ELSEWHERE; slow++) {
        pid_t child = fork();
        CHECK(child >= 0);
        if (!child) {
            CHECK(engine_begin(52 * MIB, *(enum swn_config_fetch *)arg, NULL) == 0);
            for (unsigned i = 0; i < N; i++)
                CHECK(tensor_make(&some[i], bytes, i + 1));
            op_age();
            size_t taken = 0, planned = 0;
            for (unsigned k = 0; k < 60 && (slow ? planned < 4 : taken < 4 * N); k++, planned += e->plan.planned != 0)
                for (unsigned i = 0; i < N; i++) {
                    taken += op_sliced(&some[i], ROW_BYTES, SIZE_MAX) > 1;
                    compute(slow == EVERYWHERE ? 2 * read_ns : slow == ELSEWHERE && i + 1 == N ? 10 * read_ns : 0);
                }
            CHECK(e->plan.planned && (slow ? !taken : taken >= 4 * N));
            _exit(0);
        }
        int status;
        CHECK(waitpid(child, &status, 0) == child && status == 0);
    }
}

/* Where only some of those that come can have slices, these have them. */
static void shapes_that_can_have_slices_have_them(void *arg)
{
    begin(arg);
    settle(pass);
    uint64_t plans = e->plan.made;
    for (unsigned i = 0; i < 40; i++) {
        op_shape = 1 + i % 2;
        op_right_from = i % 2 ? SIZE_MAX : 0;
        op_read(&small[0]);
        CHECK((product(&large[0], SIZE_MAX) == 0) == i % 2);
    }
    CHECK(e->plan.made == plans);
    end();
}

/* Two that see rows of other lengths in the same bytes: the next plan has slices for both. */
static void rows_of_two_lengths(void *arg)
{
    enum { OTHER = 3 * 4096 };
    begin_with(arg, 24 * MIB);
    settle(pass);
    CHECK(op_sliced(&large[0], ROW_BYTES / 2, SIZE_MAX) > 1);
    for (unsigned i = 0; i < 6; i++) {
        read_small();
        product(&large[0], SIZE_MAX);
        op_sliced(&large[0], OTHER, SIZE_MAX);
    }
    CHECK(swn_tensor_of(range_of(0))->slice_unit % OTHER == 0 && swn_tensor_of(range_of(0))->slice_unit % UNIT == 0);
    CHECK(product(&large[0], SIZE_MAX) > 1 && op_sliced(&large[0], OTHER, SIZE_MAX) > 1);
    end();
}

/* Raw stores into any piece, kept or streamed, are seen in the next slice. */
static void raw_stores_are_seen_in_the_next_slice(void *arg)
{
    begin(arg);
    settle(pass);
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

static void storm_of_threads_has_right_slices(void *arg)
{
    begin(arg);
    pthread_t t[3];
    for (uintptr_t i = 0; i < 3; i++)
        CHECK(pthread_create(&t[i], NULL, storm, (void *)i) == 0);
    for (unsigned i = 0; i < 3; i++)
        CHECK(pthread_join(t[i], NULL) == 0);
    CHECK(engine_counters().slices > 0);
    end();
}

static void run(void (*test)(void *))
{
    enum swn_config_fetch paths[] = {SWN_CONFIG_AUTO, SWN_CONFIG_PREAD};
    /* What comes through a mapping is slow, and the same on every path. */
    for (unsigned i = 0; i < (test == slice_by_slice || test == storm_of_threads_has_right_slices ? 2 : 1); i++)
        assert_int_equal(run_alone(test, &paths[i], 240), 0);
}

#define ON_EACH_PATH(name)                                                                                             \
    static void test_##name(void **state)                                                                              \
    {                                                                                                                  \
        (void)state;                                                                                                   \
        run(name);                                                                                                     \
    }

ON_EACH_PATH(slice_by_slice)
ON_EACH_PATH(each_slice_once)
ON_EACH_PATH(rows_of_convolutions)
ON_EACH_PATH(blocks_and_no_others)
ON_EACH_PATH(again_in_one_operator)
ON_EACH_PATH(part_of_a_weight_is_read_alone)
ON_EACH_PATH(weight_that_leaves_later_is_sliced)
ON_EACH_PATH(operator_that_stops_half_way_leaves_nothing)
ON_EACH_PATH(hostile_slices_are_refused)
ON_EACH_PATH(shape_refused_once_is_sliced_next_time)
ON_EACH_PATH(shape_that_recurs_gets_longer_slices)
ON_EACH_PATH(long_slices_come_one_at_a_time)
ON_EACH_PATH(weight_never_right_in_slices_stays_whole)
ON_EACH_PATH(shapes_by_turns_need_ever_fewer_plans)
ON_EACH_PATH(small_weight_is_sliced_where_the_disk_is_slower)
ON_EACH_PATH(shapes_that_can_have_slices_have_them)
ON_EACH_PATH(rows_of_two_lengths)
ON_EACH_PATH(raw_stores_are_seen_in_the_next_slice)
ON_EACH_PATH(storm_of_threads_has_right_slices)

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_slice_by_slice),
        cmocka_unit_test(test_each_slice_once),
        cmocka_unit_test(test_rows_of_convolutions),
        cmocka_unit_test(test_blocks_and_no_others),
        cmocka_unit_test(test_again_in_one_operator),
        cmocka_unit_test(test_part_of_a_weight_is_read_alone),
        cmocka_unit_test(test_weight_that_leaves_later_is_sliced),
        cmocka_unit_test(test_operator_that_stops_half_way_leaves_nothing),
        cmocka_unit_test(test_hostile_slices_are_refused),
        cmocka_unit_test(test_shape_refused_once_is_sliced_next_time),
        cmocka_unit_test(test_shape_that_recurs_gets_longer_slices),
        cmocka_unit_test(test_long_slices_come_one_at_a_time),
        cmocka_unit_test(test_weight_never_right_in_slices_stays_whole),
        cmocka_unit_test(test_shapes_by_turns_need_ever_fewer_plans),
        cmocka_unit_test(test_small_weight_is_sliced_where_the_disk_is_slower),
        cmocka_unit_test(test_shapes_that_can_have_slices_have_them),
        cmocka_unit_test(test_rows_of_two_lengths),
        cmocka_unit_test(test_raw_stores_are_seen_in_the_next_slice),
        cmocka_unit_test(test_storm_of_threads_has_right_slices),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
