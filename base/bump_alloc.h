/* base/bump_alloc.h - memory that is given back all at once, with a limit.
 *
 * A reader's description of a hostile file grows with what the file claims. The reader takes its memory from here, so
 * that one number bounds it. Not thread-safe. Zero-initialise with a limit: `struct swn_bump_alloc b = {.limit_bytes =
 * ...}`.
 */
#ifndef SWN_BASE_BUMP_ALLOC_H
#define SWN_BASE_BUMP_ALLOC_H

#include <stddef.h>
#include <stdint.h>

struct swn_bump_alloc_chunk;

struct swn_bump_alloc {
    size_t limit_bytes;                 /* of all chunks together */
    size_t used_bytes;                  /* taken so far; may also be charged from outside with swn_bump_alloc_charge */
    struct swn_bump_alloc_chunk *chunk; /* the newest one */
};

/* `bytes` bytes, zeroed, aligned to 8; valid until swn_bump_alloc_free. -ENOMEM: the system has none; -E2BIG: the
 * limit is reached. */
int swn_bump_alloc_take(struct swn_bump_alloc *b, size_t bytes, void **out);
/* A copy of text[0, len) with a 0 behind. Errors as above. */
int swn_bump_alloc_text(struct swn_bump_alloc *b, const char *text, size_t len, char **out);
/* Counts memory that was taken elsewhere towards the limit. 0 or -E2BIG. */
int swn_bump_alloc_charge(struct swn_bump_alloc *b, size_t bytes);
/* Gives everything back; the limit stays. */
void swn_bump_alloc_free(struct swn_bump_alloc *b);

#endif
