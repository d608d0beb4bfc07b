/* base/thread.c - see base/thread.h. */
#define _GNU_SOURCE
#include "base/thread.h"

#include <dlfcn.h>
#include <errno.h>
#include <limits.h>
#include <signal.h>
#include <stdatomic.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

/* Our threads keep no large objects on the stack; sanitizers enlarge frames. */
#define STACK_BYTES ((size_t)256 << 10)
/* The most that is tried where the C library does not say what it takes itself. */
#define STACK_MOST ((size_t)16 << 20)
/* The shortest that there are. */
#define SLICE_NS 100000

int (*swn_thread_create)(pthread_t *, const pthread_attr_t *, void *(*)(void *), void *) = pthread_create;

static cpu_set_t openmps;
static int openmp_binds;
static _Atomic pid_t stays; /* 0: none */

void swn_thread_beside_openmp(const cpu_set_t *all)
{
    openmps = *all;
    openmp_binds = 1;
}

void swn_thread_stays(void)
{
    pid_t none = 0;
    atomic_compare_exchange_strong(&stays, &none, (pid_t)syscall(SYS_gettid));
}

void swn_thread_fork_child(void)
{
    cpu_set_t set;
    pid_t parents = atomic_exchange(&stays, 0);
    if (parents && !sched_getaffinity(parents, sizeof set, &set))
        openmps = set;
}

int swn_thread_processors(cpu_set_t *out)
{
    pid_t other = openmp_binds ? atomic_load(&stays) : 0;
    if (other && !sched_getaffinity(other, sizeof *out, out))
        return 0;
    if (sched_getaffinity(0, sizeof *out, out))
        return -errno;
    cpu_set_t both;
    CPU_AND(&both, out, &openmps);
    if (openmp_binds && CPU_EQUAL(&both, out)) /* or another program has bound it before */
        *out = openmps;
    return 0;
}

/* glibc takes the static thread-locals of all libraries out of a thread's stack: mostly tens of KiB, yet a library may
 * have any number of them. This says how much it takes, and a little more. */
static size_t (*least_stack)(const pthread_attr_t *);

__attribute__((constructor)) static void look_up(void)
{
    *(void **)&least_stack = dlsym(RTLD_DEFAULT, "__pthread_get_minstack");
}

/* 0 or an errno. */
static int create_with(pthread_t *out, pthread_attr_t *attr, void *(*fn)(void *), void *arg)
{
    size_t bytes = STACK_BYTES + (least_stack ? least_stack(attr) : 0);
    int rc;
    do {
        /* A refused size leaves the default stack: larger than wanted, never wrong. */
        (void)pthread_attr_setstacksize(attr, bytes);
        rc = swn_thread_create(out, attr, fn, arg);
        bytes *= 2;
    } while (rc == EINVAL && bytes <= STACK_MOST);
    return rc;
}

/* 0 or an errno. */
static int create(pthread_t *out, int placed, void *(*fn)(void *), void *arg)
{
    pthread_attr_t attr;
    cpu_set_t set;
    int rc = pthread_attr_init(&attr);
    if (rc)
        return rc;
    if (placed && !swn_thread_processors(&set))
        (void)pthread_attr_setaffinity_np(&attr, sizeof set, &set);
    rc = create_with(out, &attr, fn, arg);
    pthread_attr_destroy(&attr);
    return rc;
}

int swn_thread_start(pthread_t *out, void *(*fn)(void *), void *arg)
{
    sigset_t all, old;
    /* The mask is inherited; setting it inside the thread would leave a moment in which a signal can land there. */
    sigfillset(&all);
    int rc = pthread_sigmask(SIG_SETMASK, &all, &old);
    if (rc)
        return -rc;
    rc = create(out, openmp_binds, fn, arg);
    if (rc && openmp_binds) /* processors that are gone, or a sandbox: the thread runs where its creator runs */
        rc = create(out, 0, fn, arg);
    pthread_sigmask(SIG_SETMASK, &old, NULL);
    return -rc;
}

/* struct sched_attr of <linux/sched/types.h>, which newer C libraries define as well. */
struct attributes {
    uint32_t size, policy;
    uint64_t flags;
    int32_t nice;
    uint32_t priority;
    uint64_t runtime, deadline, period;
};

void swn_thread_be_prompt(void)
{
    struct attributes a = {0};
    if (syscall(SYS_sched_getattr, 0, &a, sizeof a, 0) || a.policy != SCHED_OTHER)
        return; /* the program chose another policy; keep it */
    a.runtime = SLICE_NS;
    (void)syscall(SYS_sched_setattr, 0, &a, 0);
}

void swn_cond_init(pthread_cond_t *c)
{
    pthread_condattr_t attr;
    pthread_condattr_init(&attr);
    pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
    pthread_cond_init(c, &attr);
    pthread_condattr_destroy(&attr);
}

int swn_cond_wait_until(pthread_cond_t *c, pthread_mutex_t *lock, uint64_t until_ns)
{
    struct timespec t = {.tv_sec = (time_t)(until_ns / 1000000000u), .tv_nsec = (long)(until_ns % 1000000000u)};
    return pthread_cond_timedwait(c, lock, &t);
}
