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

#ifdef __cplusplus
extern "C" {
#endif

#define SWN_SERVE_ABI 1

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
};

/* Exported by serve-X.Y.so. */
extern const struct swn_serve_backend swn_serve_backend;

#ifdef __cplusplus
}
#endif
#endif
