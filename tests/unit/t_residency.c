/* Description: whatever stands behind a range, its address reads right, and no store into it is ever lost. */
#define _GNU_SOURCE
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "swn_kernel_does.h"
#include "swn_random.h"
#include "swn_residency.h"

#define MIB ((size_t)1 << 20)
#define PAGES 21
#define LEN (PAGES * SWN_PAGE - 100)
#define SIZE (PAGES * SWN_PAGE)

static struct swn_io io;
static struct {
    int calls, from, to, err;
} bad_write, bad_map;

static int fails(int *calls, int from, int to)
{
    int call = (*calls)++;
    return call >= from && call < to;
}

static ssize_t fault_pwrite(void *ctx, int fd, const void *buf, size_t len, uint64_t off)
{
    if (fails(&bad_write.calls, bad_write.from, bad_write.to))
        return bad_write.err;
    return swn_io_sys.pwrite(ctx, fd, buf, len, off);
}

static int fault_mmap(void *ctx, void **addr, size_t len, int prot, int flags, int fd, uint64_t off)
{
    if (fails(&bad_map.calls, bad_map.from, bad_map.to))
        return bad_map.err;
    return swn_io_sys.mmap(ctx, addr, len, prot, flags, fd, off);
}

static char dir[512];
static struct swn_residency res;
static struct swn_arena *arena;
static struct swn_pool *pool;
static struct swn_extent_file *spill;
static unsigned char shadow[SIZE];

static int setup(void **state)
{
    (void)state;
    const char *tmp = getenv("TMPDIR");
    snprintf(dir, sizeof dir, "%s/t_residency.XXXXXX", tmp && *tmp ? tmp : "/var/tmp");
    if (!mkdtemp(dir))
        return -1;
    io = swn_io_sys;
    io.pwrite = fault_pwrite;
    io.mmap = fault_mmap;
    memset(&bad_write, 0, sizeof bad_write);
    memset(&bad_map, 0, sizeof bad_map);
    if (swn_arena_create(&arena, 64 * MIB) || swn_pool_create(&pool, 4 * MIB, 64 * MIB) ||
        swn_pool_resize(pool, 4 * MIB) || swn_spill_open(&spill, &io, dir) || swn_residency_init(&res, &io, arena))
        return -1;
    res.pool = pool;
    res.spill = spill;
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    swn_residency_fini(&res);
    swn_spill_close(spill);
    swn_pool_destroy(pool);
    swn_arena_destroy(arena);
    return rmdir(dir);
}

static int populates(void)
{
    static int known, does;
    does = known++ ? does : swn_probe_populates();
    return does;
}

static int state_of(const struct swn_range *r)
{
    return atomic_load(&((struct swn_range *)(uintptr_t)r)->state);
}

static unsigned char *bytes_of(const struct swn_range *r)
{
    return (unsigned char *)r->addr;
}

static struct swn_pages scan(const struct swn_range *r)
{
    struct swn_pages pages;
    assert_int_equal(swn_residency_scan(&res, r, &pages), 0);
    return pages;
}

static void put(struct swn_range *r, size_t at, unsigned char byte)
{
    bytes_of(r)[at] = shadow[at] = byte;
}

static struct swn_range *new_range(size_t len)
{
    size_t fresh;
    struct swn_range *r = swn_arena_alloc(arena, len, &fresh);
    assert_non_null(r);
    res.home_bytes += r->size;
    return r;
}

/* A frame with the bytes of r's extent, in the window or behind it. */
static void no_evict(void *ctx, struct swn_frame *f)
{
    (void)ctx;
    swn_pool_release(pool, f);
}

static struct swn_frame *fetch(struct swn_range *r, int kept)
{
    struct swn_frame *f = kept ? swn_pool_keep(pool, r->addr - swn_arena_lo(arena), SIZE)
                               : swn_pool_place(pool, SIZE, SWN_POOL_READY, no_evict, NULL);
    assert_non_null(f);
    assert_int_equal(pread(r->file->fetch.fd, swn_pool_rw(pool, f), SIZE, (off_t)r->extent), SIZE);
    f->state = SWN_FRAME_READY;
    return f;
}

/* The pool puts the frame's memory to another use. */
static void reuse(struct swn_frame *f)
{
    memset(swn_pool_rw(pool, f), 0xEE, f->size);
    swn_pool_release(pool, f);
}

enum stand { HOME, HOME_AGAIN, CLEAN, WRITTEN, PUBLISHED, PUBLISHED_WRITTEN, STANDS };
enum op { SPILL, GO_HOME, DISCARD, PUBLISH, REMAP, FREE_WARM, FREE_COLD, FORK, OPS };

/* A range that stands as told; *frame: what is published, else NULL. */
static struct swn_range *make(enum stand stand, int kept, size_t published, struct swn_frame **frame)
{
    struct swn_range *r = new_range(LEN);
    *frame = NULL;
    for (size_t i = 0; i < SIZE; i++)
        put(r, i, (unsigned char)rnd());
    if (stand == HOME)
        return r;
    assert_int_equal(swn_residency_spill(&res, r), 0);
    assert_int_equal(state_of(r), SWN_STREAMED);
    assert_int_equal(scan(r).own, 0);
    if (stand == HOME_AGAIN) {
        assert_int_equal(swn_residency_home(&res, r, 0), 0);
        put(r, 5, 99);
        return r;
    }
    if (stand == PUBLISHED || stand == PUBLISHED_WRITTEN) {
        *frame = fetch(r, kept);
        assert_int_equal(swn_residency_publish(&res, r, *frame, published), 0);
        assert_int_equal(r->published, published);
        assert_true(!populates() || scan(r).mapped >= published / SWN_PAGE);
        assert_int_equal(scan(r).own, 0);
        r->frame = *frame;
    }
    if (stand == WRITTEN || stand == PUBLISHED_WRITTEN) {
        put(r, 3 * SWN_PAGE + 17, (unsigned char)(shadow[3 * SWN_PAGE + 17] + 1));
        put(r, LEN - 1, (unsigned char)(shadow[LEN - 1] ^ 0x55));
        assert_int_equal(scan(r).own, 2);
    }
    return r;
}

static void check(const struct swn_range *r, int state)
{
    assert_int_equal(state_of(r), state);
    assert_memory_equal(bytes_of(r), shadow, SIZE);
    assert_int_equal(res.home_bytes, state == SWN_HOME ? r->size : 0);
    assert_int_equal(spill->live_bytes, r->file ? SIZE : 0);
}

/* The child reads what was there at the fork, also after the parent has dropped and overwritten everything. */
static void forked(struct swn_range *r, struct swn_frame **frame)
{
    struct swn_pages pages = scan(r);
    int ends[2];
    char byte;
    if (r->published && pages.own) { /* as the engine does: private copies in published pages would not be inherited */
        assert_int_equal(swn_residency_home(&res, r, 0), 0);
        reuse(*frame);
        *frame = r->frame = NULL;
    }
    assert_int_equal(pipe(ends), 0);
    res.fork_epoch++;
    pid_t pid = fork();
    assert_true(pid >= 0);
    if (!pid) {
        close(ends[1]);
        swn_residency_child(&res);
        if (r->published || memcmp(bytes_of(r), shadow, SIZE))
            _exit(1);
        if (read(ends[0], &byte, 1) != 0) /* the parent is done */
            _exit(2);
        if (memcmp(bytes_of(r), shadow, SIZE))
            _exit(3);
        if (swn_residency_scan(&res, r, &pages) || (pages.own == 0 && state_of(r) != SWN_STREAMED))
            _exit(4);
        bytes_of(r)[0] ^= 0xFF; /* a child's stores are its own */
        shadow[0] ^= 0xFF;
        if (swn_residency_home(&res, r, 0) || memcmp(bytes_of(r), shadow, SIZE))
            _exit(5);
        _exit(0);
    }
    close(ends[0]);
    int was = state_of(r);
    uint64_t live = spill->live_bytes;
    assert_memory_equal(bytes_of(r), shadow, SIZE);
    if (*frame && rnd() % 2) {
        assert_int_equal(swn_residency_remap(&res, r), 0);
        assert_memory_equal(bytes_of(r), shadow, SIZE);
    }
    assert_int_equal(swn_residency_home(&res, r, rnd() % 2 != 0), 0);
    if (was == SWN_STREAMED)
        assert_int_equal(spill->live_bytes, live); /* an extent of an earlier epoch is not punched out */
    if (*frame)
        reuse(*frame);
    *frame = r->frame = NULL;
    for (size_t i = 0; i < SIZE; i++)
        put(r, i, 0xAA);
    assert_int_equal(swn_residency_spill(&res, r), 0);
    assert_memory_equal(bytes_of(r), shadow, SIZE);
    put(r, 0, 0xBB);
    assert_int_equal(swn_residency_home(&res, r, 0), 0);
    assert_memory_equal(bytes_of(r), shadow, SIZE);
    assert_int_equal(spill->live_bytes, was == SWN_STREAMED ? live : 0); /* one of this epoch is */
    close(ends[1]);
    int status = -1;
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_true(WIFEXITED(status));
    assert_int_equal(WEXITSTATUS(status), 0);
    spill->live_bytes = 0; /* what the child still had */
}

static void step(enum stand stand, enum op op, int kept, size_t published)
{
    struct swn_frame *frame, *next;
    struct swn_range *r = make(stand, kept, published, &frame);
    int streamed = stand >= CLEAN, written = stand == WRITTEN || stand == PUBLISHED_WRITTEN;
    uint64_t recalls = res.recalls;
    check(r, streamed ? SWN_STREAMED : SWN_HOME);
    switch (op) {
    case SPILL:
        assert_int_equal(swn_residency_spill(&res, r), streamed ? -EBUSY : 0);
        check(r, SWN_STREAMED);
        break;
    case GO_HOME:
    case DISCARD:
        assert_int_equal(swn_residency_home(&res, r, op == DISCARD), 0);
        if (frame)
            reuse(frame);
        frame = NULL;
        if (op == DISCARD && streamed)
            memset(shadow, 0, SIZE);
        check(r, SWN_HOME);
        assert_int_equal(r->published, 0);
        if (op == GO_HOME)
            assert_int_equal(scan(r).own, PAGES);
        break;
    case PUBLISH:
        if (!streamed) {
            assert_int_equal(swn_residency_publish(&res, r, NULL, SIZE), -EINVAL);
            check(r, SWN_HOME);
            break;
        }
        next = fetch(r, 0);
        assert_int_equal(swn_residency_publish(&res, r, next, published), written ? -EBUSY : 0);
        check(r, SWN_STREAMED);
        assert_int_equal(res.recalls, recalls + (uint64_t)written);
        if (written) {
            assert_int_equal(r->published, stand == PUBLISHED_WRITTEN ? published : 0);
            reuse(next);
        } else {
            assert_int_equal(r->published, published);
            if (frame)
                reuse(frame);
            frame = next;
        }
        check(r, SWN_STREAMED);
        break;
    case REMAP:
        assert_int_equal(swn_residency_remap(&res, r), !streamed ? -EINVAL : written ? -EBUSY : 0);
        if (streamed && !written) {
            assert_int_equal(r->published, 0);
            assert_int_equal(scan(r).own, 0);
            assert_int_equal(scan(r).mapped, 0);
            if (frame)
                reuse(frame);
            frame = NULL;
        }
        check(r, streamed ? SWN_STREAMED : SWN_HOME);
        break;
    case FORK:
#ifdef __SANITIZE_THREAD__ /* its runtime maps memory in a new child, into the hole that a published range has become  \
                            */
        if (stand >= PUBLISHED)
            break;
#endif
        forked(r, &frame);
        break;
    default:
        break;
    }
    /* Whatever happened, the range is writable and can go either way once more. */
    if (op < FREE_WARM || op == FORK) {
        put(r, 7 * SWN_PAGE, (unsigned char)rnd());
        check(r, state_of(r));
        assert_int_equal(swn_residency_home(&res, r, 0), 0);
        if (frame)
            reuse(frame);
        frame = NULL;
        check(r, SWN_HOME);
        assert_int_equal(swn_residency_spill(&res, r), 0);
        check(r, SWN_STREAMED);
    }
    if (frame)
        swn_pool_release(pool, frame);
    int foreign = r->foreign_map;
    uintptr_t addr = r->addr;
    swn_residency_free(&res, r, op != FREE_COLD);
    assert_int_equal(res.home_bytes, 0);
    assert_int_equal(spill->live_bytes, 0);
    assert_null(swn_arena_find(arena, addr));
    swn_residency_tidy(&res);
    assert_int_equal(swn_arena_warm_bytes(arena), op == FREE_COLD || foreign ? 0 : swn_round_up(LEN, SWN_GRANULE));
    /* The next owner of the address: ordinary memory, zeros unless the pages are warm. */
    size_t fresh;
    struct swn_range *heir = swn_arena_alloc(arena, LEN, &fresh);
    assert_int_equal(heir->addr, addr);
    res.home_bytes += heir->size;
    if (fresh)
        memset(shadow, 0, SIZE);
    assert_memory_equal(bytes_of(heir), shadow, SIZE);
    bytes_of(heir)[0] = 1;
    swn_residency_free(&res, heir, 0);
    assert_int_equal(res.home_bytes, 0);
    struct swn_piece piece;
    assert_int_equal(swn_arena_trim(arena, SIZE_MAX, &piece), 0);
    assert_null(swn_pool_first(pool));
}

static void every_state_and_operation(void **state)
{
    (void)state;
    static const size_t published[] = {SIZE, SWN_PAGE, 4 * SWN_PAGE, (PAGES - 1) * SWN_PAGE};
    for (int stand = 0; stand < STANDS; stand++)
        for (int op = 0; op < OPS; op++)
            for (size_t i = 0; i < (stand >= PUBLISHED || op == PUBLISH ? 4 : 1); i++)
                for (int kept = 0; kept < 2; kept++)
                    step((enum stand)stand, (enum op)op, kept, published[i]);
}

static void counts_pages(void **state)
{
    (void)state;
    size_t len = 700 * SWN_PAGE; /* more than one read of the page map */
    struct swn_range *r = new_range(len);
    assert_int_equal(scan(r).own, 0);
    for (size_t i = 0; i < 700; i += 7)
        bytes_of(r)[i * SWN_PAGE] = 1;
    /* Huge pages may bring neighbours along, never fewer than were written. */
    assert_true(scan(r).own >= 100);
    assert_int_equal(scan(r).mapped, 0);
    memset(bytes_of(r), 3, len);
    assert_int_equal(scan(r).own, 700);
    assert_int_equal(swn_residency_spill(&res, r), 0);
    assert_int_equal(scan(r).own + scan(r).mapped, 0);
    volatile unsigned char *bytes = bytes_of(r);
    assert_int_equal(bytes[699 * SWN_PAGE], 3);
    assert_true(scan(r).mapped >= 1);
    bytes[600 * SWN_PAGE] = 4;
    assert_int_equal(scan(r).own, 1);
    bytes[600 * SWN_PAGE + 1] = 4;
    bytes[0] = 4;
    assert_int_equal(scan(r).own, 2);
    swn_residency_free(&res, r, 0);
    r = new_range(len);
    memset(bytes_of(r), 3, len);
    assert_int_equal(swn_residency_spill(&res, r), 0);
    assert_int_equal(bytes_of(r)[0], 3);
    uint64_t stray = res.stray_pages;
    assert_int_equal(swn_residency_remap(&res, r), 0);
    assert_true(res.stray_pages > stray);
    swn_residency_free(&res, r, 0);
}

static void refuses(void **state)
{
    (void)state;
    struct swn_frame *frame;
    struct swn_range *r = make(HOME, 0, 0, &frame);
    r->pins = 1;
    assert_int_equal(swn_residency_spill(&res, r), -EBUSY);
    check(r, SWN_HOME);
    assert_int_equal(spill->written_bytes, 0);
    r->pins = 0;
    res.spill = NULL;
    assert_int_equal(swn_residency_spill(&res, r), -EBUSY);
    res.spill = spill;
    int fd = res.pagemap_fd;
    res.pagemap_fd = -1;
    assert_int_equal(swn_residency_spill(&res, r), -EBUSY);
    res.pagemap_fd = fd;
    check(r, SWN_HOME);
    assert_int_equal(swn_residency_spill(&res, r), 0);

    /* A frame that cannot be mapped changes nothing. */
    struct swn_frame broken = {.off = 1, .size = SIZE};
    assert_int_equal(swn_residency_publish(&res, r, &broken, SIZE), -EINVAL);
    assert_int_equal(r->published, 0);
    check(r, SWN_STREAMED);
    res.pagemap_fd = -1;
    struct swn_frame *f = fetch(r, 0);
    assert_int_equal(swn_residency_publish(&res, r, f, SIZE), -EBADF);
    assert_int_equal(swn_residency_remap(&res, r), -EBADF);
    res.pagemap_fd = fd;
    check(r, SWN_STREAMED);
    put(r, 0, 1);
    check(r, SWN_STREAMED);
    swn_pool_release(pool, f);
    swn_residency_free(&res, r, 0);
    assert_int_equal(swn_residency_trap(&res, 4096), 0);
    assert_int_equal(swn_residency_trap(&res, swn_arena_lo(arena)), 0); /* nobody lives there */
}

static void failing_disk(void **state)
{
    (void)state;
    static const int errors[] = {-ENOSPC, -EIO, -ENOMEM};
    for (int map = 0; map < 2; map++)
        for (size_t e = 0; e < 3; e++)
            for (int nth = 0; nth < 4; nth++)
                for (int forever = 0; forever < 2; forever++) {
                    struct swn_frame *frame;
                    bad_write.calls = bad_map.calls = 0;
                    struct swn_range *r = make(HOME, 0, 0, &frame);
                    *(map ? &bad_map.from : &bad_write.from) = nth;
                    *(map ? &bad_map.to : &bad_write.to) = forever ? 1 << 30 : nth + 1;
                    *(map ? &bad_map.err : &bad_write.err) = errors[e];
                    int failed = 0;
                    for (int round = 0; round < 5; round++) {
                        uint64_t recalls = res.recalls;
                        int err = swn_residency_spill(&res, r);
                        check(r, err ? SWN_HOME : SWN_STREAMED);
                        assert_true(!err || err == errors[e]);
                        assert_int_equal(res.recalls, recalls);
                        failed += err != 0;
                        if (!err && round % 2) {
                            frame = fetch(r, 0);
                            assert_int_equal(swn_residency_publish(&res, r, frame, SIZE), 0);
                        }
                        if (!err) {
                            err = swn_residency_remap(&res, r);
                            assert_true(!err || err == errors[e]);
                            assert_int_equal(r->published, err && round % 2 ? SIZE : 0);
                            failed += err != 0;
                            check(r, SWN_STREAMED);
                        }
                        put(r, (size_t)round * SWN_PAGE, (unsigned char)rnd());
                        assert_int_equal(swn_residency_home(&res, r, 0), 0);
                        if (frame)
                            reuse(frame);
                        frame = NULL;
                        check(r, SWN_HOME);
                    }
                    /* One EIO is repeated, all others show. */
                    assert_int_equal(failed > 0, map || forever || errors[e] != -EIO);
                    assert_true(forever || failed <= 1);
                    memset(&bad_write, 0, sizeof bad_write);
                    memset(&bad_map, 0, sizeof bad_map);
                    swn_residency_free(&res, r, 0);
                    assert_int_equal(res.home_bytes, 0);
                }
    struct stat st;
    assert_int_equal(fstat(spill->fetch.fd, &st), 0);
    assert_int_equal(spill->live_bytes, 0);
    assert_true(st.st_blocks * 512 <= 65536);
}

/* Left out under ThreadSanitizer, which knows no ordering by page protection: a store that faults, waits in the handler
 * and is repeated on another mapping of the same address is a race to it. */
#ifndef __SANITIZE_THREAD__
static struct {
    struct swn_range *range;
    _Atomic int stop;
    _Atomic uint64_t stores;
    uint64_t last[PAGES], lost;
} writer;

static void on_segv(int sig, siginfo_t *info, void *context)
{
    (void)context;
    if (!swn_residency_trap(&res, (uintptr_t)info->si_addr))
        signal(sig, SIG_DFL);
}

static void *write_counters(void *arg)
{
    (void)arg;
    uint64_t x = 42, n = 0;
    while (!atomic_load_explicit(&writer.stop, memory_order_relaxed)) {
        x = x * 6364136223846793005ULL + 1442695040888963407ULL;
        size_t page = (size_t)(x >> 33) % PAGES;
        volatile uint64_t *cell = (uint64_t *)(writer.range->addr + page * SWN_PAGE + 8 * page);
        writer.lost += *cell != writer.last[page];
        *cell = writer.last[page] = ++n;
        /* Bursts, so that a departure succeeds now and then. */
        if (n % 4096 == 0 && (x >> 60) < 8)
            usleep((useconds_t)(x >> 40) % 1500);
    }
    atomic_store(&writer.stores, n);
    return NULL;
}

static void no_store_is_lost(void **state)
{
    (void)state;
    struct swn_frame *frame;
    struct swn_range *r = make(HOME, 0, 0, &frame);
    uint64_t done[4] = {0}, refused[4] = {0};
    memset(bytes_of(r), 0, SIZE);
    memset(&writer, 0, sizeof writer);
    writer.range = r;
    struct sigaction act = {.sa_sigaction = on_segv, .sa_flags = SA_SIGINFO}, before; /* cmocka has one, too */
    assert_int_equal(sigaction(SIGSEGV, &act, &before), 0);
    pthread_t thread;
    assert_int_equal(pthread_create(&thread, NULL, write_counters, NULL), 0);
    for (int i = 0; i < 2000; i++) {
        int err = swn_residency_spill(&res, r);
        (err ? refused : done)[0]++;
        assert_int_equal(err ? -err : EBUSY, EBUSY);
        if (err)
            continue;
        for (int k = 0; k < 2; k++) {
            if (rnd() % 2) {
                struct swn_frame *f = fetch(r, rnd() % 2 && !frame);
                err = swn_residency_publish(&res, r, f, rnd() % 2 || frame ? SIZE : 5 * SWN_PAGE);
                (err ? refused : done)[1]++;
                assert_int_equal(err ? -err : EBUSY, EBUSY);
                if (err)
                    reuse(f);
                if (!err && frame)
                    reuse(frame);
                frame = err ? frame : f;
            }
            if (rnd() % 2) {
                err = swn_residency_remap(&res, r);
                (err ? refused : done)[2]++;
                assert_int_equal(err ? -err : EBUSY, EBUSY);
                if (!err && frame) {
                    reuse(frame);
                    frame = NULL;
                }
            }
        }
        assert_int_equal(swn_residency_home(&res, r, 0), 0);
        if (frame)
            reuse(frame);
        frame = NULL;
        done[3]++;
    }
    atomic_store(&writer.stop, 1);
    pthread_join(thread, NULL);
    sigaction(SIGSEGV, &before, NULL);
    print_message("%llu stores; spilled %llu, refused %llu; published %llu, refused %llu; remapped %llu, refused %llu; "
                  "%llu recalls\n",
                  (unsigned long long)writer.stores, (unsigned long long)done[0], (unsigned long long)refused[0],
                  (unsigned long long)done[1], (unsigned long long)refused[1], (unsigned long long)done[2],
                  (unsigned long long)refused[2], (unsigned long long)res.recalls);
    assert_int_equal(writer.lost, 0);
    for (size_t page = 0; page < PAGES; page++)
        assert_int_equal(*(uint64_t *)(r->addr + page * SWN_PAGE + 8 * page), writer.last[page]);
    assert_true(res.recalls > 0);
    assert_true(done[0] > 0);
    assert_int_equal(res.home_bytes, r->size);
    swn_residency_free(&res, r, 0);
    assert_int_equal(spill->live_bytes, 0);
}
#endif

static void fail_next_map(void)
{
    bad_map.calls = bad_map.from = 0;
    bad_map.to = 1;
    bad_map.err = -ENOMEM;
}

static struct swn_range *filled(unsigned char with)
{
    size_t fresh;
    struct swn_range *r = swn_arena_alloc(arena, LEN, &fresh);
    assert_non_null(r);
    res.home_bytes += r->size;
    memset(bytes_of(r), with, LEN);
    return r;
}

/* Whatever the range holds gives way to the extent, or, when it cannot be mapped, stays as it was. */
static void registers(void **state)
{
    (void)state;
    struct swn_extent_file *store;
    uint64_t off;
    assert_int_equal(swn_spill_open(&store, &io, dir), 0);
    store->immutable = 1;
    memset(shadow, 77, SIZE);
    void *page = NULL;
    assert_int_equal(posix_memalign(&page, SWN_PAGE, SIZE), 0);
    memcpy(page, shadow, SIZE);
    off = swn_spill_lay_out(store, SIZE);
    assert_int_equal(swn_spill_write(store, page, SIZE, off), 0);
    free(page);
    for (int from_home = 0; from_home < 2; from_home++) {
        struct swn_range *r = filled(5);
        if (!from_home)
            assert_int_equal(swn_residency_spill(&res, r), 0);
        size_t home = res.home_bytes;
        fail_next_map();
        assert_int_equal(swn_residency_register(&res, r, store, off), -ENOMEM);
        assert_int_equal(state_of(r), from_home ? SWN_HOME : SWN_STREAMED);
        assert_int_equal(res.home_bytes, home);
        assert_int_equal(store->refs, 0);
        assert_true(bytes_of(r)[0] == 5 && bytes_of(r)[LEN - 1] == 5);
        r->pins = 1;
        assert_int_equal(swn_residency_register(&res, r, store, off), -EBUSY);
        r->pins = 0;
        assert_int_equal(swn_residency_register(&res, r, store, off), 0);
        assert_int_equal(state_of(r), SWN_STREAMED);
        assert_int_equal(res.home_bytes, 0);
        assert_int_equal(store->refs, 1);
        assert_int_equal(spill->refs, 0);
        assert_int_equal(spill->live_bytes, 0); /* what it had in the spill file is dropped */
        assert_memory_equal(bytes_of(r), shadow, LEN);
        bytes_of(r)[SWN_PAGE] = 1;
        assert_int_equal(scan(r).own, 1);
        assert_int_equal(swn_residency_home(&res, r, 0), 0);
        assert_true(bytes_of(r)[SWN_PAGE] == 1 && bytes_of(r)[0] == 77);
        assert_int_equal(store->refs, 0);
        assert_int_equal(store->live_bytes, SIZE); /* never punched out */
        swn_residency_free(&res, r, 0);
    }
    swn_spill_close(store);
}

static void shares(void **state)
{
    (void)state;
    size_t fresh;
    struct swn_range *r = swn_arena_alloc(arena, LEN, &fresh);
    res.home_bytes += r->size;
    fail_next_map();
    assert_int_equal(swn_residency_share(&res, r), -ENOMEM);
    assert_int_equal(state_of(r), SWN_HOME);
    assert_int_equal(spill->live_bytes, 0);
    assert_int_equal(swn_residency_share(&res, r), 0);
    assert_true(r->shared);
    assert_int_equal(res.home_bytes, 0);
    memset(bytes_of(r), 9, LEN);
    assert_int_equal(scan(r).own, 0); /* stores go to the file */
    fail_next_map();
    assert_int_equal(swn_residency_unshare(&res, r), -ENOMEM);
    assert_true(r->shared && bytes_of(r)[LEN - 1] == 9);
    assert_int_equal(swn_residency_unshare(&res, r), 0);
    assert_false(r->shared);
    bytes_of(r)[3] = 4;
    assert_int_equal(scan(r).own, 1);
    assert_int_equal(swn_residency_share(&res, r), -EBUSY); /* there is a private copy */
    assert_true(bytes_of(r)[3] == 4 && bytes_of(r)[4] == 9);
    assert_int_equal(swn_residency_home(&res, r, 0), 0);
    assert_int_equal(swn_residency_spill(&res, r), 0);
    fail_next_map();
    assert_int_equal(swn_residency_share(&res, r), -ENOMEM);
    assert_int_equal(state_of(r), SWN_STREAMED);
    assert_false(r->shared);
    assert_int_equal(swn_residency_share(&res, r), 0);
    bytes_of(r)[4] = 6;
    assert_int_equal(swn_residency_home(&res, r, 0), 0);
    assert_true(bytes_of(r)[3] == 4 && bytes_of(r)[4] == 6 && bytes_of(r)[5] == 9);
    swn_residency_free(&res, r, 0);
    assert_int_equal(spill->live_bytes, 0);
}

/* What has left once goes to its own place again, and pieces that leave one by one lie as they do in memory: so they
 * can be one again. Not where a child may have the old place mapped. */
static void lies_side_by_side(void **state)
{
    (void)state;
    struct swn_range *r = new_range(3 * SWN_GRANULE);
    struct swn_range *b = swn_arena_split(arena, r, SWN_GRANULE), *c = swn_arena_split(arena, b, SWN_GRANULE);
    memset((void *)r->addr, 7, 3 * SWN_GRANULE);
    assert_int_equal(swn_residency_spill(&res, c), 0);
    assert_int_equal(swn_residency_spill(&res, r), 0);
    assert_int_equal(swn_residency_spill(&res, b), 0);
    uint64_t first = r->extent;
    assert_int_equal(b->extent, first + SWN_GRANULE);
    assert_int_equal(c->extent, first + 2 * SWN_GRANULE);
    for (int i = 0; i < 3; i++) {
        assert_int_equal(swn_residency_home(&res, b, 0), 0);
        assert_int_equal(swn_residency_home(&res, c, i), 0);
        bytes_of(b)[0] = (unsigned char)i;
        assert_int_equal(swn_residency_spill(&res, c), 0);
        assert_int_equal(swn_residency_spill(&res, b), 0);
        assert_int_equal(b->extent, first + SWN_GRANULE);
        assert_int_equal(c->extent, first + 2 * SWN_GRANULE);
        assert_int_equal(bytes_of(b)[0], i);
        assert_int_equal(bytes_of(c)[1], i ? 0 : 7);
    }
    assert_int_equal(spill->live_bytes, 3 * SWN_GRANULE);
    assert_int_equal(spill->tail, 3 * SWN_GRANULE);

    assert_int_equal(swn_residency_home(&res, b, 0), 0);
    res.fork_epoch++;
    assert_int_equal(swn_residency_spill(&res, b), 0);
    assert_true(b->extent >= first + 3 * SWN_GRANULE);
    struct swn_range *pieces[] = {c, b, r};
    for (int i = 0; i < 3; i++)
        swn_residency_free(&res, pieces[i], 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(every_state_and_operation, setup, teardown),
        cmocka_unit_test_setup_teardown(counts_pages, setup, teardown),
        cmocka_unit_test_setup_teardown(refuses, setup, teardown),
        cmocka_unit_test_setup_teardown(failing_disk, setup, teardown),
        cmocka_unit_test_setup_teardown(registers, setup, teardown),
        cmocka_unit_test_setup_teardown(shares, setup, teardown),
        cmocka_unit_test_setup_teardown(lies_side_by_side, setup, teardown),
#ifndef __SANITIZE_THREAD__
        cmocka_unit_test_setup_teardown(no_store_is_lost, setup, teardown),
#endif
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
