/* skeleton/core/prefetch.h - chunks of weights come into frames: those that an operator waits for, and those ahead of
 * it.
 *
 * Engine lock held, unless it says otherwise.
 */
#ifndef SWN_SKELETON_CORE_PREFETCH_H
#define SWN_SKELETON_CORE_PREFETCH_H

#include "skeleton/core/engine_internal.h"

extern unsigned swn_prefetch_wait_ms; /* longest wait of an operator for a read, then its mapping serves */
/* Sees to it that r's bytes in these chunks are in frames, or come. Where there is no place for one, the mapping
 * serves. May release the lock. */
void swn_prefetch_claim(struct swn_engine *e, const struct swn_range *r, const struct swn_chunks *chunks,
                        struct swn_thread_state *t);
/* Waits until what is being read into the frames of these chunks is there. Releases the lock meanwhile. */
void swn_prefetch_await(struct swn_engine *e, const struct swn_chunks *chunks, struct swn_thread_state *t);
/* Fetches what the learned order says this thread will want next, as far as its share of the window goes. */
void swn_prefetch_run(struct swn_engine *e, struct swn_thread_state *t);

#endif
