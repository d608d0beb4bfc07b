/* skeleton/core/restore.h - a range gets ordinary pages again, with room for them; or goes where the plan wants it.
 *
 * Engine lock held. May release it.
 */
#ifndef SWN_SKELETON_CORE_RESTORE_H
#define SWN_SKELETON_CORE_RESTORE_H

#include "skeleton/core/engine_internal.h"

int swn_policy_share(struct swn_engine *e, struct swn_range *r);
int swn_restore_resident(struct swn_engine *e, struct swn_range *r, void *pages);
void swn_restore_input(struct swn_engine *e, struct swn_range *r);
void swn_plan_apply_to(struct swn_engine *e, struct swn_range *r);

#endif
