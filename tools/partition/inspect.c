/* tools/partition/inspect.c - `swapnet-partition inspect`: lists a checkpoint or store, layer by layer. */
#include <errno.h>
#include <inttypes.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tools/partition/partition_tool.h"
#include "scheduler/planner/model.h"
#include "scheduler/planner/partition_minmax.h"
#include "base/size.h"

struct summary {
    const char *path, *kind;
    const struct swn_store *s;
    uint64_t *memory_bytes;          /* per layer */
    uint32_t *dtypes;                /* per layer: bit (1 << enum swn_dtype) */
    uint64_t bytes, smallest_budget; /* the latter: of programs that load blocks */
    uint64_t library_least; /* of the preload library, without what a program's other tensors take; 0: unknown */
    uint64_t encoded_bytes, copied_bytes; /* of compressed extents, and of the extents that have one */
    size_t largest;                       /* layer */
};
_Static_assert(SWN_DTYPE_COUNT <= 32, "element types as bits of a word");

static uint64_t least_of_library(const char *path)
{
    char why[SWN_MODEL_WHY];
    struct swn_model model;
    const struct swn_model_opts opts = {0};
    if (swn_model_load(&model, path, &opts, why))
        return 0;
    struct swn_predict predict = swn_model_predict(&model);
    uint64_t least = swn_predict_least(&predict);
    swn_model_free(&model);
    return least;
}

static int summarise(struct summary *m)
{
    const struct swn_store *s = m->s;
    m->memory_bytes = calloc(s->layer_count + 1, sizeof *m->memory_bytes);
    m->dtypes = calloc(s->layer_count + 1, sizeof *m->dtypes);
    if (!m->memory_bytes || !m->dtypes || swn_store_layer_bytes(s, m->memory_bytes))
        return -ENOMEM;
    for (size_t i = 0; i < s->tensor_count; i++)
        m->dtypes[s->tensors[i].layer] |= 1u << s->tensors[i].dtype;
    for (size_t i = 0; i < s->layer_count; i++) {
        m->bytes += s->layers[i].bytes;
        if (s->layers[i].bytes > s->layers[m->largest].bytes)
            m->largest = i;
    }
    for (size_t i = 0; i < s->extent_count; i++) {
        m->encoded_bytes += s->extents[i].compressed ? s->extents[i].compressed->bytes : 0;
        m->copied_bytes += s->extents[i].compressed ? s->extents[i].bytes : 0;
    }
    m->smallest_budget = swn_partition_minmax_budget(m->memory_bytes, s->layer_count);
    m->library_least = least_of_library(m->path);
    return 0;
}

static json_t *layer_json(const struct summary *m, size_t i)
{
    const struct swn_store_layer *l = &m->s->layers[i];
    json_t *dtypes = json_array();
    for (int d = 0; d < SWN_DTYPE_COUNT; d++)
        if (m->dtypes[i] & 1u << d)
            json_array_append_new(dtypes, json_string(swn_dtype_name((enum swn_dtype)d)));
    return json_pack("{s:o s:I s:I s:I s:o}", "name", swn_cli_json_text(l->name), "tensors", (json_int_t)l->depth,
                     "bytes", (json_int_t)l->bytes, "memory_bytes", (json_int_t)m->memory_bytes[i], "dtypes", dtypes);
}

static int print_json(const struct summary *m)
{
    const struct swn_store *s = m->s;
    json_t *layers = json_array(), *sources = json_array(), *largest = json_null();
    for (size_t i = 0; i < s->layer_count; i++)
        json_array_append_new(layers, layer_json(m, i));
    for (size_t i = 0; i < s->source_count; i++)
        json_array_append_new(sources, json_pack("{s:o s:I}", "path", swn_cli_json_text(s->sources[i].path), "bytes",
                                                 (json_int_t)s->sources[i].identity.size));
    if (s->layer_count)
        largest = json_pack("{s:o s:I}", "name", swn_cli_json_text(s->layers[m->largest].name), "bytes",
                            (json_int_t)s->layers[m->largest].bytes);
    int whole = json_array_size(layers) == s->layer_count && json_array_size(sources) == s->source_count;
    json_t *j = json_pack("{s:i s:o s:s s:o s:I s:I s:I s:I s:I s:I s:I s:o s:o s:I s:I s:o}", "schema", 1, "path",
                          swn_cli_json_text(m->path), "format", m->kind, "sources", sources, "layer_count",
                          (json_int_t)s->layer_count, "tensor_count", (json_int_t)s->tensor_count, "bytes",
                          (json_int_t)m->bytes, "store_bytes", (json_int_t)s->total_bytes, "copied_bytes",
                          (json_int_t)m->copied_bytes, "encoded_bytes", (json_int_t)m->encoded_bytes, "skipped_count",
                          (json_int_t)s->skipped_count, "skipped_first", swn_cli_json_text(s->skipped), "largest_layer",
                          largest, "smallest_budget_bytes", (json_int_t)m->smallest_budget, "library_least_bytes",
                          (json_int_t)m->library_least, "layers", layers);
    int rc = j && whole ? 0 : -ENOMEM;
    if (!rc)
        swn_cli_print_json(j, 0);
    json_decref(j);
    return rc;
}

static int print_table(const struct summary *m)
{
    const struct swn_store *s = m->s;
    char a[32], b[32];
    size_t width = strlen("(top)");
    for (size_t i = 0; i < s->layer_count; i++)
        width = strlen(s->layers[i].name) > width ? strlen(s->layers[i].name) : width;
    width = width > 60 ? 60 : width;
    printf("%-*s  %7s  %12s  %s\n", (int)width, "LAYER", "TENSORS", "SIZE", "TYPES");
    for (size_t i = 0; i < s->layer_count; i++) {
        const struct swn_store_layer *l = &s->layers[i];
        swn_cli_print_name(stdout, l->name[0] ? l->name : "(top)", (int)width);
        printf("  %7" PRIu32 "  %12s  ", l->depth, swn_format_mib(a, l->bytes));
        const char *comma = "";
        for (int d = 0; d < SWN_DTYPE_COUNT; d++)
            if (m->dtypes[i] & 1u << d) {
                printf("%s%s", comma, swn_dtype_name((enum swn_dtype)d));
                comma = ",";
            }
        putchar('\n');
    }
    printf("\n%s: %zu layers, %zu tensors, %s", m->kind, s->layer_count, s->tensor_count, swn_format_mib(a, m->bytes));
    if (s->layer_count) {
        printf("; largest layer ");
        swn_cli_print_name(stdout, s->layers[m->largest].name[0] ? s->layers[m->largest].name : "(top)", 0);
        printf(" (%s); smallest budget %s", swn_format_mib(a, s->layers[m->largest].bytes),
               swn_format_mib(b, m->smallest_budget));
    }
    putchar('\n');
    if (m->library_least)
        printf("under the preload library: smallest budget %s and what the program's other tensors take at once\n",
               swn_format_mib(a, m->library_least));
    if (m->copied_bytes)
        printf("%s of it can be read as %s\n", swn_format_mib(a, m->copied_bytes), swn_format_mib(b, m->encoded_bytes));
    part_say_skipped(s, m->path);
    return 0;
}

static int inspect(const char *path, int json)
{
    struct swn_store *s;
    struct summary m = {.path = path};
    int rc = part_open_model(&s, &m.kind, path);
    if (rc)
        return part_exit_code(rc);
    m.s = s;
    rc = summarise(&m);
    if (rc)
        swn_cli_error("no memory");
    else if ((rc = json ? print_json(&m) : print_table(&m)))
        swn_cli_error("a name in '%s' is not UTF-8, which JSON must be", path);
    free(m.memory_bytes);
    free(m.dtypes);
    swn_store_close(s, &swn_io_sys);
    return part_exit_code(rc);
}

int part_inspect(int argc, char **argv)
{
    int json = 0, rc = swn_cli_only_format(argc, argv, SWN_CLI_JSON, &json);
    if (rc)
        return rc > 0 ? SWN_CLI_OK : SWN_CLI_USAGE;
    if (optind != argc - 1) {
        swn_cli_error("give one checkpoint or store; see 'swapnet-partition help inspect'");
        return SWN_CLI_USAGE;
    }
    return inspect(argv[optind], json);
}
