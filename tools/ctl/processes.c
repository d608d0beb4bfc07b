/* tools/ctl/processes.c - the processes under swapnet, as they report themselves through their own sockets, and as the
 * daemon reports them, if there is one. It removes no socket file: a later process takes over one that no process
 * listens on. */
#define _GNU_SOURCE
#include <dirent.h>
#include <errno.h>
#include <inttypes.h>
#include <jansson.h>
#include <limits.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tools/ctl/ctl.h"
#include "tools/ctl/output.h"
#include "tools/ctl/processes.h"
#include "scheduler/protocol/control.h"
#include "base/size.h"
#include "base/errmsg.h"

/* A server tells of each of its models. */
#define ANSWER_MOST (8 << 20)

/* The fields of a process, in the order of JSON and CSV; fields with a title are in the table. */
enum kind { TEXT, COUNT, BYTES, NANOSECONDS, URGENCY };

static const struct column {
    const char *key;
    enum kind kind;
    const char *title;
    int width;
} columns[] = {
    {"pid", COUNT, "PID", 7},
    {"name", TEXT, "NAME", -16},
    {"budget_bytes", BYTES, "BUDGET", 12},
    {"demand_bytes", BYTES, "DEMAND", 12},
    {"resident_bytes", BYTES, "RESIDENT", 12},
    {"peak_resident_bytes", BYTES, "PEAK", 12},
    {"urgency", URGENCY, NULL, 0},
    {"state", TEXT, "STATE", -8},
    {"streamed_bytes", BYTES, "STREAMED", 14},
    {"swap_ins", COUNT, NULL, 0},
    {"stall_ns", NANOSECONDS, "WAITED", 10},
    {"fetch_path", TEXT, "FETCH", -1},
    {"torch_version", TEXT, NULL, 0},
    {"unified", TEXT, NULL, 0},
    {"device_budget_bytes", BYTES, NULL, 0},
    {"device_resident_bytes", BYTES, NULL, 0},
    {"device_kept_bytes", BYTES, NULL, 0},
};
#define COLUMNS (sizeof(columns) / sizeof(columns[0]))

/* ---- collecting ---- */

/* The fields of `answer` that are shown, as one entry of "processes"; NULL when it is no statistics document. */
static json_t *entry(json_t *answer)
{
    if (!json_is_integer(json_object_get(answer, "pid")))
        return NULL;
    json_t *e = json_object();
    for (size_t i = 0; i < COLUMNS && e; i++) {
        json_t *value = json_object_get(answer, columns[i].key);
        int good = columns[i].kind == TEXT      ? json_is_string(value)
                   : columns[i].kind == URGENCY ? json_is_number(value)
                                                : json_is_integer(value);
        if (columns[i].kind == URGENCY)
            value = json_real(good ? json_number_value(value) : 1.0);
        else
            value = good ? json_incref(value) : json_null();
        json_object_set_new(e, columns[i].key, value);
    }
    if (e && json_is_object(json_object_get(answer, "serve")))
        json_object_set(e, "serve", json_object_get(answer, "serve"));
    return e;
}

static json_int_t pid_of(const json_t *process)
{
    return json_integer_value(json_object_get(process, "pid"));
}

static void note(const struct ctl_filter *r, const char *pid, enum ctl_seen seen)
{
    for (int i = 0; r->seen && i < r->pid_count; i++)
        if (strcmp(r->pids[i], pid) == 0 && r->seen[i] < (char)seen)
            r->seen[i] = (char)seen;
}

/* Prints why a process that is there does not show itself. */
__attribute__((format(printf, 3, 4))) static void complain(const struct ctl_filter *r, const char *pid,
                                                           const char *format, ...)
{
    char text[256];
    va_list ap;
    va_start(ap, format);
    vsnprintf(text, sizeof text, format, ap);
    va_end(ap);
    swn_cli_error("%s", text);
    note(r, pid, CTL_SILENT);
}

static void add(const struct ctl_filter *r, json_t *processes, json_t *e, const char *pid)
{
    json_array_append_new(processes, e);
    note(r, pid, CTL_ANSWERED);
}

static const char status[] = "{\"op\":\"status\"}";

/* A process whose socket is there. */
struct asked {
    char pid[16], path[PATH_MAX];
};

/* A process that ends during the request closes the connection. A second request then finds it gone, or shows that it
 * closed for another reason. */
static void ask_again(struct swn_control_call *call)
{
    if (call->rc == -ECONNRESET || call->rc == -EPIPE || call->rc == -EPROTO)
        call->rc = swn_control_ask(call->path, status, ANSWER_MOST, &call->uid, &call->answer);
}

/* Programs of other users are there for those who name them only. */
static void take(const struct ctl_filter *r, json_t *processes, struct swn_control_call *call, const char *pid)
{
    ask_again(call);
    int rc = call->rc == 0 && !ctl_trusts(call->uid, pid) ? -EPERM : call->rc;
    int is_anothers = rc == -EACCES || rc == -EPERM, is_gone = rc == -ECONNREFUSED || rc == -ENOENT;
    json_t *answer = rc == 0 ? json_loads(call->answer, JSON_REJECT_DUPLICATES, NULL) : NULL;
    int is_its = json_integer_value(json_object_get(answer, "schema")) == 1 && pid_of(answer) == atoll(pid);
    json_t *e = is_its ? entry(answer) : NULL;
    if (e)
        add(r, processes, e, pid);
    else if (rc && !is_gone && !(is_anothers && !r->pid_count))
        complain(r, pid, "process %s does not answer: %s", pid, strerror(-rc));
    else if (!rc)
        complain(r, pid, "process %s gives an answer this swapnetctl does not understand", pid);
    json_decref(answer);
}

/* 1 when no process was named or this one was. */
static int wanted(const struct ctl_filter *r, const char *pid)
{
    int hit = r->pid_count == 0;
    for (int i = 0; i < r->pid_count; i++)
        hit |= strcmp(r->pids[i], pid) == 0;
    return hit;
}

int ctl_is_pid(const char *text)
{
    return *text >= '1' && *text <= '9' && strspn(text, "0123456789") == strlen(text);
}

/* Whether a name in a directory of sockets is that of a process that is wanted; out->pid is its number then. */
static int is_wanted(const struct ctl_filter *r, const char *name, struct asked *out)
{
    const char *dot = strstr(name, ".sock");
    size_t len = dot ? (size_t)(dot - name) : 0;
    if (!dot || dot[5] || len >= sizeof out->pid)
        return 0;
    memcpy(out->pid, name, len);
    out->pid[len] = '\0';
    return ctl_is_pid(out->pid) && wanted(r, out->pid);
}

/* The processes with a socket in the directory, for free(). */
static struct asked *list(const struct ctl_filter *r, const char *directory, size_t *count)
{
    struct asked *all = NULL, one;
    size_t room = 0;
    DIR *d = opendir(directory);
    *count = 0;
    for (struct dirent *e; d && (e = readdir(d));) {
        if (!is_wanted(r, e->d_name, &one) ||
            snprintf(one.path, sizeof one.path, "%s/%s", directory, e->d_name) >= (int)sizeof one.path)
            continue;
        if (*count == room) {
            struct asked *grown = realloc(all, (room = room ? 2 * room : 16) * sizeof *grown);
            if (!grown)
                break;
            all = grown;
        }
        all[(*count)++] = one;
    }
    if (d)
        closedir(d);
    return all;
}

static void scan(const struct ctl_filter *r, json_t *processes, const char *directory)
{
    struct swn_control_call calls[SWN_CONTROL_AT_ONCE];
    size_t count, n;
    struct asked *all = list(r, directory, &count);
    /* Anybody's sockets may lie there: no more answers are held than are asked for at once. */
    for (size_t first = 0; first < count; first += n) {
        n = count - first < SWN_CONTROL_AT_ONCE ? count - first : SWN_CONTROL_AT_ONCE;
        for (size_t i = 0; i < n; i++)
            calls[i].path = all[first + i].path;
        swn_control_ask_all(calls, n, status, ANSWER_MOST);
        for (size_t i = 0; i < n; i++) {
            take(r, processes, &calls[i], all[first + i].pid);
            free(calls[i].answer);
        }
    }
    free(all);
}

static int by_pid(const void *a, const void *b)
{
    json_int_t x = pid_of(*(json_t *const *)a), y = pid_of(*(json_t *const *)b);
    return (x > y) - (x < y);
}

/* readdir has no useful order. */
static json_t *sorted(json_t *processes)
{
    size_t n = json_array_size(processes);
    json_t **all = calloc(n + 1, sizeof(json_t *)), *out = json_array();
    for (size_t i = 0; all && i < n; i++)
        all[i] = json_array_get(processes, i);
    if (all)
        qsort(all, n, sizeof(json_t *), by_pid);
    for (size_t i = 0; all && i < n; i++)
        json_array_append(out, all[i]);
    free(all);
    json_decref(processes);
    return out;
}

static json_t *find(json_t *processes, json_int_t pid)
{
    size_t i;
    json_t *process;
    json_array_foreach(processes, i, process) if (pid_of(process) == pid) return process;
    return NULL;
}

/* For leases the daemon's numbers replace the process's own; processes that do not answer are shown as the daemon sees
 * them. */
static void merge(const struct ctl_filter *r, json_t *processes, json_t *theirs)
{
    static const char *const rules[] = {"budget_bytes", "urgency", "state"};
    size_t i;
    json_t *known;
    json_array_foreach(theirs, i, known)
    {
        char pid[24];
        snprintf(pid, sizeof pid, "%" JSON_INTEGER_FORMAT, pid_of(known));
        json_t *e = find(processes, pid_of(known)), *fresh = e || !wanted(r, pid) ? NULL : entry(known);
        const char *own = json_string_value(json_object_get(e, "state"));
        for (size_t k = 0; e && k < sizeof rules / sizeof *rules; k++)
            if (strcmp(rules[k], "state") || (own && !strcmp(own, "running")))
                json_object_set(e, rules[k], json_object_get(known, rules[k]));
        if (fresh)
            json_array_append_new(processes, fresh);
    }
}

json_t *ctl_collect(const struct ctl_filter *r)
{
    json_t *processes = json_array(), *daemon = NULL;
    char directory[PATH_MAX];
    for (unsigned i = 0;; i++) {
        int rc = swn_control_directory(i, directory, sizeof(directory));
        if (rc == -ENOENT)
            break;
        if (rc == 0)
            scan(r, processes, directory);
    }
    int rc = ctl_ask_daemon("{\"op\":\"list\"}", &daemon);
    int is_anothers = rc == -EACCES || rc == -EPERM;
    if (rc && rc != -ENOENT && !(is_anothers && !r->pid_count))
        swn_cli_error("swapnetd does not answer: %s", strerror(-rc));
    json_t *root = json_pack("{s:i s:n}", "schema", 1, "total_bytes");
    static const char *const shown[] = {"total_bytes", "leased_bytes", "policy", "follows_memory", "draining"};
    for (size_t i = 0; daemon && i < sizeof shown / sizeof *shown; i++)
        json_object_set(root, shown[i], json_object_get(daemon, shown[i]));
    merge(r, processes, json_object_get(daemon, "processes"));
    json_object_set_new(root, "processes", sorted(processes));
    json_decref(daemon);
    return root;
}

/* ---- printing ---- */

/* One cell as text; names are untrusted, so their control characters are replaced. */
static const char *cell(char *buf, size_t size, json_t *value, enum kind kind)
{
    char mib[32];
    if (json_is_null(value))
        snprintf(buf, size, "-");
    else if (kind == TEXT)
        snprintf(buf, size, "%s", json_string_value(value));
    else if (kind == BYTES)
        snprintf(buf, size, "%s", swn_format_mib(mib, (uint64_t)json_integer_value(value)));
    else if (kind == NANOSECONDS)
        snprintf(buf, size, "%.3f s", (double)json_integer_value(value) / 1e9);
    else
        snprintf(buf, size, "%" JSON_INTEGER_FORMAT, json_integer_value(value));
    swn_one_line(buf);
    return buf;
}

static void print_daemon(const json_t *root)
{
    char a[32], b[32];
    uint64_t total = (uint64_t)json_integer_value(json_object_get(root, "total_bytes"));
    uint64_t leased = (uint64_t)json_integer_value(json_object_get(root, "leased_bytes"));
    const char *policy = json_string_value(json_object_get(root, "policy"));
    if (!policy)
        return;
    printf("swapnetd: %s of %s leased, policy ", swn_format_mib(a, leased), swn_format_mib(b, total));
    swn_cli_print_name(stdout, policy, 0);
    printf("%s\n", json_is_true(json_object_get(root, "draining")) ? ", draining" : "");
}

/* Device memory beyond the budgets, which the process keeps. */
static void print_kept(const json_t *process)
{
    char text[32];
    uint64_t kept = (uint64_t)json_integer_value(json_object_get(process, "device_kept_bytes"));
    if (kept)
        printf("%7s beyond its budgets: %s of weights that a device keeps for good\n", "", swn_format_mib(text, kept));
}

static void print_table(const json_t *root)
{
    json_t *processes = json_object_get(root, "processes");
    size_t i;
    json_t *process;
    char buf[256];
    print_daemon(root);
    for (size_t c = 0; c < COLUMNS; c++)
        if (columns[c].title)
            printf("%s%*s", c ? " " : "", columns[c].width, columns[c].title);
    putchar('\n');
    json_array_foreach(processes, i, process)
    {
        for (size_t c = 0; c < COLUMNS; c++)
            if (columns[c].title)
                printf("%s%*s", c ? " " : "", columns[c].width,
                       cell(buf, sizeof(buf), json_object_get(process, columns[c].key), columns[c].kind));
        putchar('\n');
        print_kept(process);
    }
    json_array_foreach(processes, i, process) ctl_print_server(process);
}

static void print_csv(const json_t *root)
{
    const char *keys[COLUMNS];
    for (size_t c = 0; c < COLUMNS; c++)
        keys[c] = columns[c].key;
    ctl_print_csv(keys, COLUMNS, json_object_get(root, "processes"));
}

void ctl_print(json_t *root, int format)
{
    static void (*const print[])(const json_t *) = {print_table, ctl_print_json, print_csv};
    print[format](root);
}
