/* Description: the exact optimum is that of a search over single requests, and the completion-time plan of the
 * edge-serving paper with what is decided step by step, is near to it, where Batch and No-Batch are not. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include <errno.h>
#include <math.h>

#include "scheduler/policies/completion_exact.h"
#include "scheduler/policies/completion_step.h"
#include "tests/unit/support/random.h"

#define MOST 12
#define GROUPS 5

struct instance {
    struct swn_completion c;
    double time[GROUPS * (MOST + 1)], weight[MOST];
    uint32_t bound[GROUPS], group[MOST];
};

static struct swn_exact_room exact;
static struct swn_completion_room room;

enum family { GPU, AFFINE, DISK, CPU, FAMILIES };

static double cost(enum family family, double a, double load, uint32_t n)
{
    switch (family) {
    case GPU:
        return a * (1 + 0.08 * (n - 1));
    case AFFINE:
        return a * (0.55 + 0.45 * n);
    case DISK:
        return a * n > load ? a * n : load;
    default:
        return a * n;
    }
}

/* n requests at random groups, in FIFO order. */
static void random_instance(struct instance *x, enum family family, uint32_t n, uint32_t groups, uint32_t bound)
{
    memset(x, 0, sizeof *x);
    x->c = (struct swn_completion){.time = x->time, .most = MOST, .group_count = groups, .n = n, .group = x->group};
    for (uint32_t g = 0; g < groups; g++) {
        double a = uniform(0.5, 1.5), load = a * uniform(0.5, 4);
        for (uint32_t k = 1; k <= MOST; k++)
            x->time[g * (MOST + 1) + k] = cost(family, a, load, k);
        x->bound[g] = bound;
    }
    if (bound)
        x->c.bound = x->bound;
    for (uint32_t i = 0; i < n; i++) {
        uint32_t k = i, g = (uint32_t)rnd_below(groups);
        for (; k && x->group[k - 1] < g; k--)
            x->group[k] = x->group[k - 1];
        x->group[k] = g;
    }
}

/* Every schedule: any requests of one model that are at one group run it, whatever their weights. */
struct single {
    const struct instance *x;
    uint32_t at, problem;
    double weight;
};

static double all_schedules(const struct single *r, uint32_t n, uint32_t problems)
{
    double waiting = 0, best = INFINITY;

    for (uint32_t i = 0; i < n; i++)
        waiting += r[i].at < r[i].x->c.group_count ? r[i].weight : 0;
    if (waiting == 0)
        return 0;
    for (uint32_t p = 0; p < problems; p++)
        for (uint32_t g = 0; g < GROUPS; g++)
            for (unsigned set = 1; set < 1u << n; set++) {
                struct single next[4];
                const struct instance *x = NULL;
                uint32_t k = 0, fits = 1;
                memcpy(next, r, n * sizeof *r);
                for (uint32_t i = 0; i < n; i++) {
                    if (!(set >> i & 1))
                        continue;
                    fits &= r[i].problem == p && r[i].at == g && g < r[i].x->c.group_count;
                    x = r[i].x;
                    next[i].at++;
                    k++;
                }
                if (fits && (!x->c.bound || k <= x->bound[g])) {
                    double c = waiting * x->time[g * (MOST + 1) + k] + all_schedules(next, n, problems);
                    best = c < best ? c : best;
                }
            }
    return best;
}

static void best_of_all_schedules(void **state)
{
    (void)state;
    for (unsigned round = 0; round < 40; round++) {
        struct instance x[2];
        struct swn_completion c[2];
        struct single r[4];
        struct swn_exact_step step;
        double total, best;
        uint32_t problems = 1 + round % 2, n = 0;
        for (uint32_t p = 0; p < problems; p++) {
            random_instance(&x[p], (enum family)rnd_below(FAMILIES), problems == 1 ? 3 : 1 + (uint32_t)rnd_below(2), 2,
                            round % 3 ? 0 : 1 + (uint32_t)rnd_below(2));
            for (uint32_t i = 0; i < x[p].c.n; i++) {
                x[p].weight[i] = (double)(1 + rnd_below(3));
                r[n++] = (struct single){.x = &x[p], .at = x[p].group[i], .problem = p, .weight = x[p].weight[i]};
            }
            x[p].c.weight = x[p].weight;
            c[p] = x[p].c;
        }
        assert_int_equal(swn_exact_plan(c, problems, &exact, &step, &total), 0);
        best = all_schedules(r, n, problems);
        assert_true(fabs(total - best) <= 1e-9 * best);
    }
}

/* Doing the first step, and planning anew, comes to what was promised. */
static void steps_come_to_the_total(void **state)
{
    (void)state;
    for (unsigned round = 0; round < 30; round++) {
        struct instance x;
        struct swn_exact_step step;
        double promised, total, sum = 0;
        random_instance(&x, DISK, 8, GROUPS, 0);
        assert_int_equal(swn_exact_plan(&x.c, 1, &exact, &step, &promised), 0);
        while (x.c.n) {
            uint32_t moved = 0, left = 0;
            assert_int_equal(swn_exact_plan(&x.c, 1, &exact, &step, &total), 0);
            sum += x.c.n * x.time[step.group * (MOST + 1) + step.count];
            for (uint32_t i = 0; i < x.c.n; i++) {
                uint32_t g = x.group[i];
                if (g == step.group && moved < step.count) {
                    g++;
                    moved++;
                }
                if (g < GROUPS)
                    x.group[left++] = g;
            }
            assert_int_equal(moved, step.count);
            x.c.n = left;
        }
        assert_true(fabs(sum - promised) <= 1e-9 * promised);
    }
}

static void refuses_what_is_too_much(void **state)
{
    static struct instance x[SWN_EXACT_REQUESTS + 1];
    struct swn_completion c[SWN_EXACT_REQUESTS + 1];
    struct swn_exact_step step;
    double total;

    (void)state;
    random_instance(&x[0], DISK, MOST, GROUPS, 0);
    for (uint32_t i = 0; i < MOST; i++) {
        x[0].group[i] = 0;
        x[0].weight[i] = 1 + i % 2;
    }
    assert_int_equal(swn_exact_plan(&x[0].c, 1, &exact, &step, &total), 0);
    x[0].c.weight = x[0].weight; /* two classes of six: 462 * 462 states */
    assert_int_equal(swn_exact_plan(&x[0].c, 1, &exact, &step, &total), -E2BIG);
    for (uint32_t p = 0; p <= SWN_EXACT_REQUESTS; p++) {
        random_instance(&x[p], DISK, 1, 2, 0);
        c[p] = x[p].c;
    }
    assert_int_equal(swn_exact_plan(c, SWN_EXACT_REQUESTS + 1, &exact, &step, &total), -E2BIG);
    assert_int_equal(swn_exact_plan(c, 0, &exact, &step, &total), -E2BIG);
}

/* Total completion time over the optimum, for sets of requests. */
enum way { NO_BATCH, BATCH, PLAN, SEGMENT_ONLY, STEPS, WAYS };

struct ratios {
    double mean[WAYS], worst[WAYS];
};

/* Eq. 1 with the requests of the segment as its weight: how it is better not read. */
static double segment_only(const struct swn_completion *c)
{
    double least[MOST + 1] = {0}, now = 0, sum = 0;
    uint32_t cut[MOST + 1] = {0}, cuts = 0;

    for (uint32_t j = 0; j < c->n; j++) {
        least[j + 1] = INFINITY;
        for (uint32_t i = j + 1; i-- > 0;) {
            double f = least[i] + (j - i + 1) * swn_segment_time(c, i, j);
            if (f < least[j + 1]) {
                least[j + 1] = f;
                cut[j + 1] = i;
            }
        }
    }
    for (uint32_t end = c->n; end; end = cut[end])
        cuts |= 1u << (end - 1);
    for (uint32_t first = 0, last; first < c->n; first = last + 1) {
        for (last = first; !(cuts >> last & 1); last++)
            ;
        now += swn_segment_time(c, first, last);
        sum += (last - first + 1) * now;
    }
    return sum;
}

/* The policy: after each step a new plan. */
static double step_by_step(const struct swn_completion *c)
{
    struct swn_completion left = *c;
    uint32_t group[MOST];
    double sum = 0, total, no_switch = 0;

    memcpy(group, c->group, c->n * sizeof *group);
    left.group = group;
    while (left.n) {
        struct swn_step step = swn_completion_step(&left, &no_switch, 1, 0, &room, &total);
        uint32_t next[MOST], n = 0, moved = 0;
        sum += left.n * c->time[step.group * (MOST + 1) + step.count];
        for (uint32_t i = 0; i < left.n; i++) { /* whoever moves on is behind those who are there already */
            uint32_t g = group[i], k;
            if (g == step.group && moved < step.count) {
                moved++;
                g++;
            }
            if (g == c->group_count)
                continue;
            for (k = n++; k && next[k - 1] < g; k--)
                next[k] = next[k - 1];
            next[k] = g;
        }
        assert_int_equal(moved, step.count);
        left.n = n;
        memcpy(group, next, n * sizeof *group);
    }
    return sum;
}

static struct ratios compare(enum family family, uint32_t bound, uint32_t least, uint32_t most, unsigned sets)
{
    struct ratios r = {{0}, {0}};

    for (unsigned round = 0; round < sets; round++) {
        struct instance x;
        struct swn_segment segments[MOST];
        struct swn_exact_step step;
        double best, total[WAYS];
        random_instance(&x, family, least + (uint32_t)rnd_below(most - least + 1), GROUPS, bound);
        assert_int_equal(swn_exact_plan(&x.c, 1, &exact, &step, &best), 0);
        swn_completion_fixed(&x.c, 1, segments, &total[NO_BATCH]);
        swn_completion_fixed(&x.c, MOST, segments, &total[BATCH]);
        swn_completion_plan(&x.c, &room, segments, &total[PLAN]);
        total[SEGMENT_ONLY] = segment_only(&x.c);
        total[STEPS] = step_by_step(&x.c);
        assert_true(total[STEPS] <= total[PLAN] * (1 + 1e-9));
        for (unsigned k = 0; k < WAYS; k++) {
            double ratio = total[k] / best;
            assert_true(ratio > 1 - 1e-9);
            r.mean[k] += ratio / sets;
            r.worst[k] = ratio > r.worst[k] ? ratio : r.worst[k];
        }
    }
    return r;
}

/* 60 sets of six requests in five groups. The means that are known are those of another program with other random
 * numbers, so they are met within 0.15. */
static void ratios_to_the_optimum(void **state)
{
    static const double known[2][FAMILIES][4] = {
        {{1.78, 1.11, 1.000, 1.78}, {1.15, 1.41, 1.000, 1.15}, {1.50, 1.56, 1.018, 1.40}, {1.00, 2.09, 1.000, 1.00}},
        {{1.65, 1.06, 1.003, 1.65}, {1.15, 1.09, 1.000, 1.15}, {1.49, 1.14, 1.016, 1.41}, {1.00, 1.38, 1.000, 1.00}}};

    (void)state;
    for (uint32_t b = 0; b < 2; b++)
        for (unsigned family = 0; family < FAMILIES; family++) {
            struct ratios r = compare((enum family)family, 3 * b, 6, 6, 60);
            for (unsigned k = 0; k < 4; k++)
                assert_true(fabs(r.mean[k] - known[b][family][k]) < 0.15);
            assert_true(r.mean[PLAN] < 1.02 && r.worst[PLAN] < 1.11);
            assert_true(r.mean[STEPS] < 1.01 && r.worst[STEPS] < 1.08);
            /* Where it batches all or nothing, it is right but for ties, which fall differently where multiplying and
             * adding are one instruction. */
            if (family != DISK)
                assert_true(r.mean[PLAN] < 1.004 && r.worst[PLAN] < 1.06);
        }
}

/* The goal: what the policy does is within 2 % of the optimum in the mean, and 10 % in the worst case. */
static void near_the_optimum(void **state)
{
    (void)state;
    for (uint32_t bound = 0; bound <= 3; bound += 3) {
        struct ratios r = compare(DISK, bound, 2, MOST, 300);
        assert_true(r.mean[PLAN] <= 1.02);
        assert_true(r.mean[STEPS] <= 1.005 && r.worst[STEPS] <= 1.10);
        assert_true(r.mean[BATCH] > 1.1 && r.mean[NO_BATCH] > 1.3);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(best_of_all_schedules),    cmocka_unit_test(steps_come_to_the_total),
        cmocka_unit_test(refuses_what_is_too_much), cmocka_unit_test(ratios_to_the_optimum),
        cmocka_unit_test(near_the_optimum),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
