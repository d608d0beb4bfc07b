/* Description: a convolution's result in stripes: the rows that each needs, with padding, dilation and stride, against
 * a plain convolution; how they are cut; and when they are wanted. */
#define _GNU_SOURCE
#include "swn_stripe.h"
#include "swn_stripe_choice.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include "swn_engine_fixture.h"

#include <cmocka.h>

#define MOST_ROWS 40
#define WIDTH 5 /* of the input, in the dimension that is not cut */
#define TAPS 9

static struct swn_engine *const e = &swn_engine_one;

static int64_t between(int64_t lo, int64_t hi)
{
    return lo + (int64_t)rnd_below((uint64_t)(hi - lo + 1));
}

/* What a convolution is, by its definition: of whole numbers, so that sums are exact. */
static void convolve(const int64_t *in, int64_t rows, const struct swn_stripe_rows *g, int64_t padding,
                     const int64_t *weight, int64_t *out, int64_t out_rows)
{
    for (int64_t y = 0; y < out_rows; y++)
        for (int64_t x = 0; x < WIDTH; x++) {
            int64_t sum = 0;
            for (int64_t k = 0; k < g->kernel; k++) {
                int64_t at = y * g->stride - padding + k * g->dilation;
                if (at >= 0 && at < rows)
                    sum += in[at * WIDTH + x] * weight[k];
            }
            out[y * WIDTH + x] = sum;
        }
}

/* 0: there is no such convolution. */
static int any_geometry(struct swn_stripe_rows *g)
{
    *g = (struct swn_stripe_rows){.in = between(1, MOST_ROWS),
                                  .kernel = between(1, TAPS),
                                  .stride = between(1, 5),
                                  .padding = between(0, 9),
                                  .dilation = between(1, 4),
                                  .align = between(1, 4)};
    int64_t reach = g->dilation * (g->kernel - 1) + 1;
    if (g->in + 2 * g->padding < reach)
        return 0;
    g->out = (g->in + 2 * g->padding - reach) / g->stride + 1;
    return 1;
}

static void stripes_are_rows_of_the_whole(void **state)
{
    (void)state;
    int64_t in[MOST_ROWS * WIDTH], weight[TAPS], whole[64 * WIDTH], part[64 * WIDTH];
    unsigned inner = 0, padded = 0, only_padding = 0;
    for (unsigned n = 0; n < 20000; n++) {
        struct swn_stripe_rows g;
        if (!any_geometry(&g))
            continue;
        assert_true(g.out <= 64);
        for (size_t i = 0; i < MOST_ROWS * WIDTH; i++)
            in[i] = between(-1000, 1000);
        for (size_t i = 0; i < TAPS; i++)
            weight[i] = between(-1000, 1000);
        convolve(in, g.in, &g, g.padding, weight, whole, g.out);
        int64_t height = (between(1, g.out) + g.align - 1) / g.align * g.align;
        for (int64_t from = 0; from < g.out; from += height) {
            int64_t count = from + height > g.out ? g.out - from : height;
            struct swn_stripe s = swn_stripe_at(&g, from, count);
            int64_t made = swn_stripe_made(&g, &s);
            assert_true(s.first >= 0 && s.rows >= 1 && s.first + s.rows <= g.in && s.skip >= 0);
            assert_true(s.padding == 0 || s.padding == g.padding);
            assert_true(made >= s.skip + count && made <= 64);
            convolve(in + s.first * WIDTH, s.rows, &g, s.padding, weight, part, made);
            assert_memory_equal(part + s.skip * WIDTH, whole + from * WIDTH, (size_t)(count * WIDTH) * sizeof(*part));
            int64_t needed = (count - 1) * g.stride + g.dilation * (g.kernel - 1) + 1;
            assert_int_equal(s.skip % g.align, 0);
            if (s.padding == 0) {
                assert_true(s.rows <= needed && s.skip == 0 && made == count);
                inner++;
            } else {
                assert_true(s.rows <= needed + g.padding + g.align * g.stride || s.rows == 1);
                padded++;
            }
            only_padding += from * g.stride - g.padding >= g.in;
        }
    }
    assert_true(inner > 1000 && padded > 1000 && only_padding > 100);
}

/* Each row of each sample once, in so much memory, and no more. */
static void cuts_cover_everything(void **state)
{
    (void)state;
    unsigned aligned = 0, by_sample = 0, cut_in_two_ways = 0;
    for (unsigned n = 0; n < 20000; n++) {
        struct swn_stripe_scratch s = {.samples = between(1, 6),
                                       .rows = between(1, 60),
                                       .row_bytes = between(1, 64) * 1024,
                                       .row_pixels = between(1, 40),
                                       .block = 16,
                                       .threads = between(1, 5),
                                       .together = between(0, 3) != 0};
        int64_t bytes = between(1, 1024) * 1024;
        struct swn_stripe_cut cuts[2];
        unsigned found = swn_stripe_cuts(&s, bytes, cuts);
        assert_true(found <= 2);
        cut_in_two_ways += found == 2;
        for (unsigned i = 0; i < found; i++) {
            assert_true(cuts[i].samples >= 1 && cuts[i].samples <= s.samples);
            assert_true(cuts[i].rows >= 1 && cuts[i].rows <= s.rows);
            assert_true(cuts[i].samples < s.samples || cuts[i].rows < s.rows);
            int64_t at_once = s.together ? cuts[i].samples : 1;
            /* A row is the least there is, and twice what fits the most. */
            assert_true(at_once * cuts[i].rows * s.row_bytes <= bytes ||
                        cuts[i].rows <= 2 * (bytes / (s.row_bytes * at_once)) || cuts[i].rows <= 2);
            assert_true(s.together || cuts[i].samples == s.samples);
            by_sample += cuts[i].rows == s.rows;
            aligned += cuts[i].rows < s.rows && cuts[i].rows * s.row_pixels % s.block == 0;
        }
    }
    assert_true(aligned > 5000 && by_sample > 1000 && cut_in_two_ways > 1000);
}

static void cuts_of_known_layers(void **state)
{
    (void)state;
    struct swn_stripe_cut cuts[2];
    /* 64 channels of 224 by 224 floats, 3 by 3: 0.49 MiB a row. */
    struct swn_stripe_scratch vgg = {1, 224, 64 * 9 * 224 * 4, 224, 16, 4, 1};
    assert_int_equal(swn_stripe_cuts(&vgg, 4 << 20, cuts), 1);
    assert_true(cuts[0].samples == 1 && cuts[0].rows == 8);
    /* Rows of 7 pixels meet a block of 16 every 16 rows. */
    struct swn_stripe_scratch narrow = {1, 112, 1 << 15, 7, 16, 1, 1};
    assert_int_equal(swn_stripe_cuts(&narrow, 1 << 20, cuts), 1);
    assert_int_equal(cuts[0].rows, 32);
    /* One sample to each thread, or one sample by all of them. */
    struct swn_stripe_scratch batch = {16, 56, 1 << 16, 56, 16, 4, 1};
    assert_int_equal(swn_stripe_cuts(&batch, 2 << 20, cuts), 2);
    assert_true(cuts[0].samples == 4 && cuts[0].rows == 8);
    assert_true(cuts[1].samples == 1 && cuts[1].rows == 32);
    assert_int_equal(swn_stripe_cuts(&batch, 32 << 20, cuts), 2);
    assert_true(cuts[0].samples == 9 && cuts[0].rows == 56);
    assert_true(cuts[1].samples == 1 && cuts[1].rows == 56);
    /* It fits: no cut. */
    assert_int_equal(swn_stripe_cuts(&vgg, 224 << 20, cuts), 0);
    /* One after the other anyway. */
    batch.together = 0;
    assert_int_equal(swn_stripe_cuts(&batch, 2 << 20, cuts), 1);
    assert_true(cuts[0].samples == 16 && cuts[0].rows == 32);
}

#define BUDGET (32 * MIB)

static void room_has_a_price(void *arg)
{
    (void)arg;
    CHECK(engine_begin(BUDGET, SWN_CONFIG_AUTO, NULL) == 0);
    CHECK(swn_stripes_room(32 * MIB) == 0); /* as long as it fits */
    CHECK(swn_stripes_room(33 * MIB) == UINT64_MAX && swn_stripes_room(SIZE_MAX) == UINT64_MAX);
    struct tensor first, second;
    e->visits = 1; /* nothing is written ahead of need */
    CHECK(tensor_make(&first, 20 * MIB, 1) && tensor_make(&second, 20 * MIB, 2));
    uint64_t written = swn_policy_written(e);
    CHECK(written > 0);
    /* The first has left, the second would have to, once the operator that made it has ended: written and read. Nothing
     * leaves for being asked. */
    size_t left = BUDGET - swn_engine_resident(e);
    atomic_store(&e->hook_state, 2);
    CHECK(swn_stripes_room(left) == 0 && swn_stripes_room(left + MIB) == UINT64_MAX);
    e->seq++;
    uint64_t one = swn_stripes_room(left + MIB), four = swn_stripes_room(left + 4 * MIB);
    CHECK(one > 0 && four > 3 * one && four < 5 * one);
    double read_ns = (double)MIB / swn_policy_disk(e).bytes_per_ns;
    CHECK((double)one > read_ns);
    CHECK(swn_policy_written(e) == written);
    tensor_free(&second); /* its pages are there for others, warm or not */
    CHECK(swn_stripes_room(20 * MIB) == 0);
    e->config.without = SWN_WITHOUT_STRIPES;
    CHECK(swn_stripes_room(64 * MIB) == 0);
    e->config.without = 0;
    e->config.enforce = 0;
    CHECK(swn_stripes_room(64 * MIB) == 0);
    swn_stripes_count(5, 0);
    swn_stripes_count(0, 1);
    struct swn_stats stats;
    swn_engine_stats(&stats);
    CHECK(stats.stripes == 5 && stats.stripes_refused == 1);
    tensor_free(&first);
    engine_is_empty();
}

IN_A_CHILD(room_has_a_price, 60)

#define MS ((uint64_t)1000000)

/* The whole of 8192 pixels, and stripes of half of that and so on, not tried. */
static struct swn_stripe_known some_ways(void)
{
    struct swn_stripe_known known = {.n = 6};
    for (unsigned i = 0; i < known.n; i++)
        known.ways[i].pixels = 8192 >> i;
    known.ways[0].bits = SWN_STRIPE_SAME;
    return known;
}

static void is_next(const struct swn_stripe_known *known, unsigned way, int try_out)
{
    struct swn_stripe_step step = swn_stripe_next(known);
    assert_int_equal(step.way, way);
    assert_int_equal(step.try_out, try_out);
}

/* Whatever stripes take: what leaves for the whole has been seen to cost less than its price. */
static void whole_where_it_fits(void **state)
{
    (void)state;
    struct swn_stripe_known known = some_ways();
    is_next(&known, 0, 0);
    known.ways[0].ns = 100 * MS;
    known.ways[0].cost_ns = 50 * MS;
    known.ways[2] = (struct swn_stripe_way){2048, SWN_STRIPE_SAME, 90 * MS, 0};
    known.used_ns = 900 * MS;
    is_next(&known, 0, 0);
}

static void stripes_where_there_is_no_room(void **state)
{
    (void)state;
    struct swn_stripe_known known = some_ways();
    known.ways[0].cost_ns = known.ways[1].cost_ns = SWN_STRIPE_NO_ROOM;
    is_next(&known, 3, 1); /* at once */
    known.ways[3].bits = SWN_STRIPE_DIFFERS;
    is_next(&known, 2, 1);
    known.ways[2].bits = SWN_STRIPE_SAME;
    known.ways[2].ns = 100 * MS;
    is_next(&known, 2, 0);
    /* There is none for those either: then the shortest. */
    known.ways[2].cost_ns = SWN_STRIPE_NO_ROOM;
    is_next(&known, 4, 1);
    known.ways[4].bits = known.ways[5].bits = SWN_STRIPE_DIFFERS;
    is_next(&known, 2, 0);
    known.ways[2].bits = SWN_STRIPE_DIFFERS;
    is_next(&known, 0, 0); /* none has the bits */
}

/* Longer ones are tried if they promise more, once there is room for them. */
static void longer_ones_later(void **state)
{
    (void)state;
    struct swn_stripe_known known = some_ways();
    known.ways[0].cost_ns = SWN_STRIPE_NO_ROOM;
    known.ways[5] = (struct swn_stripe_way){256, SWN_STRIPE_SAME, 178 * MS, 0};
    known.last = 5;
    for (unsigned i = 1; i < 5; i++)
        known.ways[i].cost_ns = SWN_STRIPE_NO_ROOM;
    known.used_ns = 400 * MS;
    is_next(&known, 5, 0);
    for (unsigned i = 1; i < 5; i++)
        known.ways[i].cost_ns = 0;
    is_next(&known, 2, 1);
    known.ways[2].bits = SWN_STRIPE_SAME;
    known.ways[2].ns = 110 * MS;
    known.tried_ns = 300 * MS;
    is_next(&known, 2, 0);
    known.used_ns = 10000 * MS;
    is_next(&known, 2, 0); /* the next would gain less than a tenth */
}

/* Only if some were tried, and none can be any more. Longer ones for which there is no room never are. */
static void refused_by_those_with_room(void **state)
{
    (void)state;
    struct swn_stripe_known known = some_ways();
    known.ways[0].cost_ns = known.ways[1].cost_ns = known.ways[2].cost_ns = SWN_STRIPE_NO_ROOM;
    assert_false(swn_stripe_refused(&known));
    known.ways[3].bits = known.ways[4].bits = SWN_STRIPE_DIFFERS;
    assert_false(swn_stripe_refused(&known));
    known.ways[5].bits = SWN_STRIPE_DIFFERS;
    assert_true(swn_stripe_refused(&known));
    known.ways[2].cost_ns = 0; /* there is room by now */
    assert_false(swn_stripe_refused(&known));
    known.ways[2] = (struct swn_stripe_way){2048, SWN_STRIPE_SAME, 0, SWN_STRIPE_NO_ROOM};
    assert_false(swn_stripe_refused(&known));
    for (unsigned i = 1; i < known.n; i++)
        known.ways[i] = (struct swn_stripe_way){8192 >> i, SWN_STRIPE_UNTRIED, 0, SWN_STRIPE_NO_ROOM};
    assert_false(swn_stripe_refused(&known));
    known.n = 1;
    assert_true(swn_stripe_refused(&known));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(stripes_are_rows_of_the_whole),
        cmocka_unit_test(cuts_cover_everything),
        cmocka_unit_test(cuts_of_known_layers),
        cmocka_unit_test(test_room_has_a_price),
        cmocka_unit_test(whole_where_it_fits),
        cmocka_unit_test(stripes_where_there_is_no_room),
        cmocka_unit_test(longer_ones_later),
        cmocka_unit_test(refused_by_those_with_room),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
