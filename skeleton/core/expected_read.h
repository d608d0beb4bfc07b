/* skeleton/core/expected_read.h - a tensor that is allocated for a read which will be registered.
 *
 * The engine's lock is held.
 */
#ifndef SWN_SKELETON_CORE_EXPECTED_READ_H
#define SWN_SKELETON_CORE_EXPECTED_READ_H

#include "skeleton/engine/engine_internal.h"

/* A read of extent `after` of the source was registered by this thread. */
void swn_expected_read_set(struct swn_engine *e, swn_expected_read_match *match, const void *source, size_t after);
/* Whether n bytes that this thread allocates are likely to get such a read next. */
int swn_expected_read_matches(const struct swn_engine *e, size_t n);
/* r was allocated for such a read, and no room was made for it; `fresh` bytes of it have no pages yet. */
void swn_expected_read_allocated(struct swn_engine *e, struct swn_range *r, size_t fresh);
void swn_expected_read_freed(struct swn_engine *e, const struct swn_range *r);
/* No such read came: if the bytes of the expected tensor have not been registered, makes room for them. for_good: no
 * read is expected until the next call of swn_expected_read_set. */
void swn_expected_read_cancel(struct swn_engine *e, int for_good);

#endif
