/* Description: the N-th malloc, mmap, mprotect, memfd or thread fails, once or for ever, in the start of
 * the engine and in everything it does: no byte is wrong, nothing crashes, and what fails says so. */
/* wraps: malloc calloc realloc mmap mprotect memfd_create ftruncate */
#define _GNU_SOURCE
#include "tests/unit/support/engine_fixture.h"
#include "tests/unit/support/failing_calls.h"

#include <errno.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>

#include <cmocka.h>

#define WEIGHTS 12
#define WEIGHT_BYTES ((size_t)256 << 10)
/* Every call fails in turn at first, of later ones fewer: the thread sanitizer takes half a second for each. */
#ifdef __SANITIZE_THREAD__
#define DENSITY 3
#else
#define DENSITY 16
#endif
#define NOTHING_FAILED 3 /* exit status of a child that never reached the fault */

WRAPPED(void *, MAP_FAILED, mmap, (void *at, size_t n, int prot, int flags, int fd, off_t off),
        (at, n, prot, flags, fd, off))
/* Only on the way out: making a range writable again joins it to its neighbours and needs no memory. */
int __real_mprotect(void *at, size_t n, int prot);
int __wrap_mprotect(void *at, size_t n, int prot);
int __wrap_mprotect(void *at, size_t n, int prot)
{
    return prot == PROT_READ && hit() ? -1 : __real_mprotect(at, n, prot);
}
WRAPPED(int, -1, memfd_create, (const char *name, unsigned flags), (name, flags))
WRAPPED(int, -1, ftruncate, (int fd, off_t n), (fd, n))

static struct tensor weights[WEIGHTS];

static void *linger(void *unused)
{
    pause();
    return unused;
}

/* A small life of the engine: alloc, spill, learn, plan, keep, write, free. The faults are the engine's: the tensors it
 * has no memory for are left out, as the allocation hook falls back to ordinary memory. */
static void life(void *second_thread)
{
    pthread_t thread;
    if (second_thread) /* frames are mapped at the weights' own addresses */
        CHECK(pthread_create(&thread, NULL, linger, NULL) == 0);
    atomic_store(&fault.armed, 1);
    if (engine_begin(3 * MIB, SWN_CONFIG_AUTO, NULL) == 0) {
        unsigned have = 0;
        for (unsigned i = 0; i < WEIGHTS; i++)
            have += (unsigned)tensor_make(&weights[have], WEIGHT_BYTES, i + 1);
        for (unsigned i = 0; i < 20 * WEIGHTS && have; i++) {
            struct tensor activation, *t = &weights[i % have];
            int made = tensor_make(&activation, (size_t)(64 + 64 * (i % 3)) << 10, i);
            if (i % 17 == 0) {
                static const enum swn_use use = SWN_USE_WRITE;
                struct swn_op op;
                op_open(&op, &t, &use, 1);
                CHECK(tensor_right(t, t->own));
                tensor_stamp(t, t->own, 100 + i);
                op_close(&op);
            } else if (i % 29 == 0) {
                tensor_free(t);
                *t = weights[--have];
            } else {
                op_read(t);
            }
            if (made) {
                CHECK(tensor_right(&activation, activation.own));
                tensor_free(&activation);
            }
        }
        for (unsigned i = 0; i < have; i++)
            CHECK(tensor_right(&weights[i], weights[i].own));
        /* Memory is back: everything goes on. */
        atomic_store(&fault.armed, 0);
        for (unsigned i = 0; i < 3 * have; i++)
            op_read(&weights[i % have]);
        for (unsigned i = 0; i < have; i++)
            tensor_free(&weights[i]);
        CHECK(swn_engine_one.ops.open == NULL);
        CHECK(engine_counters().live_bytes == 0);
    }
    if (!atomic_load(&fault.fired))
        _exit(NOTHING_FAILED);
}

static void nth_failure(int for_ever, void *second_thread)
{
    unsigned long n, step = 1;
    for (n = 1;; n += step) {
        fault.at = n;
        fault.for_ever = for_ever;
        int status = run_alone(life, second_thread, 30);
        if (status == NOTHING_FAILED)
            break;
        if (status)
            fprintf(stderr, "with call %lu failing%s: status %d\n", n, for_ever ? " for ever" : "", status);
        assert_int_equal(status, 0);
        step = 1 + n / DENSITY; /* the start, one by one */
    }
    assert_true(n > 40); /* the life is long enough to fail in */
}

static void once(void **state)
{
    (void)state;
    nth_failure(0, NULL);
}

static void for_ever(void **state)
{
    (void)state;
    nth_failure(1, NULL);
}

static void of_two_threads(void **state)
{
    nth_failure(0, &state);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(once), cmocka_unit_test(for_ever),
                                       cmocka_unit_test(of_two_threads)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
