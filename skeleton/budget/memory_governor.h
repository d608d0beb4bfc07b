/* skeleton/budget/memory_governor.h - a budget that follows memory: SWAPNET_BUDGET=auto, and SWAPNET_MEMORY for the
 * whole process.
 *
 * A thread looks at what there is, and sets the process's budget as a user would; under a daemon that is the most it
 * takes of its lease. A budget that a user sets by `swapnetctl set` ends this, until budget=auto.
 */
#ifndef SWN_SKELETON_BUDGET_MEMORY_GOVERNOR_H
#define SWN_SKELETON_BUDGET_MEMORY_GOVERNOR_H

#include <stdint.h>

#include "skeleton/engine/config.h"

struct swn_engine;

/* Where the settings ask for it: config->budget_bytes becomes what there is now. Before the engine starts. */
void swn_memory_governor_first(struct swn_config *config);
/* Starts following, where the settings ask for it. After the engine has started, with no lock held. */
void swn_memory_governor_start(const struct swn_config *config);
/* Whether the process has a budget that follows memory, or would if no user had set one. Lock held. */
int swn_memory_governor_runs(void);
/* Whether it follows now. Lock held. */
int swn_memory_governor_on(void);
/* A user has set a budget (on = 0), or wants it to follow again. Lock held. */
void swn_memory_governor_switch(int on);
/* A child that begins to use tensors starts following for itself, as it registers with a daemon
 * (skeleton/budget/daemon_client.h). */
void swn_memory_governor_fork_child(struct swn_engine *e);

#endif
