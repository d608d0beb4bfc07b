/* skeleton/tape/exported_meta.c - the description of a tensor: element type, sizes and strides. A size is a number, or
 * an expression of symbols, whose names become known here. */
#include "skeleton/tape/exported_reader.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* The symbol of a name, which is new if need be. */
static int symbol_named(struct swn_exported_reader *r, const char *name, size_t length, uint32_t *number)
{
    struct swn_exported *e = r->e;
    struct swn_exported_symbol *larger;
    char *copy;
    size_t i;

    for (i = 0; i < e->symbol_count; i++)
        if (!strncmp(e->symbols[i].name, name, length) && !e->symbols[i].name[length])
            break;
    *number = (uint32_t)i;
    if (i < e->symbol_count)
        return 0;
    if (i == 1024)
        return swn_exported_refuse(r, "there are more than 1024 symbols");
    larger = realloc(e->symbols, (i + 1) * sizeof *larger);
    if (!larger)
        return -ENOMEM;
    e->symbols = larger;
    copy = swn_exported_take(r, length + 1, 1);
    if (!copy)
        return -ENOMEM;
    memcpy(copy, name, length);
    larger[e->symbol_count++] = (struct swn_exported_symbol){.name = copy, .least = 0, .most = INT64_MAX};
    return 0;
}

/* d += part, or d *= part. 0 where the result is no factor * symbol + size. */
static int combine(struct swn_exported_dimension *d, const struct swn_exported_dimension *part, int is_sum)
{
    int64_t factor, other;

    if (d->factor && part->factor && (!is_sum || part->symbol != d->symbol))
        return 0;
    if (part->factor)
        d->symbol = part->symbol;
    if (is_sum)
        return !__builtin_add_overflow(d->size, part->size, &d->size) &&
               !__builtin_add_overflow(d->factor, part->factor, &d->factor);
    return !__builtin_mul_overflow(d->factor, part->size, &factor) &&
           !__builtin_mul_overflow(d->size, part->factor, &other) &&
           !__builtin_add_overflow(factor, other, &d->factor) && !__builtin_mul_overflow(d->size, part->size, &d->size);
}

/* An expression as factor * symbol + size: Symbol('s0', ...), Integer(n), and Add and Mul of such. Moves *at past it.
 * 0, 1 for any other expression, or -errno. */
static int read_expression(struct swn_exported_reader *r, const char **at, int depth, struct swn_exported_dimension *d)
{
    struct swn_exported_dimension part;
    int is_sum = !strncmp(*at, "Add(", 4), rc;
    char *end;

    *d = (struct swn_exported_dimension){0};
    if (!strncmp(*at, "Integer(", 8)) {
        errno = 0;
        d->size = strtoll(*at + 8, &end, 10);
        if (errno || end == *at + 8 || *end != ')')
            return 1;
        *at = end + 1;
        return 0;
    }
    if (!strncmp(*at, "Symbol('", 8)) {
        const char *name = *at + 8, *quote = strchr(name, '\''), *close = quote ? strchr(quote, ')') : NULL;

        if (!close || quote == name || quote - name > 64)
            return 1;
        *at = close + 1;
        d->factor = 1;
        return symbol_named(r, name, (size_t)(quote - name), &d->symbol);
    }
    if ((!is_sum && strncmp(*at, "Mul(", 4)) || depth > 8)
        return 1;
    *at += 4;
    for (d->size = !is_sum;; *at += 2) {
        rc = read_expression(r, at, depth + 1, &part);
        if (rc)
            return rc;
        if (!combine(d, &part, is_sum))
            return 1;
        if (strncmp(*at, ", ", 2))
            break;
    }
    if (**at != ')')
        return 1;
    (*at)++;
    return 0;
}

static int read_dimension(struct swn_exported_reader *r, json_t *j, struct swn_exported_dimension *d)
{
    const char *key, *text;
    json_t *v = swn_exported_only_member(r, j, &key);
    int rc;

    if (!v)
        return -EINVAL;
    if (!strcmp(key, "as_int") && json_is_integer(v) && json_integer_value(v) >= 0) {
        *d = (struct swn_exported_dimension){.size = json_integer_value(v)};
        return 0;
    }
    text = json_string_value(json_object_get(v, "expr_str"));
    if (strcmp(key, "as_expr") || !text)
        return swn_exported_refuse(r, "a size is neither a number nor an expression");
    rc = read_expression(r, &text, 0, d);
    if (rc < 0)
        return rc;
    if (rc || *text)
        *d = (struct swn_exported_dimension){.any = 1};
    else if (!d->factor && d->size < 0)
        return swn_exported_refuse(r, "a size is below 0");
    return 0;
}

int swn_exported_read_meta(struct swn_exported_reader *r, json_t *j, int fixed, struct swn_exported_meta *m)
{
    json_t *sizes = swn_exported_member(r, j, "sizes", JSON_ARRAY),
           *strides = swn_exported_member(r, j, "strides", JSON_ARRAY);
    json_t *dtype = swn_exported_member(r, j, "dtype", JSON_INTEGER),
           *layout = swn_exported_member(r, j, "layout", JSON_INTEGER);
    struct swn_exported_dimension d;
    size_t i;
    int rc = 0;

    if (!sizes || !strides || !dtype || !layout)
        return -EINVAL;
    if (json_array_size(sizes) > SWN_EXPORTED_RANK || json_array_size(sizes) != json_array_size(strides))
        return swn_exported_refuse(r, "a tensor has too many dimensions, or another number of strides");
    m->dtype = json_integer_value(dtype);
    m->layout = json_integer_value(layout);
    m->rank = (uint32_t)json_array_size(sizes);
    m->requires_grad = json_is_true(json_object_get(j, "requires_grad"));
    for (i = 0; !rc && i < m->rank; i++)
        rc = read_dimension(r, json_array_get(sizes, i), &m->sizes[i]);
    for (i = 0; !rc && fixed && i <= m->rank; i++) {
        if (i < m->rank && (m->sizes[i].any || m->sizes[i].factor))
            return swn_exported_refuse(r, "a weight has a size that is no number");
        rc = read_dimension(r, i < m->rank ? json_array_get(strides, i) : json_object_get(j, "storage_offset"), &d);
        if (!rc && (d.any || d.factor))
            return swn_exported_refuse(r, "a weight has a stride that is no number");
        if (i < m->rank)
            m->strides[i] = d.size;
        else
            m->offset = d.size;
    }
    return rc;
}
