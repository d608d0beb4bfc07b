/* skeleton/core/shared_chunks.h - of a plan's kept chunks, those that would be read twice in a pass stay first.
 *
 * A chunk has bytes of two weights where these meet. In a checkpoint that is sorted by name weights that meet need not
 * follow one another: "down" lies beside "gate", and beside the projections of the layer before it. If such a chunk
 * comes and goes, it is read for the one and again for the other, so its room saves twice as many reads as that of
 * another chunk.
 *
 * Engine lock held.
 */
#ifndef SWN_SKELETON_CORE_SHARED_CHUNKS_H
#define SWN_SKELETON_CORE_SHARED_CHUNKS_H

#include "scheduler/planner/plan.h"
#include "skeleton/engine/engine_internal.h"

/* Changes which chunks the plan keeps, not how many: a chunk that would be read twice takes the place of another one
 * nearby in the order. weights, ids: of the plan, whose chunks know the weight that reads them first (chunk->weight)
 * and whether they stay; ring: its ring. Without memory nothing changes. */
void swn_shared_chunks_keep(struct swn_engine *e, const struct swn_plan_weight *weights, const uint32_t *ids, size_t n,
                            uint64_t ring);

#endif
