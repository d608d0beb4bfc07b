/* scheduler/oip/oip.h - an inference request of the Open Inference Protocol v2 over HTTP, read where its body lies.
 *
 * A body is JSON, or JSON and behind it the binary data of the inputs that have the parameter binary_data_size, in
 * their order. swn_oip_parse checks all of it but whether each number fits its type, and allocates nothing; when it
 * returns 0, the bytes of each tensor are known. swn_oip_tensor_write brings them to where they shall lie, and refuses
 * numbers that do not fit. Both read only the body and their arguments, and trust neither the client nor whoever else
 * may write to the body's memory meanwhile: they stay within it.
 */
#ifndef SWN_SCHEDULER_OIP_OIP_H
#define SWN_SCHEDULER_OIP_OIP_H

#include <stddef.h>
#include <stdint.h>

#include "scheduler/protocol/engine_wire.h"

#define SWN_OIP_ID 256    /* bytes of a request's id with its terminator */
#define SWN_OIP_ERROR 512 /* bytes of an error's text with its terminator */

/* What a client is told: an HTTP status, and one line of UTF-8 in which a client's own bytes may be. */
struct swn_oip_error {
    int status;
    char text[SWN_OIP_ERROR];
};

/* Fills *error and returns -EINVAL, so that a function can end with it. A text that is too long is cut between two
 * characters. */
__attribute__((format(printf, 3, 4))) int swn_oip_fail(struct swn_oip_error *error, int status, const char *format,
                                                       ...);

/* Room for the body of any error, and that body: {"error":"..."}; returns its bytes, without the terminator. */
#define SWN_OIP_ERROR_BODY (6 * SWN_OIP_ERROR + 16)
size_t swn_oip_error_body(const struct swn_oip_error *error, char to[SWN_OIP_ERROR_BODY]);

struct swn_oip_input {
    struct swn_wire_tensor tensor; /* its bytes are known, its offset is 0 */
    size_t at, length;             /* its data in the body: binary, or the JSON array with its brackets */
    uint8_t is_json;
};

struct swn_oip_output {
    char name[SWN_WIRE_TENSOR_NAME];
    uint8_t is_binary; /* how the client wants its data */
    uint32_t classes;  /* how many texts the client wants of each sample instead (oip_classes.h); 0: its numbers */
};

struct swn_oip_request {
    const char *body;
    size_t bytes, json_bytes;
    char id[SWN_OIP_ID];                /* "": none */
    uint64_t priority;                  /* 0: the model's default */
    uint64_t timeout_us;                /* 0: none */
    uint64_t input_bytes;               /* of all inputs together */
    unsigned input_count, output_count; /* output_count 0: all outputs of the model, each as binary_output says */
    uint8_t binary_output;
    struct swn_oip_input inputs[SWN_WIRE_TENSORS];
    struct swn_oip_output outputs[SWN_WIRE_TENSORS];
};

/* Reads the body of POST /v2/models/M/infer. `json_bytes` is what the header Inference-Header-Content-Length says, or
 * `bytes` without it. *out points into the body. 0, or -EINVAL with *error filled. */
int swn_oip_parse(const char *body, size_t bytes, size_t json_bytes, struct swn_oip_request *out,
                  struct swn_oip_error *error);

/* A body without JSON (Inference-Header-Content-Length: 0) is the data of the only input of a model, `input`. A
 * dimension of -1 is what the body's size makes it, if it is the only one; the first is 1 if it `has_batch`. Of type
 * BYTES it is one string, which gets its length into the SWN_OIP_RAW_ROOM bytes in front of `body`, which are the
 * caller's to write. */
#define SWN_OIP_RAW_ROOM 4
int swn_oip_parse_raw(char *body, size_t bytes, const struct swn_wire_tensor *input, int has_batch,
                      struct swn_oip_request *out, struct swn_oip_error *error);

/* Does the model take this request? Each of its `inputs` once, with its type and a shape that fits (-1 fits any
 * dimension, NONE any type), none besides, and no output that it does not have. Input i can be left out if bit i of
 * `optional` is set. 0, or -EINVAL with *error filled. */
int swn_oip_match(const struct swn_oip_request *request, const char *model, const struct swn_wire_tensor *inputs,
                  unsigned input_count, uint64_t optional, const struct swn_wire_tensor *outputs, unsigned output_count,
                  struct swn_oip_error *error);

/* Writes input number `input` to `to`, row-major, least significant byte first; `bytes` is its tensor's bytes. Numbers
 * of JSON are correctly rounded, and refused where the type does not have them. 0, or -EINVAL with *error filled; what
 * `to` holds then is any. */
int swn_oip_tensor_write(const struct swn_oip_request *request, unsigned input, void *to, size_t bytes,
                         struct swn_oip_error *error);

#endif
