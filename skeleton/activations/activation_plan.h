/* skeleton/activations/activation_plan.h - planned addresses for the tensors of a pass.
 *
 * Engine lock held, unless it says otherwise.
 */
#ifndef SWN_SKELETON_ACTIVATIONS_ACTIVATION_PLAN_H
#define SWN_SKELETON_ACTIVATIONS_ACTIVATION_PLAN_H

#include "skeleton/engine/engine_internal.h"
#include "skeleton/engine/subsystem.h"

/* t begins another pass. */
void swn_activation_plan_passed(struct swn_engine *e, struct swn_thread_state *t);
/* Forgets all plans of the thread, whose model is gone. */
void swn_activation_plan_drop(struct swn_engine *e, struct swn_thread_state *t);
/* Gives up all regions, and makes none while the budget stays the same. */
void swn_activation_plan_refuse(struct swn_engine *e);
/* Whether the next tensor of t (or NULL), of n bytes, has a planned place, and no tensor is there. */
int swn_activation_plan_find(struct swn_engine *e, struct swn_thread_state *t, size_t n,
                             struct swn_activation_slot *out);
/* t has allocated r; r is going to be freed. */
void swn_activation_plan_on_alloc(struct swn_thread_state *t, struct swn_range *r);
void swn_activation_plan_on_free(struct swn_range *r);

#endif
