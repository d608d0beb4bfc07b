/* Description: a program locks its memory while another thread's operator waits for a read: the pool stays until that
 * operator needs it no more. */
/* wraps: swn_fetch_pause swn_cond_wait_until swn_spin_wait_worth */
#define _GNU_SOURCE
#include "tests/unit/support/engine_fixture.h"

#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include <cmocka.h>

#include "base/thread.h"
#include "skeleton/core/retire.h"
#include "skeleton/engine/spin_wait.h"

#define WEIGHTS 16

static struct swn_engine *const e = &swn_engine_one;
static struct tensor weights[WEIGHTS];
static struct swn_io io;
static struct tensor *last; /* what the operator reads that begins while the engine retires */
static pthread_t operator_thread;
static _Atomic int held, begun, attempts, over, armed;
static __thread int waits;

static ssize_t held_pread(void *ctx, int fd, void *buf, size_t len, uint64_t off)
{
    if (held) {
        begun = 1;
        while (held)
            usleep(100);
    }
    return swn_io_sys.pread(ctx, fd, buf, len, off);
}

static void *operate(void *unused)
{
    waits = 1;
    op_read(last);
    return unused;
}

void __real_swn_fetch_pause(struct swn_fetch *f);
void __wrap_swn_fetch_pause(struct swn_fetch *f);

/* An operator begins after the engine has decided to retire, and its read begins before reads are stopped. */
void __wrap_swn_fetch_pause(struct swn_fetch *f)
{
    if (armed && !attempts++) {
        held = 1;
        CHECK(pthread_create(&operator_thread, NULL, operate, NULL) == 0);
        while (!begun)
            usleep(100);
        held = 0;
    }
    __real_swn_fetch_pause(f);
}

int __real_swn_cond_wait_until(pthread_cond_t *c, pthread_mutex_t *lock, uint64_t until_ns);
int __wrap_swn_cond_wait_until(pthread_cond_t *c, pthread_mutex_t *lock, uint64_t until_ns);

/* The operator is woken later than the retiring thread gets the lock. */
int __wrap_swn_cond_wait_until(pthread_cond_t *c, pthread_mutex_t *lock, uint64_t until_ns)
{
    if (!waits || lock != &e->lock)
        return __real_swn_cond_wait_until(c, lock, until_ns);
    pthread_mutex_unlock(lock);
    while (attempts < 2 && !over)
        usleep(100);
    pthread_mutex_lock(lock);
    return 0;
}

int __wrap_swn_spin_wait_worth(const struct swn_spin_wait *a, uint64_t begin_ns);
int __wrap_swn_spin_wait_worth(const struct swn_spin_wait *a, uint64_t begin_ns)
{
    (void)a, (void)begin_ns;
    return 0;
}

static void while_it_waits(void *unused)
{
    (void)unused;
    io = swn_io_sys;
    io.pread = held_pread;
    CHECK(engine_begin(12 * MIB, SWN_CONFIG_PREAD, &io) == 0);
    for (unsigned i = 0; i < WEIGHTS; i++)
        CHECK(tensor_make(&weights[i], MIB + 65536, i + 1));
    for (unsigned p = 0; p < 2; p++)
        for (unsigned i = 0; i < WEIGHTS; i++)
            op_read(&weights[i]);
    engine_reads_arrive();
    for (unsigned i = 0; i < WEIGHTS; i++)
        if (!tensor_in_frames(&weights[i]) &&
            atomic_load(&swn_arena_find(e->arena, weights[i].own)->state) == SWN_FILE_BACKED)
            last = &weights[i];
    CHECK(last);
    armed = 1;
    swn_retire_for_lock(MCL_CURRENT);
    over = 1;
    if (!atomic_load(&e->life.retired)) /* an emulator locks nothing */
        return;
    pthread_join(operator_thread, NULL);
    CHECK(attempts >= 2 && !e->pool); /* which went with the operator */
    for (unsigned i = 0; i < WEIGHTS; i++)
        CHECK(tensor_right(&weights[i], weights[i].own));
}

IN_A_CHILD(while_it_waits, 20)

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_while_it_waits)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
