/* tests/unit/support/residency_fixture.c - see residency_fixture.h. */
#define _GNU_SOURCE
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/huge_pages.h"
#include "tests/unit/support/kernel_does.h"
#include "tests/unit/support/random.h"
#include "tests/unit/support/residency_fixture.h"

struct swn_io io;
struct bad_calls bad_write, bad_map;

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

int fault_mmap(void *ctx, void **addr, size_t len, int prot, int flags, int fd, uint64_t off)
{
    if (fails(&bad_map.calls, bad_map.from, bad_map.to))
        return bad_map.err;
    return swn_io_sys.mmap(ctx, addr, len, prot, flags, fd, off);
}

char dir[512];
struct swn_residency res;
struct swn_arena *arena;
struct swn_pool *pool;
struct swn_extent_file *spill;
unsigned char shadow[SIZE];
size_t unit;

static int begin(size_t unit_bytes)
{
    const char *tmp = getenv("TMPDIR");
    snprintf(dir, sizeof dir, "%s/residency.XXXXXX", tmp && *tmp ? tmp : "/var/tmp");
    if (!mkdtemp(dir))
        return -1;
    unit = unit_bytes;
    io = swn_io_sys;
    io.pwrite = fault_pwrite;
    io.mmap = fault_mmap;
    memset(&bad_write, 0, sizeof bad_write);
    memset(&bad_map, 0, sizeof bad_map);
    if (swn_arena_create(&arena, 64 * MIB, 0) || swn_pool_create(&pool, unit, 64 * MIB / unit, 0) ||
        swn_spill_open(&spill, &io, dir) || swn_residency_init(&res, &io, arena))
        return -1;
    res.pool = pool;
    res.spill = spill;
    return 0;
}

int residency_begin(void **state)
{
    (void)state;
    return begin(SWN_GRANULE);
}

int residency_begin_wide(void **state)
{
    (void)state;
    return begin(4 * SWN_GRANULE);
}

int residency_begin_huge(void **state)
{
    (void)state;
    return begin(SWN_HUGE);
}

int residency_end(void **state)
{
    (void)state;
    swn_residency_fini(&res);
    swn_spill_close(spill);
    swn_pool_destroy(pool);
    swn_arena_destroy(arena);
    return rmdir(dir);
}

int populates(void)
{
    static int known, does;
    does = known++ ? does : swn_probe_populates();
    return does;
}

int state_of(const struct swn_range *r)
{
    return atomic_load(&((struct swn_range *)(uintptr_t)r)->state);
}

unsigned char *bytes_of(const struct swn_range *r)
{
    return (unsigned char *)r->addr;
}

struct swn_pages scan(const struct swn_range *r)
{
    struct swn_pages pages;
    assert_int_equal(swn_residency_scan(&res, r, &pages), 0);
    return pages;
}

void put(struct swn_range *r, size_t at, unsigned char byte)
{
    bytes_of(r)[at] = shadow[at] = byte;
}

struct swn_range *new_range(size_t len)
{
    size_t fresh;
    struct swn_range *r = swn_arena_alloc(arena, len, SWN_LONG_TERM, &fresh);
    assert_non_null(r);
    res.resident_bytes += r->size;
    return r;
}

/* --- frames, as the engine has them --- */

struct swn_frame *frame_of(uint64_t chunk)
{
    return swn_pool_chunk(pool, chunk)->frame;
}

/* What the range has in the chunk is read into its frame, up to the end of its last granule. */
struct swn_part *fetch_into(struct swn_frame *f, struct swn_range *r)
{
    struct swn_part *p = swn_residency_part(&res, f, r);
    assert_non_null(p);
    p->there = 1;
    assert_int_equal(pread(p->file->fetch.fd, (char *)swn_pool_at(pool, f) + p->at, p->fill, (off_t)p->off), p->fill);
    return p;
}

struct swn_frame *frame_for(struct swn_range *r, uint64_t chunk)
{
    struct swn_frame *f = frame_of(chunk);
    f = f ? f : swn_pool_take(pool, chunk, swn_residency_chunk_at(&res, r, chunk));
    assert_non_null(f);
    return f;
}

/* Frames with the bytes of r, in those of its chunks that are in the mask and have none. */
void fetch(struct swn_range *r, unsigned mask)
{
    struct swn_chunks all = swn_residency_chunks(&res, r);
    for (uint64_t c = all.first; c < all.end; c++)
        if (mask >> (c - all.first) & 1 && !frame_of(c))
            fetch_into(frame_for(r, c), r);
}

/* Maps all frames of r. Returns a range that was written to, or NULL. */
struct swn_range *publish(const struct swn_range *r)
{
    struct swn_chunks all = swn_residency_chunks(&res, r);
    struct swn_range *any = NULL;
    for (uint64_t c = all.first; c < all.end; c++) {
        struct swn_range *written = NULL;
        struct swn_frame *f = frame_of(c);
        if (f)
            swn_residency_publish(&res, &f, 1, &written);
        any = written ? written : any;
    }
    return any;
}

struct swn_range *unpublish(const struct swn_range *r)
{
    struct swn_chunks all = swn_residency_chunks(&res, r);
    struct swn_range *any = NULL;
    for (uint64_t c = all.first; c < all.end; c++) {
        struct swn_frame *f = frame_of(c);
        struct swn_range *written = f ? swn_residency_unpublish(&res, &f, 1) : NULL;
        any = written ? written : any;
    }
    return any;
}

/* The pool puts the frame's memory to another use. */
void reuse_frame(struct swn_frame *f)
{
    memset(swn_pool_at(pool, f), 0xEE, unit);
    swn_pool_put(pool, f);
}

/* The frames that have nothing of any range any more, and those of r if it is not mapped there. */
void reuse(const struct swn_range *r)
{
    for (struct swn_frame *f = swn_pool_first(pool), *next; f; f = next) {
        next = f->next;
        int used = 0;
        for (unsigned i = 0; i < f->n; i++)
            used |= f->parts[i].range && (f->parts[i].range != r || f->parts[i].mapped);
        if (!used)
            reuse_frame(f);
    }
}

size_t mapped_bytes(const struct swn_range *r)
{
    return SIZE - swn_residency_unmapped(&res, r);
}

/* Of r, in those of its chunks that are in the mask. */
size_t bytes_in(const struct swn_range *r, unsigned mask)
{
    struct swn_chunks all = swn_residency_chunks(&res, r);
    size_t bytes = 0;
    for (size_t at = 0; at < SIZE; at += SWN_PAGE)
        bytes += mask >> ((r->place + at) / unit - all.first) & 1 ? SWN_PAGE : 0;
    return bytes;
}

/* A range that stands as told, with the chunks in the mask published if it is. */
struct swn_range *make(enum stand stand, unsigned mask)
{
    struct swn_range *r = new_range(LEN);
    for (size_t i = 0; i < SIZE; i++)
        put(r, i, (unsigned char)rnd());
    if (stand == RESIDENT)
        return r;
    assert_int_equal(swn_residency_spill(&res, r), 0);
    assert_int_equal(state_of(r), SWN_FILE_BACKED);
    assert_int_equal(scan(r).private_pages, 0);
    if (stand == RESIDENT_AGAIN) {
        assert_int_equal(swn_residency_make_resident(&res, r, 0), 0);
        put(r, 5, 99);
        return r;
    }
    if (stand == PUBLISHED || stand == PUBLISHED_WRITTEN) {
        fetch(r, mask);
        assert_null(publish(r));
        assert_int_equal(mapped_bytes(r), bytes_in(r, mask));
        assert_true(!populates() || scan(r).mapped >= bytes_in(r, mask) / SWN_PAGE);
        assert_int_equal(scan(r).private_pages, 0);
    }
    if (stand == WRITTEN || stand == PUBLISHED_WRITTEN) {
        put(r, FIRST_WRITTEN, (unsigned char)(shadow[FIRST_WRITTEN] + 1));
        put(r, LAST_WRITTEN, (unsigned char)(shadow[LAST_WRITTEN] ^ 0x55));
        assert_int_equal(scan(r).private_pages, 2);
    }
    return r;
}

void check(const struct swn_range *r, int state)
{
    assert_int_equal(state_of(r), state);
    assert_memory_equal(bytes_of(r), shadow, SIZE);
    assert_int_equal(res.resident_bytes, state == SWN_RESIDENT ? r->size : 0);
    assert_int_equal(spill->live_bytes, r->file || r->reserved_extent ? SIZE : 0);
    assert_int_equal(spill->refs, r->file || r->reserved_extent ? 1 : 0);
}

/* What a streamed range is to hold instead: it takes them. */
void *new_pages(const struct swn_range *r)
{
    size_t size = swn_round_up(r->len, SWN_PAGE);
    if (state_of(r) != SWN_FILE_BACKED)
        return NULL;
    void *at = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    assert_true(at != MAP_FAILED);
    return memset(at, 0x77, size);
}

struct neighbour near[NEIGHBOURS];

/* Of other lengths, one behind the other from the arena's beginning on: whole granules, and with padding. The one in
 * the middle has gone if `hole`, else stays resident. All others are streamed, and lie in the file as in memory, or, if
 * `apart`, the other way round. */
void make_neighbours(int hole, int apart)
{
    static const size_t lens[NEIGHBOURS] = {LEN, SWN_GRANULE, 5 * SWN_PAGE, 2 * SWN_GRANULE, SWN_GRANULE + 9};
    for (unsigned i = 0; i < NEIGHBOURS; i++) {
        near[i].range = new_range(lens[i]);
        near[i].len = lens[i];
        near[i].byte = (unsigned char)(10 + i);
        memset(bytes_of(near[i].range), near[i].byte, lens[i]);
    }
    for (unsigned k = 0; k < NEIGHBOURS; k++) {
        unsigned i = apart ? NEIGHBOURS - 1 - k : k;
        if (i != 2)
            assert_int_equal(swn_residency_spill(&res, near[i].range), 0);
    }
    assert_int_equal(near[NEIGHBOURS - 1].range->place + near[NEIGHBOURS - 1].range->span, 8 * SWN_GRANULE);
    if (hole) {
        swn_residency_free(&res, near[2].range, 0);
        near[2].range = NULL;
    }
}

void check_neighbours(void)
{
    for (unsigned i = 0; i < NEIGHBOURS; i++)
        for (size_t at = 0; near[i].range && at < near[i].len; at += 64)
            assert_int_equal(bytes_of(near[i].range)[at], near[i].byte);
}

struct swn_frame *frame_of_neighbours(void)
{
    struct swn_frame *f = frame_for(near[0].range, 0);
    for (unsigned i = 0; i < NEIGHBOURS; i++)
        if (near[i].range && state_of(near[i].range) == SWN_FILE_BACKED && !swn_pool_part_of(f, near[i].range))
            fetch_into(f, near[i].range);
    for (unsigned i = 0; i + 1 < f->n; i++)
        assert_true(f->parts[i].at + f->parts[i].bytes <= f->parts[i + 1].at);
    return f;
}

void free_neighbours(void)
{
    for (unsigned i = 0; i < NEIGHBOURS; i++)
        if (near[i].range)
            swn_residency_free(&res, near[i].range, 0);
    reuse(NULL);
    assert_null(swn_pool_first(pool));
    swn_residency_tidy(&res);
    assert_int_equal(res.resident_bytes, 0);
    assert_int_equal(spill->live_bytes, 0);
}
