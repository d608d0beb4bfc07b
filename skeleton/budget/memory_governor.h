/* skeleton/budget/memory_governor.h - a budget that follows memory: SWAPNET_BUDGET=auto, and SWAPNET_MEMORY for the
 * whole process.
 *
 * A thread reads the available memory, and sets the process's budget as a user would; under a daemon this is a cap
 * within the lease. A budget that a user sets by `swapnetctl set` stops the governor, until budget=auto.
 */
#ifndef SWN_SKELETON_BUDGET_MEMORY_GOVERNOR_H
#define SWN_SKELETON_BUDGET_MEMORY_GOVERNOR_H

#include <stdint.h>

#include "skeleton/engine/config.h"

struct swn_engine;

/* If the settings ask for it, sets config->budget_bytes to the memory available now. To be called before the engine
 * starts. */
void swn_memory_governor_first(struct swn_config *config);
/* Starts the governor, if the settings ask for it. To be called after the engine has started, with no lock held. */
void swn_memory_governor_start(const struct swn_config *config);
/* Whether the process has a budget that follows memory, or would if no user had set one. Lock held. */
int swn_memory_governor_runs(void);
/* Whether it follows now. Lock held. */
int swn_memory_governor_on(void);
/* A user has set a budget (on = 0), or budget=auto. Lock held. */
void swn_memory_governor_switch(int on);
/* A child that begins to use tensors starts its own governor, as it registers with a daemon
 * (skeleton/budget/daemon_client.h). */
void swn_memory_governor_fork_child(struct swn_engine *e);

#endif
