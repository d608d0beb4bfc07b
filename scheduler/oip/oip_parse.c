/* scheduler/oip/oip_parse.c - the JSON of an inference request: see oip.h.
 *
 * One pass over the JSON reads all fields and measures every "data"; sizes are known and checked when an input's object
 * ends, so nothing is believed that the shape, the type and the bytes at hand do not agree on. Fields that the protocol
 * does not have are left out, and a null is as good as an optional field that is absent, since clients made from
 * schemas send those.
 */
#include <errno.h>
#include <string.h>

#include "scheduler/json/json_number.h"
#include "scheduler/json/json_scan.h"
#include "scheduler/json/json_tensor.h"
#include "scheduler/oip/oip.h"
#include "scheduler/oip/oip_tensor.h"

struct parser {
    struct swn_json json;
    struct swn_oip_request *out;
    struct swn_oip_error *error;
    size_t binary_at; /* where the next input's binary data begins */
    int has_inputs;   /* the list is there; it may be empty, where a model can do without */
};

/* A field of an object, and the function that reads its value. */
struct field {
    const char *name;
    int (*read)(struct parser *p, void *to);
};

static int malformed(struct parser *p)
{
    return swn_oip_fail(p->error, 400, "failed to parse the request JSON buffer: %s at %zu",
                        p->json.why ? p->json.why : "something else is expected", swn_json_offset(&p->json));
}

/* The scanner is behind `{`. Reads the fields that are known, and leaves the others out. */
static int read_object(struct parser *p, const struct field *fields, void *to)
{
    for (;;) {
        enum swn_json_token token = swn_json_next(&p->json);
        const struct field *f = fields;
        if (token == SWN_JSON_OBJECT_END)
            return 0;
        if (token != SWN_JSON_KEY)
            return malformed(p);
        while (f->name && !swn_json_equals(p->json.token, f->name))
            f++;
        if (f->read) {
            int rc = f->read(p, to);
            if (rc < 0)
                return rc;
        } else if (swn_json_skip_value(&p->json)) {
            return malformed(p);
        }
    }
}

/* Objects in an array, or null. The function reads one, behind its `{`. */
static int read_list(struct parser *p, const char *what, int (*read_one)(struct parser *p))
{
    enum swn_json_token token = swn_json_next(&p->json);
    int rc;

    if (token == SWN_JSON_NULL)
        return 0;
    if (token == SWN_JSON_ERROR)
        return malformed(p);
    if (token != SWN_JSON_ARRAY)
        return swn_oip_fail(p->error, 400, "Unable to parse '%s': it must be an array of objects", what);
    while ((token = swn_json_next(&p->json)) == SWN_JSON_OBJECT) {
        rc = read_one(p);
        if (rc < 0)
            return rc;
    }
    if (token == SWN_JSON_ERROR)
        return malformed(p);
    return token == SWN_JSON_ARRAY_END
               ? 0
               : swn_oip_fail(p->error, 400, "Unable to parse '%s': it must be an array of objects", what);
}

static int read_parameters(struct parser *p, const struct field *fields, void *to)
{
    enum swn_json_token token = swn_json_next(&p->json);

    if (token == SWN_JSON_NULL)
        return 0;
    if (token == SWN_JSON_ERROR)
        return malformed(p);
    if (token != SWN_JSON_OBJECT)
        return swn_oip_fail(p->error, 400, "Unable to parse 'parameters': it must be an object");
    return read_object(p, fields, to);
}

/* Text without zeros, terminated. */
static int read_text(struct parser *p, const char *field, char *to, size_t room)
{
    enum swn_json_token token = swn_json_next(&p->json);
    size_t length;

    if (token == SWN_JSON_ERROR)
        return malformed(p);
    if (token != SWN_JSON_STRING)
        return swn_oip_fail(p->error, 400, "Unable to parse '%s': it must be a string", field);
    length = swn_json_decode(p->json.token, to, room - 1);
    if (length >= room)
        return swn_oip_fail(p->error, 400, "Unable to parse '%s': it has more than %zu bytes", field, room - 1);
    to[length] = '\0';
    if (strlen(to) != length)
        return swn_oip_fail(p->error, 400, "Unable to parse '%s': it has a character of code 0", field);
    return 0;
}

static int read_unsigned(struct parser *p, const char *field, uint64_t most, uint64_t *value)
{
    enum swn_json_token token = swn_json_next(&p->json);
    struct swn_json_number number;

    if (token == SWN_JSON_ERROR)
        return malformed(p);
    if (token != SWN_JSON_NUMBER ||
        !swn_json_number_scan(p->json.token.at, p->json.token.at + p->json.token.length, &number) ||
        swn_json_number_unsigned(&number, most, value))
        return swn_oip_fail(p->error, 400, "Unable to parse '%s': it must be an integer from 0 to %llu", field,
                            (unsigned long long)most);
    return 0;
}

static int read_bool(struct parser *p, const char *field, uint8_t *value)
{
    enum swn_json_token token = swn_json_next(&p->json);

    if (token == SWN_JSON_ERROR)
        return malformed(p);
    if (token != SWN_JSON_TRUE && token != SWN_JSON_FALSE)
        return swn_oip_fail(p->error, 400, "Unable to parse '%s': it must be true or false", field);
    *value = token == SWN_JSON_TRUE;
    return 0;
}

/* An input while its object is read. */
struct input {
    struct swn_oip_input *in;
    struct swn_json_array array;
    char datatype[16];
    uint64_t binary_bytes;
    uint8_t has_data, has_binary, has_shape;
};

static int read_input_name(struct parser *p, void *to)
{
    struct input *i = to;

    return read_text(p, "name", i->in->tensor.name, sizeof i->in->tensor.name);
}

static int read_datatype(struct parser *p, void *to)
{
    struct input *i = to;

    return read_text(p, "datatype", i->datatype, sizeof i->datatype);
}

static int read_shape(struct parser *p, void *to)
{
    struct input *i = to;
    struct swn_wire_tensor *t = &i->in->tensor;
    enum swn_json_token token = swn_json_next(&p->json);
    struct swn_json_number number;

    i->has_shape = 1;
    if (token != SWN_JSON_ARRAY)
        return token == SWN_JSON_ERROR ? malformed(p) : swn_oip_fail(p->error, 400, "Unable to parse 'shape'");
    while ((token = swn_json_next(&p->json)) == SWN_JSON_NUMBER) {
        if (t->rank == SWN_WIRE_RANK)
            return swn_oip_fail(p->error, 400, "Unable to parse 'shape': it has more than %d dimensions",
                                SWN_WIRE_RANK);
        if (!swn_json_number_scan(p->json.token.at, p->json.token.at + p->json.token.length, &number) ||
            swn_json_number_signed(&number, 0, INT64_MAX, &t->shape[t->rank]))
            return swn_oip_fail(p->error, 400, "Unable to parse 'shape': a dimension must be an integer from 0 to %lld",
                                (long long)INT64_MAX);
        t->rank++;
    }
    if (token == SWN_JSON_ERROR)
        return malformed(p);
    return token == SWN_JSON_ARRAY_END ? 0 : swn_oip_fail(p->error, 400, "Unable to parse 'shape'");
}

static int read_data(struct parser *p, void *to)
{
    struct input *i = to;
    struct swn_json *json = &p->json;
    const char *begin = swn_json_space(json->at, json->end), *after, *why, *where;

    after = swn_json_array_measure(begin, json->end, SWN_JSON_DEPTH - json->depth, &i->array, &why, &where);
    if (!after) {
        json->at = where;
        json->why = why;
        return malformed(p);
    }
    i->has_data = 1;
    i->in->is_json = 1;
    i->in->at = (size_t)(begin - p->out->body);
    i->in->length = (size_t)(after - begin);
    swn_json_resume(json, after);
    return 0;
}

static int read_binary_size(struct parser *p, void *to)
{
    struct input *i = to;

    i->has_binary = 1;
    return read_unsigned(p, "binary_data_size", INT64_MAX, &i->binary_bytes);
}

static int refuse_shared_memory(struct parser *p, void *to)
{
    (void)to;
    return swn_oip_fail(p->error, 400, "shared memory is not supported: send tensors as JSON or binary data");
}

static int read_input_parameters(struct parser *p, void *to)
{
    static const struct field fields[] = {
        {"binary_data_size", read_binary_size},
        {"shared_memory_region", refuse_shared_memory},
        {0},
    };
    return read_parameters(p, fields, to);
}

/* All fields of the input have been read: do they agree? */
static int finish_input(struct parser *p, struct input *i)
{
    struct swn_oip_input *in = i->in;
    const char *name = in->tensor.name;

    if (!name[0])
        return swn_oip_fail(p->error, 400, "Unable to parse 'name': an input must have one");
    for (unsigned other = 0; other < p->out->input_count; other++)
        if (strcmp(p->out->inputs[other].tensor.name, name) == 0)
            return swn_oip_fail(p->error, 400, "input '%s' already exists in request", name);
    in->tensor.element = swn_element_named(i->datatype, strlen(i->datatype));
    if (in->tensor.element == SWN_ELEMENT_NONE)
        return swn_oip_fail(p->error, 400, "invalid datatype for input '%s'", name);
    if (!i->has_shape)
        return swn_oip_fail(p->error, 400, "Unable to parse 'shape': input '%s' must have one", name);
    if (i->has_data == i->has_binary)
        return swn_oip_fail(
            p->error, 400,
            "input '%s' must set one of the fields 'data' and 'binary_data_size' in 'parameters', but %s", name,
            i->has_data ? "sets both" : "sets none");
    if (i->has_data)
        return swn_oip_size_json(in, &i->array, p->error);
    if (i->binary_bytes > p->out->bytes - p->binary_at)
        return swn_oip_fail(p->error, 400, "unexpected size for input '%s', expecting %llu additional bytes", name,
                            (unsigned long long)(i->binary_bytes - (p->out->bytes - p->binary_at)));
    in->at = p->binary_at;
    in->length = (size_t)i->binary_bytes;
    p->binary_at += in->length;
    return swn_oip_size_binary(in, p->out->body, p->error);
}

static int read_input(struct parser *p)
{
    static const struct field fields[] = {
        {"name", read_input_name}, {"datatype", read_datatype},
        {"shape", read_shape},     {"parameters", read_input_parameters},
        {"data", read_data},       {0},
    };
    struct input i = {.in = &p->out->inputs[p->out->input_count]};
    int rc;

    if (p->out->input_count == SWN_WIRE_TENSORS)
        return swn_oip_fail(p->error, 400, "a request has at most %d inputs", SWN_WIRE_TENSORS);
    rc = read_object(p, fields, &i);
    if (rc == 0)
        rc = finish_input(p, &i);
    if (rc == 0) {
        p->out->input_bytes += i.in->tensor.bytes;
        p->out->input_count++;
    }
    return rc;
}

static int read_inputs(struct parser *p, void *to)
{
    (void)to;
    p->has_inputs = 1;
    return read_list(p, "inputs", read_input);
}

#define AS_REQUESTED 2 /* is_binary, as long as the output does not say */

static int read_output_name(struct parser *p, void *to)
{
    struct swn_oip_output *o = to;

    return read_text(p, "name", o->name, sizeof o->name);
}

static int read_binary_data(struct parser *p, void *to)
{
    struct swn_oip_output *o = to;

    return read_bool(p, "binary_data", &o->is_binary);
}

static int read_classification(struct parser *p, void *to)
{
    struct swn_oip_output *o = to;
    uint64_t count = 0;
    int rc = read_unsigned(p, "classification", UINT32_MAX, &count);

    o->classes = (uint32_t)count;
    return rc;
}

static int read_output_parameters(struct parser *p, void *to)
{
    static const struct field fields[] = {
        {"binary_data", read_binary_data},
        {"classification", read_classification},
        {"shared_memory_region", refuse_shared_memory},
        {0},
    };
    return read_parameters(p, fields, to);
}

static int read_output(struct parser *p)
{
    static const struct field fields[] = {
        {"name", read_output_name},
        {"parameters", read_output_parameters},
        {0},
    };
    struct swn_oip_output *o = &p->out->outputs[p->out->output_count];
    int rc;

    if (p->out->output_count == SWN_WIRE_TENSORS)
        return swn_oip_fail(p->error, 400, "a request has at most %d outputs", SWN_WIRE_TENSORS);
    o->is_binary = AS_REQUESTED;
    rc = read_object(p, fields, o);
    if (rc < 0)
        return rc;
    if (!o->name[0])
        return swn_oip_fail(p->error, 400, "Unable to parse 'name': an output must have one");
    for (unsigned other = 0; other < p->out->output_count; other++)
        if (strcmp(p->out->outputs[other].name, o->name) == 0)
            return swn_oip_fail(p->error, 400, "output '%s' already exists in request", o->name);
    p->out->output_count++;
    return 0;
}

static int read_outputs(struct parser *p, void *to)
{
    (void)to;
    return read_list(p, "outputs", read_output);
}

static int read_id(struct parser *p, void *to)
{
    struct swn_json *json = &p->json;
    const char *at = swn_json_space(json->at, json->end);

    (void)to;
    if (at < json->end && *at == 'n')
        return swn_json_next(json) == SWN_JSON_NULL ? 0 : malformed(p);
    return read_text(p, "id", p->out->id, sizeof p->out->id);
}

static int read_priority(struct parser *p, void *to)
{
    (void)to;
    return read_unsigned(p, "priority", UINT64_MAX, &p->out->priority);
}

static int read_timeout(struct parser *p, void *to)
{
    (void)to;
    return read_unsigned(p, "timeout", UINT64_MAX, &p->out->timeout_us);
}

static int read_binary_output(struct parser *p, void *to)
{
    (void)to;
    return read_bool(p, "binary_data_output", &p->out->binary_output);
}

/* Sequences are for models with a sequence batcher. As Triton does with others, they are checked and have no effect. */
static int read_sequence_flag(struct parser *p, void *to)
{
    uint8_t flag;

    (void)to;
    return read_bool(p, "sequence_start' or 'sequence_end", &flag);
}

static int read_sequence_id(struct parser *p, void *to)
{
    const char *at = swn_json_space(p->json.at, p->json.end);
    uint64_t number;

    (void)to;
    if (at < p->json.end && *at == '"')
        return swn_json_next(&p->json) == SWN_JSON_STRING ? 0 : malformed(p);
    return read_unsigned(p, "sequence_id", UINT64_MAX, &number);
}

static int read_request_parameters(struct parser *p, void *to)
{
    static const struct field fields[] = {
        {"priority", read_priority},
        {"timeout", read_timeout},
        {"binary_data_output", read_binary_output},
        {"sequence_id", read_sequence_id},
        {"sequence_start", read_sequence_flag},
        {"sequence_end", read_sequence_flag},
        {0},
    };
    return read_parameters(p, fields, to);
}

int swn_oip_parse(const char *body, size_t bytes, size_t json_bytes, struct swn_oip_request *out,
                  struct swn_oip_error *error)
{
    static const struct field fields[] = {
        {"id", read_id},
        {"inputs", read_inputs},
        {"outputs", read_outputs},
        {"parameters", read_request_parameters},
        {0},
    };
    struct parser p = {.out = out, .error = error, .binary_at = json_bytes};
    int rc;

    memset(out, 0, sizeof *out);
    if (json_bytes > bytes)
        return swn_oip_fail(error, 400, "inference header size should be in range (0, %zu), got: %zu", bytes,
                            json_bytes);
    out->body = body;
    out->bytes = bytes;
    out->json_bytes = json_bytes;
    swn_json_init(&p.json, body, json_bytes);
    if (swn_json_next(&p.json) != SWN_JSON_OBJECT)
        return malformed(&p);
    rc = read_object(&p, fields, NULL);
    if (rc < 0)
        return rc;
    if (swn_json_next(&p.json) != SWN_JSON_END)
        return malformed(&p);
    if (!p.has_inputs)
        return swn_oip_fail(error, 400, "Unable to parse 'inputs': a request must have them");
    if (p.binary_at != bytes)
        return swn_oip_fail(error, 400, "unexpected additional input data: %zu bytes", bytes - p.binary_at);
    for (unsigned i = 0; i < out->output_count; i++)
        if (out->outputs[i].is_binary == AS_REQUESTED)
            out->outputs[i].is_binary = out->binary_output;
    return 0;
}
