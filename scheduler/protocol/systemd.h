/* scheduler/protocol/systemd.h - the parts of systemd's service protocol that our daemons use, without systemd's
 * library: readiness, and sockets handed over. */
#ifndef SWN_SCHEDULER_PROTOCOL_SYSTEMD_H
#define SWN_SCHEDULER_PROTOCOL_SYSTEMD_H

/* Sends "READY=1" and the like to $NOTIFY_SOCKET, a path or an abstract name. 0, also where there is none; -errno. */
int swn_notify(const char *text);
/* The one socket that socket activation handed over ($LISTEN_PID, $LISTEN_FDS), close-on-exec; -ENOENT: none; -EINVAL:
 * more than one. The variables are removed, so that child processes do not use them. */
int swn_notify_socket(void);

#endif
