/* Description: what watching operators costs is not mistaken for how passes vary. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "swn_random.h"
#include "swn_unwatch.h"

#define PASS_NS 20e6
#define ROUNDS 200

/* Passes that take up to `spread` of it longer than `ns`. */
static void fill(struct swn_times *t, unsigned n, double ns, double spread)
{
    *t = (struct swn_times){0};
    for (unsigned i = 0; i < n; i++)
        swn_times_add(t, ns * (1 + uniform(0, spread)));
}

/* In how many of ROUNDS there is a cost, where the hook takes `part` of a pass. */
static unsigned seen(unsigned n, double part, double spread)
{
    unsigned count = 0;
    for (unsigned i = 0; i < ROUNDS; i++) {
        struct swn_unwatch u = {0};
        fill(&u.watched, n, PASS_NS * (1 + part), spread);
        fill(&u.unwatched, n, PASS_NS, spread);
        count += swn_unwatch_cost(&u) > 0;
    }
    return count;
}

static void noise_is_no_cost(void **state)
{
    (void)state;
    for (unsigned n = 8; n <= 40; n *= 2) {
        assert_true(seen(n, 0, 0.02) < ROUNDS / 8);
        assert_true(seen(n, 0, 0.4) < ROUNDS / 8);
    }
}

static void a_cost_is_seen_where_passes_are_alike(void **state)
{
    (void)state;
    assert_true(seen(32, 0.05, 0.02) > ROUNDS - ROUNDS / 8);
    assert_true(seen(32, 0.02, 0.01) > ROUNDS - ROUNDS / 8);
    assert_true(seen(32, 0.05, 0.4) < ROUNDS / 2); /* who would know */
}

static void how_much_it_is(void **state)
{
    (void)state;
    struct swn_unwatch u = {0};
    assert_true(swn_unwatch_cost(&u) < 0);
    fill(&u.watched, 32, PASS_NS * 1.1, 0);
    assert_true(swn_unwatch_cost(&u) < 0);
    fill(&u.unwatched, 32, PASS_NS, 0);
    double cost = swn_unwatch_cost(&u);
    assert_true(cost > 0.0019 && cost < 0.0021);
    fill(&u.unwatched, 32, PASS_NS * 1.2, 0);
    assert_true(swn_unwatch_cost(&u) >= 0 && swn_unwatch_cost(&u) <= 0);
    fill(&u.watched, 32, PASS_NS * 2, 0); /* that is something else */
    assert_true(swn_unwatch_cost(&u) < 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(noise_is_no_cost),
        cmocka_unit_test(a_cost_is_seen_where_passes_are_alike),
        cmocka_unit_test(how_much_it_is),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
