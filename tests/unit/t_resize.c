/* Description: the window changes its size under operators: at once, later, or not at all, and never over the budget.
 */
#define _GNU_SOURCE
#include "swn_engine_fixture.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <sys/mman.h>
#include <sys/resource.h>

#include <cmocka.h>

#include "swn_pool.h"

#define WEIGHTS 24
#define WEIGHT_BYTES ((size_t)480 << 10)
#define BUDGET (6 * MIB)

static struct tensor weights[WEIGHTS];
static struct swn_engine *const e = &swn_engine_one;

static void passes(unsigned n)
{
    for (unsigned pass = 0; pass < n; pass++)
        for (unsigned i = 0; i < WEIGHTS; i++)
            op_read(&weights[i]);
}

static void begin(size_t budget)
{
    CHECK(engine_begin(budget, SWN_CONFIG_AUTO, NULL) == 0);
    for (unsigned i = 0; i < WEIGHTS; i++)
        CHECK(tensor_make(&weights[i], WEIGHT_BYTES, i + 1));
}

static void begin_planned(void)
{
    begin(BUDGET);
    for (unsigned i = 0; i < 40 && !(e->planned && !e->plan_dirty && e->window_goal == swn_pool_window(e->pool)); i++)
        passes(1);
    passes(2);
    CHECK(e->planned && e->pool && swn_pool_window(e->pool) > 0);
}

static void end(void)
{
    passes(3);
    CHECK(e->over_budget_peak == 0 && e->peak_resident <= BUDGET);
    for (unsigned i = 0; i < WEIGHTS; i++)
        tensor_free(&weights[i]);
    engine_is_empty();
}

static int goes_around_the_end(const struct swn_frame *f)
{
    return f && !f->kept && !f->lodged && f->off + f->size > swn_pool_window(e->pool);
}

/* An operator's weight, in *op, goes around the window's end. */
static void open_around_the_end(struct swn_op *op)
{
    static const enum swn_use use = SWN_USE_WEIGHT;
    for (unsigned i = 0; i < 50 * WEIGHTS; i++) {
        struct tensor *t = &weights[i % WEIGHTS];
        op_open(op, &t, &use, 1);
        if (goes_around_the_end(op->args[0].frame))
            return;
        op_close(op);
    }
    CHECK(!"a window that is a ring");
}

static int resize_window(size_t bytes)
{
    pthread_mutex_lock(&e->lock);
    int rc = swn_policy_resize_window(e, bytes);
    pthread_mutex_unlock(&e->lock);
    return rc;
}

/* It is widened when the operator is done, and room for that is not made before. */
static void later(void *arg)
{
    struct swn_op op;
    (void)arg;
    begin_planned();
    open_around_the_end(&op);
    size_t window = swn_pool_window(e->pool), kept = e->kept_bytes, home = e->res.home_bytes;
    CHECK(resize_window(window + MIB) == -EBUSY);
    CHECK(swn_pool_window(e->pool) == window && e->window_goal == window + MIB);
    CHECK(e->kept_bytes == kept && e->res.home_bytes == home);
    uint64_t next = e->threads->next_plan_try;
    e->threads->next_plan_try = UINT64_MAX; /* the plan has no use for more */
    op_close(&op);
    for (unsigned i = 0; i < WEIGHTS && swn_pool_window(e->pool) == window; i++)
        op_read(&weights[i]);
    e->threads->next_plan_try = next;
    CHECK(swn_pool_window(e->pool) == window + MIB && e->window_goal == window + MIB);
    end();
}

/* One that waits to be widened is not any more once the budget shrinks. */
static void called_off(void *arg)
{
    struct swn_op op;
    (void)arg;
    begin_planned();
    open_around_the_end(&op);
    size_t window = swn_pool_window(e->pool);
    CHECK(resize_window(window + MIB) == -EBUSY);
    swn_policy_give(e, 0);
    CHECK(e->window_goal <= window && swn_pool_window(e->pool) <= window && e->plan_dirty);
    op_close(&op);
    end();
}

static unsigned coming(void)
{
    unsigned n = 0;
    for (const struct swn_frame *f = swn_pool_first(e->pool); f; f = f->next)
        n += !f->kept && f->state == SWN_FRAME_FILLING;
    return n;
}

/* A window that is to be narrower is as narrow at once as what is in use allows: reads that have not begun are called
 * off, as whoever asks for room next would otherwise be over the budget. */
static void at_once(void *arg)
{
    static const enum swn_use use = SWN_USE_WEIGHT;
    struct swn_op op, next;
    const struct swn_frame *f = NULL;
    unsigned i = 0;
    (void)arg;
    begin_planned();
    for (; i < 50 * WEIGHTS; i++) {
        struct tensor *now = &weights[i % WEIGHTS], *then = &weights[(i + 1) % WEIGHTS];
        op_open(&op, &now, &use, 1);
        swn_fetch_pause(e->fetch);
        f = swn_arena_find(e->arena, then->own)->frame;
        if (f && (f->state != SWN_FRAME_READY || f->kept || goes_around_the_end(f)))
            f = NULL;
        op_close(&op);
        if (f) {
            op_open(&next, &then, &use, 1);
            if (coming() && f->off + f->size < swn_pool_window(e->pool))
                break;
            op_close(&next);
        }
        f = NULL;
        swn_fetch_resume(e->fetch);
    }
    CHECK(f && i < 50 * WEIGHTS);
    size_t end_of_it = f->off + f->size, resident = swn_engine_resident(e);
    size_t window = swn_pool_window(e->pool);
    pthread_mutex_lock(&e->lock);
    CHECK(swn_policy_resize_window(e, SWN_GRANULE) == -EBUSY);
    CHECK(swn_pool_window(e->pool) == end_of_it && e->window_goal == SWN_GRANULE);
    CHECK(swn_engine_resident(e) <= resident - (window - end_of_it));
    e->plan_dirty = 1;
    pthread_mutex_unlock(&e->lock);
    swn_fetch_resume(e->fetch);
    op_close(&next);
    end();
}

/* A program that has closed the memory's file keeps the window that there is, and is planned for as ever. */
static void never(void *arg)
{
    (void)arg;
    begin_planned();
    close(swn_pool_fd(e->pool));
    size_t window = swn_pool_window(e->pool);
    for (int rc; (rc = resize_window(window / 2)) != 0; passes(1))
        CHECK(rc == -EBUSY); /* what is ahead is still coming */
    CHECK(resize_window(window) == -EBADF);
    CHECK(swn_pool_window(e->pool) == window / 2 && e->window_goal == window / 2);
    uint64_t plans = e->plans;
    e->plan_dirty = 1;
    passes(40);
    CHECK(e->plans > plans && !e->plan_dirty && swn_pool_window(e->pool) == window / 2);
    end();
}

/* Under ulimit -v there may be no address space for a window as wide as the budget. */
static void little_address_space(void *arg)
{
    (void)arg;
    unsigned long long pages = 0;
    FILE *f = fopen("/proc/self/statm", "re");
    CHECK(f && fscanf(f, "%llu", &pages) == 1);
    fclose(f);
    rlim_t most = (rlim_t)pages * 4096 + ((rlim_t)8 << 30);
    CHECK(!setrlimit(RLIMIT_AS, &(struct rlimit){most, most}));
    void *all = mmap(NULL, (size_t)9 << 30, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    CHECK(all == MAP_FAILED || !munmap(all, (size_t)9 << 30)); /* an emulator has no limit */
    begin(1500 * MIB);
    CHECK(swn_policy_pool(e) == 0);
    CHECK(swn_pool_window_most(e->pool) >= 300 * MIB);
    CHECK(swn_pool_window_most(e->pool) < 1500 * MIB || all != MAP_FAILED);
    passes(2);
}

IN_A_CHILD(later, 60)
IN_A_CHILD(called_off, 60)
IN_A_CHILD(at_once, 60)
IN_A_CHILD(never, 60)
IN_A_CHILD(little_address_space, 60)

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_later), cmocka_unit_test(test_called_off),           cmocka_unit_test(test_at_once),
        cmocka_unit_test(test_never), cmocka_unit_test(test_little_address_space),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
