/* Description: a thread of the program that is cancelled, or that a signal handler interrupts, while it is in the
 * middle of something of ours. */
#define _GNU_SOURCE
#include "tests/unit/support/engine_fixture.h"

#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <string.h>
#include <sys/mman.h>

#include <cmocka.h>

#include "skeleton/engine/section.h"

#define BUDGET (16 * MIB)
#define BYTES (3 * MIB + 64 * 1024)
#define MANY 8

static struct tensor tensors[MANY];
static struct swn_engine *const e = &swn_engine_one;
static volatile sig_atomic_t handled;

static void handle(int sig, void (*handler)(int))
{
    struct sigaction act = {.sa_handler = handler};
    CHECK(!sigaction(sig, &act, NULL));
}

static void make_all(const struct swn_io *io)
{
    CHECK(engine_begin(BUDGET, SWN_CONFIG_AUTO, io) == 0);
    for (unsigned i = 0; i < MANY; i++)
        CHECK(tensor_make(&tensors[i], BYTES, i));
}

static void end_process(int sig)
{
    (void)sig;
    swn_engine_exit(); /* as exit() does */
    handled = 1;
}

static void handler_may_end_the_process(void *arg)
{
    (void)arg;
    make_all(NULL);
    handle(SIGUSR1, end_process);
    swn_lock(&e->lock);
    raise(SIGUSR1);
    swn_unlock(&e->lock);
    CHECK(handled);
}
IN_A_CHILD(handler_may_end_the_process, 60)

static int done;

static void *compute(void *unused)
{
    pthread_cancel(pthread_self());
    for (unsigned pass = 0; pass < 3; pass++)
        for (unsigned i = 0; i < MANY; i++) {
            op_read(&tensors[i]);
            struct tensor t;
            CHECK(tensor_make(&t, BYTES, 100));
            tensor_free(&t);
        }
    done = 1;
    pthread_testcancel();
    return unused;
}

static void operators_are_no_cancellation_points(void *arg)
{
    pthread_t t;
    void *result;
    (void)arg;
    make_all(NULL);
    CHECK(!pthread_create(&t, NULL, compute, NULL) && !pthread_join(t, &result));
    CHECK(result == PTHREAD_CANCELED && done);
    CHECK(!swn_trylock(&e->lock));
    swn_unlock(&e->lock);
}
IN_A_CHILD(operators_are_no_cancellation_points, 60)

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_handler_may_end_the_process),
        cmocka_unit_test(test_operators_are_no_cancellation_points),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
