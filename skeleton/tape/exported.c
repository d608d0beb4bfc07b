/* skeleton/tape/exported.c - see exported.h. Reads the three texts and the model's parts in their order: inputs before
 * nodes, which use them, and symbols before the conditions on them.
 *
 * jansson reads the texts, refuses duplicate keys, and bounds the depth.
 */
#include "skeleton/tape/exported.h"

#include <errno.h>
#include <stdlib.h>

#include "skeleton/tape/exported_reader.h"

static int read_model(struct swn_exported_reader *r, json_t *root)
{
    json_t *version = json_object_get(json_object_get(root, "schema_version"), "major");
    json_t *module = swn_exported_member(r, root, "graph_module", JSON_OBJECT);
    json_t *graph = module ? swn_exported_member(r, module, "graph", JSON_OBJECT) : NULL;
    json_t *signature = module ? swn_exported_member(r, module, "signature", JSON_OBJECT) : NULL;
    int rc;

    if (!graph || !signature)
        return -EINVAL;
    if (json_integer_value(version) != 8)
        return swn_exported_refuse(r, "the schema of the file is not of version 8");
    rc = swn_exported_read_inputs(r, graph, signature);
    if (!rc)
        rc = swn_exported_read_nodes(r, graph, 0);
    if (!rc)
        rc = swn_exported_read_outputs(r, graph, signature, module);
    if (!rc)
        swn_exported_name_inputs(r, module);
    if (!rc)
        rc = swn_exported_read_ranges(r, root);
    return rc ? rc : swn_exported_read_guards(r, root);
}

/* Brackets and commas, those in strings among them. */
static size_t parts(const char *text, size_t bytes)
{
    size_t count = 0;

    for (size_t i = 0; i < bytes; i++)
        count += text[i] == '[' || text[i] == '{' || text[i] == ',';
    return count;
}

int swn_exported_read(struct swn_exported **out, const char *model, size_t model_bytes, const char *weights,
                      size_t weights_bytes, const char *constants, size_t constants_bytes, char why[SWN_EXPORTED_WHY])
{
    const char *texts[] = {model, weights, constants}, *names[] = {"the model", "the weights", "the constants"};
    size_t sizes[] = {model_bytes, weights_bytes, constants_bytes}, text = SWN_EXPORTED_TEXT, most = SWN_EXPORTED_PARTS;
    size_t i, count;
    struct swn_exported_reader r = {.why = why};
    int rc = 0;

    why[0] = 0;
    r.e = calloc(1, sizeof *r.e);
    r.memory = r.e ? r.e->memory = calloc(1, sizeof *r.memory) : NULL;
    r.scope = json_object();
    if (!r.memory || !r.scope)
        rc = -ENOMEM;
    for (i = 0; !rc && i < 3; i++) {
        json_error_t error;

        count = sizes[i] <= text ? parts(texts[i], sizes[i]) : 0;
        if (sizes[i] > text || count > most)
            rc = swn_exported_refuse(&r, "the text of %s is too long", names[i]);
        else if (!(r.memory->roots[i] = json_loadb(texts[i], sizes[i], JSON_REJECT_DUPLICATES, &error)))
            rc =
                swn_exported_refuse(&r, "the text of %s is no JSON: line %d: %.100s", names[i], error.line, error.text);
        text -= rc ? 0 : sizes[i];
        most -= rc ? 0 : count;
    }
    if (!rc)
        rc = swn_exported_read_weights(&r, r.memory->roots[1], &r.e->weights);
    if (!rc)
        rc = swn_exported_read_weights(&r, r.memory->roots[2], &r.e->constants);
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
    struct swn_exported_memory *m = e ? e->memory : NULL;
    size_t i;

    for (struct swn_exported_chunk *c = m ? m->chunks : NULL, *next; c; c = next) {
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
