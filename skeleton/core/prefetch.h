/* skeleton/core/prefetch.h - chunks of weights come into frames: those that an operator waits for, and those ahead of
 * it.
 *
 * Engine lock held, unless it says otherwise.
 */
#ifndef SWN_SKELETON_CORE_PREFETCH_H
#define SWN_SKELETON_CORE_PREFETCH_H

#include "skeleton/core/engine_internal.h"

extern unsigned swn_swapin_wait_ms; /* longest wait of an operator for a read, then its mapping serves */
/* Sees to it that r's bytes in these chunks are in frames, or come. Where there is no place for one, the mapping
 * serves. May release the lock. */
void swn_swapin_claim(struct swn_engine *e, const struct swn_range *r, const struct swn_chunks *chunks,
                      struct swn_thread_state *t);
/* Waits until what is being read into the frames of these chunks is there. Releases the lock meanwhile. */
void swn_swapin_await(struct swn_engine *e, const struct swn_chunks *chunks, struct swn_thread_state *t);
/* Whether a frame can go: no operator holds its chunk, and nothing is being read into it. */
int swn_swapin_may_go(const struct swn_engine *e, const struct swn_frame *f);
/* Lets such a frame go. */
void swn_swapin_evict(struct swn_engine *e, struct swn_frame *f);
/* Frees the frames of these chunks that have bytes of nobody any more. */
void swn_swapin_reap(struct swn_engine *e, const struct swn_chunks *chunks);
/* Takes back the reads into it that have not begun. 1: none is left. */
int swn_swapin_cancel(struct swn_engine *e, struct swn_frame *f);
/* Takes back one read ahead that has not begun, and its frame is free. 0: there is none. */
int swn_swapin_cancel_one(struct swn_engine *e);
/* Fetches what the learned order says this thread will want next, as far as its share of the window goes. */
void swn_swapin_ahead(struct swn_engine *e, struct swn_thread_state *t);

#endif
