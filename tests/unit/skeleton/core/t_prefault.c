/* Description: pages that are made ahead of an operator: all of those that it will fill and no others, in tensors that
 * it overwrites and in no others, and none any more when it has ended. */
#define _GNU_SOURCE
#include "tests/unit/support/engine_fixture.h"

#include <setjmp.h>
#include <stdarg.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>

#include <cmocka.h>

#include "skeleton/core/prefault.h"

#define BUDGET (64 * MIB)
#define LARGE (16 * MIB)
#define PATIENCE_US 20000000

static struct swn_engine *const e = &swn_engine_one;

/* As torch.empty leaves it: nothing has been stored there. */
static void make_empty(struct tensor *t, size_t len)
{
    int strict;
    void *at = swn_engine_alloc(len, &strict);
    CHECK(at);
    *t = (struct tensor){.word = at, .own = (uintptr_t)at, .len = len};
}

static size_t pages_in_memory(uintptr_t at, size_t len)
{
    static unsigned char there[LARGE / SWN_PAGE];
    size_t n = 0;
    CHECK(len <= LARGE && mincore((void *)at, len, there) == 0);
    for (size_t i = 0; i < len / SWN_PAGE; i++)
        n += there[i] & 1;
    return n;
}

/* Until all of it is in memory. */
static void await(const struct tensor *t)
{
    for (int us = 0; pages_in_memory(t->own, t->len) < t->len / SWN_PAGE; us += 1000) {
        CHECK(us < PATIENCE_US);
        usleep(1000);
    }
}

static void open_one(struct swn_op *op, struct tensor *t, enum swn_use use)
{
    op_open(op, &t, &use, 1);
}

static void fresh_tensor(void *arg)
{
    (void)arg;
    struct tensor t;
    struct swn_op op;
    CHECK(engine_begin(BUDGET, SWN_CONFIG_AUTO, &swn_io_sys) == 0);
    make_empty(&t, LARGE);
    CHECK(!pages_in_memory(t.own, t.len));
    open_one(&op, &t, SWN_USE_OVERWRITE);
    await(&t);
    tensor_stamp(&t, t.own, 7);
    op_close(&op);
    CHECK(tensor_right(&t, t.own));
    open_one(&op, &t, SWN_USE_OVERWRITE); /* it has its pages */
    CHECK(!op.args[0].prefaulting);
    op_close(&op);
    CHECK(tensor_right(&t, t.own));
    tensor_free(&t);
    engine_is_empty();
}

/* One that has left comes back with its pages: others may be reading what it holds. */
static void left_before(void *arg)
{
    (void)arg;
    struct tensor t[6];
    struct swn_op op;
    CHECK(engine_begin(BUDGET, SWN_CONFIG_AUTO, &swn_io_sys) == 0);
    for (unsigned i = 0; i < 6; i++) {
        CHECK(tensor_make(&t[i], LARGE, i + 1));
        open_one(&op, &t[i], SWN_USE_WRITE);
        op_close(&op);
    }
    CHECK(atomic_load(&swn_arena_find(e->arena, t[0].own)->state) == SWN_FILE_BACKED);
    open_one(&op, &t[0], SWN_USE_OVERWRITE);
    CHECK(!op.args[0].prefaulting && tensor_right(&t[0], t[0].own));
    for (size_t done = 0; done < t[0].len; done += LARGE / 8) { /* while pages are being made */
        memset((void *)(t[0].own + done), 7, LARGE / 8);
        usleep(100);
    }
    op_close(&op);
    for (size_t i = 0; i < t[0].len; i += 64)
        CHECK(*(unsigned char *)(t[0].own + i) == 7);
    for (unsigned i = 1; i < 6; i++)
        CHECK(tensor_right(&t[i], t[i].own));
    CHECK(engine_counters().peak_resident <= BUDGET && !engine_counters().over_budget_peak);
    for (unsigned i = 0; i < 6; i++)
        tensor_free(&t[i]);
}

static void no_others(void *arg)
{
    (void)arg;
    struct tensor a, b, c, small;
    struct swn_op op;
    CHECK(engine_begin(BUDGET, SWN_CONFIG_AUTO, &swn_io_sys) == 0);
    make_empty(&a, LARGE);
    make_empty(&b, LARGE);
    make_empty(&c, LARGE);
    make_empty(&small, 2 * SWN_GRANULE);
    open_one(&op, &a, SWN_USE_WRITE); /* perhaps a few bytes of it */
    CHECK(!op.args[0].prefaulting && !e->prefault);
    op_close(&op);
    open_one(&op, &small, SWN_USE_OVERWRITE);
    CHECK(!op.args[0].prefaulting);
    op_close(&op);
    op_open(&op, (struct tensor *[]){&b, &c}, (enum swn_use[]){SWN_USE_OVERWRITE, SWN_USE_OVERWRITE}, 2);
    CHECK(op.args[0].prefaulting && !op.args[1].prefaulting); /* one at a time */
    await(&b);
    op_close(&op);
    CHECK(!pages_in_memory(a.own, a.len) && !pages_in_memory(c.own, c.len));
    tensor_free(&b);
    make_empty(&b, LARGE); /* the same pages, which are kept for the next tensor */
    open_one(&op, &b, SWN_USE_OVERWRITE);
    CHECK(!op.args[0].prefaulting);
    op_close(&op);
}

static void ends_with_its_operator(void *arg)
{
    (void)arg;
    struct tensor t;
    struct swn_op op;
    CHECK(engine_begin(30 * LARGE, SWN_CONFIG_AUTO, &swn_io_sys) == 0);
    for (int i = 0; i <= 20; i++) {
        make_empty(&t, LARGE);
        open_one(&op, &t, SWN_USE_OVERWRITE);
        CHECK(op.args[0].prefaulting);
        usleep((useconds_t)i * 50);
        uintptr_t at = t.own;
        if (i < 20)
            op_close(&op);
        else /* the operator gives the storage other memory */
            tensor_free(&t);
        size_t then = pages_in_memory(at, LARGE);
        usleep(2000);
        CHECK(pages_in_memory(at, LARGE) == then);
    }
    op_close(&op);
}

static void forked(void *arg)
{
    (void)arg;
    struct tensor t;
    struct swn_op op;
    int status;
    CHECK(engine_begin(BUDGET, SWN_CONFIG_AUTO, &swn_io_sys) == 0);
    make_empty(&t, LARGE);
    open_one(&op, &t, SWN_USE_OVERWRITE);
    CHECK(op.args[0].prefaulting);
    while (!pages_in_memory(t.own, t.len)) /* sanitizers hold a lock while a thread begins */
        usleep(100);
    swn_engine_prefork();
    pid_t child = fork();
    CHECK(child >= 0);
    if (!child) {
        swn_engine_postfork_child();
        CHECK(!e->prefault);
        op_close(&op);
#ifndef __SANITIZE_THREAD__    /* which does not let a child start threads */
        make_empty(&t, LARGE); /* this process has a thread of its own */
        open_one(&op, &t, SWN_USE_OVERWRITE);
        CHECK(op.args[0].prefaulting);
        await(&t);
        op_close(&op);
#endif
        _exit(0);
    }
    swn_engine_postfork_parent();
    CHECK(waitpid(child, &status, 0) == child && status == 0);
    await(&t);
    op_close(&op);
}

/* An old kernel is asked once. */
static void refused(void *arg)
{
    (void)arg;
    struct swn_prefault *p = NULL;
    void *at = mmap(NULL, LARGE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    CHECK(at != MAP_FAILED && swn_prefault_begin(&p, (uintptr_t)at, LARGE));
    for (int begun = 1, us = 0; begun; us += 1000) {
        usleep(1000);
        swn_prefault_end(p, (uintptr_t)at);
        begun = swn_prefault_begin(&p, (uintptr_t)at, LARGE);
        CHECK(us < PATIENCE_US);
    }
}

/* qemu's user mode says yes and does nothing. */
static int kernel_does(void)
{
    void *at = mmap(NULL, SWN_PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    return at != MAP_FAILED && !madvise(at, SWN_PAGE, 23 /* MADV_POPULATE_WRITE */) &&
           pages_in_memory((uintptr_t)at, SWN_PAGE) == 1;
}

IN_A_CHILD(fresh_tensor, 120)
IN_A_CHILD(left_before, 120)
IN_A_CHILD(no_others, 120)
IN_A_CHILD(ends_with_its_operator, 120)
IN_A_CHILD(forked, 120)
IN_A_CHILD(refused, 120)

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_fresh_tensor), cmocka_unit_test(test_left_before),
        cmocka_unit_test(test_no_others),    cmocka_unit_test(test_ends_with_its_operator),
        cmocka_unit_test(test_forked),       cmocka_unit_test(test_refused),
    };
    if (!kernel_does()) {
        fprintf(stderr, "skipped: this kernel makes no pages ahead (Linux 5.14)\n");
        return 77;
    }
    return cmocka_run_group_tests(tests, NULL, NULL);
}
