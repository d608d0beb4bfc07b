/* skeleton/core/eviction.h - room within the budget: which memory leaves for it, and in which order.
 *
 * Engine lock held, unless it says otherwise.
 */
#ifndef SWN_SKELETON_CORE_EVICTION_H
#define SWN_SKELETON_CORE_EVICTION_H

#include "skeleton/engine/engine_internal.h"

int swn_reclaim_try(struct swn_engine *e, size_t bytes, const struct swn_range *spare);
int swn_reclaim_if_idle(struct swn_engine *e, size_t bytes);
/* Makes room for memory that will be used in any case. 0, or -ENOMEM when the budget is exceeded; `spare` must not
 * leave. */
int swn_reclaim_must(struct swn_engine *e, size_t bytes, const struct swn_range *spare);
/* Says that the budget is exceeded, if it is by `bytes` alone, which the program has written itself and which do not
 * count yet. */
void swn_reclaim_note_written(struct swn_engine *e, size_t bytes);
/* Notes that kept weights have left for a tensor; with it the nonweight bytes would be `other`. */
void swn_reclaim_note_shortage(struct swn_engine *e, size_t other);
/* Whether `bytes` more fit once pages that no tensor uses have gone. */
int swn_reclaim_free_fits(struct swn_engine *e, size_t bytes);
int swn_shrink_step(struct swn_engine *e, int force, int may_write);
/* Whether the frame belongs to an idle model: not used for longer than a cycle of all weights takes. */
int swn_reclaim_is_idle(const struct swn_engine *e, const struct swn_frame *f);
/* Of the kept frames f and `kept`, or NULL, the one that is needed later: behind all that is announced, or as the order
 * says. Of two behind it, f, as the caller goes from the least recently used one on, and in a cycle the last one used
 * is needed last. */
struct swn_frame *swn_reclaim_later_kept(struct swn_frame *f, struct swn_frame *kept);
/* Whether the kept frame leaves instead of the other one, which the announced order reads several times, and sooner. */
int swn_reclaim_kept_instead(const struct swn_frame *kept, const struct swn_frame *announced);
/* Frames beyond the ring's goal leave as soon as no operator uses them. */
void swn_ring_shrink(struct swn_engine *e);
void swn_ring_lend(struct swn_engine *e, size_t bytes);

#endif
