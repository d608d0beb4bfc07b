/* scheduler/oip/oip_metadata.c - what the server and its models say of themselves. */
#include "scheduler/json/json_text.h"
#include "scheduler/oip/oip_answer.h"

static void put_names(struct swn_json_out *text, const char *const *names, unsigned count)
{
    swn_json_puts(text, "[");
    for (unsigned i = 0; i < count; i++) {
        swn_json_puts(text, i ? "," : "");
        swn_json_put_name(text, names[i]);
    }
    swn_json_puts(text, "]");
}

size_t swn_oip_server_metadata(char *to, size_t room, const char *name, const char *version,
                               const char *const *extensions, unsigned count)
{
    struct swn_json_out text = {.to = to, .room = room};

    swn_json_puts(&text, "{\"name\":");
    swn_json_put_name(&text, name);
    swn_json_puts(&text, ",\"version\":");
    swn_json_put_name(&text, version);
    swn_json_puts(&text, ",\"extensions\":");
    put_names(&text, extensions, count);
    swn_json_puts(&text, "}");
    return text.used;
}

/* The protocol wants a type of each tensor. One that is not known before a request has no word of the protocol's, so
 * that no client takes it for one. */
#define UNKNOWN_TYPE "UNKNOWN"

static void put_tensors(struct swn_json_out *text, const struct swn_wire_tensor *tensors, unsigned count)
{
    swn_json_puts(text, "[");
    for (unsigned i = 0; i < count; i++) {
        const struct swn_wire_tensor *t = &tensors[i];
        const char *type = swn_element_name(t->element);
        swn_json_puts(text, i ? ",{\"name\":" : "{\"name\":");
        swn_json_put_name(text, t->name);
        swn_json_puts(text, ",\"datatype\":");
        swn_json_put_name(text, type ? type : UNKNOWN_TYPE);
        swn_json_puts(text, ",\"shape\":[");
        for (unsigned d = 0; d < t->rank && d < SWN_WIRE_RANK; d++) {
            swn_json_puts(text, d ? "," : "");
            swn_json_put_signed(text, t->shape[d]);
        }
        swn_json_puts(text, "]}");
    }
    swn_json_puts(text, "]");
}

size_t swn_oip_model_metadata(char *to, size_t room, const struct swn_oip_model *model)
{
    struct swn_json_out text = {.to = to, .room = room};

    swn_json_puts(&text, "{\"name\":");
    swn_json_put_name(&text, model->name);
    swn_json_puts(&text, ",\"versions\":");
    put_names(&text, model->versions, model->version_count);
    swn_json_puts(&text, ",\"platform\":");
    swn_json_put_name(&text, model->platform);
    swn_json_puts(&text, ",\"inputs\":");
    put_tensors(&text, model->inputs, model->input_count);
    swn_json_puts(&text, ",\"outputs\":");
    put_tensors(&text, model->outputs, model->output_count);
    if (model->bits) {
        swn_json_puts(&text, ",\"parameters\":{\"swapnet_bits\":");
        swn_json_put_name(&text, model->bits);
        swn_json_puts(&text, "}");
    }
    swn_json_puts(&text, "}");
    return text.used;
}
