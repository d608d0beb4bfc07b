/* scheduler/protocol/lease_record.h - reading the file in which swapnetd keeps its leases. The library reads it without
 * the lease book and the division of memory. */
#ifndef SWN_SCHEDULER_PROTOCOL_LEASE_RECORD_H
#define SWN_SCHEDULER_PROTOCOL_LEASE_RECORD_H

#include <jansson.h>
#include <stddef.h>
#include <sys/types.h>

/* The path of the file: beside the socket. 0 or -ENAMETOOLONG. */
int swn_lease_path(const char *socket, char *out, size_t size);
/* The path of an empty file beside the socket, which exists when the last daemon ended on request and left the socket,
 * as that is systemd's. Processes that may not read the leases can see the file, too. 0 or -ENAMETOOLONG. */
int swn_lease_stopped_path(const char *socket, char *out, size_t size);
/* The whole record, which the caller drops. 0; -EINVAL: not a lease record; -errno. */
int swn_lease_open(const char *path, json_t **out);
/* 1: a daemon listens on that socket; or no daemon does, the socket file exists, and swn_lease_held: the daemon was
 * killed, and the next one is about to start and counts the leases of the programs that still run. A daemon that ended
 * on request is not waited for. 0: none does. -EACCES: there is a socket, which this user may not connect to. */
int swn_lease_has_daemon(const char *socket);
/* 1: a live process other than `but` (0: any process) has a lease on the record beside that socket, or this user may
 * not read the record; 0: none has. */
int swn_lease_held(const char *socket, pid_t but);

#endif
