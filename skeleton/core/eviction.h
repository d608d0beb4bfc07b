/* skeleton/core/eviction.h - room within the budget: what leaves for it, and in which order.
 *
 * Engine lock held, unless it says otherwise.
 */
#ifndef SWN_SKELETON_CORE_EVICTION_H
#define SWN_SKELETON_CORE_EVICTION_H

#include "skeleton/core/engine_internal.h"

int swn_reclaim_try(struct swn_engine *e, size_t bytes, const struct swn_range *spare);
int swn_reclaim_if_idle(struct swn_engine *e, size_t bytes);
/* What that would cost, in ns: 0 where so much fits, the time to write what would have to leave, if it must be, and to
 * read it again; UINT64_MAX: it cannot be had. Nothing leaves. */
int swn_reclaim_must(struct swn_engine *e, size_t bytes, const struct swn_range *spare);
/* Weights that were to stay have left for a tensor with which everything else would take `other`. */
void swn_reclaim_note_shortage(struct swn_engine *e, size_t other);
/* Whether `bytes` more fit once pages that nobody uses have gone. */
int swn_reclaim_free_fits(struct swn_engine *e, size_t bytes);
int swn_shrink_step(struct swn_engine *e, int force);
/* What it has beyond that goes as soon as nobody uses it. */
void swn_ring_shrink(struct swn_engine *e);
void swn_ring_lend(struct swn_engine *e, size_t bytes);

#endif
