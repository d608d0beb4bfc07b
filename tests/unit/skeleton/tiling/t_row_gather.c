/* Description: rows that are looked up in a weight which is not in memory have the right bytes, whatever else goes on,
 * and nothing but the pages they lie in is read. */
#define _GNU_SOURCE
#include "blocks/memory/publish.h"
#include "tests/unit/support/engine_fixture.h"
#include "skeleton/core/eviction.h"
#include "skeleton/core/op_window.h"
#include "skeleton/core/prefetch.h"
#include "skeleton/core/plan.h"
#include "skeleton/tiling/row_gather.h"
#include "skeleton/core/residency_steps.h"
#include "skeleton/engine/thread_state.h"

#include <errno.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>

#include <cmocka.h>

#define ROW_BYTES ((size_t)3072) /* some of them lie in two pages */
#define ROWS ((size_t)2048)
#define TABLE_BYTES (ROWS * ROW_BYTES)
#define SMALL 12
#define SMALL_BYTES ((size_t)256 << 10)
#define BUDGET (10 * MIB)
#define MOST 2048
#ifdef __SANITIZE_THREAD__
#define STORM_PASSES 8
#else
#define STORM_PASSES 40
#endif

static struct tensor table, small[SMALL];
static struct swn_engine *const e = &swn_engine_one;
static const enum swn_use by_row = SWN_USE_ROWS;

/* The table leaves, if it has not. */
static void stream(void)
{
    pthread_mutex_lock(&e->lock);
    struct swn_range *r = swn_arena_find(e->arena, table.own);
    if (atomic_load(&r->state) == SWN_RESIDENT)
        CHECK(swn_open_pool(e) == 0 && swn_spill_range(e, r) == 0);
    CHECK(atomic_load(&r->state) == SWN_FILE_BACKED);
    pthread_mutex_unlock(&e->lock);
}

static void begin_with(const struct swn_io *io)
{
    CHECK(engine_begin(BUDGET, io ? SWN_CONFIG_PREAD : SWN_CONFIG_AUTO, io) == 0);
    CHECK(tensor_make(&table, TABLE_BYTES, 100));
    for (unsigned i = 0; i < SMALL; i++)
        CHECK(tensor_make(&small[i], SMALL_BYTES, i + 1));
    stream();
}

static void end(void)
{
    tensor_free(&table);
    for (unsigned i = 0; i < SMALL; i++)
        tensor_free(&small[i]);
    engine_is_empty();
}

/* Looks rows up as an embedding does, and checks them. 0: it had to be done at the table's own address. */
static int look_up(const int64_t *rows, size_t n)
{
    static __thread char *out;
    if (!out)
        CHECK((out = malloc(MOST * ROW_BYTES)));
    struct swn_op op;
    struct tensor *t = &table;
    op_open(&op, &t, &by_row, 1);
    memset(out, 0xee, n * ROW_BYTES);
    int done = op.args[0].rows && swn_gather_rows(&op, 0, table.own, ROW_BYTES, ROWS, rows, n, out);
    for (size_t i = 0; i < n; i++) {
        uintptr_t at = done ? (uintptr_t)out + i * ROW_BYTES : table.own + (size_t)rows[i] * ROW_BYTES;
        CHECK(tensor_right_part(&table, at, (size_t)rows[i] * ROW_BYTES, ROW_BYTES));
    }
    op_close(&op);
    return done;
}

static void random_rows(int64_t *rows, size_t n, uint64_t *state)
{
    for (size_t i = 0; i < n; i++)
        rows[i] = (int64_t)(next_random(state) % ROWS);
}

static uint64_t fetched(void)
{
    struct swn_fetch_stats s;
    swn_fetch_stats_get(e->fetch, &s);
    return s.bytes;
}

static void only_their_pages(void *arg)
{
    (void)arg;
    begin_with(NULL);
    int64_t rows[MOST] = {0};
    uint64_t before = fetched();
    CHECK(look_up(rows, 1) == 1);
    CHECK(fetched() - before == SWN_PAGE);
    rows[0] = 1; /* in the first two pages */
    CHECK(look_up(rows, 1) == 1);
    CHECK(fetched() - before == 3 * SWN_PAGE);
    rows[0] = ROWS - 1;
    CHECK(look_up(rows, 1) == 1);
    CHECK(fetched() - before == 4 * SWN_PAGE);
    for (size_t i = 0; i < MOST; i++) /* the same few over and over, backwards */
        rows[i] = (int64_t)(63 - i % 64) * 32;
    before = fetched();
    CHECK(look_up(rows, MOST) == 1);
    CHECK(fetched() - before <= 128 * SWN_PAGE);
    /* More than is read at a time. */
    uint64_t state = 7;
    for (unsigned i = 0; i < 4; i++) {
        random_rows(rows, MOST, &state);
        CHECK(look_up(rows, MOST) == 1);
    }
    CHECK(e->res.fallback_pages == 0 && engine_counters().peak_resident <= BUDGET &&
          engine_counters().over_budget_peak == 0);
    CHECK(engine_counters().rows == 3 + 5 * MOST);
    CHECK(e->nonweight.small_bytes == 0);
    end();
}

/* Stores that nobody announces, before the weight came to be streamed and after. */
static void unannounced_stores_are_in_the_rows(void *arg)
{
    (void)arg;
    int64_t rows[64];
    uint64_t state = 1;
    begin_with(NULL);
    for (unsigned i = 0; i < 4; i++) {
        random_rows(rows, 64, &state);
        CHECK(look_up(rows, 64) == 1);
        volatile uint64_t *word = (volatile uint64_t *)(table.own + (size_t)rows[i] * ROW_BYTES);
        uint64_t was = *word;
        *word = 42;
        char out[ROW_BYTES];
        struct swn_op op;
        struct tensor *t = &table;
        op_open(&op, &t, &by_row, 1);
        CHECK(swn_gather_rows(&op, 0, table.own, ROW_BYTES, ROWS, &rows[i], 1, out) == 1);
        CHECK(*(uint64_t *)(void *)out == 42);
        op_close(&op);
        *word = was;
        tensor_stamp(&table, table.own, 200 + i);
        if (i % 2)
            look_up(rows, 64);
        stream();
    }
    end();
}

/* An operator reads chunks of the table, which are in frames from then on. */
static void read_part(size_t from, size_t upto)
{
    struct swn_op op = {.name = "aten::test", .n = 1};
    op.args[0] = (struct swn_arg){.mapped = 0, .data = table.own, .bytes = table.len, .use = SWN_USE_WEIGHT};
    op.args[0].from = from;
    op.args[0].upto = upto;
    swn_engine_op_begin(&op);
    CHECK(tensor_right_part(&table, table.own + from, from, upto - from));
    op_close(&op);
}

/* Of a table that is partly in frames, where rows do not begin: those come from there, and what is in the others is
 * read. */
static void rows_in_frames_are_not_read_again(void *arg)
{
    (void)arg;
    begin_with(NULL);
    size_t unit = swn_pool_unit(e->pool);
    struct swn_range *r = swn_arena_find(e->arena, table.own);
    int64_t rows[256];
    uint64_t state = 3;
    for (unsigned i = 0; i < 12; i++) {
        size_t at = (2 + i % 3 * 5) * unit - r->place % unit;
        read_part(at, at + 2 * unit);
        CHECK(swn_residency_mapped(&e->res, r, r->addr + at) && swn_residency_unmapped(&e->res, r) > 0);
        random_rows(rows, 256, &state);
        rows[0] = (int64_t)(at / ROW_BYTES); /* across both ends of what is mapped */
        rows[1] = (int64_t)((at + 2 * unit - 1) / ROW_BYTES);
        rows[2] = (int64_t)((at + unit) / ROW_BYTES);
        uint64_t before = fetched();
        CHECK(look_up(rows, 256) == 1);
        before = fetched();
        CHECK(look_up(&rows[2], 1) == 1 && fetched() == before);
    }
    CHECK(e->res.fallback_pages == 0);
    end();
}

/* What cannot be done by rows is done at the weight's own address, and its pages are let go of again. */
static void refused(void *arg)
{
    (void)arg;
    begin_with(NULL);
    struct swn_op op;
    struct tensor *t = &table;
    int64_t row = 0;
    static char out[2 * MIB];
    op_open(&op, &t, &by_row, 1);
    CHECK(swn_gather_rows(&op, 0, table.own, sizeof out, 3, &row, 1, out) ==
          0); /* larger than what is read at a time */
    CHECK(tensor_right(t, t->own));
    op_close(&op);
    uint64_t strays = e->res.fallback_pages;
    CHECK(strays >= TABLE_BYTES / SWN_PAGE);
    op_open(&op, &t, &by_row, 1);
    CHECK(tensor_right(t, t->own)); /* never asked */
    op_close(&op);
    CHECK(e->res.fallback_pages >= strays + TABLE_BYTES / SWN_PAGE);
    struct swn_pages pages;
    CHECK(swn_residency_scan(&e->res, swn_arena_find(e->arena, table.own), &pages) == 0 && pages.mapped == 0);
    end();
}

/* An operator on the table that asks for such rows. */
static int ask_for(const int64_t *rows, size_t n, char *out)
{
    struct swn_op op;
    struct tensor *t = &table;
    op_open(&op, &t, &by_row, 1);
    int done = op.args[0].rows && swn_gather_rows(&op, 0, table.own, ROW_BYTES, ROWS, rows, n, out);
    op_close(&op);
    return done;
}

/* Numbers that are no row's lead nowhere: not to memory that is not the table's, and not to another answer later. */
static void no_such_row(void *arg)
{
    (void)arg;
    const int64_t wrong[] = {-1, ROWS, INT64_MAX, INT64_MIN, INT64_MAX / (int64_t)ROW_BYTES};
    int64_t rows[64];
    static char out[64 * ROW_BYTES];
    uint64_t state = 13;
    begin_with(NULL);
    for (int planned = 0; planned < 2; planned++) {
        e->plan.planned = planned;
        for (unsigned i = 0; i < sizeof wrong / sizeof wrong[0]; i++) {
            random_rows(rows, 64, &state);
            int64_t right = rows[i * 13];
            rows[i * 13] = wrong[i];
            uint64_t before = engine_counters().rows;
            CHECK(ask_for(rows, 64, out) == 0 && engine_counters().rows == before && !swn_window_self()->looking_up);
            rows[i * 13] = right;
            CHECK(look_up(rows, 64) == 1);
        }
    }
    pthread_mutex_lock(&e->lock);
    swn_rows_trim(e);
    pthread_mutex_unlock(&e->lock);
    CHECK(e->nonweight.small_bytes == 0);
    end();
}

static int64_t refilled[MOST];
static _Atomic int over;

static void *refill(void *arg)
{
    (void)arg;
    while (!atomic_load(&over)) {
        __atomic_store_n(&refilled[MOST - 1], INT64_MAX / (int64_t)ROW_BYTES, __ATOMIC_RELAXED);
        __atomic_store_n(&refilled[MOST - 1], ROWS - 1, __ATOMIC_RELAXED);
    }
    return NULL;
}

/* The numbers are the program's own memory, which another thread of it fills again meanwhile. */
static void numbers_that_change(void *arg)
{
    (void)arg;
    static char out[MOST * ROW_BYTES];
    begin_with(NULL);
    pthread_t t;
    unsigned done = 0, refused = 0;
    CHECK(pthread_create(&t, NULL, refill, NULL) == 0);
    while (done + refused < 100 || !done || !refused) {
        unsigned right = (unsigned)ask_for(refilled, MOST, out);
        done += right;
        refused += !right;
    }
    atomic_store(&over, 1);
    CHECK(pthread_join(t, NULL) == 0);
    CHECK(e->nonweight.small_bytes == 0);
    end();
}

static _Atomic int broken;

static ssize_t broken_pread(void *ctx, int fd, void *buf, size_t len, uint64_t off)
{
    return atomic_load(&broken) ? -EIO : swn_io_sys.pread(ctx, fd, buf, len, off);
}

/* Its pages then come from the mapping, which the kernel reads. */
static void rows_come_through_the_mapping_where_the_disk_fails(void *arg)
{
    (void)arg;
    static struct swn_io io;
    io = swn_io_sys;
    io.pread = broken_pread;
    begin_with(&io);
    int64_t rows[64];
    uint64_t state = 5;
    random_rows(rows, 64, &state);
    CHECK(look_up(rows, 64) == 1 && e->res.fallback_pages == 0);
    atomic_store(&broken, 1);
    CHECK(look_up(rows, 64) == 1);
    atomic_store(&broken, 0);
    uint64_t strays = e->res.fallback_pages;
    CHECK(engine_counters().read_errors > 0 && e->said.read && strays > 0);
    CHECK(look_up(rows, 64) == 1 && e->res.fallback_pages == strays);
    end();
}

static void forked(void *arg)
{
    (void)arg;
    begin_with(NULL);
    int64_t rows[64];
    uint64_t state = 9;
    random_rows(rows, 64, &state);
    CHECK(look_up(rows, 64) == 1);
    swn_engine_prefork();
    pid_t pid = fork();
    if (!pid) {
        swn_engine_postfork_child();
#ifndef __SANITIZE_THREAD__ /* which does not let a child start threads */
        CHECK(look_up(rows, 64) == 1);
        CHECK(look_up(rows, 64) == 1);
#endif
        _exit(0);
    }
    swn_engine_postfork_parent();
    CHECK(look_up(rows, 64) == 1);
    int status;
    CHECK(pid > 0 && waitpid(pid, &status, 0) == pid && status == 0);
}

/* On a fast machine it would be done before the table has left for the first time. */
static void *reader(void *arg)
{
    uint64_t state = (uint64_t)(uintptr_t)arg;
    int64_t rows[128];
    for (unsigned i = 0; i < STORM_PASSES || !engine_counters().rows; i++) {
        random_rows(rows, 128, &state);
        look_up(rows, 128);
        op_read(&small[i % SMALL]);
    }
    return NULL;
}

/* The table comes and goes under the threads that read it. */
static void *mover(void *arg)
{
    (void)arg;
    while (!atomic_load(&over)) {
        pthread_mutex_lock(&e->lock);
        struct swn_range *r = swn_arena_find(e->arena, table.own);
#ifndef __SANITIZE_THREAD__ /* to which an atomic store of what is there already races with reading it */
        if (atomic_load(&r->state) == SWN_FILE_BACKED)
            swn_make_resident(e, r, 0);
        else
#endif
            swn_spill_range(e, r);
        pthread_mutex_unlock(&e->lock);
        usleep(2000);
    }
    return NULL;
}

static void threads(void *arg)
{
    (void)arg;
    begin_with(NULL);
    pthread_t t[4];
    for (uintptr_t i = 0; i < 3; i++)
        CHECK(pthread_create(&t[i], NULL, reader, (void *)(i + 1)) == 0);
    CHECK(pthread_create(&t[3], NULL, mover, NULL) == 0);
    for (unsigned i = 0; i < 3; i++)
        CHECK(pthread_join(t[i], NULL) == 0);
    atomic_store(&over, 1);
    CHECK(pthread_join(t[3], NULL) == 0);
    CHECK(e->disk.row_waiters == 0);
    end();
}

static void *ask_once(void *arg)
{
    static char out[ROW_BYTES];
    *(int *)arg = ask_for(&(int64_t){7}, 1, out);
    return NULL;
}

/* What a thread in the middle of a lookup has, and what one has that gave it up, is not a child's: neither the memory
 * nor its hold on the file. */
static void forked_meanwhile(void *arg)
{
    (void)arg;
    begin_with(NULL);
    for (int gives_up = 0; gives_up < 2; gives_up++) {
        int64_t row = 3;
        e->plan.planned = 1;
        swn_prefetch_wait_ms = gives_up ? 50 : 60000;
        CHECK(look_up(&row, 1) == 1);
        pthread_t t;
        int done;
        pthread_mutex_lock(&e->lock);
        struct swn_extent_file *file = swn_arena_find(e->arena, table.own)->file;
        size_t refs = file->refs;
        pthread_mutex_unlock(&e->lock);
        swn_fetch_pause(e->fetch);
        CHECK(pthread_create(&t, NULL, ask_once, &done) == 0);
        int there = 0;
        while (!there) {
            usleep(100);
            pthread_mutex_lock(&e->lock);
            there = file->refs == refs + 1 && (int)e->disk.row_waiters == !gives_up;
            pthread_mutex_unlock(&e->lock);
        }
        swn_engine_prefork();
        pid_t pid = fork();
        if (!pid) {
            swn_engine_postfork_child();
            CHECK(e->nonweight.small_bytes == 0 && file->refs == refs);
            _exit(0);
        }
        swn_engine_postfork_parent();
        int status;
        CHECK(pid > 0 && waitpid(pid, &status, 0) == pid && status == 0);
        swn_fetch_resume(e->fetch);
        CHECK(pthread_join(t, NULL) == 0 && done == !gives_up);
    }
}

static void *look_up_once(void *arg)
{
    int64_t rows[64];
    uint64_t state = (uint64_t)(uintptr_t)arg;
    random_rows(rows, 64, &state);
    CHECK(look_up(rows, 64) == 1);
    CHECK(e->nonweight.small_bytes > 0);
    return NULL;
}

static void *look_up_and_end(void *arg)
{
    look_up_once(arg);
    swn_window_thread_exit(); /* as shim/hooks/hook_threads.c does */
    return NULL;
}

/* While there is a plan, a thread looks rows up in memory that it has: counted, as much as it needed so far, and gone
 * with the thread, in a child, and before anything has to leave. */
static void kept_for_the_next(void *arg)
{
    (void)arg;
    begin_with(NULL);
    int64_t rows[MOST];
    uint64_t state = 11;
    e->plan.planned = 1;
    look_up_once((void *)5);
    long long small_bytes = e->nonweight.small_bytes;
    struct swn_row_reading *kept = swn_window_self()->reading;
    CHECK(kept && small_bytes > 0 && small_bytes < (long long)MIB);
    for (unsigned i = 0; i < 8; i++) {
        random_rows(rows, 64, &state);
        CHECK(look_up(rows, 64) == 1 && swn_window_self()->reading == kept && e->nonweight.small_bytes == small_bytes);
    }
    random_rows(rows, MOST, &state);
    CHECK(look_up(rows, MOST) == 1 && e->nonweight.small_bytes > small_bytes &&
          e->nonweight.small_bytes < (long long)(2 * MIB));
    small_bytes = e->nonweight.small_bytes;
    pthread_t t;
    for (uintptr_t i = 1; i < 4; i++) {
        CHECK(pthread_create(&t, NULL, look_up_and_end, (void *)i) == 0 && pthread_join(t, NULL) == 0);
    }
    CHECK(e->nonweight.small_bytes == small_bytes);
    swn_engine_prefork();
    pid_t pid = fork();
    if (!pid) {
        swn_engine_postfork_child();
        CHECK(e->nonweight.small_bytes == 0 && !swn_window_self()->reading);
        _exit(0);
    }
    swn_engine_postfork_parent();
    int status;
    CHECK(pid > 0 && waitpid(pid, &status, 0) == pid && status == 0);
    pthread_mutex_lock(&e->lock);
    CHECK(swn_shrink_step(e, 0, 1) == 0);
    pthread_mutex_unlock(&e->lock);
    CHECK(e->nonweight.small_bytes == 0 && !swn_window_self()->reading);
    CHECK(look_up(rows, 64) == 1 &&
          e->nonweight.small_bytes > 0); /* no end(): extents that a child may map are not given back */
}

IN_A_CHILD(only_their_pages, 240)
IN_A_CHILD(unannounced_stores_are_in_the_rows, 240)
IN_A_CHILD(rows_in_frames_are_not_read_again, 240)
IN_A_CHILD(refused, 240)
IN_A_CHILD(no_such_row, 240)
IN_A_CHILD(numbers_that_change, 240)
IN_A_CHILD(rows_come_through_the_mapping_where_the_disk_fails, 240)
IN_A_CHILD(forked, 240)
IN_A_CHILD(forked_meanwhile, 240)
IN_A_CHILD(threads, 240)
IN_A_CHILD(kept_for_the_next, 240)

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_only_their_pages),
        cmocka_unit_test(test_unannounced_stores_are_in_the_rows),
        cmocka_unit_test(test_rows_in_frames_are_not_read_again),
        cmocka_unit_test(test_refused),
        cmocka_unit_test(test_no_such_row),
        cmocka_unit_test(test_numbers_that_change),
        cmocka_unit_test(test_rows_come_through_the_mapping_where_the_disk_fails),
        cmocka_unit_test(test_forked),
        cmocka_unit_test(test_forked_meanwhile),
        cmocka_unit_test(test_threads),
        cmocka_unit_test(test_kept_for_the_next),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
