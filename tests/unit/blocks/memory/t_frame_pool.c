/* Description: frames of the pool: their memory, which is used again and given back, their parts and their order, and
 * where they are mapped. */
#define _GNU_SOURCE
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "blocks/memory/arena.h"
#include "base/huge_pages.h"
#include "tests/unit/support/kernel_does.h"
#include "blocks/memory/frame_pool.h"
#include "tests/unit/support/random.h"
#include "tests/unit/support/smaps.h"

#ifndef MADV_COLLAPSE /* of Linux 6.1 */
#define MADV_COLLAPSE 25
#endif
#define KIB ((size_t)1024)
#define MIB (KIB * KIB)
#define SMALL_UNIT (256 * KIB)
#define CHUNKS 96
#define USE_BYTES 24 /* of a frame, for the caller */

static struct swn_pool *pool;
static size_t unit;

static int setup_of(size_t unit_bytes)
{
    unit = unit_bytes;
    return swn_pool_create(&pool, unit, CHUNKS, USE_BYTES);
}

static int setup_small(void **state)
{
    (void)state;
    return setup_of(SMALL_UNIT);
}

static int setup_huge(void **state)
{
    (void)state;
    return setup_of(SWN_HUGE);
}

static int teardown(void **state)
{
    (void)state;
    swn_pool_destroy(pool);
    return 0;
}

static uintptr_t addr_of(uint64_t chunk)
{
    return ((uintptr_t)1 << 40) + chunk * unit;
}

static struct swn_frame *take(uint64_t chunk)
{
    struct swn_frame *f = swn_pool_take(pool, chunk, addr_of(chunk));
    assert_non_null(f);
    assert_ptr_equal(swn_pool_chunk(pool, chunk)->frame, f);
    assert_true(f->chunk == chunk && f->addr == addr_of(chunk));
    assert_true(f->n == 0 && f->pending == 0 && f->pinned_by_plan == 0);
    for (size_t i = 0; i < USE_BYTES; i++) {
        assert_int_equal(f->use[i], 0); /* also of a frame that was used before */
        f->use[i] = 0xAB;
    }
    return f;
}

static void stamp(struct swn_frame *f, uint64_t with)
{
    uint64_t *at = swn_pool_at(pool, f);
    for (size_t i = 0; i < unit / 8; i += 64)
        at[i] = with + i;
}

static int has_stamp(const void *bytes, size_t off, size_t len, uint64_t with)
{
    const uint64_t *at = bytes;
    for (size_t i = 0; i < len / 8; i += 64)
        if (at[i] != with + off / 8 + i)
            return 0;
    return 1;
}

/* The pool's descriptor, as a program finds it that closes all it knows nothing of. */
static int memfd(void)
{
    DIR *dir = opendir("/proc/self/fd");
    assert_non_null(dir);
    int fd = -1;
    for (struct dirent *d; (d = readdir(dir));) {
        char path[300], link[64] = "";
        snprintf(path, sizeof path, "/proc/self/fd/%s", d->d_name);
        if (readlink(path, link, sizeof link - 1) > 0 && !strncmp(link, "/memfd:swapnet-pool", 19))
            fd = atoi(d->d_name);
    }
    closedir(dir);
    assert_true(fd >= 0);
    return fd;
}

static long long memory(void)
{
    struct stat st;
    assert_int_equal(fstat(memfd(), &st), 0);
    return (long long)st.st_blocks * 512;
}

static void memory_is_used_again(void **state)
{
    (void)state;
    struct swn_frame *f[4];
    assert_int_equal(swn_pool_unit(pool), unit);
    assert_int_equal(swn_pool_bytes(pool), 0);
    assert_true(swn_pool_is_full(pool));
    for (unsigned i = 0; i < 4; i++) {
        f[i] = take(10 * i);
        stamp(f[i], 1000 * i);
    }
    assert_int_equal(swn_pool_bytes(pool), 4 * unit);
    assert_int_equal(swn_pool_ring(pool), 4);
    assert_true(swn_pool_is_full(pool));
    assert_int_equal(memory(), 4 * unit);
    for (unsigned i = 0; i < 4; i++)
        assert_true(has_stamp(swn_pool_at(pool, f[i]), 0, unit, 1000 * i));

    /* Whatever chunk comes next gets what is free, and no new memory. */
    void *was = swn_pool_at(pool, f[1]);
    swn_pool_put(pool, f[1]);
    assert_null(swn_pool_chunk(pool, 10)->frame);
    assert_int_equal(swn_pool_bytes(pool), 4 * unit);
    assert_int_equal(swn_pool_free_bytes(pool), unit);
    assert_false(swn_pool_is_full(pool));
    struct swn_frame *next = take(77);
    assert_ptr_equal(swn_pool_at(pool, next), was);
    assert_int_equal(swn_pool_free_bytes(pool), 0);
    assert_int_equal(memory(), 4 * unit);
    f[1] = next;
    for (unsigned i = 0; i < 4; i++)
        swn_pool_put(pool, f[i]);
    assert_null(swn_pool_first(pool));
    assert_int_equal(swn_pool_free_bytes(pool), 4 * unit);
}

/* What is given back starts from zeros; frames that are in use keep their bytes. */
static void trims_what_is_free(void **state)
{
    (void)state;
    if (!swn_probe_removes())
        skip();
    struct swn_frame *f[6];
    for (unsigned i = 0; i < 6; i++) {
        f[i] = take(i);
        stamp(f[i], 50 * i);
    }
    assert_int_equal(swn_pool_trim(pool, 9), 0); /* none is */
    swn_pool_put(pool, f[1]);
    swn_pool_put(pool, f[3]);
    swn_pool_put(pool, f[4]);
    assert_int_equal(swn_pool_trim(pool, 0), 0);
    assert_int_equal(swn_pool_trim(pool, 2), 2);
    assert_int_equal(memory(), 4 * unit);
    assert_int_equal(swn_pool_bytes(pool), 4 * unit);
    assert_int_equal(swn_pool_free_bytes(pool), unit);
    assert_int_equal(swn_pool_trim(pool, SIZE_MAX), 1);
    assert_int_equal(swn_pool_bytes(pool), 3 * unit);
    assert_int_equal(memory(), 3 * unit);
    assert_true(swn_pool_is_full(pool));
    for (unsigned i = 0; i < 6; i++)
        if (i != 1 && i != 3 && i != 4)
            assert_true(has_stamp(swn_pool_at(pool, f[i]), 0, unit, 50 * i));
    for (unsigned i = 0; i < 3; i++) {
        struct swn_frame *again = take(20 + i);
        const char *bytes = swn_pool_at(pool, again);
        for (size_t at = 0; at < unit; at += 4096)
            assert_int_equal(bytes[at], 0);
    }
    assert_int_equal(memory(), 6 * unit);
}

static void order_of_use(void **state)
{
    (void)state;
    struct swn_frame *f[4];
    for (unsigned i = 0; i < 4; i++)
        f[i] = take(i);
    assert_ptr_equal(swn_pool_first(pool), f[0]);
    swn_pool_touch(pool, f[3]); /* it is the last already */
    assert_null(f[3]->next);
    swn_pool_touch(pool, f[0]);
    swn_pool_touch(pool, f[2]);
    static const unsigned order[] = {1, 3, 0, 2};
    struct swn_frame *walk = swn_pool_first(pool);
    for (unsigned i = 0; i < 4; i++, walk = walk->next)
        assert_ptr_equal(walk, f[order[i]]);
    assert_null(walk);
    swn_pool_put(pool, f[3]);
    assert_ptr_equal(f[1]->next, f[0]);
    assert_ptr_equal(f[0]->prev, f[1]);
    swn_pool_put(pool, f[1]);
    swn_pool_put(pool, f[2]);
    assert_true(swn_pool_first(pool) == f[0] && !f[0]->next && !f[0]->prev);
}

static void kept_or_not(void **state)
{
    (void)state;
    struct swn_frame *f[3];
    for (unsigned i = 0; i < 3; i++)
        f[i] = take(i);
    swn_pool_set_pinned(pool, f[0], 1);
    swn_pool_set_pinned(pool, f[0], 4); /* twice is once */
    swn_pool_set_pinned(pool, f[1], 1);
    assert_true(swn_pool_pinned(pool) == 2 && swn_pool_ring(pool) == 1);
    swn_pool_set_pinned(pool, f[1], 0);
    swn_pool_set_pinned(pool, f[1], 0);
    assert_true(swn_pool_pinned(pool) == 1 && swn_pool_ring(pool) == 2);
    swn_pool_put(pool, f[0]);
    assert_true(swn_pool_pinned(pool) == 0 && swn_pool_ring(pool) == 2);
    take(5); /* of that frame's memory, and not kept */
    assert_true(swn_pool_pinned(pool) == 0 && swn_pool_ring(pool) == 3);
}

/* As many as there are ranges in a chunk; a frame that is used again has none. */
static void parts(void **state)
{
    (void)state;
    struct swn_frame *f = take(3);
    for (unsigned i = 0; i < 100; i++) {
        struct swn_part *p = swn_pool_part(f);
        assert_non_null(p);
        assert_true(p == &f->parts[i] && f->n == i + 1 && p->frame == f && !p->range && !p->there && !p->mapped);
        p->at = i * SWN_PAGE;
        p->range_id = i + 1;
    }
    for (unsigned i = 0; i < 100; i++)
        assert_true(f->parts[i].at == i * SWN_PAGE && f->parts[i].range_id == i + 1 && f->parts[i].frame == f);
    swn_pool_put(pool, f);
    f = take(9);
    struct swn_part *p = swn_pool_part(f);
    assert_true(p && p->at == 0 && p->range_id == 0 && p->frame == f);
}

/* Random use against a table of what each chunk has. */
static void stress(void **state)
{
    static uint64_t stamps[CHUNKS];
    size_t taken = 0, kept = 0, with_memory = 0, refilled = 0, trimmed = 0;
    (void)state;
    memset(stamps, 0, sizeof stamps);
    for (uint64_t step = 1; step <= 3000; step++) {
        uint64_t chunk = rnd_below(CHUNKS);
        struct swn_frame *f = swn_pool_chunk(pool, chunk)->frame;
        assert_int_equal(f != NULL, stamps[chunk] != 0);
        if (rnd_below(8) == 0) {
            size_t most = rnd_below(4), free = with_memory - taken, want = most < free ? most : free;
            assert_int_equal(swn_pool_trim(pool, most), want);
            with_memory -= want;
            trimmed += want;
        } else if (!f) {
            int full = swn_pool_is_full(pool);
            f = take(chunk);
            with_memory += full != 0;
            refilled += !full;
            taken++;
            stamps[chunk] = step << 20;
            stamp(f, stamps[chunk]);
        } else if (rnd_below(3) == 0) {
            kept -= f->pinned_by_plan != 0;
            swn_pool_put(pool, f);
            stamps[chunk] = 0;
            taken--;
        } else {
            assert_true(has_stamp(swn_pool_at(pool, f), 0, unit, stamps[chunk]));
            int keep = rnd_below(2) != 0;
            kept += (size_t)keep;
            kept -= f->pinned_by_plan != 0;
            swn_pool_set_pinned(pool, f, keep);
            if (rnd_below(2))
                swn_pool_touch(pool, f);
        }
        assert_int_equal(swn_pool_bytes(pool), with_memory * unit);
        assert_int_equal(swn_pool_free_bytes(pool), (with_memory - taken) * unit);
        assert_int_equal(swn_pool_pinned(pool), kept);
        assert_int_equal(swn_pool_ring(pool), taken - kept);
        size_t listed = 0;
        struct swn_frame *ring = swn_pool_ring_first(pool);
        for (struct swn_frame *g = swn_pool_first(pool); g; g = g->next, listed++) {
            assert_ptr_equal(swn_pool_chunk(pool, g->chunk)->frame, g);
            if (g->pinned_by_plan)
                continue;
            assert_ptr_equal(g, ring); /* the same order, of those that are not kept */
            ring = ring->ring_next;
        }
        assert_true(!ring && listed == taken);
    }
    for (uint64_t chunk = 0; chunk < CHUNKS; chunk++)
        if (stamps[chunk])
            assert_true(has_stamp(swn_pool_at(pool, swn_pool_chunk(pool, chunk)->frame), 0, unit, stamps[chunk]));
    assert_true(refilled > 100 && trimmed > 100); /* the dice were rolled as meant */
}

/* There are as many frames as chunks; one more has no memory, and nothing happens to the others. */
static void no_more_memory(void **state)
{
    (void)state;
    for (uint64_t i = 0; i < CHUNKS; i++)
        take(i);
    swn_pool_chunk(pool, 0)->users = 3;
    assert_null(swn_pool_take(pool, 0, addr_of(0)));
    assert_int_equal(swn_pool_ring(pool), CHUNKS);
    assert_non_null(swn_pool_chunk(pool, 0)->frame);
    assert_int_equal(swn_pool_chunk(pool, 0)->users, 3);
    struct swn_frame *one = swn_pool_chunk(pool, 7)->frame;
    swn_pool_put(pool, one);
    take(7);
    struct swn_pool *none = NULL;
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__) /* they end the program that asks for so much */
    assert_int_equal(swn_pool_create(&none, SWN_HUGE, (size_t)1 << 38, 0), -ENOMEM); /* 2^59 bytes of addresses */
#endif
    assert_null(none);
}

/* Somewhere congruent with the frame, of which nobody else has a huge page. */
static char *room_for(size_t bytes, void **all)
{
    *all = mmap(NULL, bytes + 2 * SWN_HUGE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    assert_ptr_not_equal(*all, MAP_FAILED);
    return (char *)swn_round_up((uintptr_t)*all, SWN_HUGE);
}

/* The same bytes, until a store through one mapping: it has its own copy then. */
static void mapped_privately(void **state)
{
    (void)state;
    void *all;
    char *at = room_for(unit, &all);
    struct swn_frame *other = take(1), *f = take(2);
    stamp(other, 7);
    stamp(f, 1 << 30);
    assert_int_equal(swn_pool_map(pool, f, 0, unit, at), 0);
    assert_true(has_stamp(at, 0, unit, 1 << 30));
    memset(at + SWN_PAGE, 0xEE, SWN_PAGE);
    assert_true(has_stamp(swn_pool_at(pool, f), 0, unit, 1 << 30));
    /* A part of it. */
    assert_int_equal(swn_pool_map(pool, f, 2 * SWN_PAGE, 3 * SWN_PAGE, at + 2 * SWN_PAGE), 0);
    assert_true(has_stamp(at + 2 * SWN_PAGE, 2 * SWN_PAGE, 3 * SWN_PAGE, 1 << 30));
    assert_int_equal((unsigned char)at[SWN_PAGE], 0xEE);
    /* The fetcher no longer sees the pages once there are some MiB of such, and they stay. */
    for (size_t bytes = 0; bytes < 8 * KIB * KIB; bytes += unit)
        swn_pool_unsee(pool, f);
    assert_true(swn_smaps_kib((uintptr_t)swn_pool_at(pool, f), "Rss") <= (long)(unit / KIB)); /* the other's */
    assert_true(has_stamp(at + 2 * SWN_PAGE, 2 * SWN_PAGE, 3 * SWN_PAGE, 1 << 30));
    assert_true(has_stamp(swn_pool_at(pool, f), 0, unit, 1 << 30));
    assert_true(has_stamp(swn_pool_at(pool, other), 0, unit, 7));
    munmap(all, unit + 2 * SWN_HUGE);
}

/* Who closes everything keeps the frames that have memory, and gets no others. */
static void closed_memfd(void **state)
{
    (void)state;
    void *all;
    char *at = room_for(unit, &all);
    struct swn_frame *f = take(1), *g = take(2);
    stamp(f, 5);
    swn_pool_put(pool, g);
    close(memfd());
    g = take(3); /* what is free is enough */
    stamp(g, 6);
    assert_null(swn_pool_take(pool, 4, addr_of(4)));
    assert_null(swn_pool_chunk(pool, 4)->frame);
    assert_int_equal(swn_pool_map(pool, f, 0, unit, at), -EBADF);
    assert_true(has_stamp(swn_pool_at(pool, f), 0, unit, 5) && has_stamp(swn_pool_at(pool, g), 0, unit, 6));
    /* Another file with that number is not ours, */
    int fd = open("/dev/null", O_RDONLY | O_CLOEXEC);
    assert_true(fd >= 0);
    assert_null(swn_pool_take(pool, 4, addr_of(4)));
    assert_int_equal(swn_pool_map(pool, f, 0, unit, at), -EBADF);
    close(fd);
    /* and the memory goes all the same. */
    long before = swn_smaps_kib((uintptr_t)swn_pool_at(pool, g), "Rss");
    uintptr_t was = (uintptr_t)swn_pool_at(pool, g);
    swn_pool_put(pool, g);
    assert_int_equal(swn_pool_trim(pool, 1), 1);
    assert_true(swn_smaps_kib(was, "Rss") < before);
    assert_int_equal(swn_pool_bytes(pool), unit);
    munmap(all, unit + 2 * SWN_HUGE);
}

/* What a child maps before it comes to destroy the pool must not lie in it. */
static void no_holes_in_children(void **state)
{
    (void)state;
    for (uint64_t c = 0; c < 6; c++)
        stamp(take(c), 5);
    pid_t pid = fork();
    assert_true(pid >= 0);
    if (!pid) {
        unsigned char *at[12];
        for (unsigned i = 0; i < 12; i++) {
            at[i] = mmap(NULL, unit, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
            if (at[i] == MAP_FAILED)
                _exit(1);
            at[i][0] = at[i][unit - 1] = (unsigned char)i;
        }
        swn_pool_destroy(pool);
        for (unsigned i = 0; i < 12; i++)
            if (at[i][0] != i || at[i][unit - 1] != i)
                _exit(2);
        _exit(0);
    }
    int status = 0;
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_true(WIFEXITED(status));
    assert_int_equal(WEXITSTATUS(status), 0);
}

/* And where there is no frame there is nothing, so that a fetcher that errs does no harm. */
static void nothing_between(void **state)
{
    (void)state;
    struct swn_frame *f = take(1), *g = take(2);
    volatile unsigned char *gone = swn_pool_at(pool, g);
    swn_pool_put(pool, g);
    swn_pool_trim(pool, 1);
    pid_t pid = fork();
    assert_true(pid >= 0);
    if (!pid) {
        signal(SIGSEGV, SIG_DFL);
        _exit(*gone == 77);
    }
    int status = 0;
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGSEGV);
    stamp(f, 1);
}

static long huge_kib(const void *at)
{
    return swn_smaps_kib((uintptr_t)at, "ShmemPmdMapped");
}

/* Whether this kernel makes them at all of shared memory. */
static void needs_huge_pages(void)
{
    int fd = memfd_create("probe", MFD_CLOEXEC);
    assert_true(fd >= 0 && !ftruncate(fd, SWN_HUGE));
    void *at = swn_huge_map(fd, 0, SWN_HUGE, PROT_READ | PROT_WRITE);
    assert_ptr_not_equal(at, MAP_FAILED);
    memset(at, 1, SWN_HUGE);
    int refused = madvise(at, SWN_HUGE, MADV_COLLAPSE) || huge_kib(at) <= 0; /* an emulator ignores the advice */
    munmap(at, SWN_HUGE);
    close(fd);
    if (!refused)
        return;
    print_message("skipped: no huge pages for shared memory here\n");
    skip();
}

static void collapsed(void **state)
{
    (void)state;
    needs_huge_pages();
    size_t size = 4 * SWN_HUGE;
    int fd = memfd_create("pages", MFD_CLOEXEC);
    assert_true(fd >= 0 && !ftruncate(fd, (off_t)size));
    unsigned char *at = swn_huge_map(fd, 0, size, PROT_READ | PROT_WRITE);
    assert_ptr_not_equal(at, MAP_FAILED);
    assert_int_equal((uintptr_t)at % SWN_HUGE, 0);
    for (size_t i = 0; i < SWN_HUGE + 4096; i += 12288)
        memset(at + i, 1 + (int)(i / 12288 % 255), 4096);
    assert_int_equal(swn_huge_collapse(at, 3 * SWN_HUGE), 0);
    assert_int_equal(huge_kib(at), 3 * SWN_HUGE / KIB);
    for (size_t i = 0; i < size; i += 4096) {
        int want = i < SWN_HUGE + 4096 && i % 12288 == 0 ? 1 + (int)(i / 12288 % 255) : 0;
        assert_true(at[i] == want && at[i + 4095] == want);
    }
    munmap(at, size);
    close(fd);
}

/* A frame is one huge page before anything is read into it, also where it is mapped; the pages that somebody stores
 * into are his own, small, and no more than those. */
static void huge_pages(void **state)
{
    (void)state;
    needs_huge_pages();
    struct swn_frame *f = take(5);
    assert_true(swn_pool_is_huge(pool));
    assert_int_equal((uintptr_t)swn_pool_at(pool, f) % SWN_HUGE, 0);
    assert_int_equal(huge_kib(swn_pool_at(pool, f)), SWN_HUGE / KIB);
    stamp(f, 99);
    assert_int_equal(huge_kib(swn_pool_at(pool, f)), SWN_HUGE / KIB);
    assert_int_equal(memory(), SWN_HUGE);
    void *all;
    char *at = room_for(unit, &all);
    assert_int_equal(swn_pool_map(pool, f, 0, unit, at), 0);
    assert_true(has_stamp(at, 0, unit, 99));
    assert_int_equal(swn_smaps_kib((uintptr_t)at, "FilePmdMapped") + huge_kib(at), SWN_HUGE / KIB);
    at[3 * SWN_PAGE] = 1;
    assert_int_equal(swn_smaps_kib((uintptr_t)at, "Private_Dirty"), SWN_PAGE / KIB);
    assert_true(has_stamp(swn_pool_at(pool, f), 0, unit, 99));
    munmap(all, unit + 2 * SWN_HUGE);
    /* One that is used again has them still. */
    swn_pool_put(pool, f);
    f = take(6);
    stamp(f, 3);
    assert_int_equal(huge_kib(swn_pool_at(pool, f)), SWN_HUGE / KIB);
}

/* Not where the kernel could not tell one from a private copy, nor where units are smaller. */
static void small_pages(void **state)
{
    (void)state;
    swn_pool_keep_small(pool);
    assert_false(swn_pool_is_huge(pool));
    struct swn_frame *f = take(5);
    stamp(f, 99);
    assert_true(huge_kib(swn_pool_at(pool, f)) <= 0);
    struct swn_pool *other;
    assert_int_equal(swn_pool_create(&other, SMALL_UNIT, 8, 0), 0);
    assert_false(swn_pool_is_huge(other));
    swn_pool_destroy(other);
}

#define BOTH(test)                                                                                                     \
    {#test " (small)", test, setup_small, teardown, NULL},                                                             \
    {                                                                                                                  \
#test " (huge)", test, setup_huge, teardown, NULL                                                              \
    }

/* Which frame gets the chunk with the most parts depends on the order of reads. That shall take no memory in a pass
 * that is like the one before. */
static void room_of_others(void **state)
{
    (void)state;
    struct swn_frame *few = swn_pool_take(pool, 0, 0), *many = swn_pool_take(pool, 1, unit), *late;
    assert_non_null(few);
    assert_non_null(many);
    for (unsigned i = 0; i < 5; i++)
        assert_non_null(swn_pool_part(many));
    assert_non_null(swn_pool_part(few));
    swn_pool_put(pool, few);
    swn_pool_put(pool, many);
    few = swn_pool_take(pool, 2, 2 * unit);
    many = swn_pool_take(pool, 3, 3 * unit);
    assert_true(few->room >= 5 && many->room >= 5);
    late = swn_pool_take(pool, 4, 4 * unit);
    assert_non_null(late);
    swn_pool_put(pool, late);
    late = swn_pool_take(pool, 5, 5 * unit);
    assert_true(late && late->room >= 5);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        BOTH(memory_is_used_again),
        BOTH(trims_what_is_free),
        BOTH(order_of_use),
        BOTH(kept_or_not),
        BOTH(parts),
        BOTH(mapped_privately),
        BOTH(closed_memfd),
        BOTH(no_holes_in_children),
        BOTH(nothing_between),
        cmocka_unit_test_setup_teardown(stress, setup_small, teardown),
        cmocka_unit_test_setup_teardown(no_more_memory, setup_small, teardown),
        cmocka_unit_test_setup_teardown(room_of_others, setup_small, teardown),
        cmocka_unit_test(collapsed),
        cmocka_unit_test_setup_teardown(huge_pages, setup_huge, teardown),
        cmocka_unit_test_setup_teardown(small_pages, setup_huge, teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
