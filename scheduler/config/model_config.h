/* scheduler/config/model_config.h - the part of Triton's config.pbtxt (protobuf's text form) that swapnet-serve knows.
 *
 * What swapnet-serve has no use for (instance_group, model_warmup, optimization, ...) is read and left aside, and noted
 * once in `ignored`; a field that Triton does not have either is an error with its line and column, as is everything
 * that is malformed or larger than the struct.
 */
#ifndef SWN_SCHEDULER_CONFIG_MODEL_CONFIG_H
#define SWN_SCHEDULER_CONFIG_MODEL_CONFIG_H

#include <stddef.h>
#include <stdint.h>

#include "base/errmsg.h"
#include "scheduler/protocol/engine_wire.h"
#include "scheduler/config/ensemble.h"
#include "scheduler/config/reshape.h"

#define SWN_CONFIG_BYTES ((size_t)1 << 20) /* of a config.pbtxt */
#define SWN_CONFIG_NAME 256                /* bytes of a name with its terminator */
#define SWN_CONFIG_VALUE 1024              /* of a parameter's value */
#define SWN_CONFIG_LIST 32                 /* preferred batch sizes, versions, priorities' queue policies */
#define SWN_CONFIG_PARAMETERS 32

/* An input or output. The batch dimension is not among its dims where max_batch_size is not 0. */
struct swn_config_tensor {
    struct swn_wire_tensor tensor; /* name, element, rank, shape with -1 for any */
    struct swn_shape reshape;      /* what the model has instead of the shape */
    uint8_t has_reshape;
    uint8_t is_optional;
    char labels[SWN_CONFIG_NAME]; /* label_filename of an output, in the model's folder; "": none */
};

enum swn_queue_timeout {
    SWN_QUEUE_REJECT, /* Triton's default */
    SWN_QUEUE_DELAY,
};

struct swn_queue_policy {
    enum swn_queue_timeout timeout_action;
    uint64_t default_timeout_us; /* 0: none */
    uint8_t allow_override;      /* a request may say a smaller timeout */
    uint32_t max_queue_size;     /* 0: no limit */
};

struct swn_config_batching {
    uint8_t is_dynamic; /* dynamic_batching is there */
    uint8_t preserve_ordering;
    uint64_t max_queue_delay_us;
    unsigned preferred_count;
    uint32_t preferred[SWN_CONFIG_LIST];
    uint32_t priority_levels, default_priority; /* 0: no priorities */
    struct swn_queue_policy policy;
    unsigned level_count; /* priority_queue_policy */
    struct swn_config_level {
        uint32_t priority;
        struct swn_queue_policy policy;
    } levels[SWN_CONFIG_LIST];
};

enum swn_version_policy {
    SWN_VERSIONS_LATEST,
    SWN_VERSIONS_ALL,
    SWN_VERSIONS_SPECIFIC,
};

struct swn_config_versions {
    enum swn_version_policy policy;
    uint32_t latest; /* how many; 1 by default */
    unsigned count;
    int64_t versions[SWN_CONFIG_LIST];
};

struct swn_config_parameter {
    char key[SWN_CONFIG_NAME], value[SWN_CONFIG_VALUE];
};

struct swn_model_config {
    char name[SWN_CONFIG_NAME], platform[SWN_CONFIG_NAME], backend[SWN_CONFIG_NAME];
    char file[SWN_CONFIG_NAME]; /* default_model_filename */
    uint32_t max_batch_size;
    unsigned input_count, output_count, parameter_count;
    struct swn_config_tensor *inputs, *outputs; /* the config's, as long as they are: swn_model_config_free */
    struct swn_config_parameter *parameters;
    struct swn_config_batching batching;
    struct swn_config_versions versions;
    struct swn_ensemble *ensemble; /* NULL: it is a model of its own. The config's, likewise */
    char ignored[SWN_ERRMSG];      /* "", or the names of top fields that have no effect */
};

/* What an absent or empty file says. A config holds lists, and may hold an ensemble: it is copied by
 * swn_model_config_copy, and ends with swn_model_config_free. One that was not parsed holds nothing. */
void swn_model_config_init(struct swn_model_config *config);
/* 0; -EINVAL, or -EFBIG for more than SWN_CONFIG_BYTES, with `why` filled: "line 3, column 7: ...". */
int swn_model_config_parse(const char *text, size_t bytes, struct swn_model_config *config, char why[SWN_ERRMSG]);

/* Samples of requests that may be joined into one: max_batch_size with dynamic_batching; 0: none are. */
uint32_t swn_model_config_joins(const struct swn_model_config *config);
/* The parameter swapnet_bits is "batch": an answer's bits may depend on the requests that its request was joined with.
 */
int swn_model_config_may_differ(const struct swn_model_config *config);

/* 0; -ENOMEM: *to holds nothing. */
int swn_model_config_copy(struct swn_model_config *to, const struct swn_model_config *from);
void swn_model_config_free(struct swn_model_config *config); /* what it holds; not the struct itself */

/* The body of GET /v2/models/M/config, as oip_answer.h says of `to` and `room`. */
size_t swn_model_config_json(const struct swn_model_config *config, char *to, size_t room);

#endif
