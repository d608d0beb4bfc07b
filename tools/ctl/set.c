/* tools/ctl/set.c - `swapnetctl set`: through the daemon where it knows the process, else through the process's own
 * socket. The whole request takes effect, or none of it. */
#define _GNU_SOURCE
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tools/ctl/ctl.h"
#include "tools/ctl/output.h"
#include "tools/ctl/processes.h"
#include "scheduler/protocol/label.h"
#include "base/size.h"

static int set_budget(json_t *request, const char *text)
{
    uint64_t bytes = 0;
    const char *why;
    if (strcmp(text, "auto") && swn_parse_budget(text, &bytes, &why)) {
        swn_cli_error("budget '%s' %s", text, why);
        return -EINVAL;
    }
    return json_object_set_new(request, "budget", json_integer((json_int_t)bytes));
}

static int set_urgency(json_t *request, const char *text)
{
    double urgency;
    if (swn_label_urgency(text, &urgency)) {
        swn_cli_error("urgency '%s' " SWN_LABEL_NO_URGENCY, text);
        return -EINVAL;
    }
    return json_object_set_new(request, "urgency", json_real(urgency));
}

/* KEY=VALUE, each key once. */
static int take_pair(json_t *request, char *pair)
{
    static const struct {
        const char *key;
        int (*set)(json_t *request, const char *text);
    } keys[] = {{"budget", set_budget}, {"urgency", set_urgency}};
    char *equals = strchr(pair, '=');
    for (size_t i = 0; equals && i < sizeof keys / sizeof *keys; i++) {
        if (strlen(keys[i].key) != (size_t)(equals - pair) || strncmp(pair, keys[i].key, (size_t)(equals - pair)))
            continue;
        if (json_object_get(request, keys[i].key)) {
            swn_cli_error("%s is given twice", keys[i].key);
            return -EINVAL;
        }
        return keys[i].set(request, equals + 1);
    }
    swn_cli_error("'%s' is not to be set: use budget=SIZE, budget=auto or urgency=NUMBER", pair);
    return -EINVAL;
}

/* The pid of the one process with that name, among those that answer. NULL: the reason was printed. */
static const char *number_of(const char *name, char *buf, size_t size)
{
    if (ctl_is_pid(name))
        return name;
    json_t *root = ctl_collect(&(struct ctl_filter){0}), *process;
    size_t i, hits = 0;
    json_array_foreach(json_object_get(root, "processes"), i, process)
    {
        const char *its = json_string_value(json_object_get(process, "name"));
        if (its && !strcmp(its, name)) {
            snprintf(buf, size, "%" JSON_INTEGER_FORMAT, json_integer_value(json_object_get(process, "pid")));
            hits++;
        }
    }
    json_decref(root);
    if (hits != 1)
        swn_cli_error(hits ? "%zu processes are called '%s': give the number of one" : "%zu processes are called '%s'",
                      hits, name);
    return hits == 1 ? buf : NULL;
}

static int knows(json_t *list, const char *pid)
{
    size_t i;
    json_t *process;
    int found = 0;
    json_array_foreach(json_object_get(list, "processes"), i, process) found |=
        json_integer_value(json_object_get(process, "pid")) == atoll(pid);
    return found;
}

/* If the process's daemon does not answer now, nothing is set without it. A daemon that refuses the connection, or that
 * belongs to neither root, this user nor the process's user, has none of the processes that this user can set. */
static int ask(json_t *request, const char *pid, json_t **out, int *is_daemon)
{
    json_t *list = NULL;
    int err = ctl_ask_daemon_of(pid, "{\"op\":\"list\"}", &list), daemon = !err && knows(list, pid);
    json_decref(list);
    *is_daemon = 1;
    if (err && err != -ENOENT && err != -EACCES && err != -EPERM)
        return err;
    *is_daemon = daemon;
    json_object_set_new(request, "op", json_string("set"));
    if (daemon)
        json_object_set_new(request, "pid", json_integer(atoll(pid)));
    char *text = json_dumps(request, JSON_COMPACT);
    int rc = !text ? -ENOMEM : daemon ? ctl_ask_daemon_of(pid, text, out) : ctl_ask_process(pid, text, out);
    free(text);
    return rc;
}

static int report(json_t *answer, const char *pid, int format)
{
    static const char *const keys[] = {"pid", "budget_bytes", "urgency", "bound"};
    char mib[32];
    const char *error = json_string_value(json_object_get(answer, "error"));
    if (error) {
        swn_cli_error("process %s: %s; nothing was changed", pid, error);
        return SWN_CLI_FAILURE;
    }
    if (format == SWN_CLI_JSON)
        ctl_print_json(answer);
    else if (format == SWN_CLI_CSV)
        ctl_print_csv_row(keys, sizeof keys / sizeof *keys, answer);
    else
        printf("process %s: budget %s, urgency %g%s\n", pid,
               swn_format_mib(mib, (uint64_t)json_integer_value(json_object_get(answer, "budget_bytes"))),
               json_number_value(json_object_get(answer, "urgency")),
               json_is_false(json_object_get(answer, "bound")) ? "; it is giving back what it has above that" : "");
    return SWN_CLI_OK;
}

static int set(char **words, int count, int format)
{
    char buf[24];
    json_t *request = json_object(), *answer = NULL;
    int rc = 0, code = SWN_CLI_USAGE, is_daemon;
    for (int i = 1; i < count && !rc; i++)
        rc = take_pair(request, words[i]);
    const char *pid = rc ? NULL : number_of(words[0], buf, sizeof buf);
    if (!rc)
        code = SWN_CLI_FAILURE;
    if (pid && (rc = ask(request, pid, &answer, &is_daemon)) == -ENOENT)
        swn_cli_error("no swapnet process %s", pid);
    else if (pid && rc)
        swn_cli_error("%s %s does not answer: %s", is_daemon ? "the daemon of process" : "process", pid, strerror(-rc));
    else if (pid)
        code = report(answer, pid, format);
    json_decref(request);
    json_decref(answer);
    return code;
}

int ctl_set(int argc, char **argv)
{
    int format = SWN_CLI_TABLE, rc = swn_cli_only_format(argc, argv, SWN_CLI_CSV, &format);
    if (rc)
        return rc > 0 ? SWN_CLI_OK : SWN_CLI_USAGE;
    if (argc - optind < 2) {
        swn_cli_error("set needs a process and what to set, e.g. budget=256M; see 'swapnetctl help set'");
        return SWN_CLI_USAGE;
    }
    return set(argv + optind, argc - optind, format);
}
