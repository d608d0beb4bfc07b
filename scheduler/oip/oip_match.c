/* scheduler/oip/oip_match.c - does a model take a request? Its sentences are Triton's where clients may know them. */
#define _GNU_SOURCE
#include <endian.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "scheduler/oip/oip.h"
#include "scheduler/oip/oip_tensor.h"

static const struct swn_wire_tensor *find(const struct swn_wire_tensor *tensors, unsigned count, const char *name)
{
    for (unsigned i = 0; i < count; i++)
        if (strcmp(tensors[i].name, name) == 0)
            return &tensors[i];
    return NULL;
}

/* A shape that is not known fits all: the model itself says what it does not take. */
static int shape_fits(const struct swn_wire_tensor *have, const struct swn_wire_tensor *want)
{
    if (want->rank == 0)
        return 1;
    if (have->rank != want->rank)
        return 0;
    for (unsigned d = 0; d < have->rank; d++)
        if (want->shape[d] != -1 && want->shape[d] != have->shape[d])
            return 0;
    return 1;
}

static int match_input(const struct swn_wire_tensor *have, const struct swn_wire_tensor *want, const char *model,
                       struct swn_oip_error *error)
{
    char expected[SWN_OIP_SHAPE], got[SWN_OIP_SHAPE];

    if (want->element != SWN_ELEMENT_NONE && want->element != have->element)
        return swn_oip_fail(error, 400, "inference input '%s' data-type is '%s', but model '%s' expects '%s'",
                            have->name, swn_element_name(have->element), model, swn_element_name(want->element));
    if (!shape_fits(have, want))
        return swn_oip_fail(error, 400, "unexpected shape for input '%s' for model '%s'. Expected %.100s, got %.100s",
                            have->name, model, swn_oip_shape_text(want, expected), swn_oip_shape_text(have, got));
    return 0;
}

static int is_given(const struct swn_oip_request *request, const char *name)
{
    for (unsigned i = 0; i < request->input_count; i++)
        if (strcmp(request->inputs[i].tensor.name, name) == 0)
            return 1;
    return 0;
}

/* "'x','z'" of names, as far as there is room. */
static void add_name(char *list, size_t room, const char *name)
{
    size_t used = strlen(list);

    snprintf(list + used, room - used, "%s'%s'", used ? "," : "", name);
}

static int refuse_missing(const struct swn_oip_request *request, const char *model, const char *missing, unsigned least,
                          unsigned most, struct swn_oip_error *error)
{
    char between[64] = "", given[160] = "";

    if (least < most)
        snprintf(between, sizeof between, "number of inputs between %u and %u", least, most);
    else
        snprintf(between, sizeof between, "%u inputs", most);
    for (unsigned i = 0; i < request->input_count; i++)
        add_name(given, sizeof given, request->inputs[i].tensor.name);
    return swn_oip_fail(error, 400,
                        "expected %s but got %u inputs for model '%s'. Got input(s) [%s], but missing required "
                        "input(s) [%s]. Please provide all required input(s).",
                        between, request->input_count, model, given, missing);
}

/* None is there twice, and each is one of the model's. */
static int match_count(const struct swn_oip_request *request, const char *model, const struct swn_wire_tensor *inputs,
                       unsigned input_count, uint64_t optional, struct swn_oip_error *error)
{
    char missing[160] = "";
    unsigned least = 0;

    if (request->input_count == input_count)
        return 0;
    for (unsigned i = 0; i < input_count; i++) {
        if (optional >> i & 1)
            continue;
        least++;
        if (!is_given(request, inputs[i].name))
            add_name(missing, sizeof missing, inputs[i].name);
    }
    return *missing ? refuse_missing(request, model, missing, least, input_count, error) : 0;
}

int swn_oip_match(const struct swn_oip_request *request, const char *model, const struct swn_wire_tensor *inputs,
                  unsigned input_count, uint64_t optional, const struct swn_wire_tensor *outputs, unsigned output_count,
                  struct swn_oip_error *error)
{
    for (unsigned i = 0; i < request->input_count; i++) {
        const struct swn_wire_tensor *have = &request->inputs[i].tensor, *want = find(inputs, input_count, have->name);
        if (!want)
            return swn_oip_fail(error, 400, "unexpected inference input '%s' for model '%s'", have->name, model);
        if (match_input(have, want, model, error))
            return -EINVAL;
    }
    if (match_count(request, model, inputs, input_count, optional, error))
        return -EINVAL;
    /* A model that has none does not know them before it runs. */
    for (unsigned o = 0; o < request->output_count && output_count; o++)
        if (!find(outputs, output_count, request->outputs[o].name))
            return swn_oip_fail(error, 400, "unexpected inference output '%s' for model '%s'", request->outputs[o].name,
                                model);
    return 0;
}

/* All of the body is one string. */
static int take_raw_string(char *body, size_t bytes, unsigned unknown, struct swn_oip_request *out,
                           struct swn_oip_error *error)
{
    struct swn_oip_input *in = &out->inputs[0];
    uint32_t length = htole32((uint32_t)bytes);
    uint64_t elements;

    /* With a dimension that may be any, the client may have meant several. */
    if (unknown || swn_wire_tensor_elements(&in->tensor, &elements) || elements != 1)
        return swn_oip_fail(error, 400, "For BYTE datatype raw input '%s', the model must have input shape [1]",
                            in->tensor.name);
    if (bytes > UINT32_MAX)
        return swn_oip_fail(error, 400, "input '%s': the string is too long", in->tensor.name);
    memcpy(body - SWN_OIP_RAW_ROOM, &length, SWN_OIP_RAW_ROOM);
    out->body -= SWN_OIP_RAW_ROOM;
    out->bytes += SWN_OIP_RAW_ROOM;
    in->length = out->bytes;
    return 0;
}

int swn_oip_parse_raw(char *body, size_t bytes, const struct swn_wire_tensor *input, int has_batch,
                      struct swn_oip_request *out, struct swn_oip_error *error)
{
    struct swn_oip_input *in = &out->inputs[0];
    unsigned unknown = 0, which = 0;

    memset(out, 0, sizeof *out);
    out->body = body;
    out->bytes = bytes;
    out->binary_output = 1;
    in->tensor = *input;
    in->tensor.offset = in->tensor.bytes = 0;
    in->length = bytes;
    for (unsigned d = 0; d < input->rank; d++)
        if (input->shape[d] < 0) {
            in->tensor.shape[d] = 1;
            if (d == 0 && has_batch)
                continue;
            which = d;
            unknown++;
        }
    if (input->element == SWN_ELEMENT_BYTES) {
        if (take_raw_string(body, bytes, unknown, out, error))
            return -EINVAL;
    } else if (input->element == SWN_ELEMENT_NONE) {
        return swn_oip_fail(error, 400, "the type of the raw input '%s' is not known", input->name);
    } else if (unknown > 1) {
        return swn_oip_fail(error, 400,
                            "The shape of the raw input '%s' can not be deduced because there are more than one "
                            "variable-sized dimension",
                            input->name);
    }
    if (swn_wire_tensor_bytes(&in->tensor, &in->tensor.bytes))
        return swn_oip_fail(error, 400, "invalid shape for input '%s'", input->name);
    if (unknown && in->tensor.bytes && bytes % in->tensor.bytes == 0)
        in->tensor.shape[which] = (int64_t)(bytes / in->tensor.bytes);
    if (swn_oip_size_binary(in, out->body, error))
        return -EINVAL;
    out->input_bytes = in->tensor.bytes;
    out->input_count = 1;
    return 0;
}
