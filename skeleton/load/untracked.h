/* skeleton/load/untracked.h - weights in memory that PyTorch did not allocate: arrays of numpy's, files that are mapped
 * shared or for reading only, shared memory. They stay where they are, and the budget does not cover them; that is
 * counted (untracked_weight_bytes), and said when it is much.
 *
 * Memory counts from its second read as a weight on, if it is no smaller than what the engine takes: data sets whose
 * rows are looked up do not, nor do inputs that are read once. It counts until it is unmapped, or another storage lies
 * there. */
#ifndef SWN_SKELETON_LOAD_UNTRACKED_H
#define SWN_SKELETON_LOAD_UNTRACKED_H

#include <stddef.h>
#include <stdint.h>
#include <stdint.h>

struct swn_engine;

/* An operator reads such a weight, whose storage this is. The caller holds the engine's lock. */
void swn_untracked_read(struct swn_engine *e, uintptr_t data, size_t bytes);
/* Bytes of those that are still there. The caller holds the engine's lock. */
uint64_t swn_untracked_bytes(struct swn_engine *e);
/* After an allocation, without a lock: has operators watched if the process has far more memory than the engine knows
 * of. A program whose tensors fit the budget is not watched otherwise. */
void swn_untracked_look(void);

#endif
