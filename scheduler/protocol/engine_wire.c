/* scheduler/protocol/engine_wire.c - packets between swapnet-serve and an engine: see engine_wire.h.
 *
 * A packet is copied into memory of ours before it is looked at, so the sender cannot change what has been checked.
 */
#include "scheduler/protocol/engine_wire.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#define MAGIC 0x6e657773u /* "swen" */

struct head {
    uint32_t magic, version;
    uint32_t op, status;
    uint64_t request;
    uint32_t model, group, groups;
    uint32_t inputs, outputs, weighed, text_bytes, foretold, is_stored;
    uint32_t batch_most, may_differ, following, joined, placed;
    uint64_t ns, weight_bytes, budget_bytes, read_bytes, wait_ns, idle_bytes;
};

struct swn_engine_packet {
    struct head head;
    union {
        struct swn_wire_tensor tensors[SWN_WIRE_TENSORS];
        /* Groups follow the last tensor, steps the last group, places the last step, and text the last place; one byte
         * more, so that a packet that is too long shows. */
        char bytes[SWN_WIRE_TENSORS * sizeof(struct swn_wire_tensor) + SWN_WIRE_GROUPS * sizeof(struct swn_wire_group) +
                   SWN_WIRE_STEPS * sizeof(struct swn_wire_step) + SWN_WIRE_PLACES * sizeof(struct swn_wire_place) +
                   SWN_WIRE_ENGINE_TEXT + 1];
    };
};

static const struct {
    const char *name;
    size_t bytes;
} elements[SWN_ELEMENTS] = {
    [SWN_ELEMENT_BOOL] = {"BOOL", 1},     [SWN_ELEMENT_UINT8] = {"UINT8", 1},   [SWN_ELEMENT_UINT16] = {"UINT16", 2},
    [SWN_ELEMENT_UINT32] = {"UINT32", 4}, [SWN_ELEMENT_UINT64] = {"UINT64", 8}, [SWN_ELEMENT_INT8] = {"INT8", 1},
    [SWN_ELEMENT_INT16] = {"INT16", 2},   [SWN_ELEMENT_INT32] = {"INT32", 4},   [SWN_ELEMENT_INT64] = {"INT64", 8},
    [SWN_ELEMENT_FP16] = {"FP16", 2},     [SWN_ELEMENT_FP32] = {"FP32", 4},     [SWN_ELEMENT_FP64] = {"FP64", 8},
    [SWN_ELEMENT_BF16] = {"BF16", 2},     [SWN_ELEMENT_BYTES] = {"BYTES", 0},
};

size_t swn_element_bytes(enum swn_element element)
{
    return element < SWN_ELEMENTS ? elements[element].bytes : 0;
}

const char *swn_element_name(enum swn_element element)
{
    return element < SWN_ELEMENTS ? elements[element].name : NULL;
}

enum swn_element swn_element_named(const char *name, size_t length)
{
    for (enum swn_element e = SWN_ELEMENT_NONE + 1; e < SWN_ELEMENTS; e++)
        if (strlen(elements[e].name) == length && memcmp(elements[e].name, name, length) == 0)
            return e;
    return SWN_ELEMENT_NONE;
}

int swn_wire_tensor_elements(const struct swn_wire_tensor *t, uint64_t *count)
{
    uint64_t n = 1;

    if (t->rank > SWN_WIRE_RANK)
        return -EINVAL;
    for (unsigned d = 0; d < t->rank; d++) {
        if (t->shape[d] < 0)
            return -EINVAL;
        if (__builtin_mul_overflow(n, (uint64_t)t->shape[d], &n))
            return -EOVERFLOW;
    }
    *count = n;
    return 0;
}

int swn_wire_tensor_bytes(const struct swn_wire_tensor *t, uint64_t *bytes)
{
    uint64_t n, each = t->element == SWN_ELEMENT_BYTES ? 4 : swn_element_bytes(t->element);
    int rc = swn_wire_tensor_elements(t, &n);

    if (rc < 0)
        return rc;
    if (each == 0)
        return -EINVAL;
    if (__builtin_mul_overflow(n, each, &n) || n > INT64_MAX)
        return -EOVERFLOW;
    *bytes = n;
    return 0;
}

struct swn_engine_packet *swn_engine_packet_new(void)
{
    return malloc(sizeof(struct swn_engine_packet));
}

void swn_engine_packet_free(struct swn_engine_packet *p)
{
    free(p);
}

int swn_engine_wire_send(int socket, struct swn_engine_packet *p, const struct swn_engine_message *m)
{
    size_t tensors = (size_t)m->inputs + m->outputs, text = m->text ? strlen(m->text) : 0;
    size_t at = tensors * sizeof *p->tensors, groups = m->weighed * sizeof *m->weights;
    size_t steps = m->foretold * sizeof *m->steps, places = m->placed * sizeof *m->places;
    size_t bytes = sizeof p->head + at + groups + steps + places + text;

    if (tensors > SWN_WIRE_TENSORS || m->weighed > SWN_WIRE_GROUPS || m->foretold > SWN_WIRE_STEPS ||
        m->placed > SWN_WIRE_PLACES || text >= SWN_WIRE_ENGINE_TEXT)
        return -EMSGSIZE;
    p->head = (struct head){
        .magic = MAGIC,
        .version = SWN_ENGINE_WIRE_VERSION,
        .op = m->op,
        .status = m->status,
        .request = m->request,
        .model = m->model,
        .group = m->group,
        .groups = m->groups,
        .inputs = m->inputs,
        .outputs = m->outputs,
        .weighed = m->weighed,
        .text_bytes = (uint32_t)text,
        .foretold = m->foretold,
        .is_stored = m->is_stored,
        .batch_most = m->batch_most,
        .may_differ = m->may_differ,
        .following = m->following,
        .joined = m->joined,
        .placed = m->placed,
        .ns = m->ns,
        .weight_bytes = m->weight_bytes,
        .budget_bytes = m->budget_bytes,
        .read_bytes = m->reads.bytes,
        .wait_ns = m->reads.wait_ns,
        .idle_bytes = m->reads.idle_bytes,
    };
    if (tensors > 0)
        memcpy(p->tensors, m->tensors, at);
    if (groups > 0)
        memcpy(p->bytes + at, m->weights, groups);
    if (steps > 0)
        memcpy(p->bytes + at + groups, m->steps, steps);
    if (places > 0)
        memcpy(p->bytes + at + groups + steps, m->places, places);
    if (text > 0)
        memcpy(p->bytes + at + groups + steps + places, m->text, text);
    for (;;) {
        ssize_t n = send(socket, p, bytes, MSG_NOSIGNAL);
        if (n >= 0)
            return (size_t)n == bytes ? 0 : -EIO;
        if (errno != EINTR)
            return errno == ECONNRESET ? -EPIPE : -errno;
    }
}

/* LOAD and LOADED describe what a model takes, of which not all need be known. RAN may say how large outputs are that
 * lie nowhere yet, and the server says whether it has room for them. */
enum tensors_are { DESCRIBED, NOWHERE, IN_BUFFER };

static enum tensors_are tensors_are(const struct head *h)
{
    if (h->op == SWN_ENGINE_LOAD || h->op == SWN_ENGINE_LOADED)
        return DESCRIBED;
    return h->op == SWN_ENGINE_RAN && !h->is_stored ? NOWHERE : IN_BUFFER;
}

static int shape_is_sound(const struct swn_wire_tensor *t)
{
    for (unsigned d = 0; d < t->rank; d++)
        if (t->shape[d] < -1)
            return 0;
    return 1;
}

static int tensor_is_sound(const struct swn_wire_tensor *t, uint64_t buffer_bytes, enum tensors_are kind)
{
    uint64_t end, n;

    if (memchr(t->name, 0, sizeof t->name) == NULL || t->rank > SWN_WIRE_RANK || t->element >= SWN_ELEMENTS)
        return 0;
    if (kind == DESCRIBED)
        return shape_is_sound(t);
    if (swn_wire_tensor_bytes(t, &n) < 0 || __builtin_add_overflow(t->offset, t->bytes, &end))
        return 0;
    if (kind == NOWHERE ? t->bytes > INT64_MAX : end > buffer_bytes)
        return 0;
    if (t->bytes == 0 && (t->offset == 0 || kind == NOWHERE))
        return 1; /* not there yet */
    return t->element == SWN_ELEMENT_BYTES ? t->bytes >= n : t->bytes == n;
}

static int groups_are_sound(const struct swn_wire_group *groups, uint32_t count)
{
    for (uint32_t i = 0; i < count; i++)
        if (groups[i].in_memory > groups[i].bytes || groups[i].dense > groups[i].bytes ||
            groups[i].state_bytes > groups[i].activation_bytes)
            return 0;
    return 1;
}

/* What the head says alone. */
static int head_is_sound(const struct head *h)
{
    return h->magic == MAGIC && h->version == SWN_ENGINE_WIRE_VERSION && h->op != 0 && h->op < SWN_ENGINE_OPS &&
           h->status < SWN_ENGINE_STATUSES && h->inputs <= SWN_WIRE_TENSORS &&
           h->outputs <= SWN_WIRE_TENSORS - h->inputs && h->weighed <= SWN_WIRE_GROUPS &&
           h->foretold <= (h->op == SWN_ENGINE_RUN ? SWN_WIRE_STEPS : 0) &&
           h->placed <= (h->op == SWN_ENGINE_RAN ? SWN_WIRE_PLACES : 0) && h->text_bytes < SWN_WIRE_ENGINE_TEXT &&
           h->may_differ <= 1 && h->following <= SWN_WIRE_FOLLOWING && h->joined <= SWN_WIRE_FOLLOWING + 1;
}

int swn_engine_wire_receive(int socket, struct swn_engine_packet *p, uint64_t buffer_bytes,
                            struct swn_engine_message *m)
{
    const struct head *h = &p->head;
    const struct swn_wire_group *groups;
    const struct swn_wire_step *steps;
    const struct swn_wire_place *places;
    size_t tensors, bytes;
    ssize_t n;

    do
        n = recv(socket, p, sizeof *p, 0);
    while (n < 0 && errno == EINTR);
    if (n < 0)
        return errno == ECONNRESET ? 0 : -errno;
    if (n == 0)
        return 0;
    if ((size_t)n < sizeof *h || !head_is_sound(h))
        return -EPROTO;
    tensors = (size_t)h->inputs + h->outputs;
    groups = (const struct swn_wire_group *)(p->tensors + tensors);
    steps = (const struct swn_wire_step *)(groups + h->weighed);
    places = (const struct swn_wire_place *)(steps + h->foretold);
    bytes = tensors * sizeof *p->tensors + h->weighed * sizeof *groups + h->foretold * sizeof *steps +
            h->placed * sizeof *places;
    if ((size_t)n != sizeof *h + bytes + h->text_bytes || memchr(p->bytes + bytes, 0, h->text_bytes) != NULL)
        return -EPROTO;
    for (size_t i = 0; i < tensors; i++)
        if (!tensor_is_sound(&p->tensors[i], buffer_bytes, tensors_are(h)))
            return -EPROTO;
    if (!groups_are_sound(groups, h->weighed))
        return -EPROTO;
    p->bytes[bytes + h->text_bytes] = 0;
    *m = (struct swn_engine_message){
        .op = h->op,
        .status = h->status,
        .request = h->request,
        .model = h->model,
        .group = h->group,
        .groups = h->groups,
        .inputs = h->inputs,
        .outputs = h->outputs,
        .ns = h->ns,
        .weight_bytes = h->weight_bytes,
        .budget_bytes = h->budget_bytes,
        .reads = {.bytes = h->read_bytes, .wait_ns = h->wait_ns, .idle_bytes = h->idle_bytes},
        .is_stored = h->is_stored,
        .batch_most = h->batch_most,
        .may_differ = h->may_differ,
        .following = h->following,
        .joined = h->joined,
        .tensors = p->tensors,
        .weighed = h->weighed,
        .weights = groups,
        .foretold = h->foretold,
        .steps = steps,
        .placed = h->placed,
        .places = places,
        .text = p->bytes + bytes,
    };
    return 1;
}
