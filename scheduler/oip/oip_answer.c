/* scheduler/oip/oip_answer.c - the answer to an inference request: see oip_answer.h.
 *
 * Outputs come from an engine, which is not trusted: each one's bytes are compared with its shape before any is read.
 */
#define _GNU_SOURCE
#include "scheduler/oip/oip_answer.h"

#include <endian.h>
#include <errno.h>
#include <string.h>

#include "scheduler/json/json_text.h"
#include "scheduler/json/number_text.h"
#include "scheduler/oip/oip_tensor.h"
#include "scheduler/json/utf8.h"

static int add_output(struct swn_oip_answer *a, const struct swn_wire_tensor *t, int is_binary, uint32_t classes,
                      const char *buffer, struct swn_oip_error *error)
{
    if (!is_binary && !classes && (t->element == SWN_ELEMENT_FP16 || t->element == SWN_ELEMENT_BF16))
        return swn_oip_fail(
            error, 400, "sending %s data via JSON is not supported. Please use the binary data format for output %s",
            swn_element_name(t->element), t->name);
    a->outputs[a->count++] = (struct swn_oip_answer_output){
        .tensor = t,
        .data = buffer + t->offset,
        .is_binary = is_binary != 0,
        .classes = classes,
    };
    return 0;
}

int swn_oip_answer_select(struct swn_oip_answer *answer, const struct swn_oip_request *request, const char *model,
                          const char *version, const struct swn_wire_tensor *tensors, unsigned count,
                          const void *buffer, struct swn_oip_error *error)
{
    answer->model = model;
    answer->version = version;
    answer->id = request->id;
    answer->bits = NULL;
    answer->skipped = NULL;
    answer->count = 0;
    if (count > SWN_WIRE_TENSORS)
        return swn_oip_fail(error, 500, "model '%s' has %u outputs", model, count);
    for (unsigned i = 0; request->output_count == 0 && i < count; i++)
        if (add_output(answer, &tensors[i], request->binary_output, 0, buffer, error))
            return -EINVAL;
    for (unsigned o = 0; o < request->output_count; o++) {
        const struct swn_oip_output *wanted = &request->outputs[o];
        unsigned i = 0;
        while (i < count && strcmp(tensors[i].name, wanted->name) != 0)
            i++;
        if (i == count)
            return swn_oip_fail(error, 400, "unexpected inference output '%s' for model '%s'", wanted->name, model);
        if (add_output(answer, &tensors[i], wanted->is_binary, wanted->classes, buffer, error))
            return -EINVAL;
    }
    return 0;
}

uint64_t swn_oip_answer_binary_bytes(const struct swn_oip_answer *answer)
{
    uint64_t sum = 0;

    for (unsigned o = 0; o < answer->count; o++)
        sum += answer->outputs[o].is_binary ? answer->outputs[o].tensor->bytes : 0;
    return sum;
}

int swn_oip_answer_has_binary(const struct swn_oip_answer *answer)
{
    for (unsigned o = 0; o < answer->count; o++)
        if (answer->outputs[o].is_binary)
            return 1;
    return 0;
}

/* An integer of `bytes` bytes, the least significant first. */
static uint64_t load(const char *at, size_t bytes)
{
    uint64_t value = 0;

    memcpy(&value, at, bytes);
    return le64toh(value);
}

static void put_float(struct swn_json_out *text, const char *at)
{
    char digits[SWN_NUMBER_TEXT];
    uint32_t bits = (uint32_t)load(at, 4);
    float value;

    memcpy(&value, &bits, sizeof value);
    swn_json_put(text, digits, swn_float_text(value, digits));
}

static void put_double(struct swn_json_out *text, const char *at)
{
    char digits[SWN_NUMBER_TEXT];
    uint64_t bits = load(at, 8);
    double value;

    memcpy(&value, &bits, sizeof value);
    swn_json_put(text, digits, swn_double_text(value, digits));
}

static void put_element(struct swn_json_out *text, enum swn_element element, const char *at)
{
    switch (element) {
    case SWN_ELEMENT_BOOL:
        swn_json_puts(text, *at ? "true" : "false");
        break;
    case SWN_ELEMENT_INT8:
        swn_json_put_signed(text, (int8_t)*at);
        break;
    case SWN_ELEMENT_INT16:
        swn_json_put_signed(text, (int16_t)load(at, 2));
        break;
    case SWN_ELEMENT_INT32:
        swn_json_put_signed(text, (int32_t)load(at, 4));
        break;
    case SWN_ELEMENT_INT64:
        swn_json_put_signed(text, (int64_t)load(at, 8));
        break;
    case SWN_ELEMENT_FP32:
        put_float(text, at);
        break;
    case SWN_ELEMENT_FP64:
        put_double(text, at);
        break;
    default:
        swn_json_put_unsigned(text, load(at, swn_element_bytes(element)));
    }
}

/* Strings, each with its length in front. -1 where one is no UTF-8, or they are not as many. */
static int put_strings(struct swn_json_out *text, const char *at, uint64_t bytes, uint64_t elements)
{
    for (uint64_t i = 0; i < elements; i++) {
        uint64_t length = bytes >= 4 ? load(at, 4) : 0;
        if (bytes < 4 || length > bytes - 4 || !swn_utf8_is_valid(at + 4, length))
            return -1;
        if (i)
            swn_json_puts(text, ",");
        swn_json_put_string(text, at + 4, length);
        at += 4 + length;
        bytes -= 4 + length;
    }
    return 0;
}

static int put_data(struct swn_json_out *text, const struct swn_oip_answer_output *o, struct swn_oip_error *error)
{
    const struct swn_wire_tensor *t = o->tensor;
    size_t each = swn_element_bytes(t->element);
    const char *at = o->data;
    uint64_t elements;

    if (swn_wire_tensor_elements(t, &elements))
        return -EINVAL; /* checked before */
    swn_json_puts(text, ",\"data\":[");
    if (t->element == SWN_ELEMENT_BYTES) {
        if (put_strings(text, at, t->bytes, elements))
            return swn_oip_fail(error, 400, "output '%s' is not UTF-8: please use the binary data format", t->name);
    } else {
        for (uint64_t i = 0; i < elements; i++, at += each) {
            if (i)
                swn_json_put(text, ",", 1);
            put_element(text, t->element, at);
        }
    }
    swn_json_puts(text, "]");
    return 0;
}

/* Does the engine's tensor have the bytes of its shape? */
static int check_output(const struct swn_oip_answer_output *o, struct swn_oip_error *error)
{
    const struct swn_wire_tensor *t = o->tensor;
    uint64_t bytes, elements;

    if (swn_wire_tensor_bytes(t, &bytes) || swn_wire_tensor_elements(t, &elements) ||
        (t->element == SWN_ELEMENT_BYTES ? !swn_oip_bytes_are(o->data, t->bytes, elements) : bytes != t->bytes))
        return swn_oip_fail(error, 500, "output '%s' does not have the bytes of its shape", t->name);
    return 0;
}

static int put_output(struct swn_json_out *text, const struct swn_oip_answer_output *o, struct swn_oip_error *error)
{
    const struct swn_wire_tensor *t = o->tensor;

    if (check_output(o, error))
        return -EINVAL;
    swn_json_puts(text, "{\"name\":");
    swn_json_put_name(text, t->name);
    swn_json_puts(text, ",\"datatype\":");
    swn_json_put_name(text, swn_element_name(t->element));
    swn_json_puts(text, ",\"shape\":[");
    for (unsigned d = 0; d < t->rank; d++) {
        swn_json_puts(text, d ? "," : "");
        swn_json_put_signed(text, t->shape[d]);
    }
    swn_json_puts(text, "]");
    if (o->is_binary) {
        swn_json_puts(text, ",\"parameters\":{\"binary_data_size\":");
        swn_json_put_unsigned(text, t->bytes);
        swn_json_puts(text, "}");
    } else if (put_data(text, o, error)) {
        return -EINVAL;
    }
    swn_json_puts(text, "}");
    return 0;
}

static void put_parameters(struct swn_json_out *text, const struct swn_oip_answer *answer)
{
    int has_skipped = answer->skipped && *answer->skipped;

    if (!answer->bits && !has_skipped)
        return;
    swn_json_puts(text, ",\"parameters\":{");
    if (answer->bits) {
        swn_json_puts(text, "\"swapnet_bits\":");
        swn_json_put_name(text, answer->bits);
    }
    if (has_skipped) {
        swn_json_puts(text, answer->bits ? ",\"swapnet_skipped\":" : "\"swapnet_skipped\":");
        swn_json_put_name(text, answer->skipped);
    }
    swn_json_puts(text, "}");
}

ssize_t swn_oip_answer_json(const struct swn_oip_answer *answer, char *to, size_t room, struct swn_oip_error *error)
{
    struct swn_json_out text = {.to = to, .room = room};

    swn_json_puts(&text, "{");
    if (answer->id[0]) {
        swn_json_puts(&text, "\"id\":");
        swn_json_put_name(&text, answer->id);
        swn_json_puts(&text, ",");
    }
    swn_json_puts(&text, "\"model_name\":");
    swn_json_put_name(&text, answer->model);
    swn_json_puts(&text, ",\"model_version\":");
    swn_json_put_name(&text, answer->version);
    put_parameters(&text, answer);
    swn_json_puts(&text, ",\"outputs\":[");
    for (unsigned o = 0; o < answer->count; o++) {
        swn_json_puts(&text, o ? "," : "");
        if (put_output(&text, &answer->outputs[o], error))
            return -EINVAL;
    }
    swn_json_puts(&text, "]}");
    return (ssize_t)text.used;
}
