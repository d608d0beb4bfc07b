/* Description: the order of several models' segments is the best of all that keep each model's own order, and never
 * worse than the best permutation of whole models, which is what the edge-serving paper takes. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <math.h>

#include "scheduler/policies/several.h"
#include "tests/unit/support/random.h"

#define CHAINS 4
#define LONGEST 3

struct several {
    struct swn_chain chains[CHAINS];
    struct swn_segment segments[CHAINS][LONGEST];
    uint32_t count;
};

static void random_chains(struct several *x, double switch_ns)
{
    x->count = 1 + (uint32_t)rnd_below(CHAINS);
    for (uint32_t c = 0; c < x->count; c++) {
        x->chains[c] = (struct swn_chain){
            .segments = x->segments[c], .count = 1 + (uint32_t)rnd_below(LONGEST), .switch_ns = switch_ns};
        for (uint32_t k = 0; k < x->chains[c].count; k++)
            x->segments[c][k] =
                (struct swn_segment){.time_ns = rnd_below(6) ? uniform(0.1, 9) : 0, .weight = uniform(0.2, 5)};
    }
}

/* The best interleaving from here, `whole`: of whole models. */
static double best_order(struct several *x, uint32_t current, double now, int whole)
{
    double best = INFINITY;
    int is_open = current != SWN_CHAIN_NONE && x->chains[current].next < x->chains[current].count, is_left = 0;

    for (uint32_t c = 0; c < x->count; c++) {
        const struct swn_segment *s;
        double then, cost;
        if (x->chains[c].next == x->chains[c].count)
            continue;
        is_left = 1;
        if (whole && is_open && c != current)
            continue;
        s = &x->chains[c].segments[x->chains[c].next++];
        then = now + s->time_ns + (c == current ? 0 : x->chains[c].switch_ns);
        cost = s->weight * then + best_order(x, c, then, whole);
        best = cost < best ? cost : best;
        x->chains[c].next--;
    }
    return is_left ? best : 0;
}

static double chosen_order(struct several *x)
{
    uint32_t left = 0, current = SWN_CHAIN_NONE;
    double now = 0, sum = 0;

    for (uint32_t c = 0; c < x->count; c++)
        left += x->chains[c].count;
    while (left) {
        uint32_t length = 0, c = swn_chain_choose(x->chains, x->count, current, &length);
        assert_true(c < x->count && length > 0 && length <= x->chains[c].count - x->chains[c].next);
        now += c == current ? 0 : x->chains[c].switch_ns;
        current = c;
        for (left -= length; length; length--) {
            const struct swn_segment *s = &x->chains[c].segments[x->chains[c].next++];
            now += s->time_ns;
            sum += s->weight * now;
        }
    }
    for (uint32_t c = 0; c < x->count; c++)
        x->chains[c].next = 0;
    return sum;
}

static void best_of_all_orders(void **state)
{
    unsigned better = 0;

    (void)state;
    for (unsigned round = 0; round < 100; round++) {
        struct several x;
        double best, whole, chosen;
        random_chains(&x, 0);
        best = best_order(&x, SWN_CHAIN_NONE, 0, 0);
        whole = best_order(&x, SWN_CHAIN_NONE, 0, 1);
        chosen = chosen_order(&x);
        assert_true(fabs(chosen - best) <= 1e-9 * (1 + best));
        assert_true(chosen <= whole * (1 + 1e-9));
        better += chosen < whole * 0.99;
    }
    assert_true(better > 10); /* whole models are not always best */
}

/* With one segment each the paper's permutations are all there is, and Smith's ratio finds the best of them. */
static void smith(void **state)
{
    (void)state;
    for (unsigned round = 0; round < 100; round++) {
        struct several x;
        double best;
        random_chains(&x, 0);
        for (uint32_t c = 0; c < x.count; c++)
            x.chains[c].count = 1;
        best = best_order(&x, SWN_CHAIN_NONE, 0, 1);
        assert_true(fabs(chosen_order(&x) - best) <= 1e-9 * (1 + best));
    }
}

/* A change that costs something is made less often, and the heuristic stays near the best order. */
static void switching_costs(void **state)
{
    double mean = 0;

    (void)state;
    for (unsigned round = 0; round < 200; round++) {
        struct several x;
        double best, chosen;
        random_chains(&x, uniform(0, 8));
        best = best_order(&x, SWN_CHAIN_NONE, 0, 0);
        chosen = chosen_order(&x);
        assert_true(chosen >= best * (1 - 1e-9) && chosen <= best * 1.3);
        mean += chosen / best / 200;
    }
    assert_true(mean < 1.03);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(best_of_all_orders),
        cmocka_unit_test(smith),
        cmocka_unit_test(switching_costs),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
