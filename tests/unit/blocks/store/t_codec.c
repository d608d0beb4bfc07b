/* Description: a chunk decodes to the bits that were encoded, also into the memory that it lies at the end of; what an
 * encoding cannot express is refused. */
#define _GNU_SOURCE
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include <errno.h>
#include <math.h>
#include <stdlib.h>

#include "blocks/store/codec.h"

static uint32_t raw[SWN_CHUNK / 4], back[SWN_CHUNK / 4];
static unsigned char packed[SWN_CHUNK];

/* The float32 of a float16, by arithmetic. */
static float value_of(uint16_t half)
{
    int exponent = half >> 10 & 31, mantissa = half & 1023;
    double value = exponent ? ldexp(1024 + mantissa, exponent - 25) : ldexp(mantissa, -24);
    return (float)(half & 0x8000 ? -value : value);
}

/* Encoded and decoded at every size of a chunk, at the memory's end and elsewhere. */
static void there_and_back(enum swn_encoding how)
{
    for (size_t bytes = 4096; bytes <= SWN_CHUNK; bytes += 4096) {
        size_t stored = swn_encode_chunk(how, raw, bytes, packed);
        if (how != SWN_STORED_RAW && bytes == 4096) {
            assert_int_equal(stored, 0); /* nothing to be gained */
            continue;
        }
        assert_int_equal(stored, swn_encoded_bytes(how, bytes));
        assert_int_equal(stored % 4096, 0);
        memset(back, 0xEE, sizeof back);
        assert_int_equal(swn_decode_chunk(how, packed, stored, back, bytes), 0);
        assert_memory_equal(back, raw, bytes);
        memcpy((char *)back + bytes - stored, packed, stored);
        assert_int_equal(swn_decode_chunk(how, (char *)back + bytes - stored, stored, back, bytes), 0);
        assert_memory_equal(back, raw, bytes);
        assert_int_equal(swn_decode_chunk(how, packed, stored - 1, back, bytes), -EILSEQ);
    }
}

/* All 65536 of each: zeros of both signs, subnormals, infinities, NaNs with all payloads. */
static void every_bfloat16(void **state)
{
    (void)state;
    for (uint32_t begin = 0; begin < 0x10000; begin += SWN_CHUNK / 4) {
        for (uint32_t i = 0; i < SWN_CHUNK / 4; i++)
            raw[i] = (begin + i) << 16;
        there_and_back(SWN_STORED_BF16);
    }
}

static void every_float16(void **state)
{
    (void)state;
    for (uint32_t begin = 0; begin < 0x10000; begin += SWN_CHUNK / 4) {
        for (uint32_t i = 0; i < SWN_CHUNK / 4; i++) {
            uint16_t half = (uint16_t)(begin + i);
            float value = value_of(half);
            memcpy(&raw[i], &value, sizeof value);
            if ((half & 0x7c00) == 0x7c00)
                raw[i] = (uint32_t)(half & 0x8000) << 16 | 0x7f800000 | (uint32_t)(half & 1023) << 13;
        }
        there_and_back(SWN_STORED_FP16);
    }
}

static void anything_raw(void **state)
{
    (void)state;
    for (size_t i = 0; i < SWN_CHUNK / 4; i++)
        raw[i] = (uint32_t)i * 2654435761u;
    there_and_back(SWN_STORED_RAW);
}

/* One word that is not of the kind, wherever it is. */
static void nearly_narrow(void **state)
{
    (void)state;
    static const uint32_t not_half[] = {0x00000001, 0x80000001, 0x3f800001, 0x3f801000, 0x47800000, 0x33000000,
                                        0x337fe000, 0x7f800001, 0x7f801000, 0x387fd000, 0x00800000, 0xc7ffe000};
    for (size_t i = 0; i < sizeof not_half / sizeof *not_half; i++)
        for (size_t at = 0; at < SWN_CHUNK / 4; at += SWN_CHUNK / 4 - 1) {
            memset(raw, 0, sizeof raw);
            raw[at] = not_half[i];
            assert_int_equal(swn_encode_chunk(SWN_STORED_FP16, raw, SWN_CHUNK, packed), 0);
            assert_int_equal(swn_encode_chunk(SWN_STORED_BF16, raw, SWN_CHUNK, packed) != 0, !(not_half[i] & 0xffff));
        }
    /* The last page of an odd number is stored as it is, whatever it holds. */
    memset(raw, 0, sizeof raw);
    raw[2 * 1024] = 0x12345678;
    assert_int_equal(swn_encode_chunk(SWN_STORED_BF16, raw, 3 * 4096, packed), 2 * 4096);
    assert_int_equal(swn_decode_chunk(SWN_STORED_BF16, packed, 2 * 4096, back, 3 * 4096), 0);
    assert_memory_equal(back, raw, 3 * 4096);
}

static void unknown(void **state)
{
    (void)state;
    assert_int_equal(swn_decode_chunk(SWN_ENCODINGS, packed, 4096, back, 4096), -EILSEQ);
    assert_int_equal(swn_encoded_bytes(SWN_ENCODINGS, 4096), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_bfloat16), cmocka_unit_test(every_float16), cmocka_unit_test(anything_raw),
        cmocka_unit_test(nearly_narrow),  cmocka_unit_test(unknown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
