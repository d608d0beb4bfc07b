/* scheduler/protocol/stats_json.c - the statistics document. A table maps every field to the key of its name. */
#define _GNU_SOURCE
#include "scheduler/protocol/stats_json.h"

#include <errno.h>
#include <jansson.h>
#include <limits.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include "base/text_file.h"
#include "base/errmsg.h"

#define SCHEMA 1

enum kind { TEXT, NUMBER, REAL };

#define FIELD(kind, name)                                                                                              \
    {                                                                                                                  \
#name, offsetof(struct swn_stats, name), kind                                                                  \
    }

static const struct field {
    const char *key;
    size_t offset;
    enum kind kind;
} fields[] = {
    FIELD(NUMBER, pid),
    FIELD(TEXT, name),
    FIELD(TEXT, state),
    FIELD(NUMBER, budget_bytes),
    FIELD(NUMBER, minimum_bytes),
    FIELD(NUMBER, demand_bytes),
    FIELD(NUMBER, resident_bytes),
    FIELD(NUMBER, peak_resident_bytes),
    FIELD(NUMBER, pool_bytes),
    FIELD(NUMBER, kept_bytes),
    FIELD(NUMBER, small_bytes),
    FIELD(NUMBER, streamed_bytes),
    FIELD(NUMBER, encoded_bytes),
    FIELD(NUMBER, decoded_bytes),
    FIELD(NUMBER, spilled_bytes),
    FIELD(NUMBER, deferred_bytes),
    FIELD(NUMBER, swap_ins),
    FIELD(NUMBER, window_hits),
    FIELD(NUMBER, window_misses),
    FIELD(NUMBER, stalls),
    FIELD(NUMBER, stall_ns),
    FIELD(NUMBER, filled_bytes),
    FIELD(NUMBER, dropped_bytes),
    FIELD(NUMBER, placed_bytes),
    FIELD(NUMBER, slices),
    FIELD(NUMBER, rows),
    FIELD(NUMBER, fallback_reads),
    FIELD(NUMBER, over_budget_bytes),
    FIELD(NUMBER, untracked_bytes),
    FIELD(NUMBER, untracked_weight_bytes),
    FIELD(NUMBER, passes),
    FIELD(NUMBER, read_errors),
    FIELD(NUMBER, plans),
    FIELD(NUMBER, plan_reviews),
    FIELD(NUMBER, plan_budget_bytes),
    FIELD(NUMBER, plan_since_ns),
    FIELD(NUMBER, budget_since_ns),
    FIELD(NUMBER, bound_ns),
    FIELD(NUMBER, in_flight_ns),
    FIELD(NUMBER, unified_elided_bytes),
    FIELD(NUMBER, unified_copied_bytes),
    FIELD(NUMBER, device_budget_bytes),
    FIELD(NUMBER, device_resident_bytes),
    FIELD(NUMBER, device_peak_bytes),
    FIELD(NUMBER, device_kept_bytes),
    FIELD(NUMBER, device_swap_ins),
    FIELD(NUMBER, device_pinned_bytes),
    FIELD(NUMBER, device_swapped_bytes),
    FIELD(NUMBER, device_stall_ns),
    FIELD(REAL, urgency),
    FIELD(TEXT, fetch_path),
    FIELD(TEXT, torch_version),
    FIELD(TEXT, unified),
    FIELD(TEXT, daemon_socket),
};
#define FIELDS (sizeof(fields) / sizeof(fields[0]))

static json_t *text_value(const char *text)
{
    if (!text)
        return json_null();
    json_t *value = json_string(text);
    if (value)
        return value;
    char *copy = strdup(text); /* a program's name is any bytes */
    if (!copy)
        return NULL;
    swn_make_utf8(copy);
    value = json_string(copy);
    free(copy);
    return value;
}

static json_t *field_value(const struct swn_stats *stats, const struct field *f)
{
    const char *at = (const char *)stats + f->offset;
    if (f->kind == TEXT) {
        const char *text;
        memcpy(&text, at, sizeof(text));
        return text_value(text);
    }
    if (f->kind == REAL) {
        double real;
        memcpy(&real, at, sizeof(real));
        return json_real(real);
    }
    uint64_t number;
    memcpy(&number, at, sizeof(number));
    return json_integer(number > LLONG_MAX ? LLONG_MAX : (json_int_t)number);
}

static char *dump(const struct swn_stats *stats, size_t flags)
{
    char *text = NULL;
    json_t *root = json_pack("{s:i}", "schema", SCHEMA);
    size_t i = 0;
    while (root && i < FIELDS && json_object_set_new(root, fields[i].key, field_value(stats, &fields[i])) == 0)
        i++;
    if (i == FIELDS)
        text = json_dumps(root, flags);
    json_decref(root);
    return text;
}

char *swn_stats_to_json(const struct swn_stats *stats)
{
    return dump(stats, JSON_COMPACT);
}

int swn_stats_write_file(const struct swn_stats *stats, const char *path)
{
    char *text = dump(stats, JSON_INDENT(2));
    if (!text)
        return -ENOMEM;
    int rc = swn_textfile_write(path, text);
    free(text);
    return rc;
}
