/* part_plan.c - `swapnet-partition plan`: the blocks a budget asks for, and where they begin. */
#include <errno.h>
#include <inttypes.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>

#include "part.h"
#include "swn_cut.h"
#include "swn_size.h"

struct plan {
    const char *path;
    const struct swn_store *s;
    uint64_t budget_bytes;
    size_t wanted; /* --blocks, or 0 */
    uint64_t *layer_bytes;
    size_t *first, blocks;
    uint64_t minimum, largest_pair;
};

static int make_plan(struct plan *p)
{
    size_t layers = p->s->layer_count;
    char a[32], b[32];
    p->layer_bytes = calloc(layers + 1, sizeof *p->layer_bytes);
    p->first = calloc(layers + 1, sizeof *p->first);
    if (!p->layer_bytes || !p->first || swn_store_layer_bytes(p->s, p->layer_bytes)) {
        swn_cli_error("no memory");
        return SWN_CLI_FAILURE;
    }
    if (!layers) {
        swn_cli_error("'%s' holds no tensors", p->path);
        return PART_REFUSED;
    }
    if (p->wanted > layers) {
        swn_cli_error("%zu blocks of %zu layers cannot be: a layer is the smallest block", p->wanted, layers);
        return SWN_CLI_USAGE;
    }
    p->minimum = swn_cut_minimum(p->layer_bytes, layers);
    int rc = p->wanted ? swn_cut(p->layer_bytes, layers, p->blocks = p->wanted, p->first)
                       : swn_cut_for_budget(p->layer_bytes, layers, p->budget_bytes, &p->blocks, p->first);
    if (rc && rc != -ENOSPC) {
        swn_cli_error("no memory");
        return SWN_CLI_FAILURE;
    }
    if (!rc)
        p->largest_pair = swn_cut_largest_pair(p->layer_bytes, layers, p->first, p->blocks);
    if (rc || p->largest_pair > p->budget_bytes) {
        uint64_t needed = rc ? p->minimum : p->largest_pair;
        swn_cli_error("%s is not enough%s: two neighbouring blocks take %" PRIu64 " bytes (%s) at least",
                      swn_format_mib(a, p->budget_bytes), p->wanted ? " for that number of blocks" : "", needed,
                      swn_format_mib(b, needed));
        return PART_TOO_SMALL;
    }
    return SWN_CLI_OK;
}

struct part_of {
    size_t begin, end; /* layers */
    uint64_t bytes;
    uint64_t depth;
};

static struct part_of block(const struct plan *p, size_t i)
{
    struct part_of b = {p->first[i], i + 1 < p->blocks ? p->first[i + 1] : p->s->layer_count, 0, 0};
    for (size_t l = b.begin; l < b.end; l++) {
        b.bytes += p->layer_bytes[l];
        b.depth += p->s->layers[l].depth;
    }
    return b;
}

static void print_json(const struct plan *p)
{
    json_t *points = json_array(), *blocks = json_array();
    for (size_t i = 0; i < p->blocks; i++) {
        struct part_of b = block(p, i);
        if (i)
            json_array_append_new(points, json_integer((json_int_t)b.begin));
        json_array_append_new(blocks, json_pack("{s:I s:I s:s s:s s:I s:I}", "first_layer", (json_int_t)b.begin,
                                                "layers", (json_int_t)(b.end - b.begin), "first",
                                                p->s->layers[b.begin].name, "last", p->s->layers[b.end - 1].name,
                                                "bytes", (json_int_t)b.bytes, "depth", (json_int_t)b.depth));
    }
    json_t *j =
        json_pack("{s:i s:I s:I s:I s:I s:o s:o}", "schema", 1, "budget_bytes", (json_int_t)p->budget_bytes,
                  "minimum_budget_bytes", (json_int_t)p->minimum, "largest_pair_bytes", (json_int_t)p->largest_pair,
                  "block_count", (json_int_t)p->blocks, "points", points, "blocks", blocks);
    json_dumpf(j, stdout, JSON_INDENT(2));
    putchar('\n');
    json_decref(j);
}

static void print_table(const struct plan *p)
{
    char a[32], b[32], c[32];
    printf("%5s  %11s  %12s  %s\n", "BLOCK", "LAYERS", "SIZE", "FROM - TO");
    for (size_t i = 0; i < p->blocks; i++) {
        struct part_of part = block(p, i);
        char range[48];
        snprintf(range, sizeof range, "%zu-%zu", part.begin, part.end - 1);
        printf("%5zu  %11s  %12s  %s - %s\n", i, range, swn_format_mib(a, part.bytes), p->s->layers[part.begin].name,
               p->s->layers[part.end - 1].name);
    }
    printf("\n%zu blocks; largest neighbours %s of %s; smallest budget %s\n", p->blocks,
           swn_format_mib(a, p->largest_pair), swn_format_mib(b, p->budget_bytes), swn_format_mib(c, p->minimum));
}

static int parse_count(const char *text, size_t *count)
{
    char *end;
    errno = 0;
    unsigned long long n = strtoull(text, &end, 10);
    if (errno || *end || text[0] < '1' || text[0] > '9' || n > UINT32_MAX) {
        swn_cli_error("'%s' is not a number of blocks", text);
        return -EINVAL;
    }
    *count = n;
    return 0;
}

/* 0; 1 when help was shown; -EINVAL. */
static int take_options(struct plan *p, int *json, int argc, char **argv)
{
    static const struct option options[] = {{"budget", required_argument, NULL, 'b'},
                                            {"blocks", required_argument, NULL, 'n'},
                                            {"output", required_argument, NULL, 'o'},
                                            {"help", no_argument, NULL, 'h'},
                                            {NULL, 0, NULL, 0}};
    int opt, rc = 0;
    while (rc == 0 && (opt = getopt_long(argc, argv, ":b:n:o:h", options, NULL)) != -1) {
        if (opt == 'h') {
            swn_cli_help(argv[0]);
            return 1;
        } else if (opt == 'b') {
            rc = swn_parse_size(optarg, &p->budget_bytes);
            if (rc || !p->budget_bytes) {
                swn_cli_error("budget '%s' is not a size: use e.g. 256M or 2G", optarg);
                rc = -EINVAL;
            }
        } else if (opt == 'n') {
            rc = parse_count(optarg, &p->wanted);
        } else if (opt == 'o') {
            rc = (*json = swn_cli_format(optarg, SWN_CLI_JSON)) < 0 ? -EINVAL : 0;
        } else {
            swn_cli_bad_option(argv, opt);
            rc = -EINVAL;
        }
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
    struct swn_store *s;
    const char *kind;
    int json = 0, rc = take_options(&p, &json, argc, argv);
    if (rc)
        return rc == 1 ? SWN_CLI_OK : SWN_CLI_USAGE;
    p.path = argv[optind];
    rc = part_open_model(&s, &kind, p.path);
    if (rc)
        return part_exit_code(rc);
    p.s = s;
    rc = make_plan(&p);
    if (rc == SWN_CLI_OK)
        (json ? print_json : print_table)(&p);
    free(p.layer_bytes);
    free(p.first);
    swn_store_close(s, &swn_io_sys);
    return rc;
}
