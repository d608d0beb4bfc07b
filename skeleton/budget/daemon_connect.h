/* skeleton/budget/daemon_connect.h - which swapnetd is to rule this process. */
#ifndef SWN_SKELETON_BUDGET_DAEMON_CONNECT_H
#define SWN_SKELETON_BUDGET_DAEMON_CONNECT_H

#include "skeleton/engine/config.h"

/* Decides whether a daemon is to rule: sets config->daemon_path ("": no). 0; -ENOENT: there is neither a budget nor a
 * daemon. */
int swn_daemon_connect_find(struct swn_config *config);

#endif
