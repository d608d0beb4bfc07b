/* skeleton/core/expected_read.h - a tensor that is allocated to be read into next, which will be registered instead.
 *
 * The engine's lock is held.
 */
#ifndef SWN_SKELETON_CORE_EXPECTED_READ_H
#define SWN_SKELETON_CORE_EXPECTED_READ_H

#include "skeleton/engine/engine_internal.h"

/* A read of extent `after` of the source was registered by this thread. */
void swn_expected_read_set(struct swn_engine *e, swn_expected_read_match *match, const void *source, size_t after);
/* Whether n bytes that this thread allocates are likely to be read by it next, which will be registered. */
int swn_expected_read_matches(const struct swn_engine *e, size_t n);
/* r was allocated for such a read, and no room was made for it; `fresh` bytes of it came without pages. */
void swn_expected_read_allocated(struct swn_engine *e, struct swn_range *r, size_t fresh);
void swn_expected_read_freed(struct swn_engine *e, const struct swn_range *r);
/* Something else happens instead: if the bytes of the expected tensor have not been registered, room is made for them.
 * for_good: no read is expected before the next one. */
void swn_expected_read_cancel(struct swn_engine *e, int for_good);

#endif
