/* skeleton/tiling/part_waits.c - see part_waits.h. */
#define _GNU_SOURCE
#include "skeleton/tiling/part_waits.h"

#include <errno.h>
#include <sched.h>
#include <stdatomic.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/thread.h"
#include "skeleton/engine/spin_wait.h"

/* Where no other thread waits for the processor, sched_yield returns within a microsecond. */
#define GAVE_AWAY_NS 500000
/* For so long a yield is not tried again. */
#define BUSY_NS 500000000
/* A thread that computes is rarely later than the others by more. */
#define AWAKE_NS 100000
/* With the kernel's timer slack a nap takes 50 us more. */
#define NAP_NS 1000
/* Two calls that are further apart belong to two waits. */
#define ONE_WAIT_NS 20000
/* Rounds between two looks at what a thread waits for: about a microsecond. */
#define ROUNDS 20

static _Atomic unsigned operators;
static _Atomic uint64_t busy_until_ns;

static __thread struct {
    uint64_t begin_ns, last_ns;
} wait;

int swn_parts_begin(unsigned threads)
{
    cpu_set_t set;
    if (threads < 2 || swn_thread_processors(&set) || (unsigned)CPU_COUNT(&set) < threads)
        return 0;
    atomic_fetch_add_explicit(&operators, 1, memory_order_relaxed);
    return 1;
}

void swn_parts_end(int begun)
{
    unsigned now = atomic_load_explicit(&operators, memory_order_relaxed);
    while (
        begun && now && /* 0: forked from a handler meanwhile */
        !atomic_compare_exchange_weak_explicit(&operators, &now, now - 1, memory_order_relaxed, memory_order_relaxed))
        ;
}

/* Like sched_yield, it is no cancellation point and leaves errno alone. */
static void nap(void)
{
    int saved = errno;
    syscall(SYS_nanosleep, &(struct timespec){.tv_nsec = NAP_NS}, NULL);
    errno = saved;
}

static void yield(uint64_t now)
{
    syscall(SYS_sched_yield);
    uint64_t after = swn_now_ns();
    if (after - now > GAVE_AWAY_NS)
        atomic_store_explicit(&busy_until_ns, after + BUSY_NS, memory_order_relaxed);
}

int swn_part_wait(void)
{
    if (!atomic_load_explicit(&operators, memory_order_relaxed))
        return 0;
    uint64_t now = swn_now_ns();
    if (now >= atomic_load_explicit(&busy_until_ns, memory_order_relaxed)) {
        yield(now);
        return 1;
    }
    if (now - wait.last_ns > ONE_WAIT_NS)
        wait.begin_ns = now;
    if (now - wait.begin_ns >= AWAKE_NS) {
        nap();
        now = swn_now_ns();
    } else {
        for (int i = 0; i < ROUNDS; i++)
            swn_spin_wait_relax();
    }
    wait.last_ns = now;
    return 1;
}

void swn_parts_fork_child(void)
{
    atomic_store(&operators, 0);
}
