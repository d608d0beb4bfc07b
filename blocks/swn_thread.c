/* swn_thread.c - see swn_thread.h. */
#define _GNU_SOURCE
#include "swn_thread.h"

#include <limits.h>
#include <sched.h>
#include <signal.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

/* Our threads keep no large objects on the stack. Sanitizers enlarge frames, and glibc takes static TLS of every loaded
 * library out of this too: with PyTorch loaded that is tens of KiB. */
#define STACK_BYTES ((size_t)256 << 10)
/* The shortest that there are. */
#define SLICE_NS 100000

int (*swn_thread_create)(pthread_t *, const pthread_attr_t *, void *(*)(void *), void *) = pthread_create;

int swn_thread_start(pthread_t *out, void *(*fn)(void *), void *arg)
{
    pthread_attr_t attr;
    sigset_t all, old;
    int rc = pthread_attr_init(&attr);

    if (rc)
        return -rc;
    /* A refused size leaves the default stack: larger than wanted, never wrong. */
    (void)pthread_attr_setstacksize(&attr, STACK_BYTES);

    /* The mask is inherited; setting it inside the thread would leave a moment in which a signal can land there. */
    sigfillset(&all);
    rc = pthread_sigmask(SIG_SETMASK, &all, &old);
    if (!rc) {
        rc = swn_thread_create(out, &attr, fn, arg);
        pthread_sigmask(SIG_SETMASK, &old, NULL);
    }
    pthread_attr_destroy(&attr);
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
        return; /* whoever chose another policy knows better */
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
