/* skeleton/engine/spin_wait.c - see spin_wait.h. */
#define _GNU_SOURCE
#include "skeleton/engine/spin_wait.h"

#include <sched.h>

#include "skeleton/engine/engine_internal.h"
#include "base/thread.h"

/* The weight of a new wait in the mean. */
#define NEWEST 0.125
/* Reading the clock takes longer than reading the counter, so the clock is read once in this many rounds. */
#define LOOKS 64

void swn_spin_wait_tell(struct swn_spin_wait *a)
{
    atomic_fetch_add_explicit(&a->told, 1, memory_order_relaxed);
}

unsigned swn_spin_wait_told(const struct swn_spin_wait *a)
{
    return atomic_load_explicit(&a->told, memory_order_relaxed);
}

static int is_late(uint64_t begin_ns)
{
    return swn_now_ns() - begin_ns >= SWN_AWAKE_NS;
}

/* Determined each time, since a running process may be bound to other processors. A set too large for the buffer has
 * more than one. */
static int has_one_processor(void)
{
    cpu_set_t set;
    return !swn_thread_processors(&set) && CPU_COUNT(&set) == 1;
}

int swn_spin_wait_worth(const struct swn_spin_wait *a, uint64_t begin_ns)
{
    return a->mean_ns < (double)SWN_AWAKE_NS / 2 && !is_late(begin_ns) && !has_one_processor();
}

void swn_spin_wait_relax(void)
{
#if defined(__x86_64__) || defined(__i386__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ __volatile__("yield");
#endif
}

void swn_spin_wait_wait(const struct swn_spin_wait *a, unsigned seen, uint64_t begin_ns)
{
    while (!is_late(begin_ns))
        for (int i = 0; i < LOOKS; i++) {
            if (swn_spin_wait_told(a) != seen)
                return;
            swn_spin_wait_relax();
        }
}

void swn_spin_wait_learn(struct swn_spin_wait *a, uint64_t ns)
{
    a->mean_ns += NEWEST * ((double)ns - a->mean_ns);
}
