/* scheduler/oip/oip_tensor.c - the data of one input: its size, and its bytes as the engine takes them. */
#define _GNU_SOURCE
#include "scheduler/oip/oip_tensor.h"

#include <endian.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>

const char *swn_oip_shape_text(const struct swn_wire_tensor *t, char to[SWN_OIP_SHAPE])
{
    size_t used = 1;

    to[0] = '[';
    for (unsigned d = 0; d < t->rank && d < SWN_WIRE_RANK; d++)
        used += (size_t)snprintf(to + used, SWN_OIP_SHAPE - used, "%s%lld", d ? "," : "", (long long)t->shape[d]);
    memcpy(to + used, "]", 2);
    return to;
}

/* The elements of the shape and the bytes they have at least. */
static int count_elements(struct swn_oip_input *in, uint64_t *elements, struct swn_oip_error *error)
{
    char shape[SWN_OIP_SHAPE];

    if (swn_wire_tensor_elements(&in->tensor, elements))
        return swn_oip_fail(error, 400,
                            "shape %.200s for input '%s' causes total element count to exceed maximum size of %lld",
                            swn_oip_shape_text(&in->tensor, shape), in->tensor.name, (long long)INT64_MAX);
    if (swn_wire_tensor_bytes(&in->tensor, &in->tensor.bytes))
        return swn_oip_fail(error, 400, "byte size overflow for input '%s' of shape %.200s", in->tensor.name,
                            swn_oip_shape_text(&in->tensor, shape));
    return 0;
}

/* How many of the elements that were found are of this type. */
static uint64_t suitable(const struct swn_json_array *a, enum swn_element element)
{
    switch (element) {
    case SWN_ELEMENT_BOOL:
        return a->booleans;
    case SWN_ELEMENT_BYTES:
        return a->strings;
    case SWN_ELEMENT_FP32:
    case SWN_ELEMENT_FP64:
        return a->numbers + a->words;
    default:
        return a->numbers;
    }
}

int swn_oip_size_json(struct swn_oip_input *in, const struct swn_json_array *array, struct swn_oip_error *error)
{
    uint64_t elements, found = array->numbers + array->words + array->booleans + array->strings;
    const char *type = swn_element_name(in->tensor.element);
    char shape[SWN_OIP_SHAPE];

    if (in->tensor.element == SWN_ELEMENT_FP16 || in->tensor.element == SWN_ELEMENT_BF16)
        return swn_oip_fail(error, 400,
                            "receiving %s data via JSON is not supported. Please use the binary data format for input "
                            "%s",
                            type, in->tensor.name);
    if (count_elements(in, &elements, error))
        return -EINVAL;
    if (found != elements)
        return swn_oip_fail(error, 400, "input '%s': 'data' has %llu elements, but shape %.200s has %llu",
                            in->tensor.name, (unsigned long long)found, swn_oip_shape_text(&in->tensor, shape),
                            (unsigned long long)elements);
    if (suitable(array, in->tensor.element) != elements)
        return swn_oip_fail(error, 400, "input '%s': 'data' has elements that are not of type %s", in->tensor.name,
                            type);
    if (!swn_json_array_fits(array, in->tensor.shape, in->tensor.rank))
        return swn_oip_fail(error, 400, "input '%s': the nesting of 'data' is not that of shape %.200s",
                            in->tensor.name, swn_oip_shape_text(&in->tensor, shape));
    if (in->tensor.element == SWN_ELEMENT_BYTES)
        in->tensor.bytes += array->string_bytes; /* no more than the body has */
    return 0;
}

int swn_oip_bytes_are(const void *data, uint64_t bytes, uint64_t elements)
{
    const char *at = data;

    for (; elements && bytes >= 4; elements--) {
        uint32_t length;
        memcpy(&length, at, sizeof length);
        length = le32toh(length);
        if (length > bytes - 4)
            return 0;
        at += 4 + (size_t)length;
        bytes -= 4 + (uint64_t)length;
    }
    return elements == 0 && bytes == 0;
}

static int are_booleans(const char *data, size_t bytes)
{
    unsigned char all = 0;

    for (size_t i = 0; i < bytes; i++)
        all |= (unsigned char)data[i];
    return all <= 1;
}

int swn_oip_size_binary(struct swn_oip_input *in, const char *body, struct swn_oip_error *error)
{
    const char *name = in->tensor.name, *data = body + in->at;
    uint64_t elements;
    char shape[SWN_OIP_SHAPE];

    if (count_elements(in, &elements, error))
        return -EINVAL;
    if (in->tensor.element == SWN_ELEMENT_BYTES) {
        if (!swn_oip_bytes_are(data, in->length, elements))
            return swn_oip_fail(error, 400,
                                "input '%s': its %zu bytes of binary data are not %llu elements of type BYTES", name,
                                in->length, (unsigned long long)elements);
        in->tensor.bytes = in->length;
        return 0;
    }
    if (in->length != in->tensor.bytes)
        return swn_oip_fail(error, 400, "input '%s': it has %zu bytes of binary data, but %s %.200s takes %llu", name,
                            in->length, swn_element_name(in->tensor.element), swn_oip_shape_text(&in->tensor, shape),
                            (unsigned long long)in->tensor.bytes);
    if (in->tensor.element == SWN_ELEMENT_BOOL && !are_booleans(data, in->length))
        return swn_oip_fail(error, 400, "input '%s': a byte of type BOOL must be 0 or 1", name);
    return 0;
}

int swn_oip_tensor_write(const struct swn_oip_request *request, unsigned input, void *to, size_t bytes,
                         struct swn_oip_error *error)
{
    const struct swn_oip_input *in = &request->inputs[input];
    const char *at = request->body + in->at, *why, *where;

    if (input >= request->input_count || in->tensor.bytes != bytes)
        return swn_oip_fail(error, 500, "input %u has no %zu bytes", input, bytes);
    if (!in->is_json) {
        if (bytes)
            memcpy(to, at, bytes);
        return 0;
    }
    if (swn_json_array_write(at, at + in->length, in->tensor.element, to, bytes, &why, &where))
        return swn_oip_fail(error, 400, "input '%s': %s at %zu", in->tensor.name, why, (size_t)(where - request->body));
    return 0;
}
