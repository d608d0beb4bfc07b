/* skeleton/tiling/expert.h - operators that read some experts of a mixture.
 *
 * The functions of the torch backend take the engine's lock; swn_experts_end needs it.
 */
#ifndef SWN_SKELETON_TILING_EXPERT_H
#define SWN_SKELETON_TILING_EXPERT_H

#include "skeleton/engine/engine_internal.h"

/* As struct swn_tiling_services says (skeleton/abi/abi.h). */
void swn_experts_begin(struct swn_op *op, unsigned index, const struct swn_experts *experts);
void swn_expert_lend(struct swn_op *op, unsigned index, uintptr_t at, size_t bytes);
/* The operator is done with the argument. */
void swn_experts_end(struct swn_engine *e, struct swn_arg *arg);

#endif
