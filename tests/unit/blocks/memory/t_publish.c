/* Description: frames at the addresses of several ranges: those that were written to are left out or come back, and
 * what the frames have of the others stays. */
#define _GNU_SOURCE
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include <stdlib.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/unit/support/residency_fixture.h"

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

/* Whether a child has something mapped at all addresses of r. */
static int is_in_child(const struct swn_range *r)
{
    unsigned char present[2 * SWN_GRANULE / SWN_PAGE];
    assert_true(r->span <= sizeof present * SWN_PAGE);
    pid_t pid = fork();
    assert_true(pid >= 0);
    if (!pid)
        _exit(mincore((void *)r->addr, r->span, present) ? 1 : 0);
    int status = 0;
    assert_int_equal(waitpid(pid, &status, 0), pid);
    return WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

/* A child does not get what frames are mapped to: addresses behind a range's last page, up to the next range's, are
 * there as well when the range is no more in the frame than its pages are. */
static void padding_is_no_hole(void **state)
{
    struct swn_extent_file *store;
    (void)state;
    assert_int_equal(swn_spill_open(&store, &io, dir), 0);
    store->immutable = 1;
    make_neighbours(0, 0);
    struct swn_frame *f = frame_of_neighbours();
    struct swn_range *written;
    swn_residency_publish(&res, &f, 1, &written);
    assert_int_equal(mapped_parts(f), 4);
    assert_int_equal(swn_residency_make_resident(&res, near[0].range, NULL), 0);
    struct swn_range *r = near[4].range;
    assert_int_equal(swn_residency_make_resident(&res, r, new_pages(r)), 0);
    near[4].byte = 0x77;
    check_neighbours();
    for (unsigned i = 0; i < NEIGHBOURS; i += 4)
        assert_true(is_in_child(near[i].range));
    /* The same where they come and go again, and one gets other bytes. */
    for (unsigned i = 0; i < NEIGHBOURS; i += 4) {
        assert_int_equal(swn_residency_spill(&res, near[i].range), 0);
        fetch_into(f, near[i].range);
    }
    swn_residency_publish(&res, &f, 1, &written);
    assert_int_equal(mapped_parts(f), 4);
    unsigned char other[SWN_PAGE];
    memset(other, 99, sizeof other);
    uint64_t off = swn_spill_lay_out(store, r->span);
    for (size_t at = 0; at < r->len; at += SWN_PAGE)
        assert_int_equal(swn_spill_write(store, other, SWN_PAGE, off + at), 0);
    assert_int_equal(swn_residency_register(&res, r, store, off), 0);
    near[4].byte = 99;
    check_neighbours();
    assert_true(is_in_child(r));
    assert_null(swn_residency_unpublish(&res, &f, 1));
    reuse_frame(f);
    check_neighbours();
    free_neighbours();
    swn_spill_close(store);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(several_parts, residency_begin_huge, residency_end),
        cmocka_unit_test_setup_teardown(one_part_more, residency_begin_huge, residency_end),
        cmocka_unit_test_setup_teardown(written_before_it_is_mapped, residency_begin_huge, residency_end),
        cmocka_unit_test_setup_teardown(written_while_it_is_mapped, residency_begin_huge, residency_end),
        cmocka_unit_test_setup_teardown(not_all_there, residency_begin_huge, residency_end),
        cmocka_unit_test_setup_teardown(several_parts_forked, residency_begin_huge, residency_end),
        cmocka_unit_test_setup_teardown(registered_while_published, residency_begin_huge, residency_end),
        cmocka_unit_test_setup_teardown(padding_is_no_hole, residency_begin_huge, residency_end),
        cmocka_unit_test_setup_teardown(in_two_frames, residency_begin_wide, residency_end),
        cmocka_unit_test_setup_teardown(several_frames, residency_begin_wide, residency_end),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
