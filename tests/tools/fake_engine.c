/* fake_engine - an engine without PyTorch for the tests of swapnet-serve: each output is a copy of the input of the
 * same number.
 *
 * What it does with a model is in the model's file, words NAME=VALUE:
 *   inputs=N type=WORD rank=N   what it takes (1, FP32, 2); its outputs are the same
 *   unknown=1                   its outputs are not described, and it has only the first of them
 *   grow=N                      the last dimension of an output is N times as long; the numbers behind the copy are 0
 *   groups=N                    layer groups (3)
 *   weights=N                   MiB of them (1)
 *   least=N                     MiB: a smaller budget is refused
 *   slow_ms=N                   each group takes as long
 *   missing=N                   each group has N MiB of weights, none of which is ever in memory
 *   dense=N                     of these, in each group from the N-th on all are of dense layers (none)
 *   working=N state=N           MiB that a request takes in each group, and holds between two; so it says
 *   like=N common=N             its first groups (all) are those of other models with that number
 *   alone=1                     the second group of a request has no memory while the engine has another request
 *   astray=1                    answers say that their outputs lie where the server gave no room
 *   fail=TEXT                   each run fails, with this text
 *   refuse=TEXT                 the model is not loaded, for this reason
 *   load_wait=FILE              loading does not end before the file is there
 *   die=SIGNAL                  runs end the process; with die_if=FILE only if the file is there, and it is removed
 *   die_on_load=SIGNAL          so does loading
 *   wait_for=FILE               a run does not end before the file is there
 *   wait_late=FILE              a run of another group than the first does not
 *   hang_if=FILE                a run does not end if the file is there; it is removed
 *   close=1                     runs close the socket, and the process goes on
 *   child=1                     loading leaves a child that holds the socket, and does not end by itself
 * With FAKE_LOG=FILE in the environment it notes there what it is told, a line each: of RUN the request, its group, its
 * model, and MODEL:GROUP of each step that is foretold. A run fails if it foretells what no model has. With
 * FAKE_GATE=FILE it is not up before the file is there. It loads a .py file only with --worker.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "scheduler/protocol/engine_wire.h"

#define MODELS 64
#define REQUESTS 256

static struct model {
    int is_loaded;
    unsigned inputs, unknown, grow, rank, groups, slow_ms, missing, dense, alone, weights, astray, like, common,
        working, state;
    enum swn_element type;
    int die, die_on_load, closes, child;
    char fail[128], refuse[128], die_if[256], hang_if[256], wait_for[256], wait_late[256], load_wait[256];
} models[MODELS];

static struct request {
    uint64_t id; /* 0: free */
    struct model *model;
    unsigned count;
    struct swn_wire_tensor tensors[SWN_WIRE_TENSORS];
    void *data[SWN_WIRE_TENSORS];
} requests[REQUESTS];

static char *buffer;
static uint64_t buffer_bytes, least_bytes;
static int log_fd = -1, is_worker;

static void note(const char *what, uint64_t id, uint32_t group)
{
    if (log_fd >= 0)
        dprintf(log_fd, "%s %" PRIu64 " %u\n", what, id, group);
}

static void note_run(const struct swn_engine_message *m)
{
    char steps[SWN_WIRE_STEPS * 24] = "";

    for (uint32_t i = 0, at = 0; i < m->foretold; i++)
        at += (uint32_t)snprintf(steps + at, sizeof steps - at, " %u:%u", m->steps[i].model, m->steps[i].group);
    if (log_fd >= 0)
        dprintf(log_fd, "RUN %" PRIu64 " %u %u%s\n", m->request, m->group, m->model, steps);
}

/* Whether each step is a group of a model that is loaded, and none is there twice in a row. */
static int is_sound(const struct swn_engine_message *m)
{
    for (uint32_t i = 0; i < m->foretold; i++) {
        const struct swn_wire_step *step = &m->steps[i];
        const struct model *model = &models[step->model % MODELS];
        if (!model->is_loaded || step->group >= model->groups ||
            (i && step->model == step[-1].model && step->group == step[-1].group))
            return 0;
    }
    return 1;
}

/* Whatever handlers a sanitizer has put there. */
static void die(int sig)
{
    signal(sig, SIG_DFL);
    raise(sig);
}

static void await_file(const char *file)
{
    while (*file && access(file, F_OK))
        nanosleep(&(struct timespec){.tv_nsec = 2000000}, NULL);
}

static void take_word(struct model *m, char *word)
{
    char *value = strchr(word, '=');
    if (!value)
        return;
    *value++ = '\0';
    unsigned n = (unsigned)strtoul(value, NULL, 10);
    if (!strcmp(word, "inputs"))
        m->inputs = n;
    else if (!strcmp(word, "unknown"))
        m->unknown = n;
    else if (!strcmp(word, "grow"))
        m->grow = n;
    else if (!strcmp(word, "rank"))
        m->rank = n;
    else if (!strcmp(word, "type"))
        m->type = swn_element_named(value, strlen(value));
    else if (!strcmp(word, "weights"))
        m->weights = n;
    else if (!strcmp(word, "least"))
        least_bytes = (uint64_t)n << 20;
    else if (!strcmp(word, "groups"))
        m->groups = n;
    else if (!strcmp(word, "slow_ms"))
        m->slow_ms = n;
    else if (!strcmp(word, "missing"))
        m->missing = n;
    else if (!strcmp(word, "dense"))
        m->dense = n;
    else if (!strcmp(word, "like"))
        m->like = n;
    else if (!strcmp(word, "common"))
        m->common = n;
    else if (!strcmp(word, "working"))
        m->working = n;
    else if (!strcmp(word, "state"))
        m->state = n;
    else if (!strcmp(word, "alone"))
        m->alone = n;
    else if (!strcmp(word, "astray"))
        m->astray = n;
    else if (!strcmp(word, "die"))
        m->die = (int)n;
    else if (!strcmp(word, "die_on_load"))
        m->die_on_load = (int)n;
    else if (!strcmp(word, "close"))
        m->closes = (int)n;
    else if (!strcmp(word, "child"))
        m->child = (int)n;
    else if (!strcmp(word, "fail"))
        snprintf(m->fail, sizeof m->fail, "%s", value);
    else if (!strcmp(word, "refuse"))
        snprintf(m->refuse, sizeof m->refuse, "%s", value);
    else if (!strcmp(word, "die_if"))
        snprintf(m->die_if, sizeof m->die_if, "%s", value);
    else if (!strcmp(word, "hang_if"))
        snprintf(m->hang_if, sizeof m->hang_if, "%s", value);
    else if (!strcmp(word, "wait_for"))
        snprintf(m->wait_for, sizeof m->wait_for, "%s", value);
    else if (!strcmp(word, "wait_late"))
        snprintf(m->wait_late, sizeof m->wait_late, "%s", value);
    else if (!strcmp(word, "load_wait"))
        snprintf(m->load_wait, sizeof m->load_wait, "%s", value);
}

static enum swn_engine_status load(struct model *m, const char *path, const char **text)
{
    char words[4096], *save = words, *word;
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    ssize_t n = fd < 0 ? -1 : read(fd, words, sizeof words - 1);

    if (fd >= 0)
        close(fd);
    *text = n < 0 ? "the file cannot be read" : "this engine is no worker";
    if (n < 0 || (!is_worker && strlen(path) > 3 && !strcmp(path + strlen(path) - 3, ".py")))
        return SWN_ENGINE_UNREADABLE;
    words[n] = '\0';
    *m = (struct model){.inputs = 1, .rank = 2, .groups = 3, .type = SWN_ELEMENT_FP32};
    while ((word = strsep(&save, " \n")))
        take_word(m, word);
    await_file(m->load_wait);
    if (m->die_on_load)
        die(m->die_on_load);
    if (m->child && fork() == 0)
        for (;;)
            pause();
    *text = m->refuse;
    if (*m->refuse)
        return SWN_ENGINE_UNREADABLE;
    m->is_loaded = 1;
    return SWN_ENGINE_OK;
}

static unsigned describe(const struct model *m, struct swn_wire_tensor *tensors)
{
    unsigned count = (m->unknown ? 1 : 2) * m->inputs;

    memset(tensors, 0, count * sizeof *tensors);
    for (unsigned i = 0; i < count; i++) {
        struct swn_wire_tensor *t = &tensors[i];
        snprintf(t->name, sizeof t->name, "%s%u", i < m->inputs ? "INPUT" : "OUTPUT", i % m->inputs);
        t->element = m->type;
        t->rank = m->rank;
        for (unsigned d = 0; d < m->rank; d++)
            t->shape[d] = -1;
    }
    return m->inputs;
}

static void weigh(const struct model *m, struct swn_engine_message *answer)
{
    static struct swn_wire_group groups[SWN_WIRE_GROUPS];

    answer->weighed = m->groups < SWN_WIRE_GROUPS ? m->groups : SWN_WIRE_GROUPS;
    answer->weights = groups;
    for (unsigned i = 0; i < answer->weighed; i++)
        groups[i] = (struct swn_wire_group){.bytes = (uint64_t)m->missing << 20,
                                            .dense = m->dense && i + 1 >= m->dense ? (uint64_t)m->missing << 20 : 0,
                                            .identity = m->like && i < m->common ? m->like * UINT64_C(1000) + i : 0,
                                            .activation_bytes = ((uint64_t)(m->working + m->state) << 20) + 1,
                                            .state_bytes = i ? (uint64_t)m->state << 20 : 0};
}

static unsigned count_requests(void)
{
    unsigned n = 0;

    for (int i = 0; i < REQUESTS; i++)
        n += requests[i].id != 0;
    return n;
}

static struct request *find(uint64_t id)
{
    for (int i = 0; i < REQUESTS; i++)
        if (requests[i].id == id)
            return &requests[i];
    return NULL;
}

static void forget(struct request *r)
{
    for (unsigned i = 0; i < r->count; i++)
        free(r->data[i]);
    memset(r, 0, sizeof *r);
}

static int is_there(const char *file)
{
    return *file && unlink(file) == 0;
}

static enum swn_engine_status begin(const struct swn_engine_message *m, struct model *model)
{
    struct request *r = find(0);

    if (!r)
        return SWN_ENGINE_NO_MEMORY;
    *r = (struct request){.id = m->request, .model = model, .count = m->inputs};
    for (unsigned i = 0; i < m->inputs; i++) {
        r->tensors[i] = m->tensors[i];
        snprintf(r->tensors[i].name, sizeof r->tensors[i].name, "OUTPUT%u", i);
        r->tensors[i].offset = 0;
        if (model->grow && r->tensors[i].rank) {
            r->tensors[i].shape[r->tensors[i].rank - 1] *= model->grow;
            r->tensors[i].bytes *= model->grow;
        }
        r->data[i] = calloc(1, r->tensors[i].bytes + 1);
        memcpy(r->data[i], buffer + m->tensors[i].offset, m->tensors[i].bytes);
    }
    for (unsigned i = 1; model->unknown && i < m->inputs; i++)
        free(r->data[i]);
    r->count = model->unknown ? 1 : r->count;
    return SWN_ENGINE_OK;
}

static enum swn_engine_status store(const struct swn_engine_message *m);

/* Outputs that fit into the room of RUN. */
static void store_at_once(const struct swn_engine_message *m, struct request *r, struct swn_engine_message *answer)
{
    static struct swn_wire_tensor tensors[SWN_WIRE_TENSORS];
    const struct swn_wire_tensor *room = &m->tensors[m->inputs];
    uint64_t used = 0;

    for (unsigned i = 0; i < r->count; i++) {
        tensors[i] = r->tensors[i];
        tensors[i].offset = tensors[i].bytes ? room->offset + used : 0;
        used += (tensors[i].bytes + 63) & ~UINT64_C(63);
    }
    answer->tensors = tensors;
    if (used > room->bytes)
        return; /* what fitted says where, as the real engine's answer does */
    if (!r->model->astray) {
        struct swn_engine_message order = {.request = m->request, .outputs = r->count, .tensors = tensors};
        note("ROOM", m->request, m->group);
        answer->is_stored = store(&order) == SWN_ENGINE_OK;
        return;
    }
    tensors[0].offset = room->offset >= 64 ? 0 : room->offset + 64; /* where it was not told to write */
    answer->is_stored = 1;
    forget(r);
}

static enum swn_engine_status run(const struct swn_engine_message *m, int socket, struct swn_engine_message *answer)
{
    struct model *model = &models[m->model % MODELS];
    struct request *r;
    enum swn_engine_status status = m->group ? SWN_ENGINE_OK : begin(m, model);

    answer->text = "no such request";
    r = find(m->request);
    if (status || !r || !model->is_loaded)
        return status ? status : SWN_ENGINE_UNKNOWN;
    answer->text = "what is foretold cannot come";
    if (!is_sound(m)) {
        forget(r);
        return SWN_ENGINE_FAILED;
    }
    if (model->die && (!*model->die_if || is_there(model->die_if)))
        die(model->die);
    if (model->closes)
        close(socket);
    if (model->closes || is_there(model->hang_if))
        for (;;)
            pause();
    await_file(model->wait_for);
    if (m->group)
        await_file(model->wait_late);
    nanosleep(&(struct timespec){model->slow_ms / 1000, model->slow_ms % 1000 * 1000000L}, NULL);
    answer->ns += model->slow_ms * UINT64_C(1000000);
    answer->groups = model->groups;
    answer->reads.bytes = (uint64_t)model->missing << 20;
    weigh(model, answer);
    if (model->alone && m->group == 1 && count_requests() > 1) {
        answer->text = "no memory beside others";
        forget(r);
        return SWN_ENGINE_NO_MEMORY;
    }
    answer->text = model->fail;
    if (*model->fail) {
        forget(r);
        return SWN_ENGINE_FAILED;
    }
    if (m->group + 1 == model->groups) {
        answer->outputs = r->count;
        answer->tensors = r->tensors;
        if (m->outputs)
            store_at_once(m, r, answer);
    }
    return SWN_ENGINE_OK;
}

static enum swn_engine_status store(const struct swn_engine_message *m)
{
    struct request *r = find(m->request);

    if (!r || m->outputs != r->count)
        return SWN_ENGINE_UNKNOWN;
    for (unsigned i = 0; i < m->outputs; i++)
        memcpy(buffer + m->tensors[i].offset, r->data[i], m->tensors[i].bytes);
    forget(r);
    return SWN_ENGINE_OK;
}

static int answer_to(const struct swn_engine_message *m, int socket, struct swn_engine_packet *out)
{
    static struct swn_wire_tensor tensors[SWN_WIRE_TENSORS];
    struct swn_engine_message answer = {.op = m->op + 1,
                                        .request = m->request,
                                        .model = m->model,
                                        .group = m->group,
                                        .ns = 1000,
                                        .text = "",
                                        .joined = m->op == SWN_ENGINE_RUN};
    struct model *model = &models[m->model % MODELS];

    switch (m->op) {
    case SWN_ENGINE_LOAD:
        note("LOAD", m->model, 0);
        answer.status = load(model, m->text, &answer.text);
        answer.groups = model->groups;
        answer.weight_bytes = (uint64_t)(model->weights ? model->weights : 1) << 20;
        answer.inputs = answer.status ? 0 : describe(model, tensors);
        answer.outputs = model->unknown ? 0 : answer.inputs;
        answer.tensors = tensors;
        weigh(model, &answer);
        break;
    case SWN_ENGINE_UNLOAD:
        note("UNLOAD", m->model, 0);
        answer.status = model->is_loaded ? SWN_ENGINE_OK : SWN_ENGINE_UNKNOWN;
        model->is_loaded = 0;
        break;
    case SWN_ENGINE_RUN:
        note_run(m);
        answer.status = run(m, socket, &answer);
        break;
    case SWN_ENGINE_STORE:
        note("STORE", m->request, 0);
        answer.status = store(m);
        break;
    case SWN_ENGINE_BUDGET:
        note("BUDGET", m->budget_bytes, 0);
        answer.status = m->budget_bytes < least_bytes ? SWN_ENGINE_NO_MEMORY : SWN_ENGINE_OK;
        answer.budget_bytes = answer.status ? least_bytes : m->budget_bytes;
        break;
    default:
        note("DROP", m->request, 0);
        if (find(m->request))
            forget(find(m->request));
        return 0;
    }
    return swn_engine_wire_send(socket, out, &answer);
}

int main(int argc, char **argv)
{
    struct swn_engine_packet *in = swn_engine_packet_new(), *out = swn_engine_packet_new();
    struct swn_engine_message m = {.op = SWN_ENGINE_READY, .text = "fake"};
    int socket = -1, fd = -1;
    struct stat st;

    for (int i = 1; i + 1 < argc; i += 2) {
        if (!strcmp(argv[i], "--socket"))
            socket = atoi(argv[i + 1]);
        if (!strcmp(argv[i], "--buffer"))
            fd = atoi(argv[i + 1]);
    }
    is_worker = argc > 1 && !strcmp(argv[argc - 1], "--worker");
    if (getenv("FAKE_LOG"))
        log_fd = open(getenv("FAKE_LOG"), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
    if (getenv("FAKE_EXIT"))
        _exit(atoi(getenv("FAKE_EXIT")));
    if (fstat(fd, &st) || !in || !out)
        return 2;
    buffer_bytes = (uint64_t)st.st_size;
    buffer = mmap(NULL, buffer_bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (buffer == MAP_FAILED)
        return 2;
    await_file(getenv("FAKE_GATE") ? getenv("FAKE_GATE") : "");
    int rc = swn_engine_wire_send(socket, out, &m);
    while (rc == 0 && (rc = swn_engine_wire_receive(socket, in, buffer_bytes, &m)) > 0)
        rc = answer_to(&m, socket, out);
    _exit(rc < 0);
}
