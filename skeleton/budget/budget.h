/* skeleton/budget/budget.h - the limit on its way to a smaller budget.
 *
 * Engine lock held, unless it says otherwise.
 */
#ifndef SWN_SKELETON_BUDGET_BUDGET_H
#define SWN_SKELETON_BUDGET_BUDGET_H

#include "skeleton/core/engine_internal.h"

void swn_budget_fork_child(struct swn_engine *e);
uint64_t swn_budget_in_flight_ns(const struct swn_engine *e);

#endif
