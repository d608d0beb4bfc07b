/* Compressed bodies are inflated as they arrive, never beyond the room that there is. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include <errno.h>
#include <zlib.h>

#include "scheduler/oip/oip_inflate.h"
#include "tests/unit/support/random.h"

#define BYTES 20000

static unsigned char plain[BYTES], packed[2 * BYTES], back[BYTES];

/* Text that shrinks, but not to nothing. */
static int fill(void **state)
{
    uint64_t seed = 4;

    (void)state;
    for (size_t i = 0; i < BYTES; i++)
        plain[i] = (unsigned char)(next_random(&seed) % 5 ? '1' : '0' + next_random(&seed) % 10);
    return 0;
}

/* Some bytes of it, behind what is packed already; returns the end. */
static size_t pack_part(size_t from, size_t bytes, int window_bits, size_t at)
{
    z_stream stream = {0};

    assert_int_equal(deflateInit2(&stream, 6, Z_DEFLATED, window_bits, 8, Z_DEFAULT_STRATEGY), Z_OK);
    stream.next_in = plain + from;
    stream.avail_in = (uInt)bytes;
    stream.next_out = packed + at;
    stream.avail_out = (uInt)(sizeof packed - at);
    assert_int_equal(deflate(&stream, Z_FINISH), Z_STREAM_END);
    assert_int_equal(deflateEnd(&stream), Z_OK);
    return sizeof packed - stream.avail_out;
}

static size_t pack(int window_bits)
{
    return pack_part(0, BYTES, window_bits, 0);
}

/* Inflates what is packed in pieces. `to` has just `room` bytes, so that a sanitizer sees one too much. */
static int unpack(enum swn_coding coding, size_t bytes, size_t piece, size_t room)
{
    struct swn_inflate *z = swn_inflate_new(coding);
    unsigned char *to = malloc(room ? room : 1);
    size_t used = 0;
    int rc = 0;

    assert_true(z && to);
    for (size_t at = 0; rc == 0 && at < bytes; at += piece) {
        size_t part = bytes - at < piece ? bytes - at : piece;
        unsigned char *from = malloc(part);
        assert_non_null(from);
        memcpy(from, packed + at, part);
        rc = swn_inflate_add(z, from, part, to, room, &used);
        free(from);
        assert_true(used <= room);
    }
    if (rc == 0)
        rc = swn_inflate_end(z);
    else
        assert_int_equal(swn_inflate_end(z), -EBADMSG);
    if (rc == 0) {
        assert_int_equal(used, BYTES);
        memcpy(back, to, used);
        assert_memory_equal(back, plain, BYTES);
    }
    free(to);
    swn_inflate_free(z);
    return rc;
}

static const struct {
    enum swn_coding coding;
    int window_bits;
} forms[] = {{SWN_CODING_GZIP, 31}, {SWN_CODING_DEFLATE, 15}, {SWN_CODING_DEFLATE, -15}};

static void test_all_forms_are_inflated_in_pieces_of_any_size(void **state)
{
    static const size_t pieces[] = {1, 2, 3, 7, 100, 4096, sizeof packed};

    (void)state;
    for (size_t f = 0; f < 3; f++) {
        size_t bytes = pack(forms[f].window_bits);
        for (size_t p = 0; p < sizeof pieces / sizeof *pieces; p++)
            assert_int_equal(unpack(forms[f].coding, bytes, pieces[p], BYTES), 0);
    }
}

static void test_what_does_not_fit_is_refused_at_once(void **state)
{
    (void)state;
    for (size_t f = 0; f < 3; f++) {
        size_t bytes = pack(forms[f].window_bits);
        for (size_t room = 0; room < BYTES; room += room < 10 || room > BYTES - 10 ? 1 : 997)
            assert_int_equal(unpack(forms[f].coding, bytes, 13, room), -EMSGSIZE);
        assert_int_equal(unpack(forms[f].coding, bytes, sizeof packed, BYTES - 1), -EMSGSIZE);
        assert_int_equal(unpack(forms[f].coding, bytes, sizeof packed, BYTES + 1), 0);
    }
}

/* A gigabyte of zeros in a megabyte: the first of them that has no room ends it. */
static void test_a_bomb_takes_no_more_than_its_room(void **state)
{
    z_stream stream = {0};
    struct swn_inflate *z = swn_inflate_new(SWN_CODING_GZIP);
    static unsigned char zeros[1 << 16], bomb[1 << 16], to[4096];
    size_t used = 0;

    (void)state;
    assert_int_equal(deflateInit2(&stream, 9, Z_DEFLATED, 31, 9, Z_DEFAULT_STRATEGY), Z_OK);
    stream.next_out = bomb;
    stream.avail_out = sizeof bomb;
    for (unsigned i = 0; i < 800; i++) {
        stream.next_in = zeros;
        stream.avail_in = sizeof zeros;
        assert_int_equal(deflate(&stream, Z_NO_FLUSH), Z_OK);
    }
    assert_true(stream.avail_out > 0);
    assert_int_equal(swn_inflate_add(z, bomb, sizeof bomb - stream.avail_out, to, sizeof to, &used), -EMSGSIZE);
    assert_int_equal(used, sizeof to);
    assert_int_equal(swn_inflate_add(z, bomb, 1, to, sizeof to, &used), -EBADMSG);
    deflateEnd(&stream);
    swn_inflate_free(z);
}

static void test_streams_that_end_early_or_go_on_are_refused(void **state)
{
    (void)state;
    for (size_t f = 0; f < 3; f++) {
        size_t bytes = pack(forms[f].window_bits);
        for (size_t length = 0; length < bytes; length += length < 20 || length > bytes - 20 ? 1 : 501)
            assert_int_equal(unpack(forms[f].coding, length, 64, BYTES), -EBADMSG);
        packed[bytes] = 0;
        assert_int_equal(unpack(forms[f].coding, bytes + 1, 64, BYTES), -EBADMSG);
        assert_int_equal(unpack(forms[f].coding, bytes + 1, sizeof packed, BYTES), -EBADMSG);
    }
}

/* As `cat a.gz b.gz` makes them. */
static void test_gzip_may_have_several_members(void **state)
{
    static const size_t cuts[] = {0, 1, BYTES / 3, BYTES - 1, BYTES}, pieces[] = {1, 7, 100, sizeof packed};

    (void)state;
    for (size_t c = 0; c < sizeof cuts / sizeof *cuts; c++) {
        size_t bytes = pack_part(cuts[c], BYTES - cuts[c], 31, pack_part(0, cuts[c], 31, 0));
        for (size_t p = 0; p < sizeof pieces / sizeof *pieces; p++) {
            assert_int_equal(unpack(SWN_CODING_GZIP, bytes, pieces[p], BYTES), 0);
            assert_int_equal(unpack(SWN_CODING_GZIP, bytes - 1, pieces[p], BYTES), -EBADMSG);
            packed[bytes] = 'x';
            assert_int_equal(unpack(SWN_CODING_GZIP, bytes + 1, pieces[p], BYTES), -EBADMSG);
        }
    }
}

static void test_damaged_streams_are_refused_or_whole(void **state)
{
    uint64_t seed = 8;

    (void)state;
    for (size_t f = 0; f < 2; f++)
        for (unsigned round = 0; round < rounds_of(300); round++) {
            size_t bytes = pack(forms[f].window_bits), at = 10 + next_random(&seed) % (bytes - 10);
            packed[at] ^= (unsigned char)(1u << next_random(&seed) % 8);
            unpack(forms[f].coding, bytes, 1000, BYTES); /* a bit that pads a byte may change: then all is there */
        }
}

static void test_parts_are_compressed_as_one_stream(void **state)
{
    (void)state;
    for (size_t f = 0; f < 2; f++) {
        struct swn_coding_part parts[] = {
            {plain, 10}, {plain + 10, 0}, {plain + 10, BYTES - 11}, {plain + BYTES - 1, 1}};
        size_t bytes = swn_deflate_parts(forms[f].coding, parts, 4, packed, BYTES);
        assert_true(bytes > 0 && bytes < BYTES);
        assert_int_equal(unpack(forms[f].coding, bytes, sizeof packed, BYTES), 0);
        /* in any room it fits or is left */
        for (size_t room = 0; room <= bytes + 1; room += room < 20 || room + 20 > bytes ? 1 : 333)
            assert_int_equal(swn_deflate_parts(forms[f].coding, parts, 4, back, room), room > bytes ? bytes : 0);
    }
    assert_int_equal(swn_deflate_parts(SWN_CODING_IDENTITY, NULL, 0, packed, BYTES), 0);
    assert_true(swn_deflate_parts(SWN_CODING_GZIP, NULL, 0, packed, BYTES) > 0);
}

static void test_codings_are_known_by_their_names(void **state)
{
    (void)state;
    assert_int_equal(swn_coding_named(NULL), SWN_CODING_IDENTITY);
    assert_int_equal(swn_coding_named(" GZip "), SWN_CODING_GZIP);
    assert_int_equal(swn_coding_named("deflate"), SWN_CODING_DEFLATE);
    assert_int_equal(swn_coding_named("br"), SWN_CODING_UNKNOWN);
    assert_int_equal(swn_coding_named("gzip, deflate"), SWN_CODING_UNKNOWN);
    assert_int_equal(swn_coding_accepted(NULL), SWN_CODING_IDENTITY);
    assert_int_equal(swn_coding_accepted("gzip, deflate, br"), SWN_CODING_GZIP);
    assert_int_equal(swn_coding_accepted("deflate, gzip"), SWN_CODING_GZIP);
    assert_int_equal(swn_coding_accepted("gzip;q=0.4, deflate;q=0.5"), SWN_CODING_DEFLATE);
    assert_int_equal(swn_coding_accepted("gzip;q=0, br"), SWN_CODING_IDENTITY);
    assert_int_equal(swn_coding_accepted("gzip;q=,;;,deflate;x"), SWN_CODING_IDENTITY);
    assert_int_equal(swn_coding_accepted(",,gzip ; q=1.000"), SWN_CODING_GZIP);
    assert_null(swn_inflate_new(SWN_CODING_IDENTITY));
    assert_string_equal(swn_coding_name(SWN_CODING_GZIP), "gzip");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_all_forms_are_inflated_in_pieces_of_any_size),
        cmocka_unit_test(test_what_does_not_fit_is_refused_at_once),
        cmocka_unit_test(test_a_bomb_takes_no_more_than_its_room),
        cmocka_unit_test(test_streams_that_end_early_or_go_on_are_refused),
        cmocka_unit_test(test_gzip_may_have_several_members),
        cmocka_unit_test(test_damaged_streams_are_refused_or_whole),
        cmocka_unit_test(test_parts_are_compressed_as_one_stream),
        cmocka_unit_test(test_codings_are_known_by_their_names),
    };
    return cmocka_run_group_tests(tests, fill, NULL);
}
