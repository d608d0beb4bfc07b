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
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/huge_pages.h"
#include "tests/unit/support/kernel_does.h"
#include "tests/unit/support/random.h"
#include "blocks/memory/residency.h"

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
static size_t unit; /* of the pool: in the smallest the range lies in two chunks, the last of which has padding */

static int setup_of(size_t unit_bytes)
{
    const char *tmp = getenv("TMPDIR");
    snprintf(dir, sizeof dir, "%s/t_residency.XXXXXX", tmp && *tmp ? tmp : "/var/tmp");
    if (!mkdtemp(dir))
        return -1;
    unit = unit_bytes;
    io = swn_io_sys;
    io.pwrite = fault_pwrite;
    io.mmap = fault_mmap;
    memset(&bad_write, 0, sizeof bad_write);
    memset(&bad_map, 0, sizeof bad_map);
    if (swn_arena_create(&arena, 64 * MIB, 0) || swn_pool_create(&pool, unit, 64 * MIB / unit) ||
        swn_spill_open(&spill, &io, dir) || swn_residency_init(&res, &io, arena))
        return -1;
    res.pool = pool;
    res.spill = spill;
    return 0;
}

static int setup(void **state)
{
    (void)state;
    return setup_of(SWN_GRANULE);
}

static int setup_wide(void **state)
{
    (void)state;
    return setup_of(4 * SWN_GRANULE);
}

static int setup_huge(void **state)
{
    (void)state;
    return setup_of(SWN_HUGE);
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
    struct swn_range *r = swn_arena_alloc(arena, len, SWN_LONG_TERM, &fresh);
    assert_non_null(r);
    res.resident_bytes += r->size;
    return r;
}

/* --- frames, as the engine has them --- */

static struct swn_frame *frame_of(uint64_t chunk)
{
    return swn_pool_chunk(pool, chunk)->frame;
}

/* What the range has in the chunk is read into its frame, up to the end of its last granule. */
static struct swn_part *fetch_into(struct swn_frame *f, struct swn_range *r)
{
    struct swn_part *p = swn_residency_part(&res, f, r);
    assert_non_null(p);
    p->there = 1;
    assert_int_equal(pread(p->file->fetch.fd, (char *)swn_pool_at(pool, f) + p->at, p->fill, (off_t)p->off), p->fill);
    return p;
}

static struct swn_frame *frame_for(struct swn_range *r, uint64_t chunk)
{
    struct swn_frame *f = frame_of(chunk);
    f = f ? f : swn_pool_take(pool, chunk, swn_residency_chunk_at(&res, r, chunk));
    assert_non_null(f);
    return f;
}

/* Frames with the bytes of r, in those of its chunks that are in the mask and have none. */
static void fetch(struct swn_range *r, unsigned mask)
{
    struct swn_chunks all = swn_residency_chunks(&res, r);
    for (uint64_t c = all.first; c < all.end; c++)
        if (mask >> (c - all.first) & 1 && !frame_of(c))
            fetch_into(frame_for(r, c), r);
}

/* Maps all frames of r. Returns a range that was written to, or NULL. */
static struct swn_range *publish(const struct swn_range *r)
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

static struct swn_range *unpublish(const struct swn_range *r)
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
static void reuse_frame(struct swn_frame *f)
{
    memset(swn_pool_at(pool, f), 0xEE, unit);
    swn_pool_put(pool, f);
}

/* The frames that have nothing of any range any more, and those of r if it is not mapped there. */
static void reuse(const struct swn_range *r)
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

static size_t mapped_bytes(const struct swn_range *r)
{
    return SIZE - swn_residency_unmapped(&res, r);
}

/* Of r, in those of its chunks that are in the mask. */
static size_t bytes_in(const struct swn_range *r, unsigned mask)
{
    struct swn_chunks all = swn_residency_chunks(&res, r);
    size_t bytes = 0;
    for (size_t at = 0; at < SIZE; at += SWN_PAGE)
        bytes += mask >> ((r->place + at) / unit - all.first) & 1 ? SWN_PAGE : 0;
    return bytes;
}

/* --- one range in every state --- */

enum stand { RESIDENT, HOME_AGAIN, CLEAN, WRITTEN, PUBLISHED, PUBLISHED_WRITTEN, STANDS };
enum op { SPILL, GO_HOME, REPLACE, PUBLISH, UNPUBLISH, REMAP, FREE_WARM, FREE_COLD, FORK, OPS };

#define FIRST_WRITTEN (3 * SWN_PAGE + 17) /* of stores, in the first chunk and in the last */
#define LAST_WRITTEN (LEN - 1)

/* A range that stands as told, with the chunks in the mask published if it is. */
static struct swn_range *make(enum stand stand, unsigned mask)
{
    struct swn_range *r = new_range(LEN);
    for (size_t i = 0; i < SIZE; i++)
        put(r, i, (unsigned char)rnd());
    if (stand == RESIDENT)
        return r;
    assert_int_equal(swn_residency_spill(&res, r), 0);
    assert_int_equal(state_of(r), SWN_FILE_BACKED);
    assert_int_equal(scan(r).private_pages, 0);
    if (stand == HOME_AGAIN) {
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

static void check(const struct swn_range *r, int state)
{
    assert_int_equal(state_of(r), state);
    assert_memory_equal(bytes_of(r), shadow, SIZE);
    assert_int_equal(res.resident_bytes, state == SWN_RESIDENT ? r->size : 0);
    assert_int_equal(spill->live_bytes, r->file ? SIZE : 0);
}

/* What a streamed range is to hold instead: it takes them. */
static void *new_pages(const struct swn_range *r)
{
    size_t size = swn_round_up(r->len, SWN_PAGE);
    if (state_of(r) != SWN_FILE_BACKED)
        return NULL;
    void *at = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    assert_true(at != MAP_FAILED);
    return memset(at, 0x77, size);
}

/* The child reads what was there at the fork, also after the parent has dropped and overwritten everything. */
static void forked(struct swn_range *r)
{
    struct swn_pages pages = scan(r);
    int ends[2];
    char byte;
    if (mapped_bytes(r) &&
        pages.private_pages) { /* as the engine does: private copies in frames would not be inherited */
        assert_int_equal(swn_residency_make_resident(&res, r, 0), 0);
        reuse(r);
    }
    assert_int_equal(pipe(ends), 0);
    res.fork_epoch++;
    pid_t pid = fork();
    assert_true(pid >= 0);
    if (!pid) {
        close(ends[1]);
        swn_residency_child(&res);
        if (res.pool || swn_residency_unmapped(&res, r) < SIZE || memcmp(bytes_of(r), shadow, SIZE))
            _exit(1);
        if (read(ends[0], &byte, 1) != 0) /* the parent is done */
            _exit(2);
        if (memcmp(bytes_of(r), shadow, SIZE))
            _exit(3);
        if (swn_residency_scan(&res, r, &pages) || (pages.private_pages == 0 && state_of(r) != SWN_FILE_BACKED))
            _exit(4);
        bytes_of(r)[0] ^= 0xFF; /* a child's stores are its own */
        shadow[0] ^= 0xFF;
        if (swn_residency_make_resident(&res, r, 0) || memcmp(bytes_of(r), shadow, SIZE))
            _exit(5);
        _exit(0);
    }
    close(ends[0]);
    int was = state_of(r);
    uint64_t live = spill->live_bytes;
    assert_memory_equal(bytes_of(r), shadow, SIZE);
    if (rnd() % 2) {
        assert_null(unpublish(r));
        assert_memory_equal(bytes_of(r), shadow, SIZE);
    }
    assert_int_equal(swn_residency_make_resident(&res, r, rnd() % 2 ? new_pages(r) : NULL), 0);
    if (was == SWN_FILE_BACKED)
        assert_int_equal(spill->live_bytes, live); /* an extent of an earlier epoch is not punched out */
    reuse(r);
    for (size_t i = 0; i < SIZE; i++)
        put(r, i, 0xAA);
    assert_int_equal(swn_residency_spill(&res, r), 0);
    assert_memory_equal(bytes_of(r), shadow, SIZE);
    put(r, 0, 0xBB);
    assert_int_equal(swn_residency_make_resident(&res, r, 0), 0);
    assert_memory_equal(bytes_of(r), shadow, SIZE);
    assert_int_equal(spill->live_bytes, was == SWN_FILE_BACKED ? live : 0); /* one of this epoch is */
    close(ends[1]);
    int status = -1;
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_true(WIFEXITED(status));
    assert_int_equal(WEXITSTATUS(status), 0);
    spill->live_bytes = 0; /* what the child still had */
}

static void step_publish(struct swn_range *r, enum stand stand, unsigned mask)
{
    int streamed = stand >= CLEAN, written = stand == WRITTEN || stand == PUBLISHED_WRITTEN;
    size_t before = mapped_bytes(r);
    uint64_t recalls = res.recalls;
    struct swn_chunks all = swn_residency_chunks(&res, r);
    unsigned two = all.end - all.first > 1, whole = two ? 3 : 1;
    if (!streamed) { /* bytes of it that came too late */
        struct swn_part *p = swn_pool_part(frame_for(r, all.first));
        *p = (struct swn_part){
            .range = r, .frame = frame_of(all.first), .bytes = SWN_PAGE, .fill = SWN_PAGE, .there = 1};
        assert_null(publish(r));
        assert_int_equal(res.recalls, recalls);
        assert_false(p->mapped);
        p->range = NULL;
        reuse(r);
        check(r, SWN_RESIDENT);
        return;
    }
    fetch(r, whole);
    struct swn_range *said = publish(r);
    check(r, SWN_FILE_BACKED);
    if (!written || (stand == PUBLISHED_WRITTEN && mask == whole)) { /* what is mapped already is not asked again */
        assert_null(said);
        assert_int_equal(mapped_bytes(r), SIZE);
        assert_int_equal(res.recalls, recalls);
    } else {
        assert_ptr_equal(said, r);
        assert_int_equal(mapped_bytes(r), before);
        assert_true(res.recalls > recalls);
    }
    reuse(r); /* those that could not be mapped */
    check(r, SWN_FILE_BACKED);
}

static void step_unpublish(struct swn_range *r, enum stand stand, unsigned mask)
{
    int written = stand == PUBLISHED_WRITTEN;
    size_t lost = 0; /* chunks that were written to stay */
    struct swn_chunks all = swn_residency_chunks(&res, r);
    unsigned last = 1u << (all.end - all.first - 1);
    if (written)
        lost = bytes_in(r, mask & (1 | last));
    uint64_t recalls = res.recalls;
    assert_ptr_equal(unpublish(r), lost ? r : NULL);
    assert_int_equal(mapped_bytes(r), lost);
    assert_int_equal(res.recalls > recalls, lost > 0);
    reuse(r);
    check(r, stand >= CLEAN ? SWN_FILE_BACKED : SWN_RESIDENT);
    if (!lost)
        return;
    /* As the engine does: its private copies are the truth, and then the frame is nobody's. */
    assert_int_equal(swn_residency_make_resident(&res, r, 0), 0);
    assert_null(unpublish(r));
    reuse(r);
    check(r, SWN_RESIDENT);
}

static void step_remap(struct swn_range *r, enum stand stand)
{
    size_t mapped = mapped_bytes(r);
    int streamed = stand >= CLEAN, written = stand == WRITTEN || stand == PUBLISHED_WRITTEN;
    int first_is = swn_residency_mapped(&res, r, r->addr + FIRST_WRITTEN) != NULL;
    int last_is = swn_residency_mapped(&res, r, r->addr + LAST_WRITTEN) != NULL;
    int busy = written && !(first_is && last_is);
    assert_int_equal(swn_residency_remap(&res, r), !streamed ? -EINVAL : busy ? -EBUSY : 0);
    if (streamed && !written) {
        assert_int_equal(scan(r).private_pages, 0);
        assert_true(scan(r).mapped <= mapped / SWN_PAGE); /* only what is in frames */
    }
    assert_int_equal(mapped_bytes(r), mapped);
    check(r, streamed ? SWN_FILE_BACKED : SWN_RESIDENT);
}

static void step(enum stand stand, enum op op, unsigned mask)
{
    struct swn_range *r = make(stand, mask);
    int streamed = stand >= CLEAN;
    check(r, streamed ? SWN_FILE_BACKED : SWN_RESIDENT);
    switch (op) {
    case SPILL:
        assert_int_equal(swn_residency_spill(&res, r), streamed ? -EBUSY : 0);
        check(r, SWN_FILE_BACKED);
        break;
    case GO_HOME:
    case REPLACE:
        assert_int_equal(swn_residency_make_resident(&res, r, op == REPLACE ? new_pages(r) : NULL), 0);
        reuse(r);
        assert_null(swn_pool_first(pool));
        if (op == REPLACE && streamed)
            memset(shadow, 0x77, SIZE);
        check(r, SWN_RESIDENT);
        if (op == GO_HOME)
            assert_int_equal(scan(r).private_pages, PAGES);
        break;
    case PUBLISH:
        step_publish(r, stand, mask);
        break;
    case UNPUBLISH:
        step_unpublish(r, stand, mask);
        break;
    case REMAP:
        step_remap(r, stand);
        break;
    case FORK:
#ifdef __SANITIZE_THREAD__ /* its runtime maps memory in a new child, into the hole that a published range has become  \
                            */
        if (stand >= PUBLISHED)
            break;
#endif
        forked(r);
        break;
    default:
        break;
    }
    /* Whatever happened, the range is writable and can go either way once more. */
    if (op < FREE_WARM || op == FORK) {
        put(r, 7 * SWN_PAGE, (unsigned char)rnd());
        check(r, state_of(r));
        assert_int_equal(swn_residency_make_resident(&res, r, 0), 0);
        reuse(r);
        check(r, SWN_RESIDENT);
        assert_int_equal(swn_residency_spill(&res, r), 0);
        check(r, SWN_FILE_BACKED);
    }
    int foreign = r->foreign_map;
    uintptr_t addr = r->addr;
    swn_residency_free(&res, r, op != FREE_COLD);
    assert_int_equal(res.resident_bytes, 0);
    assert_int_equal(spill->live_bytes, 0);
    assert_null(swn_arena_find(arena, addr));
    reuse(NULL); /* frames have nothing of it any more */
    assert_null(swn_pool_first(pool));
    swn_residency_tidy(&res);
    assert_int_equal(swn_arena_warm_bytes(arena), op == FREE_COLD || foreign ? 0 : swn_round_up(LEN, SWN_GRANULE));
    /* The next owner of the address: ordinary memory, zeros unless the pages are warm. */
    size_t fresh;
    struct swn_range *heir = swn_arena_alloc(arena, LEN, SWN_LONG_TERM, &fresh);
    assert_int_equal(heir->addr, addr);
    res.resident_bytes += heir->size;
    if (fresh)
        memset(shadow, 0, SIZE);
    assert_memory_equal(bytes_of(heir), shadow, SIZE);
    bytes_of(heir)[0] = 1;
    if (fresh) /* also behind its last page */
        assert_int_equal(bytes_of(heir)[heir->span - 1], 0);
    swn_residency_free(&res, heir, 0);
    assert_int_equal(res.resident_bytes, 0);
    struct swn_piece piece;
    assert_int_equal(swn_arena_trim(arena, SIZE_MAX, &piece), 0);
}

static void every_state_and_operation(void **state)
{
    (void)state;
    unsigned masks = unit == SWN_GRANULE ? 3 : 1;
    for (int stand = 0; stand < STANDS; stand++)
        for (int op = 0; op < OPS; op++)
            for (unsigned mask = 1; mask <= (stand >= PUBLISHED ? masks : 1); mask++)
                for (int i = 0; i < 2; i++)
                    step((enum stand)stand, (enum op)op, mask);
}

/* --- several ranges in a frame --- */

#define NEIGHBOURS 5

static struct {
    struct swn_range *range;
    size_t len, room; /* room: with some of its bytes in the same chunk, or nothing */
    unsigned char byte;
} near[NEIGHBOURS];

/* Of other lengths, one behind the other from the arena's beginning on: whole granules, and with padding. The one in
 * the middle has gone if `hole`, else stays resident. All others are streamed, and lie in the file as in memory, or, if
 * `apart`, the other way round. */
static void make_neighbours(int hole, int apart)
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

static void check_neighbours(void)
{
    for (unsigned i = 0; i < NEIGHBOURS; i++)
        for (size_t at = 0; near[i].range && at < near[i].len; at += 64)
            assert_int_equal(bytes_of(near[i].range)[at], near[i].byte);
}

static struct swn_frame *frame_of_neighbours(void)
{
    struct swn_frame *f = frame_for(near[0].range, 0);
    for (unsigned i = 0; i < NEIGHBOURS; i++)
        if (near[i].range && state_of(near[i].range) == SWN_FILE_BACKED && !swn_pool_part_of(f, near[i].range))
            fetch_into(f, near[i].range);
    for (unsigned i = 0; i + 1 < f->n; i++)
        assert_true(f->parts[i].at + f->parts[i].bytes <= f->parts[i + 1].at);
    return f;
}

static void free_neighbours(void)
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

static unsigned mapped_parts(const struct swn_frame *f)
{
    unsigned n = 0;
    for (unsigned i = 0; i < f->n; i++)
        n += f->parts[i].range && f->parts[i].mapped;
    return n;
}

/* Those that lie one behind the other take one mapping, and what lies between is not touched. */
static void several_parts(void **state)
{
    (void)state;
    for (int hole = 0; hole < 2; hole++) {
        make_neighbours(hole, 0);
        struct swn_frame *f = frame_of_neighbours();
        struct swn_range *written;
        uint64_t mappings = res.mappings, strays = res.fallback_pages;
        assert_int_equal(f->n, 4);
        swn_residency_publish(&res, &f, 1, &written);
        assert_null(written);
        assert_int_equal(mapped_parts(f), 4);
        assert_int_equal(res.mappings, mappings + 2);
        assert_int_equal(res.fallback_pages, strays);
        check_neighbours();
        for (unsigned i = 0; i < NEIGHBOURS; i++) {
            const struct swn_range *r = near[i].range;
            assert_true(!r || swn_residency_unmapped(&res, r) == (i == 2 ? swn_round_up(r->len, SWN_PAGE) : 0));
            assert_true(!r || (swn_residency_mapped(&res, r, r->addr) != NULL) == (i != 2));
        }
        swn_residency_publish(&res, &f, 1, &written); /* nothing is left to be mapped */
        assert_int_equal(res.mappings, mappings + 2);
        if (hole) { /* the next in the gap is nobody that the frame knows */
            near[2].range = new_range(near[2].len);
            assert_int_equal(near[2].range->place, 3 * SWN_GRANULE);
            memset(bytes_of(near[2].range), near[2].byte, near[2].len);
        }
        assert_null(swn_residency_unpublish(&res, &f, 1));
        assert_int_equal(mapped_parts(f), 0);
        reuse_frame(f);
        check_neighbours();
        for (unsigned i = 0; i < NEIGHBOURS; i++)
            assert_int_equal(state_of(near[i].range), i == 2 ? SWN_RESIDENT : SWN_FILE_BACKED);
        free_neighbours();
    }
}

/* A part that comes later, into a frame that is mapped already. */
static void one_part_more(void **state)
{
    (void)state;
    make_neighbours(0, 0);
    struct swn_frame *f = frame_of_neighbours();
    struct swn_range *written;
    swn_residency_publish(&res, &f, 1, &written);
    assert_int_equal(swn_residency_spill(&res, near[2].range), 0);
    fetch_into(f, near[2].range);
    assert_ptr_equal(f->parts[2].range, near[2].range);
    swn_residency_publish(&res, &f, 1, &written);
    assert_null(written);
    assert_int_equal(mapped_parts(f), 5);
    check_neighbours();
    uint64_t mappings = res.mappings;
    assert_null(swn_residency_unpublish(&res, &f, 1));
    assert_int_equal(res.mappings, mappings);
    reuse_frame(f);
    check_neighbours();
    free_neighbours();
}

static void write_to(unsigned i)
{
    near[i].byte += 50;
    memset(bytes_of(near[i].range), near[i].byte, near[i].len);
}

/* A range in the frame that was written to is not mapped, nor are those behind it in the same stretch, until it has
 * become resident. */
static void written_before_it_is_mapped(void **state)
{
    (void)state;
    for (unsigned which = 1; which < 1u << NEIGHBOURS; which++) {
        if (which & 4) /* that one is resident */
            continue;
        make_neighbours(0, 0);
        struct swn_frame *f = frame_of_neighbours();
        struct swn_range *written;
        uint64_t recalls = res.recalls;
        unsigned n = 0;
        for (unsigned i = 0; i < NEIGHBOURS; i++)
            if (which >> i & 1) {
                write_to(i);
                n++;
            }
        swn_residency_publish(&res, &f, 1, &written);
        assert_true(res.recalls > recalls);
        check_neighbours();
        for (unsigned i = 0; i < NEIGHBOURS; i++)
            if (i != 2) {
                struct swn_part *p = swn_pool_part_of(f, near[i].range);
                unsigned first = i < 2 ? 0 : 3, before = ((1u << (i + 1)) - 1) >> first << first;
                assert_int_equal(p->mapped, !(which & before));
                assert_int_equal(state_of(near[i].range), SWN_FILE_BACKED);
            }
        /* They become resident, one by one, until there is none. */
        for (unsigned tries = 0; written; tries++) {
            assert_true(tries <= n);
            assert_int_equal(swn_residency_make_resident(&res, written, NULL), 0);
            swn_residency_publish(&res, &f, 1, &written);
        }
        assert_int_equal(mapped_parts(f), 4 - n);
        for (unsigned i = 0; i < NEIGHBOURS; i++)
            assert_int_equal(state_of(near[i].range), i == 2 || which >> i & 1 ? SWN_RESIDENT : SWN_FILE_BACKED);
        assert_null(swn_residency_unpublish(&res, &f, 1));
        reuse_frame(f);
        check_neighbours();
        free_neighbours();
    }
}

static void written_while_it_is_mapped(void **state)
{
    (void)state;
    for (unsigned which = 1; which < 1u << NEIGHBOURS; which++) {
        if (which & 4)
            continue;
        make_neighbours(0, 0);
        struct swn_frame *f = frame_of_neighbours();
        struct swn_range *written;
        swn_residency_publish(&res, &f, 1, &written);
        for (unsigned i = 0; i < NEIGHBOURS; i++)
            if (which >> i & 1)
                write_to(i);
        uint64_t recalls = res.recalls;
        unsigned came = 0;
        while ((written = swn_residency_unpublish(&res, &f, 1))) {
            check_neighbours();
            unsigned i = 0;
            while (i < NEIGHBOURS && near[i].range != written)
                i++;
            assert_true(i < NEIGHBOURS && which >> i & 1 && !(came >> i & 1));
            came |= 1u << i;
            assert_int_equal(swn_residency_make_resident(&res, written, NULL), 0);
        }
        assert_int_equal(came, which);
        assert_true(res.recalls > recalls);
        reuse_frame(f);
        check_neighbours();
        for (unsigned i = 0; i < NEIGHBOURS; i++)
            assert_int_equal(state_of(near[i].range), i == 2 || which >> i & 1 ? SWN_RESIDENT : SWN_FILE_BACKED);
        free_neighbours();
    }
}

#define RUN 4

/* In the chunk of the last frame another range begins, whose extent lies elsewhere. Of the four frames some follow one
 * another in the memfd. */
static void make_run(struct swn_range **r, struct swn_range **next, struct swn_frame **run)
{
    struct swn_frame *between = NULL;
    *r = new_range(RUN * unit - SWN_GRANULE - 3 * SWN_PAGE + 7);
    *next = new_range(SWN_GRANULE);
    memset(bytes_of(*next), 99, SWN_GRANULE);
    for (size_t i = 0; i < (*r)->len; i++)
        bytes_of(*r)[i] = (unsigned char)(i / SWN_PAGE + i / unit);
    assert_int_equal(swn_residency_spill(&res, *next), 0);
    assert_int_equal(swn_residency_spill(&res, *r), 0);
    struct swn_chunks all = swn_residency_chunks(&res, *r);
    assert_int_equal(all.end - all.first, RUN);
    assert_int_equal(swn_residency_chunks(&res, *next).first, all.end - 1);
    for (unsigned i = 0; i < RUN; i++) {
        run[i] = frame_for(*r, all.first + i);
        fetch_into(run[i], *r);
        if (i == 1)
            between = frame_for(*next, all.end + 8);
    }
    fetch_into(run[RUN - 1], *next);
    swn_pool_put(pool, between);
}

/* Frames of neighbouring chunks come and go in one go: whoever was written to in any of them, before or while they are
 * mapped, becomes resident, and nobody else does. */
static void several_frames(void **state)
{
    (void)state;
    for (unsigned i = 0; i < 2 * 2 * RUN; i++) {
        struct swn_range *r, *next, *written;
        struct swn_frame *run[RUN];
        make_run(&r, &next, run);
        unsigned char *where = bytes_of(r) + (size_t)(i / 2) * unit / 2 + 5;
        int late = i % 2, any = where < bytes_of(r) + r->len;
        if (any && !late)
            *where = 0xEE;
        swn_residency_publish(&res, run, RUN, &written);
        assert_ptr_equal(written, any && !late ? r : NULL);
        if (any && late)
            *where = 0xEE;
        while ((written = swn_residency_unpublish(&res, run, RUN))) {
            assert_ptr_equal(written, r);
            assert_int_equal(swn_residency_make_resident(&res, r, NULL), 0);
        }
        assert_int_equal(swn_residency_unmapped(&res, next), SWN_GRANULE);
        for (unsigned k = 0; k < RUN; k++)
            reuse_frame(run[k]);
        for (size_t at = 0; at < r->len; at += 64)
            assert_int_equal(bytes_of(r)[at], (unsigned char)(at / SWN_PAGE + at / unit));
        assert_true(!any || *where == 0xEE);
        if (!any || late) /* else it became resident before it was mapped, if at all */
            assert_int_equal(state_of(r), any ? SWN_RESIDENT : SWN_FILE_BACKED);
        assert_int_equal(bytes_of(next)[SWN_GRANULE - 1], 99);
        swn_residency_free(&res, r, 0);
        swn_residency_free(&res, next, 0);
        swn_residency_tidy(&res);
        assert_int_equal(spill->live_bytes, 0);
    }
}

/* One whose bytes have not come, or did not come at all, keeps the mapping of its extent. */
static void not_all_there(void **state)
{
    (void)state;
    make_neighbours(1, 0);
    struct swn_frame *f = frame_of_neighbours();
    struct swn_range *written;
    swn_pool_part_of(f, near[1].range)->there = 0;
    swn_residency_publish(&res, &f, 1, &written);
    assert_true(!written && mapped_parts(f) == 3);
    memset((char *)swn_pool_at(pool, f) + swn_pool_part_of(f, near[1].range)->at, 0xEE, SWN_GRANULE);
    check_neighbours();
    assert_null(swn_residency_unpublish(&res, &f, 1));
    reuse_frame(f);
    check_neighbours();
    free_neighbours();
}

/* What two frames have of a range is forgotten in both when it becomes resident or is freed, and what else they have
 * stays.
 */
static void in_two_frames(void **state)
{
    (void)state;
    for (int how = 0; how < 4; how++) {
        struct swn_range *before = new_range(SWN_GRANULE), *r = new_range(6 * SWN_GRANULE - 5), *after = new_range(LEN);
        struct swn_range *all[] = {before, r, after}, *written;
        for (unsigned i = 0; i < 3; i++) {
            memset(bytes_of(all[i]), (int)i + 1, all[i]->len);
            assert_int_equal(swn_residency_spill(&res, all[i]), 0);
        }
        struct swn_chunks chunks = swn_residency_chunks(&res, r);
        assert_int_equal(chunks.end - chunks.first, 2);
        for (uint64_t c = chunks.first; c < chunks.end; c++) {
            struct swn_frame *f = frame_for(r, c);
            for (unsigned i = 0; i < 3; i++)
                if (all[i]->place < (c + 1) * unit && all[i]->place + all[i]->span > c * unit)
                    fetch_into(f, all[i]);
            swn_residency_publish(&res, &f, 1, &written);
            assert_null(written);
            assert_int_equal(mapped_parts(f), 2);
        }
        assert_int_equal(swn_residency_unmapped(&res, r), 0);
        if (how < 2)
            assert_int_equal(swn_residency_make_resident(&res, r, how ? new_pages(r) : NULL), 0);
        else if (how == 2)
            swn_residency_forget(&res, r);
        else
            swn_residency_free(&res, r, 1);
        for (uint64_t c = chunks.first; c < chunks.end; c++) {
            struct swn_frame *f = frame_of(c);
            assert_true(mapped_parts(f) == 1 && !swn_pool_part_of(f, r));
            if (how == 2)
                continue;
            assert_null(swn_residency_unpublish(&res, &f, 1));
            reuse_frame(f);
        }
        for (unsigned i = 0; i < 3; i++)
            for (size_t at = 0; (how < 3 || i != 1) && at < all[i]->len; at += 64)
                assert_int_equal(bytes_of(all[i])[at], i == 1 && how == 1 ? 0x77 : i + 1);
        for (unsigned i = 0; i < 3; i++)
            if (how < 3 || i != 1)
                swn_residency_free(&res, all[i], 0);
        reuse(NULL);
        swn_residency_tidy(&res);
        assert_true(res.resident_bytes == 0 && spill->live_bytes == 0 && !swn_pool_first(pool));
    }
}

/* Frames are holes in a child until it maps the extents into them; what was resident or gone is as it was. */
static void several_parts_forked(void **state)
{
    (void)state;
#ifdef __SANITIZE_THREAD__ /* as above */
    skip();
#endif
    for (int hole = 0; hole < 2; hole++) {
        make_neighbours(hole, 0);
        struct swn_frame *f = frame_of_neighbours();
        struct swn_range *written;
        swn_residency_publish(&res, &f, 1, &written);
        res.fork_epoch++;
        pid_t pid = fork();
        assert_true(pid >= 0);
        if (!pid) {
            swn_residency_child(&res);
            for (unsigned i = 0; i < NEIGHBOURS; i++)
                for (size_t at = 0; near[i].range && at < near[i].len; at += 64)
                    if (bytes_of(near[i].range)[at] != near[i].byte)
                        _exit(1);
            for (unsigned i = 0; i < NEIGHBOURS; i++)
                if (near[i].range) {
                    memset(bytes_of(near[i].range), 7, near[i].len);
                    if (swn_residency_make_resident(&res, near[i].range, 0) ||
                        bytes_of(near[i].range)[near[i].len - 1] != 7)
                        _exit(2);
                    swn_residency_free(&res, near[i].range, 0);
                }
            swn_residency_tidy(&res);
            _exit(res.resident_bytes != 0);
        }
        int status = 0;
        assert_int_equal(waitpid(pid, &status, 0), pid);
        assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 0);
        check_neighbours();
        assert_null(swn_residency_unpublish(&res, &f, 1));
        reuse_frame(f);
        check_neighbours();
        for (unsigned i = 0; i < NEIGHBOURS; i++)
            if (near[i].range)
                swn_residency_free(&res, near[i].range, 0);
        swn_residency_tidy(&res);
        spill->live_bytes = 0; /* what the child still had */
    }
}

/* Pages read through the mapping of an extent go, those of frames stay, and are not asked whether they were written. */
static void remaps_around_frames(void **state)
{
    (void)state;
    enum { COUNT = 6 };
    struct swn_range *r = new_range(COUNT * SWN_GRANULE - 300);
    unsigned char *bytes = bytes_of(r);
    for (unsigned mask = 0; mask < 1u << COUNT; mask += 1 + (unsigned)rnd_below(3)) {
        for (unsigned i = 0; i < COUNT; i++)
            memset(bytes + i * SWN_GRANULE, (int)(i + mask),
                   r->len - i * SWN_GRANULE < SWN_GRANULE ? r->len - i * SWN_GRANULE : SWN_GRANULE);
        assert_int_equal(swn_residency_spill(&res, r), 0);
        fetch(r, mask);
        assert_null(publish(r));
        unsigned streamed = 0;
        for (unsigned i = 0; i < COUNT; i++) {
            assert_int_equal(bytes[i * SWN_GRANULE], (unsigned char)(i + mask));
            assert_int_equal(swn_residency_mapped(&res, r, r->addr + i * SWN_GRANULE) != NULL, mask >> i & 1);
            streamed += !(mask >> i & 1);
        }
        uint64_t strays = res.fallback_pages;
        assert_int_equal(swn_residency_remap(&res, r), 0);
        assert_true(res.fallback_pages >= strays + streamed);
        assert_true(scan(r).mapped <= swn_round_up(r->len, SWN_PAGE) / SWN_PAGE - streamed);
        for (unsigned i = 0; i < COUNT; i++) {
            assert_int_equal(bytes[i * SWN_GRANULE + 9], (unsigned char)(i + mask));
            assert_int_equal(swn_residency_mapped(&res, r, r->addr + i * SWN_GRANULE) != NULL, mask >> i & 1);
        }
        unsigned i = (unsigned)rnd_below(COUNT);
        bytes[i * SWN_GRANULE + 5] = 0xCC;
        assert_int_equal(swn_residency_remap(&res, r), mask >> i & 1 ? 0 : -EBUSY);
        assert_int_equal(bytes[i * SWN_GRANULE + 5], 0xCC);
        assert_int_equal(swn_residency_make_resident(&res, r, 0), 0);
        reuse(r);
        assert_null(swn_pool_first(pool));
        assert_int_equal(bytes[i * SWN_GRANULE + 5], 0xCC);
        for (unsigned k = 0; k < COUNT; k++)
            assert_int_equal(bytes[k * SWN_GRANULE + 9], (unsigned char)(k + mask));
    }
    swn_residency_free(&res, r, 0);
}

static void counts_pages(void **state)
{
    (void)state;
    size_t len = 700 * SWN_PAGE; /* more than one read of the page map */
    struct swn_range *r = new_range(len);
    assert_int_equal(scan(r).private_pages, 0);
    for (size_t i = 0; i < 700; i += 7)
        bytes_of(r)[i * SWN_PAGE] = 1;
    /* Huge pages may bring neighbours along, never fewer than were written. */
    assert_true(scan(r).private_pages >= 100);
    assert_int_equal(scan(r).mapped, 0);
    memset(bytes_of(r), 3, len);
    assert_int_equal(scan(r).private_pages, 700);
    assert_int_equal(swn_residency_spill(&res, r), 0);
    assert_int_equal(scan(r).private_pages + scan(r).mapped, 0);
    volatile unsigned char *bytes = bytes_of(r);
    assert_int_equal(bytes[699 * SWN_PAGE], 3);
    assert_true(scan(r).mapped >= 1);
    bytes[600 * SWN_PAGE] = 4;
    assert_int_equal(scan(r).private_pages, 1);
    bytes[600 * SWN_PAGE + 1] = 4;
    bytes[0] = 4;
    assert_int_equal(scan(r).private_pages, 2);
    swn_residency_free(&res, r, 0);
    r = new_range(len);
    memset(bytes_of(r), 3, len);
    assert_int_equal(swn_residency_spill(&res, r), 0);
    assert_int_equal(bytes_of(r)[0], 3);
    uint64_t fallback = res.fallback_pages;
    assert_int_equal(swn_residency_remap(&res, r), 0);
    assert_true(res.fallback_pages > fallback);
    swn_residency_free(&res, r, 0);
}

static void refuses(void **state)
{
    (void)state;
    struct swn_range *r = make(RESIDENT, 0);
    r->pins = 1;
    assert_int_equal(swn_residency_spill(&res, r), -EBUSY);
    check(r, SWN_RESIDENT);
    assert_int_equal(spill->written_bytes, 0);
    r->pins = 0;
    res.spill = NULL;
    assert_int_equal(swn_residency_spill(&res, r), -EBUSY);
    res.spill = spill;
    int fd = res.pagemap_fd;
    res.pagemap_fd = -1;
    assert_int_equal(swn_residency_spill(&res, r), -EBUSY);
    res.pagemap_fd = fd;
    check(r, SWN_RESIDENT);
    assert_int_equal(swn_residency_spill(&res, r), 0);

    /* Pages that cannot be looked at may have been written to. */
    fetch(r, 3);
    res.pagemap_fd = -1;
    assert_ptr_equal(publish(r), r);
    assert_int_equal(mapped_bytes(r), 0);
    assert_int_equal(swn_residency_remap(&res, r), -EBADF);
    check(r, SWN_FILE_BACKED);
    res.pagemap_fd = fd;
    assert_null(publish(r));
    res.pagemap_fd = -1;
    assert_ptr_equal(unpublish(r), r);
    assert_int_equal(mapped_bytes(r), SIZE);
    res.pagemap_fd = fd;
    check(r, SWN_FILE_BACKED);
    assert_null(unpublish(r));
    put(r, 0, 1);
    check(r, SWN_FILE_BACKED);
    reuse(r);
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
                    bad_write.calls = bad_map.calls = 0;
                    struct swn_range *r = make(RESIDENT, 0);
                    *(map ? &bad_map.from : &bad_write.from) = nth;
                    *(map ? &bad_map.to : &bad_write.to) = forever ? 1 << 30 : nth + 1;
                    *(map ? &bad_map.err : &bad_write.err) = errors[e];
                    int failed = 0;
                    for (int round = 0; round < 5; round++) {
                        uint64_t recalls = res.recalls;
                        int err = swn_residency_spill(&res, r);
                        check(r, err ? SWN_RESIDENT : SWN_FILE_BACKED);
                        assert_true(!err || err == errors[e]);
                        assert_int_equal(res.recalls, recalls);
                        failed += err != 0;
                        if (!err && round % 2) { /* frames cannot go while the extent cannot be mapped */
                            fetch(r, 3);
                            assert_null(publish(r));
                            struct swn_range *stuck = unpublish(r);
                            assert_true(!stuck || stuck == r);
                            assert_int_equal(mapped_bytes(r) > 0, stuck != NULL);
                            failed += stuck != NULL;
                            check(r, SWN_FILE_BACKED);
                        } else if (!err) {
                            err = swn_residency_remap(&res, r);
                            assert_true(!err || err == errors[e]);
                            failed += err != 0;
                            check(r, SWN_FILE_BACKED);
                        }
                        put(r, (size_t)round * SWN_PAGE, (unsigned char)rnd());
                        assert_int_equal(swn_residency_make_resident(&res, r, 0), 0);
                        reuse(r);
                        assert_null(swn_pool_first(pool));
                        check(r, SWN_RESIDENT);
                    }
                    /* One EIO is repeated, all others show. */
                    assert_int_equal(failed > 0, map || forever || errors[e] != -EIO);
                    assert_true(forever || failed <= 1);
                    memset(&bad_write, 0, sizeof bad_write);
                    memset(&bad_map, 0, sizeof bad_map);
                    swn_residency_free(&res, r, 0);
                    assert_int_equal(res.resident_bytes, 0);
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
        /* Bursts, so that a pending_write succeeds now and then. */
        if (n % 4096 == 0 && (x >> 60) < 8)
            usleep((useconds_t)(x >> 40) % 1500);
    }
    atomic_store(&writer.stores, n);
    return NULL;
}

static struct sigaction before; /* cmocka has one, too */

static void catch_faults(void)
{
    struct sigaction act = {.sa_sigaction = on_segv, .sa_flags = SA_SIGINFO};
    assert_int_equal(sigaction(SIGSEGV, &act, &before), 0);
}

static void no_store_is_lost(void **state)
{
    (void)state;
    struct swn_range *r = make(RESIDENT, 0);
    uint64_t done[4] = {0}, refused[4] = {0};
    memset(bytes_of(r), 0, SIZE);
    memset(&writer, 0, sizeof writer);
    writer.range = r;
    catch_faults();
    pthread_t thread;
    assert_int_equal(pthread_create(&thread, NULL, write_counters, NULL), 0);
    for (int i = 0; i < 2000; i++) {
        int err = swn_residency_spill(&res, r);
        (err ? refused : done)[0]++;
        assert_int_equal(err ? -err : EBUSY, EBUSY);
        if (err)
            continue;
        for (int k = 0; k < 3; k++) {
            if (rnd() % 2) {
                fetch(r, 1 + (unsigned)rnd_below(3));
                struct swn_range *written = publish(r);
                assert_true(!written || written == r);
                (written ? refused : done)[1]++;
                reuse(r); /* and whatever could not be mapped */
            }
            if (rnd() % 3 == 0) {
                err = swn_residency_remap(&res, r);
                (err ? refused : done)[2]++;
                assert_int_equal(err ? -err : EBUSY, EBUSY);
            }
            if (rnd() % 2) {
                struct swn_range *written = unpublish(r);
                assert_true(!written || written == r);
                (written ? refused : done)[3]++;
                reuse(r);
            }
        }
        assert_int_equal(swn_residency_make_resident(&res, r, 0), 0);
        reuse(r);
        assert_null(swn_pool_first(pool));
    }
    atomic_store(&writer.stop, 1);
    pthread_join(thread, NULL);
    sigaction(SIGSEGV, &before, NULL);
    print_message("%llu stores; spilled %llu, refused %llu; published %llu, refused %llu; remapped %llu, refused %llu; "
                  "taken back %llu, refused %llu; %llu recalls\n",
                  (unsigned long long)writer.stores, (unsigned long long)done[0], (unsigned long long)refused[0],
                  (unsigned long long)done[1], (unsigned long long)refused[1], (unsigned long long)done[2],
                  (unsigned long long)refused[2], (unsigned long long)done[3], (unsigned long long)refused[3],
                  (unsigned long long)res.recalls);
    assert_int_equal(writer.lost, 0);
    for (size_t page = 0; page < PAGES; page++)
        assert_int_equal(*(uint64_t *)(r->addr + page * SWN_PAGE + 8 * page), writer.last[page]);
    assert_true(res.recalls > 0);
    assert_true(done[0] > 0 && done[1] > 0 && done[3] > 0);
    assert_int_equal(res.resident_bytes, r->size);
    swn_residency_free(&res, r, 0);
    assert_int_equal(spill->live_bytes, 0);
}

/* A store at one moment of a transition: another thread's, into each of the ranges in turn. */
static struct {
    unsigned char *at;
    _Atomic int go, began, done;
    unsigned countdown; /* mappings until then */
} intruder;

static void *intrude(void *arg)
{
    (void)arg;
    while (!atomic_load(&intruder.go))
        sched_yield();
    atomic_store(&intruder.began, 1);
    *(volatile unsigned char *)intruder.at = 0xCD;
    atomic_store(&intruder.done, 1);
    return NULL;
}

static void let_in(void)
{
    atomic_store(&intruder.go, 1);
    while (!atomic_load(&intruder.began))
        sched_yield();
    usleep(2000); /* it is in the handler now, if it is to wait */
}

static int intruded_mmap(void *ctx, void **addr, size_t len, int prot, int flags, int fd, uint64_t off)
{
    if (!intruder.countdown--) {
        let_in();
        assert_false(atomic_load(&intruder.done)); /* it waits for what comes next */
    }
    return swn_io_sys.mmap(ctx, addr, len, prot, flags, fd, off);
}

/* Between the last look and the new mapping of any part a store into any of them waits, and is not lost. */
static void stores_that_wait(void **state)
{
    (void)state;
    catch_faults();
    for (unsigned into = 0; into < NEIGHBOURS; into++)
        for (unsigned i = 0; i < 2 * 4; i++) {
            /* The first two leave together, then the last two, in one mapping, or in two if their extents lie apart;
             * whoever has left has new pages already. */
            unsigned apart = i / 4, when = i % 4, leaves = into < 2 ? into : into - 1;
            if (into == 2 || (apart ? leaves / 2 != when / 2 || leaves < when : leaves / 2 != when))
                continue;
            make_neighbours(0, (int)apart);
            struct swn_frame *f = frame_of_neighbours();
            struct swn_range *written;
            swn_residency_publish(&res, &f, 1, &written);
            memset(&intruder, 0, sizeof intruder);
            intruder.at = bytes_of(near[into].range) + 77;
            intruder.countdown = when;
            io.mmap = intruded_mmap;
            pthread_t thread;
            assert_int_equal(pthread_create(&thread, NULL, intrude, NULL), 0);
            assert_null(swn_residency_unpublish(&res, &f, 1));
            assert_int_equal(pthread_join(thread, NULL), 0);
            io.mmap = fault_mmap;
            reuse_frame(f);
            assert_int_equal(bytes_of(near[into].range)[77], 0xCD);
            assert_int_equal(scan(near[into].range).private_pages, 1);
            bytes_of(near[into].range)[77] = near[into].byte;
            check_neighbours();
            free_neighbours();
        }
    sigaction(SIGSEGV, &before, NULL);
}

/* A store between the first look and the last one sends its range back at once, and the thread that is at it sees. */
static void stores_that_recall(void **state)
{
    (void)state;
    catch_faults();
    struct swn_range *r = make(RESIDENT, 0);
    assert_int_equal(swn_residency_leave(&res, r), 0);
    assert_int_equal(state_of(r), SWN_EVICTING);
    memset(&intruder, 0, sizeof intruder);
    intruder.at = bytes_of(r) + 5;
    pthread_t thread;
    assert_int_equal(pthread_create(&thread, NULL, intrude, NULL), 0);
    atomic_store(&intruder.go, 1);
    assert_int_equal(pthread_join(thread, NULL), 0); /* it has not waited */
    shadow[5] = 0xCD;
    assert_int_equal(state_of(r), SWN_EVICT_ABORTED);
    assert_int_equal(swn_residency_left(&res, r, 0), -EBUSY);
    check(r, SWN_RESIDENT);
    swn_residency_free(&res, r, 0);
    sigaction(SIGSEGV, &before, NULL);
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
    struct swn_range *r = new_range(LEN);
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
        size_t home = res.resident_bytes;
        fail_next_map();
        assert_int_equal(swn_residency_register(&res, r, store, off), -ENOMEM);
        assert_int_equal(state_of(r), from_home ? SWN_RESIDENT : SWN_FILE_BACKED);
        assert_int_equal(res.resident_bytes, home);
        assert_int_equal(store->refs, 0);
        assert_true(bytes_of(r)[0] == 5 && bytes_of(r)[LEN - 1] == 5);
        r->pins = 1;
        assert_int_equal(swn_residency_register(&res, r, store, off), -EBUSY);
        r->pins = 0;
        assert_int_equal(swn_residency_register(&res, r, store, off), 0);
        assert_int_equal(state_of(r), SWN_FILE_BACKED);
        assert_int_equal(res.resident_bytes, 0);
        assert_int_equal(store->refs, 1);
        assert_int_equal(spill->refs, 0);
        assert_int_equal(spill->live_bytes, 0); /* what it had in the spill file is dropped */
        assert_memory_equal(bytes_of(r), shadow, LEN);
        bytes_of(r)[SWN_PAGE] = 1;
        assert_int_equal(scan(r).private_pages, 1);
        assert_int_equal(swn_residency_make_resident(&res, r, 0), 0);
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
    struct swn_range *r = new_range(LEN);
    fail_next_map();
    assert_int_equal(swn_residency_share(&res, r), -ENOMEM);
    assert_int_equal(state_of(r), SWN_RESIDENT);
    assert_int_equal(spill->live_bytes, 0);
    assert_int_equal(swn_residency_share(&res, r), 0);
    assert_true(r->shared);
    assert_int_equal(res.resident_bytes, 0);
    memset(bytes_of(r), 9, LEN);
    assert_int_equal(scan(r).private_pages, 0); /* stores go to the file */
    fail_next_map();
    assert_int_equal(swn_residency_unshare(&res, r), -ENOMEM);
    assert_true(r->shared && bytes_of(r)[LEN - 1] == 9);
    assert_int_equal(swn_residency_unshare(&res, r), 0);
    assert_false(r->shared);
    bytes_of(r)[3] = 4;
    assert_int_equal(scan(r).private_pages, 1);
    assert_int_equal(swn_residency_share(&res, r), -EBUSY); /* there is a private copy */
    assert_true(bytes_of(r)[3] == 4 && bytes_of(r)[4] == 9);
    assert_int_equal(swn_residency_make_resident(&res, r, 0), 0);
    assert_int_equal(swn_residency_spill(&res, r), 0);
    fail_next_map();
    assert_int_equal(swn_residency_share(&res, r), -ENOMEM);
    assert_int_equal(state_of(r), SWN_FILE_BACKED);
    assert_false(r->shared);
    assert_int_equal(swn_residency_share(&res, r), 0);
    bytes_of(r)[4] = 6;
    assert_int_equal(swn_residency_make_resident(&res, r, 0), 0);
    assert_true(bytes_of(r)[3] == 4 && bytes_of(r)[4] == 6 && bytes_of(r)[5] == 9);
    swn_residency_free(&res, r, 0);
    assert_int_equal(spill->live_bytes, 0);
}

/* What has left once goes to its own place again, however it came back. Not where a child may have that mapped. */
static void left_to_it(void **state)
{
    (void)state;
    struct swn_range *r[3];
    for (unsigned i = 0; i < 3; i++) {
        r[i] = new_range(SWN_GRANULE);
        memset(bytes_of(r[i]), 7, SWN_GRANULE);
        assert_int_equal(swn_residency_spill(&res, r[i]), 0);
    }
    uint64_t at[] = {r[0]->extent, r[1]->extent, r[2]->extent};
    for (int i = 0; i < 3; i++) {
        assert_int_equal(swn_residency_make_resident(&res, r[1], NULL), 0);
        assert_int_equal(swn_residency_make_resident(&res, r[2], i ? new_pages(r[2]) : NULL), 0);
        bytes_of(r[1])[0] = (unsigned char)i;
        assert_int_equal(swn_residency_spill(&res, r[2]), 0);
        assert_int_equal(swn_residency_spill(&res, r[1]), 0);
        for (unsigned k = 0; k < 3; k++)
            assert_int_equal(r[k]->extent, at[k]);
        assert_int_equal(bytes_of(r[1])[0], i);
        assert_int_equal(bytes_of(r[2])[1], i ? 0x77 : 7);
    }
    assert_int_equal(spill->live_bytes, 3 * SWN_GRANULE);
    assert_int_equal(spill->tail, 3 * SWN_GRANULE);

    assert_int_equal(swn_residency_make_resident(&res, r[1], 0), 0);
    res.fork_epoch++;
    assert_int_equal(swn_residency_spill(&res, r[1]), 0);
    assert_true(r[1]->extent >= 3 * SWN_GRANULE);
    for (unsigned i = 0; i < 3; i++)
        swn_residency_free(&res, r[i], 0);
}

/* Frames have bytes of what gives way to an extent of a checkpoint no more. */
static void registered_while_published(void **state)
{
    (void)state;
    struct swn_extent_file *store;
    assert_int_equal(swn_spill_open(&store, &io, dir), 0);
    store->immutable = 1;
    make_neighbours(0, 0);
    struct swn_frame *f = frame_of_neighbours();
    struct swn_range *written;
    swn_residency_publish(&res, &f, 1, &written);
    void *other = NULL;
    assert_int_equal(posix_memalign(&other, SWN_PAGE, SWN_GRANULE), 0);
    memset(other, 99, SWN_GRANULE);
    uint64_t off = swn_spill_lay_out(store, SWN_GRANULE);
    assert_int_equal(swn_spill_write(store, other, SWN_GRANULE, off), 0);
    free(other);
    assert_int_equal(swn_residency_register(&res, near[1].range, store, off), 0);
    near[1].byte = 99;
    assert_null(swn_pool_part_of(f, near[1].range));
    check_neighbours();
    assert_null(swn_residency_unpublish(&res, &f, 1));
    reuse_frame(f);
    check_neighbours();
    free_neighbours();
    swn_spill_close(store);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        {"every_state_and_operation (two chunks)", every_state_and_operation, setup, teardown, NULL},
        {"every_state_and_operation (one chunk)", every_state_and_operation, setup_wide, teardown, NULL},
        cmocka_unit_test_setup_teardown(several_parts, setup_huge, teardown),
        cmocka_unit_test_setup_teardown(one_part_more, setup_huge, teardown),
        cmocka_unit_test_setup_teardown(written_before_it_is_mapped, setup_huge, teardown),
        cmocka_unit_test_setup_teardown(written_while_it_is_mapped, setup_huge, teardown),
        cmocka_unit_test_setup_teardown(not_all_there, setup_huge, teardown),
        cmocka_unit_test_setup_teardown(several_parts_forked, setup_huge, teardown),
        cmocka_unit_test_setup_teardown(registered_while_published, setup_huge, teardown),
        cmocka_unit_test_setup_teardown(in_two_frames, setup_wide, teardown),
        cmocka_unit_test_setup_teardown(several_frames, setup_wide, teardown),
        cmocka_unit_test_setup_teardown(remaps_around_frames, setup, teardown),
        cmocka_unit_test_setup_teardown(counts_pages, setup, teardown),
        cmocka_unit_test_setup_teardown(refuses, setup, teardown),
        cmocka_unit_test_setup_teardown(failing_disk, setup, teardown),
        cmocka_unit_test_setup_teardown(registers, setup, teardown),
        cmocka_unit_test_setup_teardown(shares, setup, teardown),
        cmocka_unit_test_setup_teardown(left_to_it, setup, teardown),
#ifndef __SANITIZE_THREAD__
        cmocka_unit_test_setup_teardown(stores_that_wait, setup_huge, teardown),
        cmocka_unit_test_setup_teardown(stores_that_recall, setup, teardown),
        cmocka_unit_test_setup_teardown(no_store_is_lost, setup, teardown),
#endif
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
