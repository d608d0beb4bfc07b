/* skeleton/budget/daemon_connect.h - which swapnetd is to rule this process, and a connection to it. Any user may put a
 * socket somewhere; a socket that is neither root's nor our own user's is not asked. */
#ifndef SWN_SKELETON_BUDGET_DAEMON_CONNECT_H
#define SWN_SKELETON_BUDGET_DAEMON_CONNECT_H

#include "skeleton/engine/config.h"

/* Decides whether a daemon is to rule: sets config->daemon_path ("": no). 0; -ENOENT: there is neither a budget nor a
 * daemon. */
int swn_daemon_connect_find(struct swn_config *config);
/* A connection, close-on-exec and without waiting; or -errno: -EPERM where others can write to its directory, or the
 * socket is neither root's nor our user's. */
int swn_daemon_connect(const char *path);

#endif
