/* shim/serve/engine.c - answers swapnet-serve, which talks over a socket pair (scheduler/protocol/engine_wire.h), with
 * what a backend computes: see engine.h.
 *
 * One thread takes a message at a time, in order, and answers it.
 */
#define _GNU_SOURCE
#include "shim/serve/engine.h"

#include <dlfcn.h>
#include <errno.h>
#include <inttypes.h>
#include <poll.h>
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

/* How long an engine waits for a smaller budget to be in force, before it says that this goes on. */
#define BUDGET_MS 500
/* Of each output in the buffer. */
#define ALIGN UINT64_C(64)
/* How long a RUN that another one foretells is waited for: swapnet-serve sends them one behind the other. */
#define FOLLOWING_MS 2
/* Without a message for so long the engine is idle; twice as long after each message that came while it used that. */
#define IDLE_MS 20
#define IDLE_MOST_MS 1280

/* Models by their numbers, requests by theirs: few at a time, so a list each. */
struct entry {
    struct entry *next;
    uint64_t number;
    union {
        struct swn_model *model;
        struct swn_activation *activation;
    };
    struct entry *of;          /* a request's model */
    uintptr_t own;             /* a model's weight that it does not have from another model; 0: there is none */
    uint64_t activation_bytes; /* of a model whose backend does not say: the most that a request has taken */
};

/* A RUN that has been read, and what is to be answered. */
struct turn {
    struct swn_engine_message run; /* its pointers are not used */
    struct swn_wire_tensor room;
    struct swn_wire_step steps[SWN_WIRE_STEPS];
    uint64_t alive;                /* bytes of tensors before its begin, where the backend does not tell needs */
    enum swn_engine_status status; /* of its begin */
    struct entry *request;         /* NULL: it has not begun */
    char text[SWN_WIRE_ENGINE_TEXT];
};

static struct {
    const struct swn_serve_backend *backend;
    const struct swn_serving_services *library; /* libswapnet's; NULL: it is not there */
    struct swn_engine_packet *in, *out;
    int socket;
    char *buffer;
    uint64_t buffer_bytes;
    uint64_t told_bytes;             /* of what libswapnet has read, what answers have told */
    uint64_t placed_bytes;           /* what it had read when an answer told what of other models is in memory */
    struct entry *models, *requests; /* models: the one that ran last first */
    struct swn_wire_tensor tensors[SWN_WIRE_TENSORS];
    struct swn_wire_group groups[SWN_WIRE_GROUPS];
    struct swn_wire_place places[SWN_WIRE_PLACES];
    struct swn_serving_weight announced[SWN_ANNOUNCED_MOST];
    struct turn turns[SWN_WIRE_FOLLOWING + 1];
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

static void to_front(struct entry **list, struct entry *e)
{
    *find(list, e->number) = e->next;
    e->next = *list;
    *list = e;
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

/* Tells the weights of each layer group of the model, and how many of them are in memory; and what requests need. */
static void weigh(const struct entry *e, struct swn_engine_message *answer)
{
    const struct swn_model *model = e->model;
    uint32_t groups = engine.backend->groups(model);

    answer->weighed = groups < SWN_WIRE_GROUPS ? groups : SWN_WIRE_GROUPS;
    answer->weights = engine.groups;
    for (uint32_t g = 0; g < answer->weighed; g++) {
        size_t count;
        const struct swn_serving_weight *weights = engine.backend->weights(model, g, &count);
        uint64_t bytes = 0, missing = engine.library ? engine.library->missing(weights, count) : 0;
        for (size_t i = 0; i < count; i++)
            bytes += weights[i].bytes;
        engine.groups[g] = (struct swn_wire_group){
            .bytes = bytes,
            .in_memory = bytes - missing,
            .identity = engine.backend->identity ? engine.backend->identity(model, g) : 0,
            .dense = engine.backend->dense_bytes ? engine.backend->dense_bytes(model, g) : 0,
            .activation_bytes = e->activation_bytes,
        };
        if (engine.backend->needs)
            engine.backend->needs(model, g, &engine.groups[g].activation_bytes, &engine.groups[g].state_bytes);
        if (engine.backend->joined)
            engine.backend->joined(model, g, &engine.groups[g]);
    }
}

/* Tells how much of the groups of other models than `e` is in memory, if reads have changed that: what was read for one
 * may have taken the place of another's. As many models as there is room for, the one that ran last first. */
static void place_others(const struct entry *e, uint64_t read_bytes, struct swn_engine_message *answer)
{
    if (!engine.library || read_bytes == engine.placed_bytes)
        return;
    engine.placed_bytes = read_bytes;
    answer->places = engine.places;
    for (const struct entry *other = engine.models; other; other = other->next) {
        uint32_t groups = engine.backend->groups(other->model);
        if (other == e || groups > SWN_WIRE_PLACES - answer->placed)
            continue;
        for (uint32_t g = 0; g < groups; g++) {
            size_t count;
            const struct swn_serving_weight *weights = engine.backend->weights(other->model, g, &count);
            uint64_t bytes = 0, missing = engine.library->missing(weights, count);
            for (size_t i = 0; i < count; i++)
                bytes += weights[i].bytes;
            engine.places[answer->placed++] = (struct swn_wire_place){
                .model = (uint32_t)other->number, .group = g, .in_memory = bytes > missing ? bytes - missing : 0};
        }
    }
}

/* What libswapnet has read so far, and how long operators have waited for it. */
static void look_at_disk(uint64_t *read_bytes, uint64_t *wait_ns)
{
    *read_bytes = *wait_ns = 0;
    if (engine.library)
        engine.library->progress(read_bytes, wait_ns);
}

/* Bytes of all tensors, and the most since the last call; 0: nothing counts them. */
static uint64_t look_at_tensors(uint64_t *peak)
{
    *peak = 0;
    return engine.library ? engine.library->tensors(peak) : 0;
}

/* A request that began when `before` bytes were alive has run. */
static void note_need(struct entry *model, uint64_t before)
{
    uint64_t peak, now = look_at_tensors(&peak);

    if (before == 0 || now == 0 || engine.backend->needs)
        return;
    peak = peak > before ? peak - before + 1 : 1;
    model->activation_bytes = peak > model->activation_bytes ? peak : model->activation_bytes;
}

/* Whether another model has the weight. */
static int is_shared(const struct entry *e, uintptr_t address)
{
    for (const struct entry *other = engine.models; other; other = other->next)
        for (uint32_t g = 0; other != e && g < engine.backend->groups(other->model); g++) {
            size_t count;
            const struct swn_serving_weight *weights = engine.backend->weights(other->model, g, &count);
            for (size_t i = 0; i < count; i++)
                if (weights[i].address == address)
                    return 1;
        }
    return 0;
}

static int is_less(const struct swn_serving_weight *a, const struct swn_serving_weight *b)
{
    return a->bytes != b->bytes ? a->bytes < b->bytes : a->address < b->address;
}

/* The model's largest weight that was not there before it. */
static uintptr_t own_weight(const struct entry *e)
{
    struct swn_serving_weight bound = {.address = UINTPTR_MAX, .bytes = SIZE_MAX}, largest;

    do {
        largest = (struct swn_serving_weight){0};
        for (uint32_t g = 0; g < engine.backend->groups(e->model); g++) {
            size_t count;
            const struct swn_serving_weight *weights = engine.backend->weights(e->model, g, &count);
            for (size_t i = 0; i < count; i++)
                if (is_less(&weights[i], &bound) && is_less(&largest, &weights[i]))
                    largest = weights[i];
        }
        bound = largest;
    } while (largest.address && is_shared(e, largest.address));
    return largest.address;
}

static enum swn_engine_status load(const struct swn_engine_message *m, struct swn_engine_message *answer)
{
    enum swn_engine_status status;
    struct entry *e;

    if (*find(&engine.models, m->model))
        return refuse(SWN_ENGINE_FAILED, "a model of this number is there");
    if ((e = insert(&engine.models, m->model)) == NULL)
        return refuse(SWN_ENGINE_NO_MEMORY, "no memory");
    if (engine.backend->expect)
        engine.backend->expect(m->tensors, m->inputs, m->outputs);
    status = engine.backend->load(m->text, m->groups, &e->model, engine.text);
    if (status != SWN_ENGINE_OK) {
        take_out(find(&engine.models, m->model));
        return status;
    }
    if (engine.backend->batching)
        engine.backend->batching(e->model, m->batch_most, (int)m->may_differ);
    e->own = own_weight(e);
    answer->groups = engine.backend->groups(e->model);
    answer->weight_bytes = engine.backend->weight_bytes(e->model);
    engine.backend->describe(e->model, engine.tensors, &answer->inputs, &answer->outputs);
    weigh(e, answer);
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

/* Appends the weights of a layer group of the model to those that are announced; how many there are. */
static size_t append(size_t n, const struct entry *model, const struct swn_serving_weight *weights, size_t count)
{
    count = count < SWN_ANNOUNCED_MOST - n ? count : SWN_ANNOUNCED_MOST - n;
    if (count > 0)
        memcpy(engine.announced + n, weights, count * sizeof *weights);
    for (size_t i = 0; i < count; i++)
        engine.announced[n + i].own = model->own;
    return n + count;
}

/* Tells libswapnet which weights are read next: those of this group, and of the steps that swapnet-serve foretells.
 * Where nothing is foretold there may be a group that has to be read all the same: a model's only one. */
static void announce(const struct turn *t)
{
    const struct swn_engine_message *m = &t->run;
    const struct swn_activation *activation = t->request->activation;
    size_t n = 0, count;

    if (engine.library == NULL)
        return;
    if (m->group < engine.backend->groups_of(activation)) {
        const struct swn_serving_weight *own = engine.backend->weights_of(activation, m->group, &count);
        if (m->foretold > 0 || (count > 0 && engine.library->missing(own, count) > 0))
            n = append(n, t->request->of, own, count);
    }
    for (uint32_t i = 0; i < m->foretold; i++) {
        struct entry *of = *find(&engine.models, t->steps[i].model);
        if (of == NULL || t->steps[i].group >= engine.backend->groups(of->model))
            continue;
        const struct swn_serving_weight *weights = engine.backend->weights(of->model, t->steps[i].group, &count);
        n = append(n, of, weights, count);
    }
    engine.library->announce(engine.announced, n, t->request->of->own);
}

/* Outputs that fit into the room which RUN has for them go there at once: one message less to and fro. */
static enum swn_engine_status store_at_once(const struct turn *turn, struct swn_engine_message *answer)
{
    const struct swn_wire_tensor *room = &turn->room;
    enum swn_engine_status status;
    uint64_t used = 0;

    for (uint32_t i = 0; i < answer->outputs; i++) {
        struct swn_wire_tensor *t = &engine.tensors[i];
        if (t->bytes > room->bytes - used)
            return SWN_ENGINE_OK;
        t->offset = t->bytes ? room->offset + used : 0;
        used += (t->bytes + ALIGN - 1) & ~(ALIGN - 1);
        used = used < room->bytes ? used : room->bytes;
    }
    status =
        engine.backend->store(turn->request->activation, engine.tensors, answer->outputs, engine.buffer, engine.text);
    answer->is_stored = status == SWN_ENGINE_OK;
    if (answer->is_stored)
        drop_request(find(&engine.requests, turn->run.request));
    return status;
}

/* ---- RUN ---- */

static int has_turn(uint64_t request, const struct turn *end)
{
    const struct turn *t = engine.turns;

    while (t < end && t->run.request != request)
        t++;
    return t < end;
}

/* Reads what the message says, and begins the request. */
static void take_turn(struct turn *t, const struct swn_engine_message *m)
{
    int is_twice = has_turn(m->request, t);
    uint64_t peak;

    t->alive = engine.backend->needs ? 0 : look_at_tensors(&peak);
    t->run = *m;
    if (m->outputs)
        t->room = m->tensors[m->inputs];
    if (m->foretold)
        memcpy(t->steps, m->steps, m->foretold * sizeof *m->steps);
    engine.text[0] = 0;
    t->status = is_twice ? refuse(SWN_ENGINE_FAILED, "a request runs twice") : m->group == 0 ? begin(m) : SWN_ENGINE_OK;
    t->request = t->status == SWN_ENGINE_OK ? *find(&engine.requests, m->request) : NULL;
    if (t->status == SWN_ENGINE_OK && t->request == NULL)
        t->status = refuse(SWN_ENGINE_UNKNOWN, "no request of this number");
    snprintf(t->text, sizeof t->text, "%s", engine.text);
}

/* The group has run for the request, or failed: 0, or -errno of the socket. */
static int answer_turn(const struct turn *t, enum swn_engine_status status, uint64_t read_bytes,
                       struct swn_engine_message *answer)
{
    answer->op = SWN_ENGINE_RAN;
    answer->request = t->run.request;
    answer->model = t->run.model;
    answer->group = t->run.group;
    answer->status = status;
    answer->tensors = engine.tensors;
    answer->text = engine.text;
    if (t->request == NULL)
        return swn_engine_wire_send(engine.socket, engine.out, answer);
    answer->groups = engine.backend->groups_of(t->request->activation);
    if (status == SWN_ENGINE_OK && t->run.group + 1 == answer->groups) {
        status = engine.backend->outputs(t->request->activation, engine.tensors, &answer->outputs, engine.text);
        place_others(t->request->of, read_bytes, answer);
    }
    note_need(t->request->of, t->alive);
    weigh(t->request->of, answer);
    if (status == SWN_ENGINE_OK && answer->outputs && t->run.outputs)
        status = store_at_once(t, answer);
    if (status != SWN_ENGINE_OK) {
        answer->outputs = 0;
        drop_request(find(&engine.requests, t->run.request));
    }
    answer->status = status;
    return swn_engine_wire_send(engine.socket, engine.out, answer);
}

/* Of these, all of which have begun, the first ones at once, or else the first one. How many; *rc: of the socket. */
static unsigned run_some(struct turn *turns, unsigned count, int *rc)
{
    struct swn_activation *activations[SWN_WIRE_FOLLOWING + 1];
    uint64_t began = swn_now_ns(), read_before, waited_before, read_bytes, wait_ns, ns;
    enum swn_engine_status status = SWN_ENGINE_OK;
    unsigned n = 0;

    for (unsigned i = 0; i < count; i++)
        activations[i] = turns[i].request->activation;
    to_front(&engine.models, turns[0].request->of);
    look_at_disk(&read_before, &waited_before);
    announce(&turns[0]);
    engine.text[0] = 0;
    if (count > 1 && engine.backend->join)
        n = (unsigned)engine.backend->join(activations, count, turns[0].run.group);
    if (n == 0)
        status = engine.backend->run(activations[0], turns[0].run.group, engine.text);
    look_at_disk(&read_bytes, &wait_ns);
    ns = swn_now_ns() - began;
    for (unsigned i = 0; i < (n ? n : 1) && *rc == 0; i++) {
        struct swn_engine_message answer = {.joined = i   ? 0
                                                      : n ? n
                                                          : 1,
                                            .ns = ns / (n ? n : 1),
                                            .reads = {.bytes = (read_bytes - read_before) / (n ? n : 1),
                                                      .wait_ns = (wait_ns - waited_before) / (n ? n : 1),
                                                      .idle_bytes = i ? 0 : read_before - engine.told_bytes}};
        /* What others have left is told when all that was read has been. */
        *rc = answer_turn(&turns[i], status, i + 1 < n ? engine.placed_bytes : read_bytes, &answer);
    }
    engine.told_bytes = read_bytes;
    return n ? n : 1;
}

static int run_turns(unsigned count)
{
    int rc = 0;

    for (unsigned i = 0; i < count && rc == 0;) {
        struct turn *t = &engine.turns[i];
        unsigned begun = 0;
        while (i + begun < count && engine.turns[i + begun].request)
            begun++;
        if (begun) {
            i += run_some(t, begun, &rc);
            continue;
        }
        struct swn_engine_message answer = {.joined = 1};
        memcpy(engine.text, t->text, sizeof engine.text);
        rc = answer_turn(t, t->status, engine.placed_bytes, &answer);
        i++;
    }
    return rc;
}

/* 1: a message is there, or the end; 0: none within that time. */
static int is_message(int wait_ms)
{
    struct pollfd p = {.fd = engine.socket, .events = POLLIN};

    return poll(&p, 1, wait_ms) > 0;
}

/* A RUN, and those that follow it. 1: *m is another message, which has been read behind them; 0, or -errno. */
static int run(struct swn_engine_message *m)
{
    uint32_t model = m->model, group = m->group, following = engine.backend->join ? m->following : 0;
    unsigned count = 0;
    int rc = 1, is_other = 0;

    take_turn(&engine.turns[count++], m);
    while (count <= following && !is_other && is_message(FOLLOWING_MS) &&
           (rc = swn_engine_wire_receive(engine.socket, engine.in, engine.buffer_bytes, m)) > 0) {
        is_other = m->op != SWN_ENGINE_RUN || m->model != model || m->group != group;
        if (!is_other)
            take_turn(&engine.turns[count++], m);
    }
    if (rc <= 0)
        return rc < 0 ? rc : -EPIPE;
    rc = run_turns(count);
    return rc < 0 ? rc : is_other;
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

/* libswapnet begins with the first tensor, and reads its settings then. */
static enum swn_engine_status set_budget(const struct swn_engine_message *m, struct swn_engine_message *answer)
{
    uint64_t least = 0;
    char text[32];
    int rc = engine.library ? engine.library->set_budget(m->budget_bytes, BUDGET_MS, &least) : 0;

    answer->budget_bytes = rc == -ERANGE ? least : m->budget_bytes;
    if (rc == -ERANGE)
        return refuse(SWN_ENGINE_NO_MEMORY, "it needs more");
    if (rc == -EAGAIN)
        return refuse(SWN_ENGINE_FAILED, "not yet");
    snprintf(text, sizeof text, "%" PRIu64, m->budget_bytes);
    return rc != -ESRCH || setenv("SWAPNET_BUDGET", text, 1) == 0 ? SWN_ENGINE_OK
                                                                  : refuse(SWN_ENGINE_NO_MEMORY, "no memory");
}

/* 1: *m is another message, which has been read already; 0, or -errno of the socket. */
static int serve(struct swn_engine_message *m)
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
        return run(m);
    case SWN_ENGINE_STORE:
        answer.status = store(m);
        break;
    case SWN_ENGINE_BUDGET:
        answer.status = set_budget(m, &answer);
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

static int is_wanted(void)
{
    return is_message(0);
}

/* While there is no message, the backend may try things out. */
static void use_idle_time(void)
{
    static int wait_ms = IDLE_MS;
    int is_more = 1;

    if (engine.backend->idle == NULL)
        return;
    while (is_more && !is_message(wait_ms)) {
        is_more = engine.backend->idle(is_wanted);
        if (is_message(0))
            wait_ms = wait_ms < IDLE_MOST_MS ? 2 * wait_ms : wait_ms;
        else
            wait_ms = IDLE_MS;
    }
}

/* The end of the other end, or -errno. */
static int serve_all(void)
{
    struct swn_engine_message m;
    int rc;

    for (;;) {
        use_idle_time();
        rc = swn_engine_wire_receive(engine.socket, engine.in, engine.buffer_bytes, &m);
        if (rc <= 0)
            return rc;
        do
            rc = serve(&m);
        while (rc > 0);
        if (rc < 0)
            return rc;
    }
}

int swn_engine_run(const struct swn_serve_backend *backend, int socket, int buffer)
{
    struct swn_engine_message m = {.op = SWN_ENGINE_READY, .text = backend->version};
    int rc = map_buffer(buffer);

    if (rc < 0) {
        swn_say("engine: cannot map the buffer: %s", strerror(-rc));
        return SWN_EXIT_USAGE;
    }
    engine.socket = socket;
    engine.backend = backend;
    engine.in = swn_engine_packet_new();
    engine.out = swn_engine_packet_new();
    if (engine.in == NULL || engine.out == NULL) {
        swn_say("engine: no memory");
        return SWN_EXIT_NO_TORCH;
    }
    engine.library = dlsym(RTLD_DEFAULT, SWN_SERVING_SYMBOL);
    if (engine.library && engine.library->abi != SWN_SERVING_ABI)
        engine.library = NULL;
    rc = swn_engine_wire_send(engine.socket, engine.out, &m);
    if (rc == 0)
        rc = serve_all();
    if (rc < 0 && rc != -EPIPE)
        swn_say("engine: %s", rc == -EPROTO ? "a message is not well formed" : strerror(-rc));

    return rc < 0 && rc != -EPIPE ? SWN_EXIT_PROTOCOL : 0;
}
