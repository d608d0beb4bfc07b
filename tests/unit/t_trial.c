/* Description: memory for trials repeats itself, is counted, and is gone afterwards; tensors of a thread's trial get
 * such memory, and no others. */
#define _GNU_SOURCE
#include "swn_engine_fixture.h"

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
    CHECK(at && e->small_bytes == (long long)PERIOD && swn_engine_resident(e) <= BUDGET);
    for (size_t i = 0; i < PERIOD; i += 64)
        at[i] = (unsigned char)(i >> 6);
    for (size_t i = 0; i <= BYTES; i += 64)
        CHECK(at[i] == (unsigned char)(i % PERIOD >> 6));
    at[BYTES] = 200; /* written to one place, it is in all of them */
    CHECK(at[0] == 200 && at[PERIOD] == 200);
    swn_trial_unmap((void *)at, BYTES + 1, PERIOD);
    CHECK(e->small_bytes == 0 && e->over_budget_peak == 0);
    engine_is_empty();
}

/* Room is made for it, and if there is none, there is no trial. */
static void within_the_budget(void *arg)
{
    begin(arg);
    struct tensor idle, used;
    CHECK(tensor_make(&idle, 8 * MIB, 1));
    CHECK(swn_trial_room(8 * MIB) && e->small_bytes == 0);
    CHECK(atomic_load(&swn_arena_find(e->arena, idle.own)->state) == SWN_STREAMED);
    CHECK(tensor_make(&used, 6 * MIB, 2));
    swn_engine_pin((void *)used.own, used.len);
    CHECK(!swn_trial_room(8 * MIB));
    CHECK(!swn_trial_map(BYTES, 8 * MIB) && e->small_bytes == 0);
    CHECK(e->over_budget_peak == 0 && e->peak_resident <= BUDGET);
    swn_engine_unpin((void *)used.own, used.len);
    tensor_free(&idle);
    tensor_free(&used);
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
    swn_trial_fold(BYTES, PERIOD);
    CHECK(swn_trial_alloc(BYTES - 1) == NULL && swn_trial_alloc(BYTES + BYTES / 4) == NULL);
    CHECK(pthread_create(&t, NULL, another_thread, NULL) == 0 && pthread_join(t, NULL) == 0);
    while (n < MOST && (at[n] = swn_trial_alloc(BYTES + BYTES / 16)))
        n++;
    CHECK(n > 3 && n < MOST && e->small_bytes == (long long)(n * PERIOD)); /* the others get ordinary memory */
    memset(at[0], 1, BYTES + BYTES / 16);
    CHECK(((char *)at[1])[0] == 0);
    swn_trial_fold(0, 0);
    CHECK(swn_trial_alloc(BYTES) == NULL);
    CHECK(!swn_trial_free(&n) && !swn_trial_free((char *)at[0] + SWN_PAGE));
    for (unsigned i = 0; i < n; i++)
        CHECK(swn_trial_free(at[i]) && !swn_trial_free(at[i]));
    CHECK(e->small_bytes == 0 && e->over_budget_peak == 0);
    engine_is_empty();
}

/* A child has none of it. */
static void forked(void *arg)
{
    begin(arg);
    void *at = swn_trial_map(BYTES, PERIOD);
    swn_trial_fold(BYTES, PERIOD);
    void *folded = swn_trial_alloc(BYTES);
    CHECK(at && folded && e->small_bytes == (long long)(2 * PERIOD));
    swn_engine_prefork();
    pid_t pid = fork();
    if (!pid) {
        swn_engine_postfork_child();
        CHECK(e->small_bytes == 0 && !swn_trial_free(folded) && !swn_trial_alloc(BYTES));
        _exit(0);
    }
    swn_engine_postfork_parent();
    int status;
    CHECK(pid > 0 && waitpid(pid, &status, 0) == pid && status == 0);
    CHECK(swn_trial_free(folded));
    swn_trial_fold(0, 0);
    swn_trial_unmap(at, BYTES, PERIOD);
    CHECK(e->small_bytes == 0);
    engine_is_empty();
}

#define IN_A_CHILD(name)                                                                                               \
    static void test_##name(void **state)                                                                              \
    {                                                                                                                  \
        (void)state;                                                                                                   \
        assert_int_equal(run_alone(name, NULL, 60), 0);                                                                \
    }

IN_A_CHILD(repeats_itself)
IN_A_CHILD(within_the_budget)
IN_A_CHILD(folded_tensors)
IN_A_CHILD(forked)

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_repeats_itself),
        cmocka_unit_test(test_within_the_budget),
        cmocka_unit_test(test_folded_tensors),
        cmocka_unit_test(test_forked),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
