/* scheduler/protocol/engine_wire.h - the messages between swapnet-serve, which clients reach, and a swapnet-engine,
 * which runs models.
 *
 * They travel over a SOCK_SEQPACKET socket pair, one message a packet: a fixed head, then descriptions of tensors
 * and of layer groups, then steps, places, and text. The bytes of tensors lie in the buffer, a memory file that both
 * processes map; swapnet-serve alone allocates in it, and an engine writes only where a message tells it to. Both ends
 * are of one build and one machine, so numbers are the machine's own; SWN_ENGINE_WIRE_VERSION says whether they are.
 *
 *   swapnet-serve to engine                               engine to swapnet-serve
 *                                                           READY    once, at start: text is PyTorch's version
 *     LOAD    model, groups; text is the path of the file;  LOADED   model, groups, weight_bytes; inputs, then outputs;
 *             batch_most, may_differ; inputs, then                   weights
 *             outputs, of config.pbtxt
 *     UNLOAD  model                                         UNLOADED model
 *     RUN     request, model, group; inputs with group 0;   RAN      request, group, ns, reads, joined;
 *             one output, which is room for outputs;                 outputs with the last group,
 *             steps; following                                       is_stored; weights; places with the last group
 *     STORE   request; outputs with their offsets           STORED   request; the outputs are in the buffer
 *     BUDGET  budget_bytes: what tensors may take           BUDGETED budget_bytes: what they take at most from now on
 *     DROP    request: it is no longer wanted               (no answer)
 * LOAD, UNLOAD, RUN, STORE and BUDGET have one answer each, in the order in which they were sent; one with a status
 * other than SWN_ENGINE_OK has the reason as its text, and ends the request it is about. A request is known from its
 * first RUN to STORED, DROP, or a failure. Where a RUN has an output (of UINT8) and the outputs of the last group fit
 * into it, they are there with RAN, which says is_stored, and the request ends without STORE. BUDGETED with
 * SWN_ENGINE_NO_MEMORY has the least that is possible, and nothing has changed; with SWN_ENGINE_FAILED the engine is on
 * its way there, and may be asked again. The steps of RUN foretell what the engine is told to run behind it, as far as
 * swapnet-serve can know: it may read weights ahead, and must not rely on it.
 *
 * `following` RUNs of the same group of the same model come right behind a RUN. An engine may compute some of them at
 * once, with their tensors joined, where LOAD's batch_most allows so many samples, and either bits are equal or
 * may_differ is set. It may also run them one after the other, so it must not rely on their coming. The RANs of
 * requests that were joined divide the time and the bytes; the first one has their number in `joined`, the others 0.
 *
 * Neither end trusts the other: swn_engine_wire_receive refuses a packet that is not well formed, and the bounds of
 * each tensor are checked against its shape and against the buffer before anybody touches it.
 */
#ifndef SWN_SCHEDULER_PROTOCOL_ENGINE_WIRE_H
#define SWN_SCHEDULER_PROTOCOL_ENGINE_WIRE_H

#include <stddef.h>
#include <stdint.h>

#define SWN_ENGINE_WIRE_VERSION 11
#define SWN_WIRE_TENSORS 64       /* inputs and outputs of one model, together */
#define SWN_WIRE_GROUPS 64        /* layer groups of which a message tells the weights */
#define SWN_WIRE_STEPS 64         /* that a message foretells: the layer groups of some models */
#define SWN_WIRE_PLACES 64        /* layer groups of other models of which a message tells what is in memory */
#define SWN_WIRE_JOINED 5         /* numbers of requests that may be joined: 2, 4, ... 32 */
#define SWN_WIRE_FOLLOWING 31     /* RUNs behind a RUN that may be joined with it */
#define SWN_WIRE_RANK 16          /* dimensions of one tensor */
#define SWN_WIRE_TENSOR_NAME 128  /* bytes of a name with its terminator */
#define SWN_WIRE_ENGINE_TEXT 4096 /* bytes of text with its terminator */

/* Element types, in the order of the Open Inference Protocol's list. */
enum swn_element {
    SWN_ELEMENT_NONE = 0,
    SWN_ELEMENT_BOOL,
    SWN_ELEMENT_UINT8,
    SWN_ELEMENT_UINT16,
    SWN_ELEMENT_UINT32,
    SWN_ELEMENT_UINT64,
    SWN_ELEMENT_INT8,
    SWN_ELEMENT_INT16,
    SWN_ELEMENT_INT32,
    SWN_ELEMENT_INT64,
    SWN_ELEMENT_FP16,
    SWN_ELEMENT_FP32,
    SWN_ELEMENT_FP64,
    SWN_ELEMENT_BF16,
    SWN_ELEMENT_BYTES, /* strings: each has its length in four bytes, least significant first, before its bytes */
    SWN_ELEMENTS,
};

/* Bytes of one element; 0 for BYTES, whose elements have lengths of their own, and for what is no element type. */
size_t swn_element_bytes(enum swn_element element);
/* The protocol's word ("FP32"), or NULL. */
const char *swn_element_name(enum swn_element element);
enum swn_element swn_element_named(const char *name, size_t length);

struct swn_wire_tensor {
    char name[SWN_WIRE_TENSOR_NAME];
    uint32_t element;             /* enum swn_element; NONE: not known before a request says so (LOAD, LOADED) */
    uint32_t rank;                /* 0 in LOAD and LOADED: none, or not known */
    int64_t shape[SWN_WIRE_RANK]; /* -1: any (LOAD, LOADED) */
    uint64_t offset, bytes;       /* in the buffer; 0 where the bytes are not there yet */
};

/* What a layer group reads and takes. `bytes` are of its weights; those that two groups read count in both. */
struct swn_wire_group {
    uint64_t bytes;
    uint64_t in_memory; /* the part of them that need not be read from the disk now */
    uint64_t identity;  /* equal where models do the same with the same weights up to here; 0: like no other */
    uint64_t dense;     /* the part of the bytes that matrices have which are multiplied as a whole */
    /* The most that one request has taken for its tensors while it ran the group, those of before and after included;
     * and what it holds when it is set aside before the group. activation_bytes 0: neither is known yet. */
    uint64_t activation_bytes, state_bytes;
    /* Computing for one request, and for 2, 4, ... that are joined, as it was measured in one shape; 0: not known, or
     * that many are not joined. */
    uint64_t alone_ns, joined_ns[SWN_WIRE_JOINED];
};

/* A layer group that runs later. For several requests in turn it is there once. */
struct swn_wire_step {
    uint32_t model, group;
};

/* What of another model's layer group is in memory. */
struct swn_wire_place {
    uint32_t model, group;
    uint64_t in_memory;
};

/* shape x element, without overflow: 0 and *bytes, or -EINVAL for a negative dimension, -EOVERFLOW. BYTES tensors have
 * `bytes` of their own, and at least 4 for each element: *bytes is that least. */
int swn_wire_tensor_bytes(const struct swn_wire_tensor *t, uint64_t *bytes);
/* Elements of the tensor; as above. */
int swn_wire_tensor_elements(const struct swn_wire_tensor *t, uint64_t *elements);

enum swn_engine_op {
    SWN_ENGINE_READY = 1,
    SWN_ENGINE_LOAD,
    SWN_ENGINE_LOADED,
    SWN_ENGINE_UNLOAD,
    SWN_ENGINE_UNLOADED,
    SWN_ENGINE_RUN,
    SWN_ENGINE_RAN,
    SWN_ENGINE_STORE,
    SWN_ENGINE_STORED,
    SWN_ENGINE_DROP,
    SWN_ENGINE_BUDGET,
    SWN_ENGINE_BUDGETED,
    SWN_ENGINE_OPS,
};

enum swn_engine_status {
    SWN_ENGINE_OK = 0,
    SWN_ENGINE_BAD_INPUT, /* names, types or shapes that the model does not take */
    SWN_ENGINE_FAILED,    /* the model's own error while it ran */
    SWN_ENGINE_NO_MEMORY,
    SWN_ENGINE_UNREADABLE, /* LOAD: no model that this engine runs */
    SWN_ENGINE_UNKNOWN,    /* a model or request that the engine does not have */
    SWN_ENGINE_STATUSES,
};

struct swn_wire_reads {
    uint64_t bytes;      /* from the disk meanwhile, for later groups too */
    uint64_t wait_ns;    /* waited for it */
    uint64_t idle_bytes; /* before it, since the RAN before: in trials, while nothing was to be done */
};

struct swn_engine_message {
    uint32_t op;     /* enum swn_engine_op */
    uint32_t status; /* enum swn_engine_status; answers only */
    uint64_t request;
    uint32_t model;              /* a number that swapnet-serve gives */
    uint32_t group;              /* RUN, RAN: which layer group of the model */
    uint32_t groups;             /* LOADED, RAN: how many layer groups the model has */
    uint32_t inputs, outputs;    /* tensors: inputs first, then outputs */
    uint64_t ns;                 /* LOADED, RAN: time it took */
    uint64_t weight_bytes;       /* LOADED */
    uint64_t budget_bytes;       /* BUDGET, BUDGETED */
    struct swn_wire_reads reads; /* RAN */
    uint32_t is_stored;          /* RAN: the outputs are in the buffer where they say, and the request is forgotten */
    uint32_t batch_most;         /* LOAD: samples in one run; 0: the first dimension is nothing special */
    uint32_t may_differ;         /* LOAD: 1: bits may differ as in a batch */
    uint32_t following;          /* RUN */
    uint32_t joined;             /* RAN: 1: the request ran by itself */
    const struct swn_wire_tensor *tensors; /* inputs + outputs of them */
    /* LOADED, RAN: the first `weighed` layer groups of requests of the model that begin now. These are other groups
     * than those of the request that RAN is about if the engine has divided the model anew. 0: not known. */
    uint32_t weighed;
    const struct swn_wire_group *weights;
    uint32_t foretold; /* RUN: of steps; 0: it is not known what comes */
    const struct swn_wire_step *steps;
    uint32_t placed; /* RAN: of places: whole models, the one that ran last first; 0: nothing has been read since */
    const struct swn_wire_place *places;
    const char *text; /* terminated; "" where there is none */
};

/* Room for the largest packet, which the caller owns. */
struct swn_engine_packet;
struct swn_engine_packet *swn_engine_packet_new(void); /* NULL: no memory */
void swn_engine_packet_free(struct swn_engine_packet *p);

/* Sends `m` as one packet, waiting where the socket is full. 0, or -errno: -EPIPE when the other end is gone, -EMSGSIZE
 * for more tensors, groups, steps or text than a message may have. Never raises SIGPIPE. */
int swn_engine_wire_send(int socket, struct swn_engine_packet *scratch, const struct swn_engine_message *m);

/* Receives one packet into `p` and describes it in *m, whose pointers are into `p` and live until its next use.
 * `buffer_bytes`: what tensors must lie within. 1; 0 when the other end has closed; -EAGAIN from a non-blocking socket;
 * -EPROTO for a packet that is not well formed, and what recv failed with otherwise. */
int swn_engine_wire_receive(int socket, struct swn_engine_packet *p, uint64_t buffer_bytes,
                            struct swn_engine_message *m);

#endif
