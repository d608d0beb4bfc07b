/* Description: where the disk or the operators have been others than a plan is for, for long, it is looked at, and made
 * anew if a better one is to be had, less often each time; and where pages go and come back in every pass for what it
 * leaves too little. */
/* wraps: swn_plan_disk swn_now_ns */
#define _GNU_SOURCE
#include "tests/unit/support/engine_fixture.h"
#include "skeleton/budget/demand.h"
#include "skeleton/engine/accounting.h"
#include "skeleton/core/replan.h"
#include "skeleton/core/plan.h"

#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>

#define PASS_NS (uint64_t)300000000
#define SPEED 2.0
/* Weights, of which half fit, and the operator of each; one more is gone. */
#define WEIGHTS 8
#define COMPUTE_NS 4e6
static const size_t mib[WEIGHTS] = {2, 6, 4, 3, 5, 4, 1, 7};
#define TOTAL (32 * MIB)

static struct swn_engine *const e = &swn_engine_one;
static double speed = SPEED;
static uint64_t clock_ns;
static struct swn_range range;
static struct swn_weight all[WEIGHTS + 1];
static uint32_t ids[2 * WEIGHTS]; /* in order, twice */

struct swn_disk_model __wrap_swn_plan_disk(struct swn_engine *engine);
uint64_t __wrap_swn_now_ns(void);
uint64_t __real_swn_now_ns(void);

struct swn_disk_model __wrap_swn_plan_disk(struct swn_engine *engine)
{
    (void)engine;
    return (struct swn_disk_model){.bytes_per_ns = speed, .read_ns = 1e5};
}

uint64_t __wrap_swn_now_ns(void)
{
    return clock_ns ? clock_ns : __real_swn_now_ns();
}

/* After how many passes, of at most this many, there is a review, or a plan. */
static unsigned due_after(unsigned most)
{
    for (unsigned i = 1; i <= most; i++) {
        clock_ns += PASS_NS;
        swn_replan_passed(e);
        CHECK(!e->plan.dirty);
        if (e->plan.replan.review_due)
            return i;
    }
    return 0;
}

static void compute(double ns)
{
    for (unsigned i = 0; i <= WEIGHTS; i++)
        all[i].compute_ns = all[i].range ? ns : 1e12;
}

/* A plan for the machine as it is now, of an order that begins with that weight. */
static void candidate(struct swn_plan_candidate *d, struct swn_plan_weight *planned, unsigned first, int keep)
{
    for (unsigned i = 0; i < WEIGHTS; i++)
        planned[i] =
            (struct swn_plan_weight){.bytes = mib[(first + i) % WEIGHTS] * MIB, .compute_ns = all[0].compute_ns};
    *d = (struct swn_plan_candidate){.ids = ids + first,
                                     .weights = planned,
                                     .n = WEIGHTS,
                                     .goal = TOTAL / 2,
                                     .disk = __wrap_swn_plan_disk(e),
                                     .keep = keep};
    CHECK(swn_plan_candidate_solve(d) == 0);
}

/* Whether a plan is due after a look. The one in force keeps nothing. */
static int look(void)
{
    static struct swn_plan_weight old[WEIGHTS], new[WEIGHTS];
    struct swn_plan_candidate d;
    if (!e->plan.in_force.n)
        candidate(&e->plan.in_force, old, 0, 0);
    candidate(&d, new, 3, 1);
    int outdated = swn_replan_is_due(e, &d);
    CHECK(!outdated || e->plan.dirty);
    CHECK(e->plan.dirty || !e->plan.replan.review_due);
    return outdated;
}

/* A plan is in force for the machine as it is. */
static void adopt(void)
{
    struct swn_plan_candidate d = {.keep = 1, .disk.bytes_per_ns = speed};
    for (unsigned i = 0; i <= WEIGHTS; i++)
        d.plan.compute_ns += all[i].range ? all[i].compute_ns : 0;
    d.plan.streamed_bytes = TOTAL;
    d.goal = TOTAL / 2;
    e->plan.dirty = 0;
    e->plan.short_of_disk = swn_plan_is_short_of_disk(e, &d);
    swn_replan_begin(e, speed);
}

static void begin(void)
{
    CHECK(engine_begin(8 * MIB, SWN_CONFIG_AUTO, NULL) == 0);
    e->weights.all = all;
    e->weights.count = WEIGHTS + 1;
    for (unsigned i = 0; i <= WEIGHTS; i++) {
        all[i] = (struct swn_weight){.id = i + 1, .range = i == 1 ? NULL : &range};
        ids[i ? i - 1 : 0] = i == 1 ? ids[0] : i + 1;
    }
    for (unsigned i = 0; i < WEIGHTS; i++)
        ids[WEIGHTS + i] = ids[i];
    compute(COMPUTE_NS);
    e->plan.planned = 1;
    clock_ns = 1;
    e->plan.replan.plans = 0;
    adopt();
}

/* Activations that were large when the plan was made, and are not any more, leave room for weights. */
static void fewer_activations_are_due_a_plan(void *arg)
{
    (void)arg;
    begin();
    speed = SPEED / 4; /* too slow to read all of them while they are computed with */
    e->nonweight.peak = 4 * MIB;
    adopt();
    /* The peak fades by a sixteenth in each pass; 3.4 MiB are due a look after eight passes more. */
    unsigned passes = due_after(100);
    CHECK(passes > 8 && passes <= 14);
    CHECK(look());
    adopt();
    CHECK(e->plan.replan.nonweight == swn_nonweight_peak(e) && swn_nonweight_peak(e) < 3 * MIB);
}

static void other_disk_is_due_a_plan_ever_later(void *arg)
{
    (void)arg;
    begin();
    CHECK(due_after(100) == 0);
    speed = SPEED * 1.05;
    CHECK(due_after(100) == 0);
    speed = SPEED / 4; /* too slow to read all of them while they are computed with */
    adopt();
    speed = SPEED / 8;
    CHECK(due_after(100) == 8);
    CHECK(look());
    adopt();
    CHECK(due_after(100) == 0);
    speed = SPEED / 4;
    CHECK(due_after(100) == 16); /* the second time it takes longer */
    CHECK(look());
    adopt();
    speed = SPEED / 8;
    CHECK(due_after(31) == 0);
    speed = SPEED / 4; /* one pass as planned: from the beginning */
    CHECK(due_after(1) == 0);
    speed = SPEED / 8;
    CHECK(due_after(100) == 32);
}

/* A plan that is as good as any for the disk as it is now stays, and it is the next change that counts. */
static void plan_that_is_still_best_stays(void *arg)
{
    (void)arg;
    begin();
    speed = SPEED * 2;
    CHECK(due_after(100) == 8);
    CHECK(!look() && !e->plan.dirty);
    CHECK(due_after(100) == 0);
    speed = SPEED * 4;
    CHECK(due_after(100) == 8); /* nothing was made anew for it */
    CHECK(!look());
    e->plan.replan.plans = 2;
    e->plan.replan.unchanged_reviews = 0;
    const double change[] = {8, 4, 8, 4};
    const unsigned due[] = {32, 32, 16, 16}; /* sooner after two in a row */
    for (unsigned i = 0; i < 4; i++) {
        speed = SPEED * change[i];
        CHECK(due_after(100) == due[i]);
        CHECK(!look() && !e->plan.dirty);
    }
    CHECK(e->plan.replan.plans == 0);
    CHECK(!look());
    e->plan.in_force.weights[2].bytes += 4096; /* not the same weights any more */
    CHECK(look() && e->plan.dirty);
    adopt();
    e->plan.in_force.weights[2].bytes -= 4096;
    CHECK(e->plan.replan.plans == 1 && !look() && e->plan.replan.plans == 1); /* that makes one in a row */
    CHECK(!e->plan.dirty);
    e->plan.in_force.n--;
    CHECK(look());
}

/* Passes that are as slow as they were are no reason: the time to be had by another plan is. */
static void slow_passes_alone_are_no_reason(void *arg)
{
    static struct swn_plan_weight old[WEIGHTS];
    (void)arg;
    begin();
    speed = SPEED / 4;
    adopt();
    candidate(&e->plan.in_force, old, 0, 1);
    speed = SPEED / 8;
    CHECK(due_after(100) == 8);
    CHECK(!look() && !e->plan.dirty);
}

/* Operators offer slices of small weights only where a plan says that its passes are short of the disk. */
static void short_of_disk(void *arg)
{
    static struct swn_plan_weight old[WEIGHTS];
    (void)arg;
    begin();
    candidate(&e->plan.in_force, old, 0, 1);
    CHECK(!e->plan.short_of_disk && !look() && !e->plan.dirty);
    speed = SPEED / 8;
    CHECK(!look() && e->plan.dirty); /* the candidate knows nothing of them: one that does is to come */
    CHECK(e->plan.short_of_disk && !e->plan.replan.review_due);
    candidate(&e->plan.in_force, old, 0, 1);
    adopt();
    CHECK(!look() && !e->plan.dirty);
    speed = SPEED * 8;
    CHECK(!look() && e->plan.dirty && !e->plan.short_of_disk);
}

/* What the daemon divides memory by is how the machine is, whatever the plan. */
static void daemon_is_told_how_the_machine_is(void *arg)
{
    struct swn_demand before = {0}, after = {0};
    (void)arg;
    begin();
    CHECK(!look());
    swn_demand_read(&before, 0);
    compute(2 * COMPUTE_NS);
    CHECK(!look());
    swn_demand_read(&after, 0);
    CHECK(after.plans != before.plans && after.latency > 1.9 * before.latency);
}

static void slower_operators_are_due_a_plan(void *arg)
{
    (void)arg;
    begin();
    all[0].compute_ns *= 1.2;
    CHECK(due_after(100) == 0);
    compute(COMPUTE_NS * 1.2);
    CHECK(due_after(100) == 8);
    CHECK(!look() && !e->plan.dirty);
    compute(COMPUTE_NS * 0.45); /* reading all takes longer */
    CHECK(due_after(100) == 8);
    CHECK(look());
    adopt();
    compute(COMPUTE_NS);
    CHECK(due_after(100) == 16);
}

/* Passes that are over at once are no evidence, however many; nor are those in which nothing is where it will be. */
static void short_passes_are_no_evidence(void *arg)
{
    (void)arg;
    begin();
    speed = SPEED * 3;
    for (unsigned i = 0; i < 1000; i++) {
        clock_ns += 900000;
        swn_replan_passed(e);
        CHECK(!e->plan.replan.review_due);
    }
    clock_ns += 200000000;
    swn_replan_passed(e);
    CHECK(e->plan.replan.review_due);
    adopt();
    speed = SPEED * 6; /* from now on, not from when the one before was another */
    for (unsigned i = 0; i < 100; i++) {
        clock_ns += 900000;
        swn_replan_passed(e);
        CHECK(!e->plan.replan.review_due);
    }
    adopt();
    speed = SPEED;
    e->regions.warmup_passes = 1;
    CHECK(due_after(100) == 0);
    e->regions.warmup_passes = e->plan.planned = 0;
    CHECK(due_after(100) == 0);
}

static void too_little_room(void *arg)
{
    (void)arg;
    begin();
    e->nonweight.planned = MIB;
    for (unsigned i = 0; i < 12; i++) {
        e->nonweight.peak = MIB + 1;
        e->counters.dropped += i % 4 != 3; /* not in each pass */
        swn_replan_passed(e);
        CHECK(!e->plan.dirty);
    }
    for (unsigned i = 0; i < 12; i++) {
        e->nonweight.peak = MIB; /* something went, but not for want of room */
        e->counters.dropped += 4096;
        swn_replan_passed(e);
        CHECK(!e->plan.dirty);
    }
    for (unsigned i = 0; i < 4; i++) {
        CHECK(!e->plan.dirty);
        e->nonweight.peak = MIB + 1;
        e->counters.dropped += 4096;
        swn_replan_passed(e);
    }
    CHECK(e->plan.dirty);
}

/* Weights of half a MiB each, of which the budget has room for fewer, or for no activations beside them. */
static void begin_with(struct tensor *weights, unsigned n)
{
    CHECK(engine_begin(12 * MIB, SWN_CONFIG_AUTO, NULL) == 0);
    for (unsigned i = 0; i < n; i++)
        CHECK(tensor_make(&weights[i], MIB / 2, i + 1));
}

/* Where two activations at once leave no room for weights beside the window, the one that an operator is using is
 * written out. What is seen of them is then less than they need: no plan may take the difference for room, pass after
 * pass. */
static void room_for_what_leaves(void *arg)
{
    static struct tensor weights[24];
    (void)arg;
    begin_with(weights, 24);
    uint64_t plans = 0;
    for (unsigned n = 0; n < 60; n++) {
        static const enum swn_use reads[] = {SWN_USE_INPUT};
        struct tensor input, result, *in[] = {&input};
        struct swn_op op;
        CHECK(tensor_make(&input, 5 * MIB, n));
        op_open(&op, in, reads, 1);
        CHECK(tensor_make(&result, 13 * MIB / 2, n));
        op_close(&op);
        CHECK(tensor_right(&input, input.own));
        tensor_free(&result);
        tensor_free(&input);
        for (unsigned i = 0; i < 24; i++)
            op_read(&weights[i]);
        if (n == 29)
            plans = e->plan.made;
    }
    CHECK(plans > 0 && e->plan.made <= plans + 2);
}

/* As operators end: the look is taken, and the plan that it asks for is made. */
static void a_look_in_passing(void *arg)
{
    static struct tensor weights[40];
    (void)arg;
    begin_with(weights, 40);
    uint64_t plans = 0;
    enum { PLANNED, LOOKED_AT, PLANNED_ANEW } seen = PLANNED;
    for (unsigned n = 0; n < 1000 && seen != PLANNED_ANEW; n++) {
        for (unsigned i = 0; i < 40; i++)
            op_read(&weights[i]);
        int settled = e->plan.planned && !e->plan.dirty;
        if (seen == PLANNED && settled) {
            e->plan.replan.review_due = 1;
            seen = LOOKED_AT;
        } else if (seen == LOOKED_AT && !plans && settled && !e->plan.replan.review_due) {
            CHECK(e->plan.in_force.n == 40);
            plans = e->plan.made;
            e->plan.in_force.weights[3].bytes += 4096; /* of other weights */
            e->plan.replan.review_due = 1;
        } else if (plans && e->plan.made > plans) {
            seen = PLANNED_ANEW;
        }
    }
    CHECK(seen == PLANNED_ANEW);
    CHECK(e->plan.in_force.n == 40);
}

IN_A_CHILD(other_disk_is_due_a_plan_ever_later, 60)
IN_A_CHILD(plan_that_is_still_best_stays, 60)
IN_A_CHILD(slow_passes_alone_are_no_reason, 60)
IN_A_CHILD(short_of_disk, 60)
IN_A_CHILD(daemon_is_told_how_the_machine_is, 60)
IN_A_CHILD(slower_operators_are_due_a_plan, 60)
IN_A_CHILD(short_passes_are_no_evidence, 60)
IN_A_CHILD(too_little_room, 60)
IN_A_CHILD(room_for_what_leaves, 60)
IN_A_CHILD(a_look_in_passing, 60)
IN_A_CHILD(fewer_activations_are_due_a_plan, 60)

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_other_disk_is_due_a_plan_ever_later),
        cmocka_unit_test(test_plan_that_is_still_best_stays),
        cmocka_unit_test(test_slow_passes_alone_are_no_reason),
        cmocka_unit_test(test_short_of_disk),
        cmocka_unit_test(test_daemon_is_told_how_the_machine_is),
        cmocka_unit_test(test_slower_operators_are_due_a_plan),
        cmocka_unit_test(test_short_passes_are_no_evidence),
        cmocka_unit_test(test_too_little_room),
        cmocka_unit_test(test_room_for_what_leaves),
        cmocka_unit_test(test_a_look_in_passing),
        cmocka_unit_test(test_fewer_activations_are_due_a_plan),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
