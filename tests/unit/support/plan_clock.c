/* The linker puts these in the place of the engine's own functions (--wrap) in tests that ask for it. */
#include "tests/unit/support/plan_clock.h"

#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <time.h>
#include <unistd.h>

#include "skeleton/engine/engine_internal.h"

#define TICK_NS 1000u
#define OP_NS 50000u
#define OP_BYTES_PER_NS 4
#define LOOK_AGAIN_US 20u

double plan_clock_bytes_per_ns = SWN_FIRST_BYTES_PER_NS;
static _Atomic uint64_t clock_ns; /* begins with the real one, which the fetcher's own stays */

uint64_t __wrap_swn_now_ns(void);
unsigned __wrap_swn_disk_speed_get(const struct swn_disk_speed *p, struct swn_disk_model *out);
void __wrap_swn_engine_op_end(struct swn_op *op);
void __real_swn_engine_op_end(struct swn_op *op);
int __wrap_swn_cond_wait_until(pthread_cond_t *c, pthread_mutex_t *lock, uint64_t until_ns);
int __real_swn_cond_wait_until(pthread_cond_t *c, pthread_mutex_t *lock, uint64_t until_ns);
void __wrap_swn_spin_wait_wait(const struct swn_spin_wait *a, unsigned seen, uint64_t begin_ns);

static uint64_t real_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

static uint64_t move(uint64_t ns)
{
    uint64_t before = 0;
    if (!atomic_load(&clock_ns))
        atomic_compare_exchange_strong(&clock_ns, &before, real_ns());
    return atomic_fetch_add(&clock_ns, ns) + ns;
}

void plan_clock_advance(uint64_t ns)
{
    move(ns);
}

uint64_t __wrap_swn_now_ns(void)
{
    return move(TICK_NS);
}

unsigned __wrap_swn_disk_speed_get(const struct swn_disk_speed *p, struct swn_disk_model *out)
{
    (void)p;
    *out = (struct swn_disk_model){.bytes_per_ns = plan_clock_bytes_per_ns, .read_ns = SWN_DISK_READ_NS};
    return SWN_DISK_SPEED_SPEED | SWN_DISK_SPEED_READ;
}

void __wrap_swn_engine_op_end(struct swn_op *op)
{
    uint64_t bytes = 0;
    for (unsigned i = 0; i < op->n; i++)
        bytes += op->args[i].bytes;
    plan_clock_advance(OP_NS + bytes / OP_BYTES_PER_NS);
    __real_swn_engine_op_end(op);
}

/* What is waited for takes real time; a wait that was in vain has come to its moment. */
int __wrap_swn_cond_wait_until(pthread_cond_t *c, pthread_mutex_t *lock, uint64_t until_ns)
{
    uint64_t now = move(0), left = until_ns > now ? until_ns - now : 0;
    int err = __real_swn_cond_wait_until(c, lock, real_ns() + left);
    if (err == ETIMEDOUT)
        while ((now = atomic_load(&clock_ns)) < until_ns && !atomic_compare_exchange_weak(&clock_ns, &now, until_ns))
            ;
    return err;
}

/* By this clock every wait is short, and is one that spins. It would do so for the whole of a read, on a processor that
 * the reading thread wants: a third of such a test's time. t_spin_wait has the function itself. */
void __wrap_swn_spin_wait_wait(const struct swn_spin_wait *a, unsigned seen, uint64_t begin_ns)
{
    while (swn_spin_wait_told(a) == seen && move(TICK_NS) - begin_ns < SWN_AWAKE_NS)
        usleep(LOOK_AGAIN_US);
}
