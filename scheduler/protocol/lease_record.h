/* scheduler/protocol/lease_record.h - the file in which swapnetd keeps its leases, for readers only: the library reads
 * it, without the lease book and the division of memory.
 */
#ifndef SWN_SCHEDULER_PROTOCOL_LEASE_RECORD_H
#define SWN_SCHEDULER_PROTOCOL_LEASE_RECORD_H

#include <jansson.h>
#include <stddef.h>
#include <sys/types.h>

/* The path of the file: beside the socket. 0 or -ENAMETOOLONG. */
int swn_lease_path(const char *socket, char *out, size_t size);
/* Beside it: a file without content that is there when the last daemon ended as it was told to, and left the socket, as
 * that is systemd's. Processes that may not read the leases can see it, too. 0 or -ENAMETOOLONG. */
int swn_lease_stopped_path(const char *socket, char *out, size_t size);
/* The whole of it, which the caller drops. 0; -EINVAL: not one of ours; -errno. */
int swn_lease_open(const char *path, json_t **out);
/* 1: a daemon listens to that socket; or none does any more, its file is there, and swn_lease_held: its daemon was
 * killed, and another one is about to follow it, which counts the leases of the programs that still run. A daemon that
 * was told to end is not waited for. */
int swn_lease_has_daemon(const char *socket);
/* 1: a process that lives, other than `but` (0: whichever), has a lease on the record beside that socket, or others may
 * not look into it; 0: none has. */
int swn_lease_held(const char *socket, pid_t but);

#endif
