/* skeleton/tape/exported.c - see exported.h.
 *
 * jansson reads the texts, refuses duplicate keys, and bounds the depth. Names of values are looked up in a scope, one
 * per graph: the graph in a node of `with torch.no_grad()` has its own names.
 */
#define _GNU_SOURCE
#include "skeleton/tape/exported.h"

#include <errno.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <jansson.h>

#define GRAPHS_DEEP 8
#define SPEC_DEEP 32
#define NAME_BYTES 128 /* of an output, as on the wire */

struct chunk {
    struct chunk *next;
    max_align_t bytes[];
};

struct memory {
    struct chunk *chunks;
    json_t *roots[4];
};

struct reader {
    struct swn_exported *e;
    struct memory *memory;
    json_t *scope; /* the names of the graph that is read: numbers of values */
    int defines;   /* names are those of results */
    size_t node_room, value_room;
    const char *where; /* a node's name, for messages */
    char *why;
};

__attribute__((format(printf, 2, 3))) static int refuse(struct reader *r, const char *format, ...)
{
    char what[256];
    va_list arguments;

    va_start(arguments, format);
    vsnprintf(what, sizeof what, format, arguments);
    va_end(arguments);
    snprintf(r->why, SWN_EXPORTED_WHY, "%s%s%.200s", what, r->where ? ", at " : "", r->where ? r->where : "");
    return -EINVAL;
}

static void *take(struct reader *r, size_t count, size_t size)
{
    struct chunk *c = count <= SWN_EXPORTED_COUNT ? calloc(1, sizeof *c + count * size + 1) : NULL;

    if (!c)
        return NULL;
    c->next = r->memory->chunks;
    r->memory->chunks = c;
    return c->bytes;
}

static int grow(void **array, size_t count, size_t *room, size_t size)
{
    void *larger;

    if (count < *room)
        return 0;
    if (count >= SWN_EXPORTED_COUNT)
        return -ENOMEM;
    larger = realloc(*array, (*room ? *room * 2 : 256) * size);
    if (!larger)
        return -ENOMEM;
    *array = larger;
    *room = *room ? *room * 2 : 256;
    return 0;
}

/* The member of an object, of a type. */
static json_t *member(struct reader *r, const json_t *object, const char *key, json_type type)
{
    json_t *found = json_object_get(object, key);

    if (found && json_typeof(found) == type)
        return found;
    refuse(r, "\"%s\" is %s", key, found ? "of another type" : "missing");
    return NULL;
}

static const char *text_of(struct reader *r, const json_t *object, const char *key)
{
    json_t *found = member(r, object, key, JSON_STRING);

    return found ? json_string_value(found) : NULL;
}

/* The one member of a union. */
static json_t *only_member(struct reader *r, json_t *object, const char **key)
{
    void *i = json_is_object(object) && json_object_size(object) == 1 ? json_object_iter(object) : NULL;

    if (!i) {
        refuse(r, "a union does not have one member");
        return NULL;
    }
    *key = json_object_iter_key(i);
    return json_object_iter_value(i);
}

static int new_value(struct reader *r, const char *name, int is_tensor, int64_t *number)
{
    struct swn_exported *e = r->e;

    if (json_object_get(r->scope, name))
        return refuse(r, "the value \"%.100s\" is there twice", name);
    if (grow((void **)&e->is_tensor, e->value_count, &r->value_room, sizeof *e->is_tensor) ||
        json_object_set_new(r->scope, name, json_integer((json_int_t)e->value_count)))
        return -ENOMEM;
    e->is_tensor[e->value_count] = (uint8_t)is_tensor;
    *number = (int64_t)e->value_count++;
    return 0;
}

static int name_value(struct reader *r, const char *name, int is_tensor, struct swn_exported_argument *a)
{
    const json_t *known;

    a->kind = SWN_EXPORTED_VALUE;
    if (r->defines)
        return new_value(r, name, is_tensor, &a->number);
    known = json_object_get(r->scope, name);
    if (!known)
        return refuse(r, "nothing makes the value \"%.100s\"", name);
    a->number = json_integer_value(known);
    if (r->e->is_tensor[a->number] != is_tensor)
        return refuse(r, "the value \"%.100s\" is %s tensor", name, is_tensor ? "no" : "a");
    return 0;
}

static int read_tensor(struct reader *r, json_t *j, struct swn_exported_argument *a)
{
    const char *name = text_of(r, j, "name");

    return name ? name_value(r, name, 1, a) : -EINVAL;
}

static int read_none(struct reader *r, json_t *j, struct swn_exported_argument *a)
{
    (void)r, (void)j;
    a->kind = SWN_EXPORTED_NONE;
    return 0;
}

static int read_int(struct reader *r, json_t *j, struct swn_exported_argument *a)
{
    if (!json_is_integer(j))
        return refuse(r, "a number is no integer");
    a->kind = SWN_EXPORTED_INT;
    a->number = json_integer_value(j);
    return 0;
}

static int read_bool(struct reader *r, json_t *j, struct swn_exported_argument *a)
{
    if (!json_is_boolean(j))
        return refuse(r, "a truth value is neither true nor false");
    a->kind = SWN_EXPORTED_BOOL;
    a->number = json_is_true(j);
    return 0;
}

/* JSON has no word for what is not finite; torch.export writes strings. */
static int read_float(struct reader *r, json_t *j, struct swn_exported_argument *a)
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
        return refuse(r, "a number is of another type");
    return 0;
}

static int read_string(struct reader *r, json_t *j, struct swn_exported_argument *a)
{
    if (!json_is_string(j))
        return refuse(r, "a string is of another type");
    a->kind = SWN_EXPORTED_STRING;
    a->text = json_string_value(j);
    return 0;
}

static int read_enum(struct reader *r, json_t *j, struct swn_exported_argument *a, enum swn_exported_kind kind)
{
    if (!json_is_integer(j) || json_integer_value(j) < 0 || json_integer_value(j) > 255)
        return refuse(r, "a number is no element type, layout or memory format");
    a->kind = kind;
    a->number = json_integer_value(j);
    return 0;
}

static int read_dtype(struct reader *r, json_t *j, struct swn_exported_argument *a)
{
    return read_enum(r, j, a, SWN_EXPORTED_DTYPE);
}

static int read_layout(struct reader *r, json_t *j, struct swn_exported_argument *a)
{
    return read_enum(r, j, a, SWN_EXPORTED_LAYOUT);
}

static int read_memory_format(struct reader *r, json_t *j, struct swn_exported_argument *a)
{
    return read_enum(r, j, a, SWN_EXPORTED_MEMORY_FORMAT);
}

static int read_device(struct reader *r, json_t *j, struct swn_exported_argument *a)
{
    a->kind = SWN_EXPORTED_DEVICE;
    a->text = text_of(r, j, "type");
    return a->text ? 0 : -EINVAL;
}

/* A number of the request by its name, or a fixed one. */
static int read_symbolic(struct reader *r, json_t *j, struct swn_exported_argument *a)
{
    const char *key;
    json_t *v = only_member(r, j, &key);

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
    return refuse(r, "a symbolic number is \"%.60s\"", key);
}

static int read_optional(struct reader *r, json_t *j, struct swn_exported_argument *a)
{
    const char *key;
    json_t *v = only_member(r, j, &key);

    if (!v)
        return -EINVAL;
    if (!strcmp(key, "as_tensor"))
        return read_tensor(r, v, a);
    if (!strcmp(key, "as_none"))
        return read_none(r, v, a);
    return refuse(r, "an optional tensor is \"%.60s\"", key);
}

static const struct form {
    const char *key;
    int (*read)(struct reader *r, json_t *j, struct swn_exported_argument *a);
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

static int read_argument(struct reader *r, json_t *j, struct swn_exported_argument *a)
{
    const char *key;
    json_t *v = only_member(r, j, &key);
    size_t f, i;

    if (!v)
        return -EINVAL;
    for (f = 0; f < sizeof forms / sizeof *forms && strcmp(forms[f].key, key); f++)
        ;
    if (f == sizeof forms / sizeof *forms)
        return refuse(r, "an argument is \"%.60s\", which cannot be served", key);
    if (!forms[f].list)
        return forms[f].read(r, v, a);
    if (!json_is_array(v))
        return refuse(r, "\"%s\" is no list", key);
    a->kind = SWN_EXPORTED_LIST;
    a->count = json_array_size(v);
    a->items = take(r, a->count, sizeof *a->items);
    if (!a->items)
        return -ENOMEM;
    for (i = 0; i < a->count; i++) {
        int rc = forms[f].read(r, json_array_get(v, i), &a->items[i]);

        if (rc)
            return rc;
    }
    return 0;
}

static int read_arguments(struct reader *r, const json_t *list, int named, struct swn_exported_argument **out,
                          size_t *count)
{
    size_t i;
    int rc = 0;

    *count = json_array_size(list);
    *out = take(r, *count, sizeof **out);
    if (!*out)
        return -ENOMEM;
    for (i = 0; !rc && i < *count; i++) {
        json_t *j = json_array_get(list, i), *arg = named ? json_object_get(j, "arg") : j;
        const char *name = named ? text_of(r, j, "name") : NULL;

        if (named && !name)
            return -EINVAL;
        if (!arg)
            return refuse(r, "an argument has no value");
        rc = read_argument(r, arg, &(*out)[i]);
        (*out)[i].name = name;
    }
    return rc;
}

static int read_nodes(struct reader *r, json_t *graph, int depth);

/* The node of `with torch.no_grad()`: whether gradients are wanted, a graph, and the graph's inputs. Its steps stand
 * where the node stood. */
static int read_wrapped(struct reader *r, const json_t *inputs, const json_t *outputs, int depth)
{
    json_t *outer = r->scope, *inner = json_object(), *graph, *in, *out;
    size_t i;
    int rc = 0;

    graph = json_object_get(json_object_get(json_object_get(json_array_get(inputs, 1), "arg"), "as_graph"), "graph");
    in = json_object_get(graph, "inputs");
    out = json_object_get(graph, "outputs");
    if (!inner)
        return -ENOMEM;
    if (!json_is_array(in) || !json_is_array(out) || json_array_size(in) + 2 != json_array_size(inputs) ||
        json_array_size(out) != json_array_size(outputs))
        rc = refuse(r, "the graph of a node does not fit the node");
    for (i = 0; !rc && i < json_array_size(in); i++) {
        struct swn_exported_argument a = {0};
        json_t *name = json_object_get(json_object_get(json_array_get(in, i), "as_tensor"), "name");
        json_t *given = json_object_get(json_array_get(inputs, i + 2), "arg");

        rc = read_argument(r, given, &a);
        if (!rc && (a.kind != SWN_EXPORTED_VALUE || !json_is_string(name)))
            rc = refuse(r, "a graph in the graph takes what is no tensor");
        if (!rc && json_object_set_new(inner, json_string_value(name), json_integer(a.number)))
            rc = -ENOMEM;
    }
    r->scope = inner;
    if (!rc)
        rc = read_nodes(r, graph, depth + 1);
    for (i = 0; !rc && i < json_array_size(out); i++) {
        struct swn_exported_argument a = {0};
        json_t *name = json_object_get(json_object_get(json_array_get(outputs, i), "as_tensor"), "name");

        r->scope = inner;
        rc = read_argument(r, json_array_get(out, i), &a);
        if (!rc && (a.kind != SWN_EXPORTED_VALUE || !json_is_string(name)))
            rc = refuse(r, "a graph in the graph makes what is no tensor");
        if (!rc && json_object_get(outer, json_string_value(name)))
            rc = refuse(r, "the value \"%.100s\" is there twice", json_string_value(name));
        if (!rc && json_object_set_new(outer, json_string_value(name), json_integer(a.number)))
            rc = -ENOMEM;
    }
    r->scope = outer;
    json_decref(inner);
    return rc;
}

static int read_node(struct reader *r, json_t *j, int depth)
{
    struct swn_exported *e = r->e;
    const char *target = text_of(r, j, "target");
    json_t *inputs = member(r, j, "inputs", JSON_ARRAY), *outputs = member(r, j, "outputs", JSON_ARRAY);
    const char *name = json_string_value(json_object_get(j, "name"));
    struct swn_exported_node n = {0};
    int rc;

    if (!target || !inputs || !outputs)
        return -EINVAL;
    n.target = target;
    n.name = r->where = name ? name : target;
    if (!strcmp(target, "torch.ops.higher_order.wrap_with_set_grad_enabled"))
        return read_wrapped(r, inputs, outputs, depth);
    rc = read_arguments(r, inputs, 1, &n.inputs, &n.input_count);
    if (rc)
        return rc == -EINVAL && !strncmp(target, "torch.ops.higher_order.", 23)
                   ? refuse(r, "the operator %.100s with graphs of its own cannot be served", target)
                   : rc;
    r->defines = 1;
    rc = read_arguments(r, outputs, 0, &n.outputs, &n.output_count);
    r->defines = 0;
    if (!rc)
        rc = grow((void **)&e->nodes, e->node_count, &r->node_room, sizeof n);
    if (!rc)
        e->nodes[e->node_count++] = n;
    return rc;
}

static int read_nodes(struct reader *r, json_t *graph, int depth)
{
    json_t *nodes = member(r, graph, "nodes", JSON_ARRAY);
    const char *where = r->where;
    size_t i;
    int rc = nodes ? 0 : -EINVAL;

    if (depth > GRAPHS_DEEP)
        return refuse(r, "graphs in graphs are too deep");
    for (i = 0; !rc && i < json_array_size(nodes); i++)
        rc = read_node(r, json_array_get(nodes, i), depth);
    if (!rc)
        r->where = where;
    return rc;
}

/* The symbol of a name, which is new if need be. */
static int symbol_named(struct reader *r, const char *name, size_t length, uint32_t *number)
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
        return refuse(r, "there are more than 1024 symbols");
    larger = realloc(e->symbols, (i + 1) * sizeof *larger);
    if (!larger)
        return -ENOMEM;
    e->symbols = larger;
    copy = take(r, length + 1, 1);
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
static int read_expression(struct reader *r, const char **at, int depth, struct swn_exported_dimension *d)
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

static int read_dimension(struct reader *r, json_t *j, struct swn_exported_dimension *d)
{
    const char *key, *text;
    json_t *v = only_member(r, j, &key);
    int rc;

    if (!v)
        return -EINVAL;
    if (!strcmp(key, "as_int") && json_is_integer(v) && json_integer_value(v) >= 0) {
        *d = (struct swn_exported_dimension){.size = json_integer_value(v)};
        return 0;
    }
    text = json_string_value(json_object_get(v, "expr_str"));
    if (strcmp(key, "as_expr") || !text)
        return refuse(r, "a size is neither a number nor an expression");
    rc = read_expression(r, &text, 0, d);
    if (rc < 0)
        return rc;
    if (rc || *text)
        *d = (struct swn_exported_dimension){.any = 1};
    return 0;
}

static int read_meta(struct reader *r, json_t *j, int fixed, struct swn_exported_meta *m)
{
    json_t *sizes = member(r, j, "sizes", JSON_ARRAY), *strides = member(r, j, "strides", JSON_ARRAY);
    json_t *dtype = member(r, j, "dtype", JSON_INTEGER), *layout = member(r, j, "layout", JSON_INTEGER);
    struct swn_exported_dimension d;
    size_t i;
    int rc = 0;

    if (!sizes || !strides || !dtype || !layout)
        return -EINVAL;
    if (json_array_size(sizes) > SWN_EXPORTED_RANK || json_array_size(sizes) != json_array_size(strides))
        return refuse(r, "a tensor has too many dimensions, or another number of strides");
    m->dtype = json_integer_value(dtype);
    m->layout = json_integer_value(layout);
    m->rank = (uint32_t)json_array_size(sizes);
    m->requires_grad = json_is_true(json_object_get(j, "requires_grad"));
    for (i = 0; !rc && i < m->rank; i++)
        rc = read_dimension(r, json_array_get(sizes, i), &m->sizes[i]);
    for (i = 0; !rc && fixed && i <= m->rank; i++) {
        if (i < m->rank && (m->sizes[i].any || m->sizes[i].factor))
            return refuse(r, "a weight has a size that is no number");
        rc = read_dimension(r, i < m->rank ? json_array_get(strides, i) : json_object_get(j, "storage_offset"), &d);
        if (!rc && (d.any || d.factor))
            return refuse(r, "a weight has a stride that is no number");
        if (i < m->rank)
            m->strides[i] = d.size;
        else
            m->offset = d.size;
    }
    return rc;
}

static int read_weights(struct reader *r, json_t *root, struct swn_exported_weights *w)
{
    json_t *config = member(r, root, "config", JSON_OBJECT), *j;
    const char *name;

    if (!config)
        return -EINVAL;
    w->all = take(r, json_object_size(config), sizeof *w->all);
    if (!w->all)
        return -ENOMEM;
    json_object_foreach(config, name, j)
    {
        struct swn_exported_weight *one = &w->all[w->count++];
        json_t *meta;
        int rc;

        r->where = one->name = name;
        one->path = text_of(r, j, "path_name");
        if (!one->path)
            return -EINVAL;
        if (strchr(one->path, '/') || !strncmp(one->path, "custom_obj_", 11) || !strncmp(one->path, "opaque_obj_", 11))
            return refuse(r, "\"%.100s\" is no record of a tensor", one->path);
        if (!json_is_false(json_object_get(j, "use_pickle")))
            return refuse(r, "the tensor is pickled, and nothing is unpickled");
        meta = member(r, j, "tensor_meta", JSON_OBJECT);
        rc = meta ? read_meta(r, meta, 1, &one->meta) : -EINVAL;
        if (rc)
            return rc;
    }
    r->where = NULL;
    return 0;
}

static const char *weight_name(json_t *spec, const char *kind)
{
    static const char *const words[][2] = {
        {"parameter", "parameter_name"}, {"buffer", "buffer_name"}, {"tensor_constant", "tensor_constant_name"}};
    size_t i;

    for (i = 0; i < sizeof words / sizeof *words; i++)
        if (!strcmp(kind, words[i][0]))
            return json_string_value(json_object_get(spec, words[i][1]));
    return NULL;
}

static int read_input(struct reader *r, json_t *graph, json_t *value, json_t *spec, struct swn_exported_input *in)
{
    const char *kind, *tag, *name;
    json_t *detail = only_member(r, spec, &kind), *v = only_member(r, value, &tag);
    int is_user;

    in->value = -1;
    if (!detail || !v)
        return -EINVAL;
    is_user = !strcmp(kind, "user_input");
    in->source = is_user ? SWN_EXPORTED_USER : SWN_EXPORTED_WEIGHT;
    in->name = weight_name(detail, kind);
    if (!strcmp(kind, "constant_input") || (is_user && strcmp(tag, "as_tensor") && strcmp(tag, "as_sym_int"))) {
        in->source = SWN_EXPORTED_CONSTANT;
        return 0;
    }
    name = text_of(r, v, "name");
    if (strcmp(tag, "as_tensor") || !name || (!is_user && !in->name))
        return refuse(r, "an input is \"%.40s\" for \"%.40s\", which cannot be served", tag, kind);
    if (is_user) {
        json_t *meta = json_object_get(json_object_get(graph, "tensor_values"), name);
        int rc = meta ? read_meta(r, meta, 0, &in->meta) : refuse(r, "the input %.100s is not described", name);

        in->name = name;
        if (rc)
            return rc;
    }
    return new_value(r, name, 1, &in->value);
}

static int read_inputs(struct reader *r, json_t *graph, json_t *signature)
{
    json_t *inputs = member(r, graph, "inputs", JSON_ARRAY);
    json_t *specs = member(r, signature, "input_specs", JSON_ARRAY);
    struct swn_exported *e = r->e;
    int rc = 0;

    if (!inputs || !specs)
        return -EINVAL;
    if (json_array_size(inputs) != json_array_size(specs))
        return refuse(r, "the graph has another number of inputs than its signature");
    e->inputs = take(r, json_array_size(inputs), sizeof *e->inputs);
    if (!e->inputs)
        return -ENOMEM;
    while (!rc && e->input_count < json_array_size(inputs)) {
        size_t i = e->input_count++;

        rc = read_input(r, graph, json_array_get(inputs, i), json_array_get(specs, i), &e->inputs[i]);
    }
    return rc;
}

/* Names the outputs as the server's clients know them: see Activation::add_output. */
static int name_outputs(struct reader *r, json_t *spec, const char *name, int depth, size_t *next)
{
    json_t *children = json_object_get(spec, "children_spec"), *keys = NULL;
    const char *type = json_string_value(json_object_get(spec, "type"));
    const char *context = json_string_value(json_object_get(spec, "context"));
    size_t i, count = json_array_size(children);
    int rc = 0;

    if (!json_is_array(children) || depth > SPEC_DEEP)
        return refuse(r, "the form of the outputs is not understood");
    if (!type) {
        struct swn_exported_output *o = &r->e->outputs[*next];

        if (*next >= r->e->output_count)
            return refuse(r, "there are fewer outputs than their form says");
        ++*next;
        o->name = take(r, strlen(name) + 4, 1);
        if (!o->name)
            return -ENOMEM;
        sprintf(o->name, "%s%s", name, strcmp(name, "OUTPUT") ? "" : "__0");
        return 0;
    }
    if (context && strcasestr(type, "dict"))
        keys = json_loads(context, JSON_REJECT_DUPLICATES, NULL);
    for (i = 0; !rc && i < count; i++) {
        const char *key = json_string_value(json_array_get(keys, i));
        char below[NAME_BYTES];
        int bytes;

        if (!key)
            bytes = snprintf(below, sizeof below, "%s__%zu", name, i);
        else if (!strcmp(name, "OUTPUT"))
            bytes = snprintf(below, sizeof below, "%s", key);
        else
            bytes = snprintf(below, sizeof below, "%s.%s", name, key);
        rc = bytes >= (int)sizeof below ? refuse(r, "the name of an output is too long")
                                        : name_outputs(r, json_array_get(children, i), below, depth + 1, next);
    }
    json_decref(keys);
    return rc;
}

static int read_outputs(struct reader *r, json_t *graph, json_t *signature, json_t *module)
{
    json_t *outputs = member(r, graph, "outputs", JSON_ARRAY), *spec;
    json_t *specs = member(r, signature, "output_specs", JSON_ARRAY);
    json_t *entry = json_array_get(json_object_get(module, "module_call_graph"), 0);
    const char *form = json_string_value(json_object_get(json_object_get(entry, "signature"), "out_spec"));
    struct swn_exported *e = r->e;
    size_t i, next = 0;
    int rc = 0;

    if (!outputs || !specs)
        return -EINVAL;
    if (json_array_size(outputs) != json_array_size(specs))
        return refuse(r, "the graph has another number of outputs than its signature");
    e->outputs = take(r, json_array_size(outputs), sizeof *e->outputs);
    if (!e->outputs)
        return -ENOMEM;
    for (i = 0; !rc && i < json_array_size(outputs); i++) {
        struct swn_exported_output *o = &e->outputs[e->output_count++];
        json_t *value = json_array_get(outputs, i);
        json_t *name = json_object_get(json_object_get(value, "as_tensor"), "name"), *meta;
        const char *kind;

        if (!only_member(r, json_array_get(specs, i), &kind))
            return -EINVAL;
        if (strcmp(kind, "user_output"))
            return refuse(r, "the program has a state: its output %zu is a \"%.40s\"", i, kind);
        rc = read_argument(r, value, &o->what);
        meta = json_is_string(name) ? json_object_get(json_object_get(graph, "tensor_values"), json_string_value(name))
                                    : NULL;
        if (!rc && meta)
            rc = read_meta(r, meta, 0, &o->meta);
        o->is_tensor = !!meta;
    }
    if (rc)
        return rc;
    r->memory->roots[3] = spec = form ? json_loads(form, JSON_REJECT_DUPLICATES, NULL) : NULL;
    rc = name_outputs(r, json_array_get(spec, 1), "OUTPUT", 0, &next);
    return rc || next == e->output_count ? rc : refuse(r, "there are more outputs than their form says");
}

/* Names of arguments of forward(), where the graph's own are others. */
static void name_inputs(struct reader *r, json_t *module)
{
    json_t *entry = json_array_get(json_object_get(module, "module_call_graph"), 0);
    json_t *names = json_object_get(json_object_get(entry, "signature"), "forward_arg_names");
    size_t i, user = 0;

    for (i = 0; i < r->e->input_count; i++)
        user += r->e->inputs[i].source != SWN_EXPORTED_WEIGHT;
    if (user != json_array_size(names))
        return;
    for (i = user = 0; i < r->e->input_count; i++)
        if (r->e->inputs[i].source != SWN_EXPORTED_WEIGHT) {
            const char *name = json_string_value(json_array_get(names, user++));

            if (name)
                r->e->inputs[i].name = name;
        }
}

static int read_ranges(struct reader *r, json_t *root)
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
            return refuse(r, "no number is in the range of the symbol %.60s", s->name);
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
static int read_guard(struct reader *r, const char *guard)
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
    return refuse(r, "the program has a condition on its inputs that cannot be checked: %.120s", guard);
}

static int read_guards(struct reader *r, json_t *root)
{
    json_t *guards = json_object_get(root, "guards_code");
    size_t i;
    int rc = 0;

    for (i = 0; !rc && i < json_array_size(guards); i++) {
        const char *guard = json_string_value(json_array_get(guards, i));

        rc = guard ? read_guard(r, guard) : refuse(r, "a condition is no text");
    }
    return rc;
}

static int read_model(struct reader *r, json_t *root)
{
    json_t *version = json_object_get(json_object_get(root, "schema_version"), "major");
    json_t *module = member(r, root, "graph_module", JSON_OBJECT);
    json_t *graph = module ? member(r, module, "graph", JSON_OBJECT) : NULL;
    json_t *signature = module ? member(r, module, "signature", JSON_OBJECT) : NULL;
    int rc;

    if (!graph || !signature)
        return -EINVAL;
    if (json_integer_value(version) != 8)
        return refuse(r, "the schema of the file is not of version 8");
    rc = read_inputs(r, graph, signature);
    if (!rc)
        rc = read_nodes(r, graph, 0);
    if (!rc)
        rc = read_outputs(r, graph, signature, module);
    if (!rc)
        name_inputs(r, module);
    if (!rc)
        rc = read_ranges(r, root);
    return rc ? rc : read_guards(r, root);
}

int swn_exported_read(struct swn_exported **out, const char *model, size_t model_bytes, const char *weights,
                      size_t weights_bytes, const char *constants, size_t constants_bytes, char why[SWN_EXPORTED_WHY])
{
    const char *texts[] = {model, weights, constants}, *names[] = {"the model", "the weights", "the constants"};
    size_t sizes[] = {model_bytes, weights_bytes, constants_bytes}, i;
    struct reader r = {.why = why};
    int rc = 0;

    why[0] = 0;
    r.e = calloc(1, sizeof *r.e);
    r.memory = r.e ? r.e->memory = calloc(1, sizeof *r.memory) : NULL;
    r.scope = json_object();
    if (!r.memory || !r.scope)
        rc = -ENOMEM;
    for (i = 0; !rc && i < 3; i++) {
        json_error_t error;

        if (sizes[i] > SWN_EXPORTED_TEXT)
            rc = refuse(&r, "the text of %s is too long", names[i]);
        else if (!(r.memory->roots[i] = json_loadb(texts[i], sizes[i], JSON_REJECT_DUPLICATES, &error)))
            rc = refuse(&r, "the text of %s is no JSON: line %d: %.100s", names[i], error.line, error.text);
    }
    if (!rc)
        rc = read_weights(&r, r.memory->roots[1], &r.e->weights);
    if (!rc)
        rc = read_weights(&r, r.memory->roots[2], &r.e->constants);
    if (!rc)
        rc = read_model(&r, r.memory->roots[0]);
    json_decref(r.scope);
    if (rc) {
        swn_exported_free(r.e);
        return rc;
    }
    *out = r.e;
    return 0;
}

void swn_exported_free(struct swn_exported *e)
{
    struct memory *m = e ? e->memory : NULL;
    size_t i;

    for (struct chunk *c = m ? m->chunks : NULL, *next; c; c = next) {
        next = c->next;
        free(c);
    }
    for (i = 0; m && i < 4; i++)
        json_decref(m->roots[i]);
    free(m);
    if (e) {
        free(e->nodes);
        free(e->is_tensor);
        free(e->symbols);
    }
    free(e);
}
