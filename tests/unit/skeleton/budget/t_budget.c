/* Description: the budget of an engine that computes, idles, or stands still changes: bits stay what they are, and what
 * was acknowledged holds. */
/* wraps: swn_plan_candidate_solve */
#define _GNU_SOURCE
#include "tests/unit/support/engine_fixture.h"
#include "skeleton/core/residency_steps.h"
#include "skeleton/core/retire.h"
#include "skeleton/engine/accounting.h"

#include <errno.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>

#include <cmocka.h>

#define WEIGHTS 48
#define WEIGHT_BYTES ((size_t)512 << 10)
#define ALL (WEIGHTS * WEIGHT_BYTES)

static struct tensor weights[WEIGHTS];
static struct swn_engine *const e = &swn_engine_one;
static _Atomic int stop;
static _Atomic unsigned long passes_done;

static void make_weights(void)
{
    for (unsigned i = 0; i < WEIGHTS; i++)
        CHECK(tensor_make(&weights[i], WEIGHT_BYTES, i + 1));
}

static void pass(void)
{
    struct tensor before = {0}, now;
    for (unsigned i = 0; i < WEIGHTS; i++, before = now) {
        CHECK(tensor_make(&now, (size_t)(1 + i % 7) << 16, i));
        op_read(&weights[i]);
        if (before.own)
            tensor_free(&before);
    }
    tensor_free(&before);
    passes_done++;
}

static void *infer(void *unused)
{
    while (!stop)
        pass();
    return unused;
}

/* What counts, against the limit that was acknowledged; both at one moment. */
static void check_bound(uint64_t budget)
{
    pthread_mutex_lock(&e->lock);
    size_t now = swn_engine_resident(e);
    uint64_t limit = e->budget.limit, goal = e->budget.target;
    pthread_mutex_unlock(&e->lock);
    CHECK(goal == budget);
    CHECK(limit == budget);
    CHECK(now <= budget);
}

static void set(uint64_t bytes)
{
    struct swn_budget_change change;
    CHECK(swn_engine_set_budget(bytes, 20000, &change) == 0);
    CHECK(change.bound && change.budget_bytes == bytes);
    check_bound(bytes);
}

/* The budget changes while operators compute. */
static void random_walk(void *arg)
{
    (void)arg;
    uint64_t chance = 88172645463325252ULL;
    CHECK(engine_begin(12 * MIB, SWN_CONFIG_AUTO, NULL) == 0);
    make_weights();
    for (unsigned i = 0; i < 6; i++)
        pass();
    pthread_t thread;
    CHECK(pthread_create(&thread, NULL, infer, NULL) == 0);
    for (unsigned i = 0; i < 150; i++) {
        uint64_t budget = 10 * MIB + next_random(&chance) % (30 * MIB);
        set(budget);
        for (unsigned k = 0; k < 5; k++) {
            usleep(1000);
            check_bound(budget);
        }
    }
    unsigned long before = passes_done;
    for (unsigned i = 0; i < 2000 && passes_done < before + 3; i++)
        usleep(10000); /* inference went on, and goes on */
    CHECK(passes_done >= before + 3);
    stop = 1;
    pthread_join(thread, NULL);
    CHECK(engine_counters().over_budget_peak == 0);
    for (unsigned i = 0; i < WEIGHTS; i++) {
        CHECK(tensor_right(&weights[i], weights[i].own));
        tensor_free(&weights[i]);
    }
    engine_is_empty();
}

static void pass_until_settled(void)
{
    uint64_t plans = e->plan.made;
    for (unsigned same = 0; same < 40; same = e->plan.made == plans ? same + 1 : 0, plans = e->plan.made)
        pass();
}

/* Invariant 12: nobody computes; the engine's own thread does it. Also from the state in which nothing was spilled. */
static void idle_process_shrinks(void *arg)
{
    (void)arg;
    CHECK(engine_begin(64 * MIB, SWN_CONFIG_AUTO, NULL) == 0);
    make_weights();
    CHECK(!e->pool);
    set(9 * MIB);
    struct swn_stats stats;
    swn_engine_stats(&stats);
    CHECK(stats.budget_bytes == 9 * MIB && stats.spilled_bytes >= ALL - 9 * MIB);
    for (unsigned i = 0; i < 8; i++)
        pass();
    check_bound(9 * MIB);
    set(64 * MIB); /* grows: everything comes to stay again */
    for (unsigned i = 0; i < 40; i++)
        pass();
    swn_engine_stats(&stats);
    uint64_t before = stats.streamed_bytes;
    for (unsigned i = 0; i < 4; i++)
        pass();
    swn_engine_stats(&stats);
    CHECK(stats.streamed_bytes == before);
    set(9 * MIB); /* kept weights whose bytes are on the disk go without a write */
    uint64_t written = stats.spilled_bytes;
    swn_engine_stats(&stats);
    CHECK(stats.spilled_bytes < written + ALL / 2);
}

/* It grows until all fits, while an operator has a chunk of the window: that stays where it is, and so does every
 * weight in the end. */
static void grows_past_the_window(void *arg)
{
    (void)arg;
    static const enum swn_use uses[] = {SWN_USE_WEIGHT};
    CHECK(engine_begin(12 * MIB, SWN_CONFIG_AUTO, NULL) == 0);
    make_weights();
    pass_until_settled();
    struct tensor *streamed = NULL;
    for (unsigned i = 0; i < WEIGHTS && !streamed; i++)
        if (tensor_streams(&weights[i]))
            streamed = &weights[i];
    CHECK(streamed && swn_pool_ring(e->pool) > 0);
    struct swn_op op;
    op_open(&op, &streamed, uses, 1);
    CHECK(tensor_right(streamed, (uintptr_t)streamed->word));
    set(64 * MIB);
    CHECK(tensor_right(streamed, (uintptr_t)streamed->word));
    op_close(&op);
    for (unsigned i = 0; i < 8; i++)
        pass();
    CHECK(!swn_pool_ring(e->pool));
    struct swn_stats before, after;
    swn_engine_stats(&before);
    for (unsigned i = 0; i < 4; i++)
        pass();
    swn_engine_stats(&after);
    CHECK(after.streamed_bytes == before.streamed_bytes);
    CHECK(after.window_misses == before.window_misses);
    CHECK(after.resident_bytes >= ALL);
}

/* An operator that has begun and does not end holds what it uses, nothing else; the change is bound when it ends. */
static void operator_that_stands_still(void *arg)
{
    (void)arg;
    static const enum swn_use uses[] = {SWN_USE_WRITE};
    CHECK(engine_begin(64 * MIB, SWN_CONFIG_AUTO, NULL) == 0);
    make_weights();
    struct tensor big, *in[] = {&big};
    CHECK(tensor_make(&big, 20 * MIB, 7));
    struct swn_op op;
    op_open(&op, in, uses, 1); /* pinned: it is being written */
    struct swn_budget_change change;
    CHECK(swn_engine_set_budget(12 * MIB, 300, &change) == -EAGAIN);
    CHECK(!change.bound && change.budget_bytes == 12 * MIB);
    struct swn_stats stats;
    for (unsigned i = 0; i < 3000; i++) { /* all that can go goes */
        swn_engine_stats(&stats);
        if (stats.resident_bytes <= 20 * MIB + 8 * MIB)
            break;
        usleep(10000);
    }
    CHECK(!strcmp(stats.state, "shrinking"));
    CHECK(stats.resident_bytes <= 20 * MIB + 8 * MIB);
    CHECK(stats.in_flight_ns == 0 && stats.budget_since_ns);
    uint64_t until = swn_now_ns();
    op_close(&op);
    swn_engine_stats(&stats);
    CHECK(stats.in_flight_ns >= until);
    CHECK(swn_engine_set_budget(12 * MIB, 20000, &change) == 0);
    check_bound(12 * MIB);
    CHECK(tensor_right(&big, big.own));
    set(14 * MIB);
    op_open(&op, in, uses, 1); /* begun later */
    swn_engine_stats(&stats);
    CHECK(!strcmp(stats.state, "running"));
    CHECK(stats.in_flight_ns == stats.budget_since_ns);
    op_close(&op);
}

/* While a change is on its way nobody was promised the new limit, but the old one was. */
static void above_the_old_limit_too(void *arg)
{
    (void)arg;
    static const enum swn_use uses[] = {SWN_USE_WRITE, SWN_USE_WRITE};
    struct tensor first, second, third, *in[] = {&first, &second};
    struct swn_budget_change change;
    struct swn_op op, other;
    CHECK(engine_begin(28 * MIB, SWN_CONFIG_AUTO, NULL) == 0);
    CHECK(tensor_make(&first, 16 * MIB, 1));
    op_open(&op, in, uses, 1);
    CHECK(swn_engine_set_budget(12 * MIB, 100, &change) == -EAGAIN);
    CHECK(tensor_make(&second, 6 * MIB, 2));
    op_open(&other, in + 1, uses, 1);
    CHECK(e->budget.target < e->budget.limit && !engine_counters().over_budget_peak);
    CHECK(swn_engine_set_budget(10 * MIB, 0, &change) == -EAGAIN); /* still on its way from the first */
    e->config.strict = 1;
    CHECK(!tensor_make(&third, 10 * MIB, 3)); /* 32 MiB, and the window */
    CHECK(engine_counters().over_budget_peak >= 4 * MIB && engine_counters().over_budget_peak < 12 * MIB);
    e->config.strict = 0;
    CHECK(tensor_make(&third, 10 * MIB, 3));
    op_close(&op);
    op_close(&other);
    CHECK(swn_engine_set_budget(10 * MIB, 20000, &change) == 0);
    CHECK(tensor_right(&first, first.own) && tensor_right(&second, second.own) && tensor_right(&third, third.own));
}

/* The budget shrinks and grows while a model is built whose weights are being written behind: what is on its way out
 * counts until it has left. */
static void changes_while_weights_leave(void *arg)
{
    (void)arg;
    uint64_t budget = 16 * MIB;
    CHECK(engine_begin(budget, SWN_CONFIG_AUTO, NULL) == 0);
    for (unsigned i = 0; i < 2 * WEIGHTS; i++) {
        struct tensor *t = &weights[i % WEIGHTS];
        if (t->own)
            tensor_free(t);
        CHECK(tensor_make(t, WEIGHT_BYTES, i + 1));
        check_bound(budget);
        if (i % 8 == 7)
            set(budget = i % 16 == 7 ? 9 * MIB : 14 * MIB);
    }
    CHECK(e->writes.behind); /* which there is once something has been */
    CHECK(engine_counters().over_budget_peak == 0);
    for (unsigned i = 0; i < WEIGHTS; i++) {
        CHECK(tensor_right(&weights[i], weights[i].own));
        tensor_free(&weights[i]);
    }
    engine_is_empty();
}

/* Refused, the minimum is stated, and what was in force stays. */
static void below_the_minimum(void *arg)
{
    (void)arg;
    CHECK(engine_begin(14 * MIB, SWN_CONFIG_AUTO, NULL) == 0);
    make_weights();
    struct tensor cache; /* working memory that is no weight */
    CHECK(tensor_make(&cache, 6 * MIB, 1));
    struct swn_budget_change change;
    CHECK(swn_engine_set_budget(MIB, 1000, &change) == -ERANGE);
    CHECK(change.minimum_bytes == 8 * MIB && change.budget_bytes == 14 * MIB);
    for (unsigned i = 0; i < 16; i++)
        pass();
    CHECK(e->plan.planned);
    static const enum swn_use reads[] = {SWN_USE_WRITE};
    struct tensor *in[] = {&cache};
    struct swn_op op;
    op_open(&op, in, reads, 1);
    op_close(&op);
    for (unsigned i = 0; i < 16; i++)
        pass();
    unsigned refused = 0;
    for (uint64_t bytes = 0; bytes <= 14 * MIB; bytes += MIB) {
        /* Idle it may leave, and the minimum sinks from pass to pass. */
        op_open(&op, in, reads, 1);
        op_close(&op);
        int err = swn_engine_set_budget(bytes, 20000, &change);
        CHECK(err == 0 || err == -ERANGE);
        CHECK((err == 0) == (bytes >= change.minimum_bytes) || bytes == change.budget_bytes);
        refused += err == -ERANGE;
        check_bound(change.budget_bytes);
        pass();
    }
    CHECK(refused >= 8);
}

/* What happens while the budget's thread makes its plan without the lock. */
static enum { NOTHING, A_CHANGE, A_NEWER_PLAN, AN_END } meanwhile;
static unsigned replanned;
static _Atomic int locks_nothing; /* an emulator */

int __real_swn_plan_candidate_solve(struct swn_plan_candidate *d);
int __wrap_swn_plan_candidate_solve(struct swn_plan_candidate *d);
int __wrap_swn_plan_candidate_solve(struct swn_plan_candidate *d)
{
    pthread_mutex_lock(&e->lock);
    replanned++;
    if (meanwhile == A_CHANGE)
        e->plan.dirty = 1;
    if (meanwhile == A_NEWER_PLAN) {
        e->plan.made++;
        e->nonweight.planned = 12345;
    }
    pthread_mutex_unlock(&e->lock);
    if (meanwhile == AN_END) {
        swn_retire_for_lock(MCL_CURRENT);
        locks_nothing = !atomic_load(&e->life.retired);
    }
    return __real_swn_plan_candidate_solve(d);
}

static int dirty(void)
{
    pthread_mutex_lock(&e->lock);
    int now = e->plan.dirty;
    pthread_mutex_unlock(&e->lock);
    return now;
}

static int has_pool(void)
{
    pthread_mutex_lock(&e->lock);
    int now = e->pool != NULL;
    pthread_mutex_unlock(&e->lock);
    return now;
}

/* A weight that comes or goes while the plan for another budget is made is not in it: the next operators plan anew. And
 * where they have done so already, theirs stays. */
static void changes_while_a_plan_is_made(void *arg)
{
    (void)arg;
    CHECK(engine_begin(16 * MIB, SWN_CONFIG_AUTO, NULL) == 0);
    make_weights();
    for (unsigned i = 0; i < 16; i++)
        pass();
    pass_until_settled();
    set(15 * MIB);
    CHECK(replanned == 1);
    pass_until_settled();
    CHECK(!dirty());
    meanwhile = A_CHANGE;
    set(14 * MIB);
    CHECK(replanned == 2 && dirty());
    uint64_t before = e->plan.made;
    pass_until_settled();
    CHECK(e->plan.made > before && !dirty());
    meanwhile = A_NEWER_PLAN;
    set(13 * MIB);
    CHECK(replanned == 3 && e->nonweight.planned == 12345);
}

/* A program that locks its memory at that moment has no pool any more, and no plan. */
static void retires_while_a_plan_is_made(void *arg)
{
    (void)arg;
    CHECK(engine_begin(16 * MIB, SWN_CONFIG_AUTO, NULL) == 0);
    make_weights();
    for (unsigned i = 0; i < 16; i++)
        pass();
    pass_until_settled();
    meanwhile = AN_END;
    struct swn_budget_change change;
    swn_engine_set_budget(15 * MIB, 500, &change); /* to which nothing can shrink now */
    while (has_pool() && !locks_nothing)
        usleep(1000);
    if (locks_nothing)
        return;
    swn_engine_set_budget(14 * MIB, 500, &change); /* begins when the plan has been refused */
    CHECK(replanned == 1 && !e->plan.planned);
    for (unsigned i = 0; i < WEIGHTS; i++)
        op_read(&weights[i]);
}

/* A larger budget counts at once. The answer waits for the plan for it all the same, and says how long that took. */
static void plan_for_a_larger_budget(void *arg)
{
    (void)arg;
    struct swn_budget_change change;
    struct swn_stats stats;
    CHECK(engine_begin(12 * MIB, SWN_CONFIG_AUTO, NULL) == 0);
    make_weights();
    for (unsigned i = 0; i < 16; i++)
        pass();
    pass_until_settled();
    swn_engine_stats(&stats);
    CHECK(stats.plan_budget_bytes == 12 * MIB && stats.bound_ns == 0 && stats.budget_since_ns == 0);
    for (uint64_t budget = 13 * MIB; budget < 18 * MIB; budget += MIB) {
        uint64_t begin = swn_now_ns();
        CHECK(swn_engine_set_budget(budget, 20000, &change) == 0 && change.bound);
        swn_engine_stats(&stats);
        CHECK(stats.budget_bytes == budget && stats.plan_budget_bytes == budget);
        CHECK(stats.budget_since_ns >= begin && stats.bound_ns >= stats.budget_since_ns);
        CHECK(stats.plan_since_ns >= stats.bound_ns);
        CHECK(change.took_ns >= stats.plan_since_ns - stats.bound_ns);
        pass_until_settled();
    }
    uint64_t since = stats.plan_since_ns, plans = e->plan.made;
    e->plan.dirty = 1; /* another plan for the same budget */
    pass_until_settled();
    swn_engine_stats(&stats);
    CHECK(e->plan.made > plans && stats.plan_since_ns == since);
}

static struct swn_io table;
static _Atomic int held;

static ssize_t held_pread(void *ctx, int fd, void *buf, size_t len, uint64_t off)
{
    while (held)
        usleep(1000);
    return swn_io_sys.pread(ctx, fd, buf, len, off);
}

static int reading(void)
{
    int filling = 0;
    pthread_mutex_lock(&e->lock);
    for (struct swn_frame *f = swn_pool_first(e->pool); f; f = f->next)
        filling += f->pending != 0;
    pthread_mutex_unlock(&e->lock);
    return filling;
}

/* Its bytes are in flight until it is done, although no operator waits for it. */
static void read_that_stands_still(void *arg)
{
    (void)arg;
    struct swn_budget_change change;
    struct swn_stats stats;
    table = swn_io_sys;
    table.pread = held_pread;
    CHECK(engine_begin(12 * MIB, SWN_CONFIG_PREAD, &table) == 0);
    make_weights();
    pass_until_settled();
    while (reading())
        usleep(1000);
    held = 1;
    for (unsigned i = 0; !reading(); i++) /* until one has left room to read ahead into */
        op_read(&weights[i]);
    CHECK(swn_engine_set_budget(14 * MIB, 0, &change) == 0);
    swn_engine_stats(&stats);
    CHECK(stats.budget_since_ns && stats.in_flight_ns == 0);
    uint64_t until = swn_now_ns();
    held = 0;
    while (reading())
        usleep(1000);
    swn_engine_stats(&stats);
    CHECK(stats.in_flight_ns >= until);
}

static void *set_often(void *arg)
{
    uint64_t chance = (uint64_t)(uintptr_t)arg * 0x9E3779B97F4A7C15ULL + 1;
    struct swn_budget_change change;
    for (unsigned i = 0; i < 60; i++) {
        int err = swn_engine_set_budget(10 * MIB + next_random(&chance) % (30 * MIB), i % 3 * 20, &change);
        CHECK(err == 0 || err == -EAGAIN);
    }
    return NULL;
}

/* Several at once: the last one wins, nobody hangs. */
static void changes_at_once(void *arg)
{
    (void)arg;
    pthread_t threads[4], inference;
    CHECK(engine_begin(12 * MIB, SWN_CONFIG_AUTO, NULL) == 0);
    make_weights();
    CHECK(pthread_create(&inference, NULL, infer, NULL) == 0);
    for (uintptr_t i = 0; i < 4; i++)
        CHECK(pthread_create(&threads[i], NULL, set_often, (void *)(i + 1)) == 0);
    for (unsigned i = 0; i < 4; i++)
        pthread_join(threads[i], NULL);
    set(11 * MIB);
    stop = 1;
    pthread_join(inference, NULL);
    check_bound(11 * MIB);
}

static void *write_always(void *at)
{
    while (!stop) {
        *(volatile char *)at = 1;
        for (volatile int i = 0; i < 20000; i++)
            ;
    }
    return NULL;
}

/* What the program never stops writing to is not written out again and again. */
static void tensor_that_is_written_to(void *arg)
{
    (void)arg;
    struct tensor small, hot;
    struct swn_budget_change change;
    pthread_t thread;
    CHECK(engine_begin(32 * MIB, SWN_CONFIG_AUTO, NULL) == 0);
    CHECK(tensor_make(&small, MIB, 2) && tensor_make(&hot, 12 * MIB, 1));
    CHECK(pthread_create(&thread, NULL, write_always, (void *)(hot.own + 5)) == 0);
    pthread_mutex_lock(&e->lock);
    uint64_t before = swn_spilled_so_far(e);
    pthread_mutex_unlock(&e->lock);
    swn_engine_set_budget(8 * MIB, 1500, &change);
    pthread_mutex_lock(&e->lock);
    uint64_t written = swn_spilled_so_far(e) - before;
    pthread_mutex_unlock(&e->lock);
    stop = 1;
    pthread_join(thread, NULL);
    CHECK(written <= 12 * 12 * MIB);
    set(8 * MIB);
}

static enum swn_config_fetch unused_arg = SWN_CONFIG_AUTO;

#define ALONE(test, seconds)                                                                                           \
    static void test##_alone(void **state)                                                                             \
    {                                                                                                                  \
        (void)state;                                                                                                   \
        assert_int_equal(run_alone(test, &unused_arg, seconds), 0);                                                    \
    }
ALONE(random_walk, 90)
ALONE(idle_process_shrinks, 60)
ALONE(grows_past_the_window, 60)
ALONE(operator_that_stands_still, 60)
ALONE(read_that_stands_still, 60)
ALONE(above_the_old_limit_too, 60)
ALONE(changes_while_weights_leave, 60)
ALONE(below_the_minimum, 60)
ALONE(changes_while_a_plan_is_made, 60)
ALONE(plan_for_a_larger_budget, 60)
ALONE(changes_at_once, 60)
ALONE(tensor_that_is_written_to, 60)
ALONE(retires_while_a_plan_is_made, 60)

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(random_walk_alone),
        cmocka_unit_test(idle_process_shrinks_alone),
        cmocka_unit_test(grows_past_the_window_alone),
        cmocka_unit_test(operator_that_stands_still_alone),
        cmocka_unit_test(read_that_stands_still_alone),
        cmocka_unit_test(above_the_old_limit_too_alone),
        cmocka_unit_test(changes_while_weights_leave_alone),
        cmocka_unit_test(below_the_minimum_alone),
        cmocka_unit_test(changes_while_a_plan_is_made_alone),
        cmocka_unit_test(plan_for_a_larger_budget_alone),
        cmocka_unit_test(changes_at_once_alone),
        cmocka_unit_test(tensor_that_is_written_to_alone),
        cmocka_unit_test(retires_while_a_plan_is_made_alone),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
