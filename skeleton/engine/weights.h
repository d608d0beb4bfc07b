/* skeleton/engine/weights.h - the weights of the learned order.
 *
 * Engine lock held, unless it says otherwise.
 */
#ifndef SWN_SKELETON_ENGINE_WEIGHTS_H
#define SWN_SKELETON_ENGINE_WEIGHTS_H

#include "skeleton/engine/engine_internal.h"

struct swn_weight *swn_weight_of(struct swn_engine *e, uint32_t id);
int swn_weight_add(struct swn_engine *e, struct swn_range *r);
void swn_weight_remove(struct swn_engine *e, struct swn_range *r);
/* Whether r has lived through so many operators that it is no activation of the pass. */
int swn_is_aged(const struct swn_engine *e, const struct swn_range *r);

#endif
