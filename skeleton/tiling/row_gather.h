/* skeleton/tiling/row_gather.h - single rows of weights.
 *
 * Engine lock held, unless it says otherwise. swn_gather_rows is a runtime service (skeleton/abi/abi.h).
 */
#ifndef SWN_SKELETON_TILING_ROW_GATHER_H
#define SWN_SKELETON_TILING_ROW_GATHER_H

#include "skeleton/engine/engine_internal.h"

int swn_gather_rows(struct swn_op *op, unsigned arg, uintptr_t first, size_t row_bytes, size_t count,
                    const int64_t *rows, size_t n, void *out);
void swn_rows_begin(struct swn_engine *e, struct swn_arg *arg);
/* Drops the pages that were read through the mapping. */
void swn_rows_end(struct swn_engine *e, struct swn_arg *arg);
/* Frees the memory kept for row look-ups of a thread that makes none now, or of all such threads. Returns the bytes of
 * its buffer. */
size_t swn_rows_forget(struct swn_thread_state *t);
size_t swn_rows_trim(struct swn_engine *e);
void swn_rows_fork_child(struct swn_engine *e);

#endif
