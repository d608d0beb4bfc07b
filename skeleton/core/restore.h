/* skeleton/core/restore.h - gives a range ordinary pages again, with room for them, or moves it to the state that the
 * plan demands.
 *
 * Engine lock held. May release it.
 */
#ifndef SWN_SKELETON_CORE_RESTORE_H
#define SWN_SKELETON_CORE_RESTORE_H

#include "skeleton/engine/engine_internal.h"

int swn_restore_share(struct swn_engine *e, struct swn_range *r);
int swn_restore_resident(struct swn_engine *e, struct swn_range *r, void *pages);
void swn_restore_input(struct swn_engine *e, struct swn_range *r);
/* Called by operators, `now` and then: gives ordinary pages, which count and can leave, to ranges of which the program
 * has stored a good part itself while they were file-backed. */
void swn_restore_written(struct swn_engine *e, uint64_t now);
void swn_plan_apply_to(struct swn_engine *e, struct swn_range *r);

#endif
