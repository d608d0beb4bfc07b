/* scheduler/serve/serve_requests.c - a request's way: admitted, run group by group, stored, answered, or dropped.
 *
 * A request that is dropped while the engine has it leaves the queue when the engine's answer has come, as its slots
 * are the engine's until then.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <time.h>

#include "base/clock.h"
#include "scheduler/serve/serving_internal.h"

/* How often a request is begun again: after a crash, of which it may be the reason, and after the engine was killed. */
#define CRASHES_MOST 1
#define KILLS_MOST 10
/* Engines that died in a row without any work done: requests do not wait for the next one. */
#define FRUITLESS_MOST 4

static struct swn_served *model_of(struct swn_serving *s, const struct swn_job *job)
{
    return s->models[job->item.model];
}

static uint64_t milliseconds_since_the_epoch(void)
{
    struct timespec t;

    clock_gettime(CLOCK_REALTIME, &t);
    return (uint64_t)t.tv_sec * 1000 + (uint64_t)t.tv_nsec / 1000000;
}

/* ---- end ---- */

static void leave_queue(struct swn_serving *s, struct swn_job *job)
{
    struct swn_served *m = model_of(s, job);

    if (!job->infer->began_ns)
        m->counts.pending--;
    swn_serve_queue_remove(&s->queue, &job->item);
    if (job->client >= 0)
        swn_serve_watch(s, job->client, 0, 0);
}

static void succeed(struct swn_serving *s, struct swn_job *job, uint64_t now)
{
    struct swn_serve_counts *c = &model_of(s, job)->counts;

    c->success++;
    c->request_ns += now - job->item.arrived_ns;
    c->queue_ns += job->infer->began_ns - job->item.arrived_ns;
    c->infer_ns += job->infer->infer_ns;
    c->output_ns += now - job->infer->store_ns;
    c->last_ms = milliseconds_since_the_epoch();
    leave_queue(s, job);
    swn_serve_finish(s, job);
}

static void fail(struct swn_serving *s, struct swn_job *job, enum swn_failure failure, uint64_t now)
{
    struct swn_serve_counts *c = &model_of(s, job)->counts;

    c->failure[failure]++;
    c->fail_ns += now - job->item.arrived_ns;
    leave_queue(s, job);
    swn_serve_finish(s, job);
}

/* The engine is to forget a request that it has begun and that waits for its next group. */
static void forget(struct swn_serving *s, const struct swn_job *job, uint64_t now)
{
    struct swn_engine_message drop = {.op = SWN_ENGINE_DROP, .request = job->item.id, .model = job->item.model};

    if (swn_engine_link_tell(&s->engines[job->item.engine].link, &drop, now))
        swn_engine_link_kill(&s->engines[job->item.engine].link); /* or it would keep the request for ever */
}

void swn_requests_drop(struct swn_serving *s, struct swn_job *job, int status, enum swn_failure failure,
                       const char *format, ...)
{
    char text[SWN_OIP_ERROR];
    uint64_t now = swn_now_ns();
    va_list args;

    if (job->item.is_dropped)
        return;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    swn_oip_fail(&job->error, status, "%s", text);
    job->item.is_dropped = 1;
    job->infer->failure = failure;
    if (job->item.state != SWN_SERVE_WAITS)
        return;
    if (job->item.is_begun)
        forget(s, job, now);
    fail(s, job, failure, now);
}

/* ---- begin ---- */

/* The request's input of each of the model's, where it lies. */
static unsigned wire_inputs(const struct swn_served *m, const struct swn_job *job, struct swn_wire_tensor *to)
{
    const struct swn_infer *infer = job->infer;
    unsigned n = 0;

    for (unsigned i = 0; i < m->input_count; i++)
        for (unsigned k = 0; k < infer->request.input_count; k++)
            if (strcmp(infer->request.inputs[k].tensor.name, m->tensors[i].name) == 0) {
                to[n] = infer->request.inputs[k].tensor;
                to[n].offset = to[n].bytes ? infer->at[k] : 0;
                memcpy(to[n].name, m->engine_names[i], sizeof to[n].name);
                n++;
            }
    return n;
}

static void admit_to_queue(struct swn_serving *s, struct swn_job *job, struct swn_served *m, uint64_t now)
{
    uint64_t timeout_ns = job->infer->request.timeout_us;

    job->item.id = ++s->last_id;
    job->item.model = m->number;
    job->item.engine = m->engine;
    job->item.is_loaded = m->state == SWN_MODEL_READY && !m->is_leaving;
    job->item.deadline_ns = 0;
    if (timeout_ns && !__builtin_mul_overflow(timeout_ns, UINT64_C(1000), &timeout_ns) &&
        timeout_ns < UINT64_MAX - job->item.arrived_ns)
        job->item.deadline_ns = job->item.arrived_ns + timeout_ns;
    m->counts.pending++;
    swn_serve_queue_add(&s->queue, &job->item);
    if (job->client >= 0)
        swn_serve_watch(s, job->client, SWN_SERVE_TAG(SWN_TAG_CLIENT, job->item.id), EPOLLRDHUP);
    swn_requests_run(s, m->engine, now);
}

/* Shapes of a model that is not loaded are not known: checked when it is. */
static int match(const struct swn_served *m, struct swn_job *job)
{
    struct swn_infer *infer = job->infer;

    if (infer->is_raw) {
        if (m->input_count != 1)
            return swn_oip_fail(&job->error, 400, "model '%s' has %u inputs: raw binary data is for one", m->name,
                                m->input_count);
        if (swn_oip_parse_raw(infer->request.body, infer->request.bytes, m->tensors, &infer->request, &job->error))
            return -EINVAL;
        infer->at[0] = infer->body.offset + infer->request.inputs[0].at;
        infer->is_raw = 0;
    }
    return swn_oip_match(&infer->request, m->name, m->tensors, m->input_count, m->tensors + m->input_count,
                         m->output_count, &job->error);
}

void swn_requests_admit(struct swn_serving *s, struct swn_job *job, uint64_t now)
{
    struct swn_served *m = swn_models_find(s, job->name, job->version);

    job->item.arrived_ns = job->item.arrived_ns ? job->item.arrived_ns : now;
    if (s->is_draining) {
        swn_serve_refuse(s, job, 503, "the server is shutting down");
        return;
    }
    if (!m) {
        swn_serve_refuse(s, job, 404, "Request for unknown model: '%s' is not found", job->name);
        return;
    }
    job->version = m->version;
    if (!m->is_wanted) {
        swn_serve_refuse(s, job, m->version ? 503 : 404, "Request for unknown model: '%s' has no available version: %s",
                         job->name, m->reason);
        return;
    }
    if (s->queue.count >= s->options.queue_most) {
        m->counts.failure[SWN_FAILURE_REJECTED]++;
        swn_serve_refuse(s, job, 503, "there are too many requests");
        return;
    }
    if (s->engines[m->engine].fruitless >= FRUITLESS_MOST) {
        m->counts.failure[SWN_FAILURE_BACKEND]++;
        swn_serve_refuse(s, job, 503, "the engine of model '%s' does not start", job->name);
        return;
    }
    if (m->tensors && match(m, job)) {
        m->counts.failure[SWN_FAILURE_OTHER]++;
        swn_serve_finish(s, job);
        return;
    }
    admit_to_queue(s, job, m, now);
}

void swn_requests_model_is(struct swn_serving *s, const struct swn_served *model, int is_loaded)
{
    struct swn_serve_item *item, *next;

    for (item = s->queue.first; item; item = next) {
        struct swn_job *job = (struct swn_job *)item;
        next = item->next;
        if (item->model != model->number || item->is_begun)
            continue;
        /* It came while the model was not known. */
        if (is_loaded && !item->is_loaded && match(model, job)) {
            fail(s, job, SWN_FAILURE_OTHER, swn_now_ns());
            continue;
        }
        item->is_loaded = (uint8_t)is_loaded;
    }
}

void swn_requests_run(struct swn_serving *s, unsigned engine, uint64_t now)
{
    struct swn_engine_link *link = &s->engines[engine].link;
    struct swn_wire_tensor tensors[SWN_WIRE_TENSORS];
    struct swn_serve_item *item;

    if (link->state != SWN_ENGINE_IS_UP || !(item = swn_serve_queue_next(&s->queue, engine)))
        return;
    struct swn_job *job = (struct swn_job *)item;
    struct swn_engine_message run = {
        .op = SWN_ENGINE_RUN, .request = item->id, .model = item->model, .group = item->group, .tensors = tensors};
    if (item->group == 0)
        run.inputs = wire_inputs(model_of(s, job), job, tensors);
    if (swn_engine_link_tell(link, &run, now))
        return; /* the socket's end is heard next */
    if (!job->infer->began_ns) {
        job->infer->began_ns = now;
        model_of(s, job)->counts.pending--;
    }
    swn_serve_item_begin(&s->queue, item);
}

/* ---- answers of the engine ---- */

static struct swn_job *find(struct swn_serving *s, uint64_t id)
{
    return (struct swn_job *)swn_serve_queue_find(&s->queue, id);
}

/* The engine has ended the request itself. */
static void refused_by_engine(struct swn_serving *s, struct swn_job *job, const struct swn_engine_message *m,
                              uint64_t now)
{
    int status = m->status == SWN_ENGINE_BAD_INPUT ? 400 : m->status == SWN_ENGINE_NO_MEMORY ? 503 : 500;

    if (!job->item.is_dropped)
        swn_oip_fail(&job->error, status, "model '%s': %s", job->name, *m->text ? m->text : "it failed");
    fail(s, job, job->item.is_dropped ? (enum swn_failure)job->infer->failure : SWN_FAILURE_BACKEND, now);
}

/* Room for the outputs, each aligned as a slot is. 0, or -errno. */
static int place_outputs(struct swn_serving *s, struct swn_job *job, const struct swn_engine_message *m)
{
    struct swn_infer *infer = job->infer;
    uint64_t all = 0, bytes;
    int rc;

    free(infer->tensors);
    infer->output_count = m->outputs;
    infer->tensors = calloc((size_t)m->outputs + 1, sizeof *infer->tensors);
    if (!infer->tensors)
        return -ENOMEM;
    for (unsigned i = 0; i < m->outputs; i++) {
        struct swn_wire_tensor *t = &infer->tensors[i];
        *t = m->tensors[m->inputs + i];
        if (swn_wire_tensor_bytes(t, &bytes) < 0)
            return -EPROTO;
        if (t->element != SWN_ELEMENT_BYTES || t->bytes < bytes)
            t->bytes = bytes;
        t->offset = all;
        if (__builtin_add_overflow(all, (t->bytes + SWN_SLOT_ALIGN - 1) & ~(SWN_SLOT_ALIGN - 1), &all))
            return -EFBIG;
    }
    swn_slot_give(s->buffer, &infer->outputs);
    rc = swn_slot_take(s->buffer, all, &infer->outputs);
    for (unsigned i = 0; i < m->outputs && rc == 0; i++)
        infer->tensors[i].offset = infer->tensors[i].bytes ? infer->tensors[i].offset + infer->outputs.offset : 0;
    return rc;
}

static void store(struct swn_serving *s, struct swn_job *job, const struct swn_engine_message *m, uint64_t now)
{
    struct swn_engine_message order = {.op = SWN_ENGINE_STORE, .request = job->item.id, .model = job->item.model};
    int rc = place_outputs(s, job, m);

    if (rc) {
        swn_requests_drop(s, job, rc == -EPROTO || rc == -EFBIG ? 500 : 503, SWN_FAILURE_REJECTED,
                          rc == -EFBIG ? "the answer is larger than the buffer" : "there is no room for the answer");
        return;
    }
    order.outputs = job->infer->output_count;
    order.tensors = job->infer->tensors;
    job->infer->store_ns = now;
    job->item.state = SWN_SERVE_STORES;
    if (swn_engine_link_tell(&s->engines[job->item.engine].link, &order, now))
        swn_engine_link_kill(&s->engines[job->item.engine].link); /* its end begins the request again */
}

void swn_requests_ran(struct swn_serving *s, unsigned engine, const struct swn_engine_message *m, uint64_t now)
{
    struct swn_job *job = find(s, m->request);

    (void)engine;
    if (!job)
        return;
    if (m->status != SWN_ENGINE_OK) {
        refused_by_engine(s, job, m, now);
        return;
    }
    job->infer->infer_ns += m->ns;
    int is_last = swn_serve_item_ran(&job->item, m->groups);
    if (job->item.is_dropped) {
        forget(s, job, now);
        fail(s, job, (enum swn_failure)job->infer->failure, now);
    } else if (is_last) {
        store(s, job, m, now);
    }
}

static const char *public_name(const struct swn_served *m, const char *name)
{
    for (unsigned i = m->input_count; i < m->input_count + m->output_count; i++)
        if (strcmp(m->engine_names[i], name) == 0)
            return m->tensors[i].name;
    return name;
}

void swn_requests_stored(struct swn_serving *s, const struct swn_engine_message *m, uint64_t now)
{
    struct swn_job *job = find(s, m->request);

    if (!job)
        return;
    if (m->status != SWN_ENGINE_OK) {
        refused_by_engine(s, job, m, now);
        return;
    }
    if (job->item.is_dropped) {
        fail(s, job, (enum swn_failure)job->infer->failure, now);
        return;
    }
    for (unsigned i = 0; i < job->infer->output_count; i++) {
        struct swn_wire_tensor *t = &job->infer->tensors[i];
        const char *name = public_name(model_of(s, job), t->name);
        if (name != t->name)
            memcpy(t->name, name, sizeof t->name);
    }
    succeed(s, job, now);
}

void swn_requests_lost(struct swn_serving *s, unsigned engine, int is_crash)
{
    struct swn_serve_item *item, *next;
    unsigned fruitless = s->engines[engine].fruitless;

    for (item = s->queue.first; item; item = item->next)
        if (item->engine == engine && item->is_begun)
            *(is_crash ? &((struct swn_job *)item)->infer->crashes : &((struct swn_job *)item)->infer->kills) += 1;
    swn_serve_queue_reset(&s->queue, engine);
    for (item = s->queue.first; item; item = next) {
        struct swn_job *job = (struct swn_job *)item;
        next = item->next;
        if (item->engine != engine)
            continue;
        if (item->is_dropped)
            fail(s, job, (enum swn_failure)job->infer->failure, swn_now_ns());
        else if (job->infer->crashes > CRASHES_MOST || job->infer->kills > KILLS_MOST)
            swn_requests_drop(s, job, 500, SWN_FAILURE_BACKEND, "the engine died while it ran model '%s'", job->name);
        else if (fruitless >= FRUITLESS_MOST)
            swn_requests_drop(s, job, 503, SWN_FAILURE_BACKEND, "the engine of model '%s' does not start", job->name);
    }
}
