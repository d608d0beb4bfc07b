/* tools/ctl/servers.c - what `swapnetctl status` shows of a swapnet-serve beside the line of its process: its engines
 * and its models. All of it is the server's word, so each value is looked at for its type, and texts go through cell.
 */
#define _GNU_SOURCE
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/errmsg.h"
#include "base/size.h"
#include "tools/ctl/processes.h"

static uint64_t count_of(const json_t *object, const char *key)
{
    json_int_t n = json_integer_value(json_object_get(object, key));
    return n > 0 ? (uint64_t)n : 0;
}

static const char *bytes_of(char buf[32], const json_t *object, const char *key)
{
    return swn_format_mib(buf, count_of(object, key));
}

/* Cut to the size, which keeps a line of the table short. */
static const char *text_of(char *buf, size_t size, const json_t *object, const char *key)
{
    const char *text = json_string_value(json_object_get(object, key));
    snprintf(buf, size, "%s", text ? text : "-");
    swn_one_line(buf);
    return buf;
}

static const char *number_of(char buf[24], const json_t *object, const char *key)
{
    const json_t *value = json_object_get(object, key);
    if (json_is_integer(value))
        snprintf(buf, 24, "%" JSON_INTEGER_FORMAT, json_integer_value(value));
    else
        snprintf(buf, 24, "-");
    return buf;
}

static void print_engines(const json_t *engines)
{
    char number[24], pid[24], kind[16], state[16], a[32], b[32];
    size_t i;
    json_t *e;
    if (!json_array_size(engines))
        return;
    printf("  %6s %7s %-10s %-8s %12s %12s\n", "ENGINE", "PID", "FOR", "STATE", "BUDGET", "READ");
    json_array_foreach(engines, i, e)
        printf("  %6s %7s %-10s %-8s %12s %12s\n", number_of(number, e, "engine"), number_of(pid, e, "pid"),
               text_of(kind, sizeof kind, e, "kind"), text_of(state, sizeof state, e, "state"),
               bytes_of(a, e, "budget_bytes"), bytes_of(b, e, "read_bytes"));
}

static void print_models(const json_t *models)
{
    char name[65], version[24], state[16], engine[24], a[32], b[32], reason[256];
    size_t i;
    json_t *m;
    if (!json_array_size(models))
        return;
    printf("  %-24s %7s %-11s %6s %12s %12s %9s %7s %6s %7s\n", "MODEL", "VERSION", "STATE", "ENGINE", "WEIGHTS",
           "RESIDENT", "DONE", "FAILED", "QUEUED", "RUNNING");
    json_array_foreach(models, i, m)
    {
        printf("  %-24s %7s %-11s %6s %12s %12s %9" PRIu64 " %7" PRIu64 " %6" PRIu64 " %7" PRIu64 "\n",
               text_of(name, sizeof name, m, "name"), number_of(version, m, "version"),
               text_of(state, sizeof state, m, "state"), number_of(engine, m, "engine"), bytes_of(a, m, "weight_bytes"),
               bytes_of(b, m, "resident_bytes"), count_of(m, "succeeded"), count_of(m, "failed"), count_of(m, "queued"),
               count_of(m, "running"));
        if (json_is_string(json_object_get(m, "reason")))
            printf("    %s\n", text_of(reason, sizeof reason, m, "reason"));
    }
}

void ctl_print_server(const json_t *process)
{
    const json_t *serve = json_object_get(process, "serve");
    char a[32], b[32], c[32], pid[24], port[24], policy[32];
    if (!json_is_object(serve))
        return;
    printf("\nserver %s, port %s: %" PRIu64 " requests, %s for models, %s of %s of its buffer in use, policy %s%s\n",
           number_of(pid, process, "pid"), number_of(port, serve, "port"), count_of(serve, "requests"),
           bytes_of(a, serve, "engine_budget_bytes"), bytes_of(b, serve, "buffer_used_bytes"),
           bytes_of(c, serve, "buffer_bytes"), text_of(policy, sizeof policy, serve, "policy"),
           json_is_true(json_object_get(serve, "draining")) ? ", about to end" : "");
    print_engines(json_object_get(serve, "engines"));
    print_models(json_object_get(serve, "models"));
}
