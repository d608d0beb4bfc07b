/* skeleton/tiling/trial_memory.h - memory for trials.
 *
 * Engine lock held, unless it says otherwise. As in skeleton/abi/abi.h, without the lock.
 */
#ifndef SWN_SKELETON_TILING_TRIAL_MEMORY_H
#define SWN_SKELETON_TILING_TRIAL_MEMORY_H

#include "skeleton/engine/engine_internal.h"

void *swn_trial_map(size_t bytes, size_t period);
void swn_trial_unmap(void *at, size_t bytes, size_t period);
void swn_trial_alias_allocations(size_t bytes, size_t period);
int swn_trial_room(size_t bytes);
/* Memory for a tensor of n bytes of a thread in a trial, or NULL: the tensor gets ordinary memory. */
void *swn_trial_alloc(size_t n);
/* 1: p was such memory. */
int swn_trial_free(void *p);
void swn_trial_fork_child(struct swn_engine *e);

#endif
