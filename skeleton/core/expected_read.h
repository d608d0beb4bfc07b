/* skeleton/core/expected_read.h - a tensor that is allocated to be read into next, which will be registered instead.
 *
 * The engine's lock is held.
 */
#ifndef SWN_SKELETON_CORE_EXPECTED_READ_H
#define SWN_SKELETON_CORE_EXPECTED_READ_H

#include <stddef.h>

struct swn_engine;
struct swn_range;

/* Whether the source is likely to have a read of `bytes` registered, soon after its extent number `after`. */
typedef int swn_expected_read_match(const void *source, size_t after, size_t bytes);

/* A read of extent `after` of the source was registered by this thread. */
void swn_expected_read_set(struct swn_engine *e, swn_expected_read_match *match, const void *source, size_t after);
/* Whether n bytes that this thread allocates are likely to be read by it next, which will be registered. */
int swn_expected_read_matches(const struct swn_engine *e, size_t n);
/* They were, and no room was made for r, of which `fresh` bytes came without pages. */
void swn_expected_read_allocated(struct swn_engine *e, struct swn_range *r, size_t fresh);
/* What that would have been, for as long as it is not known to be needed. */
size_t swn_expected_read_bytes(const struct swn_engine *e);
void swn_expected_read_freed(struct swn_engine *e, const struct swn_range *r);
/* Something else happens: if its bytes have not been registered, room is made for them. for_good: and nothing is
 * expected before the next read. */
void swn_expected_read_cancel(struct swn_engine *e, int for_good);

#endif
