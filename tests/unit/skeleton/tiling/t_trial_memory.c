/* Description: memory for trials repeats itself, is counted, and is gone afterwards; nothing leaves for it in vain;
 * tensors of a thread's trial get such memory, and no others. */
/* wraps: swn_now_ns swn_cond_wait_until swn_spin_wait_wait swn_disk_speed_get swn_engine_op_end */
#define _GNU_SOURCE
#include "tests/unit/support/engine_fixture.h"
#include "skeleton/core/plan.h"
#include "skeleton/tiling/trial_memory.h"
#include "skeleton/engine/accounting.h"
#include "skeleton/core/residency_steps.h"

#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/wait.h>

#include <cmocka.h>

#define BUDGET (12 * MIB)
#define PERIOD (MIB / 2)
#define BYTES (40 * MIB) /* more than the budget */

static struct swn_engine *const e = &swn_engine_one;

static void begin(void *arg)
{
    (void)arg;
    CHECK(engine_begin(BUDGET, SWN_CONFIG_AUTO, NULL) == 0);
}

static void repeats_itself(void *arg)
{
    begin(arg);
    volatile unsigned char *at = swn_trial_map(BYTES + 1, PERIOD);
    CHECK(at && e->nonweight.small_bytes == (long long)PERIOD && swn_engine_resident(e) <= BUDGET);
    for (size_t i = 0; i < PERIOD; i += 64)
        at[i] = (unsigned char)(i >> 6);
    for (size_t i = 0; i <= BYTES; i += 64)
        CHECK(at[i] == (unsigned char)(i % PERIOD >> 6));
    at[BYTES] = 200; /* written to one place, it is in all of them */
    CHECK(at[0] == 200 && at[PERIOD] == 200);
    swn_trial_unmap((void *)at, BYTES + 1, PERIOD);
    CHECK(e->nonweight.small_bytes == 0 && engine_counters().over_budget_peak == 0);
    engine_is_empty();
}

/* Room is made for it, and if there is none, there is no trial. */
static void within_the_budget(void *arg)
{
    begin(arg);
    struct tensor idle, used;
    CHECK(tensor_make(&idle, 8 * MIB, 1));
    CHECK(swn_trial_room(8 * MIB) && e->nonweight.small_bytes == 0);
    CHECK(atomic_load(&swn_arena_find(e->arena, idle.own)->state) == SWN_FILE_BACKED);
    CHECK(tensor_make(&used, 6 * MIB, 2));
    swn_engine_pin((void *)used.own, used.len);
    CHECK(!swn_trial_room(8 * MIB));
    CHECK(!swn_trial_map(BYTES, 8 * MIB) && e->nonweight.small_bytes == 0);
    CHECK(engine_counters().over_budget_peak == 0 && engine_counters().peak_resident <= BUDGET);
    swn_engine_unpin((void *)used.own, used.len);
    tensor_free(&idle);
    tensor_free(&used);
    engine_is_empty();
}

static int state_of(const struct tensor *t)
{
    return atomic_load(&swn_arena_find(e->arena, t->own)->state);
}

/* What could leave would not be enough: so it stays. */
static void not_in_vain(void *arg)
{
    begin(arg);
    struct tensor idle, used;
    CHECK(tensor_make(&used, 7 * MIB, 1) && tensor_make(&idle, 4 * MIB, 2));
    swn_engine_pin((void *)used.own, used.len);
    CHECK(!swn_trial_room(6 * MIB) && !swn_trial_map(BYTES, 6 * MIB) && e->nonweight.small_bytes == 0 && !e->pool);
    CHECK(state_of(&idle) == SWN_RESIDENT && swn_spilled_so_far(e) == 0);
    CHECK(swn_trial_room(3 * MIB) && state_of(&idle) == SWN_FILE_BACKED); /* the pool takes 2 */
    CHECK(engine_counters().over_budget_peak == 0);
    swn_engine_unpin((void *)used.own, used.len);
    tensor_free(&idle);
    tensor_free(&used);
    engine_is_empty();
}

#define WEIGHTS 20
#define WEIGHT_BYTES (MIB / 2)

static struct tensor weights[WEIGHTS];

/* Weights, the first of which is read with an activation; and what is done meanwhile. */
static void passes(unsigned n, void (*meanwhile)(const struct tensor *activation))
{
    static const enum swn_use uses[] = {SWN_USE_WEIGHT, SWN_USE_INPUT};
    while (n--) {
        struct tensor activation;
        struct tensor *read[] = {&weights[0], &activation};
        struct swn_op op;
        CHECK(tensor_make(&activation, MIB, 101));
        op_open(&op, read, uses, 2);
        if (meanwhile)
            meanwhile(&activation);
        op_close(&op);
        tensor_free(&activation);
        for (unsigned i = 1; i < WEIGHTS; i++)
            op_read(&weights[i]);
    }
}

static void ask_in_vain(const struct tensor *activation)
{
    size_t kept = engine_kept_bytes();
    /* With all that the operator does not read out of the way, or that too, or everything there is. */
    CHECK(!swn_trial_room(15 * MIB) && !swn_trial_room(15 * MIB + MIB / 4) && !swn_trial_room(20 * MIB));
    CHECK(engine_kept_bytes() == kept && state_of(activation) == SWN_RESIDENT);
}

static void ask(const struct tensor *activation)
{
    (void)activation;
    CHECK(swn_trial_room(8 * MIB));
}

/* Weights that have left once, and have come to stay: nothing but what an operator does not read may leave, and only
 * where that is enough. Then the next plan leaves room for it. */
static void kept_weights_stay(void *arg)
{
    (void)arg;
    CHECK(engine_begin(16 * MIB, SWN_CONFIG_AUTO, NULL) == 0);
    for (unsigned i = 0; i < WEIGHTS; i++)
        CHECK(tensor_make(&weights[i], WEIGHT_BYTES, i + 1));
    struct tensor other;
    CHECK(tensor_make(&other, 14 * MIB, 100));
    tensor_free(&other);
    passes(20, NULL);
    CHECK(e->plan.planned && !e->plan.dirty &&
          engine_kept_bytes() + e->weights.resident_bytes == WEIGHTS * WEIGHT_BYTES);
    CHECK(engine_kept_bytes() > 6 * MIB);
    uint64_t plans = e->plan.made;
    struct swn_stats before, after;
    swn_engine_stats(&before);
    passes(4, ask_in_vain);
    swn_engine_stats(&after);
    CHECK(after.streamed_bytes == before.streamed_bytes && e->plan.made == plans && !e->plan.dirty);
    passes(20, ask);
    CHECK(e->plan.made > plans && e->nonweight.planned >= 8 * MIB && !e->plan.dirty);
    CHECK(engine_counters().over_budget_peak == 0 && engine_counters().peak_resident <= 16 * MIB);
    for (unsigned i = 0; i < WEIGHTS; i++)
        tensor_free(&weights[i]);
    engine_is_empty();
}

static void *another_thread(void *arg)
{
    (void)arg;
    CHECK(swn_trial_alloc(BYTES) == NULL);
    return NULL;
}

static void folded_tensors(void *arg)
{
    begin(arg);
    pthread_t t;
    enum { MOST = 20 };
    void *at[MOST] = {NULL};
    unsigned n = 0;
    CHECK(swn_trial_alloc(BYTES) == NULL);
    swn_trial_alias_allocations(BYTES, PERIOD);
    CHECK(swn_trial_alloc(BYTES - 1) == NULL && swn_trial_alloc(BYTES + BYTES / 4) == NULL);
    CHECK(pthread_create(&t, NULL, another_thread, NULL) == 0 && pthread_join(t, NULL) == 0);
    while (n < MOST && (at[n] = swn_trial_alloc(BYTES + BYTES / 16)))
        n++;
    CHECK(n > 3 && n < MOST &&
          e->nonweight.small_bytes == (long long)(n * PERIOD)); /* the others get ordinary memory */
    memset(at[0], 1, BYTES + BYTES / 16);
    CHECK(((char *)at[1])[0] == 0);
    swn_trial_alias_allocations(0, 0);
    CHECK(swn_trial_alloc(BYTES) == NULL);
    CHECK(!swn_trial_free(&n) && !swn_trial_free((char *)at[0] + SWN_PAGE));
    for (unsigned i = 0; i < n; i++)
        CHECK(swn_trial_free(at[i]) && !swn_trial_free(at[i]));
    CHECK(e->nonweight.small_bytes == 0 && engine_counters().over_budget_peak == 0);
    engine_is_empty();
}

/* A child has none of it. */
static void forked(void *arg)
{
    begin(arg);
    void *at = swn_trial_map(BYTES, PERIOD);
    swn_trial_alias_allocations(BYTES, PERIOD);
    void *folded = swn_trial_alloc(BYTES);
    CHECK(at && folded && e->nonweight.small_bytes == (long long)(2 * PERIOD));
    swn_engine_prefork();
    pid_t pid = fork();
    if (!pid) {
        swn_engine_postfork_child();
        CHECK(e->nonweight.small_bytes == 0 && !swn_trial_free(folded) && !swn_trial_alloc(BYTES));
        _exit(0);
    }
    swn_engine_postfork_parent();
    int status;
    CHECK(pid > 0 && waitpid(pid, &status, 0) == pid && status == 0);
    CHECK(swn_trial_free(folded));
    swn_trial_alias_allocations(0, 0);
    swn_trial_unmap(at, BYTES, PERIOD);
    CHECK(e->nonweight.small_bytes == 0);
    engine_is_empty();
}

IN_A_CHILD(repeats_itself, 60)
IN_A_CHILD(within_the_budget, 60)
IN_A_CHILD(not_in_vain, 60)
IN_A_CHILD(kept_weights_stay, 60)
IN_A_CHILD(folded_tensors, 60)
IN_A_CHILD(forked, 60)

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_repeats_itself), cmocka_unit_test(test_within_the_budget),
        cmocka_unit_test(test_not_in_vain),    cmocka_unit_test(test_kept_weights_stay),
        cmocka_unit_test(test_folded_tensors), cmocka_unit_test(test_forked),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
