/* skeleton/budget/daemon_connect.h - which swapnetd is to rule this process, and a connection to it. Any user may make
 * a socket; the process connects only to sockets of root or of its own user. */
#ifndef SWN_SKELETON_BUDGET_DAEMON_CONNECT_H
#define SWN_SKELETON_BUDGET_DAEMON_CONNECT_H

#include "skeleton/engine/config.h"

/* Decides whether a daemon is to rule: sets config->daemon_path ("": no). 0; -ENOENT: there is neither a budget nor a
 * daemon. */
int swn_daemon_connect_find(struct swn_config *config);
/* A non-blocking connection, close-on-exec; or -errno: -EPERM where another user can write to the socket's directory,
 * or the socket belongs to neither root nor this user. */
int swn_daemon_connect(const char *path);

#endif
