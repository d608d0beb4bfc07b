/* Description: the window changes its size under operators: at once, later, or not at all, and never over the budget.
 */
/* wraps: swn_now_ns swn_cond_wait_until swn_spin_wait_wait swn_disk_speed_get swn_engine_op_end */
#define _GNU_SOURCE
#include "blocks/memory/publish.h"
#include "tests/unit/support/engine_fixture.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>

#include <cmocka.h>

#include "blocks/memory/frame_pool.h"
#include "skeleton/core/eviction.h"
#include "skeleton/core/plan.h"
#include "skeleton/core/residency_steps.h"
#include "skeleton/core/ring_size.h"

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
    for (unsigned i = 0; i < 40 && !(e->plan.planned && !e->plan.dirty); i++)
        passes(1);
    passes(2);
    CHECK(e->plan.planned && e->pool && e->plan.ring_goal > 0);
}

static void end(void)
{
    passes(3);
    CHECK(engine_counters().over_budget_peak == 0 && engine_counters().peak_resident <= BUDGET);
    for (unsigned i = 0; i < WEIGHTS; i++)
        tensor_free(&weights[i]);
    engine_is_empty();
}

static void resize_window(size_t bytes)
{
    pthread_mutex_lock(&e->lock);
    swn_ring_resize(e, bytes);
    swn_ring_shrink(e);
    pthread_mutex_unlock(&e->lock);
}

/* A window that is to be narrower is as narrow at once as what is in use allows, and all the way when it is not. */
static void at_once(void *arg)
{
    static const enum swn_use use = SWN_USE_WEIGHT;
    struct swn_op op;
    struct tensor *t = NULL;
    (void)arg;
    begin_planned();
    for (unsigned i = 0; i < WEIGHTS && !t; i++)
        if (tensor_streams(&weights[i]))
            t = &weights[i];
    CHECK(t);
    op_open(&op, &t, &use, 1);
    size_t unit = swn_pool_unit(e->pool);
    struct swn_chunks held = {op.args[0].first_chunk, op.args[0].end_chunk};
    uint64_t next = e->ops.threads->next_plan_try;
    e->ops.threads->next_plan_try = UINT64_MAX; /* the plan is for more */
    resize_window(unit);
    CHECK(e->plan.ring_goal == unit && tensor_right(t, t->own));
    for (uint64_t c = held.first; c < held.end; c++)
        CHECK(swn_pool_chunk(e->pool, c)->frame); /* that operator has them */
    op_close(&op);
    passes(1);
    for (int coming = 1; coming; usleep(1000)) {
        pthread_mutex_lock(&e->lock);
        coming = 0;
        for (const struct swn_frame *f = swn_pool_first(e->pool); f; f = f->next)
            coming |= f->pending != 0;
        swn_ring_shrink(e);
        pthread_mutex_unlock(&e->lock);
    }
    CHECK(engine_window_bytes() <= unit);
    e->ops.threads->next_plan_try = next;
    e->plan.dirty = 1;
    end();
}

/* A program that has closed the memory's file goes on with the frames' extents, and is right. */
static void closed(void *arg)
{
    (void)arg;
    begin_planned();
    int found = 0;
    for (int fd = 3; fd < 256 && !found; fd++) {
        char path[64], link[64] = "";
        snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
        if (readlink(path, link, sizeof link - 1) > 0 && !strncmp(link, "/memfd:swapnet-pool", 19))
            found = !close(fd);
    }
    CHECK(found);
    passes(6);
    e->plan.dirty = 1;
    passes(6);
    resize_window(swn_pool_unit(e->pool));
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
    CHECK(swn_open_pool(e) == 0);
    passes(2);
}

IN_A_CHILD(at_once, 60)
IN_A_CHILD(closed, 60)
IN_A_CHILD(little_address_space, 60)

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_at_once),
        cmocka_unit_test(test_closed),
        cmocka_unit_test(test_little_address_space),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
