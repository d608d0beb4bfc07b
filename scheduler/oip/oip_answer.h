/* scheduler/oip/oip_answer.h - the answers of the Open Inference Protocol v2 as JSON text.
 *
 * Functions with `to` and `room` work as snprintf does: they return how many bytes the text has, and write it if it
 * fits in `room`; with room 0 they measure. They add no terminator.
 */
#ifndef SWN_SCHEDULER_OIP_OIP_ANSWER_H
#define SWN_SCHEDULER_OIP_OIP_ANSWER_H

#include <sys/types.h>

#include "scheduler/oip/oip.h"

/* One output of an answer. Its data is tensor->bytes bytes at `data`. */
struct swn_oip_answer_output {
    const struct swn_wire_tensor *tensor;
    const void *data;
    uint8_t is_binary;
    uint32_t classes; /* that the request wants of it instead; not 0: the caller replaces tensor and data by these */
};

/* What parameters.swapnet_bits says. exact: the bits are those that the request has when it runs alone in this server.
 * batch: they may depend on which requests it was joined with, as the model's configuration allows. */
#define SWN_OIP_EXACT "exact"
#define SWN_OIP_BATCH "batch"

#define SWN_OIP_SKIPPED 1024 /* bytes of the names of skipped models, with their terminator */

struct swn_oip_answer {
    const char *model, *version;
    const char *skipped; /* what parameters.swapnet_skipped says, or NULL or "" for no such parameter */
    const char *id;      /* "": none */
    const char *bits;    /* what parameters.swapnet_bits says, or NULL for no such parameter */
    unsigned count;
    struct swn_oip_answer_output outputs[SWN_WIRE_TENSORS];
};

/* Which of the model's `tensors` the request asked for, in its order, or all of them. Tensors' offsets count from
 * `buffer`. *answer keeps the pointers, and has no parameters. 0; -EINVAL with *error filled: the model has no output
 * of that name (400), or one that the request wants as JSON is FP16 or BF16 (400), which JSON does not have. */
int swn_oip_answer_select(struct swn_oip_answer *answer, const struct swn_oip_request *request, const char *model,
                          const char *version, const struct swn_wire_tensor *tensors, unsigned count,
                          const void *buffer, struct swn_oip_error *error);

/* The JSON of the answer. Binary outputs follow it in the body, in the order of answer->outputs: then the header
 * Inference-Header-Content-Length is what this returns, and the content type application/octet-stream. A negative
 * value: *error is filled, the data of an output does not have the shape that its tensor claims, or is no UTF-8. */
ssize_t swn_oip_answer_json(const struct swn_oip_answer *answer, char *to, size_t room, struct swn_oip_error *error);

/* Bytes of binary outputs, and whether there is any output that is binary. */
uint64_t swn_oip_answer_binary_bytes(const struct swn_oip_answer *answer);
int swn_oip_answer_has_binary(const struct swn_oip_answer *answer);

/* GET /v2 */
size_t swn_oip_server_metadata(char *to, size_t room, const char *name, const char *version,
                               const char *const *extensions, unsigned count);

/* GET /v2/models/M[/versions/V] */
struct swn_oip_model {
    const char *name, *platform;
    const char *bits; /* as in an answer */
    const char *const *versions;
    unsigned version_count, input_count, output_count;
    const struct swn_wire_tensor *inputs, *outputs;
};
size_t swn_oip_model_metadata(char *to, size_t room, const struct swn_oip_model *model);

#endif
