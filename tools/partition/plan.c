/* tools/partition/plan.c - `swapnet-partition plan`: the number of blocks for a budget, where they begin, and the
 * predicted time.
 *
 * Without times (a profile) the cut is the one whose neighbours take the least memory; with times it is the fastest
 * that fits.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <inttypes.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tools/partition/partition_tool.h"
#include "tools/partition/model_options.h"
#include "scheduler/planner/partition_minmax.h"
#include "scheduler/planner/partition.h"
#include "base/size.h"
#include "scheduler/planner/partition_table.h"

#define CURVE_POINTS 16
#define CURVE_MOST 1024

enum { OPT_DELTA = 256, OPT_CURVE };

struct plan {
    const char *path;
    struct swn_model_opts model_opts;
    struct swn_model m;
    uint64_t budget_bytes;
    double delta;
    size_t wanted; /* --blocks, or 0 */
    size_t points; /* of the curve, or 0 */
    uint64_t *layer_bytes;
    size_t *first, blocks;
    uint64_t minimum, largest_pair;
    int timed; /* the members below are set */
    int from_table;
    struct swn_part_model sums;
    struct swn_part part;
    struct swn_plan library;
    int library_fits; /* the budget suffices for the library */
    struct swn_divide_point *curve;
};

static int no_memory(void)
{
    swn_cli_error("no memory");
    return SWN_CLI_FAILURE;
}

static int too_small(const struct plan *p, uint64_t needed)
{
    char a[32], b[32];
    swn_cli_error("%s is not enough%s: two neighbouring blocks take %" PRIu64 " bytes (%s) at least",
                  swn_format_mib(a, p->budget_bytes), p->wanted ? " for that number of blocks" : "", needed,
                  swn_format_mib(b, needed));
    return PART_TOO_SMALL;
}

/* The fastest cut, from the table beside the store, or searched. */
static int cut_by_time(struct plan *p)
{
    uint64_t memory = swn_partition_memory(p->budget_bytes, p->delta);
    if (p->wanted)
        return swn_partition_best(&p->sums, p->blocks = p->wanted, memory, p->first, &p->part);
    return swn_table_plan(p->m.store_path, &p->sums, p->budget_bytes, p->delta, &p->blocks, p->first, &p->part,
                          &p->from_table);
}

static int cut_by_memory(struct plan *p)
{
    uint64_t memory = swn_partition_memory(p->budget_bytes, p->delta);
    return p->wanted ? swn_partition_minmax(p->layer_bytes, p->m.n, p->blocks = p->wanted, p->first)
                     : swn_partition_minmax_for_budget(p->layer_bytes, p->m.n, memory, &p->blocks, p->first);
}

static int forecast(struct plan *p)
{
    struct swn_predict predict = swn_model_predict(&p->m);
    int rc = swn_predict_plan(&predict, p->budget_bytes, NULL, &p->library);
    p->library_fits = rc > 0 && p->budget_bytes >= swn_predict_least(&predict);
    if (p->points) {
        p->curve = calloc(p->points, sizeof *p->curve);
        if (!p->curve || (swn_predict_curve(&predict, p->curve, p->points) && rc > 0))
            return no_memory();
    }
    if (rc == -EINVAL) { /* all layers are too small to stream */
        p->points = 0;
        rc = 0;
    }
    return rc < 0 ? no_memory() : SWN_CLI_OK;
}

static int make_plan(struct plan *p)
{
    size_t layers = p->m.n;
    uint64_t memory = swn_partition_memory(p->budget_bytes, p->delta);
    p->layer_bytes = calloc(layers + 1, sizeof *p->layer_bytes);
    p->first = calloc(layers + 1, sizeof *p->first);
    if (!p->layer_bytes || !p->first)
        return no_memory();
    for (size_t i = 0; i < layers; i++)
        p->layer_bytes[i] = p->m.layers[i].bytes;
    if (p->wanted > layers) {
        swn_cli_error("%zu blocks of %zu layers cannot be: a layer is the smallest block", p->wanted, layers);
        return SWN_CLI_USAGE;
    }
    p->minimum = swn_partition_minmax_budget(p->layer_bytes, layers);
    p->timed = !swn_model_lacks(&p->m);
    int rc = p->timed ? swn_partition_model(&p->sums, p->m.layers, layers, &p->m.c) : 0;
    if (rc)
        return part_cannot_cut(p->path, rc);
    rc = p->timed ? cut_by_time(p) : cut_by_memory(p);
    if (rc && rc != -ENOSPC)
        return no_memory();
    if (rc && p->wanted && p->minimum <= memory &&
        swn_partition_minmax(p->layer_bytes, layers, p->wanted, p->first) == 0)
        return too_small(p, swn_partition_minmax_largest_pair(p->layer_bytes, layers, p->first, p->wanted));
    if (rc)
        return too_small(p, p->minimum);
    p->largest_pair = swn_partition_minmax_largest_pair(p->layer_bytes, layers, p->first, p->blocks);
    if (p->largest_pair > memory)
        return too_small(p, p->largest_pair);
    return p->timed ? forecast(p) : SWN_CLI_OK;
}

struct part_of {
    size_t begin, end; /* layers */
    uint64_t bytes;
    uint64_t depth;
    struct swn_delay delay;
};

static struct part_of block(const struct plan *p, size_t i)
{
    struct part_of b = {p->first[i], i + 1 < p->blocks ? p->first[i + 1] : p->m.n, 0, 0, {0, 0, 0}};
    for (size_t l = b.begin; l < b.end; l++) {
        struct swn_delay d = swn_delay_of(&p->m.c, &p->m.layers[l]);
        b.bytes += p->layer_bytes[l];
        b.depth += p->m.layers[l].depth;
        b.delay.in += d.in;
        b.delay.ex += d.ex;
        b.delay.out += d.out;
    }
    return b;
}

static json_t *curve_json(const struct plan *p)
{
    json_t *curve = json_array();
    for (size_t i = 0; i < p->points; i++)
        json_array_append_new(curve, json_pack("{s:I s:f}", "budget_bytes", (json_int_t)p->curve[i].budget_bytes,
                                               "latency_s", p->curve[i].latency_s));
    return curve;
}

static void add_times(const struct plan *p, json_t *j)
{
    struct swn_predict predict = swn_model_predict(&p->m);
    const struct swn_plan *l = &p->library;
    json_object_set_new(j, "latency_s", json_real(p->part.latency_s));
    json_object_set_new(j, "exact", json_boolean(p->part.exact));
    json_object_set_new(j, "from_table", json_boolean(p->from_table));
    json_object_set_new(j, "library",
                        json_pack("{s:f s:I s:I s:I s:I s:I s:I s:b}", "latency_s", l->latency_ns / 1e9, "kept_bytes",
                                  (json_int_t)l->kept_bytes, "streamed_bytes", (json_int_t)l->streamed_bytes,
                                  "window_bytes", (json_int_t)l->ring_bytes, "other_bytes",
                                  (json_int_t)p->m.other_bytes, "minimum_budget_bytes",
                                  (json_int_t)swn_predict_least(&predict), "demand_bytes",
                                  (json_int_t)swn_predict_demand(&predict), "fits", p->library_fits));
    if (p->points)
        json_object_set_new(j, "curve", curve_json(p));
}

static void print_json(const struct plan *p)
{
    json_t *points = json_array(), *blocks = json_array();
    for (size_t i = 0; i < p->blocks; i++) {
        struct part_of b = block(p, i);
        if (i)
            json_array_append_new(points, json_integer((json_int_t)b.begin));
        json_t *one = json_pack("{s:I s:I s:o s:o s:I s:I}", "first_layer", (json_int_t)b.begin, "layers",
                                (json_int_t)(b.end - b.begin), "first", swn_cli_json_text(p->m.layer[b.begin]), "last",
                                swn_cli_json_text(p->m.layer[b.end - 1]), "bytes", (json_int_t)b.bytes, "depth",
                                (json_int_t)b.depth);
        if (p->timed) {
            json_object_set_new(one, "in_s", json_real(b.delay.in));
            json_object_set_new(one, "ex_s", json_real(b.delay.ex));
            json_object_set_new(one, "out_s", json_real(b.delay.out));
        }
        json_array_append_new(blocks, one);
    }
    json_t *j =
        json_pack("{s:i s:I s:I s:I s:I s:o s:o}", "schema", 1, "budget_bytes", (json_int_t)p->budget_bytes,
                  "minimum_budget_bytes", (json_int_t)p->minimum, "largest_pair_bytes", (json_int_t)p->largest_pair,
                  "block_count", (json_int_t)p->blocks, "points", points, "blocks", blocks);
    if (p->timed)
        add_times(p, j);
    swn_cli_print_json(j, 0);
    json_decref(j);
}

static void print_forecast(const struct plan *p)
{
    char a[32], b[32], c[32];
    printf("a pass over these blocks, two in memory: %.3f ms%s%s\n", p->part.latency_s * 1e3,
           p->from_table ? " (from the table)" : "",
           p->part.exact   ? ""
           : p->from_table ? " (there may be ones that are better by 1 %)"
                           : " (there may be better ones)");
    printf("a pass under the library: %.3f ms; %s kept, %s streamed, staging ring %s%s\n", p->library.latency_ns / 1e6,
           swn_format_mib(a, p->library.kept_bytes), swn_format_mib(b, p->library.streamed_bytes),
           swn_format_mib(c, p->library.ring_bytes), p->library_fits ? "" : "; less memory than it needs");
    if (p->points)
        printf("\n%12s  %12s\n", "BUDGET", "MS");
    for (size_t i = 0; i < p->points; i++)
        printf("%12s  %12.3f\n", swn_format_mib(a, p->curve[i].budget_bytes), p->curve[i].latency_s * 1e3);
}

static void print_table(const struct plan *p)
{
    char a[32], b[32], c[32];
    printf("%5s  %11s  %12s  ", "BLOCK", "LAYERS", "SIZE");
    if (p->timed)
        printf("%9s  %9s  %9s  ", "IN MS", "EX MS", "OUT MS");
    printf("%s\n", "FROM - TO");
    for (size_t i = 0; i < p->blocks; i++) {
        struct part_of part = block(p, i);
        char range[48];
        snprintf(range, sizeof range, "%zu-%zu", part.begin, part.end - 1);
        printf("%5zu  %11s  %12s  ", i, range, swn_format_mib(a, part.bytes));
        if (p->timed)
            printf("%9.3f  %9.3f  %9.3f  ", part.delay.in * 1e3, part.delay.ex * 1e3, part.delay.out * 1e3);
        swn_cli_print_name(stdout, p->m.layer[part.begin], 0);
        printf(" - ");
        swn_cli_print_name(stdout, p->m.layer[part.end - 1], 0);
        putchar('\n');
    }
    printf("\n%zu blocks; largest neighbours %s of %s; smallest budget %s\n", p->blocks,
           swn_format_mib(a, p->largest_pair), swn_format_mib(b, p->budget_bytes), swn_format_mib(c, p->minimum));
    if (p->timed)
        print_forecast(p);
}

static int parse_delta(const char *text, double *delta)
{
    char *end;
    *delta = strtod(text, &end);
    if (end != text && !*end && *delta >= 0 && *delta < 1)
        return 0;
    swn_cli_error("'%s' is not a share: use a number from 0 to below 1, e.g. 0.036", text);
    return -EINVAL;
}

static int take_option(struct plan *p, int *json, int opt, char **argv)
{
    int rc = 0;
    switch (opt) {
    case 'b':
        rc = swn_parse_size(optarg, &p->budget_bytes);
        if (rc == -ERANGE || (!rc && p->budget_bytes > SWN_MEMORY_MOST_BYTES)) {
            swn_cli_error("budget '%s' is too large: it can be " SWN_MEMORY_MOST_TEXT " at most", optarg);
            rc = -EINVAL;
        } else if (rc || !p->budget_bytes) {
            swn_cli_error("budget '%s' is not a size: use e.g. 256M or 2G", optarg);
            rc = -EINVAL;
        }
        return rc;
    case 'n':
        return part_parse_count(optarg, &p->wanted);
    case 'o':
        return (*json = swn_cli_format(optarg, SWN_CLI_JSON)) < 0 ? -EINVAL : 0;
    case OPT_DELTA:
        return parse_delta(optarg, &p->delta);
    case OPT_CURVE:
        p->points = CURVE_POINTS;
        if (optarg)
            rc = part_parse_count(optarg, &p->points);
        if (!rc && (p->points < 2 || p->points > CURVE_MOST)) {
            swn_cli_error("a curve has 2 to %d points", CURVE_MOST);
            rc = -EINVAL;
        }
        return rc;
    default:
        if (part_model_option(&p->model_opts, opt))
            return 0;
        swn_cli_bad_option(argv, opt);
        return -EINVAL;
    }
}

/* 0; 1 when help was shown; -EINVAL. */
static int take_options(struct plan *p, int *json, int argc, char **argv)
{
    static const struct option options[] = {{"budget", required_argument, NULL, 'b'},
                                            {"blocks", required_argument, NULL, 'n'},
                                            {"output", required_argument, NULL, 'o'},
                                            {"delta", required_argument, NULL, OPT_DELTA},
                                            {"curve", optional_argument, NULL, OPT_CURVE},
                                            PART_MODEL_OPTIONS,
                                            {"help", no_argument, NULL, 'h'},
                                            {NULL, 0, NULL, 0}};
    int opt, rc = 0;
    while (rc == 0 && (opt = getopt_long(argc, argv, ":b:n:o:p:d:h", options, NULL)) != -1) {
        if (opt == 'h') {
            swn_cli_help(argv[0]);
            return 1;
        }
        rc = take_option(p, json, opt, argv);
    }
    if (!rc && (!p->budget_bytes || optind != argc - 1)) {
        swn_cli_error("give a budget and one store; see 'swapnet-partition help plan'");
        rc = -EINVAL;
    }
    return rc;
}

int part_plan(int argc, char **argv)
{
    struct plan p = {0};
    char why[SWN_MODEL_WHY];
    int json = 0, rc = take_options(&p, &json, argc, argv);
    if (rc)
        return rc == 1 ? SWN_CLI_OK : SWN_CLI_USAGE;
    p.path = argv[optind];
    rc = swn_model_load(&p.m, p.path, &p.model_opts, why);
    if (rc) {
        swn_cli_error("%s", why);
        return part_exit_code(rc);
    }
    const char *lacks = swn_model_lacks(&p.m);
    if (lacks && (p.points || p.model_opts.profile || p.model_opts.device))
        swn_cli_error("no latencies: it is not known %s", lacks);
    if (swn_model_converted(&p.m, why))
        swn_cli_error("%s", why);
    rc = lacks && p.points ? SWN_CLI_USAGE : make_plan(&p);
    if (rc == SWN_CLI_OK)
        (json ? print_json : print_table)(&p);
    free(p.layer_bytes);
    free(p.first);
    free(p.curve);
    swn_partition_model_free(&p.sums);
    swn_model_free(&p.m);
    return rc;
}
