/* skeleton/tiling/slice.h - weights that their operators take slice by slice.
 *
 * Engine lock held, unless it says otherwise. What is declared in skeleton/abi/abi.h, too, is called without the lock.
 */
#ifndef SWN_SKELETON_TILING_SLICE_H
#define SWN_SKELETON_TILING_SLICE_H

#include "skeleton/engine/engine_internal.h"

size_t swn_slice_offer(struct swn_op *op, unsigned arg, const struct swn_row_geometry *rows);
int swn_slice_wanted(struct swn_op *op, unsigned arg, uint64_t shape);
size_t swn_slice_least(void);
/* The budget has changed. */
void swn_slice_set_least(struct swn_engine *e);
/* Sets whether r's operator takes it in slices, as the plan, or without one the ring, demands. */
void swn_slice_set(struct swn_engine *e, struct swn_range *r, int sliced);
size_t swn_slice_list(struct swn_op *op, unsigned arg, struct swn_slices *slices, size_t most);
size_t swn_slice_refused(struct swn_op *op, unsigned arg, uint64_t shape, size_t tried, int right);
const void *swn_slice_lend(struct swn_op *op, unsigned arg, size_t off, size_t bytes);
/* The operator of t needs the bytes from `off` on next, up to the end of arg's tensor. */
void swn_slice_next(struct swn_thread_state *t, const struct swn_arg *arg, size_t off);
/* The operator is done with a `sliced` argument. */
void swn_slice_end(struct swn_engine *e, struct swn_op *op, struct swn_arg *arg);
int swn_slice_copy_room(size_t bytes);

#endif
