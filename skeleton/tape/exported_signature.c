/* skeleton/tape/exported_signature.c - what goes into the graph and what comes out of it, and how clients call these.
 */
#define _GNU_SOURCE /* strcasestr */
#include "skeleton/tape/exported_reader.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#define SPEC_DEEP 32
#define NAME_BYTES 128 /* of an output, as on the wire */

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

static int read_input(struct swn_exported_reader *r, json_t *graph, json_t *value, json_t *spec,
                      struct swn_exported_input *in)
{
    const char *kind, *tag, *name;
    json_t *detail = swn_exported_only_member(r, spec, &kind), *v = swn_exported_only_member(r, value, &tag);
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
    name = swn_exported_text_of(r, v, "name");
    if (strcmp(tag, "as_tensor") || !name || (!is_user && !in->name))
        return swn_exported_refuse(r, "an input is \"%.40s\" for \"%.40s\", which cannot be served", tag, kind);
    if (is_user) {
        json_t *meta = json_object_get(json_object_get(graph, "tensor_values"), name);
        int rc = meta ? swn_exported_read_meta(r, meta, 0, &in->meta)
                      : swn_exported_refuse(r, "the input %.100s is not described", name);

        in->name = name;
        if (rc)
            return rc;
    }
    return swn_exported_new_value(r, name, 1, &in->value);
}

int swn_exported_read_inputs(struct swn_exported_reader *r, json_t *graph, json_t *signature)
{
    json_t *inputs = swn_exported_member(r, graph, "inputs", JSON_ARRAY);
    json_t *specs = swn_exported_member(r, signature, "input_specs", JSON_ARRAY);
    struct swn_exported *e = r->e;
    int rc = 0;

    if (!inputs || !specs)
        return -EINVAL;
    if (json_array_size(inputs) != json_array_size(specs))
        return swn_exported_refuse(r, "the graph has another number of inputs than its signature");
    e->inputs = swn_exported_take(r, json_array_size(inputs), sizeof *e->inputs);
    if (!e->inputs)
        return -ENOMEM;
    while (!rc && e->input_count < json_array_size(inputs)) {
        size_t i = e->input_count++;

        rc = read_input(r, graph, json_array_get(inputs, i), json_array_get(specs, i), &e->inputs[i]);
    }
    return rc;
}

/* Names the outputs as the server's clients know them: see Activation::add_output. */
static int name_outputs(struct swn_exported_reader *r, json_t *spec, const char *name, int depth, size_t *next)
{
    json_t *children = json_object_get(spec, "children_spec"), *keys = NULL;
    const char *type = json_string_value(json_object_get(spec, "type"));
    const char *context = json_string_value(json_object_get(spec, "context"));
    size_t i, count = json_array_size(children);
    int rc = 0;

    if (!json_is_array(children) || depth > SPEC_DEEP)
        return swn_exported_refuse(r, "the form of the outputs is not understood");
    if (!type) {
        struct swn_exported_output *o = &r->e->outputs[*next];

        if (*next >= r->e->output_count)
            return swn_exported_refuse(r, "there are fewer outputs than their form says");
        ++*next;
        o->name = swn_exported_take(r, strlen(name) + 4, 1);
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
        rc = bytes >= (int)sizeof below ? swn_exported_refuse(r, "the name of an output is too long")
                                        : name_outputs(r, json_array_get(children, i), below, depth + 1, next);
    }
    json_decref(keys);
    return rc;
}

int swn_exported_read_outputs(struct swn_exported_reader *r, json_t *graph, json_t *signature, json_t *module)
{
    json_t *outputs = swn_exported_member(r, graph, "outputs", JSON_ARRAY), *spec;
    json_t *specs = swn_exported_member(r, signature, "output_specs", JSON_ARRAY);
    json_t *entry = json_array_get(json_object_get(module, "module_call_graph"), 0);
    const char *form = json_string_value(json_object_get(json_object_get(entry, "signature"), "out_spec"));
    struct swn_exported *e = r->e;
    size_t i, next = 0;
    int rc = 0;

    if (!outputs || !specs)
        return -EINVAL;
    if (json_array_size(outputs) != json_array_size(specs))
        return swn_exported_refuse(r, "the graph has another number of outputs than its signature");
    e->outputs = swn_exported_take(r, json_array_size(outputs), sizeof *e->outputs);
    if (!e->outputs)
        return -ENOMEM;
    for (i = 0; !rc && i < json_array_size(outputs); i++) {
        struct swn_exported_output *o = &e->outputs[e->output_count++];
        json_t *value = json_array_get(outputs, i);
        json_t *name = json_object_get(json_object_get(value, "as_tensor"), "name"), *meta;
        const char *kind;

        if (!swn_exported_only_member(r, json_array_get(specs, i), &kind))
            return -EINVAL;
        if (strcmp(kind, "user_output"))
            return swn_exported_refuse(r, "the program has a state: its output %zu is a \"%.40s\"", i, kind);
        rc = swn_exported_read_argument(r, value, &o->what);
        meta = json_is_string(name) ? json_object_get(json_object_get(graph, "tensor_values"), json_string_value(name))
                                    : NULL;
        if (!rc && meta)
            rc = swn_exported_read_meta(r, meta, 0, &o->meta);
        o->is_tensor = !!meta;
    }
    if (rc)
        return rc;
    r->memory->roots[3] = spec = form ? json_loads(form, JSON_REJECT_DUPLICATES, NULL) : NULL;
    rc = name_outputs(r, json_array_get(spec, 1), "OUTPUT", 0, &next);
    return rc || next == e->output_count ? rc : swn_exported_refuse(r, "there are more outputs than their form says");
}

/* Names of arguments of forward(), where the graph's own are others. */
void swn_exported_name_inputs(struct swn_exported_reader *r, json_t *module)
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
