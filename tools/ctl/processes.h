/* tools/ctl/processes.h - what swapnetctl can learn about the processes and the daemon. */
#ifndef SWN_TOOLS_CTL_PROCESSES_H
#define SWN_TOOLS_CTL_PROCESSES_H

#include <jansson.h>
#include <sys/types.h>

struct ctl_filter {
    char **pids;   /* as given, each a positive number */
    int pid_count; /* 0: all */
    char *seen;    /* for each of pids, what ctl_collect has seen of it (enum ctl_seen); NULL: not wanted */
};

/* SILENT: it is there, and why it has not answered was printed. */
enum ctl_seen { CTL_UNSEEN, CTL_SILENT, CTL_ANSWERED };

/* 1 when `text` is a process number. */
int ctl_is_pid(const char *text);
/* {"schema":1,"total_bytes":N|null,"processes":[...]}, with the daemon's report if there is a daemon. The caller drops
 * it. Prints on stderr which processes did not answer. */
json_t *ctl_collect(const struct ctl_filter *filter);
/* The engines and models of a swapnet-serve, as a table; of another process nothing. */
void ctl_print_server(const json_t *process);
/* enum swn_cli_format */
void ctl_print(json_t *root, int format);

/* Whether a listener of that user's may speak for the process: root, this user, and the process's own user. */
int ctl_trusts(uid_t uid, const char *pid);

/* Sends one request to the daemon: $SWAPNET_DAEMON where that is a path, else the first of the usual sockets on which
 * one listens. 0 and the answer, an object; -ENOENT: there is no daemon; -EPERM: the listener is neither root's nor
 * this user's; -EPROTO, -errno. */
int ctl_ask_daemon(const char *request, json_t **out);
/* The same for the process with that pid; a listener of the process's own user is trusted, too. -ENOENT: no such
 * process. */
int ctl_ask_process(const char *pid, const char *request, json_t **out);
/* The same for the daemon that the process itself names, whatever this program's environment says; a daemon of the
 * process's own user is trusted, too. If the process names none: ctl_ask_daemon. -ENOENT also with SWAPNET_DAEMON=off.
 */
int ctl_ask_daemon_of(const char *pid, const char *request, json_t **out);

#endif
