/* Description: a store has its narrow extents in half the bytes as well; all of it is refused when it is not as
 * written, and it does without where there is no room. */
#define _GNU_SOURCE
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>
#include <xxhash.h>

#include "blocks/store/format.h"
#include "tests/unit/support/store_fixture.h"

static const struct swn_store_opts narrow = {.buffer_bytes = 256 << 10, .copies = SWN_COPIES_NARROW};

/* Storages 2 (1 MiB) and 6 (70000 bytes) become bfloat16, 3 (1 MiB and 12 bytes: an odd number of pages) float16 but
 * for one word in the second chunk. The others stay what they were. */
static void make_narrow(void)
{
    /* 0, -0, 1, a third, the least and a large subnormal, infinity, a signalling NaN, the largest */
    static const uint32_t wide[] = {0,          0x80000000, 0x3f800000, 0x3eaaa000, 0x33800000,
                                    0xb87fc000, 0x7f800000, 0xff802000, 0x477fe000};
    for (int which = 0; which < 3; which++) {
        const struct swn_ckpt_storage *s = &swn_fix.model.storages[(int[]){2, 3, 6}[which]];
        for (uint64_t at = 0; at + 4 <= s->bytes; at += 4) {
            uint32_t word;
            memcpy(&word, swn_fix.model.bytes + s->off + at, 4);
            word = s->bytes == (1 << 20) + 12 ? wide[word % 9] : word & 0xffff0000;
            if (s->bytes == (1 << 20) + 12 && at == 70000)
                word = 0x3f800001;
            memcpy(swn_fix.model.bytes + s->off + at, &word, 4);
        }
    }
    assert_int_equal(pwrite(swn_fix.model.file.fd, swn_fix.model.bytes, swn_fix.model.size, 0),
                     (ssize_t)swn_fix.model.size);
    assert_int_equal(swn_identity_stat(&swn_io_sys, swn_fix.model.file.fd, &swn_fix.model.file.identity), 0);
    swn_fix.model.file.identity.directory = 4711;
}

static int setup(void **state)
{
    int rc = swn_store_setup(state);
    if (!rc)
        make_narrow();
    return rc;
}

static int setup_in_memory(void **state)
{
    int rc = swn_store_setup_in_memory(state);
    if (!rc)
        make_narrow();
    return rc;
}

/* The extents are unchanged, and this many copies are right. */
static void check(const struct swn_store *s, size_t copies)
{
    assert_int_equal(s->compressed_count, copies);
    for (size_t i = 0, k = 0; i < s->extent_count; i++) {
        assert_int_equal(swn_store_verify_extent(s, &swn_fix.fault.io, &s->extents[i], 65536), 0);
        if (!s->extents[i].compressed)
            continue;
        assert_ptr_equal(s->extents[i].compressed, &s->copies[k++]);
        assert_int_equal(swn_store_verify_compressed(s, &swn_fix.fault.io, &s->extents[i]), 0);
        assert_true(k <= copies);
    }
}

static const struct swn_store_extent *of_storage(const struct swn_store *s, int storage)
{
    return swn_store_find(s, 0, swn_fix.model.storages[storage].off, swn_fix.model.storages[storage].bytes);
}

static void halves(void **state)
{
    (void)state;
    for (int direct = 1; direct >= 0; direct--) {
        swn_fix.fault.no_direct = !direct;
        swn_store_make(&narrow);
        struct swn_store *s = swn_store_made();
        check(s, 3);
        const struct swn_store_extent *bf16 = of_storage(s, 2), *fp16 = of_storage(s, 3), *small = of_storage(s, 6);
        assert_int_equal(bf16->compressed->bytes, 512 << 10);
        assert_int_equal(bf16->compressed->chunks[3].encoding, SWN_STORED_BF16);
        /* 257 pages: 16 chunks, one of them raw, and a page. */
        assert_int_equal(fp16->compressed->chunk_count, 17);
        assert_int_equal(fp16->compressed->bytes, 15 * 32768 + 65536 + 4096);
        assert_int_equal(fp16->compressed->chunks[0].encoding, SWN_STORED_FP16);
        assert_int_equal(fp16->compressed->chunks[1].encoding, SWN_STORED_RAW);
        assert_int_equal(small->compressed->bytes, 32768 + 4096);
        assert_null(of_storage(s, 9)->compressed);
        swn_store_close(s, &swn_fix.fault.io);
    }
}

/* A store that nothing is narrow in, or that none were wanted of, is what it always was. */
static void none(void **state)
{
    (void)state;
    swn_store_make(NULL);
    struct swn_store *s = swn_store_made();
    uint64_t raw = s->total_bytes;
    check(s, 0);
    swn_store_close(s, &swn_fix.fault.io);
    for (int i = 2; i < 7; i++) /* one bit in each chunk */
        for (uint64_t at = 0; at < swn_fix.model.storages[i].bytes; at += SWN_CHUNK / 4)
            swn_fix.model.bytes[swn_fix.model.storages[i].off + at] |= 1;
    assert_int_equal(pwrite(swn_fix.model.file.fd, swn_fix.model.bytes, swn_fix.model.size, 0),
                     (ssize_t)swn_fix.model.size);
    assert_int_equal(swn_identity_stat(&swn_io_sys, swn_fix.model.file.fd, &swn_fix.model.file.identity), 0);
    swn_store_make(&narrow);
    s = swn_store_made();
    check(s, 0);
    assert_int_equal(s->total_bytes, raw);
    swn_store_close(s, &swn_fix.fault.io);
}

static void recut(void **state)
{
    (void)state;
    static const struct swn_store_opts raw = {0};
    for (int round = 0; round < 2; round++) {
        swn_store_make(round ? &narrow : &raw);
        struct swn_store *s = swn_store_made();
        assert_int_equal(swn_store_recut(s, &swn_fix.fault.io, swn_fix.path, round ? &raw : &narrow, swn_fix.why), 0);
        swn_store_close(s, &swn_fix.fault.io);
        s = swn_store_made();
        check(s, round ? 0 : 3);
        swn_store_close(s, &swn_fix.fault.io);
    }
}

static void limited(void **state)
{
    (void)state;
    struct swn_store_opts opts = narrow;
    opts.copies_most = 600 << 10; /* one and a bit */
    swn_store_make(&opts);
    struct swn_store *s = swn_store_made();
    check(s, 1);
    swn_store_close(s, &swn_fix.fault.io);
    opts.copies_most = 4096;
    swn_store_make(&opts);
    s = swn_store_made();
    check(s, 0);
    swn_store_close(s, &swn_fix.fault.io);
}

static uint64_t full_from;

static ssize_t write_to_full(void *ctx, int fd, const void *buf, size_t len, uint64_t off)
{
    return off + len > full_from ? -ENOSPC : swn_io_sys.pwrite(ctx, fd, buf, len, off);
}

static void disk_full(void **state)
{
    (void)state;
    swn_store_make(&narrow);
    struct swn_store *s = swn_store_made();
    uint64_t end = s->copies[0].off, total = s->total_bytes;
    swn_store_close(s, &swn_fix.fault.io);
    for (full_from = end; full_from < total; full_from += 128 << 10) {
        swn_fix.fault.io.pwrite = write_to_full;
        swn_store_make(&narrow);
        s = swn_store_made();
        check(s, s->compressed_count);
        assert_true(s->compressed_count < 3 && s->total_bytes <= full_from);
        swn_store_close(s, &swn_fix.fault.io);
    }
}

static void any_operation_fails(void **state)
{
    (void)state;
    swn_fix.fault.no_sync = 1;
    for (int for_ever = 0; for_ever < 2; for_ever++)
        for (long at = 1, fired = 1; fired; at++) {
            swn_fault_arm(&swn_fix.fault, at, for_ever, -EIO);
            int rc = swn_store_build(&swn_fix.model.c, &swn_fix.fault.io, swn_fix.path, &narrow, swn_fix.why);
            fired = swn_fix.fault.fired;
            swn_fault_arm(&swn_fix.fault, 0, 0, 0);
            if (rc == 0) {
                struct swn_store *s = swn_store_made();
                check(s, 3);
                swn_store_close(s, &swn_fix.fault.io);
            }
            swn_store_make(&narrow); /* takes away what was left */
            assert_int_equal(swn_fix.fault.open_files, 0);
        }
}

/* Every bit of the table of copies, and bits of the copies. */
static void flipped_bits(void **state)
{
    (void)state;
    struct swn_store *broken = NULL;
    struct stat st;
    swn_store_make(&narrow);
    struct swn_store *s = swn_store_made();
    int fd = open(swn_fix.path, O_RDWR | O_CLOEXEC);
    assert_true(fd >= 0 && fstat(fd, &st) == 0);
    const struct swn_compressed_extent *last = &s->copies[2];
    off_t table = (off_t)((last->off + last->bytes + 4095) / 4096 * 4096);
    for (off_t bit = table * 8; bit < (off_t)st.st_size * 8; bit += bit < (table + 800) * 8 ? 1 : 1021) {
        unsigned char byte, flipped;
        assert_int_equal(pread(fd, &byte, 1, bit / 8), 1);
        flipped = (unsigned char)(byte ^ 1 << bit % 8);
        assert_int_equal(pwrite(fd, &flipped, 1, bit / 8), 1);
        assert_true(swn_store_open(&broken, &swn_fix.fault.io, swn_fix.path, swn_fix.why) < 0);
        assert_int_equal(pwrite(fd, &byte, 1, bit / 8), 1);
    }
    for (size_t i = 0; i < s->extent_count; i++) {
        const struct swn_compressed_extent *c = s->extents[i].compressed;
        for (uint64_t at = 0; c && at < (c->bytes + 4095) / 4096 * 4096; at += 30011) {
            unsigned char byte, flipped;
            assert_int_equal(pread(fd, &byte, 1, (off_t)(c->off + at)), 1);
            flipped = byte ^ 16;
            assert_int_equal(pwrite(fd, &flipped, 1, (off_t)(c->off + at)), 1);
            assert_int_equal(swn_store_verify_compressed(s, &swn_fix.fault.io, &s->extents[i]), -EILSEQ);
            assert_int_equal(swn_store_verify_extent(s, &swn_fix.fault.io, &s->extents[i], 65536), 0);
            assert_int_equal(pwrite(fd, &byte, 1, (off_t)(c->off + at)), 1);
        }
    }
    close(fd);
    check(s, 3);
    swn_store_close(s, &swn_fix.fault.io);
}

/* Whoever wrote the checksums himself gets no further. */
static void lies_with_good_checksums(void **state)
{
    (void)state;
    struct swn_disk_header h, good;
    struct stat st;
    swn_store_make(&narrow);
    int fd = open(swn_fix.path, O_RDWR | O_CLOEXEC);
    assert_true(fd >= 0 && fstat(fd, &st) == 0);
    assert_int_equal(pread(fd, &good, sizeof good, 0), sizeof good);
    size_t bytes = (size_t)(good.total_bytes - good.copies_off);
    unsigned char *table = malloc(bytes), *lie = malloc(bytes);
    assert_non_null(table);
    assert_non_null(lie);
    assert_int_equal(pread(fd, table, bytes, (off_t)good.copies_off), (ssize_t)bytes);
    size_t used = good.copies * sizeof(struct swn_disk_copy) + good.chunks * sizeof(struct swn_disk_chunk);
    for (size_t word = 0; word < used / 4 + 8 + 5; word++)
        for (int how = 0; how < 3; how++) {
            uint32_t value, *of_header;
            h = good;
            memcpy(lie, table, bytes);
            int in_header = word >= used / 4 + 8;
            of_header = (uint32_t *)&(&h.data_end)[in_header ? word - used / 4 - 8 : 0];
            memcpy(&value, in_header ? (void *)of_header : lie + word * 4, 4);
            uint32_t changed = how == 0 ? value + 1 : how == 1 ? value - 1 : value ^ 0x80000000;
            memcpy(in_header ? (void *)of_header : lie + word * 4, &changed, 4);
            int checksum = word >= good.copies * 6 && (word - good.copies * 6) % 4 < 2 && word < used / 4;
            if (!in_header || word - used / 4 - 8 != 4)
                h.copies_checksum = XXH3_64bits(lie, bytes);
            h.checksum = XXH3_64bits(&h, offsetof(struct swn_disk_header, checksum));
            assert_int_equal(pwrite(fd, &h, sizeof h, 0), sizeof h);
            assert_int_equal(pwrite(fd, lie, bytes, (off_t)good.copies_off), (ssize_t)bytes);
            struct swn_store *s = NULL;
            int rc = swn_store_open(&s, &swn_fix.fault.io, swn_fix.path, swn_fix.why);
            if (checksum && rc == 0) /* of a chunk: nobody can know before it is read */
                swn_store_close(s, &swn_fix.fault.io);
            else if (rc == 0)
                /* bf16 and fp16 are of one size: the chunk's checksum will tell */
                swn_store_close(s, &swn_fix.fault.io),
                    assert_true(!in_header && word < used / 4 && (word - 18) % 4 == 3);
        }
    free(table);
    free(lie);
    close(fd);
}

#define TEST(name, in) cmocka_unit_test_setup_teardown(name, in, swn_store_teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(halves, setup),
        TEST(none, setup),
        TEST(recut, setup),
        TEST(limited, setup),
        TEST(disk_full, setup),
        TEST(any_operation_fails, setup_in_memory),
        TEST(flipped_bits, setup_in_memory),
        TEST(lies_with_good_checksums, setup_in_memory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
