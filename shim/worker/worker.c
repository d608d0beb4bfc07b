/* shim/worker/worker.c - worker.so: the loop of an engine process, with functions of Python's as its backend.
 *
 * The interpreter loads it with ctypes and calls swn_worker_run, which returns when the server has closed its end. The
 * functions are called on that thread, which holds Python's lock in them and not while it waits for a message: threads
 * of the model go on meanwhile. A request has one layer group: what a function of Python's does has no edges.
 */
#include <stddef.h>

#include "shim/serve/engine.h"

#define EXPORT __attribute__((visibility("default")))

/* In the order of server.py's table; see shim/serve/backend.h. None throws, and each is there. */
struct swn_worker_calls {
    enum swn_engine_status (*load)(const char *path, uint32_t groups, struct swn_model **out, char *text);
    void (*unload)(struct swn_model *m);
    uint64_t (*weight_bytes)(const struct swn_model *m);
    void (*describe)(const struct swn_model *m, struct swn_wire_tensor *tensors, uint32_t *inputs, uint32_t *outputs);
    enum swn_engine_status (*begin)(struct swn_model *m, const struct swn_wire_tensor *inputs, size_t count,
                                    const char *buffer, struct swn_activation **out, char *text);
    enum swn_engine_status (*run)(struct swn_activation *a, uint32_t group, char *text);
    enum swn_engine_status (*outputs)(struct swn_activation *a, struct swn_wire_tensor *tensors, uint32_t *count,
                                      char *text);
    enum swn_engine_status (*store)(struct swn_activation *a, const struct swn_wire_tensor *outputs, size_t count,
                                    char *buffer, char *text);
    void (*drop)(struct swn_activation *a);
    const struct swn_serving_weight *(*weights)(const struct swn_model *m, uint32_t group, size_t *count);
    const struct swn_serving_weight *(*weights_of)(const struct swn_activation *a, uint32_t group, size_t *count);
    void (*expect)(const struct swn_wire_tensor *tensors, uint32_t inputs, uint32_t outputs);
};

static uint32_t groups(const struct swn_model *m)
{
    (void)m;
    return 1;
}

static uint32_t groups_of(const struct swn_activation *a)
{
    (void)a;
    return 1;
}

/* What server.py takes a description for: another size means that the two are not of one build. */
EXPORT size_t swn_worker_tensor_bytes(void);
size_t swn_worker_tensor_bytes(void)
{
    return sizeof(struct swn_wire_tensor);
}

/* The exit status of the process. */
EXPORT int swn_worker_run(const struct swn_worker_calls *calls, const char *version, int socket, int buffer);
int swn_worker_run(const struct swn_worker_calls *calls, const char *version, int socket, int buffer)
{
    const struct swn_serve_backend backend = {
        .abi = SWN_SERVE_ABI,
        .version = version,
        .load = calls->load,
        .unload = calls->unload,
        .weight_bytes = calls->weight_bytes,
        .groups = groups,
        .describe = calls->describe,
        .begin = calls->begin,
        .groups_of = groups_of,
        .run = calls->run,
        .outputs = calls->outputs,
        .store = calls->store,
        .drop = calls->drop,
        .weights = calls->weights,
        .weights_of = calls->weights_of,
        .expect = calls->expect,
    };

    return swn_engine_run(&backend, socket, buffer);
}
