/* tools/ctl/processes.h - what swapnetctl knows of the processes and of the daemon. */
#ifndef SWN_TOOLS_CTL_PROCESSES_H
#define SWN_TOOLS_CTL_PROCESSES_H

#include <jansson.h>

struct ctl_filter {
    char **pids;   /* as given, each a positive number */
    int pid_count; /* 0: all */
};

/* 1 when `text` is a process number. */
int ctl_is_pid(const char *text);
/* {"schema":1,"total_bytes":N|null,"processes":[...]}, with what the daemon says of itself where there is one. The
 * caller drops it. Says on stderr what did not answer. */
json_t *ctl_collect(const struct ctl_filter *filter);
/* enum swn_cli_format */
void ctl_print(json_t *root, int format);

/* One request to the daemon: $SWAPNET_DAEMON where that is a path, else the first of the usual places where one
 * listens. 0 and the answer, an object; -ENOENT: there is no daemon; -EPERM: what listens there is neither root's nor
 * ours; -EPROTO, -errno. */
int ctl_ask_daemon(const char *request, json_t **out);
/* The same for the process with that number; its own user's answer counts as well. -ENOENT: no such process. */
int ctl_ask_process(const char *pid, const char *request, json_t **out);
/* The same for the daemon that rules that process, as it says itself, whatever our environment says; of its own user's,
 * too. Of one that does not say: ctl_ask_daemon. -ENOENT also with SWAPNET_DAEMON=off. */
int ctl_ask_daemon_of(const char *pid, const char *request, json_t **out);

#endif
