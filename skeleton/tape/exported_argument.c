/* skeleton/tape/exported_argument.c - the arguments of a node: unions whose one member names the type. A value is
 * looked up in the scope, or is new where the arguments are results. */
#include "skeleton/tape/exported_reader.h"

#include <errno.h>
#include <math.h>
#include <string.h>

static int name_value(struct swn_exported_reader *r, const char *name, int is_tensor, struct swn_exported_argument *a)
{
    const json_t *known;

    a->kind = SWN_EXPORTED_VALUE;
    if (r->defines)
        return swn_exported_new_value(r, name, is_tensor, &a->number);
    known = json_object_get(r->scope, name);
    if (!known)
        return swn_exported_refuse(r, "nothing makes the value \"%.100s\"", name);
    a->number = json_integer_value(known);
    if (r->e->is_tensor[a->number] != is_tensor)
        return swn_exported_refuse(r, "the value \"%.100s\" is %s tensor", name, is_tensor ? "no" : "a");
    return 0;
}

static int read_tensor(struct swn_exported_reader *r, json_t *j, struct swn_exported_argument *a)
{
    const char *name = swn_exported_text_of(r, j, "name");

    return name ? name_value(r, name, 1, a) : -EINVAL;
}

static int read_none(struct swn_exported_reader *r, json_t *j, struct swn_exported_argument *a)
{
    (void)r, (void)j;
    a->kind = SWN_EXPORTED_NONE;
    return 0;
}

static int read_int(struct swn_exported_reader *r, json_t *j, struct swn_exported_argument *a)
{
    if (!json_is_integer(j))
        return swn_exported_refuse(r, "a number is no integer");
    a->kind = SWN_EXPORTED_INT;
    a->number = json_integer_value(j);
    return 0;
}

static int read_bool(struct swn_exported_reader *r, json_t *j, struct swn_exported_argument *a)
{
    if (!json_is_boolean(j))
        return swn_exported_refuse(r, "a truth value is neither true nor false");
    a->kind = SWN_EXPORTED_BOOL;
    a->number = json_is_true(j);
    return 0;
}

/* JSON has no word for what is not finite; torch.export writes strings. */
static int read_float(struct swn_exported_reader *r, json_t *j, struct swn_exported_argument *a)
{
    const char *word = json_is_string(j) ? json_string_value(j) : "";

    a->kind = SWN_EXPORTED_FLOAT;
    if (json_is_number(j))
        a->real = json_number_value(j);
    else if (!strcmp(word, "Infinity"))
        a->real = INFINITY;
    else if (!strcmp(word, "-Infinity"))
        a->real = -INFINITY;
    else if (!strcmp(word, "NaN"))
        a->real = NAN;
    else
        return swn_exported_refuse(r, "a number is of another type");
    return 0;
}

static int read_string(struct swn_exported_reader *r, json_t *j, struct swn_exported_argument *a)
{
    if (!json_is_string(j))
        return swn_exported_refuse(r, "a string is of another type");
    a->kind = SWN_EXPORTED_STRING;
    a->text = json_string_value(j);
    return 0;
}

static int read_enum(struct swn_exported_reader *r, json_t *j, struct swn_exported_argument *a,
                     enum swn_exported_kind kind)
{
    if (!json_is_integer(j) || json_integer_value(j) < 0 || json_integer_value(j) > 255)
        return swn_exported_refuse(r, "a number is no element type, layout or memory format");
    a->kind = kind;
    a->number = json_integer_value(j);
    return 0;
}

static int read_dtype(struct swn_exported_reader *r, json_t *j, struct swn_exported_argument *a)
{
    return read_enum(r, j, a, SWN_EXPORTED_DTYPE);
}

static int read_layout(struct swn_exported_reader *r, json_t *j, struct swn_exported_argument *a)
{
    return read_enum(r, j, a, SWN_EXPORTED_LAYOUT);
}

static int read_memory_format(struct swn_exported_reader *r, json_t *j, struct swn_exported_argument *a)
{
    return read_enum(r, j, a, SWN_EXPORTED_MEMORY_FORMAT);
}

static int read_device(struct swn_exported_reader *r, json_t *j, struct swn_exported_argument *a)
{
    a->kind = SWN_EXPORTED_DEVICE;
    a->text = swn_exported_text_of(r, j, "type");
    return a->text ? 0 : -EINVAL;
}

/* A number of the request by its name, or a fixed one. */
static int read_symbolic(struct swn_exported_reader *r, json_t *j, struct swn_exported_argument *a)
{
    const char *key;
    json_t *v = swn_exported_only_member(r, j, &key);

    if (!v)
        return -EINVAL;
    if (!strcmp(key, "as_name") && json_is_string(v))
        return name_value(r, json_string_value(v), 0, a);
    if (!strcmp(key, "as_int"))
        return read_int(r, v, a);
    if (!strcmp(key, "as_float"))
        return read_float(r, v, a);
    if (!strcmp(key, "as_bool"))
        return read_bool(r, v, a);
    return swn_exported_refuse(r, "a symbolic number is \"%.60s\"", key);
}

static int read_optional(struct swn_exported_reader *r, json_t *j, struct swn_exported_argument *a)
{
    const char *key;
    json_t *v = swn_exported_only_member(r, j, &key);

    if (!v)
        return -EINVAL;
    if (!strcmp(key, "as_tensor"))
        return read_tensor(r, v, a);
    if (!strcmp(key, "as_none"))
        return read_none(r, v, a);
    return swn_exported_refuse(r, "an optional tensor is \"%.60s\"", key);
}

static const struct form {
    const char *key;
    int (*read)(struct swn_exported_reader *r, json_t *j, struct swn_exported_argument *a);
    int list;
} forms[] = {
    {"as_none", read_none, 0},
    {"as_tensor", read_tensor, 0},
    {"as_tensors", read_tensor, 1},
    {"as_optional_tensor", read_optional, 0},
    {"as_optional_tensors", read_optional, 1},
    {"as_int", read_int, 0},
    {"as_ints", read_int, 1},
    {"as_float", read_float, 0},
    {"as_floats", read_float, 1},
    {"as_bool", read_bool, 0},
    {"as_bools", read_bool, 1},
    {"as_string", read_string, 0},
    {"as_strings", read_string, 1},
    {"as_sym_int", read_symbolic, 0},
    {"as_sym_ints", read_symbolic, 1},
    {"as_sym_float", read_symbolic, 0},
    {"as_sym_floats", read_symbolic, 1},
    {"as_sym_bool", read_symbolic, 0},
    {"as_sym_bools", read_symbolic, 1},
    {"as_scalar_type", read_dtype, 0},
    {"as_layout", read_layout, 0},
    {"as_memory_format", read_memory_format, 0},
    {"as_device", read_device, 0},
};

int swn_exported_read_argument(struct swn_exported_reader *r, json_t *j, struct swn_exported_argument *a)
{
    const char *key;
    json_t *v = swn_exported_only_member(r, j, &key);
    size_t f, i;

    if (!v)
        return -EINVAL;
    for (f = 0; f < sizeof forms / sizeof *forms && strcmp(forms[f].key, key); f++)
        ;
    if (f == sizeof forms / sizeof *forms)
        return swn_exported_refuse(r, "an argument is \"%.60s\", which cannot be served", key);
    if (!forms[f].list)
        return forms[f].read(r, v, a);
    if (!json_is_array(v))
        return swn_exported_refuse(r, "\"%s\" is no list", key);
    a->kind = SWN_EXPORTED_LIST;
    a->count = json_array_size(v);
    a->items = swn_exported_take(r, a->count, sizeof *a->items);
    if (!a->items)
        return -ENOMEM;
    for (i = 0; i < a->count; i++) {
        int rc = forms[f].read(r, json_array_get(v, i), &a->items[i]);

        if (rc)
            return rc;
    }
    return 0;
}

int swn_exported_read_arguments(struct swn_exported_reader *r, const json_t *list, int named,
                                struct swn_exported_argument **out, size_t *count)
{
    size_t i;
    int rc = 0;

    *count = json_array_size(list);
    *out = swn_exported_take(r, *count, sizeof **out);
    if (!*out)
        return -ENOMEM;
    for (i = 0; !rc && i < *count; i++) {
        json_t *j = json_array_get(list, i), *arg = named ? json_object_get(j, "arg") : j;
        const char *name = named ? swn_exported_text_of(r, j, "name") : NULL;

        if (named && !name)
            return -EINVAL;
        if (!arg)
            return swn_exported_refuse(r, "an argument has no value");
        rc = swn_exported_read_argument(r, arg, &(*out)[i]);
        (*out)[i].name = name;
    }
    return rc;
}
