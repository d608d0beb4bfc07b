/* shim/serve/engine.c - swapnet-engine: runs models for swapnet-serve, which starts it and talks to it over a socket
 * pair (scheduler/protocol/engine_wire.h).
 *
 * One thread takes a message at a time, in order, and answers it. PyTorch is not linked: which one to use is found at
 * start, and the serve backend for it is loaded (torch_backend.c). The process ends when the other end closes.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <getopt.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/log.h"
#include "scheduler/protocol/engine_wire.h"
#include "shim/serve/backend.h"
#include "shim/serve/torch_backend.h"

enum { EXIT_USAGE = 2, EXIT_NO_TORCH = 3, EXIT_PROTOCOL = 4 };

/* Models by their numbers, requests by theirs: few at a time, so a list each. */
struct entry {
    struct entry *next;
    uint64_t number;
    union {
        struct swn_model *model;
        struct swn_activation *activation;
    };
    struct entry *of; /* a request's model */
};

static struct {
    const struct swn_serve_backend *backend;
    struct swn_engine_packet *in, *out;
    int socket;
    char *buffer;
    uint64_t buffer_bytes;
    struct entry *models, *requests;
    struct swn_wire_tensor tensors[SWN_WIRE_TENSORS];
    char text[SWN_WIRE_ENGINE_TEXT];
} engine;

static struct entry **find(struct entry **list, uint64_t number)
{
    while (*list && (*list)->number != number)
        list = &(*list)->next;
    return list;
}

static struct entry *insert(struct entry **list, uint64_t number)
{
    struct entry *e = calloc(1, sizeof *e);

    if (e) {
        e->number = number;
        e->next = *list;
        *list = e;
    }
    return e;
}

static void take_out(struct entry **at)
{
    struct entry *e = *at;

    *at = e->next;
    free(e);
}

static void drop_request(struct entry **at)
{
    engine.backend->drop((*at)->activation);
    take_out(at);
}

static enum swn_engine_status refuse(enum swn_engine_status status, const char *why)
{
    snprintf(engine.text, sizeof engine.text, "%s", why);
    return status;
}

static enum swn_engine_status load(const struct swn_engine_message *m, struct swn_engine_message *answer)
{
    enum swn_engine_status status;
    struct entry *e;

    if (*find(&engine.models, m->model))
        return refuse(SWN_ENGINE_FAILED, "a model of this number is there");
    if ((e = insert(&engine.models, m->model)) == NULL)
        return refuse(SWN_ENGINE_NO_MEMORY, "no memory");
    status = engine.backend->load(m->text, m->groups, &e->model, engine.text);
    if (status != SWN_ENGINE_OK) {
        take_out(find(&engine.models, m->model));
        return status;
    }
    answer->groups = engine.backend->groups(e->model);
    answer->weight_bytes = engine.backend->weight_bytes(e->model);
    engine.backend->describe(e->model, engine.tensors, &answer->inputs, &answer->outputs);
    return SWN_ENGINE_OK;
}

static enum swn_engine_status unload(const struct swn_engine_message *m)
{
    struct entry **at = find(&engine.models, m->model);

    if (*at == NULL)
        return refuse(SWN_ENGINE_UNKNOWN, "no model of this number");
    for (struct entry **r = &engine.requests; *r;)
        if ((*r)->of == *at)
            drop_request(r);
        else
            r = &(*r)->next;
    engine.backend->unload((*at)->model);
    take_out(at);
    return SWN_ENGINE_OK;
}

static enum swn_engine_status begin(const struct swn_engine_message *m)
{
    struct entry *model = *find(&engine.models, m->model), *e;
    enum swn_engine_status status;

    if (model == NULL)
        return refuse(SWN_ENGINE_UNKNOWN, "no model of this number");
    if (*find(&engine.requests, m->request))
        return refuse(SWN_ENGINE_FAILED, "a request of this number is on its way");
    if ((e = insert(&engine.requests, m->request)) == NULL)
        return refuse(SWN_ENGINE_NO_MEMORY, "no memory");
    e->of = model;
    status = engine.backend->begin(model->model, m->tensors, m->inputs, engine.buffer, &e->activation, engine.text);
    if (status != SWN_ENGINE_OK)
        take_out(find(&engine.requests, m->request));
    return status;
}

static enum swn_engine_status run(const struct swn_engine_message *m, struct swn_engine_message *answer)
{
    enum swn_engine_status status = m->group == 0 ? begin(m) : SWN_ENGINE_OK;
    struct entry **at = find(&engine.requests, m->request);

    if (status != SWN_ENGINE_OK)
        return status;
    if (*at == NULL)
        return refuse(SWN_ENGINE_UNKNOWN, "no request of this number");
    answer->groups = engine.backend->groups_of((*at)->activation);
    status = engine.backend->run((*at)->activation, m->group, engine.text);
    if (status == SWN_ENGINE_OK && m->group + 1 == answer->groups)
        status = engine.backend->outputs((*at)->activation, engine.tensors, &answer->outputs, engine.text);
    if (status != SWN_ENGINE_OK) {
        answer->outputs = 0;
        drop_request(at);
    }
    return status;
}

static enum swn_engine_status store(const struct swn_engine_message *m)
{
    struct entry **at = find(&engine.requests, m->request);
    enum swn_engine_status status;

    if (*at == NULL)
        return refuse(SWN_ENGINE_UNKNOWN, "no request of this number");
    status = engine.backend->store((*at)->activation, m->tensors, m->outputs, engine.buffer, engine.text);
    drop_request(at);
    return status;
}

/* 0, or -errno of the socket. */
static int serve(const struct swn_engine_message *m)
{
    struct swn_engine_message answer = {.op = m->op + 1, .request = m->request, .model = m->model, .group = m->group};
    uint64_t began = swn_now_ns();

    engine.text[0] = 0;
    switch (m->op) {
    case SWN_ENGINE_LOAD:
        answer.status = load(m, &answer);
        break;
    case SWN_ENGINE_UNLOAD:
        answer.status = unload(m);
        break;
    case SWN_ENGINE_RUN:
        answer.status = run(m, &answer);
        break;
    case SWN_ENGINE_STORE:
        answer.status = store(m);
        break;
    case SWN_ENGINE_DROP: {
        struct entry **at = find(&engine.requests, m->request);
        if (*at)
            drop_request(at);
        return 0;
    }
    default:
        return -EPROTO;
    }
    answer.ns = swn_now_ns() - began;
    answer.tensors = engine.tensors;
    answer.text = engine.text;
    return swn_engine_wire_send(engine.socket, engine.out, &answer);
}

static int map_buffer(int fd)
{
    struct stat st;

    if (fstat(fd, &st) < 0)
        return -errno;
    if (st.st_size <= 0)
        return -EINVAL;
    engine.buffer_bytes = (uint64_t)st.st_size;
    engine.buffer = mmap(NULL, engine.buffer_bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (engine.buffer == MAP_FAILED)
        return -errno;
    /* A core dump holds what clients sent otherwise. */
    madvise(engine.buffer, engine.buffer_bytes, MADV_DONTDUMP);
    close(fd);
    return 0;
}

static int usage(FILE *to)
{
    fprintf(to, "usage: swapnet-engine --socket FD --buffer FD [--torch DIR]\n"
                "Runs models for swapnet-serve, which starts it.\n");
    return to == stdout ? 0 : EXIT_USAGE;
}

/* A descriptor's number, or -1. */
static int descriptor(const char *text)
{
    char *end;
    long n = strtol(text, &end, 10);

    return *end || end == text || n < 0 || n > INT32_MAX ? -1 : (int)n;
}

int main(int argc, char **argv)
{
    static const struct option options[] = {
        {"socket", required_argument, NULL, 's'}, {"buffer", required_argument, NULL, 'b'},
        {"torch", required_argument, NULL, 't'},  {"help", no_argument, NULL, 'h'},
        {"version", no_argument, NULL, 'V'},      {NULL, 0, NULL, 0},
    };
    struct swn_engine_message m = {.op = SWN_ENGINE_READY};
    const char *torch = NULL;
    int buffer = -1, option, rc;

    engine.socket = -1;
    while ((option = getopt_long(argc, argv, "", options, NULL)) != -1)
        switch (option) {
        case 's':
            engine.socket = descriptor(optarg);
            break;
        case 'b':
            buffer = descriptor(optarg);
            break;
        case 't':
            torch = optarg;
            break;
        case 'V':
            printf("swapnet-engine %s\n", SWAPNET_VERSION);
            return 0;
        case 'h':
            return usage(stdout);
        default:
            return usage(stderr);
        }
    if (engine.socket < 0 || buffer < 0 || optind < argc)
        return usage(stderr);
    if ((rc = map_buffer(buffer)) < 0) {
        swn_say("engine: cannot map the buffer: %s", strerror(-rc));
        return EXIT_USAGE;
    }
    /* What a model prints is no output of ours. */
    if (dup2(STDERR_FILENO, STDOUT_FILENO) < 0)
        swn_say("engine: cannot redirect the output: %s", strerror(errno));
    setenv("SWAPNET_MANY_MODELS", "1", 0);
    /* A request that does not fit fails; the memory of others is not taken for it. */
    setenv("SWAPNET_STRICT", "1", 0);
    engine.in = swn_engine_packet_new();
    engine.out = swn_engine_packet_new();
    engine.backend = swn_torch_backend_open(torch, engine.text, sizeof engine.text);
    if (engine.backend == NULL || engine.in == NULL || engine.out == NULL) {
        swn_say("engine: %s", engine.backend ? "no memory" : engine.text);
        return EXIT_NO_TORCH;
    }
    m.text = engine.backend->version;
    rc = swn_engine_wire_send(engine.socket, engine.out, &m);
    while (rc == 0 && (rc = swn_engine_wire_receive(engine.socket, engine.in, engine.buffer_bytes, &m)) > 0)
        rc = serve(&m);
    if (rc < 0 && rc != -EPIPE)
        swn_say("engine: %s", rc == -EPROTO ? "a message is not well formed" : strerror(-rc));

    return rc < 0 && rc != -EPIPE ? EXIT_PROTOCOL : 0;
}
