/* skeleton/core/prefetch.h - reads chunks of weights into frames: chunks that an operator waits for, and chunks ahead
 * of it.
 *
 * Engine lock held, unless it says otherwise.
 */
#ifndef SWN_SKELETON_CORE_PREFETCH_H
#define SWN_SKELETON_CORE_PREFETCH_H

#include "blocks/memory/publish.h"
#include "skeleton/engine/engine_internal.h"

extern unsigned swn_prefetch_wait_ms; /* longest wait of an operator for a read, then its mapping serves */
/* Starts the reads of r's bytes in these chunks that are not in frames yet. Where there is no frame for a chunk, the
 * mapping serves. May release the lock. */
void swn_prefetch_claim(struct swn_engine *e, const struct swn_range *r, const struct swn_chunks *chunks,
                        struct swn_thread_state *t);
/* Waits until the reads into the frames of these chunks have ended. Releases the lock meanwhile. */
void swn_prefetch_await(struct swn_engine *e, const struct swn_chunks *chunks, struct swn_thread_state *t);
/* Fetches the weights that this thread will read next: those of the announced order, as far as frames that it needs
 * later go; behind it by the learned order, as far as the thread's share of the staging ring goes. */
void swn_prefetch_run(struct swn_engine *e, struct swn_thread_state *t);
/* An operator reads r: its frames have their next places in the announced order. */
void swn_prefetch_note_read(struct swn_engine *e, const struct swn_range *r);
/* There is another announced order. t: that will read in it; NULL: its state is not known yet. */
void swn_prefetch_announced(struct swn_engine *e, struct swn_thread_state *t);

#endif
