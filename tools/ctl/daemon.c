/* tools/ctl/daemon.c - requests to swapnetd, and `swapnetctl total` and `drain`, which only the daemon can answer. */
#define _GNU_SOURCE
#include <errno.h>
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tools/ctl/ctl.h"
#include "tools/ctl/output.h"
#include "tools/ctl/processes.h"
#include "scheduler/protocol/control.h"
#include "base/process.h"
#include "base/size.h"
#include "base/errmsg.h"

/* A list of 4096 processes, as many as swapnetd may be told to serve, has half of that, and so has a server with as
 * many models. */
#define ANSWER_MOST (8 << 20)

static int is_trusted(uid_t uid, uid_t also)
{
    return uid == 0 || uid == geteuid() || (uid == also && also != (uid_t)-1);
}

/* also: a user whose server is trusted beside root's and this user's own; (uid_t)-1: none. */
static int ask(const char *path, const char *request, uid_t also, json_t **out)
{
    char *text = NULL;
    uid_t uid = (uid_t)-1;
    int rc = swn_control_ask(path, request, ANSWER_MOST, &uid, &text);
    if (rc == -ECONNREFUSED || rc == -ENOTDIR)
        return -ENOENT;
    if (rc == 0 && !is_trusted(uid, also))
        rc = -EPERM;
    if (rc == 0)
        *out = json_loads(text, JSON_REJECT_DUPLICATES, NULL);
    if (rc == 0 && !json_is_object(*out)) { /* json_is_object is a macro that evaluates its argument twice */
        json_decref(*out);
        *out = NULL;
        rc = -EPROTO;
    }
    free(text);
    return rc;
}

/* Asks the socket of that name in the directories of sockets. */
static int ask_named(const char *name, const char *request, uid_t also, json_t **out)
{
    char directory[PATH_MAX], path[2 * PATH_MAX];
    for (unsigned i = 0;; i++) {
        int rc = swn_control_directory(i, directory, sizeof directory);
        if (rc == -ENOENT)
            return rc;
        snprintf(path, sizeof path, "%s/%s", directory, name);
        rc = rc ? -ENOENT : ask(path, request, also, out);
        if (rc != -ENOENT)
            return rc;
    }
}

int ctl_ask_daemon(const char *request, json_t **out)
{
    const char *named = getenv("SWAPNET_DAEMON");
    if (named && !strcmp(named, "off"))
        return -ENOENT;
    uid_t nobody_else = (uid_t)-1;
    return named && named[0] == '/' ? ask(named, request, nobody_else, out)
                                    : ask_named(SWN_DAEMON_SOCKET, request, nobody_else, out);
}

/* Root may ask the process of any user, and the daemon that the process uses. */
static uid_t owner_of(const char *pid)
{
    uid_t uid;
    return swn_process_user((pid_t)atoi(pid), &uid) ? (uid_t)-1 : uid;
}

int ctl_trusts(uid_t uid, const char *pid)
{
    return is_trusted(uid, owner_of(pid));
}

int ctl_ask_process(const char *pid, const char *request, json_t **out)
{
    char name[64];
    snprintf(name, sizeof name, "%s.sock", pid);
    return ask_named(name, request, owner_of(pid), out);
}

int ctl_ask_daemon_of(const char *pid, const char *request, json_t **out)
{
    const char *named = getenv("SWAPNET_DAEMON"), *path = NULL;
    json_t *status = NULL;
    if (named && !strcmp(named, "off"))
        return -ENOENT;
    if (!ctl_ask_process(pid, "{\"op\":\"status\"}", &status))
        path = json_string_value(json_object_get(status, "daemon_socket"));
    int rc = path && path[0] == '/' ? ask(path, request, owner_of(pid), out) : ctl_ask_daemon(request, out);
    json_decref(status);
    return rc;
}

/* ---- total and drain ---- */

/* Takes the format and `words` arguments. 0, 1 when help was shown, -EINVAL. */
static int take_words(int argc, char **argv, int words, int *format)
{
    int rc = swn_cli_only_format(argc, argv, SWN_CLI_CSV, format);
    if (rc)
        return rc;
    if (argc - optind != words) {
        swn_cli_error("%s; see 'swapnetctl help %s'", argc - optind < words ? "something is missing" : "too many words",
                      argv[0]);
        return -EINVAL;
    }
    return 0;
}

/* The daemon's answer, or NULL after printing why there is none. */
static json_t *tell(const char *request)
{
    json_t *answer = NULL;
    int rc = ctl_ask_daemon(request, &answer);
    const char *error = json_string_value(json_object_get(answer, "error"));
    if (rc == -ENOENT)
        swn_cli_error("no swapnetd is running");
    else if (rc)
        swn_cli_error("swapnetd does not answer: %s", strerror(-rc));
    else if (error)
        swn_cli_error("swapnetd: %s", error);
    if (rc || error) {
        json_decref(answer);
        return NULL;
    }
    return answer;
}

/* The processes whose needs keep the leases above the total. */
static void print_keepers(const json_t *answer)
{
    char mib[32];
    size_t i;
    json_t *keeper;
    json_array_foreach(json_object_get(answer, "keepers"), i, keeper)
    {
        const char *text = json_string_value(json_object_get(keeper, "name"));
        if (!i)
            printf("above the total until some of these end, as they need so much, or are away and hold it:\n");
        printf("%7" JSON_INTEGER_FORMAT " ", json_integer_value(json_object_get(keeper, "pid")));
        swn_cli_print_name(stdout, text ? text : "?", 16);
        printf(" %12s%s\n", swn_format_mib(mib, (uint64_t)json_integer_value(json_object_get(keeper, "bytes"))),
               json_is_true(json_object_get(keeper, "away")) ? "  away" : "");
    }
}

static void print_total(const json_t *answer)
{
    char a[32], b[32];
    uint64_t bytes = (uint64_t)json_integer_value(json_object_get(answer, "total_bytes"));
    uint64_t leased = (uint64_t)json_integer_value(json_object_get(answer, "leased_bytes"));
    printf("total %s, leased %s%s\n", swn_format_mib(a, bytes), swn_format_mib(b, leased),
           leased > bytes ? ": processes are giving back" : "");
    print_keepers(answer);
}

/* Of the keepers, prints the pids. */
static void print_total_csv(json_t *answer)
{
    static const char *const keys[] = {"total_bytes", "leased_bytes", "least_bytes", "keepers"};
    size_t i;
    json_t *keeper, *pids = json_array();
    json_array_foreach(json_object_get(answer, "keepers"), i, keeper)
        json_array_append(pids, json_object_get(keeper, "pid"));
    json_object_set_new(answer, "keepers", pids);
    ctl_print_csv_row(keys, sizeof keys / sizeof *keys, answer);
}

int ctl_total(int argc, char **argv)
{
    uint64_t bytes = 0;
    char request[96];
    int format = SWN_CLI_TABLE, rc = take_words(argc, argv, 1, &format);
    if (rc)
        return rc == 1 ? SWN_CLI_OK : SWN_CLI_USAGE;
    rc = strcmp(argv[optind], "auto") ? swn_parse_size(argv[optind], &bytes) : 0;
    if (rc == -ERANGE || bytes > SWN_MEMORY_MOST_BYTES) {
        swn_cli_error("total '%s' is too large: it can be " SWN_MEMORY_MOST_TEXT " at most", argv[optind]);
        return SWN_CLI_USAGE;
    }
    if (rc || (!bytes && strcmp(argv[optind], "auto"))) {
        swn_cli_error("'%s' is not a total: use e.g. 256M or 2G, or auto", argv[optind]);
        return SWN_CLI_USAGE;
    }
    snprintf(request, sizeof request, "{\"op\":\"total\",\"budget\":%" PRIu64 "}", bytes);
    json_t *answer = tell(request);
    if (!answer)
        return SWN_CLI_FAILURE;
    if (format == SWN_CLI_JSON)
        ctl_print_json(answer);
    else if (format == SWN_CLI_CSV)
        print_total_csv(answer);
    else
        print_total(answer);
    json_decref(answer);
    return SWN_CLI_OK;
}

int ctl_drain(int argc, char **argv)
{
    static const char *const keys[] = {"draining", "processes"};
    int format = SWN_CLI_TABLE, rc = take_words(argc, argv, 0, &format);
    if (rc)
        return rc == 1 ? SWN_CLI_OK : SWN_CLI_USAGE;
    json_t *answer = tell("{\"op\":\"drain\"}");
    if (!answer)
        return SWN_CLI_FAILURE;
    if (format == SWN_CLI_JSON)
        ctl_print_json(answer);
    else if (format == SWN_CLI_CSV)
        ctl_print_csv_row(keys, sizeof keys / sizeof *keys, answer);
    else
        printf("swapnetd takes no more processes, and ends when %" JSON_INTEGER_FORMAT " more have ended\n",
               json_integer_value(json_object_get(answer, "processes")));
    json_decref(answer);
    return SWN_CLI_OK;
}
