/* fake_engine - an engine without PyTorch for the tests of swapnet-serve: each output is a copy of the input of the
 * same number.
 *
 * What it does with a model is in the model's file, words NAME=VALUE:
 *   inputs=N type=WORD rank=N   what it takes (1, FP32, 2); its outputs are the same
 *   groups=N                    layer groups (3)
 *   slow_ms=N                   each group takes as long
 *   fail=TEXT                   each run fails, with this text
 *   refuse=TEXT                 the model is not loaded, for this reason
 *   die=SIGNAL                  runs end the process; with die_if=FILE only if the file is there, and it is removed
 *   die_on_load=SIGNAL          so does loading
 *   hang_if=FILE                a run does not end if the file is there; it is removed
 * With FAKE_LOG=FILE in the environment it notes there what it is told, a line each.
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
    unsigned inputs, rank, groups, slow_ms;
    enum swn_element type;
    int die, die_on_load;
    char fail[128], refuse[128], die_if[256], hang_if[256];
} models[MODELS];

static struct request {
    uint64_t id; /* 0: free */
    struct model *model;
    unsigned count;
    struct swn_wire_tensor tensors[SWN_WIRE_TENSORS];
    void *data[SWN_WIRE_TENSORS];
} requests[REQUESTS];

static char *buffer;
static uint64_t buffer_bytes;
static int log_fd = -1;

static void note(const char *what, uint64_t id, uint32_t group)
{
    if (log_fd >= 0)
        dprintf(log_fd, "%s %" PRIu64 " %u\n", what, id, group);
}

/* Whatever handlers a sanitizer has put there. */
static void die(int sig)
{
    signal(sig, SIG_DFL);
    raise(sig);
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
    else if (!strcmp(word, "rank"))
        m->rank = n;
    else if (!strcmp(word, "type"))
        m->type = swn_element_named(value, strlen(value));
    else if (!strcmp(word, "groups"))
        m->groups = n;
    else if (!strcmp(word, "slow_ms"))
        m->slow_ms = n;
    else if (!strcmp(word, "die"))
        m->die = (int)n;
    else if (!strcmp(word, "die_on_load"))
        m->die_on_load = (int)n;
    else if (!strcmp(word, "fail"))
        snprintf(m->fail, sizeof m->fail, "%s", value);
    else if (!strcmp(word, "refuse"))
        snprintf(m->refuse, sizeof m->refuse, "%s", value);
    else if (!strcmp(word, "die_if"))
        snprintf(m->die_if, sizeof m->die_if, "%s", value);
    else if (!strcmp(word, "hang_if"))
        snprintf(m->hang_if, sizeof m->hang_if, "%s", value);
}

static enum swn_engine_status load(struct model *m, const char *path, const char **text)
{
    char words[4096], *save = words, *word;
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    ssize_t n = fd < 0 ? -1 : read(fd, words, sizeof words - 1);

    if (fd >= 0)
        close(fd);
    *text = "the file cannot be read";
    if (n < 0)
        return SWN_ENGINE_UNREADABLE;
    words[n] = '\0';
    *m = (struct model){.inputs = 1, .rank = 2, .groups = 3, .type = SWN_ELEMENT_FP32};
    while ((word = strsep(&save, " \n")))
        take_word(m, word);
    if (m->die_on_load)
        die(m->die_on_load);
    *text = m->refuse;
    if (*m->refuse)
        return SWN_ENGINE_UNREADABLE;
    m->is_loaded = 1;
    return SWN_ENGINE_OK;
}

static unsigned describe(const struct model *m, struct swn_wire_tensor *tensors)
{
    memset(tensors, 0, 2 * m->inputs * sizeof *tensors);
    for (unsigned i = 0; i < 2 * m->inputs; i++) {
        struct swn_wire_tensor *t = &tensors[i];
        snprintf(t->name, sizeof t->name, "%s%u", i < m->inputs ? "INPUT" : "OUTPUT", i % m->inputs);
        t->element = m->type;
        t->rank = m->rank;
        for (unsigned d = 0; d < m->rank; d++)
            t->shape[d] = -1;
    }
    return m->inputs;
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
        r->data[i] = malloc(m->tensors[i].bytes + 1);
        memcpy(r->data[i], buffer + m->tensors[i].offset, m->tensors[i].bytes);
    }
    return SWN_ENGINE_OK;
}

static enum swn_engine_status run(const struct swn_engine_message *m, struct swn_engine_message *answer)
{
    struct model *model = &models[m->model % MODELS];
    struct request *r;
    enum swn_engine_status status = m->group ? SWN_ENGINE_OK : begin(m, model);

    answer->text = "no such request";
    r = find(m->request);
    if (status || !r || !model->is_loaded)
        return status ? status : SWN_ENGINE_UNKNOWN;
    if (model->die && (!*model->die_if || is_there(model->die_if)))
        die(model->die);
    if (is_there(model->hang_if))
        for (;;)
            pause();
    nanosleep(&(struct timespec){model->slow_ms / 1000, model->slow_ms % 1000 * 1000000L}, NULL);
    answer->groups = model->groups;
    answer->text = model->fail;
    if (*model->fail) {
        forget(r);
        return SWN_ENGINE_FAILED;
    }
    if (m->group + 1 == model->groups) {
        answer->outputs = r->count;
        answer->tensors = r->tensors;
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
    struct swn_engine_message answer = {
        .op = m->op + 1, .request = m->request, .model = m->model, .group = m->group, .ns = 1000, .text = ""};
    struct model *model = &models[m->model % MODELS];

    switch (m->op) {
    case SWN_ENGINE_LOAD:
        note("LOAD", m->model, 0);
        answer.status = load(model, m->text, &answer.text);
        answer.groups = model->groups;
        answer.weight_bytes = 1 << 20;
        answer.inputs = answer.outputs = answer.status ? 0 : describe(model, tensors);
        answer.tensors = tensors;
        break;
    case SWN_ENGINE_UNLOAD:
        note("UNLOAD", m->model, 0);
        answer.status = model->is_loaded ? SWN_ENGINE_OK : SWN_ENGINE_UNKNOWN;
        model->is_loaded = 0;
        break;
    case SWN_ENGINE_RUN:
        note("RUN", m->request, m->group);
        answer.status = run(m, &answer);
        break;
    case SWN_ENGINE_STORE:
        note("STORE", m->request, 0);
        answer.status = store(m);
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
    int rc = swn_engine_wire_send(socket, out, &m);
    while (rc == 0 && (rc = swn_engine_wire_receive(socket, in, buffer_bytes, &m)) > 0)
        rc = answer_to(&m, socket, out);
    _exit(rc < 0);
}
