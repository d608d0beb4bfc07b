/* skeleton/core/eviction.h - room within the budget: what leaves for it, and in which order.
 *
 * Engine lock held, unless it says otherwise.
 */
#ifndef SWN_SKELETON_CORE_EVICTION_H
#define SWN_SKELETON_CORE_EVICTION_H

#include "skeleton/core/engine_internal.h"

int swn_policy_try_room(struct swn_engine *e, size_t bytes, const struct swn_range *spare);
int swn_policy_offer_room(struct swn_engine *e, size_t bytes);
/* What that would cost, in ns: 0 where so much fits, the time to write what would have to leave, if it must be, and to
 * read it again; UINT64_MAX: it cannot be had. Nothing leaves. */
int swn_policy_make_room(struct swn_engine *e, size_t bytes, const struct swn_range *spare);
/* Weights that were to stay have left for a tensor with which everything else would take `other`. */
void swn_policy_note_shortage(struct swn_engine *e, size_t other);
/* Whether `bytes` more fit once pages that nobody uses have gone. */
int swn_policy_fits_free(struct swn_engine *e, size_t bytes);
int swn_policy_give(struct swn_engine *e, int desperate);
/* What it has beyond that goes as soon as nobody uses it. */
void swn_policy_window(struct swn_engine *e);
void swn_policy_lend_room(struct swn_engine *e, size_t bytes);

#endif
