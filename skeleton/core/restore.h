/* skeleton/core/restore.h - a range gets ordinary pages again, with room for them; or goes where the plan wants it.
 *
 * Engine lock held. May release it.
 */
#ifndef SWN_SKELETON_CORE_RESTORE_H
#define SWN_SKELETON_CORE_RESTORE_H

#include "skeleton/core/engine_internal.h"

int swn_policy_share(struct swn_engine *e, struct swn_range *r);
int swn_policy_bring_home(struct swn_engine *e, struct swn_range *r, void *pages);
void swn_policy_recall(struct swn_engine *e, struct swn_range *r);
void swn_policy_settle(struct swn_engine *e, struct swn_range *r);

#endif
