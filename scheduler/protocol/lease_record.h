/* scheduler/protocol/lease_record.h - the file in which swapnetd keeps its leases, for those who only look into it: the
 * library does so, without the book and what divides memory.
 */
#ifndef SWN_SCHEDULER_PROTOCOL_LEASE_RECORD_H
#define SWN_SCHEDULER_PROTOCOL_LEASE_RECORD_H

#include <jansson.h>
#include <stddef.h>
#include <sys/types.h>

/* Where it lies: beside the socket. 0 or -ENAMETOOLONG. */
int swn_lease_path(const char *socket, char *out, size_t size);
/* Beside it: a file without content that is there when the last daemon ended as it was told to, and left the socket, as
 * that is systemd's. For those, too, who may not read the leases. Likewise. */
int swn_lease_stopped_path(const char *socket, char *out, size_t size);
/* The whole of it, which the caller drops. 0; -EINVAL: not one of ours; -errno. */
int swn_lease_open(const char *path, json_t **out);
/* 1: somebody listens to that socket; or nobody does any more, its file is there, and swn_lease_held: its daemon was
 * killed, and another one is about to follow it, which will count on what its programs leave. One that was told to end
 * is not waited for. */
int swn_lease_has_daemon(const char *socket);
/* 1: a process that lives, other than `but` (0: whichever), has a lease on the record beside that socket, or others may
 * not look into it; 0: none has. */
int swn_lease_held(const char *socket, pid_t but);

#endif
