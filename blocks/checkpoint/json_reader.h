/* blocks/checkpoint/json_reader.h - JSON from a part of a file, read piece by piece, never as a whole.
 *
 * The headers of safetensors files may have 100 MB. A tree of such a header would take many times that, so the caller
 * pulls the expected items, in order, through a window of fixed size. Strict: no comments, no trailing commas, valid
 * UTF-8, whole numbers only. After an error every further call fails with it; the text is written once. Not
 * thread-safe.
 */
#ifndef SWN_BLOCKS_CHECKPOINT_JSON_READER_H
#define SWN_BLOCKS_CHECKPOINT_JSON_READER_H

#include "blocks/checkpoint/builder.h"

#define SWN_JSON_WINDOW 65536
#define SWN_JSON_MAX_DEPTH 32

struct swn_json {
    const struct swn_ckpt_source *src;
    uint64_t begin, next, end; /* in the file: begin, next read, end */
    size_t at, have;           /* in the window */
    int err;
    char *why;
    unsigned char window[SWN_JSON_WINDOW];
};

void swn_json_begin(struct swn_json *j, const struct swn_ckpt_source *src, uint64_t off, uint64_t bytes, char *why);
/* -EINVAL, unless there was an error before; the text says where. */
int swn_json_fail(struct swn_json *j, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* The next byte that is not white space, which stays unread; -1 at the end or after an error. */
int swn_json_peek(struct swn_json *j);
/* Takes that byte, which must be `c`. */
int swn_json_take(struct swn_json *j, char c);
/* After an item of an array or object that ends with `close`: consumes a comma (returns 1) or the close (0). */
int swn_json_more(struct swn_json *j, char close);
/* Reads a text, with escapes resolved and a NUL behind, into out[0, room); *len excludes the NUL. A longer text is an
 * error. out NULL: only checks it. */
int swn_json_text(struct swn_json *j, char *out, size_t room, size_t *len);
/* A whole number from 0 to INT64_MAX. */
int swn_json_number(struct swn_json *j, uint64_t *out);
/* Skips any value, up to 32 deep. */
int swn_json_skip(struct swn_json *j);
/* Nothing but white space may follow. */
int swn_json_finish(struct swn_json *j);

#endif
