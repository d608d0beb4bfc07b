/* Description: what watching operators costs is not mistaken for how passes vary. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "tests/unit/support/random.h"
#include "skeleton/observe/hook_baseline.h"

#define PASS_NS 20e6
#define ROUNDS 200

/* Passes that take up to `spread` of it longer than `ns`. */
static void fill(struct swn_times *t, unsigned n, double ns, double spread)
{
    *t = (struct swn_times){0};
    for (unsigned i = 0; i < n; i++)
        swn_times_add(t, ns * (1 + uniform(0, spread)));
}

/* What seems to be the cost on average of ROUNDS, as a part of a pass, where the hook takes `part` of it. */
static double seen(unsigned n, double part, double spread)
{
    double sum = 0;
    for (unsigned i = 0; i < ROUNDS; i++) {
        struct swn_hook_baseline u = {0};
        fill(&u.watched, n, PASS_NS * (1 + part), spread);
        fill(&u.unwatched, n, PASS_NS, spread);
        sum += swn_hook_baseline_cost(&u);
    }
    return sum / ROUNDS / (PASS_NS / 1e9);
}

/* The positive half of a difference of medians alone would be 0.4 of its standard error on average. */
static void noise_is_hardly_any_cost(void **state)
{
    (void)state;
    for (unsigned n = 4; n <= 32; n *= 2) {
        assert_true(seen(n, 0, 0.02) < 0.01 * 0.25);
        assert_true(seen(n, 0, 0.2) < 0.1 * 0.25);
    }
}

static void a_cost_is_seen(void **state)
{
    (void)state;
    double alike = seen(32, 0.05, 0.02), varied = seen(32, 0.05, 0.1), wild = seen(32, 0.05, 0.3);
    assert_true(alike > 0.049 && alike < 0.052);
    assert_true(varied > 0.04 && varied < 0.053);
    assert_true(wild > 0.01 && wild < 0.06);
}

static void how_much_it_is(void **state)
{
    (void)state;
    struct swn_hook_baseline u = {0};
    assert_true(swn_hook_baseline_cost(&u) < 0);
    fill(&u.watched, 32, PASS_NS * 1.1, 0);
    assert_true(swn_hook_baseline_cost(&u) < 0);
    fill(&u.unwatched, 32, PASS_NS, 0);
    double cost = swn_hook_baseline_cost(&u);
    assert_true(cost > 0.0019 && cost < 0.0021);
    fill(&u.unwatched, 32, PASS_NS * 1.2, 0);
    assert_true(swn_hook_baseline_cost(&u) >= 0 && swn_hook_baseline_cost(&u) <= 0);
    fill(&u.watched, 32, PASS_NS * 2, 0); /* that is something else */
    assert_true(swn_hook_baseline_cost(&u) < 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(noise_is_hardly_any_cost),
        cmocka_unit_test(a_cost_is_seen),
        cmocka_unit_test(how_much_it_is),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
