#define _GNU_SOURCE
#include "skeleton/core/spin_wait.h"

#include <sched.h>

#include "skeleton/core/engine_internal.h"
#include "base/thread.h"

/* So much a new wait says of the next one. */
#define NEWEST 0.125
/* Looking at the clock takes longer than looking for what was told. */
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

/* Asked each time, since a process may be bound to others while it runs. More than a set holds are more than one. */
static int has_one_processor(void)
{
    cpu_set_t set;
    return !swn_thread_processors(&set) && CPU_COUNT(&set) == 1;
}

int swn_spin_wait_worth(const struct swn_spin_wait *a, uint64_t begin_ns)
{
    return a->mean_ns < (double)SWN_AWAKE_NS / 2 && !is_late(begin_ns) && !has_one_processor();
}

/* For the other half of this core, where it has one. */
static void relax(void)
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
            relax();
        }
}

void swn_spin_wait_learn(struct swn_spin_wait *a, uint64_t ns)
{
    a->mean_ns += NEWEST * ((double)ns - a->mean_ns);
}
