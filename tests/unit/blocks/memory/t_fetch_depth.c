/* Description: the fetch queue has as much in flight as it was told, in reads of the size that it was told, on a ring
 * and on threads.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <limits.h>
#include <pthread.h>
#include <semaphore.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "blocks/memory/fetch_queue.h"

#define KIB ((size_t)1024)
#define MIB (1024 * KIB)
#define JOBS 40

/* A ring that serves the oldest read each time it is waited for, and what it had in flight at most. */
static struct {
    struct {
        uint64_t tag, off;
        size_t len;
    } reads[SWN_FETCH_MOST_DEPTH];
    unsigned count, most, most_jobs, entries;
    size_t bytes, most_bytes, most_together, largest; /* together: of several jobs */
} ring;

static size_t job_bytes;            /* jobs lie one behind the other in the file, all as long */
static struct swn_fetch *in_a_wait; /* is given `late`, urgent, while it waits for the first time */
static struct swn_fetch_job *late;
static _Atomic int stuck; /* no read ends */
static _Atomic unsigned issued;

/* Reads of one job are issued one after the other. */
static unsigned jobs_under_way(void)
{
    unsigned n = 0;
    for (unsigned i = 0; i < ring.count; i++)
        n += !i || ring.reads[i].off / job_bytes != ring.reads[i - 1].off / job_bytes;
    return n;
}

static int ring_setup(void *ctx, struct io_uring *r, unsigned entries)
{
    (void)ctx, (void)r;
    memset(&ring, 0, sizeof ring);
    ring.entries = entries;
    return 0;
}

static int ring_read(void *ctx, struct io_uring *r, int fd, void *buf, size_t len, uint64_t off, uint64_t tag)
{
    (void)ctx, (void)r, (void)fd, (void)buf;
    if (ring.count == ring.entries)
        return -EBUSY;
    ring.reads[ring.count].tag = tag;
    issued++;
    ring.reads[ring.count].off = off;
    ring.reads[ring.count++].len = len;
    ring.bytes += len;
    ring.most_jobs = jobs_under_way() > ring.most_jobs ? jobs_under_way() : ring.most_jobs;
    if (jobs_under_way() > 1)
        ring.most_together = ring.bytes > ring.most_together ? ring.bytes : ring.most_together;
    ring.most = ring.count > ring.most ? ring.count : ring.most;
    ring.most_bytes = ring.bytes > ring.most_bytes ? ring.bytes : ring.most_bytes;
    ring.largest = len > ring.largest ? len : ring.largest;
    return 0;
}

static int ring_submit(void *ctx, struct io_uring *r)
{
    (void)ctx, (void)r;
    return 0;
}

static int ring_wait(void *ctx, struct io_uring *r, int timeout_ms, uint64_t *tag, int *res)
{
    (void)ctx, (void)r;
    struct swn_fetch *f = in_a_wait;
    in_a_wait = NULL;
    for (int ms = 0; stuck; ms++) {
        if (ms == timeout_ms)
            return 0;
        usleep(1000);
    }
    if (!timeout_ms || !ring.count || (f && late && !swn_fetch_submit(f, late, 1)))
        return 0;
    *tag = ring.reads[0].tag;
    *res = (int)ring.reads[0].len;
    ring.bytes -= ring.reads[0].len;
    memmove(&ring.reads[0], &ring.reads[1], --ring.count * sizeof ring.reads[0]);
    return 1;
}

static void ring_exit(void *ctx, struct io_uring *r)
{
    (void)ctx, (void)r;
}

static int no_ring(void *ctx, struct io_uring *r, unsigned entries)
{
    (void)ctx, (void)r, (void)entries;
    return -EPERM;
}

/* Threads' reads take a millisecond, so that they meet. */
static _Atomic int inside, most_inside;

static ssize_t slow_pread(void *ctx, int fd, void *buf, size_t len, uint64_t off)
{
    (void)ctx, (void)fd, (void)buf, (void)off;
    int now = ++inside, most = most_inside;
    while (now > most && !atomic_compare_exchange_weak(&most_inside, &most, now))
        ;
    usleep(1000);
    inside--;
    return (ssize_t)len;
}

static struct swn_io table;
static struct swn_io_file file = {.fd = 1000, .direct_fd = 1001}; /* never looked at */

static void done(struct swn_fetch_job *job, int err)
{
    assert_int_equal(err, 0);
    sem_post(job->user);
}

/* A disk that serves all that it has at once. */
static int all_at_once(void *ctx, struct io_uring *r, int timeout_ms, uint64_t *tag, int *res)
{
    static unsigned rest;
    rest = timeout_ms ? ring.count : rest;
    return rest && rest-- ? ring_wait(ctx, r, 1, tag, res) : 0;
}

static unsigned fewest; /* reads in flight while a job is told of bytes that have come, its last ones excepted */

static int told(struct swn_fetch_job *job, size_t upto)
{
    fewest = upto < job->len && ring.count < fewest ? ring.count : fewest;
    return 0;
}

/* Jobs of `len` bytes, one behind the other, and the queue they go to. */
struct batch {
    struct swn_fetch *f;
    struct swn_fetch_job job[JOBS];
    size_t jobs;
    sem_t all;
};

static void begin(struct batch *b, unsigned depth, size_t piece, size_t jobs, size_t len)
{
    struct swn_fetch_opts opts = {.io = &table, .depth = depth, .piece_bytes = piece};
    sem_init(&b->all, 0, 0);
    job_bytes = len;
    b->jobs = jobs;
    for (size_t i = 0; i < jobs; i++)
        b->job[i] = (struct swn_fetch_job){.file = &file, .off = i * len, .len = len, .done = done, .user = &b->all};
    assert_int_equal(swn_fetch_start(&b->f, &opts), 0);
}

static void submit(struct batch *b, size_t jobs)
{
    for (size_t i = 0; i < jobs; i++)
        assert_int_equal(swn_fetch_submit(b->f, &b->job[i], 0), 0);
}

static void end(struct batch *b)
{
    for (size_t i = 0; i < b->jobs; i++)
        while (sem_wait(&b->all))
            ;
    swn_fetch_stop(b->f);
    sem_destroy(&b->all);
}

/* All jobs are there before the first is read. */
static void run(unsigned depth, size_t piece, size_t jobs, size_t len)
{
    struct batch b;
    begin(&b, depth, piece, jobs, len);
    swn_fetch_pause(b.f);
    submit(&b, jobs);
    swn_fetch_resume(b.f);
    end(&b);
}

static void with_ring(void)
{
    table = (struct swn_io){.ring_setup = ring_setup,
                            .ring_read = ring_read,
                            .ring_submit = ring_submit,
                            .ring_wait = ring_wait,
                            .ring_exit = ring_exit};
}

static void depth_and_size(void **state)
{
    (void)state;
    static const struct {
        unsigned depth;
        size_t piece;
    } wanted[] = {{1, 4 * MIB}, {2, 512 * KIB}, {3, 4096}, {8, MIB}, {32, 128 * KIB}, {64, 16 * MIB}};
    with_ring();
    for (size_t i = 0; i < sizeof wanted / sizeof wanted[0]; i++) {
        run(wanted[i].depth, wanted[i].piece, 1, 200 * wanted[i].piece + 4096);
        assert_int_equal(ring.most, wanted[i].depth);
        assert_int_equal(ring.largest, wanted[i].piece);
        assert_int_equal(ring.most_bytes, wanted[i].depth * wanted[i].piece);
    }
}

/* As ever where nobody says otherwise. */
static void by_default(void **state)
{
    (void)state;
    with_ring();
    run(0, 0, 1, 100 * MIB);
    assert_int_equal(ring.most, 8);
    assert_int_equal(ring.largest, MIB);
    run(0, 0, JOBS, 64 * KIB);
    assert_int_equal(ring.most, 8);
}

/* Two reads of 4 MiB at once are no reason to read small layers two at a time; but they are no more bytes than a
 * quarter of that. */
static void small_ones(void **state)
{
    (void)state;
    with_ring();
    run(2, 4 * MIB, JOBS, 64 * KIB);
    assert_int_equal(ring.most, 8);
    run(1, 128 * KIB, JOBS, 12 * KIB);
    assert_int_equal(ring.most, 2);
    assert_int_equal(ring.most_bytes, 24 * KIB);
    run(32, 128 * KIB, JOBS, 4 * KIB);
    assert_int_equal(ring.most, 32);
}

/* The disk reads while the job computes the checksums of what has come. */
static void reads_on_while_told(void **state)
{
    (void)state;
    struct batch b;
    with_ring();
    table.ring_wait = all_at_once;
    fewest = UINT_MAX;
    begin(&b, 8, MIB, 1, 24 * MIB);
    b.job[0].arrived = told;
    submit(&b, 1);
    end(&b);
    assert_int_equal(fewest, 8);
    assert_int_equal(ring.most, 8);
}

/* Each layer as soon as the disk can, rather than all of them at the end: the disk's depth is for the pieces of one,
 * and the next one begins beside its last. */
static void in_order(void **state)
{
    (void)state;
    static const struct {
        size_t len;
        unsigned jobs, reads;
    } wanted[] = {{9 * MIB / 4, 2, 3}, {20 * MIB, 2, 8}, {5 * MIB, 2, 5}, {MIB, 2, 2}, {256 * KIB, 8, 8}};
    with_ring();
    for (size_t i = 0; i < sizeof wanted / sizeof wanted[0]; i++) {
        run(0, 0, JOBS, wanted[i].len);
        assert_int_equal(ring.most_jobs, wanted[i].jobs);
        assert_int_equal(ring.most, wanted[i].reads);
        assert_in_range(ring.most_together, MIB, 2 * MIB);
    }
}

/* What is one layer in several jobs has the disk's depth for all of them, and the next layer waits as for one job. */
static void in_groups(void **state)
{
    (void)state;
    struct batch b;
    with_ring();
    begin(&b, 0, 0, JOBS, 2 * MIB);
    for (size_t i = 0; i < JOBS; i++)
        b.job[i].group = 1 + i / 10;
    swn_fetch_pause(b.f);
    submit(&b, JOBS);
    job_bytes = 20 * MIB; /* so ring.most_together is of several groups */
    swn_fetch_resume(b.f);
    end(&b);
    assert_int_equal(ring.most, 8);
    assert_int_equal(ring.most_bytes, 8 * MIB);
    assert_in_range(ring.most_together, MIB, 2 * MIB);
}

/* Of a disk that likes few large reads the next layer's is there when the last one's ends. */
static void large_reads(void **state)
{
    (void)state;
    with_ring();
    run(2, 4 * MIB, JOBS, 4 * MIB);
    assert_int_equal(ring.most, 2);
    assert_int_equal(ring.most_jobs, 2);
    run(1, 4 * MIB, JOBS, 4 * MIB);
    assert_int_equal(ring.most, 1);
}

/* A job that a thread waits for does not wait for a job that no thread waits for. */
static void urgent_beside(void **state)
{
    (void)state;
    struct batch b;
    with_ring();
    begin(&b, 0, 0, 3, 3 * MIB);
    swn_fetch_pause(b.f);
    late = &b.job[2];
    in_a_wait = b.f;
    submit(&b, 2);
    swn_fetch_resume(b.f);
    end(&b);
    assert_int_equal(ring.most_together, 6 * MIB);
    late = NULL;
}

/* The number of issued reads, once it has reached this number, or a while later. */
static unsigned await(unsigned reads)
{
    for (int i = 0; i < 2500 && issued < reads; i++)
        usleep(100);
    return issued;
}

/* A job that is held back behind another one is issued once a thread waits for it, whether or not a read ends. */
static void promoted(void **state)
{
    (void)state;
    struct batch b;
    with_ring();
    issued = 0;
    stuck = 1;
    begin(&b, 0, 0, 2, 4 * MIB);
    b.job[0].len = 2 * MIB;
    submit(&b, 2);
    await(2);
    usleep(20000);
    unsigned before = issued;
    swn_fetch_promote(b.f, &b.job[1]);
    unsigned after = await(6);
    stuck = 0;
    end(&b);
    assert_true(before == 2 && after == 6);
}

static void limits(void **state)
{
    (void)state;
    static const struct {
        unsigned depth;
        size_t piece;
        unsigned made_depth;
        size_t made_piece;
    } wanted[] = {{0, 0, SWN_FETCH_DEPTH, SWN_FETCH_PIECE},
                  {4096, (size_t)1 << 30, SWN_FETCH_MOST_DEPTH, SWN_FETCH_MOST_PIECE},
                  {5, 10000, 5, 8192},
                  {5, 100, 5, SWN_FETCH_PIECE}};
    with_ring();
    for (size_t i = 0; i < sizeof wanted / sizeof wanted[0]; i++) {
        struct swn_fetch_opts opts = {.io = &table, .depth = wanted[i].depth, .piece_bytes = wanted[i].piece};
        struct swn_fetch *f;
        assert_int_equal(swn_fetch_start(&f, &opts), 0);
        assert_int_equal(swn_fetch_depth(f), wanted[i].made_depth);
        assert_int_equal(swn_fetch_piece_bytes(f), wanted[i].made_piece);
        swn_fetch_stop(f);
    }
}

/* There are three threads, and fewer read where fewer are to. */
static void on_threads(void **state)
{
    (void)state;
    table = (struct swn_io){.ring_setup = no_ring, .pread = slow_pread};
    for (unsigned depth = 1; depth <= 4; depth++) {
        most_inside = 0;
        run(depth, 64 * KIB, 1, 40 * 64 * KIB);
        assert_in_range(most_inside, 1, depth < 3 ? depth : 3);
    }
}

int main(void)
{
    alarm(300); /* a hang is a failure */
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(depth_and_size),
        cmocka_unit_test(by_default),
        cmocka_unit_test(small_ones),
        cmocka_unit_test(in_order),
        cmocka_unit_test(large_reads),
        cmocka_unit_test(urgent_beside),
        cmocka_unit_test(promoted),
        cmocka_unit_test(limits),
        cmocka_unit_test(on_threads),
        cmocka_unit_test(in_groups),
        cmocka_unit_test(reads_on_while_told),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
