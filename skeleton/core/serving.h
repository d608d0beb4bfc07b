/* skeleton/core/serving.h - what a process that serves models asks of the engine: skeleton/abi/serving.h.
 *
 * These functions take the engine lock. In a process in which no engine runs they do nothing.
 */
#ifndef SWN_SKELETON_CORE_SERVING_H
#define SWN_SKELETON_CORE_SERVING_H

#include "skeleton/abi/serving.h"

uint64_t swn_serving_missing(const struct swn_serving_weight *weights, size_t n);
void swn_serving_progress(uint64_t *read_bytes, uint64_t *wait_ns);
uint64_t swn_serving_tensors(uint64_t *peak);
uint64_t swn_serving_budget(void);
void swn_serving_announce(const struct swn_serving_weight *weights, size_t n, uintptr_t own);

#endif
