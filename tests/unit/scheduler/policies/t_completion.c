/* Description: Eq. 1 and 2 of the edge-serving paper, as scheduler/policies/completion.h states them, give the best of
 * all segmentations, for any curves, weights and bounds. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include <math.h>

#include "scheduler/policies/completion.h"
#include "tests/unit/support/random.h"

#define MOST 11
#define GROUPS 6

struct instance {
    struct swn_completion c;
    double time[GROUPS * (MOST + 1)], weight[MOST];
    uint32_t bound[GROUPS], group[MOST];
};

static struct swn_completion_room room;

static double larger(double a, double b)
{
    return a > b ? a : b;
}

static void random_instance(struct instance *x)
{
    memset(x, 0, sizeof *x);
    x->c = (struct swn_completion){.time = x->time, .most = MOST, .group_count = 1 + (uint32_t)rnd_below(GROUPS)};
    for (uint32_t g = 0; g < x->c.group_count; g++) {
        double a = rnd_below(8) ? uniform(0.1, 3) : 0, load = rnd_below(2) ? uniform(0, 6) : 0;
        double gain = rnd_below(2) ? uniform(0, 1) : 1;
        for (uint32_t n = 1; n <= MOST; n++)
            x->time[g * (MOST + 1) + n] = larger(a * (1 + gain * (n - 1)), load);
        x->bound[g] = 1 + (uint32_t)rnd_below(5);
    }
    x->c.n = 1 + (uint32_t)rnd_below(MOST);
    for (uint32_t i = 0, top = x->c.group_count; i < x->c.n; i++) {
        x->group[i] = (uint32_t)rnd_below(top);
        top = x->group[i] + 1;
        x->weight[i] = uniform(0.2, 5);
    }
    x->c.group = x->group;
    x->c.weight = rnd_below(2) ? x->weight : NULL;
    x->c.bound = rnd_below(2) ? x->bound : NULL;
}

/* A segment as the paper tells it: the newest begins, and the batch collects whoever it meets. */
static double walk(const struct swn_completion *c, uint32_t first, uint32_t last)
{
    double sum = 0;

    for (uint32_t g = c->group[last]; g < c->group_count; g++) {
        uint32_t members = 0;
        for (uint32_t k = first; k <= last; k++)
            members += c->group[k] <= g;
        if (c->bound && members > c->bound[g] && first < last)
            return INFINITY;
        sum += c->time[g * (c->most + 1) + members];
    }
    return sum;
}

/* Sum of weight * end, each request's by itself, for cuts after the requests whose bit is set. */
static double cost_of(const struct swn_completion *c, unsigned cuts)
{
    double now = 0, sum = 0;

    for (uint32_t first = 0, last; first < c->n; first = last + 1) {
        for (last = first; last + 1 < c->n && !(cuts >> last & 1); last++)
            ;
        now += walk(c, first, last);
        for (uint32_t k = first; k <= last; k++)
            sum += (c->weight ? c->weight[k] : 1) * now;
    }
    return sum;
}

static double cost_of_segments(const struct swn_completion *c, const struct swn_segment *s, uint32_t count)
{
    double now = 0, sum = 0;
    uint32_t next = 0;

    for (uint32_t i = 0; i < count; i++) {
        double weight = 0;
        assert_int_equal(s[i].first, next);
        assert_true(s[i].last >= s[i].first && s[i].last < c->n);
        next = s[i].last + 1;
        assert_true(fabs(s[i].time_ns - walk(c, s[i].first, s[i].last)) <= 1e-9 * (1 + s[i].time_ns));
        now += s[i].time_ns;
        for (uint32_t k = s[i].first; k <= s[i].last; k++)
            weight += c->weight ? c->weight[k] : 1;
        assert_true(fabs(weight - s[i].weight) < 1e-9);
        sum += weight * now;
    }
    assert_int_equal(next, c->n);
    return sum;
}

static void best_of_all_segmentations(void **state)
{
    (void)state;
    for (unsigned round = 0; round < 300; round++) {
        struct instance x;
        struct swn_segment segments[MOST];
        double total, best = INFINITY;
        uint32_t count;
        random_instance(&x);
        for (unsigned cuts = 0; cuts < 1u << (x.c.n - 1); cuts++) {
            double cost = cost_of(&x.c, cuts);
            best = cost < best ? cost : best;
        }
        count = swn_completion_plan(&x.c, &room, segments, &total);
        assert_true(fabs(total - best) <= 1e-9 * (1 + best));
        assert_true(fabs(cost_of_segments(&x.c, segments, count) - best) <= 1e-9 * (1 + best));
    }
}

/* What Batch and No-Batch come to. */
static void segments_of_a_size(void **state)
{
    (void)state;
    for (unsigned round = 0; round < 300; round++) {
        struct instance x;
        struct swn_segment segments[MOST];
        double total;
        uint32_t size = 1 + (uint32_t)rnd_below(MOST), count;
        random_instance(&x);
        count = swn_completion_fixed(&x.c, size, segments, &total);
        assert_true(fabs(cost_of_segments(&x.c, segments, count) - total) <= 1e-9 * (1 + total));
        for (uint32_t i = 0; i < count; i++) {
            assert_true(segments[i].last - segments[i].first < size);
            if (i + 1 < count && segments[i].last - segments[i].first + 1 < size) /* only a bound makes one shorter */
                assert_true(isinf(walk(&x.c, segments[i].first, segments[i].last + 1)));
        }
    }
}

/* With n c nothing is won by a batch, and with a constant time nothing is lost. */
static void batches_where_that_gains(void **state)
{
    double free_of_charge[8], linear[8];
    uint32_t group[7] = {0};
    struct swn_segment segments[7];
    struct swn_completion c = {.time = free_of_charge, .most = 7, .group_count = 1, .n = 7, .group = group};
    double total;

    (void)state;
    for (uint32_t n = 0; n < 8; n++) {
        free_of_charge[n] = 3;
        linear[n] = 3 * n;
    }
    assert_int_equal(swn_completion_plan(&c, &room, segments, &total), 1);
    assert_true(total == 21);
    c.time = linear;
    assert_int_equal(swn_completion_plan(&c, &room, segments, &total), 7);
    assert_true(total == 3 * 28);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(best_of_all_segmentations),
        cmocka_unit_test(segments_of_a_size),
        cmocka_unit_test(batches_where_that_gains),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
