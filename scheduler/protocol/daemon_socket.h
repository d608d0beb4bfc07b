/* scheduler/protocol/daemon_socket.h - where swapnetd listens, and a connection to it. Any user may make a socket; a
 * process connects only to sockets of root or of its own user. */
#ifndef SWN_SCHEDULER_PROTOCOL_DAEMON_SOCKET_H
#define SWN_SCHEDULER_PROTOCOL_DAEMON_SOCKET_H

#include <stddef.h>

/* The socket of a daemon that is there: of one that answers, or that its record shows to be started again. 0; -EACCES:
 * there is one, path, that this user may not connect to; -ENOENT with path "". */
int swn_daemon_socket_find(char *path, size_t size);
/* A non-blocking connection, close-on-exec; or -errno: -EPERM where another user can write to the socket's directory,
 * or the socket belongs to neither root nor this user. */
int swn_daemon_connect(const char *path);

#endif
