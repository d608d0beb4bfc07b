/* Description: a thread that asks for short slices has them where the kernel gives any, and is otherwise as it was. One
 * has a stack, whatever the thread-locals of the process take. */
#define _GNU_SOURCE
#include "base/thread.h"

#include <errno.h>
#include <sched.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/utsname.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#define SHORTEST_NS 100000
#define NICE 3

struct attributes { /* struct sched_attr */
    uint32_t size, policy;
    uint64_t flags;
    int32_t nice;
    uint32_t priority;
    uint64_t runtime, deadline, period;
};

static struct attributes before, after;

/* Which are in every thread of this program, on its stack. */
static __thread volatile char large[600 << 10];

static void *use_stack(void *done)
{
    volatile char room[96 << 10];
    for (size_t i = 0; i < sizeof room; i += 4096)
        room[i] = large[i] = 1;
    *(volatile int *)done = room[0] + large[0];
    return NULL;
}

static void thread_locals_leave_a_stack(void **state)
{
    pthread_t thread;
    volatile int done = 0;
    (void)state;
    assert_int_equal(swn_thread_start(&thread, use_stack, (void *)(uintptr_t)&done), 0);
    pthread_join(thread, NULL);
    assert_int_equal(done, 2);
}

static void *be_prompt(void *policy)
{
    struct sched_param none = {0};
    setpriority(PRIO_PROCESS, (id_t)syscall(SYS_gettid), NICE);
    sched_setscheduler(0, *(int *)policy, &none);
    syscall(SYS_sched_getattr, 0, &before, sizeof before, 0);
    swn_thread_be_prompt();
    syscall(SYS_sched_getattr, 0, &after, sizeof after, 0);
    return NULL;
}

static void in_a_thread(int policy)
{
    pthread_t thread;
    before = after = (struct attributes){0};
    assert_int_equal(swn_thread_start(&thread, be_prompt, &policy), 0);
    pthread_join(thread, NULL);
    assert_int_equal(before.policy, policy);
    assert_int_equal(before.nice, NICE);
    assert_int_equal(after.policy, before.policy);
    assert_int_equal(after.nice, before.nice);
    assert_int_equal(after.flags, before.flags);
}

static int kernel_has_slices(void)
{
    struct utsname name;
    int major = 0, minor = 0;
    return !uname(&name) && sscanf(name.release, "%d.%d", &major, &minor) == 2 &&
           (major > 6 || (major == 6 && minor >= 12));
}

static void test_shortest_slices(void **state)
{
    (void)state;
    in_a_thread(SCHED_OTHER);
    if (kernel_has_slices())
        assert_int_equal(after.runtime, SHORTEST_NS);
}

static void test_another_policy_stays(void **state)
{
    (void)state;
    in_a_thread(SCHED_BATCH);
    assert_int_equal(after.runtime, before.runtime);
}

static cpu_set_t got;
static int stop;
static pthread_t staying;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t told = PTHREAD_COND_INITIALIZER;

static void *look(void *arg)
{
    (void)arg;
    sched_getaffinity(0, sizeof got, &got);
    return NULL;
}

static void *stay(void *arg)
{
    swn_thread_stays();
    look(arg);
    pthread_mutex_lock(&lock);
    stop = 0;
    pthread_cond_broadcast(&told);
    while (!stop)
        pthread_cond_wait(&told, &lock);
    pthread_mutex_unlock(&lock);
    return NULL;
}

static void started_on(const cpu_set_t *wanted)
{
    pthread_t thread;
    cpu_set_t says;
    assert_int_equal(swn_thread_processors(&says), 0);
    assert_int_equal(swn_thread_start(&thread, look, NULL), 0);
    pthread_join(thread, NULL);
    assert_true(CPU_EQUAL(&got, wanted) && CPU_EQUAL(&says, wanted));
}

static int refused;

static int refuse_affinity(pthread_t *out, const pthread_attr_t *attr, void *(*fn)(void *), void *arg)
{
    cpu_set_t set, own;
    pthread_attr_getaffinity_np(attr, sizeof set, &set);
    sched_getaffinity(0, sizeof own, &own);
    CPU_AND(&own, &own, &set);
    int placed = CPU_COUNT(&set) < CPU_SETSIZE && !CPU_COUNT(&own);
    refused += placed;
    return placed ? EPERM : pthread_create(out, attr, fn, arg);
}

/* A program whose threads OpenMP has bound, each to a processor. */
static void beside_openmp(void **state)
{
    (void)state;
    pthread_t placed;
    cpu_set_t all, one, other;
    assert_int_equal(sched_getaffinity(0, sizeof all, &all), 0);
    if (CPU_COUNT(&all) < 2)
        skip();
    CPU_ZERO(&one);
    CPU_ZERO(&other);
    for (size_t i = 0; i < CPU_SETSIZE; i++)
        if (CPU_ISSET(i, &all))
            CPU_SET(i, CPU_COUNT(&one) ? &other : &one);
    assert_int_equal(sched_setaffinity(0, sizeof one, &one), 0);
    started_on(&one);
    swn_thread_beside_openmp(&all);
    started_on(&all);
    swn_thread_beside_openmp(&other); /* the caller's processor is none of OpenMP's: another program has chosen it */
    started_on(&one);
    swn_thread_beside_openmp(&all);
    stop = -1;
    assert_int_equal(swn_thread_start(&staying, stay, NULL), 0);
    pthread_mutex_lock(&lock);
    while (stop)
        pthread_cond_wait(&told, &lock);
    pthread_mutex_unlock(&lock);
    assert_true(CPU_EQUAL(&got, &all));
    started_on(&all);
    assert_int_equal(pthread_setaffinity_np(staying, sizeof other, &other), 0); /* as `taskset -a` does */
    started_on(&other);
    swn_thread_create = refuse_affinity; /* as a sandbox may */
    assert_int_equal(swn_thread_start(&placed, look, NULL), 0);
    pthread_join(placed, NULL);
    assert_true(refused == 1 && CPU_EQUAL(&got, &one));
    swn_thread_create = pthread_create;
    assert_int_equal(sched_setaffinity(0, sizeof other, &other), 0);
    pid_t child = fork();
    if (!child) { /* which has no such thread, but is bound as its parent is */
        cpu_set_t set;
        swn_thread_fork_child();
        _exit(swn_thread_processors(&set) || !CPU_EQUAL(&set, &other));
    }
    int status = -1;
    assert_true(waitpid(child, &status, 0) == child && !status);
    pthread_mutex_lock(&lock);
    stop = 1;
    pthread_cond_broadcast(&told);
    pthread_mutex_unlock(&lock);
    pthread_join(staying, NULL);
    assert_int_equal(sched_setaffinity(0, sizeof all, &all), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(thread_locals_leave_a_stack),
        cmocka_unit_test(test_shortest_slices),
        cmocka_unit_test(test_another_policy_stays),
        cmocka_unit_test(beside_openmp),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
