/* tools/partition/table.c - `swapnet-partition table`: computes a model's lookup table, keeps it beside the store, and
 * shows it.
 */
#include <errno.h>
#include <inttypes.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tools/partition/partition_tool.h"
#include "tools/partition/model_options.h"
#include "base/size.h"
#include "scheduler/planner/partition_table.h"

int part_model_option(struct swn_model_opts *opts, int opt)
{
    if (opt == 'p')
        opts->profile = optarg;
    else if (opt == 'd')
        opts->device = optarg;
    return opt == 'p' || opt == 'd';
}

int part_parse_count(const char *text, size_t *count)
{
    char *end;
    errno = 0;
    unsigned long long n = strtoull(text, &end, 10);
    if (errno || *end || text[0] < '1' || text[0] > '9' || n > UINT32_MAX) {
        swn_cli_error("'%s' is not a number from 1 up", text);
        return -EINVAL;
    }
    *count = n;
    return 0;
}

static void print_points(const struct swn_table_row *row, uint32_t blocks)
{
    for (uint32_t i = 0; i + 1 < blocks; i++)
        printf("%s%" PRIu32, i ? "," : "", row->points[i]);
    putchar('\n');
}

/* In the form of the paper's table 3. */
static void print_rows(const struct swn_table_list *l)
{
    char mib[32];
    printf("%12s  %12s  %s\n", "MEMORY", "MS", "PARTITION POINTS");
    for (uint32_t i = 0; i < l->rows; i++) {
        printf("%12s  %12.3f  ", swn_format_mib(mib, l->row[i].part.memory_bytes), l->row[i].part.latency_s * 1e3);
        print_points(&l->row[i], l->blocks);
    }
}

static void print_summary(const struct swn_table *t)
{
    char least[32], most[32];
    printf("%6s  %5s  %12s  %12s  %12s  %12s\n", "BLOCKS", "ROWS", "LEAST", "MS", "MOST", "MS");
    for (uint32_t i = 0; i < t->lists; i++) {
        const struct swn_table_list *l = &t->list[i];
        if (!l->rows)
            continue;
        const struct swn_part *first = &l->row[0].part, *last = &l->row[l->rows - 1].part;
        printf("%6" PRIu32 "  %5" PRIu32 "  %12s  %12.3f  %12s  %12.3f\n", l->blocks, l->rows,
               swn_format_mib(least, first->memory_bytes), first->latency_s * 1e3,
               swn_format_mib(most, last->memory_bytes), last->latency_s * 1e3);
    }
}

static void print_json(const struct swn_table *t, size_t blocks)
{
    json_t *rows = json_array();
    for (uint32_t i = 0; i < t->lists; i++) {
        const struct swn_table_list *l = &t->list[i];
        for (uint32_t k = 0; k < l->rows && (!blocks || l->blocks == blocks); k++) {
            json_t *points = json_array();
            for (uint32_t p = 0; p + 1 < l->blocks; p++)
                json_array_append_new(points, json_integer(l->row[k].points[p]));
            json_array_append_new(rows, json_pack("{s:I s:I s:f s:o}", "blocks", (json_int_t)l->blocks, "memory_bytes",
                                                  (json_int_t)l->row[k].part.memory_bytes, "latency_s",
                                                  l->row[k].part.latency_s, "points", points));
        }
    }
    json_t *j = json_pack("{s:i s:o}", "schema", 1, "rows", rows);
    swn_cli_print_json(j, 0);
    json_decref(j);
}

/* The table beside the store if it is this model's, else a new one, which replaces it. */
static int get_table(struct swn_table **out, const struct swn_model *m, const struct swn_part_model *sums)
{
    char path[4200];
    int is_store = swn_table_path(m->store_path, path, sizeof path);
    size_t lists = m->n < SWN_TABLE_BLOCKS ? m->n : SWN_TABLE_BLOCKS; /* `plan` may have made fewer */
    if (is_store && swn_table_load(out, sums, path) == 0) {
        if ((*out)->lists == lists)
            return 0;
        swn_table_free(*out);
    }
    int rc = swn_table_make(out, sums, 0);
    int saved = !rc && is_store ? swn_table_save(*out, sums, path) : 0;
    if (rc)
        swn_cli_error("no memory");
    if (saved)
        swn_cli_error("cannot write %s: %s", path, strerror(-saved));
    return rc;
}

static int show(const struct swn_model *m, const char *path, size_t blocks, int json)
{
    struct swn_part_model sums;
    struct swn_table *t;
    int rc = swn_partition_model(&sums, m->layers, m->n, &m->c);
    if (rc)
        return part_cannot_cut(path, rc);
    rc = get_table(&t, m, &sums);
    if (!rc) {
        if (json)
            print_json(t, blocks);
        else if (!blocks)
            print_summary(t);
        else if (blocks <= t->lists)
            print_rows(&t->list[blocks - 1]);
        if (blocks > t->lists)
            swn_cli_error("the table goes up to %" PRIu32 " blocks", t->lists);
        swn_table_free(t);
    }
    swn_partition_model_free(&sums);
    return rc ? SWN_CLI_FAILURE : SWN_CLI_OK;
}

int part_table(int argc, char **argv)
{
    static const struct option options[] = {{"blocks", required_argument, NULL, 'n'},
                                            {"output", required_argument, NULL, 'o'},
                                            PART_MODEL_OPTIONS,
                                            {"help", no_argument, NULL, 'h'},
                                            {NULL, 0, NULL, 0}};
    struct swn_model_opts opts = {0};
    struct swn_model m;
    char why[SWN_MODEL_WHY];
    size_t blocks = 0;
    int opt, rc = 0, json = 0;
    while (rc == 0 && (opt = getopt_long(argc, argv, ":n:o:p:d:h", options, NULL)) != -1) {
        if (opt == 'h')
            return swn_cli_help(argv[0]), SWN_CLI_OK;
        if (opt == 'n') {
            rc = part_parse_count(optarg, &blocks);
        } else if (opt == 'o') {
            rc = (json = swn_cli_format(optarg, SWN_CLI_JSON)) < 0 ? -EINVAL : 0;
        } else if (!part_model_option(&opts, opt)) {
            swn_cli_bad_option(argv, opt);
            rc = -EINVAL;
        }
    }
    if (!rc && optind != argc - 1) {
        swn_cli_error("give one store; see 'swapnet-partition help table'");
        rc = -EINVAL;
    }
    if (rc)
        return SWN_CLI_USAGE;
    rc = swn_model_load(&m, argv[optind], &opts, why);
    if (rc) {
        swn_cli_error("%s", why);
        return part_exit_code(rc);
    }
    const char *lacks = swn_model_lacks(&m);
    if (lacks)
        swn_cli_error("it is not known %s", lacks);
    if (swn_model_converted(&m, why))
        swn_cli_error("%s", why);
    rc = lacks ? SWN_CLI_USAGE : show(&m, argv[optind], blocks, json);
    swn_model_free(&m);
    return rc;
}
