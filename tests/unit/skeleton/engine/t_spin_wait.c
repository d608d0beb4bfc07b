/* Description: short waits for reads are spent awake, long ones asleep, and all of them where there is one processor.
 */
/* wraps: swn_now_ns sched_getaffinity swn_cond_wait_until */
#define _GNU_SOURCE
#include "tests/unit/support/engine_fixture.h"

#include <errno.h>
#include <sched.h>
#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>

#include "skeleton/engine/spin_wait.h"
#include "base/thread.h"

#define WEIGHTS 8
#define READ_US 2000

static int processors;            /* that the process may use; 0: nobody can say */
static _Atomic uint64_t clock_ns; /* 0: the real one */
static _Atomic uint64_t tick_ns;  /* by which the clock advances at each reading */
static _Atomic int sleeps;        /* of threads that wait until something changes */

int __wrap_sched_getaffinity(pid_t pid, size_t size, cpu_set_t *set);
uint64_t __real_swn_now_ns(void);
uint64_t __wrap_swn_now_ns(void);
int __real_swn_cond_wait_until(pthread_cond_t *c, pthread_mutex_t *lock, uint64_t until_ns);
int __wrap_swn_cond_wait_until(pthread_cond_t *c, pthread_mutex_t *lock, uint64_t until_ns);

int __wrap_sched_getaffinity(pid_t pid, size_t size, cpu_set_t *set)
{
    (void)pid;
    CPU_ZERO_S(size, set);
    for (int i = 0; i < processors; i++)
        CPU_SET_S((size_t)i * 3, size, set);
    errno = processors ? 0 : EINVAL;
    return processors ? 0 : -1;
}

uint64_t __wrap_swn_now_ns(void)
{
    return clock_ns ? atomic_fetch_add(&clock_ns, tick_ns) : __real_swn_now_ns();
}

int __wrap_swn_cond_wait_until(pthread_cond_t *c, pthread_mutex_t *lock, uint64_t until_ns)
{
    atomic_fetch_add(&sleeps, c == &swn_engine_one.changed);
    return __real_swn_cond_wait_until(c, lock, clock_ns ? UINT64_MAX / 2 : until_ns);
}

static void set_up(int count, uint64_t tick)
{
    processors = count;
    clock_ns = 1000;
    tick_ns = tick;
}

static void test_it_is_worth_it(void **state)
{
    (void)state;
    struct swn_spin_wait a = {0};
    set_up(2, 0);
    assert_true(swn_spin_wait_worth(&a, clock_ns));
    assert_true(swn_spin_wait_worth(&a, clock_ns - SWN_AWAKE_NS + 1));
    assert_false(swn_spin_wait_worth(&a, clock_ns - SWN_AWAKE_NS));
    processors = 1;
    assert_false(swn_spin_wait_worth(&a, clock_ns));
    processors = 0; /* more than a cpu_set_t names */
    assert_true(swn_spin_wait_worth(&a, clock_ns));
}

/* A disk that is slow for a while, and one that is slow once. */
static void test_waits_are_learned(void **state)
{
    (void)state;
    struct swn_spin_wait a = {0};
    set_up(4, 0);
    for (int i = 0; i < 10; i++)
        swn_spin_wait_learn(&a, 4 * SWN_AWAKE_NS);
    assert_false(swn_spin_wait_worth(&a, clock_ns));
    for (int i = 0; i < 40; i++)
        swn_spin_wait_learn(&a, SWN_AWAKE_NS / 4);
    assert_true(swn_spin_wait_worth(&a, clock_ns));
    swn_spin_wait_learn(&a, SWN_AWAKE_NS);
    assert_true(swn_spin_wait_worth(&a, clock_ns));
}

static void test_a_wait_ends(void **state)
{
    (void)state;
    struct swn_spin_wait a = {0};
    unsigned seen = swn_spin_wait_told(&a);
    set_up(2, SWN_AWAKE_NS / 8);
    swn_spin_wait_wait(&a, seen, clock_ns); /* the clock ends it */
    assert_in_range(clock_ns, SWN_AWAKE_NS, 3 * SWN_AWAKE_NS);
    set_up(2, 0);
    swn_spin_wait_tell(&a); /* before it begins */
    swn_spin_wait_wait(&a, seen, clock_ns);
    assert_int_not_equal(swn_spin_wait_told(&a), seen);
}

static ssize_t slow_pread(void *ctx, int fd, void *buf, size_t len, uint64_t off)
{
    usleep(READ_US);
    return swn_io_sys.pread(ctx, fd, buf, len, off);
}

/* Weights that are read when their operators come: how often those sleep. The clock stands still meanwhile. */
static int sleeps_of_passes(int count)
{
    static struct swn_io table;
    struct tensor weights[WEIGHTS];
    table = swn_io_sys;
    table.pread = slow_pread;
    CHECK(engine_begin(3 * MIB, SWN_CONFIG_PREAD, &table) == 0);
    swn_engine_one.config.without |= SWN_WITHOUT_PREFETCH;
    for (unsigned i = 0; i < WEIGHTS; i++)
        CHECK(tensor_make(&weights[i], MIB, 1 + i));
    for (unsigned i = 0; i < WEIGHTS; i++)
        op_read(&weights[i]);
    uint64_t before = engine_counters().swap_ins;
    set_up(count, 0);
    atomic_store(&sleeps, 0);
    for (unsigned pass = 0; pass < 3; pass++)
        for (unsigned i = 0; i < WEIGHTS; i++)
            op_read(&weights[i]);
    CHECK(engine_counters().swap_ins > before + WEIGHTS);
    return atomic_load(&sleeps);
}

static void awake(void *arg)
{
    (void)arg;
    CHECK(sleeps_of_passes(2) == 0);
}

static void asleep(void *arg)
{
    (void)arg;
    CHECK(sleeps_of_passes(1) > WEIGHTS);
}

IN_A_CHILD(awake, 60)
IN_A_CHILD(asleep, 60)

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_it_is_worth_it), cmocka_unit_test(test_waits_are_learned),
        cmocka_unit_test(test_a_wait_ends),    cmocka_unit_test(test_awake),
        cmocka_unit_test(test_asleep),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
