/* Description: one budget is divided over several DNNs by the rules that scheduler/planner/divide.h states, whatever
 * the policy. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include <errno.h>
#include <math.h>

#include "scheduler/planner/divide.h"
#include "tests/unit/support/random.h"

#define MIB ((uint64_t)1 << 20)
#define MOST 24
#define POINTS 8

struct scene {
    size_t n;
    struct swn_divide_dnn dnn[MOST];
    struct swn_divide_point curve[MOST][POINTS];
    uint64_t least, most;
};

static void random_curve(struct swn_divide_dnn *d, struct swn_divide_point *curve)
{
    double latency = d->latency_s * uniform(1, 6);
    d->points = 1 + rnd() % POINTS;
    d->curve = curve;
    for (size_t k = 0; k < d->points; k++) {
        curve[k].budget_bytes = d->demand_bytes / (d->points + 1) * (k + 1) + k;
        curve[k].latency_s = latency;
        if (rnd() % 3) /* flat pieces, and now and then one that rises */
            latency *= uniform(0.5, 1.05);
    }
    if (rnd() % 16 == 0)
        curve[d->points - 1].latency_s = rnd() % 2 ? 0 : INFINITY;
}

static void random_scene(struct scene *s)
{
    memset(s, 0, sizeof *s);
    s->n = 1 + rnd() % MOST;
    for (size_t i = 0; i < s->n; i++) {
        struct swn_divide_dnn *d = &s->dnn[i];
        d->demand_bytes = rnd() % 16 ? rnd() % (900 * MIB) : 0;
        d->min_bytes = rnd() % 4 ? rnd() % (60 * MIB) : 0; /* sometimes above the demand */
        d->weight_bytes = rnd() % 4 ? d->demand_bytes / 2 : 0;
        d->latency_s = rnd() % 4 ? uniform(0.001, 2) : 0;
        d->urgency = rnd() % 4 ? uniform(0.1, 10) : 0;
        if (rnd() % 2 && d->latency_s > 0)
            random_curve(d, s->curve[i]);
        s->least += d->min_bytes;
        s->most += d->demand_bytes > d->min_bytes ? d->demand_bytes : d->min_bytes;
    }
}

static uint64_t total_of(const uint64_t *bytes, size_t n)
{
    uint64_t sum = 0;
    for (size_t i = 0; i < n; i++)
        sum += bytes[i];
    return sum;
}

static uint64_t between(uint64_t lo, uint64_t hi)
{
    return lo + rnd() % (hi - lo + 1);
}

static void the_rules_hold(void **state)
{
    struct scene s;
    uint64_t bytes[MOST];
    (void)state;
    for (int round = 0; round < 3000; round++) {
        random_scene(&s);
        uint64_t total = between(s.least, s.most + s.most / 8);
        for (unsigned policy = 0; policy < SWN_DIVIDE_POLICIES; policy++) {
            assert_int_equal(swn_divide((enum swn_divide_policy)policy, s.dnn, s.n, total, bytes), 0);
            for (size_t i = 0; i < s.n; i++) {
                assert_true(bytes[i] >= s.dnn[i].min_bytes);
                assert_true(bytes[i] <= s.dnn[i].demand_bytes || bytes[i] == s.dnn[i].min_bytes);
            }
            assert_int_equal(total_of(bytes, s.n), total < s.most ? total : s.most);
        }
    }
}

static void minimums_that_do_not_fit(void **state)
{
    struct swn_divide_dnn dnn[2] = {{.min_bytes = 10 * MIB, .demand_bytes = 90 * MIB},
                                    {.min_bytes = 20 * MIB, .demand_bytes = 5 * MIB}};
    uint64_t bytes[2];
    (void)state;
    for (unsigned policy = 0; policy < SWN_DIVIDE_POLICIES; policy++) {
        assert_int_equal(swn_divide((enum swn_divide_policy)policy, dnn, 2, 30 * MIB - 1, bytes), -ENOSPC);
        assert_int_equal(bytes[0], 10 * MIB);
        assert_int_equal(bytes[1], 20 * MIB);
        assert_int_equal(swn_divide((enum swn_divide_policy)policy, dnn, 2, 30 * MIB, bytes), 0);
        assert_int_equal(swn_divide((enum swn_divide_policy)policy, dnn, 0, 0, bytes), 0);
    }
    dnn[0].min_bytes = UINT64_MAX;
    assert_int_equal(swn_divide_least(dnn, 2), UINT64_MAX);
    assert_int_equal(swn_divide((enum swn_divide_policy)7, dnn, 2, MIB, bytes), -EINVAL);
}

static void more_takes_from_nobody(void **state)
{
    struct scene s;
    uint64_t bytes[MOST], more[MOST];
    (void)state;
    for (int round = 0; round < 1000; round++) {
        random_scene(&s);
        if (s.most == s.least)
            continue;
        uint64_t total = between(s.least, s.most - 1), larger = between(total, s.most);
        for (unsigned policy = SWN_DIVIDE_EQ1; policy <= SWN_DIVIDE_EQUAL; policy++) {
            assert_int_equal(swn_divide((enum swn_divide_policy)policy, s.dnn, s.n, total, bytes), 0);
            assert_int_equal(swn_divide((enum swn_divide_policy)policy, s.dnn, s.n, larger, more), 0);
            for (size_t i = 0; i < s.n; i++) /* but for bytes of rounding */
                assert_true(more[i] + s.n >= bytes[i]);
        }
    }
}

/* Eq. 1 written out, where it gives everybody between minimum and demand. */
static void eq1_is_the_papers(void **state)
{
    struct swn_divide_dnn dnn[4];
    uint64_t bytes[4];
    int checked = 0;
    (void)state;
    for (int round = 0; round < 2000; round++) {
        double demand = 0, scores = 0, expected[4];
        int inside = 1;
        uint64_t total = 0;
        for (int i = 0; i < 4; i++) {
            dnn[i] = (struct swn_divide_dnn){.demand_bytes = between(100 * MIB, 300 * MIB),
                                             .weight_bytes = between(80 * MIB, 100 * MIB),
                                             .latency_s = uniform(0.1, 0.5),
                                             .urgency = uniform(0.5, 2)};
            demand += (double)dnn[i].demand_bytes;
            scores += dnn[i].urgency * dnn[i].latency_s / (double)dnn[i].weight_bytes;
            total += dnn[i].demand_bytes / 2;
        }
        for (int i = 0; i < 4; i++) {
            double score = dnn[i].urgency * dnn[i].latency_s / (double)dnn[i].weight_bytes, m = (double)total;
            expected[i] = (double)dnn[i].demand_bytes / demand * (1 - 1 / 4.0) * m + score / scores * (1 / 4.0) * m;
            inside &= expected[i] < (double)dnn[i].demand_bytes;
        }
        if (!inside)
            continue;
        checked++;
        assert_int_equal(swn_divide(SWN_DIVIDE_EQ1, dnn, 4, total, bytes), 0);
        for (int i = 0; i < 4; i++)
            assert_true(fabs((double)bytes[i] - expected[i]) < 16);
    }
    assert_true(checked > 500);
}

/* SwapNet 8.2 publishes budgets, but neither the latencies behind them nor how VGG-19's was found, beyond "the largest
 * layer takes up 392 MB, and a relatively large budget is required". Its numbers follow from Eq. 1 with two inputs that
 * it does not state: 475 MB (520 MB in the road-side unit) as VGG's minimum, and performance scores in the ratio of the
 * models' sizes, i.e. latencies in the ratio of their squares. VGG's own latency does not matter then. */
static void the_papers_budgets(void **state)
{
    static const struct {
        double total, size[5];
        uint64_t published[5], minimum; /* minimum: of the first, in MB */
        size_t n;
    } scenarios[] = {{843, {548, 170, 236, 207}, {475, 102, 142, 124}, 475, 4},
                     {1088, {548, 170, 170, 236, 236}, {520, 119, 119, 165, 165}, 520, 5},
                     {325, {170, 236}, {136, 189}, 0, 2}};
    uint64_t bytes[5];
    const double mb = 1e6;
    (void)state;
    for (size_t s = 0; s < sizeof scenarios / sizeof *scenarios; s++) {
        struct swn_divide_dnn dnn[5] = {{0}};
        size_t n = scenarios[s].n;
        for (size_t i = 0; i < n; i++) {
            double size = scenarios[s].size[i];
            dnn[i].demand_bytes = dnn[i].weight_bytes = (uint64_t)(size * mb);
            dnn[i].latency_s = size * size * 1e-5;
        }
        if (scenarios[s].minimum) {
            dnn[0].min_bytes = scenarios[s].minimum * (uint64_t)mb;
            dnn[0].latency_s = 0.3;
        }
        assert_int_equal(swn_divide(SWN_DIVIDE_EQ1, dnn, n, (uint64_t)(scenarios[s].total * mb), bytes), 0);
        for (size_t i = 0; i < n; i++)
            assert_int_equal((uint64_t)((double)bytes[i] / mb + 0.5), scenarios[s].published[i]);
    }
}

static void urgency_helps_its_owner(void **state)
{
    struct swn_divide_dnn dnn[3];
    uint64_t before[3], after[3];
    (void)state;
    for (unsigned policy = 0; policy < SWN_DIVIDE_POLICIES; policy++) {
        for (int i = 0; i < 3; i++)
            dnn[i] = (struct swn_divide_dnn){.demand_bytes = 200 * MIB, .latency_s = 0.1, .urgency = 1};
        assert_int_equal(swn_divide((enum swn_divide_policy)policy, dnn, 3, 300 * MIB, before), 0);
        dnn[1].urgency = 3;
        assert_int_equal(swn_divide((enum swn_divide_policy)policy, dnn, 3, 300 * MIB, after), 0);
        if (policy == SWN_DIVIDE_EQUAL)
            assert_int_equal(after[1], before[1]);
        else
            assert_true(after[1] > before[1] + 10 * MIB);
    }
}

static double worst(const struct scene *s, const uint64_t *bytes)
{
    double most = 0;
    for (size_t i = 0; i < s->n; i++)
        most = swn_divide_delay(&s->dnn[i], bytes[i]) > most ? swn_divide_delay(&s->dnn[i], bytes[i]) : most;
    return most;
}

static double or_noise(double delay)
{
    return delay > SWN_DIVIDE_NOISE ? delay : SWN_DIVIDE_NOISE;
}

static void minmax_is_the_smallest(void **state)
{
    struct scene s;
    uint64_t bytes[MOST], other[MOST];
    int better = 0;
    (void)state;
    for (int round = 0; round < 1500; round++) {
        random_scene(&s);
        if (s.most == s.least)
            continue;
        uint64_t total = between(s.least, s.most - 1);
        assert_int_equal(swn_divide(SWN_DIVIDE_MINMAX, s.dnn, s.n, total, bytes), 0);
        double mine = worst(&s, bytes);
        for (unsigned policy = SWN_DIVIDE_EQ1; policy <= SWN_DIVIDE_EQUAL; policy++) {
            assert_int_equal(swn_divide((enum swn_divide_policy)policy, s.dnn, s.n, total, other), 0);
            assert_true(mine <= or_noise(worst(&s, other)) * (1 + 1e-5) + 1e-5);
            better += mine < worst(&s, other) * 0.9;
        }
        /* No move of memory from one to another makes the worst better. */
        for (int k = 0; k < 8; k++) {
            size_t from = rnd() % s.n, to = rnd() % s.n;
            memcpy(other, bytes, sizeof other);
            uint64_t some = bytes[from] > s.dnn[from].min_bytes ? rnd() % (bytes[from] - s.dnn[from].min_bytes) : 0;
            other[from] -= some;
            other[to] += some;
            assert_true(mine <= or_noise(worst(&s, other)) * (1 + 1e-5) + 1e-5);
        }
    }
    assert_true(better > 500);
}

/* The first is as slow as it will ever be with what there is; the rest is for the two others, and fairly. */
static void minmax_looks_beyond_the_worst(void **state)
{
    static const struct swn_divide_point step[] = {{10 * MIB, 4.0}, {399 * MIB, 4.0}, {400 * MIB, 1.0}};
    static const struct swn_divide_point line[] = {{10 * MIB, 3.0}, {210 * MIB, 1.0}};
    struct swn_divide_dnn dnn[3] = {
        {.min_bytes = 10 * MIB, .demand_bytes = 400 * MIB, .curve = step, .points = 3},
        {.min_bytes = 10 * MIB, .demand_bytes = 210 * MIB, .curve = line, .points = 2},
        {.min_bytes = 10 * MIB, .demand_bytes = 210 * MIB, .curve = line, .points = 2},
    };
    uint64_t bytes[3];
    (void)state;
    assert_int_equal(swn_divide(SWN_DIVIDE_MINMAX, dnn, 3, 330 * MIB, bytes), 0);
    assert_true(bytes[0] < 11 * MIB);
    assert_true(bytes[1] > 159 * MIB && bytes[2] > 159 * MIB);
}

/* Two that are as fast as can be with part of their weights: the rest goes to the one that would read it again ten
 * times as often, whatever their order, unless the other is more urgent still. */
static void minmax_spares_the_disk(void **state)
{
    static const struct swn_divide_point fast[] = {{10 * MIB, 0.2}, {100 * MIB, 0.0501}, {200 * MIB, 0.05}};
    static const struct swn_divide_point slow[] = {{10 * MIB, 2.0}, {100 * MIB, 0.501}, {300 * MIB, 0.5}};
    (void)state;
    for (unsigned first = 0; first < 2; first++) {
        struct swn_divide_dnn dnn[2];
        uint64_t bytes[2];
        dnn[first] =
            (struct swn_divide_dnn){.min_bytes = 10 * MIB, .demand_bytes = 200 * MIB, .curve = fast, .points = 3};
        dnn[!first] =
            (struct swn_divide_dnn){.min_bytes = 10 * MIB, .demand_bytes = 300 * MIB, .curve = slow, .points = 3};
        assert_int_equal(swn_divide(SWN_DIVIDE_MINMAX, dnn, 2, 350 * MIB, bytes), 0);
        assert_int_equal(bytes[first], 200 * MIB);
        assert_int_equal(bytes[!first], 150 * MIB);
        dnn[!first].urgency = 20;
        assert_int_equal(swn_divide(SWN_DIVIDE_MINMAX, dnn, 2, 350 * MIB, bytes), 0);
        assert_true(bytes[first] < 110 * MIB && bytes[!first] > 240 * MIB);
    }
}

/* What a process could not predict, or made up, holds up nobody: such a curve counts as none. */
static void minmax_without_latency(void **state)
{
    static const double ends[] = {0, 1e-300, 1e-12};
    enum { N = 60 };
    struct swn_divide_point rising[N][2];
    struct swn_divide_dnn dnn[N + 1];
    uint64_t bytes[N + 1], without[N + 1];
    (void)state;
    for (size_t k = 0; k < sizeof ends / sizeof *ends; k++) {
        struct swn_divide_point end[] = {{8 * MIB, 1.0}, {1024 * MIB, ends[k]}};
        for (size_t i = 0; i < N; i++) {
            rising[i][0] = (struct swn_divide_point){8 * MIB, 3};
            rising[i][1] = (struct swn_divide_point){100 * MIB, 1};
            dnn[i] = (struct swn_divide_dnn){
                .min_bytes = MIB, .demand_bytes = (i + 40) * MIB, .curve = rising[i], .points = 2};
        }
        dnn[N] = (struct swn_divide_dnn){
            .min_bytes = MIB, .demand_bytes = 1024 * MIB, .latency_s = 1, .curve = end, .points = 2};
        assert_int_equal(swn_divide(SWN_DIVIDE_MINMAX, dnn, N + 1, 2000 * MIB, bytes), 0);
        dnn[N].points = 0;
        assert_int_equal(swn_divide(SWN_DIVIDE_MINMAX, dnn, N + 1, 2000 * MIB, without), 0);
        assert_memory_equal(bytes, without, sizeof bytes);
    }
}

static void curves(void **state)
{
    static const struct swn_divide_point curve[] = {{100, 8}, {200, 4}, {300, 6}, {400, 2}};
    struct swn_divide_dnn d = {.demand_bytes = 400, .curve = curve, .points = 4, .urgency = 2};
    static const struct {
        uint64_t bytes;
        double latency;
    } expected[] = {{0, 8}, {100, 8}, {150, 6}, {200, 4}, {250, 4}, {300, 4}, {350, 4}, {375, 3}, {400, 2}, {999, 2}};
    (void)state;
    for (size_t i = 0; i < sizeof expected / sizeof *expected; i++)
        assert_true(fabs(swn_divide_latency(&d, expected[i].bytes) - expected[i].latency) < 1e-9);
    assert_true(fabs(swn_divide_delay(&d, 200) - 2) < 1e-9); /* twice as slow, twice as urgent */
    assert_true(swn_divide_delay(&d, 400) <= 0);
    d.points = 0;
    assert_true(swn_divide_latency(&d, 100) <= 0);
    d.latency_s = 3;
    assert_true(fabs(swn_divide_latency(&d, 200) - 4.5) < 1e-9);
}

static void policy_names(void **state)
{
    enum swn_divide_policy p;
    (void)state;
    for (unsigned i = 0; i < SWN_DIVIDE_POLICIES; i++) {
        assert_int_equal(swn_divide_parse(swn_divide_name((enum swn_divide_policy)i), &p), 0);
        assert_int_equal(p, i);
    }
    assert_int_equal(swn_divide_parse("fair", &p), -EINVAL);
    assert_string_equal(swn_divide_name((enum swn_divide_policy)9), "?");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_rules_hold),
        cmocka_unit_test(minimums_that_do_not_fit),
        cmocka_unit_test(more_takes_from_nobody),
        cmocka_unit_test(eq1_is_the_papers),
        cmocka_unit_test(the_papers_budgets),
        cmocka_unit_test(urgency_helps_its_owner),
        cmocka_unit_test(minmax_is_the_smallest),
        cmocka_unit_test(minmax_looks_beyond_the_worst),
        cmocka_unit_test(minmax_spares_the_disk),
        cmocka_unit_test(minmax_without_latency),
        cmocka_unit_test(curves),
        cmocka_unit_test(policy_names),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
