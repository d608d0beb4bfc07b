/* Which swapnetd rules the process. */
#include "skeleton/budget/daemon_connect.h"

#include <errno.h>

#include "scheduler/protocol/daemon_socket.h"

int swn_daemon_connect_find(struct swn_config *config)
{
    int rc = 0;
    if (config->daemon == SWN_DAEMON_AUTO && !config->daemon_path[0])
        rc = swn_daemon_socket_find(config->daemon_path, sizeof config->daemon_path);
    if (config->daemon == SWN_DAEMON_OFF || rc) /* one that is for others only is none */
        config->daemon_path[0] = '\0';
    return config->daemon_path[0] || config->budget_bytes ? 0 : -ENOENT;
}
