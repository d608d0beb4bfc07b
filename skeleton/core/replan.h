/* skeleton/core/replan.h - decides when a new plan is needed, because the machine has changed.
 *
 * Engine lock held, unless it says otherwise.
 */
#ifndef SWN_SKELETON_CORE_REPLAN_H
#define SWN_SKELETON_CORE_REPLAN_H

#include "skeleton/engine/engine_internal.h"

/* A thread has begun another pass. With several threads it is this thread's pass only. */
void swn_replan_passed(struct swn_engine *e);
/* The plan in force was made for the present machine, and a disk of this speed. */
void swn_replan_begin(struct swn_engine *e, double bytes_per_ns);
/* Whether passes under the candidate's plan are short of the disk. Passes that were short of it count as short a little
 * longer, so that slices of small weights do not come and go with every plan. */
int swn_plan_is_short_of_disk(const struct swn_engine *e, const struct swn_plan_candidate *d);
/* Whether the candidate, planned for the present machine, is worth putting into force. If so, or if there will be
 * another candidate that is, the plan is dirty. */
int swn_replan_is_due(struct swn_engine *e, const struct swn_plan_candidate *d);

#endif
