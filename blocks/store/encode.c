/* blocks/store/encode.c - encodes chunks. See blocks/store/codec.h. */
#include <string.h>

#include "blocks/store/codec.h"
#include "base/file_io.h"

size_t swn_encoded_bytes(enum swn_encoding how, size_t bytes)
{
    size_t pairs = bytes / (2 * SWN_BLOCK) * SWN_BLOCK;
    return how == SWN_STORED_RAW ? bytes : how < SWN_ENCODINGS ? bytes - pairs : 0;
}

/* The upper half of each word; 1 when all lower halves are zero. The test comes at the end, as hardly any chunk fails
 * in its last word only. */
static int to_bf16(const uint32_t *words, size_t n, uint16_t *out)
{
    uint32_t lost = 0;
    for (size_t i = 0; i < n; i++) {
        lost |= words[i] & 0xffff;
        out[i] = (uint16_t)(words[i] >> 16);
    }
    return !lost;
}

/* The float16 with the value of a float32, by its bits, or -1: there is none. */
static int32_t half_of(uint32_t word)
{
    uint32_t sign = word >> 16 & 0x8000, magnitude = word & 0x7fffffff, exponent = magnitude >> 23;
    uint32_t mantissa = magnitude & 0x7fffff, half, lost;
    if (exponent == 255) { /* infinities and NaNs */
        half = 0x7c00 | mantissa >> 13;
        lost = mantissa & 0x1fff;
    } else if (exponent > 127 + 15) {
        return -1;
    } else if (exponent > 127 - 15) {
        half = (magnitude - ((uint32_t)(127 - 15) << 23)) >> 13;
        lost = mantissa & 0x1fff;
    } else if (exponent > 127 - 25) { /* float16's subnormals: multiples of 2^-24 */
        uint32_t shift = 13 + (127 - 14 - exponent), whole = mantissa | 0x800000;
        half = whole >> shift;
        lost = whole & ((UINT32_C(1) << shift) - 1);
    } else {
        half = 0;
        lost = magnitude;
    }
    return lost ? -1 : (int32_t)(sign | half);
}

static int to_fp16(const uint32_t *words, size_t n, uint16_t *out)
{
    for (size_t i = 0; i < n; i++) {
        int32_t half = half_of(words[i]);
        if (half < 0)
            return 0;
        out[i] = (uint16_t)half;
    }
    return 1;
}

size_t swn_encode_chunk(enum swn_encoding how, const void *raw, size_t bytes, void *out)
{
    size_t stored = swn_encoded_bytes(how, bytes), wide = 2 * (bytes - stored);
    if (how == SWN_STORED_RAW) {
        memcpy(out, raw, bytes);
        return bytes;
    }
    if (!wide || !(how == SWN_STORED_BF16 ? to_bf16(raw, wide / 4, out) : to_fp16(raw, wide / 4, out)))
        return 0;
    memcpy((char *)out + wide / 2, (const char *)raw + wide, bytes - wide);
    return stored;
}
