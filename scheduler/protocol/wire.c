/* scheduler/protocol/wire.c - one table lists every field; decoding and encoding follow it. */
#include "scheduler/protocol/wire.h"

#include <errno.h>
#include <jansson.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/errmsg.h"

enum type { BYTES, NUMBER, SECONDS, URGENCY, TEXT, CURVE };

static const struct field {
    const char *key;
    enum type type;
    unsigned bit;
    size_t offset, size;
} fields[] = {
#define FIELD(key, type, bit, member)                                                                                  \
    {                                                                                                                  \
        key, type, bit, offsetof(struct swn_wire, member), sizeof(((struct swn_wire *)0)->member)                      \
    }
    FIELD("version", NUMBER, SWN_HAS_VERSION, version),
    FIELD("pid", NUMBER, SWN_HAS_PID, pid),
    FIELD("name", TEXT, SWN_HAS_NAME, name),
    FIELD("seq", NUMBER, SWN_HAS_SEQ, seq),
    FIELD("budget", BYTES, SWN_HAS_BUDGET, budget),
    FIELD("lease", BYTES, SWN_HAS_LEASE, lease),
    FIELD("minimum", BYTES, SWN_HAS_MINIMUM, minimum),
    FIELD("demand", BYTES, SWN_HAS_DEMAND, demand),
    FIELD("weights", BYTES, SWN_HAS_WEIGHTS, weights),
    FIELD("resident", BYTES, SWN_HAS_RESIDENT, resident),
    FIELD("cap", BYTES, SWN_HAS_CAP, cap),
    FIELD("total", BYTES, SWN_HAS_TOTAL, total),
    FIELD("latency", SECONDS, SWN_HAS_LATENCY, latency),
    FIELD("urgency", URGENCY, SWN_HAS_URGENCY, urgency),
    FIELD("text", TEXT, SWN_HAS_TEXT, text),
    FIELD("curve", CURVE, SWN_HAS_CURVE, curve),
};
#define FIELDS (sizeof(fields) / sizeof(fields[0]))

/* The fields that each message must have. */
static const struct {
    const char *name;
    unsigned needs;
} ops[SWN_WIRE_OPS] = {
    [SWN_WIRE_HELLO] = {"hello", SWN_HAS_VERSION},
    [SWN_WIRE_UPDATE] = {"update", 0},
    [SWN_WIRE_ACK] = {"ack", SWN_HAS_SEQ},
    [SWN_WIRE_REFUSE] = {"refuse", SWN_HAS_SEQ | SWN_HAS_MINIMUM | SWN_HAS_LEASE},
    [SWN_WIRE_BYE] = {"bye", 0},
    [SWN_WIRE_WELCOME] = {"welcome", SWN_HAS_VERSION},
    [SWN_WIRE_LEASE] = {"lease", SWN_HAS_SEQ | SWN_HAS_BUDGET},
    [SWN_WIRE_ERROR] = {"error", SWN_HAS_TEXT},
    [SWN_WIRE_STATUS] = {"status", 0},
    [SWN_WIRE_LIST] = {"list", 0},
    [SWN_WIRE_ASK_VERSION] = {"version", 0},
    [SWN_WIRE_SET] = {"set", 0},
    [SWN_WIRE_TOTAL] = {"total", SWN_HAS_BUDGET},
    [SWN_WIRE_DRAIN] = {"drain", 0},
};

__attribute__((format(printf, 2, 3))) static int fail(char why[SWN_WIRE_TEXT], const char *format, ...)
{
    va_list ap;
    va_start(ap, format);
    vsnprintf(why, SWN_WIRE_TEXT, format, ap);
    va_end(ap);
    return -EINVAL;
}

/* ---- decoding ---- */

static int take_integer(const json_t *value, uint64_t most, uint64_t *out)
{
    if (!json_is_integer(value) || json_integer_value(value) < 0 || (uint64_t)json_integer_value(value) > most)
        return -EINVAL;
    *out = (uint64_t)json_integer_value(value);
    return 0;
}

static int take_real(const json_t *value, double least, double most, double *out)
{
    double number = json_is_number(value) ? json_number_value(value) : NAN;
    if (!(number >= least && number <= most))
        return -EINVAL;
    *out = number;
    return 0;
}

/* Copies the text, cut to size between two characters; jansson admits only valid UTF-8. */
static int take_text(const json_t *value, char *out, size_t size)
{
    const char *text = json_string_value(value);
    if (!text)
        return -EINVAL;
    size_t len = strlen(text);
    if (len >= size)
        for (len = size - 1; len && ((unsigned char)text[len] & 0xc0) == 0x80;)
            len--;
    memcpy(out, text, len);
    out[len] = '\0';
    swn_one_line(out);
    return 0;
}

#define SECONDS_MOST 1e6

static int take_curve(const json_t *value, struct swn_wire *out)
{
    size_t n = json_array_size(value) / 2;
    if (!json_is_array(value) || json_array_size(value) % 2 || n > SWN_WIRE_POINTS)
        return -EINVAL;
    for (size_t i = 0; i < n; i++) {
        struct swn_divide_point *p = &out->curve[i];
        if (take_integer(json_array_get(value, 2 * i), SWN_WIRE_BYTES_MOST, &p->budget_bytes) ||
            take_real(json_array_get(value, 2 * i + 1), 0, SECONDS_MOST, &p->latency_s) ||
            (i && p->budget_bytes <= p[-1].budget_bytes))
            return -EINVAL;
    }
    out->points = n;
    return 0;
}

static int take_field(struct swn_wire *out, const struct field *f, const json_t *value)
{
    char *at = (char *)out + f->offset;
    switch (f->type) {
    case BYTES:
        return take_integer(value, SWN_WIRE_BYTES_MOST, (uint64_t *)at);
    case NUMBER:
        return take_integer(value, INT64_MAX, (uint64_t *)at);
    case SECONDS:
        return take_real(value, 0, SECONDS_MOST, (double *)at);
    case URGENCY:
        return take_real(value, SWN_WIRE_URGENCY_LEAST, SWN_WIRE_URGENCY_MOST, (double *)at);
    case TEXT:
        return take_text(value, at, f->size);
    default:
        return take_curve(value, out);
    }
}

static enum swn_wire_op op_named(const char *name)
{
    for (unsigned i = 1; i < SWN_WIRE_OPS; i++)
        if (!strcmp(ops[i].name, name))
            return (enum swn_wire_op)i;
    return SWN_WIRE_UNKNOWN;
}

static int take_all(struct swn_wire *out, const json_t *root, char why[SWN_WIRE_TEXT])
{
    const char *op = json_string_value(json_object_get(root, "op"));
    if (!op)
        return fail(why, "the request has no \"op\"");
    out->op = op_named(op);
    for (size_t i = 0; i < FIELDS; i++) {
        const json_t *value = json_object_get(root, fields[i].key);
        if (!value)
            continue;
        if (take_field(out, &fields[i], value))
            return fail(why, "\"%s\" is not what it should be", fields[i].key);
        out->has |= fields[i].bit;
    }
    unsigned missing = ops[out->op].needs & ~out->has;
    for (size_t i = 0; i < FIELDS; i++)
        if (missing & fields[i].bit)
            return fail(why, "\"%s\" is missing in \"%s\"", fields[i].key, ops[out->op].name);
    return 0;
}

static int too_deep(const char *text, size_t len)
{
    int brackets = 0;
    for (size_t i = 0; i < len; i++)
        brackets += text[i] == '[' || text[i] == '{';
    return brackets > SWN_WIRE_BRACKETS;
}

int swn_wire_decode(struct swn_wire *out, const char *line, size_t len, char why[SWN_WIRE_TEXT])
{
    memset(out, 0, sizeof *out);
    if (len >= SWN_WIRE_MOST)
        return fail(why, "the request is longer than %d bytes", SWN_WIRE_MOST);
    if (too_deep(line, len)) /* jansson recurses, and the stacks of the library's threads are small */
        return fail(why, "the request is nested too deeply");
    json_t *root = json_loadb(line, len, JSON_REJECT_DUPLICATES, NULL);
    int err = json_is_object(root) ? take_all(out, root, why) : fail(why, "the request is not a JSON object");
    json_decref(root);
    return err;
}

/* ---- encoding ---- */

static json_t *curve_json(const struct swn_wire *m)
{
    json_t *list = json_array();
    for (size_t i = 0; i < m->points; i++) {
        json_array_append_new(list, json_integer((json_int_t)m->curve[i].budget_bytes));
        json_array_append_new(list, json_real(m->curve[i].latency_s));
    }
    return list;
}

static json_t *field_json(const struct swn_wire *m, const struct field *f)
{
    const char *at = (const char *)m + f->offset;
    switch (f->type) {
    case BYTES:
    case NUMBER:
        return json_integer((json_int_t) * (const uint64_t *)at);
    case SECONDS:
    case URGENCY:
        return json_real(*(const double *)at);
    case TEXT:
        return json_string(at);
    default:
        return curve_json(m);
    }
}

int swn_wire_encode(const struct swn_wire *m, char *buf, size_t size)
{
    json_t *root = json_object();
    int err = root ? json_object_set_new(root, "op", json_string(m->op ? ops[m->op].name : "unknown")) : -1;
    for (size_t i = 0; i < FIELDS && !err; i++)
        if (m->has & fields[i].bit)
            err = json_object_set_new(root, fields[i].key, field_json(m, &fields[i]));
    size_t len = err ? 0 : json_dumpb(root, buf, size, JSON_COMPACT);
    json_decref(root);
    if (!len)
        return -ENOMEM;
    if (len >= size || len >= SWN_WIRE_MOST)
        return -EMSGSIZE;
    buf[len] = '\0';
    return (int)len;
}
