/* Description: a thread of the program that is cancelled, or that a signal handler interrupts, while it is in the
 * middle of something of ours. */
#define _GNU_SOURCE
#include "tests/unit/support/engine_fixture.h"

#include <fcntl.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>

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

/* The address sanitizer does not see that the frames of a cancelled thread are gone. */
static void forget_frames(void *unused)
{
    (void)unused;
#ifdef __SANITIZE_ADDRESS__
    void __asan_handle_no_return(void);
    __asan_handle_no_return();
#endif
}

static void *compute(void *unused)
{
    pthread_cleanup_push(forget_frames, NULL);
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
    pthread_cleanup_pop(0);
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

static volatile unsigned char *stored; /* what the handler stores to */
static struct swn_io raising;

static void store(int sig)
{
    (void)sig;
    *stored = 77;
    handled = 1;
}

/* The new mapping is about to be made. */
static int map_and_raise(void *ctx, void **addr, size_t len, int prot, int flags, int fd, uint64_t off)
{
    if (stored && !handled && *addr == (void *)(uintptr_t)stored)
        raise(SIGUSR1);
    return swn_io_sys.mmap(ctx, addr, len, prot, flags, fd, off);
}

static void handler_may_store_into_what_is_leaving(void *arg)
{
    (void)arg;
    raising = swn_io_sys;
    raising.mmap = map_and_raise;
    CHECK(engine_begin(BUDGET, SWN_CONFIG_AUTO, &raising) == 0);
    handle(SIGUSR1, store);
    CHECK(tensor_make(&tensors[0], BYTES, 0));
    stored = (unsigned char *)tensors[0].own;
    for (unsigned i = 1; i < MANY; i++)
        CHECK(tensor_make(&tensors[i], BYTES, i));
    CHECK(handled && *stored == 77);
}
IN_A_CHILD(handler_may_store_into_what_is_leaving, 60)

/* What a system call writes to, from which moment on, and whether it could not. */
static void *received;
static int zeroes, refused;

/* The kernel writes at the moment in which another mapping is about to take the place of what it writes to. */
static int map_and_receive(void *ctx, void **addr, size_t len, int prot, int flags, int fd, uint64_t off)
{
    if (received && (uintptr_t)received - (uintptr_t)*addr < len)
        refused += syscall(SYS_read, zeroes, received, 8) != 8;
    return swn_io_sys.mmap(ctx, addr, len, prot, flags, fd, off);
}

static void kernel_may_write_at_any_moment(void *arg)
{
    (void)arg;
    raising = swn_io_sys;
    raising.mmap = map_and_receive;
    zeroes = open("/dev/zero", O_RDONLY | O_CLOEXEC);
    make_all(&raising);
    for (unsigned pass = 0; pass < 4; pass++)
        for (unsigned i = 0; i < MANY; i++)
            op_read(&tensors[i]);
    unsigned k = 0;
    while (k < MANY && !tensor_mapped(&tensors[k]))
        k++;
    CHECK(k < MANY); /* frames are behind it, which are wanted for others */
    swn_engine_pin((void *)tensors[k].own, 8);
    received = (void *)(tensors[k].own);
    for (unsigned pass = 0; pass < 2; pass++)
        for (unsigned i = 0; i < MANY; i++)
            if (i != k)
                op_read(&tensors[i]);
    CHECK(!refused && syscall(SYS_read, zeroes, received, 8) == 8);
    received = NULL;
    swn_engine_unpin((void *)tensors[k].own, 8);
    CHECK(*(uint64_t *)tensors[k].own == 0);
    CHECK(tensor_right_part(&tensors[k], tensors[k].own + 64, 64, BYTES - 64));
}
IN_A_CHILD(kernel_may_write_at_any_moment, 60)

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_handler_may_end_the_process),
        cmocka_unit_test(test_operators_are_no_cancellation_points),
        cmocka_unit_test(test_handler_may_store_into_what_is_leaving),
        cmocka_unit_test(test_kernel_may_write_at_any_moment),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
