/* scheduler/serve/oip_match.c - does a model take a request? Its sentences are Triton's where clients may know them. */
#include <errno.h>
#include <string.h>

#include "scheduler/serve/oip.h"
#include "scheduler/serve/oip_tensor.h"

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

int swn_oip_match(const struct swn_oip_request *request, const char *model, const struct swn_wire_tensor *inputs,
                  unsigned input_count, const struct swn_wire_tensor *outputs, unsigned output_count,
                  struct swn_oip_error *error)
{
    for (unsigned i = 0; i < request->input_count; i++) {
        const struct swn_wire_tensor *have = &request->inputs[i].tensor, *want = find(inputs, input_count, have->name);
        if (!want)
            return swn_oip_fail(error, 400, "unexpected inference input '%s' for model '%s'", have->name, model);
        if (match_input(have, want, model, error))
            return -EINVAL;
    }
    /* None is there twice, and each is one of the model's: as many are all of them. */
    if (request->input_count != input_count)
        return swn_oip_fail(error, 400, "expected %u inputs but got %u inputs for model '%s'", input_count,
                            request->input_count, model);
    for (unsigned o = 0; o < request->output_count; o++)
        if (!find(outputs, output_count, request->outputs[o].name))
            return swn_oip_fail(error, 400, "unexpected inference output '%s' for model '%s'", request->outputs[o].name,
                                model);
    return 0;
}

int swn_oip_parse_raw(const char *body, size_t bytes, const struct swn_wire_tensor *input, struct swn_oip_request *out,
                      struct swn_oip_error *error)
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
            which = d;
            unknown++;
        }
    if (input->element == SWN_ELEMENT_NONE || unknown > 1)
        return swn_oip_fail(error, 400, "raw binary data has no shape that input '%s' could be given", input->name);
    if (input->element == SWN_ELEMENT_BYTES) {
        /* Triton takes such a body as one string; it has no length in front, so it cannot be passed on as it is. */
        return swn_oip_fail(error, 400, "raw binary data is not supported for input '%s' of type BYTES", input->name);
    }
    if (swn_wire_tensor_bytes(&in->tensor, &in->tensor.bytes))
        return swn_oip_fail(error, 400, "invalid shape for input '%s'", input->name);
    if (unknown && in->tensor.bytes && bytes % in->tensor.bytes == 0)
        in->tensor.shape[which] = (int64_t)(bytes / in->tensor.bytes);
    if (swn_oip_size_binary(in, body, error))
        return -EINVAL;
    out->input_bytes = in->tensor.bytes;
    out->input_count = 1;
    return 0;
}
