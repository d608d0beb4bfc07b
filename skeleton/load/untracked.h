/* skeleton/load/untracked.h - weights in memory that PyTorch did not allocate: arrays of numpy's, files that are mapped
 * shared or for reading only, shared memory. They stay where they are, and the budget does not cover them; that is
 * counted (untracked_bytes), and said when it is much. */
#ifndef SWN_SKELETON_LOAD_UNTRACKED_H
#define SWN_SKELETON_LOAD_UNTRACKED_H

#include <stddef.h>
#include <stdint.h>

struct swn_engine;

/* An operator reads such a weight, whose storage this is. The caller holds the engine's lock. */
void swn_untracked_read(struct swn_engine *e, uintptr_t data, size_t bytes);
/* After an allocation, without a lock: has operators watched if the process has far more memory than the engine knows
 * of. A program whose tensors fit the budget is not watched otherwise. */
void swn_untracked_look(void);

#endif
