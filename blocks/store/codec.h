/* blocks/store/codec.h - lossless compression of chunks of weights.
 *
 * A chunk is SWN_CHUNK bytes of an extent, the last one shorter, always whole pages. It is stored as it is, or narrow,
 * if bfloat16 or float16 can express every float32 word in it (sign of zero and payload of NaNs included), as in
 * checkpoints that were trained in those types and saved in float32. The bits decide, not the type of a tensor:
 * decoding always gives the original bytes.
 *
 * A weight is cut at multiples of SWN_CHUNK from its start, so that a piece of a weight is whole chunks.
 *
 * Pure functions of their arguments.
 */
#ifndef SWN_BLOCKS_STORE_CODEC_H
#define SWN_BLOCKS_STORE_CODEC_H

#include <stddef.h>
#include <stdint.h>

#define SWN_CHUNK ((size_t)65536)

/* Values on disk. */
enum swn_encoding {
    SWN_STORED_RAW,
    /* The upper halves of the words of all whole pairs of pages, then the last page of an odd number. */
    SWN_STORED_BF16,
    SWN_STORED_FP16, /* likewise, as float16 */
    SWN_ENCODINGS
};

/* The stored size of `bytes` of a chunk in this encoding; 0: no such encoding. */
size_t swn_encoded_bytes(enum swn_encoding how, size_t bytes);

/* Encodes a chunk (a multiple of 4096 bytes, at most SWN_CHUNK) into out, which has the same size. Returns the encoded
 * size, or 0: the chunk cannot be encoded in this way. */
size_t swn_encode_chunk(enum swn_encoding how, const void *raw, size_t bytes, void *out);

/* Decodes a chunk. `from` may overlap `to` if the stored bytes lie at the end of the memory that the chunk is decoded
 * into: from + stored >= to + bytes. 0, or -EILSEQ: not a result of swn_encode_chunk. */
int swn_decode_chunk(enum swn_encoding how, const void *from, size_t stored, void *to, size_t bytes);

#endif
