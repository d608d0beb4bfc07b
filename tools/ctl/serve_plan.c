/* tools/ctl/serve_plan.c - `swapnetctl serve plan`: what a server's models would do with that much memory under that
 * load, by simulating its policy (scheduler/simulation/lane_run.h). What layer groups weigh and take comes from a
 * server that runs, or from a file that has what `swapnetctl status -o json` prints of one. */
#define _GNU_SOURCE
#include <errno.h>
#include <inttypes.h>
#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/errmsg.h"
#include "base/size.h"
#include "scheduler/simulation/lane_run.h"
#include "tools/ctl/ctl.h"
#include "tools/ctl/output.h"
#include "tools/ctl/processes.h"

enum { OPT_POLICY = 256, OPT_DISK, OPT_SEED, OPT_ARRIVALS, OPT_TIME_ERROR, OPT_TURNS };

struct model {
    char *name; /* the argument, cut at its first comma */
    struct swn_lane_group groups[SWN_LANE_GROUPS];
    struct swn_lane_outcome outcome;
    uint64_t weight_bytes;
};

struct plan {
    const char *from;
    uint64_t budget, disk; /* disk: bytes a second; 0: as measured */
    double seconds, time_error;
    uint32_t turns; /* 0: as many as the server lets */
    enum swn_lane_spacing spacing;
    uint64_t seed;
    enum swn_lane_policy policy;
    int format;
    struct model *models;
    struct swn_lane_load *loads;
    uint32_t count;
    struct swn_lane_totals totals;
};

/* ---- options ---- */

static int number(const char *text, double least, double most, double *out)
{
    char *end;
    *out = strtod(text, &end);
    return end != text && !*end && *out >= least && *out <= most ? 0 : -EINVAL;
}

/* NAME,rate=R[,deadline=MS] */
static int take_model(struct model *m, struct swn_lane_load *load, char *text)
{
    char *save = NULL;
    double ms = 0;
    int rc = 0;
    m->name = strtok_r(text, ",", &save);
    for (char *part; m->name && !rc && (part = strtok_r(NULL, ",", &save));) {
        if (!strncmp(part, "rate=", 5))
            rc = number(part + 5, 1e-6, 1e6, &load->rate_per_s);
        else if (!strncmp(part, "deadline=", 9))
            rc = number(part + 9, 0.001, 1e9, &ms);
        else
            rc = -EINVAL;
        if (rc)
            swn_cli_error("'%s' of '%s' is not right: use rate=REQUESTS A SECOND, from 0.000001 to 1000000, or "
                          "deadline=MILLISECONDS, from 0.001 to 1000000000",
                          part, m->name);
    }
    if (!rc && (!m->name || !(load->rate_per_s > 0))) {
        swn_cli_error("'%s' needs a rate: NAME,rate=REQUESTS A SECOND", m->name ? m->name : "");
        rc = -EINVAL;
    }
    load->deadline_ns = (uint64_t)(ms * 1e6);
    return rc;
}

static int take_models(struct plan *p, char **words, int n)
{
    int rc = 0;
    if (n < 1 || n > SWN_LANE_RUN_MODELS) {
        swn_cli_error("name from 1 to %d models, each with its rate", SWN_LANE_RUN_MODELS);
        return -EINVAL;
    }
    p->count = (uint32_t)n;
    p->models = calloc((size_t)n, sizeof *p->models);
    p->loads = calloc((size_t)n, sizeof *p->loads);
    if (!p->models || !p->loads)
        return -ENOMEM;
    for (int i = 0; i < n && !rc; i++) {
        rc = take_model(&p->models[i], &p->loads[i], words[i]);
        for (int k = 0; k < i && !rc; k++)
            if (strcmp(p->models[k].name, p->models[i].name) == 0) {
                swn_cli_error("model %s is named twice: give it the sum of both rates", p->models[i].name);
                rc = -EINVAL; /* two would have its weights in memory twice */
            }
    }
    return rc;
}

static int take_spacing(struct plan *p, const char *value)
{
    static const char *const names[SWN_LANE_SPACINGS] = {"poisson", "pareto", "constant"};
    unsigned i = 0;
    while (i < SWN_LANE_SPACINGS && strcmp(names[i], value) != 0)
        i++;
    p->spacing = i;
    return i < SWN_LANE_SPACINGS ? 0 : -EINVAL;
}

static int take_size(const char *value, uint64_t *out)
{
    return swn_parse_size(value, out) || !*out || *out > SWN_MEMORY_MOST_BYTES ? -EINVAL : 0;
}

/* What an option is called, and what it takes. */
struct wanted {
    int opt;
    const char *name, *values;
};

static int say_wrong(int opt, const char *value)
{
    static const struct wanted all[] = {
        {'b', "budget", "a size up to " SWN_MEMORY_MOST_TEXT ", e.g. 256M"},
        {OPT_DISK, "disk", "a size up to " SWN_MEMORY_MOST_TEXT ", e.g. 500M"},
        {'d', "duration", "seconds, from 0.001 to 1000000"},
        {OPT_SEED, "seed", "a number from 0 to 1000000000"},
        {OPT_ARRIVALS, "arrivals", "poisson, pareto or constant"},
        {OPT_TIME_ERROR, "time-error", "a part from 0 to 0.99"},
        {OPT_TURNS, "turns", "a number from 1 to 500"},
        {OPT_POLICY, "policy", NULL},
    };
    char names[256] = "";
    unsigned i = 0;
    _Static_assert(SWN_LANE_REQUESTS == 500, "as --turns says");

    while (all[i].opt != opt)
        i++;
    for (int k = 0; !all[i].values && k < SWN_LANE_POLICIES; k++) {
        size_t length = strlen(names);
        snprintf(names + length, sizeof names - length, "%s%s", k ? ", " : "one of ",
                 swn_lane_policy_name((enum swn_lane_policy)k));
    }
    swn_cli_error("--%s '%s' is not right: use %s", all[i].name, value, all[i].values ? all[i].values : names);
    return -EINVAL;
}

static int take_option(struct plan *p, int opt, const char *value)
{
    double seed = 0, turns = 0;
    int rc = 0;
    if (opt == 'f')
        p->from = value;
    else if (opt == 'b')
        rc = take_size(value, &p->budget);
    else if (opt == OPT_DISK)
        rc = take_size(value, &p->disk);
    else if (opt == 'd')
        rc = number(value, 0.001, 1e6, &p->seconds);
    else if (opt == OPT_SEED)
        rc = number(value, 0, 1e9, &seed);
    else if (opt == OPT_ARRIVALS)
        rc = take_spacing(p, value);
    else if (opt == OPT_TIME_ERROR)
        rc = number(value, 0, 0.99, &p->time_error);
    else if (opt == OPT_TURNS)
        rc = number(value, 1, SWN_LANE_REQUESTS, &turns);
    else if (opt == OPT_POLICY)
        rc = swn_lane_policy_parse(value, &p->policy);
    else
        return (p->format = swn_cli_format(value, SWN_CLI_CSV)) < 0 ? -EINVAL : 0;
    if (opt == OPT_SEED)
        p->seed = (uint64_t)seed;
    if (opt == OPT_TURNS)
        p->turns = (uint32_t)turns;
    return rc ? say_wrong(opt, value) : 0;
}

/* 0; 1 when help was shown; -EINVAL, -ENOMEM. */
static int take_options(struct plan *p, int argc, char **argv)
{
    static const struct option options[] = {
        {"from", required_argument, NULL, 'f'},
        {"budget", required_argument, NULL, 'b'},
        {"duration", required_argument, NULL, 'd'},
        {"policy", required_argument, NULL, OPT_POLICY},
        {"disk", required_argument, NULL, OPT_DISK},
        {"seed", required_argument, NULL, OPT_SEED},
        {"arrivals", required_argument, NULL, OPT_ARRIVALS},
        {"time-error", required_argument, NULL, OPT_TIME_ERROR},
        {"turns", required_argument, NULL, OPT_TURNS},
        {"output", required_argument, NULL, 'o'},
        {"help", no_argument, NULL, 'h'},
        {NULL, 0, NULL, 0},
    };
    int opt, rc = 0;
    while (!rc && (opt = getopt_long(argc, argv, ":f:b:d:o:h", options, NULL)) != -1) {
        if (opt == 'h')
            return swn_cli_help("serve"), 1;
        if (opt == '?' || opt == ':') {
            swn_cli_bad_option(argv, opt);
            rc = -EINVAL;
        } else {
            rc = take_option(p, opt, optarg);
        }
    }
    if (!rc && (!p->from || !p->budget)) {
        swn_cli_error("%s is missing; see 'swapnetctl help serve'", p->from ? "--budget" : "--from");
        rc = -EINVAL;
    }
    return rc ? rc : take_models(p, argv + optind, argc - optind);
}

/* ---- what is known of the models ---- */

/* The object of a server, of this document or of its first process that has one; NULL: there is none. */
static const json_t *server_in(const json_t *document)
{
    const json_t *serve = json_object_get(document, "serve"), *process;
    size_t i;
    if (json_is_object(serve))
        return serve;
    json_array_foreach(json_object_get(document, "processes"), i,
                       process) if (json_is_object(json_object_get(process, "serve"))) return json_object_get(process,
                                                                                                              "serve");
    return json_is_array(json_object_get(document, "models")) ? document : NULL;
}

/* NULL: the reason was printed. */
static json_t *read_document(const char *from)
{
    json_t *document = NULL;
    json_error_t why;
    if (ctl_is_pid(from)) {
        int rc = ctl_ask_process(from, "{\"op\":\"status\"}", &document);
        if (rc)
            swn_cli_error("process %s does not answer: %s", from, strerror(-rc));
    } else if (!(document = json_load_file(from, JSON_REJECT_DUPLICATES, &why))) {
        swn_cli_error("%s: %s", from, why.text);
    }
    if (document && !server_in(document)) {
        swn_cli_error("%s has nothing of a server's models", from);
        json_decref(document);
        document = NULL;
    }
    return document;
}

/* 1: there is a number of 0 or more. */
static int take_count(const json_t *object, const char *key, uint64_t *out)
{
    const json_t *value = json_object_get(object, key);
    double n = json_number_value(value);
    if (!json_is_number(value) || !(n >= 0 && n <= 1e13))
        return 0;
    *out = (uint64_t)n;
    return 1;
}

/* 0, or -EINVAL after printing what is wrong. */
static int take_groups(struct model *m, struct swn_lane_load *load, const json_t *groups)
{
    size_t n = json_array_size(groups);
    if (!n || n > SWN_LANE_GROUPS) {
        swn_cli_error("model %s has %zu layer groups there; from 1 to %d can be planned with", m->name, n,
                      SWN_LANE_GROUPS);
        return -EINVAL;
    }
    for (size_t g = 0; g < n; g++) {
        const json_t *group = json_array_get(groups, g);
        if (!take_count(group, "weight_bytes", &m->groups[g].weight_bytes) ||
            !take_count(group, "compute_ns", &m->groups[g].compute_ns)) {
            swn_cli_error("model %s: layer group %zu has no weight_bytes, or no compute_ns: it has not run yet",
                          m->name, g);
            return -EINVAL;
        }
        take_count(group, "activation_bytes", &m->groups[g].activation_bytes); /* 0 where it is not said */
        if (g) /* a request that has not begun holds nothing */
            take_count(group, "state_bytes", &m->groups[g].state_bytes);
        m->weight_bytes += m->groups[g].weight_bytes;
    }
    load->model = (struct swn_lane_model){.groups = m->groups, .group_count = (uint32_t)n};
    return 0;
}

/* The newest version of that name. */
static const json_t *model_named(const json_t *models, const char *name)
{
    const json_t *m, *found = NULL;
    size_t i;
    json_array_foreach(models, i, m)
    {
        const char *its = json_string_value(json_object_get(m, "name"));
        if (its && !strcmp(its, name) &&
            (!found ||
             json_integer_value(json_object_get(m, "version")) > json_integer_value(json_object_get(found, "version"))))
            found = m;
    }
    return found;
}

static int read_models(struct plan *p)
{
    json_t *document = read_document(p->from);
    const json_t *serve = server_in(document), *models = json_object_get(serve, "models"), *m;
    int rc = document ? 0 : -EINVAL;
    if (!rc && !p->disk && !take_count(serve, "disk_bytes_per_s", &p->disk)) {
        swn_cli_error("nothing says how fast the disk is: give --disk SIZE, in a second");
        rc = -EINVAL;
    }
    for (uint32_t i = 0; i < p->count && !rc; i++) {
        m = model_named(models, p->models[i].name);
        if (!m)
            swn_cli_error("there is no model %s", p->models[i].name);
        rc = m ? take_groups(&p->models[i], &p->loads[i], json_object_get(m, "groups")) : -EINVAL;
    }
    json_decref(document);
    return rc;
}

/* ---- the answer ---- */

static double part(uint64_t a, uint64_t b)
{
    return b ? (double)a / (double)b : 0;
}

/* Of all that came: done, and not after the deadline. */
static double on_time(const struct swn_lane_outcome *o)
{
    return part(o->done - o->late, o->arrived);
}

static json_t *model_json(const struct plan *p, uint32_t i)
{
    const struct model *m = &p->models[i];
    const struct swn_lane_outcome *o = &m->outcome;
    return json_pack("{s:s s:f s:f s:I s:f s:I s:I s:I s:I s:f s:f s:f s:f s:f s:f}", "name", m->name, "rate",
                     p->loads[i].rate_per_s, "deadline_s", (double)p->loads[i].deadline_ns / 1e9, "weight_bytes",
                     (json_int_t)m->weight_bytes, "resident_bytes", o->resident_bytes, "requests",
                     (json_int_t)o->arrived, "done", (json_int_t)o->done, "dropped", (json_int_t)o->dropped, "refused",
                     (json_int_t)o->refused, "on_time", on_time(o), "batch", part(o->members, o->batches),
                     "mean_latency_s", o->mean_ns / 1e9, "p50_latency_s", o->p50_ns / 1e9, "p95_latency_s",
                     o->p95_ns / 1e9, "p99_latency_s", o->p99_ns / 1e9);
}

static json_t *models_json(const struct plan *p)
{
    json_t *list = json_array();
    for (uint32_t i = 0; i < p->count; i++)
        json_array_append_new(list, model_json(p, i));
    return list;
}

static double span_s(const struct plan *p)
{
    return (double)p->totals.span_ns / 1e9;
}

static double read_per_s(const struct plan *p)
{
    return p->totals.span_ns ? (double)p->totals.read_bytes / span_s(p) : 0;
}

static int print_json(const struct plan *p)
{
    json_t *root = json_pack("{s:i s:I s:I s:s s:f s:f s:f s:o}", "schema", 1, "budget_bytes", (json_int_t)p->budget,
                             "disk_bytes_per_s", (json_int_t)p->disk, "policy", swn_lane_policy_name(p->policy),
                             "simulated_s", span_s(p), "busy", part(p->totals.busy_ns, p->totals.span_ns),
                             "read_bytes_per_s", read_per_s(p), "models", models_json(p));
    if (!root) {
        swn_cli_error("cannot put that into JSON");
        return -ENOMEM;
    }
    ctl_print_json(root);
    json_decref(root);
    return 0;
}

static int print_csv(const struct plan *p)
{
    static const char *const keys[] = {"name",     "rate",           "deadline_s",    "weight_bytes",  "resident_bytes",
                                       "requests", "done",           "dropped",       "refused",       "on_time",
                                       "batch",    "mean_latency_s", "p50_latency_s", "p95_latency_s", "p99_latency_s"};
    json_t *rows = models_json(p);
    ctl_print_csv(keys, sizeof keys / sizeof *keys, rows);
    json_decref(rows);
    return 0;
}

static int print_table(const struct plan *p)
{
    char a[32], b[32];
    printf("%-24s %9s %12s %12s %6s %10s %10s %10s %10s %8s\n", "MODEL", "RATE/S", "WEIGHTS", "RESIDENT", "BATCH",
           "MEAN MS", "P50 MS", "P95 MS", "P99 MS", "ON TIME");
    for (uint32_t i = 0; i < p->count; i++) {
        const struct model *m = &p->models[i];
        const struct swn_lane_outcome *o = &m->outcome;
        swn_cli_print_name(stdout, m->name, 24);
        printf(" %9.3g %12s %12s %6.2f %10.2f %10.2f %10.2f %10.2f %7.2f%%\n", p->loads[i].rate_per_s,
               swn_format_mib(a, m->weight_bytes), swn_format_mib(b, (uint64_t)o->resident_bytes),
               part(o->members, o->batches), o->mean_ns / 1e6, o->p50_ns / 1e6, o->p95_ns / 1e6, o->p99_ns / 1e6,
               100 * on_time(o));
    }
    printf("\n%s for models, policy %s: busy %.1f%% of %.1f s, reads %s a second of %s\n", swn_format_mib(a, p->budget),
           swn_lane_policy_name(p->policy), 100 * part(p->totals.busy_ns, p->totals.span_ns), span_s(p),
           swn_format_mib(b, (uint64_t)read_per_s(p)), swn_format_mib((char[32]){0}, p->disk));
    return 0;
}

static int simulate(struct plan *p)
{
    struct swn_lane_outcome *outcomes = calloc(p->count, sizeof *outcomes);
    struct swn_lane_run run = {.loads = p->loads,
                               .count = p->count,
                               .policy = p->policy,
                               .memory_bytes = p->budget,
                               .disk_bytes_per_ns = (double)p->disk / 1e9,
                               .duration_ns = (uint64_t)(p->seconds * 1e9),
                               .seed = p->seed,
                               .spacing = p->spacing,
                               .time_error = p->time_error,
                               .batch_most = p->turns};
    int rc = outcomes ? swn_lane_run(&run, outcomes, &p->totals) : -ENOMEM;
    for (uint32_t i = 0; i < p->count && !rc; i++)
        p->models[i].outcome = outcomes[i];
    if (rc)
        swn_cli_error("cannot simulate that: %s", strerror(-rc));
    free(outcomes);
    return rc;
}

int ctl_serve(int argc, char **argv)
{
    static int (*const print[])(const struct plan *) = {print_table, print_json, print_csv};
    struct plan p = {.seconds = 60, .seed = 1, .format = SWN_CLI_TABLE, .policy = SWN_LANE_COMPLETION};
    int rc, code = SWN_CLI_USAGE;
    if (argc > 1 && (!strcmp(argv[1], "--help") || !strcmp(argv[1], "-h")))
        return swn_cli_help("serve") ? SWN_CLI_FAILURE : SWN_CLI_OK;
    if (argc < 2 || strcmp(argv[1], "plan") != 0) {
        swn_cli_error("what of the server? 'swapnetctl serve plan'; see 'swapnetctl help serve'");
        return SWN_CLI_USAGE;
    }
    rc = take_options(&p, argc - 1, argv + 1);
    if (rc == 1)
        code = SWN_CLI_OK;
    if (!rc) {
        code = read_models(&p) || simulate(&p) ? SWN_CLI_FAILURE : SWN_CLI_OK;
        if (code == SWN_CLI_OK && print[p.format](&p))
            code = SWN_CLI_FAILURE;
    }
    free(p.models);
    free(p.loads);
    return code;
}
