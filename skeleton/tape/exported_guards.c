/* skeleton/tape/exported_guards.c - the conditions on a request: ranges of symbols, and guards. */
#include "skeleton/tape/exported_reader.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

int swn_exported_read_ranges(struct swn_exported_reader *r, json_t *root)
{
    json_t *ranges = json_object_get(root, "range_constraints");
    size_t i;

    for (i = 0; i < r->e->symbol_count; i++) {
        struct swn_exported_symbol *s = &r->e->symbols[i];
        json_t *range = json_object_get(ranges, s->name);
        json_t *least = json_object_get(range, "min_val"), *most = json_object_get(range, "max_val");

        if (json_is_integer(least) && json_integer_value(least) > 2)
            s->least = json_integer_value(least);
        if (json_is_integer(most))
            s->most = json_integer_value(most);
        if (s->least > s->most)
            return swn_exported_refuse(r, "no number is in the range of the symbol %.60s", s->name);
    }
    return 0;
}

/* The dimension that "L['x'].size()[0]" names; moves *at past it. NULL: it names none. */
static const struct swn_exported_dimension *guarded(const struct swn_exported *e, const char **at)
{
    char name[65];
    unsigned index;
    int end = 0;
    size_t i;

    if (sscanf(*at, "L['%64[^']'].size()[%3u]%n", name, &index, &end) != 2 || !end)
        return NULL;
    for (i = 0; i < e->input_count; i++)
        if (e->inputs[i].source == SWN_EXPORTED_USER && !strcmp(e->inputs[i].name, name))
            break;
    if (i == e->input_count || index >= e->inputs[i].meta.rank)
        return NULL;
    *at += end;
    return &e->inputs[i].meta.sizes[index];
}

/* A condition in Python that sizes say already, or that bounds a symbol: one dimension is that of another input, or at
 * least or at most a number. Any other condition refuses the file, as nobody here can check it. */
static int read_guard(struct swn_exported_reader *r, const char *guard)
{
    const char *at = guard;
    const struct swn_exported_dimension *d = guarded(r->e, &at), *same;
    struct swn_exported_symbol *s = d && !d->any && d->factor == 1 && !d->size ? &r->e->symbols[d->symbol] : NULL;
    int end = 0, least;
    long long bound;

    if (d && !d->any && !strncmp(at, " == ", 4)) {
        at += 4;
        same = guarded(r->e, &at);
        if (same && !*at && !memcmp(d, same, sizeof *d))
            return 0;
    } else if (s && (!strncmp(at, " >= ", 4) || !strncmp(at, " <= ", 4))) {
        least = at[1] == '>';
        if (sscanf(at + 4, "%18lld%n", &bound, &end) == 1 && end && !at[4 + end]) {
            if (least && bound > s->least)
                s->least = bound;
            if (!least && bound < s->most)
                s->most = bound;
            return 0;
        }
    }
    return swn_exported_refuse(r, "the program has a condition on its inputs that cannot be checked: %.120s", guard);
}

int swn_exported_read_guards(struct swn_exported_reader *r, json_t *root)
{
    json_t *guards = json_object_get(root, "guards_code");
    size_t i;
    int rc = 0;

    for (i = 0; !rc && i < json_array_size(guards); i++) {
        const char *guard = json_string_value(json_array_get(guards, i));

        rc = guard ? read_guard(r, guard) : swn_exported_refuse(r, "a condition is no text");
    }
    return rc;
}
