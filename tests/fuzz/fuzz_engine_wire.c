/* fuzz_engine_wire - any bytes as a packet between swapnet-serve and an engine: what is accepted is within its bounds,
 * and can be sent again. */
#define _GNU_SOURCE
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "scheduler/protocol/engine_wire.h"

#define BUFFER 4096
#define VERSION_AT 4 /* behind the magic number */
#define PACKET_MOST 65536

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void promise(int kept)
{
    if (!kept)
        abort();
}

static void check_tensor(const struct swn_wire_tensor *t, int is_described)
{
    uint64_t bytes;

    promise(memchr(t->name, 0, sizeof t->name) != NULL && t->rank <= SWN_WIRE_RANK && t->element < SWN_ELEMENTS);
    if (is_described)
        return;
    promise(swn_wire_tensor_bytes(t, &bytes) == 0 && t->offset <= BUFFER && t->bytes <= BUFFER - t->offset);
    promise((t->bytes == 0 && t->offset == 0) || t->bytes >= bytes);
}

static void check_message(const struct swn_engine_message *m)
{
    promise(m->op > 0 && m->op < SWN_ENGINE_OPS && m->status < SWN_ENGINE_STATUSES);
    promise(m->inputs <= SWN_WIRE_TENSORS && m->outputs <= SWN_WIRE_TENSORS - m->inputs);
    promise(m->weighed <= SWN_WIRE_GROUPS && m->foretold <= SWN_WIRE_STEPS);
    promise(m->foretold == 0 || m->op == SWN_ENGINE_RUN);
    promise(m->placed <= SWN_WIRE_PLACES && (m->placed == 0 || m->op == SWN_ENGINE_RAN));
    promise(strlen(m->text) < SWN_WIRE_ENGINE_TEXT);
    for (uint32_t i = 0; i < m->inputs + m->outputs; i++)
        check_tensor(&m->tensors[i], m->op == SWN_ENGINE_LOAD || m->op == SWN_ENGINE_LOADED);
    for (uint32_t i = 0; i < m->weighed; i++)
        promise(m->weights[i].in_memory <= m->weights[i].bytes && m->weights[i].dense <= m->weights[i].bytes);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static struct swn_engine_packet *in, *out;
    static int ends[2] = {-1, -1};
    static char packet[PACKET_MOST], first[PACKET_MOST], again[PACKET_MOST];
    static const uint32_t version = SWN_ENGINE_WIRE_VERSION;
    struct swn_engine_message m;
    int rc;

    if (size == 0 || size > PACKET_MOST)
        return 0;
    if (ends[0] < 0) {
        in = swn_engine_packet_new();
        out = swn_engine_packet_new();
        promise(in && out && socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_NONBLOCK, 0, ends) == 0);
    }
    memcpy(packet, data, size);
    if (size >= VERSION_AT + sizeof version) /* else each new version would end all samples at once */
        memcpy(packet + VERSION_AT, &version, sizeof version);
    promise(send(ends[0], packet, size, 0) == (ssize_t)size);
    rc = swn_engine_wire_receive(ends[1], in, BUFFER, &m);
    promise(rc == 1 || rc == -EPROTO);
    if (rc != 1)
        return 0;
    check_message(&m);
    promise(swn_engine_wire_send(ends[0], out, &m) == 0);
    ssize_t n = recv(ends[1], first, sizeof first, 0);
    promise(n == (ssize_t)size && send(ends[0], first, (size_t)n, 0) == n);
    promise(swn_engine_wire_receive(ends[1], in, BUFFER, &m) == 1 && swn_engine_wire_send(ends[0], out, &m) == 0);
    promise(recv(ends[1], again, sizeof again, 0) == n && memcmp(first, again, (size_t)n) == 0);
    promise(memcmp(first, packet, (size_t)n) == 0);
    return 0;
}
