/* fuzz_oip - any bytes as the body of an inference request. The first two bytes say where its JSON ends; 0 means at the
 * end.
 *
 * What is read has consistent sizes, its tensors can be written into just their bytes or are refused, and what an
 * answer with the same tensors says as JSON reads back with the same bytes. The body is read without JSON, too.
 */
#define _GNU_SOURCE
#include <stdlib.h>
#include <string.h>

#include "scheduler/oip/oip.h"
#include "scheduler/oip/oip_answer.h"
#include "scheduler/oip/oip_classes.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static struct swn_oip_request request, again;
static struct swn_oip_error error;

static void expect(int holds)
{
    if (!holds)
        abort();
}

static void expect_reason(void)
{
    char body[SWN_OIP_ERROR_BODY];

    expect(error.status >= 400 && error.text[0] && swn_oip_error_body(&error, body) <= sizeof body);
}

/* NaNs have many forms, and come back as one. */
static int has_nan(const struct swn_wire_tensor *t, const void *data)
{
    for (uint64_t at = 0; at < t->bytes; at += swn_element_bytes(t->element)) {
        float f = 0;
        double d = 0;
        if (t->element == SWN_ELEMENT_FP32)
            memcpy(&f, (const char *)data + at, sizeof f);
        else if (t->element == SWN_ELEMENT_FP64)
            memcpy(&d, (const char *)data + at, sizeof d);
        else
            return 0;
        if (f != f || d != d)
            return 1;
    }
    return 0;
}

/* The tensor as the only output of an answer, and that as a request. */
static void there_and_back(const struct swn_wire_tensor *t, const void *data)
{
    struct swn_oip_answer answer = {.model = "m", .version = "1", .id = "", .count = 1};
    ssize_t bytes;
    char *text, *outputs;
    void *back;

    answer.outputs[0] = (struct swn_oip_answer_output){.tensor = t, .data = data};
    bytes = swn_oip_answer_json(&answer, NULL, 0, &error);
    if (bytes < 0) { /* strings that are no UTF-8 */
        expect(t->element == SWN_ELEMENT_BYTES);
        return;
    }
    text = malloc((size_t)bytes);
    expect(text && swn_oip_answer_json(&answer, text, (size_t)bytes, &error) == bytes);
    outputs = memmem(text, (size_t)bytes, "\"outputs\":", 10);
    expect(outputs != NULL);
    memcpy(outputs, " \"inputs\":", 10);
    expect(swn_oip_parse(text, (size_t)bytes, (size_t)bytes, &again, &error) == 0);
    expect(again.input_count == 1 && again.inputs[0].tensor.bytes == t->bytes);
    expect(strcmp(again.inputs[0].tensor.name, t->name) == 0);
    back = malloc(t->bytes ? t->bytes : 1);
    expect(back && swn_oip_tensor_write(&again, 0, back, t->bytes, &error) == 0);
    expect(has_nan(t, data) || memcmp(back, data, t->bytes) == 0);
    free(back);
    free(text);
}

/* Its classes lie within the room that was asked for, and are as many strings as their shape says. */
static void classify(const struct swn_wire_tensor *t, const void *data)
{
    struct swn_wire_tensor out;
    uint64_t room, elements;
    uint32_t count = 1 + (uint32_t)t->bytes % 7;
    int has_batch = t->name[0] & 1;
    void *to;

    if (swn_oip_classes_room(t, count, has_batch, NULL, &room, &error)) {
        expect_reason();
        return;
    }
    to = malloc(room ? room : 1);
    expect(to != NULL);
    expect(swn_oip_classes_write(t, data, count, has_batch, NULL, to, &out) == 0);
    expect(out.bytes <= room && out.rank <= 2 && swn_wire_tensor_elements(&out, &elements) == 0);
    for (uint64_t at = 0, length; at < out.bytes; at += 4 + length, elements--) {
        uint32_t bytes;
        memcpy(&bytes, (char *)to + at, sizeof bytes);
        length = bytes;
        expect(elements > 0 && length <= out.bytes - at - 4);
    }
    expect(elements == 0);
    free(to);
}

static void use(unsigned input)
{
    const struct swn_wire_tensor *t = &request.inputs[input].tensor;
    uint64_t least;
    void *to;

    expect(swn_wire_tensor_bytes(t, &least) == 0 && least <= t->bytes && t->rank <= SWN_WIRE_RANK);
    expect(t->element == SWN_ELEMENT_BYTES || least == t->bytes);
    to = malloc(t->bytes ? t->bytes : 1);
    expect(to != NULL);
    if (swn_oip_tensor_write(&request, input, to, t->bytes, &error)) {
        expect_reason();
    } else {
        classify(t, to);
        if (t->element != SWN_ELEMENT_FP16 && t->element != SWN_ELEMENT_BF16)
            there_and_back(t, to);
    }
    free(to);
}

/* The same bytes as a body without JSON, for an input of which the first two bytes tell type and shape. */
static void read_raw(const uint8_t *data, size_t size, unsigned type, unsigned shape)
{
    static const int64_t sizes[] = {-1, 1, 3, 0};
    struct swn_wire_tensor x = {.name = "x", .element = type % SWN_ELEMENTS, .rank = shape & 3};
    char *room = malloc(SWN_OIP_RAW_ROOM + size);

    expect(room != NULL);
    memcpy(room + SWN_OIP_RAW_ROOM, data, size);
    for (unsigned d = 0; d < x.rank; d++)
        x.shape[d] = sizes[shape >> (2 + 2 * d) & 3];
    if (swn_oip_parse_raw(room + SWN_OIP_RAW_ROOM, size, &x, type > 127, &request, &error)) {
        expect_reason();
    } else {
        expect(request.input_count == 1 && request.input_bytes == request.inputs[0].tensor.bytes);
        use(0);
    }
    free(room);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    size_t json_bytes;
    char *body;

    if (size < 2)
        return 0;
    json_bytes = (size_t)data[0] << 8 | data[1];
    size -= 2;
    read_raw(data + 2, size, data[0], data[1]);
    json_bytes = json_bytes ? json_bytes : size;
    body = malloc(size ? size : 1);
    expect(body != NULL);
    memcpy(body, data + 2, size);
    if (swn_oip_parse(body, size, json_bytes, &request, &error)) {
        expect_reason();
    } else {
        uint64_t sum = 0;
        for (unsigned i = 0; i < request.input_count; i++) {
            sum += request.inputs[i].tensor.bytes;
            use(i);
        }
        expect(sum == request.input_bytes);
    }
    free(body);
    return 0;
}
