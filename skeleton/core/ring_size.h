/* skeleton/core/ring_size.h - the size of the staging ring.
 *
 * Engine lock held.
 */
#ifndef SWN_SKELETON_CORE_RING_SIZE_H
#define SWN_SKELETON_CORE_RING_SIZE_H

#include "skeleton/engine/engine_internal.h"

/* Bytes of the ring's frames, in use or free. */
size_t swn_ring_bytes(struct swn_engine *e);
/* Bytes of the ring's frames, and of those for experts, as the plan has them. */
size_t swn_ring_goal(const struct swn_engine *e);
/* The size of the staging ring before there is a plan. */
size_t swn_ring_first(struct swn_engine *e);
/* Sets the size of the staging ring to `bytes`, rounded to whole frames, at least one. */
void swn_ring_resize(struct swn_engine *e, size_t bytes);
/* Of a program with many models: whether `bytes` more of frames may stay beyond the ring, in memory that activations do
 * not need. Without a plan most of the budget would be idle. */
int swn_ring_may_exceed(struct swn_engine *e, size_t bytes);

#endif
