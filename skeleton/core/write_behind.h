/* skeleton/core/write_behind.h - write-behind: ranges are written to the spill file while the program computes.
 *
 * A model that is built under a budget has its initial weights written out nearly as fast as it makes them; in turns,
 * both would take the sum of their times. So once the budget has been full, and until weights are read, ranges leave
 * some time before their room is needed. A range on its way out (swn_tensor_of(r)->pending_write) still counts as
 * resident, reads as ever, and is EVICTING; a store, or a caller that needs the range, takes it back.
 *
 * A thread of the library writes, and takes no lock but the queue's. Only these functions start and end the eviction of
 * such a range, and all of them need the engine lock.
 */
#ifndef SWN_SKELETON_CORE_WRITE_BEHIND_H
#define SWN_SKELETON_CORE_WRITE_BEHIND_H

#include "skeleton/engine/engine_internal.h"

/* r begins to leave. 0, or -errno: it stays. */
int swn_write_behind_start(struct swn_engine *e, struct swn_range *r);
/* Bytes that are being written and still count. */
size_t swn_write_behind_bytes(const struct swn_engine *e);
/* Evicts the ranges whose bytes are written. Cheap when there are none. */
void swn_write_behind_complete(struct swn_engine *e);
/* Waits until the next pending write is done, and completes it. 0: there is none. */
int swn_write_behind_wait(struct swn_engine *e);
/* r stays after all. Does not wait. */
void swn_write_behind_cancel(struct swn_engine *e, struct swn_range *r);
/* Waits for all pending writes, and completes them. */
void swn_write_behind_drain(struct swn_engine *e);
/* Whether its thread does anything with the file. */
int swn_write_behind_uses(const struct swn_engine *e, const struct swn_extent_file *file);
/* The file takes the place of the one before, as that is full or closed. */
void swn_write_behind_use(struct swn_engine *e, struct swn_extent_file *file);
/* In a forked child, after swn_write_behind_drain in the parent: there is no thread. */
void swn_write_behind_fork_child(struct swn_engine *e);

#endif
