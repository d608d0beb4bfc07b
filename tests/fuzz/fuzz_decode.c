/* fuzz_decode - any bytes as a stored chunk, decoded where it lies at the end of the memory that it is decoded into.
 *
 * The first two bytes say which encoding and of how many pages; the rest is the chunk. What decodes gives the same
 * bytes elsewhere, and encodes to the same again. As any bytes at all it is also a raw chunk: whatever can be encoded
 * decodes to that.
 */
#include <stdlib.h>
#include <string.h>

#include "blocks/store/codec.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void expect(int holds)
{
    if (!holds)
        abort();
}

static void decode(enum swn_encoding how, size_t bytes, const uint8_t *stored, size_t size)
{
    /* of just their sizes, so that a sanitizer sees the first byte too much */
    unsigned char *place = calloc(1, bytes), *other = malloc(bytes), *again = malloc(bytes);
    size_t needed = swn_encoded_bytes(how, bytes);
    expect(place && other && again && needed <= bytes);
    if (size > bytes)
        size = bytes;
    memcpy(place + bytes - size, stored, size);
    int rc = swn_decode_chunk(how, place + bytes - size, size, place, bytes);
    expect((rc == 0) == (needed != 0 && size == needed));
    if (rc == 0) {
        expect(swn_decode_chunk(how, stored, size, other, bytes) == 0 && !memcmp(place, other, bytes));
        size_t encoded = swn_encode_chunk(how, place, bytes, again);
        expect((encoded == size && !memcmp(again, stored, size)) || (how != SWN_STORED_RAW && needed == bytes));
    }
    free(place);
    free(other);
    free(again);
}

static void encode(enum swn_encoding how, size_t bytes, const uint8_t *given, size_t size)
{
    unsigned char *raw = calloc(1, bytes), *stored = malloc(bytes), *back = malloc(bytes);
    expect(raw && stored && back);
    memcpy(raw, given, size < bytes ? size : bytes);
    size_t encoded = swn_encode_chunk(how, raw, bytes, stored);
    if (encoded)
        expect(swn_decode_chunk(how, stored, encoded, back, bytes) == 0 && !memcmp(raw, back, bytes));
    free(raw);
    free(stored);
    free(back);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size < 2)
        return 0;
    enum swn_encoding how = (enum swn_encoding)(data[0] % (SWN_ENCODINGS + 1));
    size_t bytes = (size_t)(data[1] % 16 + 1) * 4096;
    decode(how, bytes, data + 2, size - 2);
    /* Also of the right size, whatever the input's. */
    size_t needed = swn_encoded_bytes(how, bytes);
    unsigned char *whole = calloc(1, needed + 1);
    expect(whole != NULL);
    memcpy(whole, data + 2, size - 2 < needed ? size - 2 : needed);
    decode(how, bytes, whole, needed);
    free(whole);
    if (how < SWN_ENCODINGS)
        encode(how, bytes, data + 2, size - 2);
    return 0;
}
