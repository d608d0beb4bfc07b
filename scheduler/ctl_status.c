/* ctl_status.c - `swapnetctl status`: asks the processes' own sockets and prints what they say. It removes nothing: a
 * socket nobody listens to is its process's to take over. */
#define _GNU_SOURCE
#include <dirent.h>
#include <errno.h>
#include <inttypes.h>
#include <jansson.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "ctl.h"
#include "swn_control.h"
#include "swn_size.h"

/* The fields of a process: in this order in JSON and CSV; those with a title make the table. */
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
};
#define COLUMNS (sizeof(columns) / sizeof(columns[0]))

struct request {
    int format;  /* enum swn_cli_format */
    char **pids; /* as given, each a positive number */
    int pid_count;
};

/* ---- collecting ---- */

/* The fields of `answer` that we show, as one entry of "processes"; NULL when it is no statistics document. */
static json_t *entry(json_t *answer)
{
    if (json_integer_value(json_object_get(answer, "schema")) != 1 || !json_is_integer(json_object_get(answer, "pid")))
        return NULL;
    json_t *e = json_object();
    for (size_t i = 0; i < COLUMNS && e; i++) {
        json_t *value = json_object_get(answer, columns[i].key);
        int good = columns[i].kind == TEXT ? json_is_string(value) : json_is_integer(value);
        if (columns[i].kind == URGENCY)
            value = json_real(1.0); /* every process counts the same until a daemon weighs them */
        else
            value = good ? json_incref(value) : json_null();
        json_object_set_new(e, columns[i].key, value);
    }
    return e;
}

static void ask(json_t *processes, const char *path, const char *pid)
{
    char *text = NULL;
    int rc = swn_control_query(path, "status", &text);
    if (rc == -ECONNREFUSED || rc == -ENOENT)
        return; /* its process is gone */
    json_t *answer = rc == 0 ? json_loads(text, JSON_REJECT_DUPLICATES, NULL) : NULL;
    json_t *e = entry(answer);
    if (e)
        json_array_append_new(processes, e);
    else if (rc)
        swn_cli_error("process %s does not answer: %s", pid, strerror(-rc));
    else
        swn_cli_error("process %s gives an answer this swapnetctl does not understand", pid);
    json_decref(answer);
    free(text);
}

/* 1 when no process was named or this one was. */
static int wanted(const struct request *r, const char *pid)
{
    int hit = r->pid_count == 0;
    for (int i = 0; i < r->pid_count; i++)
        hit |= strcmp(r->pids[i], pid) == 0;
    return hit;
}

static int is_number(const char *text)
{
    return *text >= '1' && *text <= '9' && strspn(text, "0123456789") == strlen(text);
}

static void scan(const struct request *r, json_t *processes, const char *directory)
{
    DIR *d = opendir(directory);
    if (!d)
        return;
    for (struct dirent *e = readdir(d); e; e = readdir(d)) {
        char path[PATH_MAX], pid[16];
        const char *dot = strstr(e->d_name, ".sock");
        size_t len = dot ? (size_t)(dot - e->d_name) : 0;
        if (!dot || dot[5] || len >= sizeof(pid))
            continue;
        memcpy(pid, e->d_name, len);
        pid[len] = '\0';
        int n = snprintf(path, sizeof(path), "%s/%s", directory, e->d_name);
        if (is_number(pid) && wanted(r, pid) && n > 0 && (size_t)n < sizeof(path))
            ask(processes, path, pid);
    }
    closedir(d);
}

static json_int_t pid_of(const json_t *process)
{
    return json_integer_value(json_object_get(process, "pid"));
}

static int by_pid(const void *a, const void *b)
{
    json_int_t x = pid_of(*(json_t *const *)a), y = pid_of(*(json_t *const *)b);
    return (x > y) - (x < y);
}

/* readdir's order means nothing to people. */
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

static json_t *collect(const struct request *r)
{
    json_t *processes = json_array();
    char directory[PATH_MAX];
    for (unsigned i = 0;; i++) {
        int rc = swn_control_directory(i, directory, sizeof(directory));
        if (rc == -ENOENT)
            break;
        if (rc == 0)
            scan(r, processes, directory);
    }
    return sorted(processes);
}

/* ---- printing ---- */

static void print_json(json_t *processes)
{
    json_t *root = json_pack("{s:i, s:n, s:O}", "schema", 1, "total_bytes", "processes", processes);
    char *text = root ? json_dumps(root, JSON_INDENT(2) | JSON_REAL_PRECISION(6)) : NULL;
    if (text)
        puts(text);
    free(text);
    json_decref(root);
}

/* One cell as text; names are a stranger's, so no control character of theirs reaches the terminal. */
static const char *cell(char *buf, size_t size, json_t *value, enum kind kind, int format)
{
    char mib[32];
    if (json_is_null(value))
        snprintf(buf, size, "%s", format == SWN_CLI_TABLE ? "-" : "");
    else if (kind == TEXT)
        snprintf(buf, size, "%s", json_string_value(value));
    else if (kind == URGENCY)
        snprintf(buf, size, "%.1f", json_real_value(value));
    else if (kind == BYTES && format == SWN_CLI_TABLE)
        snprintf(buf, size, "%s", swn_format_mib(mib, (uint64_t)json_integer_value(value)));
    else if (kind == NANOSECONDS && format == SWN_CLI_TABLE)
        snprintf(buf, size, "%.3f s", (double)json_integer_value(value) / 1e9);
    else
        snprintf(buf, size, "%" JSON_INTEGER_FORMAT, json_integer_value(value));
    for (char *p = buf; *p; p++)
        if ((unsigned char)*p < 0x20 || *p == 0x7f)
            *p = '?';
    return buf;
}

static void print_table(json_t *processes)
{
    size_t i;
    json_t *process;
    char buf[256];
    for (size_t c = 0; c < COLUMNS; c++)
        if (columns[c].title)
            printf("%s%*s", c ? " " : "", columns[c].width, columns[c].title);
    putchar('\n');
    json_array_foreach(processes, i, process)
    {
        for (size_t c = 0; c < COLUMNS; c++)
            if (columns[c].title)
                printf(
                    "%s%*s", c ? " " : "", columns[c].width,
                    cell(buf, sizeof(buf), json_object_get(process, columns[c].key), columns[c].kind, SWN_CLI_TABLE));
        putchar('\n');
    }
}

static void print_csv_cell(const char *text)
{
    if (!strpbrk(text, ",\" ")) {
        fputs(text, stdout);
        return;
    }
    putchar('"');
    for (; *text; text++)
        printf("%s%c", *text == '"' ? "\"" : "", *text);
    putchar('"');
}

static void print_csv(json_t *processes)
{
    size_t i;
    json_t *process;
    char buf[1024];
    for (size_t c = 0; c < COLUMNS; c++)
        printf("%s%s", c ? "," : "", columns[c].key);
    putchar('\n');
    json_array_foreach(processes, i, process)
    {
        for (size_t c = 0; c < COLUMNS; c++) {
            if (c)
                putchar(',');
            print_csv_cell(
                cell(buf, sizeof(buf), json_object_get(process, columns[c].key), columns[c].kind, SWN_CLI_CSV));
        }
        putchar('\n');
    }
}

/* ---- the command ---- */

/* 0, 1 when help was shown, or -EINVAL. */
static int take_options(struct request *r, int argc, char **argv)
{
    static const struct option options[] = {
        {"output", required_argument, NULL, 'o'}, {"help", no_argument, NULL, 'h'}, {NULL, 0, NULL, 0}};
    int opt;
    while ((opt = getopt_long(argc, argv, ":o:h", options, NULL)) != -1) {
        if (opt == 'h') {
            swn_cli_help(argv[0]);
            return 1;
        }
        if (opt != 'o')
            swn_cli_bad_option(argv, opt);
        if (opt != 'o' || (r->format = swn_cli_format(optarg, SWN_CLI_CSV)) < 0)
            return -EINVAL;
    }
    r->pids = argv + optind;
    r->pid_count = argc - optind;
    for (int i = 0; i < r->pid_count; i++) {
        if (!is_number(r->pids[i])) {
            swn_cli_error("'%s' is not a process number", r->pids[i]);
            return -EINVAL;
        }
    }
    return 0;
}

/* 1 when each process asked for is among those that answered. */
static int all_found(const struct request *r, json_t *processes)
{
    int all = 1;
    for (int i = 0; i < r->pid_count; i++) {
        size_t k;
        json_t *process;
        int found = 0;
        json_array_foreach(processes, k, process) found |= pid_of(process) == atoll(r->pids[i]);
        if (!found)
            swn_cli_error("no swapnet process %s", r->pids[i]);
        all &= found;
    }
    return all;
}

int ctl_status(int argc, char **argv)
{
    static void (*const print[])(json_t *) = {print_table, print_json, print_csv};
    struct request r = {.format = SWN_CLI_TABLE};
    int rc = take_options(&r, argc, argv);
    if (rc)
        return rc == 1 ? SWN_CLI_OK : SWN_CLI_USAGE;
    json_t *processes = collect(&r);
    print[r.format](processes);
    rc = all_found(&r, processes) ? SWN_CLI_OK : SWN_CLI_FAILURE;
    json_decref(processes);
    return rc;
}
