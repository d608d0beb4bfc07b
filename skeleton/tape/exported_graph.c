/* skeleton/tape/exported_graph.c - the nodes of a graph, with those of the graphs of `with torch.no_grad()` in it. */
#include "skeleton/tape/exported_reader.h"

#include <errno.h>
#include <string.h>

#define GRAPHS_DEEP 8

/* The node of `with torch.no_grad()`: whether gradients are wanted, a graph, and the graph's inputs. Its steps stand
 * where the node stood. */
static int read_wrapped(struct swn_exported_reader *r, const json_t *inputs, const json_t *outputs, int depth)
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
        rc = swn_exported_refuse(r, "the graph of a node does not fit the node");
    for (i = 0; !rc && i < json_array_size(in); i++) {
        struct swn_exported_argument a = {0};
        json_t *name = json_object_get(json_object_get(json_array_get(in, i), "as_tensor"), "name");
        json_t *given = json_object_get(json_array_get(inputs, i + 2), "arg");

        rc = swn_exported_read_argument(r, given, &a);
        if (!rc && (a.kind != SWN_EXPORTED_VALUE || !json_is_string(name)))
            rc = swn_exported_refuse(r, "a graph in the graph takes what is no tensor");
        if (!rc && json_object_set_new(inner, json_string_value(name), json_integer(a.number)))
            rc = -ENOMEM;
    }
    r->scope = inner;
    if (!rc)
        rc = swn_exported_read_nodes(r, graph, depth + 1);
    for (i = 0; !rc && i < json_array_size(out); i++) {
        struct swn_exported_argument a = {0};
        json_t *name = json_object_get(json_object_get(json_array_get(outputs, i), "as_tensor"), "name");

        r->scope = inner;
        rc = swn_exported_read_argument(r, json_array_get(out, i), &a);
        if (!rc && (a.kind != SWN_EXPORTED_VALUE || !json_is_string(name)))
            rc = swn_exported_refuse(r, "a graph in the graph makes what is no tensor");
        if (!rc && json_object_get(outer, json_string_value(name)))
            rc = swn_exported_refuse(r, "the value \"%.100s\" is there twice", json_string_value(name));
        if (!rc && json_object_set_new(outer, json_string_value(name), json_integer(a.number)))
            rc = -ENOMEM;
    }
    r->scope = outer;
    json_decref(inner);
    return rc;
}

static int read_node(struct swn_exported_reader *r, json_t *j, int depth)
{
    struct swn_exported *e = r->e;
    const char *target = swn_exported_text_of(r, j, "target");
    json_t *inputs = swn_exported_member(r, j, "inputs", JSON_ARRAY),
           *outputs = swn_exported_member(r, j, "outputs", JSON_ARRAY);
    const char *name = json_string_value(json_object_get(j, "name"));
    struct swn_exported_node n = {0};
    int rc;

    if (!target || !inputs || !outputs)
        return -EINVAL;
    n.target = target;
    n.name = r->where = name ? name : target;
    if (!strcmp(target, "torch.ops.higher_order.wrap_with_set_grad_enabled"))
        return read_wrapped(r, inputs, outputs, depth);
    rc = swn_exported_read_arguments(r, inputs, 1, &n.inputs, &n.input_count);
    if (rc)
        return rc == -EINVAL && !strncmp(target, "torch.ops.higher_order.", 23)
                   ? swn_exported_refuse(r, "the operator %.100s with graphs of its own cannot be served", target)
                   : rc;
    r->defines = 1;
    rc = swn_exported_read_arguments(r, outputs, 0, &n.outputs, &n.output_count);
    r->defines = 0;
    if (!rc)
        rc = swn_exported_grow((void **)&e->nodes, e->node_count, &r->node_room, sizeof n);
    if (!rc)
        e->nodes[e->node_count++] = n;
    return rc;
}

int swn_exported_read_nodes(struct swn_exported_reader *r, json_t *graph, int depth)
{
    json_t *nodes = swn_exported_member(r, graph, "nodes", JSON_ARRAY);
    const char *where = r->where;
    size_t i;
    int rc = nodes ? 0 : -EINVAL;

    if (depth > GRAPHS_DEEP)
        return swn_exported_refuse(r, "graphs in graphs are too deep");
    for (i = 0; !rc && i < json_array_size(nodes); i++)
        rc = read_node(r, json_array_get(nodes, i), depth);
    if (!rc)
        r->where = where;
    return rc;
}
