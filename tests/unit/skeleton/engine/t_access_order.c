/* Description: the order of weights is learned, predicted across passes, and forgotten where it no longer holds. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>

#include "skeleton/engine/access_order.h"

static struct swn_access_order *order;

static int setup(void **state)
{
    (void)state;
    return swn_access_order_create(&order);
}

static int teardown(void **state)
{
    (void)state;
    swn_access_order_destroy(order);
    return 0;
}

/* Records weights first..first+n-1; how many were predicted. */
static size_t pass(struct swn_cursor *c, uint32_t first, uint32_t n)
{
    size_t hits = 0;
    for (uint32_t i = 0; i < n; i++)
        hits += (size_t)swn_access_order_record(order, c, first + i);
    return hits;
}

static size_t visit_all(struct swn_cursor *c, const uint32_t *weights, size_t n)
{
    size_t hits = 0;
    for (size_t i = 0; i < n; i++)
        hits += (size_t)swn_access_order_record(order, c, weights[i]);
    return hits;
}

static void straight_cycle(void **state)
{
    (void)state;
    for (uint32_t n = 1; n <= 200; n += n < 5 ? 1 : 39) {
        struct swn_cursor c = {0};
        uint32_t first = n * 1000;
        assert_int_equal(pass(&c, first, n), 0);
        pass(&c, first, n);
        uint64_t hits = c.hits, misses = c.misses, run = c.run;
        for (int p = 3; p < 6; p++)
            for (uint32_t i = 0; i < n; i++) {
                /* From the third pass on; a cycle of one or two needs a step or two more to be one. */
                int right = swn_access_order_record(order, &c, first + i);
                if (n > 1 || p > 3)
                    assert_int_equal(right, 1);
            }
        if (n > 1) {
            assert_int_equal(c.hits, hits + 3 * n);
            assert_int_equal(c.misses, misses);
            assert_int_equal(c.run, run + 3 * n);
        }
        assert_int_equal(c.anchor, first);
        assert_int_equal(c.passes, 4);
    }
}

static void chain_across_passes(void **state)
{
    (void)state;
    struct swn_cursor c = {0};
    for (int p = 0; p < 3; p++)
        pass(&c, 1, 10);
    pass(&c, 1, 7);
    uint32_t before = c.before, at = c.at;
    assert_int_equal(before, 6);
    assert_int_equal(at, 7);
    for (uint32_t i = 0; i < 35; i++) {
        uint32_t next = swn_access_order_next(order, before, at);
        assert_int_equal(next, (7 + i) % 10 + 1);
        before = at;
        at = next;
    }
    assert_int_equal(swn_access_order_next(order, 0, 0), 0);
    assert_int_equal(swn_access_order_next(order, 3, 9), 0);
    assert_int_equal(swn_access_order_next(order, 77, 78), 0);
}

static void two_models(void **state)
{
    (void)state;
    struct swn_cursor a = {0}, b = {0};
    uint64_t hits_a = 0, hits_b = 0;
    for (uint32_t step = 0; step < 5 * 12 * 7; step++) {
        int right_a = swn_access_order_record(order, &a, 1 + step % 12);
        int right_b = swn_access_order_record(order, &b, 100 + step % 7);
        hits_a += step >= 24 ? (uint64_t)right_a : 0;
        hits_b += step >= 14 ? (uint64_t)right_b : 0;
    }
    assert_int_equal(hits_a, 5 * 12 * 7 - 24);
    assert_int_equal(hits_b, 5 * 12 * 7 - 14);
    /* A third thread runs model a: what was learned serves it from its third weight on. */
    struct swn_cursor c = {0};
    assert_int_equal(pass(&c, 1, 12), 11); /* (nothing, 1) -> 2 is known from the first thread's start */
    assert_int_equal(pass(&c, 1, 12), 12);
    /* One thread, the models in turn: the order of both together is learned as well. */
    struct swn_cursor d = {0};
    for (int p = 0; p < 2; p++) {
        pass(&d, 1, 12);
        pass(&d, 100, 7);
    }
    /* ... but where both habits meet, each model's end belongs to the cursor that was there last. */
    assert_int_equal(pass(&d, 1, 12) + pass(&d, 100, 7), 19);
}

static void branch_change(void **state)
{
    (void)state;
    static const uint32_t left[] = {1, 2, 3, 10, 11, 12, 4, 5, 6}, right[] = {1, 2, 3, 20, 21, 22, 4, 5, 6};
    struct swn_cursor c = {0};
    for (int p = 0; p < 3; p++) {
        visit_all(&c, left, 9);
        visit_all(&c, right, 9);
    }
    /* Each branch is known from its second weight on; entering it is a guess, and the way out of it is certain. */
    for (int p = 0; p < 4; p++) {
        const uint32_t *way = p % 2 ? right : left;
        for (size_t i = 0; i < 9; i++) {
            int hit = swn_access_order_record(order, &c, way[i]);
            assert_int_equal(hit, i != 3);
        }
    }
    /* A weight never seen before: right again after two steps. */
    swn_access_order_record(order, &c, 1);
    swn_access_order_record(order, &c, 2);
    assert_int_equal(swn_access_order_record(order, &c, 99), 0);
    assert_int_equal(c.run, 0);
    assert_int_equal(swn_access_order_record(order, &c, 10), 0);
    assert_int_equal(swn_access_order_record(order, &c, 11), 0);
    assert_int_equal(swn_access_order_record(order, &c, 12), 1);
    assert_int_equal(swn_access_order_record(order, &c, 4), 1);
    assert_int_equal(c.run, 2);
    /* The newest observation wins. */
    assert_int_equal(swn_access_order_next(order, 1, 2), 99);
}

static void tied_weight(void **state)
{
    (void)state;
    static const uint32_t weights[] = {7, 1, 2, 7, 3, 4, 5};
    struct swn_cursor c = {0};
    for (int p = 0; p < 2; p++)
        visit_all(&c, weights, 7);
    for (int p = 0; p < 3; p++)
        assert_int_equal(visit_all(&c, weights, 7), 7);
    uint32_t cycle[16];
    assert_int_equal(swn_access_order_cycle(order, &c, cycle, 16), 7);
    assert_int_equal(swn_access_order_cycle(order, &c, NULL, 7), 7);
    assert_int_equal(swn_access_order_cycle(order, &c, NULL, 6), 0);
    for (size_t i = 0; i < 7; i++)
        assert_int_equal(cycle[i], weights[i]);
}

static void cycle_lengths(void **state)
{
    (void)state;
    static uint32_t weights[300];
    struct swn_cursor c = {0};
    assert_int_equal(swn_access_order_cycle(order, &c, weights, 300), 0);
    for (uint32_t n = 1; n <= 257; n = n * 2 + 1) {
        c = (struct swn_cursor){0};
        pass(&c, n * 1000, n);
        assert_int_equal(swn_access_order_cycle(order, &c, weights, 300), 0); /* one pass is no cycle yet */
        for (int p = 0; p < 3; p++)
            pass(&c, n * 1000, n);
        for (uint32_t k = 0; k < n; k++) {
            assert_int_equal(swn_access_order_cycle(order, &c, weights, 300), n);
            assert_int_equal(weights[n - 1], c.at);
            for (uint32_t i = 0; i < n; i++)
                assert_int_equal(weights[i], n * 1000 + (k + i) % n);
            swn_access_order_record(order, &c, n * 1000 + k);
        }
        assert_int_equal(swn_access_order_cycle(order, &c, weights, n), n);
        assert_int_equal(swn_access_order_cycle(order, &c, weights, n - 1), 0);
        assert_int_equal(swn_access_order_cycle(order, &c, weights, 0), 0);
    }
    /* A chain that runs into a cycle without coming back to where it began ends at `max`. */
    struct swn_cursor tail = {.before = 0, .at = 900001};
    swn_access_order_record(order, &tail, 7000);
    swn_access_order_record(order, &tail, 7001);
    tail = (struct swn_cursor){.before = 900001, .at = 7000};
    assert_int_equal(swn_access_order_cycle(order, &tail, weights, 300), 0);
}

static void forgetting(void **state)
{
    (void)state;
    uint32_t weights[16];
    struct swn_cursor c = {0};
    for (int p = 0; p < 3; p++)
        pass(&c, 1, 8);
    assert_int_equal(swn_access_order_cycle(order, &c, weights, 16), 8);
    swn_access_order_forget(order, 5);
    assert_int_equal(swn_access_order_next(order, 3, 4), 0);
    assert_int_equal(swn_access_order_next(order, 2, 3), 4);
    assert_int_equal(swn_access_order_cycle(order, &c, weights, 16), 0);
    swn_access_order_forget(order, 12345); /* never seen */
    /* The pass without the weight is learned, as any other. */
    static const uint32_t rest[] = {1, 2, 3, 4, 6, 7, 8};
    visit_all(&c, rest, 7);
    assert_int_equal(visit_all(&c, rest, 7), 7);
    assert_int_equal(swn_access_order_cycle(order, &c, weights, 16), 7);
    /* A forgotten step is not found again by growth. */
    struct swn_cursor other = {0};
    pass(&other, 100000, 3000);
    assert_int_equal(swn_access_order_next(order, 3, 4), 6);
    assert_int_equal(swn_access_order_cycle(order, &c, weights, 16), 7);
}

static void growth(void **state)
{
    (void)state;
    const uint32_t n = 100000;
    struct swn_cursor c = {0};
    pass(&c, 1, n);
    pass(&c, 1, n);
    assert_int_equal(pass(&c, 1, n), n);
    uint32_t *weights = malloc(n * sizeof *weights);
    assert_non_null(weights);
    assert_int_equal(swn_access_order_cycle(order, &c, weights, n), n);
    for (uint32_t i = 0; i < n; i++)
        assert_int_equal(weights[i], 1 + i);
    free(weights);
}

/* Steps that never come again go, a habit that is kept up stays, and the table does not grow for ever. */
static void churn(void **state)
{
    (void)state;
    struct swn_cursor habit = {0}, stranger = {0};
    uint32_t fresh = 1000000;
    size_t hits = 0;
    for (int p = 0; p < 3; p++)
        pass(&habit, 1, 50);
    for (int p = 0; p < 400; p++) {
        for (int i = 0; i < 8000; i++)
            swn_access_order_record(order, &stranger, fresh++);
        hits += pass(&habit, 1, 50);
    }
    assert_int_equal(hits, 400 * 50);
}

/* Where one could not be made there is none to destroy. */
static void none(void **state)
{
    (void)state;
    swn_access_order_destroy(NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(straight_cycle, setup, teardown),
        cmocka_unit_test_setup_teardown(chain_across_passes, setup, teardown),
        cmocka_unit_test_setup_teardown(two_models, setup, teardown),
        cmocka_unit_test_setup_teardown(branch_change, setup, teardown),
        cmocka_unit_test_setup_teardown(tied_weight, setup, teardown),
        cmocka_unit_test_setup_teardown(cycle_lengths, setup, teardown),
        cmocka_unit_test_setup_teardown(forgetting, setup, teardown),
        cmocka_unit_test_setup_teardown(growth, setup, teardown),
        cmocka_unit_test_setup_teardown(churn, setup, teardown),
        cmocka_unit_test(none),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
