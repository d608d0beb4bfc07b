/* scheduler/protocol/control.h - the status socket of one process, and how to ask it.
 *
 * <directory>/<pid>.sock, where the directory is $XDG_RUNTIME_DIR/swapnet, else /run/swapnet; never below /tmp. One
 * request per connection: a JSON object on one line, at most SWN_CONTROL_MAX_BYTES with its newline, within
 * SWN_CONTROL_TIMEOUT_MS. The answer to {"op":"status"} is the statistics document on one line; to {"op":"set"} with
 * "budget" (bytes), "urgency" or both it is the result; to everything else it is {"schema":1,"error":"..."}. A refused
 * set changes nothing, and neither does that of a client that has closed its end before its turn. Only the owner of the
 * process and root are served. The thread serves one client after the other, and none for longer than the timeout.
 */
#ifndef SWN_SCHEDULER_PROTOCOL_CONTROL_H
#define SWN_SCHEDULER_PROTOCOL_CONTROL_H

#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "scheduler/protocol/stats.h"

#define SWN_CONTROL_MAX_BYTES 65536
#define SWN_CONTROL_TIMEOUT_MS 1000

/* The daemon's socket, in the same directories. */
#define SWN_DAEMON_SOCKET "swapnetd.sock"

struct swn_control;

struct swn_control_opts {
    /* Called on the control thread for every status request; must not block. */
    void (*fill)(void *user, struct swn_stats *out);
    /* In its place, for a process whose document has more: like `set` below. NULL: `fill` counts. */
    char *(*status)(void *user);
    /* For set, on the same thread: has is SWN_HAS_BUDGET, SWN_HAS_URGENCY or both (scheduler/protocol/wire.h). Returns
     * the answer, one line of JSON for free(), within half the timeout, or NULL: out of memory. A NULL pointer: nothing
     * can be set. */
    char *(*set)(void *user, unsigned has, uint64_t budget, double urgency);
    void *user;
    const char *runtime_dir; /* in place of $XDG_RUNTIME_DIR; NULL: the environment's. Borrowed for the call. */
};

/* Makes the directory (0700, below XDG_RUNTIME_DIR) where it is missing, takes over a dead predecessor's socket file,
 * starts the thread through swn_thread_start, with all signals blocked. 0, or -errno: the caller continues without a
 * socket. -ELOOP: the directory is a symbolic link; -EPERM: another user's, or writable by others; -EADDRINUSE: a live
 * process uses the name; -ENOENT: no runtime directory. */
int swn_control_start(struct swn_control **out, const struct swn_control_opts *opts);

/* The socket's path; valid until stop. */
const char *swn_control_path(const struct swn_control *c);

/* Removes the socket file, ends the thread, frees. Not from within fill. NULL: nothing. */
void swn_control_stop(struct swn_control *c);

/* In a forked child, where the thread does not exist: closes the descriptors and frees; the parent's socket file stays.
 * NULL: nothing. */
void swn_control_abandon(struct swn_control *c);

/* The directories in which sockets may lie: writes number `index` (0, 1) into buf. 0, -ENOENT when there is no such
 * directory, -ENAMETOOLONG. */
int swn_control_directory(unsigned index, char *buf, size_t size);

/* Client: sends {"op":op}, waits SWN_CONTROL_TIMEOUT_MS for the answer. 0 and *json_out, one line without its newline
 * that the caller frees; or -errno: -ECONNREFUSED or -ENOENT where no process listens, -ETIMEDOUT, -EMSGSIZE, -EPROTO
 * for an answer that is no line. The answer's content is not checked. */
int swn_control_query(const char *socket_path, const char *op, char **json_out);
/* The same for a whole request, without its newline, and for answers of up to `most` bytes. *uid: the server's user;
 * NULL: not wanted. */
int swn_control_ask(const char *socket_path, const char *request, size_t most, uid_t *uid, char **json_out);

struct swn_control_call {
    const char *path; /* of the socket */
    int rc;           /* of swn_control_ask, and what it gives */
    uid_t uid;
    char *answer;
};

/* So many sockets are asked at once: at worst each answers with as many bytes as it may. */
#define SWN_CONTROL_AT_ONCE 16

/* swn_control_ask of `count` sockets, each SWN_CONTROL_AT_ONCE of them at once: these together take no longer than the
 * slowest, which has SWN_CONTROL_TIMEOUT_MS. The request is short, as for status. */
void swn_control_ask_all(struct swn_control_call *calls, size_t count, const char *request, size_t most);

#endif
