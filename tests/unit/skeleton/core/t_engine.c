/* Description: the engine as a whole: the budget and what a plan leaves to be read, a disk that stalls or fails, and
 * many threads that allocate and free. */
#define _GNU_SOURCE
#include "blocks/memory/publish.h"
#include "tests/unit/support/engine_fixture.h"
#include "skeleton/core/op_window.h"
#include "skeleton/core/prefetch.h"
#include "skeleton/core/plan.h"
#include "skeleton/engine/accounting.h"
#include "skeleton/core/residency_steps.h"

#include <errno.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <cmocka.h>

#define WEIGHTS 24
#define WEIGHT_BYTES ((size_t)512 << 10)

static struct tensor weights[WEIGHTS];
static struct swn_engine *const e = &swn_engine_one;

static void make_weights(void)
{
    for (unsigned i = 0; i < WEIGHTS; i++)
        CHECK(tensor_make(&weights[i], WEIGHT_BYTES, i + 1));
}

static void passes(unsigned n)
{
    for (unsigned pass = 0; pass < n; pass++)
        for (unsigned i = 0; i < WEIGHTS; i++)
            op_read(&weights[i]);
}

static void sleep_ms(int ms)
{
    struct timespec t = {.tv_sec = ms / 1000, .tv_nsec = (long)(ms % 1000) * 1000000};
    nanosleep(&t, NULL);
}

static struct swn_stats counters(void)
{
    struct swn_stats stats;
    swn_engine_stats(&stats);
    return stats;
}

/* --- the budget --- */

/* Each operator's output lives until the next one has read it, and no two are of one size: dead ones leave warm pages
 * that the next cannot use. */
static void pass_with_activations(void)
{
    static const size_t granules[] = {1, 7, 2, 12, 3, 9, 5, 14, 1, 6, 13};
    struct tensor before = {0}, now;
    for (unsigned i = 0; i < WEIGHTS; i++, before = now) {
        CHECK(tensor_make(&now, granules[i % 11] << 16, 1));
        op_read(&weights[i]);
        if (before.own)
            tensor_free(&before);
    }
    tensor_free(&before);
}

/* Chunks of weights that the plan wants resident and that are not. */
static unsigned not_kept(void)
{
    unsigned n = 0;
    pthread_mutex_lock(&e->lock);
    for (struct swn_range *r = swn_arena_first(e->arena); r; r = r->next)
        for (struct swn_chunks all = swn_residency_chunks(&e->res, r); all.first < all.end; all.first++) {
            const struct swn_chunk *c = swn_pool_chunk(e->pool, all.first);
            n += swn_is_weight(r) && atomic_load(&r->state) == SWN_FILE_BACKED && c->plan_keep &&
                 !(c->frame && c->frame->pinned_by_plan);
        }
    pthread_mutex_unlock(&e->lock);
    return n;
}

/* Waits for the reads that are under way. What was ordered ahead is counted only when it arrives: without this, a count
 * begun before a slow disk has delivered has up to a window too much in it. */
static void reads_arrive(void)
{
    for (int filling = 1; filling;) {
        sleep_ms(1);
        pthread_mutex_lock(&e->lock);
        filling = 0;
        for (struct swn_frame *f = swn_pool_first(e->pool); f; f = f->next)
            filling += f->pending != 0;
        pthread_mutex_unlock(&e->lock);
    }
}

static uint64_t bytes_read(void)
{
    reads_arrive();
    return counters().streamed_bytes;
}

/* Nothing had to leave: whatever was in memory once costs no page fault a second time, up to the budget. */
static void warm_pages_fill_what_nobody_needs(void *arg)
{
    (void)arg;
    struct tensor weight, large, other;
    CHECK(engine_begin(8 * MIB, SWN_CONFIG_AUTO, NULL) == 0);
    CHECK(tensor_make(&weight, 2 * MIB, 1));
    CHECK(tensor_make(&large, 3 * MIB, 2) && tensor_make(&other, 2 * MIB, 3));
    tensor_free(&large);
    tensor_free(&other);
    CHECK(swn_arena_fresh(e->arena, 3 * MIB, SWN_LONG_TERM) == 0 &&
          swn_arena_fresh(e->arena, 5 * MIB, SWN_LONG_TERM) == 0);
    /* What needs the room gets it, and nothing is written for that. */
    CHECK(tensor_make(&large, 6 * MIB, 4));
    CHECK(swn_engine_resident(e) <= 8 * MIB && !counters().spilled_bytes && !counters().over_budget_bytes);
    tensor_free(&large);
    tensor_free(&weight);
}

static void warm_pages_leave_room_for_the_plan(void *arg)
{
    (void)arg;
    size_t budget = 10 * MIB, all = WEIGHTS * WEIGHT_BYTES, activations = (5 + 14) << 16;
    CHECK(engine_begin(budget, SWN_CONFIG_AUTO, NULL) == 0);
    make_weights();
    for (unsigned i = 0; i < 12; i++)
        pass_with_activations();
    CHECK(e->plan.planned);
    uint64_t before = bytes_read();
    for (unsigned i = 0; i < 4; i++)
        pass_with_activations();
    uint64_t per_pass = (bytes_read() - before) / 4;
    CHECK(not_kept() == 0);
    /* What the budget leaves beside the window and two activations is kept, to one weight; one more is wasted. */
    size_t kept = budget - e->plan.ring_goal - activations;
    CHECK(per_pass > 0);
    CHECK(per_pass <= all - kept + 2 * WEIGHT_BYTES);
    CHECK(engine_counters().peak_resident <= budget);
}

static void *one_pass(void *unused)
{
    pass_with_activations();
    return unused;
}

/* Invariant 14: every inference in a thread of its own. The cycle closes across threads, so there is a plan, and it is
 * carried out. */
static void thread_per_inference(void *arg)
{
    (void)arg;
    size_t budget = 10 * MIB, all = WEIGHTS * WEIGHT_BYTES, activations = (5 + 14) << 16;
    CHECK(engine_begin(budget, SWN_CONFIG_AUTO, NULL) == 0);
    make_weights();
    uint64_t before = 0;
    for (unsigned i = 0; i < 16; i++) {
        pthread_t thread;
        if (i == 12)
            before = bytes_read();
        CHECK(pthread_create(&thread, NULL, one_pass, NULL) == 0);
        CHECK(pthread_join(thread, NULL) == 0);
    }
    CHECK(counters().plans > 0);
    CHECK(e->ops.thread_count == 1);
    size_t kept = budget - e->plan.ring_goal - activations;
    CHECK(not_kept() == 0);
    CHECK((bytes_read() - before) / 4 <= all - kept + 2 * WEIGHT_BYTES);
    CHECK(counters().passes >= 12);
}

/* Tensors below 64 KiB are malloc's, but they count: what is allocated next makes room for them. */
static void small_tensors_count(void *arg)
{
    (void)arg;
    size_t budget = 6 * MIB;
    CHECK(engine_begin(budget, SWN_CONFIG_AUTO, NULL) == 0);
    make_weights();
    for (unsigned i = 0; i < 6; i++)
        pass_with_activations();
    for (unsigned i = 0; i < 64; i++) {
        swn_engine_count_small(20 << 10);
        size_t small = (size_t)(i + 1) * (20 << 10);
        struct tensor activation;
        CHECK(tensor_make(&activation, 64 << 10, 1)); /* from warm pages, where there are any */
        CHECK(swn_engine_resident(e) <= budget);
        CHECK(swn_engine_resident(e) >= small);
        tensor_free(&activation);
    }
    CHECK(engine_counters().over_budget_peak == 0);
    CHECK(engine_counters().peak_resident <= budget);
    passes(2);
}

/* --- a bad disk --- */

/* Reads that begin at `stall_off` end `stall_ms` late, on whatever path they are made; with bad_from set, reads from
 * that offset on fail for good. */
static struct swn_io table;
static _Atomic uint64_t stall_off, stalled, bad_from = UINT64_MAX;
static _Atomic int stall_ms;
static struct {
    uint64_t tag, until_ns;
    int res, waiting, there;
} late; /* the ring's thread only */

static uint64_t offsets[64]; /* of what the ring reads, by tag */

static ssize_t bad_pread(void *ctx, int fd, void *buf, size_t len, uint64_t off)
{
    int ms = off == atomic_load(&stall_off) ? atomic_exchange(&stall_ms, 0) : 0;
    if (ms) {
        atomic_fetch_add(&stalled, 1);
        sleep_ms(ms);
    }
    if (off >= atomic_load(&bad_from))
        return -EIO;
    return swn_io_sys.pread(ctx, fd, buf, len, off);
}

static int bad_ring_read(void *ctx, struct io_uring *ring, int fd, void *buf, size_t len, uint64_t off, uint64_t tag)
{
    offsets[tag] = off;
    int ms = off == atomic_load(&stall_off) ? atomic_exchange(&stall_ms, 0) : 0;
    if (ms) {
        atomic_fetch_add(&stalled, 1);
        late.tag = tag;
        late.until_ns = swn_now_ns() + (uint64_t)ms * 1000000;
        late.waiting = 1;
    }
    return swn_io_sys.ring_read(ctx, ring, fd, buf, len, off, tag);
}

static int bad_ring_wait(void *ctx, struct io_uring *ring, int timeout_ms, uint64_t *tag, int *res)
{
    int got;
    do {
        got = swn_io_sys.ring_wait(ctx, ring, late.waiting ? 5 : timeout_ms, tag, res);
        if (got == 1 && late.waiting && *tag == late.tag) {
            late.res = *res;
            late.there = 1;
            got = 0;
        }
        if (got == 0 && late.there && swn_now_ns() >= late.until_ns) {
            *tag = late.tag;
            *res = late.res;
            late.waiting = late.there = 0;
            got = 1;
        }
    } while (got == 0 && late.there && timeout_ms < 0);
    if (got == 1 && offsets[*tag] >= atomic_load(&bad_from))
        *res = -EIO;
    return got;
}

static void bad_disk(enum swn_config_fetch fetch)
{
    table = swn_io_sys;
    table.pread = bad_pread;
    table.ring_read = bad_ring_read;
    table.ring_wait = bad_ring_wait;
    CHECK(engine_begin(6 * MIB, fetch, &table) == 0);
    make_weights();
    passes(6);
}

static uint64_t extent_of(const struct tensor *t)
{
    pthread_mutex_lock(&e->lock);
    struct swn_range *r = swn_arena_find(e->arena, t->own);
    CHECK(atomic_load(&r->state) == SWN_FILE_BACKED);
    swn_frames_forget(e, r);
    uint64_t off = r->extent;
    pthread_mutex_unlock(&e->lock);
    return off;
}

/* The weight whose read is to stall: a streamed one that is neither kept nor in the window. */
static struct tensor *pick_streamed(void)
{
    /* What is on its way takes room in the window: an operator that finds none is served by the mapping. */
    reads_arrive();
    for (unsigned i = WEIGHTS / 2; i < WEIGHTS; i++) {
        struct swn_range *r = swn_arena_find(e->arena, weights[i].own);
        if (atomic_load(&r->state) == SWN_FILE_BACKED && !tensor_in_frames(&weights[i]))
            return &weights[i];
    }
    CHECK(0 && "no weight is streamed");
    return NULL;
}

static _Atomic int others_stop;

/* A second job of the program: reads that do not stall. */
static void *read_others(void *spare)
{
    uintptr_t count = 0;
    while (!atomic_load(&stalled)) /* else it might be served by the mapping for want of room in the window */
        sched_yield();
    for (unsigned i = 0; !atomic_load(&others_stop); i++) {
        if (&weights[i % WEIGHTS] == spare)
            continue;
        op_read(&weights[i % WEIGHTS]);
        count++;
    }
    return (void *)count;
}

/* Reads at these offsets begin, and do not end as long as they are held. */
static struct {
    _Atomic uint64_t off;
    _Atomic int held, begun;
} holds[2] = {{.off = UINT64_MAX}, {.off = UINT64_MAX}};

static ssize_t held_pread(void *ctx, int fd, void *buf, size_t len, uint64_t off)
{
    for (unsigned i = 0; i < 2; i++)
        if (off == atomic_load(&holds[i].off)) {
            atomic_store(&holds[i].begun, 1);
            while (atomic_load(&holds[i].held))
                sleep_ms(1);
        }
    return swn_io_sys.pread(ctx, fd, buf, len, off);
}

static void *read_two(void *pair)
{
    static const enum swn_use uses[] = {SWN_USE_WEIGHT, SWN_USE_WEIGHT};
    struct swn_op op;
    op_open(&op, pair, uses, 2);
    op_close(&op);
    return NULL;
}

/* An operator waits for the first of two weights while another thread overwrites the second, which is being read: its
 * place is nobody else's before that read is over. */
static void overwritten_while_read(void *arg)
{
    (void)arg;
    table = swn_io_sys;
    table.pread = held_pread;
    CHECK(engine_begin(6 * MIB, SWN_CONFIG_PREAD, &table) == 0);
    make_weights();
    passes(6);
    struct tensor *pair[2] = {pick_streamed()};
    for (unsigned i = 0; i < WEIGHTS; i++) {
        struct swn_range *r = swn_arena_find(e->arena, weights[i].own);
        if (&weights[i] != pair[0] && atomic_load(&r->state) == SWN_FILE_BACKED && !tensor_in_frames(&weights[i]))
            pair[1] = &weights[i];
    }
    CHECK(pair[1] != NULL);
    for (unsigned i = 0; i < 2; i++) {
        atomic_store(&holds[i].held, 1);
        atomic_store(&holds[i].off, extent_of(pair[i]));
    }
    pthread_t thread;
    CHECK(pthread_create(&thread, NULL, read_two, pair) == 0);
    while (!atomic_load(&holds[0].begun) || !atomic_load(&holds[1].begun))
        sleep_ms(1);
    pthread_mutex_lock(&e->lock);
    struct swn_chunks chunks = swn_residency_chunks(&e->res, swn_arena_find(e->arena, pair[1]->own));
    const struct swn_chunk *c = swn_pool_chunk(e->pool, chunks.first);
    const struct swn_frame *f = c->frame;
    pthread_mutex_unlock(&e->lock);
    CHECK(f && c->users == 1);
    static const enum swn_use use = SWN_USE_OVERWRITE;
    struct swn_op op;
    op_open(&op, &pair[1], &use, 1);
    tensor_stamp(pair[1], pair[1]->own, 99);
    op_close(&op);
    atomic_store(&holds[0].held, 0);
    CHECK(pthread_join(thread, NULL) == 0);
    pthread_mutex_lock(&e->lock);
    const struct swn_frame *at = swn_pool_first(e->pool);
    while (at && at != f)
        at = at->next;
    int filling = at && at->pending;
    pthread_mutex_unlock(&e->lock);
    CHECK(filling);
    atomic_store(&holds[1].held, 0);
    reads_arrive();
    passes(2);
    for (unsigned i = 0; i < WEIGHTS; i++)
        tensor_free(&weights[i]);
    engine_is_empty();
}

/* Faults at one address that were repaired say nothing against the next one; those that come back do. */
static void faults_at_one_address(void *arg)
{
    (void)arg;
    CHECK(engine_begin(6 * MIB, SWN_CONFIG_AUTO, NULL) == 0);
    struct tensor t;
    CHECK(tensor_make(&t, WEIGHT_BYTES, 1));
    struct swn_range *r = swn_arena_find(e->arena, t.own);
    for (unsigned i = 0; i < 20000; i++) {
        atomic_store(&r->state, SWN_EVICTING);
        CHECK(swn_engine_trap(t.own) && atomic_load(&r->state) == SWN_EVICT_ABORTED);
    }
    atomic_store(&r->state, SWN_RESIDENT);
    unsigned vain = 0;
    while (swn_engine_trap(t.own) && vain < 20000)
        vain++;
    CHECK(vain > 100 && vain < 20000);
    tensor_free(&t);
    engine_is_empty();
}

#define STALL_MS 5000

/* A read that takes seconds holds up its own operator, and no other. */
static void stalled_read(void *arg)
{
    bad_disk(*(enum swn_config_fetch *)arg);
    struct tensor *t = pick_streamed();
    atomic_store(&stall_off, extent_of(t));
    atomic_store(&stall_ms, STALL_MS);
    struct swn_stats before = counters();
    pthread_t thread;
    void *others;
    CHECK(pthread_create(&thread, NULL, read_others, t) == 0);
    uint64_t begin = swn_now_ns();
    op_read(t);
    uint64_t took = swn_now_ns() - begin;
    atomic_store(&others_stop, 1);
    pthread_join(thread, &others);
    CHECK(atomic_load(&stalled) == 1);
    CHECK(took > (STALL_MS - 500) * 1000000ull);
    CHECK(took < 2 * STALL_MS * 1000000ull);
    struct swn_stats after = counters();
    CHECK(after.stall_ns - before.stall_ns > (STALL_MS - 500) * 1000000ull);
    /* Reads of others went on: several passes' worth, not the few that were on their way. */
    CHECK((uintptr_t)others > 4 * WEIGHTS);
    CHECK(after.swap_ins - before.swap_ins > 2 * WEIGHTS);
}

static double disk_speed(void)
{
    pthread_mutex_lock(&e->lock);
    double speed = swn_plan_disk(e).bytes_per_ns;
    pthread_mutex_unlock(&e->lock);
    return speed;
}

/* A wait does not outlive its time: the mapping serves, and the late bytes are taken when they come. */
static void stalled_too_long(void *arg)
{
    bad_disk(*(enum swn_config_fetch *)arg);
    passes(4);
    double speed = disk_speed();
    struct tensor *t = pick_streamed();
    atomic_store(&stall_off, extent_of(t));
    atomic_store(&stall_ms, 3000);
    swn_prefetch_wait_ms = 300;
    uint64_t begin = swn_now_ns(), misses = counters().window_misses;
    op_read(t);
    uint64_t took = swn_now_ns() - begin;
    CHECK(atomic_load(&stalled) == 1);
    CHECK(took > 250 * 1000000ull);
    CHECK(took < 2000 * 1000000ull);
    CHECK(counters().window_misses == misses + 1);
    passes(1);
    sleep_ms(3200);
    passes(3);
    CHECK(disk_speed() > speed / 10); /* the other reads took a hundredth of that */
    CHECK(counters().read_errors == 0);
    for (unsigned i = 0; i < WEIGHTS; i++)
        tensor_free(&weights[i]);
    engine_is_empty();
}

/* Row 1 through the engine: what cannot be fetched is served by its mapping; it is counted. */
static void reads_that_fail(void *arg)
{
    bad_disk(*(enum swn_config_fetch *)arg);
    atomic_store(&bad_from, 0);
    passes(3);
    CHECK(counters().read_errors > 0);
    CHECK(counters().window_misses > 0);
    atomic_store(&bad_from, UINT64_MAX);
    passes(3);
    for (unsigned i = 0; i < WEIGHTS; i++)
        tensor_free(&weights[i]);
    engine_is_empty();
}

/* --- many threads --- */

#define THREADS 32
#define ROUNDS 50
#define SHELF 64

static struct tensor shelf[SHELF]; /* blocks whose owner has ended, or that another thread is to free */
static pthread_mutex_t shelf_lock[SHELF];

static size_t some_size(uint64_t *chance)
{
    return (size_t)(64 + next_random(chance) % 512) << 10;
}

/* Puts a block there and frees the one before, mostly another thread's. */
static void exchange(struct tensor *mine, uint64_t *chance)
{
    unsigned i = (unsigned)(next_random(chance) % SHELF);
    pthread_mutex_lock(&shelf_lock[i]);
    struct tensor theirs = shelf[i];
    shelf[i] = *mine;
    pthread_mutex_unlock(&shelf_lock[i]);
    mine->own = 0;
    if (theirs.own) {
        CHECK(tensor_right(&theirs, theirs.own));
        tensor_free(&theirs);
    }
}

static void *storm_thread(void *arg)
{
    uint64_t chance = (uint64_t)(uintptr_t)arg * 0x9E3779B97F4A7C15ULL + 1;
    struct tensor mine[4] = {0};
    for (unsigned round = 0; round < ROUNDS; round++) {
        struct tensor *t = &mine[next_random(&chance) % 4];
        if (!t->own) {
            CHECK(tensor_make(t, some_size(&chance), chance));
            continue;
        }
        CHECK(tensor_right(t, t->own)); /* it may be on disk by now */
        switch (next_random(&chance) % 4) {
        case 0:
            tensor_free(t);
            break;
        case 1:
            exchange(t, &chance);
            break;
        case 2:
            tensor_stamp(t, t->own, chance);
            break;
        default:
            op_read(t);
        }
        if (next_random(&chance) % 4 == 0)
            sched_yield();
    }
    for (unsigned i = 0; i < 4; i++) /* the thread ends, its blocks live on */
        if (mine[i].own)
            exchange(&mine[i], &chance);
    return NULL;
}

static void thread_storm(void *arg)
{
    CHECK(engine_begin(8 * MIB, *(enum swn_config_fetch *)arg, NULL) == 0);
    pthread_t threads[THREADS];
    for (unsigned i = 0; i < SHELF; i++)
        pthread_mutex_init(&shelf_lock[i], NULL);
    for (uintptr_t i = 0; i < THREADS; i++)
        CHECK(pthread_create(&threads[i], NULL, storm_thread, (void *)(i + 1)) == 0);
    for (unsigned i = 0; i < THREADS; i++)
        pthread_join(threads[i], NULL);
    CHECK(e->writes.spill->written_bytes > 0);
    for (unsigned i = 0; i < SHELF; i++)
        if (shelf[i].own) {
            CHECK(tensor_right(&shelf[i], shelf[i].own));
            tensor_free(&shelf[i]);
        }
    engine_is_empty();
    unsigned listed = 0;
    for (struct swn_thread_state *t = e->ops.threads; t; t = t->next)
        listed += t->listed != 0;
    CHECK(listed == 0); /* each ended thread gave its state back */
}

static enum swn_config_fetch ring = SWN_CONFIG_AUTO, threads = SWN_CONFIG_PREAD;

#define ALONE(test, seconds)                                                                                           \
    static void test##_alone(void **state)                                                                             \
    {                                                                                                                  \
        (void)state;                                                                                                   \
        assert_int_equal(run_alone(test, &ring, seconds), 0);                                                          \
        assert_int_equal(run_alone(test, &threads, seconds), 0);                                                       \
    }
/* Writes all of a tensor through an operator; 1 when it got a new extent for it. */
static int moves(struct tensor *t, enum swn_use use, uint64_t stamp)
{
    struct swn_range *r = swn_arena_find(e->arena, t->own);
    uint64_t before = r->extent, live = e->writes.spill->live_bytes;
    struct swn_op op;
    op_open(&op, &t, &use, 1);
    CHECK(r->shared && e->writes.spill->live_bytes == live && swn_engine_resident(e) < t->len);
    tensor_stamp(t, t->own, stamp);
    op_close(&op);
    CHECK(!r->shared && tensor_right(t, t->own));
    return r->extent != before;
}

/* A tensor larger than the budget is written through a mapping of its file, in place, as others may be reading it. */
static void initialised_twice(void *arg)
{
    (void)arg;
    CHECK(engine_begin(8 * MIB, SWN_CONFIG_AUTO, NULL) == 0);
    struct tensor large;
    CHECK(tensor_make(&large, 16 * MIB, 1));
    op_read(&large);
    CHECK(!moves(&large, SWN_USE_WRITE, 2));
    CHECK(!moves(&large, SWN_USE_OVERWRITE, 3));
    tensor_free(&large);
    engine_is_empty();
}

static void read_in_part(struct tensor *t, size_t from, size_t bytes)
{
    struct swn_op op = {.name = "aten::test", .n = 1};
    op.args[0] = (struct swn_arg){.data = t->own, .bytes = t->len, .use = SWN_USE_WEIGHT};
    op.args[0].from = from;
    op.args[0].upto = from + bytes;
    swn_engine_op_begin(&op);
    CHECK(tensor_right_part(t, t->own + from, from, bytes));
    op_close(&op);
}

/* One that is larger than the budget, and partly in frames, is written to by nobody knows whom, and then by an operator
 * that has to have it all. */
static void large_written_behind_frames(void *arg)
{
    static const enum swn_use use = SWN_USE_WRITE;
    (void)arg;
    CHECK(engine_begin(8 * MIB, SWN_CONFIG_AUTO, NULL) == 0);
    struct tensor large, *t = &large, others[4];
    CHECK(tensor_make(&large, 12 * MIB, 1));
    for (unsigned i = 0; i < 4; i++)
        CHECK(tensor_make(&others[i], MIB, 10 + i));
    for (unsigned round = 0; round < 6; round++) {
        pthread_mutex_lock(&e->lock);
        struct swn_range *r = swn_arena_find(e->arena, large.own);
        CHECK(atomic_load(&r->state) == SWN_FILE_BACKED || swn_spill_range(e, r) == 0);
        pthread_mutex_unlock(&e->lock);
        for (unsigned i = 0; i < 4; i++)
            op_read(&others[i]);
        read_in_part(&large, (2 + round) * MIB, 2 * MIB);
        CHECK(tensor_mapped(&large));
        volatile uint64_t *word = (volatile uint64_t *)(large.own + (round % 2 ? MIB : 11 * MIB));
        if (round < 4)
            *word = *word; /* the same, in a page of the program's own */
        struct swn_op op;
        op_open(&op, &t, &use, 1);
        for (unsigned i = 0; i < 4; i++) /* what frames had of it is something else now */
            CHECK(tensor_right(&others[i], others[i].own));
        CHECK(tensor_right(&large, large.own));
        tensor_stamp(&large, large.own, 100 + round);
        op_close(&op);
        CHECK(tensor_right(&large, large.own));
    }
    tensor_free(&large);
    for (unsigned i = 0; i < 4; i++)
        tensor_free(&others[i]);
    engine_is_empty();
}

ALONE(initialised_twice, 60)
ALONE(large_written_behind_frames, 60)
ALONE(warm_pages_fill_what_nobody_needs, 60)
ALONE(overwritten_while_read, 60)
ALONE(faults_at_one_address, 60)
ALONE(warm_pages_leave_room_for_the_plan, 60)
ALONE(thread_per_inference, 60)
ALONE(small_tensors_count, 60)
ALONE(stalled_read, 60)
ALONE(stalled_too_long, 60)
ALONE(reads_that_fail, 60)
ALONE(thread_storm, 60)

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(initialised_twice_alone),
        cmocka_unit_test(large_written_behind_frames_alone),
        cmocka_unit_test(warm_pages_fill_what_nobody_needs_alone),
        cmocka_unit_test(warm_pages_leave_room_for_the_plan_alone),
        cmocka_unit_test(thread_per_inference_alone),
        cmocka_unit_test(small_tensors_count_alone),
        cmocka_unit_test(stalled_read_alone),
        cmocka_unit_test(stalled_too_long_alone),
        cmocka_unit_test(reads_that_fail_alone),
        cmocka_unit_test(thread_storm_alone),
        cmocka_unit_test(overwritten_while_read_alone),
        cmocka_unit_test(faults_at_one_address_alone),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
