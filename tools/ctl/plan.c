/* tools/ctl/plan.c - `swapnetctl plan`: takes models and a total, and prints the budget, the blocks and the predicted
 * latencies of each model. It works without any running process. */
#define _GNU_SOURCE
#include <errno.h>
#include <inttypes.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tools/ctl/ctl.h"
#include "tools/ctl/output.h"
#include "scheduler/planner/partition_minmax.h"
#include "scheduler/planner/divide.h"
#include "scheduler/planner/model.h"
#include "scheduler/planner/partition.h"
#include "base/size.h"
#include "scheduler/planner/partition_table.h"

#define CURVE 24
#define POINTS_SHOWN 64 /* in the table; the other formats have all */

enum { OPT_POLICY = 256, OPT_DELTA };

struct candidate {
    char *path; /* the argument, cut at its first comma */
    const char *name, *profile;
    double urgency;
    struct swn_model m;
    int loaded, timed;
    struct swn_divide_point curve[CURVE];
    uint64_t budget;
    /* within the budget */
    double library_s, sufficient_s; /* below 0: not known */
    size_t blocks;                  /* 0: no two neighbouring blocks fit */
    size_t *first;
    double blocks_s;
};

struct what_if {
    uint64_t total;
    double delta;
    enum swn_divide_policy policy;
    const char *device;
    int format;
    struct candidate *c;
    size_t n;
};

static int number(const char *text, double least, double below, double *out)
{
    char *end;
    *out = strtod(text, &end);
    return end != text && !*end && *out >= least && *out < below ? 0 : -EINVAL;
}

/* FILE[,urgency=U][,profile=FILE][,name=NAME] */
static int parse_model(struct candidate *c, char *text)
{
    char *save = NULL;
    c->urgency = 1;
    c->path = strtok_r(text, ",", &save);
    if (!c->path) {
        swn_cli_error("a model has no file");
        return -EINVAL;
    }
    for (char *part; (part = strtok_r(NULL, ",", &save));) {
        int rc = 0;
        if (!strncmp(part, "urgency=", 8))
            rc = number(part + 8, 1e-6, 1e6, &c->urgency);
        else if (!strncmp(part, "profile=", 8))
            c->profile = part + 8;
        else if (!strncmp(part, "name=", 5))
            c->name = part + 5;
        else
            rc = -EINVAL;
        if (rc) {
            swn_cli_error("'%s' of '%s' is none of urgency=NUMBER, profile=FILE, name=TEXT", part, c->path);
            return rc;
        }
    }
    return 0;
}

/* 0; 1 when help was shown; -EINVAL, -ENOMEM. */
static int take_options(struct what_if *w, int argc, char **argv)
{
    static const struct option options[] = {{"total", required_argument, NULL, 't'},
                                            {"policy", required_argument, NULL, OPT_POLICY},
                                            {"device", required_argument, NULL, 'd'},
                                            {"delta", required_argument, NULL, OPT_DELTA},
                                            {"output", required_argument, NULL, 'o'},
                                            {"help", no_argument, NULL, 'h'},
                                            {NULL, 0, NULL, 0}};
    int opt, rc = 0;
    while (!rc && (opt = getopt_long(argc, argv, ":t:d:o:h", options, NULL)) != -1) {
        if (opt == 'h') {
            swn_cli_help(argv[0]);
            return 1;
        } else if (opt == 't') {
            rc = swn_parse_size(optarg, &w->total);
            if (!rc && w->total > SWN_MEMORY_MOST_BYTES)
                rc = -ERANGE;
            if (rc == -ERANGE)
                swn_cli_error("total '%s' is too large: it can be " SWN_MEMORY_MOST_TEXT " at most", optarg);
            else if (rc)
                swn_cli_error("total '%s' is not a size: use e.g. 843M or 2G", optarg);
        } else if (opt == OPT_POLICY) {
            rc = swn_divide_parse(optarg, &w->policy);
            if (rc)
                swn_cli_error("policy '%s' is not known: use eq1, equal or minmax", optarg);
        } else if (opt == OPT_DELTA) {
            rc = number(optarg, 0, 1, &w->delta);
            if (rc)
                swn_cli_error("'%s' is not a share: use a number from 0 to below 1, e.g. 0.036", optarg);
        } else if (opt == 'd') {
            w->device = optarg;
        } else if (opt == 'o') {
            rc = (w->format = swn_cli_format(optarg, SWN_CLI_CSV)) < 0 ? -EINVAL : 0;
        } else {
            swn_cli_bad_option(argv, opt);
            rc = -EINVAL;
        }
    }
    if (!rc && (!w->total || optind == argc)) {
        swn_cli_error("give a total and at least one model; see 'swapnetctl help plan'");
        rc = -EINVAL;
    }
    w->n = rc ? 0 : (size_t)(argc - optind);
    w->c = calloc(w->n + 1, sizeof *w->c);
    for (size_t i = 0; !rc && w->c && i < w->n; i++)
        rc = parse_model(&w->c[i], argv[optind + (int)i]);
    return w->c ? rc : -ENOMEM;
}

static int load(const struct what_if *w, struct candidate *c)
{
    struct swn_model_opts opts = {.device = w->device, .profile = c->profile};
    char why[SWN_MODEL_WHY];
    int rc = swn_model_load(&c->m, c->path, &opts, why);
    if (rc) {
        swn_cli_error("%s", why);
        return rc;
    }
    c->loaded = 1;
    c->name = c->name ? c->name : c->m.name;
    const char *lacks = swn_model_lacks(&c->m);
    if (lacks)
        swn_cli_error("%s: no latencies: it is not known %s", c->name, lacks);
    if (swn_model_converted(&c->m, why))
        swn_cli_error("%s: %s", c->name, why);
    struct swn_predict p = swn_model_predict(&c->m);
    rc = lacks ? 0 : swn_predict_curve(&p, c->curve, CURVE);
    c->timed = !lacks && !rc;
    c->first = calloc(c->m.n, sizeof *c->first);
    rc = rc == -ENOMEM || !c->first ? -ENOMEM : 0;
    if (rc)
        swn_cli_error("%s: %s", c->name, strerror(-rc));
    return rc;
}

static struct swn_divide_dnn to_dnn(const struct candidate *c)
{
    struct swn_predict p = swn_model_predict(&c->m);
    uint64_t demand = swn_predict_demand(&p);
    return (struct swn_divide_dnn){.min_bytes = swn_predict_least(&p),
                                   .demand_bytes = demand,
                                   .weight_bytes = demand - c->m.other_bytes,
                                   .latency_s = c->timed ? c->curve[CURVE - 1].latency_s : 0,
                                   .urgency = c->urgency,
                                   .curve = c->timed ? c->curve : NULL,
                                   .points = c->timed ? CURVE : 0};
}

static int divide(struct what_if *w)
{
    struct swn_divide_dnn *dnn = calloc(w->n, sizeof *dnn);
    uint64_t *bytes = calloc(w->n, sizeof *bytes);
    int rc = dnn && bytes ? 0 : -ENOMEM;
    for (size_t i = 0; !rc && i < w->n; i++)
        dnn[i] = to_dnn(&w->c[i]);
    if (!rc)
        rc = swn_divide(w->policy, dnn, w->n, w->total, bytes);
    char a[32], b[32];
    if (rc == -ENOSPC)
        swn_cli_error("%s is not enough: the models need %s (%" PRIu64 " bytes) at least", swn_format_mib(a, w->total),
                      swn_format_mib(b, swn_divide_least(dnn, w->n)), swn_divide_least(dnn, w->n));
    else if (rc)
        swn_cli_error("cannot divide the total: %s", strerror(-rc));
    for (size_t i = 0; !rc && i < w->n; i++)
        w->c[i].budget = bytes[i];
    free(dnn);
    free(bytes);
    return rc;
}

/* Blocks get the memory that the nonweight bytes leave. */
static int cut(const struct what_if *w, struct candidate *c)
{
    uint64_t room = c->budget > c->m.other_bytes ? c->budget - c->m.other_bytes : 0;
    struct swn_part_model sums;
    struct swn_part part;
    int rc = swn_partition_model(&sums, c->m.layers, c->m.n, &c->m.c);
    if (rc)
        return rc;
    const char *store = c->timed ? c->m.store_path : NULL;
    int from_table;
    rc = room ? swn_table_plan(store, &sums, room, w->delta, &c->blocks, c->first, &part, &from_table) : -ENOSPC;
    c->blocks = rc ? 0 : c->blocks;
    c->blocks_s = rc || !c->timed ? -1 : part.latency_s;
    swn_partition_model_free(&sums);
    return rc == -ENOSPC ? 0 : rc;
}

static int look_ahead(const struct what_if *w, struct candidate *c)
{
    struct swn_predict p = swn_model_predict(&c->m);
    struct swn_plan plan;
    c->library_s = c->sufficient_s = -1;
    if (c->timed && swn_predict_plan(&p, c->budget, NULL, &plan) > 0)
        c->library_s = plan.latency_ns / 1e9;
    if (c->timed && swn_predict_plan(&p, swn_predict_demand(&p), NULL, &plan) > 0)
        c->sufficient_s = plan.latency_ns / 1e9;
    int rc = cut(w, c);
    if (rc)
        swn_cli_error("%s: cannot cut it into blocks: %s", c->name,
                      rc == -EINVAL ? "it has too many layers, or too many bytes" : strerror(-rc));
    return rc;
}

/* --- what comes out --- */

/* Prints the first points, and whether there are more. */
static void print_points(const struct candidate *c)
{
    for (size_t i = 1; i < c->blocks && i <= POINTS_SHOWN; i++)
        printf("%s%zu", i > 1 ? " " : "", c->first[i]);
    puts(c->blocks && c->blocks - 1 > POINTS_SHOWN ? " …" : "");
}

static const char *ms_text(char out[32], double s)
{
    if (s < 0)
        strcpy(out, "-");
    else
        snprintf(out, 32, "%.3f", s * 1e3);
    return out;
}

static void print_table(const struct what_if *w)
{
    char a[32], b[32], c[32], d[32], e[32];
    printf("%-24s %12s %12s %7s %10s %10s %10s  %6s  %s\n", "MODEL", "DEMAND", "BUDGET", "URGENCY", "ALL IN MS", "MS",
           "BLOCKS MS", "BLOCKS", "PARTITION POINTS");
    for (size_t i = 0; i < w->n; i++) {
        const struct candidate *x = &w->c[i];
        struct swn_predict p = swn_model_predict(&x->m);
        swn_cli_print_name(stdout, x->name, 24);
        printf(" %12s %12s %7.3g %10s %10s %10s  %6zu  ", swn_format_mib(a, swn_predict_demand(&p)),
               swn_format_mib(b, x->budget), x->urgency, ms_text(c, x->sufficient_s), ms_text(d, x->library_s),
               ms_text(e, x->blocks_s), x->blocks);
        print_points(x);
    }
}

static json_t *seconds(double s)
{
    return s < 0 ? json_null() : json_real(s);
}

static json_t *models_json(const struct what_if *w)
{
    json_t *models = json_array();
    for (size_t i = 0; i < w->n; i++) {
        const struct candidate *x = &w->c[i];
        struct swn_predict p = swn_model_predict(&x->m);
        json_t *points = json_array();
        for (size_t k = 1; k < x->blocks; k++)
            json_array_append_new(points, json_integer((json_int_t)x->first[k]));
        json_array_append_new(
            models, json_pack("{s:o s:I s:I s:I s:I s:f s:o s:o s:o s:I s:o}", "name", swn_cli_json_text(x->name),
                              "minimum_budget_bytes", (json_int_t)swn_predict_least(&p), "demand_bytes",
                              (json_int_t)swn_predict_demand(&p), "other_bytes", (json_int_t)x->m.other_bytes,
                              "budget_bytes", (json_int_t)x->budget, "urgency", x->urgency, "sufficient_latency_s",
                              seconds(x->sufficient_s), "latency_s", seconds(x->library_s), "blocks_latency_s",
                              seconds(x->blocks_s), "block_count", (json_int_t)x->blocks, "points", points));
    }
    return models;
}

static void print_json(const struct what_if *w)
{
    json_t *j = json_pack("{s:i s:I s:s s:f s:o}", "schema", 1, "total_bytes", (json_int_t)w->total, "policy",
                          swn_divide_name(w->policy), "delta", w->delta, "models", models_json(w));
    swn_cli_print_json(j, 0);
    json_decref(j);
}

static void print_csv(const struct what_if *w)
{
    static const char *const keys[] = {
        "name",      "demand_bytes",     "budget_bytes", "urgency", "sufficient_latency_s",
        "latency_s", "blocks_latency_s", "block_count",  "points"};
    json_t *models = models_json(w);
    ctl_print_csv(keys, sizeof keys / sizeof *keys, models);
    json_decref(models);
}

int ctl_plan(int argc, char **argv)
{
    struct what_if w = {.policy = SWN_DIVIDE_MINMAX};
    int rc = take_options(&w, argc, argv), code = rc == 1 ? SWN_CLI_OK : rc ? SWN_CLI_USAGE : SWN_CLI_FAILURE;
    for (size_t i = 0; !rc && i < w.n; i++)
        rc = load(&w, &w.c[i]);
    if (!rc)
        rc = divide(&w);
    for (size_t i = 0; !rc && i < w.n; i++)
        rc = look_ahead(&w, &w.c[i]);
    if (!rc) {
        (w.format == SWN_CLI_JSON ? print_json : w.format == SWN_CLI_CSV ? print_csv : print_table)(&w);
        code = SWN_CLI_OK;
    }
    for (size_t i = 0; w.c && i < w.n; i++) {
        if (w.c[i].loaded)
            swn_model_free(&w.c[i].m);
        free(w.c[i].first);
    }
    free(w.c);
    return code;
}
