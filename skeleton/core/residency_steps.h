/* skeleton/core/residency_steps.h - the pool, and the steps of a weight: to its own pages, to its file, into and out of
 * frames.
 *
 * Engine lock held, unless it says otherwise.
 */
#ifndef SWN_SKELETON_CORE_RESIDENCY_STEPS_H
#define SWN_SKELETON_CORE_RESIDENCY_STEPS_H

#include "blocks/memory/publish.h"
#include "skeleton/engine/engine_internal.h"

int swn_open_pool(struct swn_engine *e);
/* Makes a spill file: in the store directory, or, where that is a cache that this user only reads, in the user's
 * default one. 0 or -errno. */
int swn_open_spill(struct swn_engine *e);
/* What a user can do about an error of swn_open_pool, to go behind its text. */
const char *swn_pool_advice(int err);
/* Whether the store directory keeps written bytes in memory, which is said once. Any lock may be held. */
int swn_look_at_store_disk(struct swn_engine *e);
/* Bytes that this process has written to spill files. */
uint64_t swn_spilled_so_far(const struct swn_engine *e);
/* pages: as for swn_residency_make_resident. */
int swn_make_resident(struct swn_engine *e, struct swn_range *r, void *pages);
/* Ends a shared mapping, if the range has one. Ends the program where the disk does not take the bytes: what has been
 * stored is lost, or will be. -errno: the mapping stays. */
int swn_unshare(struct swn_engine *e, struct swn_range *r);
int swn_spill_range(struct swn_engine *e, struct swn_range *r);
/* After a write to the spill file that failed: 1 if there is another file now, or room. */
int swn_spill_again(struct swn_engine *e, int err);
/* Updates the state after a spill of `size` bytes that ended with err. */
void swn_note_spill(struct swn_engine *e, size_t size, int err);
/* Frees the frames that have bytes of r only: r has other bytes now, or is gone. */
void swn_frames_forget(struct swn_engine *e, const struct swn_range *r);
/* Whether the frame still has bytes of any range. */
int swn_frame_is_alive(const struct swn_frame *f);
/* Evicts n frames of neighbouring chunks. */
void swn_frames_evict(struct swn_engine *e, struct swn_frame **frames, unsigned n);
/* Whether a frame can leave: no operator holds its chunk, and nothing is being read into it. */
int swn_frame_may_go(const struct swn_engine *e, const struct swn_frame *f);
/* Evicts such a frame. */
void swn_frame_evict(struct swn_engine *e, struct swn_frame *f);
/* Frees the frames of these chunks that no longer have bytes of any range. */
void swn_frames_drop_dead(struct swn_engine *e, const struct swn_chunks *chunks);
/* Cancels the reads into the frame that have not begun. 1: none is left. */
int swn_frame_cancel_reads(struct swn_engine *e, struct swn_frame *f);
/* Cancels one read ahead that has not begun, and frees its frame. 0: there is none. */
int swn_frame_cancel_one(struct swn_engine *e);

#endif
