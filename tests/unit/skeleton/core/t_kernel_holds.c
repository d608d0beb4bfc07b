/* Description: memory of tensors that the kernel has been given becomes resident and stays, until the tensor is freed.
 */
#define _GNU_SOURCE
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "tests/unit/support/engine_fixture.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/uio.h>
#include <sys/wait.h>

#include "skeleton/core/kernel_holds.h"

#define WEIGHTS 12
#define WEIGHT_BYTES ((size_t)512 << 10)

static struct tensor weights[WEIGHTS];
static struct swn_engine *const e = &swn_engine_one;

static void begin(size_t budget, const struct swn_io *io)
{
    CHECK(!engine_begin(budget, SWN_CONFIG_PREAD, io));
    for (unsigned i = 0; i < WEIGHTS; i++)
        CHECK(tensor_make(&weights[i], WEIGHT_BYTES, i + 1));
}

static struct swn_range *range_of(unsigned i)
{
    return swn_arena_find(e->arena, weights[i].own);
}

static int is_home(unsigned i)
{
    return atomic_load(&range_of(i)->state) == SWN_RESIDENT;
}

static void read_all(unsigned passes)
{
    for (unsigned pass = 0; pass < passes; pass++)
        for (unsigned i = 0; i < WEIGHTS; i++)
            op_read(&weights[i]);
}

static void finish(void)
{
    for (unsigned i = 0; i < WEIGHTS; i++)
        if (weights[i].own)
            tensor_free(&weights[i]);
    engine_is_empty();
}

static void free_one(unsigned i)
{
    tensor_free(&weights[i]);
    weights[i].own = 0;
}

/* What a pipe was given has the same bytes after everything else has come and gone; and so often is it asked for. */
static void in_a_pipe(void *unused)
{
    (void)unused;
    static char got[65536];
    int ends[2];
    begin(5 * MIB, NULL); /* of 6 */
    read_all(3);
    unsigned left = 0;
    for (unsigned i = 0; i < 3; i++)
        left += !is_home(i);
    CHECK(left > 0 && !pipe(ends) && fcntl(ends[1], F_SETPIPE_SZ, 1 << 20) > 0);
    for (unsigned i = 0; i < 3; i++) {
        struct iovec v = {(void *)(weights[i].own + 4096), sizeof got};
        CHECK(swn_kernel_holds_ours(v.iov_base, v.iov_len));
        CHECK(!swn_kernel_holds(v.iov_base, v.iov_len) && !swn_kernel_holds(v.iov_base, v.iov_len));
        CHECK(is_home(i) && range_of(i)->pins == 1 && swn_tensor_of(range_of(i))->registered == 1);
        CHECK(vmsplice(ends[1], &v, 1, 0) == sizeof got);
    }
    read_all(6);
    struct tensor large; /* for which everything else has to go */
    CHECK(tensor_make(&large, 3 * MIB, 66));
    for (unsigned i = 0; i < 3; i++) {
        CHECK(is_home(i) && tensor_right(&weights[i], weights[i].own));
        for (size_t done = 0; done < sizeof got;) {
            ssize_t n = read(ends[0], got + done, sizeof got - done);
            CHECK(n > 0);
            done += (size_t)n;
        }
        CHECK(tensor_right_part(&weights[i], (uintptr_t)got, 4096, sizeof got));
    }
    tensor_free(&large);
    finish();
}

/* The pages of one that is freed are nobody's, so that the next tensor does not write to what is still on its way. */
static void freed(void *unused)
{
    (void)unused;
    char got[8];
    int ends[2];
    begin(64 * MIB, NULL);
    struct iovec v = {(void *)weights[0].own, sizeof got};
    CHECK(!pipe(ends) && !swn_kernel_holds(v.iov_base, v.iov_len) && vmsplice(ends[1], &v, 1, 0) == sizeof got);
    uintptr_t at = weights[0].own;
    char want[sizeof got];
    memcpy(want, (void *)at, sizeof want);
    free_one(0);
    CHECK(swn_arena_warm_bytes(e->arena) == 0);
    CHECK(tensor_make(&weights[0], WEIGHT_BYTES, 99) && weights[0].own == at);
    CHECK(range_of(0)->pins == 0 && swn_tensor_of(range_of(0))->held == 0 &&
          swn_tensor_of(range_of(0))->registered == 0);
    CHECK(read(ends[0], got, sizeof got) == sizeof got && !memcmp(got, want, sizeof got));
    finish();
}

/* Several tensors at once; and what is nobody's is nobody's business. */
static void which(void *unused)
{
    (void)unused;
    begin(5 * MIB, NULL);
    read_all(3);
    char here[16];
    CHECK(!swn_kernel_holds_ours(here, sizeof here) && !swn_kernel_holds(here, sizeof here));
    CHECK(!swn_kernel_holds_ours((void *)weights[0].own, 0) && !swn_kernel_holds_ours((void *)UINTPTR_MAX, 16));
    uintptr_t lo = weights[2].own + WEIGHT_BYTES - 1, hi = weights[3].own + 1;
    CHECK(lo < hi && !swn_kernel_holds((void *)lo, hi - lo));
    for (unsigned i = 0; i < WEIGHTS; i++)
        CHECK(swn_tensor_of(range_of(i))->held == (i == 2 || i == 3));
    finish();
}

/* A child has been given nothing of its parent's. */
static void forked(void *unused)
{
    (void)unused;
    begin(5 * MIB, NULL);
    read_all(3);
    CHECK(!swn_kernel_holds((void *)weights[0].own, WEIGHT_BYTES));
    swn_engine_prefork();
    pid_t pid = fork();
    if (!pid) {
        swn_engine_postfork_child();
        CHECK(range_of(0)->pins == 0 && swn_tensor_of(range_of(0))->held == 0 &&
              swn_tensor_of(range_of(0))->registered == 0);
        free_one(0);
        _exit(0);
    }
    swn_engine_postfork_parent();
    int status;
    CHECK(pid > 0 && waitpid(pid, &status, 0) == pid && !status);
    CHECK(range_of(0)->pins == 1 && swn_tensor_of(range_of(0))->held == 1);
    for (unsigned i = 0; i < WEIGHTS; i++) /* whose extents a child may have mapped: they stay */
        tensor_free(&weights[i]);
    CHECK(!e->res.resident_bytes && !swn_arena_first(e->arena));
}

static int maps_fail;

static int bad_mmap(void *ctx, void **addr, size_t len, int prot, int flags, int fd, uint64_t off)
{
    return maps_fail ? -ENOMEM : swn_io_sys.mmap(ctx, addr, len, prot, flags, fd, off);
}

/* What cannot be made resident must not be given, and comes and goes as before. */
static void stuck(void *unused)
{
    (void)unused;
    static struct swn_io failing;
    struct tensor large;
    failing = swn_io_sys;
    failing.mmap = bad_mmap;
    begin(3 * MIB, &failing);
    CHECK(tensor_make(&large, 8 * MIB, 55));
    struct swn_range *r = swn_arena_find(e->arena, large.own);
    maps_fail = 1;
    CHECK(r->shared && swn_kernel_holds((void *)large.own, large.len) == -ENOMEM);
    maps_fail = 0;
    CHECK(r->pins == 0 && swn_tensor_of(r)->registered == 0 && swn_tensor_of(r)->held == 0);
    CHECK(tensor_right(&large, large.own));
    tensor_free(&large);
    finish();
}

IN_A_CHILD(in_a_pipe, 60)
IN_A_CHILD(freed, 60)
IN_A_CHILD(which, 60)
IN_A_CHILD(forked, 60)
IN_A_CHILD(stuck, 60)

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_in_a_pipe), cmocka_unit_test(test_freed), cmocka_unit_test(test_which),
        cmocka_unit_test(test_forked),    cmocka_unit_test(test_stuck),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
