/* Description: a thread that asks for short slices has them where the kernel gives any, and is otherwise as it was. */
#define _GNU_SOURCE
#include "swn_thread.h"

#include <sched.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/utsname.h>
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

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_shortest_slices),
        cmocka_unit_test(test_another_policy_stays),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
