/* Description: whatever stands behind a range, its address reads right: every state and operation, failing mappings and
 * writes, and what is counted. */
#define _GNU_SOURCE
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include <errno.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "blocks/memory/transition.h"
#include "tests/unit/support/random.h"
#include "tests/unit/support/residency_fixture.h"

enum op { SPILL, MAKE_RESIDENT, REPLACE, PUBLISH, UNPUBLISH, REMAP, FREE_WARM, FREE_COLD, FORK, OPS };

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
    uint64_t live = spill->live_bytes, kept = spill->kept_bytes;
    assert_memory_equal(bytes_of(r), shadow, SIZE);
    if (rnd() % 2) {
        assert_null(unpublish(r));
        assert_memory_equal(bytes_of(r), shadow, SIZE);
    }
    assert_int_equal(swn_residency_make_resident(&res, r, rnd() % 2 ? new_pages(r) : NULL), 0);
    if (was == SWN_FILE_BACKED)
        assert_int_equal(spill->kept_bytes, kept + live); /* an extent of an earlier epoch is not punched out */
    reuse(r);
    for (size_t i = 0; i < SIZE; i++)
        put(r, i, 0xAA);
    assert_int_equal(swn_residency_spill(&res, r), 0);
    assert_memory_equal(bytes_of(r), shadow, SIZE);
    put(r, 0, 0xBB);
    assert_int_equal(swn_residency_make_resident(&res, r, 0), 0);
    assert_memory_equal(bytes_of(r), shadow, SIZE);
    assert_int_equal(spill->kept_bytes, kept + live); /* nor a resident range's place of then */
    assert_int_equal(spill->live_bytes, SIZE);        /* one of this epoch stays the range's */
    close(ends[1]);
    int status = -1;
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_true(WIFEXITED(status));
    assert_int_equal(WEXITSTATUS(status), 0);
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
    case MAKE_RESIDENT:
    case REPLACE:
        assert_int_equal(swn_residency_make_resident(&res, r, op == REPLACE ? new_pages(r) : NULL), 0);
        reuse(r);
        assert_null(swn_pool_first(pool));
        if (op == REPLACE && streamed)
            memset(shadow, 0x77, SIZE);
        check(r, SWN_RESIDENT);
        if (op == MAKE_RESIDENT)
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
    res.spill = NULL; /* also in a file that has been replaced */
    assert_int_equal(swn_residency_share(&res, r), 0);
    res.spill = spill;
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

int main(void)
{
    const struct CMUnitTest tests[] = {
        {"every_state_and_operation (two chunks)", every_state_and_operation, residency_begin, residency_end, NULL},
        {"every_state_and_operation (one chunk)", every_state_and_operation, residency_begin_wide, residency_end, NULL},
        cmocka_unit_test_setup_teardown(remaps_around_frames, residency_begin, residency_end),
        cmocka_unit_test_setup_teardown(counts_pages, residency_begin, residency_end),
        cmocka_unit_test_setup_teardown(refuses, residency_begin, residency_end),
        cmocka_unit_test_setup_teardown(failing_disk, residency_begin, residency_end),
        cmocka_unit_test_setup_teardown(registers, residency_begin, residency_end),
        cmocka_unit_test_setup_teardown(shares, residency_begin, residency_end),
        cmocka_unit_test_setup_teardown(left_to_it, residency_begin, residency_end),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
