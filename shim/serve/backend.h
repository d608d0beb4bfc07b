/* shim/serve/backend.h - what swapnet-engine asks of the serve backend, serve-X.Y.so, one per PyTorch.
 *
 * The engine knows sockets and no tensors, the backend knows tensors and no sockets. All functions belong to one
 * thread. Functions that return a status write the reason for anything but SWN_ENGINE_OK to `text`, room for
 * SWN_WIRE_ENGINE_TEXT bytes, and never throw.
 */
#ifndef SWN_SHIM_SERVE_BACKEND_H
#define SWN_SHIM_SERVE_BACKEND_H

#include <stddef.h>
#include <stdint.h>

#include "scheduler/protocol/engine_wire.h"
#include "skeleton/abi/serving.h"

#ifdef __cplusplus
extern "C" {
#endif

#define SWN_SERVE_ABI 7

struct swn_model;      /* a loaded model: its tape, with weights that libswapnet looks after */
struct swn_activation; /* a request on its way through a model: the values that are alive */

struct swn_serve_backend {
    unsigned abi;        /* SWN_SERVE_ABI */
    const char *version; /* PyTorch's */

    /* `groups`: into how many layer groups to divide the model at most; 0: as many as are sensible. */
    enum swn_engine_status (*load)(const char *path, uint32_t groups, struct swn_model **out, char *text);
    void (*unload)(struct swn_model *m); /* no request of it may be on its way; NULL: nothing */
    uint64_t (*weight_bytes)(const struct swn_model *m);
    /* Layer groups of requests that begin now; at least 1. */
    uint32_t (*groups)(const struct swn_model *m);
    /* Describes the inputs that a request must have, then outputs, in tensors[], room for SWN_WIRE_TENSORS; what is not
     * known is SWN_ELEMENT_NONE with rank 0, or a dimension of -1. */
    void (*describe)(const struct swn_model *m, struct swn_wire_tensor *tensors, uint32_t *inputs, uint32_t *outputs);

    /* A request begins. Copies the inputs, whose bytes lie at their offsets from `buffer`. The bounds are checked. */
    enum swn_engine_status (*begin)(struct swn_model *m, const struct swn_wire_tensor *inputs, size_t count,
                                    const char *buffer, struct swn_activation **out, char *text);
    uint32_t (*groups_of)(const struct swn_activation *a);
    /* Runs the group that is next, which must be `group`. */
    enum swn_engine_status (*run)(struct swn_activation *a, uint32_t group, char *text);
    /* After the last group: describes the outputs in tensors[], room for SWN_WIRE_TENSORS; offsets are 0. */
    enum swn_engine_status (*outputs)(struct swn_activation *a, struct swn_wire_tensor *tensors, uint32_t *count,
                                      char *text);
    /* Copies the outputs to their offsets from `buffer`, if they have the `bytes` that outputs() said. */
    enum swn_engine_status (*store)(struct swn_activation *a, const struct swn_wire_tensor *outputs, size_t count,
                                    char *buffer, char *text);
    void (*drop)(struct swn_activation *a); /* NULL: nothing */

    /* The weights that a layer group reads, each once, in the order in which it reads them first: a group of requests
     * that begin now, or of one on its way. They live until the next run(), drop() or unload(). */
    const struct swn_serving_weight *(*weights)(const struct swn_model *m, uint32_t group, size_t *count);
    const struct swn_serving_weight *(*weights_of)(const struct swn_activation *a, uint32_t group, size_t *count);

    /* Inputs, then outputs, that config.pbtxt gives the model which is loaded next; none where it says nothing. NULL: a
     * model says itself what it takes. */
    void (*expect)(const struct swn_wire_tensor *tensors, uint32_t inputs, uint32_t outputs);
    /* A layer group of requests that begin now: equal for models that do the same with the same weights in this group
     * and in all before it. 0: like no other. NULL: all are. */
    uint64_t (*identity)(const struct swn_model *m, uint32_t group);
    /* Of such a group's weights, the bytes that dense layers read: matrices that are multiplied as a whole. NULL: it is
     * not known. */
    uint64_t (*dense_bytes)(const struct swn_model *m, uint32_t group);
    /* What one request takes for its tensors in a layer group of requests that begin now, as struct swn_wire_group has
     * it. NULL: the engine looks at what libswapnet counts while a request runs, which is enough for one group. */
    void (*needs)(const struct swn_model *m, uint32_t group, uint64_t *activation_bytes, uint64_t *state_bytes);

    /* Requests that are joined; all NULL: none are. */

    /* Of a model that was loaded: LOAD's batch_most and may_differ. */
    void (*batching)(struct swn_model *m, uint32_t batch_most, int may_differ);
    /* Runs group `group` of the first ones of `count` requests of one model at once, where that is allowed. How many;
     * 0: it did not happen, and nothing has changed for them. */
    size_t (*join)(struct swn_activation *const *a, size_t count, uint32_t group);
    /* What is known of joining in a layer group of requests that begin now: to->alone_ns, to->joined_ns. */
    void (*joined)(const struct swn_model *m, uint32_t group, struct swn_wire_group *to);
    /* There is nothing to do: tries out for a while what may be joined, and returns soon when is_wanted() does not
     * return 0. 1: there is more to try. */
    int (*idle)(int (*is_wanted)(void));
};

/* Exported by serve-X.Y.so. */
extern const struct swn_serve_backend swn_serve_backend;

#ifdef __cplusplus
}
#endif
#endif
