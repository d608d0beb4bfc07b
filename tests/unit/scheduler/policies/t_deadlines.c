/* Description: with deadlines, the fewest requests are late that any segmentation allows, and what policies that drop
 * requests do run is on time. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include <math.h>

#include "scheduler/policies/policy.h"
#include "scheduler/policies/tardy.h"
#include "tests/unit/support/lane_fixture.h"
#include "tests/unit/support/random.h"

#define MOST 7
#define GROUPS 4

static struct swn_lane_decision decision;
static struct lane_scene scene;
static struct swn_tardy_room room;

struct instance {
    struct swn_completion c;
    double time[GROUPS * (MOST + 1)], left[MOST];
    uint32_t bound[GROUPS], group[MOST];
};

static void random_instance(struct instance *x)
{
    memset(x, 0, sizeof *x);
    x->c = (struct swn_completion){.time = x->time, .most = MOST, .group_count = GROUPS, .group = x->group};
    x->c.n = 1 + (uint32_t)rnd_below(MOST);
    for (uint32_t g = 0; g < GROUPS; g++) {
        double a = uniform(0.5, 1.5), load = rnd_below(2) ? uniform(0, 4) : 0;
        for (uint32_t n = 1; n <= MOST; n++)
            x->time[g * (MOST + 1) + n] = a * n > load ? a * n : load;
        x->bound[g] = 2 + (uint32_t)rnd_below(3);
    }
    x->c.bound = rnd_below(2) ? x->bound : NULL;
    for (uint32_t i = 0, top = GROUPS; i < x->c.n; i++) {
        x->group[i] = (uint32_t)rnd_below(top);
        top = x->group[i] + 1;
        x->left[i] = rnd_below(6) ? uniform(1, 30) : INFINITY;
    }
}

/* Which requests have no deadline: they are not dropped if they are in no segment, but wait. */
static unsigned free_of(const struct instance *x)
{
    unsigned free = 0;

    for (uint32_t i = 0; i < x->c.n; i++)
        free |= (unsigned)(x->left[i] > 1e9) << i;
    return free;
}

/* Whether all segments are on time, when requests of `drops` are in none and a segment ends after each of `cuts`. */
static int is_on_time(const struct instance *x, unsigned drops, unsigned cuts)
{
    double now = 0;

    for (uint32_t first = 0, last; first < x->c.n; first = last + 1) {
        struct swn_completion c = x->c;
        uint32_t group[MOST];
        double due = INFINITY;
        c.group = group;
        c.n = 0;
        for (last = first; last < x->c.n; last++) {
            if (!(drops >> last & 1)) {
                group[c.n++] = x->group[last];
                due = x->left[last] < due ? x->left[last] : due;
            }
            if (cuts >> last & 1)
                break;
        }
        now += c.n ? swn_segment_time(&c, 0, c.n - 1) : 0;
        if (now > due)
            return 0;
    }
    return 1;
}

static void fewest_of_all(void **state)
{
    unsigned worse = 0;

    (void)state;
    for (unsigned round = 0; round < rounds_of(150); round++) {
        struct instance x;
        uint32_t segment[MOST], drops, paper, best = MOST + 1, all = MOST + 1;
        unsigned dropped = 0, waiting = 0, cuts = 0, last = 0, free;
        random_instance(&x);
        free = free_of(&x);
        for (unsigned d = 0; d < 1u << x.c.n; d++) {
            uint32_t count = (uint32_t)__builtin_popcount(d & ~free);
            for (unsigned c = 0; (count < best || (!(d & free) && count < all)) && c < 1u << (x.c.n - 1); c++)
                if (is_on_time(&x, d, c)) {
                    best = count < best ? count : best;
                    all = !(d & free) && count < all ? count : all;
                }
        }
        drops = swn_tardy_plan(&x.c, x.left, 0, &room, segment);
        assert_true(drops >= all && (free || drops == best));
        for (uint32_t i = 0; i < x.c.n; i++)
            assert_true(!(free >> i & 1) || segment[i] < SWN_TARDY_WAITS);
        drops = swn_tardy_plan(&x.c, x.left, 1, &room, segment);
        assert_int_equal(drops, best);
        for (uint32_t i = 0; i < x.c.n; i++) {
            dropped |= (unsigned)(segment[i] == SWN_TARDY_DROPPED) << i;
            waiting |= (unsigned)(segment[i] == SWN_TARDY_WAITS) << i;
            if (segment[i] >= SWN_TARDY_WAITS)
                continue;
            assert_true(segment[i] == last || segment[i] == last + 1);
            if (i && segment[i] != last)
                cuts |= 1u << (i - 1);
            last = segment[i];
        }
        assert_int_equal(__builtin_popcount(dropped), drops);
        assert_int_equal(dropped & free, 0);
        assert_true(is_on_time(&x, dropped | waiting, cuts));

        paper = swn_tardy_paper(&x.c, x.left, &room, segment);
        assert_true(paper >= best);
        dropped = 0;
        for (uint32_t i = 0; i < x.c.n; i++)
            dropped += segment[i] == SWN_TARDY_DROPPED;
        assert_int_equal(dropped, paper);
        worse += paper > best;
    }
    assert_true(worse > rounds_of(150) / 30); /* it runs late requests in its plan, and they delay others */
}

/* What a request has left when it has run alone from now on. */
static int64_t spare_ns(const struct swn_lane_request *r)
{
    uint64_t alone = 0;

    for (uint32_t g = r->group; g < scene.models[r->model].group_count; g++) {
        const struct swn_lane_group *group = &scene.groups[r->model][g];
        alone += group->compute_ns > group->missing_bytes ? group->compute_ns : group->missing_bytes;
    }
    return (int64_t)(r->deadline_ns - scene.state.now_ns) - (int64_t)alone;
}

/* Where no request can be on time a policy still runs one, as predicted times may be wrong. These are right: that one
 * counts as dropped, too. */
static void drop_the_last(void)
{
    if (decision.member_count != 1 || decision.dropped_count + 1 != scene.state.request_count)
        return;
    for (uint32_t i = 0; i < scene.state.request_count; i++)
        if (spare_ns(&scene.requests[i]) >= 0)
            return;
    decision.dropped[decision.dropped_count++] = decision.members[--decision.member_count];
}

/* Requests come faster than they can be served. */
static void overload(enum swn_lane_policy policy, uint32_t models)
{
    unsigned coming = 80;

    lane_scene_init(&scene, models, 4, LANE_DISK);
    while (coming || scene.state.request_count) {
        for (; coming && (!scene.state.request_count || rnd_below(2)); coming--)
            lane_scene_add(&scene, (uint32_t)rnd_below(models), 0, scene.state.now_ns,
                           scene.state.now_ns + 5000000 + rnd_below(40000000));
        assert_int_equal(swn_lane_decide(policy, &scene.state, lane_scratch, &decision), 0);
        lane_check(&scene, &decision);
        drop_the_last();
        assert_true(decision.member_count || decision.dropped_count || decision.wake_ns > scene.state.now_ns);
        if (!decision.member_count && !decision.dropped_count)
            scene.state.now_ns = decision.wake_ns;
        lane_apply(&scene, &decision);
    }
    assert_int_equal(scene.ended + scene.drops, 80);
}

static void what_runs_is_on_time(void **state)
{
    static const enum swn_lane_policy policies[] = {SWN_LANE_TARDY, SWN_LANE_EDF, SWN_LANE_NEXUS, SWN_LANE_SYMPHONY};

    (void)state;
    for (unsigned k = 0; k < 4; k++)
        for (unsigned round = 0; round < rounds_of(20); round++) {
            overload(policies[k], 1 + round % 3);
            assert_int_equal(scene.late, 0);
        }
}

/* Looking ahead serves more than a policy that takes one batch after the other, and this more than one by one. */
static void more_are_on_time(void **state)
{
    uint32_t on_time[SWN_LANE_POLICIES] = {0};

    (void)state;
    for (unsigned p = 0; p < SWN_LANE_POLICIES; p++)
        for (unsigned round = 0; round < rounds_of(100); round++) {
            overload(p, 1);
            on_time[p] += scene.ended - scene.late;
        }
    for (unsigned p = 0; p < SWN_LANE_POLICIES; p++)
        print_message("%s: %u of %u on time\n", swn_lane_policy_name(p), on_time[p], 80 * rounds_of(100));
    for (unsigned p = 0; p < SWN_LANE_POLICIES; p++)
        assert_true(on_time[SWN_LANE_TARDY] >= on_time[p]);
    assert_true(on_time[SWN_LANE_TARDY] > on_time[SWN_LANE_EDF] * 1.05);
    assert_true(on_time[SWN_LANE_EDF] > on_time[SWN_LANE_NO_BATCH] * 2);
}

/* Two groups, at 1000. */
static void plain_scene(uint32_t compute, uint32_t missing)
{
    lane_scene_init(&scene, 1, 2, LANE_CPU);
    for (unsigned g = 0; g < 2; g++)
        scene.groups[0][g] = (struct swn_lane_group){.compute_ns = compute, .missing_bytes = missing};
    scene.state.now_ns = 1000;
}

static void decide(enum swn_lane_policy policy)
{
    assert_int_equal(swn_lane_decide(policy, &scene.state, lane_scratch, &decision), 0);
}

static void edf_by_hand(void **state)
{
    (void)state;
    plain_scene(10, 0);
    lane_scene_add(&scene, 0, 0, 900, 1045); /* alone 20, two 40, three 60 */
    lane_scene_add(&scene, 0, 0, 900, 1041);
    lane_scene_add(&scene, 0, 0, 900, 1090);
    lane_scene_add(&scene, 0, 0, 900, 1019); /* late even alone */
    decide(SWN_LANE_EDF);
    assert_int_equal(decision.dropped_count, 1);
    assert_int_equal(decision.dropped[0], 3);
    assert_int_equal(decision.member_count, 2);
    assert_int_equal(decision.members[0], 1);
    assert_int_equal(decision.members[1], 0);
    scene.requests[1].group = 1; /* now both take 10 + 20, and a third 10 more in each group */
    scene.requests[1].deadline_ns = 1029;
    decide(SWN_LANE_EDF);
    assert_int_equal(decision.member_count, 1);
    assert_int_equal(decision.members[0], 1);
    assert_int_equal(decision.group, 1);
}

/* One that is nearly done goes first, as the other one has time for a reading of its own; with less time they share. */
static void tardy_ends_early_what_has_time(void **state)
{
    (void)state;
    plain_scene(10, 15); /* alone 15 in a group, two in lockstep 20 */
    lane_scene_add(&scene, 0, 1, 900, 1091);
    lane_scene_add(&scene, 0, 0, 900, 1091); /* one after the other: 15 and 45, half of what is left; together 35 */
    decide(SWN_LANE_TARDY);
    assert_int_equal(decision.group, 1);
    assert_int_equal(decision.member_count, 1);
    assert_int_equal(decision.members[0], 0);
    scene.requests[1].deadline_ns = 1085;
    decide(SWN_LANE_TARDY);
    assert_int_equal(decision.group, 0);
    assert_int_equal(decision.members[0], 1);
    assert_int_equal(decision.dropped_count, 0);
    scene.state.time_error = 0.5; /* not sure enough, where they may take 53 */
    scene.requests[0].deadline_ns = scene.requests[1].deadline_ns = 1100;
    decide(SWN_LANE_TARDY);
    assert_int_equal(decision.group, 0);
    scene.requests[0].deadline_ns = 1034; /* the batch would make it late */
    decide(SWN_LANE_TARDY);
    assert_int_equal(decision.group, 1);
    assert_int_equal(decision.members[0], 0);
}

/* Of two models without deadlines the one whose requests take longer has its turn once it has waited long enough. */
static void tardy_lets_nobody_wait_without_end(void **state)
{
    (void)state;
    lane_scene_init(&scene, 2, 1, LANE_CPU);
    scene.groups[0][0] = (struct swn_lane_group){.compute_ns = 100};
    scene.groups[1][0] = (struct swn_lane_group){.compute_ns = 5};
    scene.state.now_ns = 100000;
    lane_scene_add(&scene, 0, 0, 99000, 0);
    lane_scene_add(&scene, 1, 0, 99990, 0);
    decide(SWN_LANE_TARDY);
    assert_int_equal(decision.model, 1);
    scene.requests[0].arrived_ns = 100000 - 64 * 100 + 50;
    decide(SWN_LANE_TARDY);
    assert_int_equal(decision.model, 0);
}

/* Predicted times are too long by much, as they are before a group has run or after a first run that was slow. Each run
 * corrects them by a quarter. An idle lane that refused each request would never learn. */
static void too_long_predictions_are_corrected(void **state)
{
    static const enum swn_lane_policy policies[] = {SWN_LANE_TARDY, SWN_LANE_TARDY_PAPER, SWN_LANE_EDF, SWN_LANE_NEXUS,
                                                    SWN_LANE_SYMPHONY};

    (void)state;
    for (unsigned k = 0; k < sizeof policies / sizeof *policies; k++) {
        unsigned ran = 0;
        plain_scene(400, 0); /* it takes 10 */
        for (unsigned i = 0; i < 40; i++) {
            scene.state.request_count = 0;
            lane_scene_add(&scene, 0, 0, scene.state.now_ns, scene.state.now_ns + 100);
            decide(policies[k]);
            if (!decision.member_count && decision.wake_ns) {
                scene.state.now_ns = decision.wake_ns; /* symphony begins as late as it can */
                decide(policies[k]);
            }
            ran += decision.member_count;
            for (unsigned g = 0; decision.member_count && g < 2; g++)
                scene.groups[0][g].compute_ns -= (scene.groups[0][g].compute_ns - 10) / 4;
        }
        assert_int_equal(ran, 40);
        assert_true(scene.groups[0][0].compute_ns < 15);
    }
}

/* The one that misses its deadline by the least runs; none whose deadline has passed. */
static void of_all_that_would_be_late_one_runs(void **state)
{
    (void)state;
    plain_scene(10, 0);
    lane_scene_add(&scene, 0, 0, 900, 1015);
    lane_scene_add(&scene, 0, 1, 900, 1008);
    lane_scene_add(&scene, 0, 0, 900, 1000);
    decide(SWN_LANE_EDF);
    assert_int_equal(decision.member_count, 1);
    assert_int_equal(decision.members[0], 1);
    assert_int_equal(decision.group, 1);
    assert_int_equal(decision.dropped_count, 2);
    lane_scene_add(&scene, 0, 0, 900, 1020); /* this one can be on time, so that others only keep it waiting */
    decide(SWN_LANE_EDF);
    assert_int_equal(decision.member_count, 1);
    assert_int_equal(decision.members[0], 3);
    assert_int_equal(decision.dropped_count, 3);
    scene.state.now_ns = 1020;
    decide(SWN_LANE_EDF);
    assert_int_equal(decision.member_count, 0);
    assert_int_equal(decision.dropped_count, 4);
}

/* Two together take as long as one after the other, four take 12, as one joined run. The plan omitted the first one,
 * with whom the others would be late, and it was dropped. */
static void who_has_no_deadline_waits(void **state)
{
    static const uint64_t curve[] = {10, 20, 30, 12};

    (void)state;
    for (unsigned left = 40; left < 260; left += 5)
        for (unsigned n = 3; n < 6; n++) {
            plain_scene(10, 0);
            scene.groups[0][0].batch_ns = curve;
            scene.groups[0][0].batch_count = 4;
            scene.groups[0][1].compute_ns = 30;
            scene.state.time_error = 0.25;
            lane_scene_add(&scene, 0, 1, 999, 0);
            for (unsigned i = 1; i < n; i++)
                lane_scene_add(&scene, 0, 0, 999, 1000 + left);
            decide(SWN_LANE_TARDY);
            lane_check(&scene, &decision);
        }
}

/* It is omitted while others would be late because of it; but not once it has waited 64 times its own time. */
static void who_has_no_deadline_has_a_turn(void **state)
{
    (void)state;
    plain_scene(10, 0); /* alone 20, and 10 for the first one; three in lockstep 10 + 60 */
    scene.models[0].group_count = 2;
    lane_scene_add(&scene, 0, 1, 999, 0);
    lane_scene_add(&scene, 0, 0, 999, 1025);
    decide(SWN_LANE_TARDY);
    lane_check(&scene, &decision);
    assert_int_equal(decision.dropped_count, 0);
    assert_int_equal(decision.members[0], 1);
    scene.state.now_ns += 100000;
    scene.requests[1].deadline_ns += 100000;
    decide(SWN_LANE_TARDY);
    lane_check(&scene, &decision);
    assert_int_equal(decision.members[0], 0);
}

/* Whatever the times of batches: random curves, which may fall, some of a few requests with little time. */
static void nobody_without_a_deadline_is_dropped(void **state)
{
    static uint64_t curves[4][8];

    (void)state;
    for (unsigned round = 0; round < rounds_of(3000); round++) {
        lane_scene_init(&scene, 1 + round % 2, 2, LANE_DISK);
        scene.state.time_error = 0.25;
        scene.state.batch_most = (uint32_t)rnd_below(6);
        for (unsigned g = 0; g < 4; g++) {
            for (unsigned n = 0; n < 8; n++)
                curves[g][n] = 100000 + rnd_below(4000000);
            scene.groups[g / 2][g % 2].batch_ns = rnd_below(3) ? curves[g] : NULL;
            scene.groups[g / 2][g % 2].batch_count = 8;
        }
        for (unsigned n = 2 + (unsigned)rnd_below(10); n; n--) {
            uint64_t deadline = rnd_below(3) ? scene.state.now_ns + 1000000 + rnd_below(20000000) : 0;
            lane_scene_add(&scene, (uint32_t)rnd_below(scene.state.model_count), (uint32_t)rnd_below(2),
                           scene.state.now_ns - rnd_below(20000000), deadline);
        }
        for (unsigned p = 0; p < SWN_LANE_POLICIES; p++) {
            decide(p);
            lane_check(&scene, &decision);
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(fewest_of_all),
        cmocka_unit_test(what_runs_is_on_time),
        cmocka_unit_test(more_are_on_time),
        cmocka_unit_test(edf_by_hand),
        cmocka_unit_test(who_has_no_deadline_waits),
        cmocka_unit_test(who_has_no_deadline_has_a_turn),
        cmocka_unit_test(nobody_without_a_deadline_is_dropped),
        cmocka_unit_test(too_long_predictions_are_corrected),
        cmocka_unit_test(of_all_that_would_be_late_one_runs),
        cmocka_unit_test(tardy_ends_early_what_has_time),
        cmocka_unit_test(tardy_lets_nobody_wait_without_end),
    };
    return cmocka_run_group_tests(tests, lane_scratch_make, lane_scratch_done);
}
