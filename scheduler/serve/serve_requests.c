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
#include <time.h>

#include "base/clock.h"
#include "scheduler/config/queue_terms.h"
#include "scheduler/oip/oip_tensor.h"
#include "scheduler/serve/serve_leases.h"
#include "scheduler/serve/serve_outputs.h"
#include "scheduler/serve/serve_trace.h"
#include "scheduler/serve/serve_watch.h"
#include "scheduler/serve/serving_internal.h"

/* How often a request is begun again: after a crash, of which it may be the reason, and after an end of the engine that
 * has nothing to do with it. */
#define CRASHES_MOST 1
#define KILLS_MOST 10
/* With more requests in the server, answers do not say how long the next one would take: that takes time itself. */
#define FORETOLD_MOST 64

/* Outputs wait in the engine so long for room in the buffer, until answers have been sent; how often is looked for it.
 */
#define ROOM_NS (2000 * SWN_SERVE_MS)
#define ROOM_LOOK_NS (2 * SWN_SERVE_MS)

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

/* In its first dimension; a model without a batch dimension has one. */
static uint64_t samples_of(const struct swn_served *m, const struct swn_infer *infer)
{
    const struct swn_wire_tensor *first = &infer->request.inputs[0].tensor;

    if (!m->config->max_batch_size || !infer->request.input_count || !first->rank)
        return 1;
    return first->shape[0] > 0 ? (uint64_t)first->shape[0] : 0;
}

static uint64_t item_samples(const struct swn_serve_item *item)
{
    const struct swn_infer *infer = ((const struct swn_job *)item)->infer;
    const struct swn_wire_tensor *first = &infer->request.inputs[0].tensor;

    return infer->request.input_count && first->rank && first->shape[0] > 0 ? (uint64_t)first->shape[0] : 0;
}

/* ---- end ---- */

static void count_batch(struct swn_serve_counts *c, const struct swn_infer *infer, uint64_t samples, uint64_t now)
{
    uint64_t size = infer->batch ? infer->batch : samples;
    int is_execution = infer->batch ? infer->is_execution : 1;

    c->inferences += samples;
    c->executions += (unsigned)is_execution;
    if (size == 0 || size > SWN_BATCHES)
        return;
    c->batches[size - 1].executions += (unsigned)is_execution;
    c->batches[size - 1].infer_ns += infer->infer_ns;
    c->batches[size - 1].output_ns += now - infer->store_ns;
}

static void leave_queue(struct swn_serving *s, struct swn_job *job)
{
    struct swn_served *m = model_of(s, job);

    if (!job->infer->began_ns && !job->item.upstream)
        m->counts.pending--;
    swn_serve_queue_remove(&s->queue, &job->item);
    swn_serve_unwatch(s, job);
}

void swn_requests_succeed(struct swn_serving *s, struct swn_job *job, uint64_t now)
{
    struct swn_serve_counts *c = &model_of(s, job)->counts;

    c->success++;
    count_batch(c, job->infer, samples_of(model_of(s, job), job->infer), now);
    c->request_ns += now - job->item.arrived_ns;
    c->queue_ns += job->infer->began_ns - job->item.arrived_ns;
    c->infer_ns += job->infer->infer_ns;
    c->output_ns += now - job->infer->store_ns;
    c->last_ms = milliseconds_since_the_epoch();
    swn_serve_trace_request(s, job, "", now);
    leave_queue(s, job);
    if (s->queue.count <= FORETOLD_MOST)
        job->infer->wait_ns = swn_requests_wait_ns(s, model_of(s, job), now);
    swn_serve_finish(s, job);
}

void swn_requests_fail(struct swn_serving *s, struct swn_job *job, enum swn_failure failure, uint64_t now)
{
    struct swn_serve_counts *c = &model_of(s, job)->counts;

    job->infer->failure = (uint8_t)failure;
    if (!job->item.upstream) { /* else nobody has asked for it, and it runs again where it is needed */
        c->failure[failure]++;
        c->fail_ns += now - job->item.arrived_ns;
    }
    swn_serve_trace_request(s, job, "failed: ", now);
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
    job->infer->failure = (uint8_t)failure;
    if (job->run) {
        swn_ensembles_drop(job->run);
        return;
    }
    if (swn_serve_item_is_told(&job->item))
        return;
    if (job->item.is_begun)
        forget(s, job, now);
    swn_requests_fail(s, job, failure, now);
}

/* ---- begin ---- */

/* Dimensions behind the batch. */
static struct swn_shape shape_of(const struct swn_wire_tensor *t, unsigned batch)
{
    struct swn_shape shape = {.rank = t->rank - batch};

    memcpy(shape.sizes, t->shape + batch, shape.rank * sizeof *shape.sizes);
    return shape;
}

/* The model's input or output i as config.pbtxt has it for the engine, or for clients. 0 or -EINVAL: the tensor has not
 * the shape that is to become another. */
static int reshape(const struct swn_served *m, unsigned i, int is_for_engine, struct swn_wire_tensor *t)
{
    const struct swn_engine_view *view = &m->views[i];
    struct swn_shape theirs;

    if (!view->has_reshape)
        return 0;
    theirs = shape_of(&m->tensors[i], view->batch);
    return swn_reshape(t, view->batch, is_for_engine ? &theirs : &view->shape, is_for_engine ? &view->shape : &theirs);
}

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
                memcpy(to[n].name, m->views[i].name, sizeof to[n].name);
                reshape(m, i, 1, &to[n]); /* it was matched with what the model takes */
                n++;
            }
    return n;
}

static void admit_to_queue(struct swn_serving *s, struct swn_job *job, struct swn_served *m,
                           const struct swn_queue_terms *terms, uint64_t now)
{
    job->infer->may_differ = (uint8_t)swn_model_config_may_differ(m->config);
    job->infer->has_batch = m->config->max_batch_size > 0;
    job->infer->labels = swn_labels_hold(m->labels);
    job->item.id = ++s->last_id;
    job->item.model = m->number;
    job->item.engine = m->config->ensemble ? SWN_NO_ENGINE : m->engine;
    job->item.weight = terms->weight;
    job->item.is_loaded = m->state == SWN_MODEL_READY && !m->is_leaving;
    job->item.deadline_ns = swn_queue_deadline(terms, job->item.arrived_ns, job->item.deadline_ns);
    m->counts.pending += job->item.upstream == 0;
    swn_serve_queue_add(&s->queue, &job->item);
    if (m->config->ensemble)
        swn_ensembles_begin(s, job, now);
    else if (s->queue.coming)
        s->queue.is_due[m->engine] = 1;
    else
        swn_requests_run(s, m->engine, now);
}

void swn_requests_have_come(struct swn_serving *s, uint64_t now)
{
    if (--s->queue.coming)
        return;
    for (unsigned i = 0; i < SWN_ENGINES_MOST; i++) {
        int is_due = s->queue.is_due[i];
        s->queue.is_due[i] = 0;
        if (is_due)
            swn_requests_run(s, i, now);
    }
}

/* In Triton's words. */
static int match_batch(const struct swn_served *m, struct swn_job *job)
{
    const struct swn_oip_request *request = &job->infer->request;
    const struct swn_oip_input *inputs = request->inputs;

    for (unsigned i = 0; i < request->input_count && m->config->max_batch_size; i++) {
        const struct swn_wire_tensor *t = &inputs[i].tensor;
        if (t->rank && t->shape[0] > (int64_t)m->config->max_batch_size)
            return swn_oip_fail(&job->error, 400, "inference request batch-size must be <= %u for '%s'",
                                (unsigned)m->config->max_batch_size, m->name);
        if (t->rank && inputs[0].tensor.rank && t->shape[0] != inputs[0].tensor.shape[0])
            return swn_oip_fail(&job->error, 400, "input '%s' batch size does not match other inputs for '%s'", t->name,
                                m->name);
    }
    return 0;
}

/* Shapes of a model that is not loaded are not known: checked when it is. */
static int match(struct swn_serving *s, const struct swn_served *m, struct swn_job *job)
{
    struct swn_infer *infer = job->infer;

    if (infer->is_raw) {
        if (m->input_count != 1)
            return swn_oip_fail(&job->error, 400,
                                "Raw request must only have 1 input (found 1) to be deduced but got %u inputs in '%s' "
                                "model",
                                m->input_count, m->name);
        char *body = swn_buffer_at(s->buffer, infer->body.offset);
        if (swn_oip_parse_raw(body + SWN_OIP_RAW_ROOM, infer->request.bytes, m->tensors, m->config->max_batch_size > 0,
                              &infer->request, &job->error))
            return -EINVAL;
        infer->at[0] = infer->body.offset + (uint64_t)(infer->request.body - body);
        infer->is_raw = 0;
    }
    if (swn_oip_match(&infer->request, m->name, m->tensors, m->input_count, m->optional, m->tensors + m->input_count,
                      m->output_count, &job->error))
        return -EINVAL;
    return match_batch(m, job);
}

/* A step of an ensemble uses its ensemble's place in the queue: to refuse the step would waste what the steps before it
 * have computed. A step that runs early has a place only while the queue has free ones, and loses it to a request that
 * a client waits for. */
static int is_full(const struct swn_serving *s, const struct swn_job *job)
{
    size_t most = s->options.queue_most;

    if (job->item.job != 0 && !job->item.upstream)
        return 0;
    return s->queue.count >= most && (job->item.upstream || s->queue.count - s->queue.early >= most);
}

void swn_requests_admit(struct swn_serving *s, struct swn_job *job, uint64_t now)
{
    struct swn_served *m = swn_models_find(s, job->name, job->version);
    struct swn_queue_terms terms;
    const char *full = NULL;
    int is_early = job->item.upstream != 0;

    job->item.arrived_ns = job->item.arrived_ns ? job->item.arrived_ns : now;
    if (s->is_draining && job->item.job == 0) { /* an ensemble on its way takes its further steps */
        swn_serve_refuse(s, job, 503, "the server is shutting down");
        return;
    }
    if (!m) {
        swn_serve_refuse_unknown(s, job);
        return;
    }
    job->version = m->version;
    if (!m->is_wanted || (m->config->ensemble && m->state == SWN_MODEL_UNAVAILABLE)) {
        swn_serve_refuse(s, job, m->version ? 503 : 404, "Request for unknown model: '%s' has no available version: %s",
                         job->name, m->reason);
        return;
    }
    terms = swn_queue_terms(&m->config->batching, job->infer->request.priority, job->infer->request.timeout_us);
    if (terms.queue_most && m->counts.pending >= terms.queue_most)
        full = " for this model";
    else if (is_full(s, job))
        full = "";
    if (full) {
        m->counts.failure[SWN_FAILURE_REJECTED] += !is_early;
        job->infer->failure = SWN_FAILURE_REJECTED;
        swn_serve_refuse(s, job, 503, "there are too many requests%s", full);
        return;
    }
    if (s->engines[m->engine].fruitless >= SWN_FRUITLESS_MOST) {
        m->counts.failure[SWN_FAILURE_BACKEND]++;
        swn_serve_refuse(s, job, 503, "the engine of model '%s' does not start", job->name);
        return;
    }
    if (m->tensors && match(s, m, job)) {
        m->counts.failure[SWN_FAILURE_OTHER]++;
        job->infer->failure = SWN_FAILURE_OTHER;
        swn_serve_finish(s, job);
        return;
    }
    if (job->item.job == 0)
        s->queue.row =
            (struct swn_asked_in_a_row){m->number, m->number == s->queue.row.model ? s->queue.row.count + 1 : 1};
    admit_to_queue(s, job, m, &terms, now);
    /* Only now, so that no other step takes the place. What an engine runs leaves at the end of its layer group, and so
     * long there may be more than queue_most. */
    if (!is_early && s->queue.count > s->options.queue_most)
        swn_ensembles_make_place(s);
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
        if (is_loaded && !item->is_loaded && match(s, model, job)) {
            uint64_t id = item->id;
            swn_requests_fail(s, job, SWN_FAILURE_OTHER, swn_now_ns());
            next = swn_serve_queue_after(&s->queue, id);
            continue;
        }
        item->is_loaded = (uint8_t)is_loaded;
    }
}

static struct swn_lane_served lane_model(void *user, uint32_t number)
{
    const struct swn_served *m = ((struct swn_serving *)user)->models[number];
    const struct swn_config_batching *b = &m->config->batching;
    uint64_t delay_ns;

    if (__builtin_mul_overflow(b->max_queue_delay_us, UINT64_C(1000), &delay_ns))
        delay_ns = UINT64_MAX;
    return (struct swn_lane_served){.times = &m->times,
                                    .weight_bytes = m->weight_bytes,
                                    .batch_delay_ns = delay_ns,
                                    .batch_full = b->is_dynamic ? m->config->max_batch_size : 0,
                                    .batch_most = swn_model_config_joins(m->config)};
}

/* The turn-th of what the lane has chosen. */
static void run(struct swn_serving *s, const struct swn_lane_choice *choice, unsigned turn, uint64_t now)
{
    struct swn_serve_item *item = choice->items[turn];
    struct swn_engine_link *link = &s->engines[item->engine].link;
    struct swn_wire_tensor tensors[SWN_WIRE_TENSORS];
    struct swn_wire_step steps[SWN_WIRE_STEPS];
    struct swn_job *job = (struct swn_job *)item;
    struct swn_engine_message order = {.op = SWN_ENGINE_RUN,
                                       .request = item->id,
                                       .model = item->model,
                                       .group = item->group,
                                       .tensors = tensors,
                                       .foretold = swn_serve_lane_behind(choice, turn, steps),
                                       .steps = steps};
    uint32_t joins = swn_model_config_joins(model_of(s, job)->config);

    order.following = swn_serve_lane_following(choice, turn, joins, item_samples);
    if (item->group == 0)
        order.inputs = wire_inputs(model_of(s, job), job, tensors);
    if (order.inputs < SWN_WIRE_TENSORS)
        order.outputs = swn_outputs_room(s, job, model_of(s, job), tensors + order.inputs);
    if (swn_engine_link_tell(link, &order, now))
        return; /* it has been told enough, or its end is heard next */
    if (!job->infer->began_ns) {
        job->infer->began_ns = now;
        model_of(s, job)->counts.pending -= item->upstream == 0;
    }
    swn_serve_item_begin(&s->queue, item);
    s->engines[item->engine].last_model = item->model;
    s->engines[item->engine].ahead_count = order.foretold;
    memcpy(s->engines[item->engine].ahead, steps, order.foretold * sizeof *steps);
}

/* CA-prefetch: what may be asked next of this engine, and what of its memory nothing lies in. */
static void expect(struct swn_serving *s, unsigned engine, struct swn_lane_engine *lane)
{
    struct swn_lane_group groups[SWN_GROUPS_MOST];
    uint64_t used = 0, activations = 0;

    if (s->options.cascade != SWN_CASCADE_PREFETCH || swn_serve_queue_runs(&s->queue, engine))
        return; /* nothing is chosen while the engine runs something */
    lane->expected_count = swn_ensembles_expect(s, engine, lane->expected, SWN_LANE_EXPECTED);
    for (size_t i = 0; lane->expected_count && i < s->count; i++) {
        const struct swn_served *m = s->models[i];
        uint32_t count = m->engine == engine && m->state == SWN_MODEL_READY && m->times.count
                             ? swn_group_times_now(&m->times, m->weight_bytes, lane->read_total, groups)
                             : 0;

        for (uint32_t g = 0; g < count; g++) {
            used += groups[g].weight_bytes - groups[g].missing_bytes;
            if (groups[g].activation_bytes != SWN_LANE_NOT_KNOWN && groups[g].activation_bytes > activations)
                activations = groups[g].activation_bytes;
        }
    }
    used += activations;
    lane->free_bytes = lane->memory_bytes > used ? lane->memory_bytes - used : 0;
}

static struct swn_lane_engine lane_engine(const struct swn_serving *s, unsigned engine)
{
    const struct swn_served_engine *e = &s->engines[engine];

    return (struct swn_lane_engine){.number = engine,
                                    .memory_bytes = e->budget_bytes,
                                    .read_total = e->read_total,
                                    .last_model = e->last_model,
                                    .disk_bytes_per_ns = swn_disk_rate(&e->disk)};
}

uint64_t swn_requests_wait_ns(struct swn_serving *s, const struct swn_served *m, uint64_t now)
{
    struct swn_lane_engine lane = lane_engine(s, m->engine);
    uint64_t all = 0;

    if (!m->config->ensemble)
        return swn_serve_lane_wait_ns(s->lane, &s->queue, &lane, lane_model, s, m->number, now);
    /* Its steps one after the other, as if no condition left one out. */
    for (unsigned i = 0; i < m->config->ensemble->step_count; i++) {
        const struct swn_ensemble_step *step = &m->config->ensemble->steps[i];
        const struct swn_served *one = swn_models_find(s, step->model, step->version);
        if (one && one->config && !one->config->ensemble)
            all += swn_requests_wait_ns(s, one, now);
    }
    return all;
}

/* Those that cannot be on time any more. A step of an ensemble takes others with it when it is dropped, so they are
 * looked for by their numbers. */
static void drop_hopeless(struct swn_serving *s, const struct swn_lane_choice *choice)
{
    uint64_t ids[SWN_LANE_REQUESTS];

    for (unsigned i = 0; i < choice->dropped_count; i++)
        ids[i] = choice->dropped[i]->id;
    for (unsigned i = 0; i < choice->dropped_count; i++) {
        struct swn_serve_item *item = swn_serve_queue_find(&s->queue, ids[i]);
        if (item)
            swn_requests_drop(s, (struct swn_job *)item, 503, SWN_FAILURE_REJECTED,
                              "the request cannot be answered in its time");
    }
}

void swn_requests_run(struct swn_serving *s, unsigned engine, uint64_t now)
{
    struct swn_served_engine *e = &s->engines[engine];
    struct swn_lane_choice choice;

    if (e->link.state != SWN_ENGINE_IS_UP)
        return;
    do {
        struct swn_lane_engine lane = lane_engine(s, engine);
        expect(s, engine, &lane);
        swn_serve_lane_choose(s->lane, &s->queue, &lane, lane_model, s, now, &choice);
        e->wake_ns = choice.wake_ns;
        drop_hopeless(s, &choice);
    } while (choice.dropped_count);
    for (unsigned i = 0; i < choice.count; i++)
        run(s, &choice, i, now);
}

/* ---- answers of the engine ---- */

static struct swn_job *find(struct swn_serving *s, uint64_t id)
{
    return (struct swn_job *)swn_serve_queue_find(&s->queue, id);
}

static int is_beside_others(const struct swn_serving *s, const struct swn_job *job)
{
    for (const struct swn_serve_item *item = s->queue.first; item; item = item->next)
        if (item != &job->item && item->engine == job->item.engine && item->is_begun)
            return 1;
    return 0;
}

/* The engine has ended the request itself. */
static void refused_by_engine(struct swn_serving *s, struct swn_job *job, const struct swn_engine_message *m,
                              uint64_t now)
{
    if (m->status == SWN_ENGINE_NO_MEMORY)
        swn_leases_ran_short(s, now);
    if (m->status == SWN_ENGINE_NO_MEMORY && !job->item.is_dropped && is_beside_others(s, job) &&
        swn_serve_item_again(&s->queue, &job->item))
        return;
    int status = m->status == SWN_ENGINE_BAD_INPUT ? 400 : m->status == SWN_ENGINE_NO_MEMORY ? 503 : 500;

    if (!job->item.is_dropped)
        swn_oip_fail(&job->error, status, "model '%s': %s", job->name, *m->text ? m->text : "it failed");
    swn_repository_hide(s->repository, job->error.text);
    swn_requests_fail(s, job, job->item.is_dropped ? (enum swn_failure)job->infer->failure : SWN_FAILURE_BACKEND, now);
}

/* The outputs, whose places in the buffer swn_outputs_place has tried to find: 0, or -errno. One that waits for room is
 * looked at again. */
static void store(struct swn_serving *s, struct swn_job *job, int rc, uint64_t now)
{
    struct swn_engine_message order = {.op = SWN_ENGINE_STORE, .request = job->item.id, .model = job->item.model};

    while (rc == -ENOSPC && !job->item.upstream && swn_ensembles_make_room(s))
        rc = swn_outputs_find_room(s, job);
    if (job->item.state != SWN_SERVE_HOLDS)
        job->infer->store_ns = now;
    if (rc == -ENOSPC && !job->item.upstream && now - job->infer->store_ns < ROOM_NS) {
        job->item.state = SWN_SERVE_HOLDS;
        return;
    }
    if (rc) {
        swn_requests_drop(s, job, rc == -EPROTO || rc == -EFBIG ? 500 : 503, SWN_FAILURE_REJECTED,
                          rc == -EFBIG ? "the answer is larger than the buffer" : "there is no room for the answer");
        return;
    }
    order.outputs = job->infer->output_count;
    order.tensors = job->infer->tensors;
    rc = swn_engine_link_tell(&s->engines[job->item.engine].link, &order, now);
    if (rc == -EAGAIN || rc == -EBUSY) { /* it computes for others, and has not read what it was told before */
        job->item.state = SWN_SERVE_HOLDS;
        return;
    }
    job->item.state = SWN_SERVE_STORES;
    if (rc)
        swn_engine_link_kill(&s->engines[job->item.engine].link); /* its end begins the request again */
}

/* The first of those whose outputs wait for room; NULL: there is none. */
static struct swn_job *first_without_room(const struct swn_serving *s, uint64_t id)
{
    for (struct swn_serve_item *item = swn_serve_queue_after(&s->queue, id); item; item = item->next)
        if (item->state == SWN_SERVE_HOLDS)
            return (struct swn_job *)item;
    return NULL;
}

void swn_requests_find_room(struct swn_serving *s, uint64_t now)
{
    uint64_t id = 0;

    for (struct swn_job *job; (job = first_without_room(s, id));) {
        id = job->item.id;
        int rc = swn_outputs_find_room(s, job);
        store(s, job, rc, now);
        if (rc == -ENOSPC)
            return; /* those behind it would take what it waits for */
    }
}

uint64_t swn_requests_room_due(const struct swn_serving *s, uint64_t now)
{
    return first_without_room(s, 0) ? now + ROOM_LOOK_NS : 0;
}

/* What it read beside what its own group lacked, it read ahead for others: these it does not tell of. */
static void learn_ahead(struct swn_serving *s, const struct swn_served_engine *e, const struct swn_served *model,
                        uint64_t before, uint64_t own_bytes)
{
    struct swn_group_ahead ahead[SWN_WIRE_STEPS];
    unsigned count = 0;
    uint64_t all = e->read_total - before;

    for (unsigned i = 0; i < e->ahead_count; i++) {
        struct swn_served *other = s->models[e->ahead[i].model];

        if (other != model)
            ahead[count++] = (struct swn_group_ahead){.times = &other->times, .group = e->ahead[i].group};
    }
    swn_group_times_ahead(ahead, count, before, e->read_total, all > own_bytes ? all - own_bytes : 0);
}

/* What the engine says of models that it runs too. */
static void learn_places(struct swn_serving *s, unsigned engine, const struct swn_engine_message *m)
{
    for (uint32_t i = 0; i < m->placed; i++) {
        const struct swn_wire_place *p = &m->places[i];
        struct swn_served *other = p->model < s->count ? s->models[p->model] : NULL;

        if (other && other->engine == engine)
            swn_group_times_place(&other->times, p->group, p->in_memory, s->engines[engine].read_total);
    }
}

/* What the run says of its model and of the disk. */
static void learn(struct swn_serving *s, unsigned engine, struct swn_served *model, const struct swn_engine_message *m)
{
    struct swn_served_engine *e = &s->engines[engine];
    struct swn_group_run run = {.group = m->group,
                                .groups = m->groups,
                                .ns = m->ns,
                                .wait_ns = m->reads.wait_ns,
                                .read_bytes = m->reads.bytes,
                                .is_joined = m->joined != 1};
    uint64_t before = e->read_total + m->reads.idle_bytes;
    uint64_t own_bytes = m->group < model->times.count ? model->times.groups[m->group].missing_bytes : 0;

    for (uint32_t i = 0; i < m->outputs; i++)
        run.output_bytes += m->tensors[i].bytes;
    e->read_total = before + m->reads.bytes;
    learn_ahead(s, e, model, before, own_bytes);
    learn_places(s, engine, m);
    swn_disk_rate_add(&e->disk, &run);
    if (m->status == SWN_ENGINE_OK)
        swn_group_times_ran(&model->times, &run);
    swn_group_times_weigh(&model->times, m->weights, m->weighed, e->read_total);
}

/* Its name and shape become those that clients know. 0, or -EINVAL with the job's error filled. */
static int show(const struct swn_served *m, struct swn_job *job, struct swn_wire_tensor *t)
{
    unsigned i = m->input_count, end = m->input_count + m->output_count;
    char shape[SWN_OIP_SHAPE];

    while (i < end && strcmp(m->views[i].name, t->name) != 0)
        i++;
    if (i == end)
        return 0;
    memcpy(t->name, m->tensors[i].name, sizeof t->name);
    if (reshape(m, i, 0, t) == 0)
        return 0;
    return swn_oip_fail(&job->error, 500,
                        "model '%s': output '%s' has shape %.100s, which is none that config.pbtxt reshapes", m->name,
                        t->name, swn_oip_shape_text(t, shape));
}

/* The outputs are in the buffer. */
static void has_outputs(struct swn_serving *s, struct swn_job *job, uint64_t now)
{
    for (unsigned i = 0; i < job->infer->output_count; i++)
        if (show(model_of(s, job), job, &job->infer->tensors[i])) {
            swn_requests_fail(s, job, SWN_FAILURE_BACKEND, now);
            return;
        }
    swn_requests_succeed(s, job, now);
}

/* With the last group's answer, in the room that was given for them. */
static void stored_at_once(struct swn_serving *s, unsigned engine, struct swn_job *job,
                           const struct swn_engine_message *m, uint64_t now)
{
    job->infer->store_ns = now;
    if (swn_outputs_take(job, m) == 0)
        has_outputs(s, job, now);
    else
        swn_engine_link_kill(&s->engines[engine].link); /* its end begins the request again */
}

/* `joined` requests have run their last group at once, and this answer is the first one's: those of the others follow,
 * whatever becomes of it. */
static void note_joined(struct swn_served *m, const struct swn_infer *infer, uint32_t joined)
{
    if (joined == 0)
        return;
    m->batch = joined * samples_of(m, infer);
    m->is_counted = 0;
}

/* The request has run its last group, with others or alone. */
static void note_execution(struct swn_served *m, struct swn_infer *infer, int is_dropped)
{
    if (is_dropped)
        return;
    infer->batch = m->batch;
    infer->is_execution = !m->is_counted;
    m->is_counted = 1;
}

void swn_requests_ran(struct swn_serving *s, unsigned engine, const struct swn_engine_message *m, uint64_t now)
{
    struct swn_job *job = find(s, m->request);

    if (!job)
        return;
    learn(s, engine, model_of(s, job), m);
    swn_serve_trace_group(s, engine, job, m, now);
    if (m->groups && m->group + 1 == m->groups)
        note_joined(model_of(s, job), job->infer, m->joined);
    if (m->status != SWN_ENGINE_OK) {
        refused_by_engine(s, job, m, now);
        return;
    }
    job->infer->infer_ns += m->ns;
    int is_last = swn_serve_item_ran(&job->item, m->groups);
    if (is_last)
        note_execution(model_of(s, job), job->infer, job->item.is_dropped);
    if (job->item.is_dropped) {
        if (!m->is_stored)
            forget(s, job, now);
        swn_requests_fail(s, job, (enum swn_failure)job->infer->failure, now);
    } else if (is_last && m->is_stored) {
        stored_at_once(s, engine, job, m, now);
    } else if (is_last) {
        store(s, job, swn_outputs_place(s, job, m), now);
    }
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
        swn_requests_fail(s, job, (enum swn_failure)job->infer->failure, now);
        return;
    }
    has_outputs(s, job, now);
}

/* Which of those that the engine was told to run it died of is not known: the next ones may have been joined with the
 * first. Those that only waited for their next groups were not among them. */
static void count_end(struct swn_serve_item *item, int is_crash)
{
    struct swn_infer *infer = ((struct swn_job *)item)->infer;

    if (is_crash && swn_serve_item_is_told(item))
        infer->crashes++;
    else
        infer->kills++;
}

void swn_requests_lost(struct swn_serving *s, unsigned engine, int is_crash)
{
    struct swn_serve_item *item, *next;
    unsigned fruitless = s->engines[engine].fruitless;

    for (item = s->queue.first; item; item = item->next)
        if (item->engine == engine && item->is_begun)
            count_end(item, is_crash);
    swn_serve_queue_reset(&s->queue, engine, is_crash);
    for (item = s->queue.first; item; item = next) {
        struct swn_job *job = (struct swn_job *)item;
        uint64_t id = item->id;
        next = item->next;
        if (item->engine != engine)
            continue;
        if (item->is_dropped)
            swn_requests_fail(s, job, (enum swn_failure)job->infer->failure, swn_now_ns());
        else if (job->infer->crashes > CRASHES_MOST || job->infer->kills > KILLS_MOST)
            swn_requests_drop(s, job, 500, SWN_FAILURE_BACKEND, "the engine died while it ran model '%s'", job->name);
        else if (fruitless >= SWN_FRUITLESS_MOST)
            swn_requests_drop(s, job, 503, SWN_FAILURE_BACKEND, "the engine of model '%s' does not start", job->name);
        else
            continue;
        next = swn_serve_queue_after(&s->queue, id);
    }
}
