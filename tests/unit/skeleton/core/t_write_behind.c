/* Description: ranges that leave while the program computes on: within the budget, and whatever happens to a range
 * whose bytes are just being written, nobody sees any others. */
/* wraps: clock_gettime */
#define _GNU_SOURCE
#include "tests/unit/support/engine_fixture.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>

#include <cmocka.h>

#include "skeleton/core/write_behind.h"

#define WEIGHTS 32
#define WEIGHT_BYTES ((size_t)512 << 10)
#define BUDGET (8 * MIB)

static struct swn_engine *const e = &swn_engine_one;
static struct tensor weights[WEIGHTS];
static struct swn_io table;
static _Atomic int write_ms, write_err, writes_begun;

static ssize_t slow_pwrite(void *ctx, int fd, const void *buf, size_t len, uint64_t off)
{
    atomic_fetch_add(&writes_begun, 1);
    usleep((useconds_t)atomic_load(&write_ms) * 1000);
    int err = atomic_load(&write_err);
    return err ? err : swn_io_sys.pwrite(ctx, fd, buf, len, off);
}

static void begin(int ms)
{
    table = swn_io_sys;
    table.pwrite = slow_pwrite;
    atomic_store(&write_ms, ms);
    CHECK(engine_begin(BUDGET, SWN_CONFIG_AUTO, &table) == 0);
}

/* As a model is built: an allocation, an initialiser, and so on. */
static void make(unsigned from, unsigned to)
{
    for (unsigned i = from; i < to; i++) {
        struct tensor *t = &weights[i];
        struct swn_op op;
        enum swn_use use = SWN_USE_WRITE;
        CHECK(tensor_make(t, WEIGHT_BYTES, i + 1));
        op_open(&op, &t, &use, 1);
        op_close(&op);
    }
}

static void all_right(void)
{
    for (unsigned i = 0; i < WEIGHTS; i++)
        if (weights[i].own)
            CHECK(tensor_right(&weights[i], weights[i].own));
}

static void drain(void)
{
    pthread_mutex_lock(&e->lock);
    swn_write_behind_drain(e);
    CHECK(swn_write_behind_bytes(e) == 0);
    for (struct swn_range *r = swn_arena_first(e->arena); r; r = r->next) {
        int state = atomic_load(&r->state);
        CHECK(!swn_tensor_of(r)->pending_write && (state == SWN_RESIDENT || state == SWN_FILE_BACKED));
    }
    pthread_mutex_unlock(&e->lock);
}

/* A weight that has begun to leave and has not left: writes take their time. */
static struct tensor *departing(void)
{
    struct tensor *found = NULL;
    pthread_mutex_lock(&e->lock);
    for (unsigned i = 0; i < WEIGHTS && !found; i++) {
        struct swn_range *r = weights[i].own ? swn_arena_find(e->arena, weights[i].own) : NULL;
        found = r && swn_tensor_of(r)->pending_write ? &weights[i] : NULL;
    }
    pthread_mutex_unlock(&e->lock);
    CHECK(found);
    return found;
}

static int state_of(const struct tensor *t)
{
    return atomic_load(&swn_arena_find(e->arena, t->own)->state);
}

static void free_all(void)
{
    for (unsigned i = 0; i < WEIGHTS; i++)
        if (weights[i].own)
            tensor_free(&weights[i]);
    drain();
    engine_is_empty();
}

static void within_the_budget(void *arg)
{
    (void)arg;
    begin(2);
    make(0, WEIGHTS);
    CHECK(e->writes.behind);
    CHECK(engine_counters().peak_resident <= BUDGET && !engine_counters().over_budget_peak);
    all_right();
    drain();
    all_right();
    for (unsigned i = 0; i < 4 * WEIGHTS; i++)
        op_read(&weights[i % WEIGHTS]);
    CHECK(e->weights.accesses > 0);
    /* Weights are being read: what is resident stays there until its room is needed. */
    struct tensor more;
    CHECK(tensor_make(&more, WEIGHT_BYTES, 99));
    CHECK(swn_write_behind_bytes(e) == 0);
    tensor_free(&more);
    free_all();
}

static void stored_into(void *arg)
{
    (void)arg;
    begin(50);
    make(0, WEIGHTS);
    struct tensor *t = departing();
    tensor_stamp(t, t->own, 1000);
    drain();
    CHECK(state_of(t) == SWN_RESIDENT);
    all_right();
    free_all();
}

static void wanted_again(void *arg)
{
    (void)arg;
    begin(50);
    make(0, WEIGHTS);
    struct tensor *t = departing();
    op_read(t);
    CHECK(state_of(t) == SWN_RESIDENT);

    t = departing();
    struct swn_op op;
    enum swn_use use = SWN_USE_WRITE;
    op_open(&op, &t, &use, 1);
    CHECK(state_of(t) == SWN_RESIDENT);
    tensor_stamp(t, t->own, 1001);
    op_close(&op);

    /* A system call that stores: it would get EFAULT where a program's store only waits. */
    t = departing();
    int ends[2];
    CHECK(pipe(ends) == 0 && write(ends[1], "12345678", 8) == 8);
    uint64_t first = *(uint64_t *)t->own;
    swn_engine_pin((void *)t->own, 8);
    CHECK(read(ends[0], (void *)t->own, 8) == 8);
    swn_engine_unpin((void *)t->own, 8);
    *(uint64_t *)t->own = first;

    t = departing();
    tensor_free(t);
    CHECK(
        tensor_make(t, WEIGHT_BYTES, 77)); /* perhaps at the same place, of which the old bytes are still being read */
    drain();
    all_right();
    free_all();
}

/* Its address space, which was mapped from the file before, becomes ordinary memory while its bytes are being written.
 */
static void freed_under_way(void *arg)
{
    (void)arg;
    begin(1);
    make(0, WEIGHTS);
    drain();
    struct tensor *t = weights;
    while (state_of(t) != SWN_FILE_BACKED)
        t++;
    struct swn_op op;
    enum swn_use use = SWN_USE_WRITE;
    op_open(&op, &t, &use, 1);
    op_close(&op);
    CHECK(state_of(t) == SWN_RESIDENT);
    drain();

    atomic_store(&write_ms, 200);
    int begun = atomic_load(&writes_begun);
    pthread_mutex_lock(&e->lock);
    struct swn_range *r = swn_arena_find(e->arena, t->own);
    CHECK(r->foreign_map && swn_write_behind_start(e, r) == 0);
    pthread_mutex_unlock(&e->lock);
    while (atomic_load(&writes_begun) == begun)
        usleep(1000);
    tensor_free(t);
    CHECK(tensor_make(t, WEIGHT_BYTES, 88));
    atomic_store(&write_ms, 1);
    drain();
    all_right();
    free_all();
}

/* What nobody has begun to write when it is recalled is not written. */
static void recalled_unwritten(void *arg)
{
    (void)arg;
    begin(50);
    make(0, WEIGHTS);
    uint64_t expected = 0;
    pthread_mutex_lock(&e->lock);
    swn_write_behind_complete(e);
    uint64_t before = e->writes.spill->written_bytes;
    for (unsigned i = 0; i < WEIGHTS; i++) {
        struct swn_range *r = swn_arena_find(e->arena, weights[i].own);
        expected += swn_tensor_of(r)->pending_write ? WEIGHT_BYTES : 0;
        swn_write_behind_cancel(e, r);
    }
    CHECK(swn_write_behind_bytes(e) == 0 && expected > 2 * WEIGHT_BYTES);
    swn_write_behind_drain(e);
    CHECK(e->writes.spill->written_bytes - before <= 2 * WEIGHT_BYTES); /* one under way, or just done */
    pthread_mutex_unlock(&e->lock);
    all_right();
    free_all();
}

/* What the file system may keep of a file with holes in it beside its bytes. */
#define EXTENT_TREE (64u << 10)

/* The disk space of what was recalled comes back by itself: also when the program does nothing more that would make the
 * engine look after its writes. */
static void recalled_space_comes_back(void *arg)
{
    (void)arg;
    begin(20);
    make(0, WEIGHTS);
    atomic_store(&write_ms, 100);
    int begun = atomic_load(&writes_begun), waiting = 0;
    pthread_mutex_lock(&e->lock);
    swn_write_behind_complete(e);
    struct swn_extent_file *file = e->writes.spill;
    for (unsigned i = 0; i < WEIGHTS; i++)
        waiting += swn_tensor_of(swn_arena_find(e->arena, weights[i].own))->pending_write != NULL;
    CHECK(waiting > 2);
    uint64_t written = file->written_bytes;
    while (atomic_load(&writes_begun) < begun + 2) /* one is done, and one is under way */
        usleep(1000);
    for (unsigned i = 0; i < WEIGHTS; i++)
        swn_write_behind_cancel(e, swn_arena_find(e->arena, weights[i].own));
    CHECK(swn_write_behind_bytes(e) == 0);
    uint64_t live = 0;
    for (unsigned i = 0; i < WEIGHTS; i++)
        live += state_of(&weights[i]) == SWN_FILE_BACKED ? WEIGHT_BYTES : 0;
    struct stat st = {0};
    for (int tries = 0;
         tries < 500 && (file->live_bytes != live || !st.st_size || (uint64_t)st.st_blocks * 512 > live + EXTENT_TREE);
         tries++) {
        usleep(20000);
        CHECK(fstat(file->fetch.fd, &st) == 0);
    }
    CHECK((uint64_t)st.st_blocks * 512 <= live + EXTENT_TREE && file->live_bytes == live);
    CHECK(file->written_bytes >= written + 2 * WEIGHT_BYTES); /* reads beside them do not show the disk's speed */
    pthread_mutex_unlock(&e->lock);
    all_right();
    free_all();
}

static void disk_full(void *arg)
{
    begin(2);
    make(0, WEIGHTS / 2 + 4);
    atomic_store(&write_err, *(int *)arg);
    make(WEIGHTS / 2 + 4, WEIGHTS);
    drain();
    CHECK(engine_counters().over_budget_peak && e->said.full);
    all_right();
    atomic_store(&write_err, 0);
    free_all();
}

static void forked(void *arg)
{
    (void)arg;
    begin(20);
    make(0, WEIGHTS);
    departing();
    swn_engine_prefork();
    pid_t pid = fork();
    if (!pid) {
        swn_engine_postfork_child();
        all_right();
        for (unsigned i = 0; i < WEIGHTS; i++)
            tensor_stamp(&weights[i], weights[i].own, i + 500);
#ifndef __SANITIZE_THREAD__ /* which does not let a child start threads */
        struct tensor more;
        CHECK(tensor_make(&more, WEIGHT_BYTES, 99));
        all_right();
#endif
        _exit(0);
    }
    swn_engine_postfork_parent();
    int status;
    CHECK(pid > 0 && waitpid(pid, &status, 0) == pid && WIFEXITED(status) && WEXITSTATUS(status) == 0);
    all_right();
    drain();
    all_right();
}

/* The disk space of what is gone comes back, a little later. */
static void space_comes_back(void *arg)
{
    (void)arg;
    begin(0);
    make(0, WEIGHTS);
    drain();
    struct stat st;
    CHECK(fstat(e->writes.spill->fetch.fd, &st) == 0 && (size_t)st.st_blocks * 512 >= WEIGHTS / 2 * WEIGHT_BYTES);
    free_all();
    for (int tries = 0; tries < 500; tries++) {
        CHECK(fstat(e->writes.spill->fetch.fd, &st) == 0);
        if (!st.st_blocks)
            return;
        usleep(20000);
    }
    CHECK(0 && "holes are punched");
}

static _Atomic int hours_ahead;
int __real_clock_gettime(clockid_t clock, struct timespec *t);
int __wrap_clock_gettime(clockid_t clock, struct timespec *t);
int __wrap_clock_gettime(clockid_t clock, struct timespec *t)
{
    int rc = __real_clock_gettime(clock, t);
    if (clock == CLOCK_REALTIME)
        t->tv_sec += atomic_load(&hours_ahead) * 3600;
    return rc;
}

/* The time of day is set back: whoever waits for it waits for hours. */
static void clock_set_back(void *arg)
{
    atomic_store(&hours_ahead, 5);
    space_comes_back(arg);
}

#define ALONE(name, argument)                                                                                          \
    static void name##_alone(void **state)                                                                             \
    {                                                                                                                  \
        (void)state;                                                                                                   \
        assert_int_equal(run_alone(name, argument, 120), 0);                                                           \
    }

static int no_room = -ENOSPC, broken = -EIO;
static void disk_broken(void *arg)
{
    disk_full(arg);
}

ALONE(within_the_budget, NULL)
ALONE(stored_into, NULL)
ALONE(wanted_again, NULL)
ALONE(freed_under_way, NULL)
ALONE(recalled_unwritten, NULL)
ALONE(recalled_space_comes_back, NULL)
ALONE(disk_full, &no_room)
ALONE(disk_broken, &broken)
ALONE(forked, NULL)
ALONE(space_comes_back, NULL)
ALONE(clock_set_back, NULL)

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(within_the_budget_alone),
        cmocka_unit_test(stored_into_alone),
        cmocka_unit_test(wanted_again_alone),
        cmocka_unit_test(freed_under_way_alone),
        cmocka_unit_test(recalled_unwritten_alone),
        cmocka_unit_test(recalled_space_comes_back_alone),
        cmocka_unit_test(disk_full_alone),
        cmocka_unit_test(disk_broken_alone),
        cmocka_unit_test(forked_alone),
        cmocka_unit_test(space_comes_back_alone),
        cmocka_unit_test(clock_set_back_alone),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
