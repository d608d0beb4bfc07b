/* Description: requests of models that begin alike share the reading of what they have in common, where that is worth
 * it, and the result is near the best of all schedules. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "scheduler/policies/policy.h"
#include "tests/unit/support/lane_fixture.h"
#include "tests/unit/support/random.h"

#define GROUPS 3
#define MOST 5

static struct swn_lane_decision decision;
static struct lane_scene scene;

/* Two models, the first `common` groups of which are the same. */
static void init(uint32_t common, enum lane_family family)
{
    lane_scene_init(&scene, 2, GROUPS, family);
    for (uint32_t g = 0; g < common; g++) {
        scene.groups[0][g].identity = 100 + g;
        scene.groups[1][g] = scene.groups[0][g];
    }
}

static uint32_t members(enum swn_lane_policy policy)
{
    assert_int_equal(swn_lane_decide(policy, &scene.state, lane_scratch, &decision), 0);
    lane_check(&scene, &decision);
    return decision.member_count;
}

static void who_rides_along(void **state)
{
    (void)state;
    for (unsigned p = SWN_LANE_COMPLETION; p <= SWN_LANE_EXACT; p++) {
        init(2, LANE_DISK);
        for (unsigned g = 0; g < GROUPS; g++) /* reading takes as long as computing for four */
            scene.groups[0][g].missing_bytes = scene.groups[1][g].missing_bytes = 4 * scene.groups[0][g].compute_ns;
        lane_scene_add(&scene, 0, 1, scene.state.now_ns, 0);
        lane_scene_add(&scene, 1, 1, scene.state.now_ns, 0);
        assert_int_equal(members(p), 2);
        scene.groups[1][0].identity = 7; /* the same group behind another one is another node */
        assert_int_equal(members(p), 1);
        scene.groups[1][0].identity = scene.groups[0][0].identity = 0;
        assert_int_equal(members(p), 1);
        scene.groups[1][0].identity = scene.groups[0][0].identity = 100;
        scene.requests[0].group = scene.requests[1].group = 2; /* beyond the boundary */
        assert_int_equal(members(p), 1);
        scene.requests[0].group = scene.requests[1].group = 1;
        scene.groups[0][1].missing_bytes = scene.groups[1][1].missing_bytes = 0; /* nothing to share */
        assert_int_equal(members(p), 1);
    }
}

static void within_bound_and_memory(void **state)
{
    (void)state;
    init(2, LANE_DISK);
    for (unsigned g = 0; g < GROUPS; g++)
        for (unsigned m = 0; m < 2; m++) {
            scene.groups[m][g].missing_bytes = 100 * scene.groups[0][g].compute_ns;
            scene.groups[m][g].weight_bytes = 1000;
            scene.groups[m][g].activation_bytes = 100;
            scene.groups[m][g].state_bytes = g ? 50 : 0;
        }
    for (unsigned i = 0; i < 10; i++)
        lane_scene_add(&scene, i % 2, 0, scene.state.now_ns, 0);
    assert_int_equal(members(SWN_LANE_COMPLETION), 10);
    scene.state.batch_most = 7;
    assert_int_equal(members(SWN_LANE_COMPLETION), 7);
    scene.state.batch_most = 0;
    scene.state.memory_bytes = 1100 + 7 * 50; /* one runs, seven are set aside: weights count once */
    assert_int_equal(members(SWN_LANE_COMPLETION), 8);
}

/* The least waiting time of all from these positions on, by trying every set of requests that are at one node. */
static double best[1 << 10];

static double least(const uint32_t *at, uint32_t n)
{
    uint32_t key = 0, left = 0;
    double found = 1e300;

    for (uint32_t i = 0; i < n; i++) {
        key = key << 2 | at[i];
        left += at[i] < GROUPS;
    }
    if (!left)
        return 0;
    if (best[key] > 0)
        return best[key];
    for (unsigned set = 1; set < 1u << n; set++) {
        const struct swn_lane_group *g = NULL;
        uint32_t next[MOST], k = 0, model = 0, group = 0, fits = 1;
        for (uint32_t i = 0; i < n && fits; i++) {
            next[i] = at[i];
            if (!(set >> i & 1))
                continue;
            if (at[i] == GROUPS || (g && (at[i] != group || (scene.requests[i].model != model && !g->identity)))) {
                fits = 0;
                break;
            }
            group = at[i];
            model = scene.requests[i].model;
            g = &scene.groups[model][group];
            next[i]++;
            k++;
        }
        if (!fits || !g)
            continue;
        double compute = (double)g->compute_ns * k, reading = (double)g->missing_bytes;
        double cost = left * (compute > reading ? compute : reading) + least(next, n);
        found = cost < found ? cost : found;
    }
    best[key] = found;
    return found;
}

static double total_wait(void)
{
    double sum = 0;

    while (scene.state.request_count) {
        uint64_t before = scene.state.now_ns;
        uint32_t n = scene.state.request_count;
        for (uint32_t i = 0; i < n; i++)
            scene.requests[i].arrived_ns = before;
        members(SWN_LANE_COMPLETION);
        lane_apply(&scene, &decision);
        sum += n * (double)(scene.state.now_ns - before);
    }
    return sum;
}

static void near_the_best(void **state)
{
    double mean = 0, apart = 0;

    (void)state;
    for (unsigned round = 0; round < 150; round++) {
        static struct lane_scene copy;
        uint32_t at[MOST], n;
        double optimum, ratio;
        init(2, LANE_DISK);
        lane_scene_fill(&scene, 3 + (uint32_t)rnd_below(MOST - 2));
        n = scene.state.request_count;
        for (uint32_t i = 0; i < n; i++)
            at[i] = scene.requests[i].group;
        memset(best, 0, sizeof best);
        optimum = least(at, n);
        copy = scene;
        ratio = total_wait() / optimum;
        assert_true(ratio > 1 - 1e-6 && ratio < 1.5);
        mean += ratio / 150;
        scene = copy;
        for (uint32_t g = 0; g < GROUPS; g++)
            scene.groups[0][g].identity = scene.groups[1][g].identity = 0;
        apart += total_wait() / optimum / 150;
    }
    print_message("over the best: %.3f with common groups, %.3f without\n", mean, apart);
    assert_true(mean < 1.03 && apart > mean + 0.02);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(who_rides_along),
        cmocka_unit_test(within_bound_and_memory),
        cmocka_unit_test(near_the_best),
    };
    return cmocka_run_group_tests(tests, lane_scratch_make, lane_scratch_done);
}
