/* scheduler/serve/serve_ensembles.c - requests for ensembles: each step is a request of its own for the step's model.
 *
 * The ensemble's request stays in the queue until its last step has ended, in no engine: its deadline and its client's
 * end are seen there. Tensors lie where they were made, in slots of the request and of its steps, until the answer is
 * sent. A step that fails ends the whole.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "scheduler/serve/serve_outputs.h"
#include "scheduler/serve/serving_internal.h"

/* A step that runs: a job of ours. */
struct step_job {
    struct swn_job job; /* first: the job is the step */
    struct swn_ensemble_run *run;
    unsigned step;
};

struct swn_ensemble_run {
    struct swn_serving *s;
    struct swn_job *job; /* the ensemble's; NULL: the server ends without it */
    struct swn_ensemble *ensemble;
    struct swn_ensemble_progress progress;
    struct swn_wire_tensor tensors[SWN_ENSEMBLE_TENSORS]; /* element NONE: it is not there */
    struct step_job *steps[SWN_ENSEMBLE_STEPS];           /* those that run */
    unsigned running;
    int is_advancing, has_failed;
    enum swn_failure failure; /* of the step that has failed first */
};

static void run_free(struct swn_ensemble_run *run)
{
    swn_ensemble_free(run->ensemble);
    free(run);
}

/* ---- the end ---- */

static int is_skipped(const struct swn_ensemble_run *run, unsigned tensor)
{
    unsigned maker = run->ensemble->maker[tensor];

    return maker < run->ensemble->step_count && run->progress.steps[maker] == SWN_STEP_SKIPPED;
}

/* Outputs that were asked for and are not there are left out. 1: none of those that were asked for is there. */
static int leave_out_skipped(const struct swn_ensemble_run *run, struct swn_oip_request *request)
{
    unsigned n = 0, asked = request->output_count;

    for (unsigned i = 0; i < asked; i++) {
        int tensor = swn_ensemble_tensor(run->ensemble, request->outputs[i].name);
        if (tensor < 0 || !is_skipped(run, (unsigned)tensor))
            request->outputs[n++] = request->outputs[i];
    }
    request->output_count = n;
    return asked && n == 0;
}

/* It was made, or came with the request. */
static int is_there(const struct swn_ensemble_run *run, unsigned tensor)
{
    unsigned maker = run->ensemble->maker[tensor];

    return maker == run->ensemble->step_count ? run->tensors[tensor].element != SWN_ELEMENT_NONE
                                              : run->progress.steps[maker] == SWN_STEP_DONE;
}

/* Where outputs were asked for, steps that have no part in them do not run. */
static void want_outputs(struct swn_ensemble_run *run, const struct swn_oip_request *request)
{
    uint8_t wanted[SWN_ENSEMBLE_TENSORS] = {0};

    for (unsigned i = 0; i < request->output_count; i++) {
        int tensor = swn_ensemble_tensor(run->ensemble, request->outputs[i].name);
        if (tensor >= 0)
            wanted[tensor] = 1;
    }
    if (request->output_count)
        swn_ensemble_want(run->ensemble, &run->progress, wanted);
}

static void name_skipped(const struct swn_ensemble_run *run, char *to, size_t room)
{
    size_t used = 0;

    *to = '\0';
    for (unsigned i = 0; i < run->ensemble->step_count; i++)
        if (run->progress.steps[i] == SWN_STEP_SKIPPED && used + 1 < room) {
            int n = snprintf(to + used, room - used, "%s%s", used ? "," : "", run->ensemble->steps[i].model);
            used += n > 0 ? (size_t)n : 0;
        }
}

/* 0, or -ENOMEM with the job's error filled. */
static int take_outputs(struct swn_ensemble_run *run)
{
    const struct swn_ensemble *e = run->ensemble;
    struct swn_infer *infer = run->job->infer;
    int none = leave_out_skipped(run, &infer->request);

    name_skipped(run, infer->skipped, sizeof infer->skipped);
    infer->output_count = 0;
    infer->tensors = calloc((size_t)e->output_count + 1, sizeof *infer->tensors);
    if (!infer->tensors)
        return swn_oip_fail(&run->job->error, 503, "out of memory");
    for (unsigned i = 0; i < e->output_count && !none; i++)
        if (is_there(run, e->outputs[i]))
            infer->tensors[infer->output_count++] = run->tensors[e->outputs[i]];
    return 0;
}

/* Nothing of it runs any more. */
static void conclude(struct swn_ensemble_run *run, uint64_t now)
{
    struct swn_job *job = run->job;

    if (job) {
        job->run = NULL;
        job->infer->store_ns = now;
        if (run->has_failed || take_outputs(run))
            swn_requests_fail(run->s, job, job->item.is_dropped ? (enum swn_failure)job->infer->failure : run->failure,
                              now);
        else
            swn_requests_succeed(run->s, job, now);
    }
    run_free(run);
}

static void drop_steps(struct swn_ensemble_run *run, enum swn_failure failure)
{
    run->has_failed = 1;
    for (unsigned i = 0; i < run->ensemble->step_count; i++)
        if (run->steps[i])
            swn_requests_drop(run->s, &run->steps[i]->job, 503, failure, "another step has ended the request");
}

/* ---- steps ---- */

/* The tensors that the step made are the ensemble's. */
static int take_step_outputs(struct swn_ensemble_run *run, unsigned number, struct swn_infer *infer)
{
    const struct swn_ensemble_step *step = &run->ensemble->steps[number];
    struct swn_kept_slot *kept = calloc(1, sizeof *kept);

    if (!kept)
        return swn_oip_fail(&run->job->error, 503, "out of memory");
    kept->step = number;
    kept->slot = infer->outputs; /* in use until the answer is sent */
    kept->next = run->job->infer->kept;
    run->job->infer->kept = kept;
    infer->outputs = (struct swn_slot){0};
    for (unsigned k = 0; k < step->output_count; k++) {
        const struct swn_wire_tensor *found = NULL;
        for (unsigned i = 0; i < infer->output_count && !found; i++)
            if (strcmp(infer->tensors[i].name, step->outputs[k].key) == 0)
                found = &infer->tensors[i];
        if (!found)
            return swn_oip_fail(&run->job->error, 500, "model '%s' has no output '%s'", step->model,
                                step->outputs[k].key);
        run->tensors[step->outputs[k].tensor] = *found;
        memcpy(run->tensors[step->outputs[k].tensor].name, step->outputs[k].value, sizeof found->name);
    }
    return 0;
}

static void advance(struct swn_ensemble_run *run, uint64_t now);

/* What the step made is kept, of one that began early until it is known whether it is needed. What failed early is
 * done again where it is needed. */
static void take_result(struct swn_ensemble_run *run, unsigned i, struct swn_job *job)
{
    enum swn_step_state *state = &run->progress.steps[i];

    run->job->infer->infer_ns += job->infer->infer_ns;
    if (*state == SWN_STEP_SKIPPED)
        return;
    if (job->item.upstream && job->error.status != 200) { /* it was not settled, even if it is needed by now */
        *state = SWN_STEP_WAITS;
        run->progress.has_failed[i] = 1;
        return;
    }
    *state = *state == SWN_STEP_EARLY ? SWN_STEP_HELD : SWN_STEP_DONE;
    run->job->infer->may_differ |= job->infer->may_differ;
    if (job->error.status != 200) {
        run->job->error = job->error;
        run->failure = (enum swn_failure)job->infer->failure;
    }
    run->has_failed |= job->error.status != 200 || take_step_outputs(run, i, job->infer) != 0;
}

static void step_is_done(struct swn_job *job)
{
    struct step_job *ended = (struct step_job *)job;
    struct swn_ensemble_run *run = ended->run;
    uint64_t now = swn_now_ns();

    run->steps[ended->step] = NULL;
    run->running--;
    if (run->job && !run->has_failed)
        take_result(run, ended->step, job);
    swn_infer_free(run->s->buffer, job->infer);
    free(job->body);
    free(ended);
    advance(run, now);
}

/* A step that is needed is as old as the ensemble's request, and due with it: else requests that came later, and those
 * that have deadlines, would go before each of its steps. One that runs early is as old as it is. */
static void take_place(const struct swn_ensemble_run *run, struct swn_serve_item *step)
{
    uint64_t due_ns = run->job->item.deadline_ns;

    step->asked_ns = run->job->item.arrived_ns;
    if (due_ns && (!step->deadline_ns || due_ns < step->deadline_ns))
        step->deadline_ns = due_ns;
}

/* maker: of the tensor that says whether the step is needed, where that is not known yet; NULL: it is needed. */
static int start_step(struct swn_ensemble_run *run, unsigned i, const struct step_job *maker, uint64_t now)
{
    const struct swn_ensemble_step *step = &run->ensemble->steps[i];
    const struct swn_served *model = swn_models_find(run->s, step->model, step->version);
    struct step_job *to;
    struct swn_infer *infer;

    if (model && model->config && model->config->ensemble) /* two could call each other for ever */
        return swn_oip_fail(&run->job->error, 503, "model '%s' of step %u is an ensemble itself", step->model, i);
    if (maker && model && !swn_outputs_has_room_early(run->s, model))
        return -ENOSPC; /* what it makes would be thrown away */
    to = calloc(1, sizeof *to);
    infer = calloc(1, sizeof *infer);
    if (!to || !infer) {
        free(to);
        free(infer);
        return swn_oip_fail(&run->job->error, 503, "out of memory");
    }
    for (unsigned k = 0; k < step->input_count; k++) {
        const struct swn_wire_tensor *tensor = &run->tensors[step->inputs[k].tensor];
        unsigned n = infer->request.input_count;
        if (tensor->element == SWN_ELEMENT_NONE)
            continue; /* the request has left out an input; the step's model says whether it can do without */
        infer->request.inputs[n].tensor = *tensor;
        memcpy(infer->request.inputs[n].tensor.name, step->inputs[k].key, sizeof step->inputs[k].key);
        infer->at[n] = tensor->offset;
        infer->request.input_count++;
    }
    infer->request.priority = run->job->infer->request.priority;
    infer->failure = SWN_FAILURE_BACKEND; /* where nothing else is said */
    to->run = run;
    to->step = i;
    to->job = (struct swn_job){.kind = SWN_JOB_INFER,
                               .version = step->version,
                               .client = -1,
                               .infer = infer,
                               .done = step_is_done,
                               .error = {.status = 200},
                               .item = {.job = run->job->item.id}};
    if (maker) {
        double probability[SWN_ENSEMBLE_STEPS];

        swn_ensemble_expect(run->ensemble, &run->progress, probability);
        to->job.item.upstream = maker->job.item.id;
        to->job.item.probability = probability[i];
    } else {
        take_place(run, &to->job.item);
    }
    snprintf(to->job.name, sizeof to->job.name, "%.*s", (int)sizeof to->job.name - 1, step->model);
    run->steps[i] = to;
    run->running++;
    run->progress.steps[i] = maker ? SWN_STEP_EARLY : SWN_STEP_RUNS;
    swn_requests_admit(run->s, &to->job, now);
    return 0;
}

static int judge(struct swn_ensemble_run *run, unsigned i)
{
    struct swn_ensemble_step *step = &run->ensemble->steps[i];
    const struct swn_wire_tensor *t = &run->tensors[step->condition.tensor];
    int holds = swn_condition_holds(&step->condition, t, swn_buffer_at(run->s->buffer, t->offset));

    if (holds < 0)
        return swn_oip_fail(&run->job->error, 500, "the condition of model '%s' needs numbers in tensor '%s'",
                            step->model, step->condition.name);
    run->progress.verdicts[i] = (signed char)holds;
    step->asked++;
    step->held += (unsigned)holds;
    return 0;
}

static void settle(const struct swn_ensemble_run *run, struct swn_job *job)
{
    struct swn_serving *s = run->s;

    if (job->item.upstream && !job->infer->began_ns)
        s->models[job->item.model]->counts.pending++;
    swn_serve_queue_settle(&s->queue, &job->item);
    take_place(run, &job->item);
}

/* Steps that run early are as any others, now that their conditions hold, or end. */
static void settle_early(struct swn_ensemble_run *run)
{
    for (int i; (i = swn_ensemble_to_abort(run->ensemble, &run->progress)) >= 0;)
        if (run->steps[i])
            swn_requests_drop(run->s, &run->steps[i]->job, 503, SWN_FAILURE_CANCELED, "the step is not needed");
    for (unsigned i = 0; i < run->ensemble->step_count; i++)
        if (run->steps[i] && run->progress.steps[i] == SWN_STEP_RUNS && !run->steps[i]->job.item.is_dropped)
            settle(run, &run->steps[i]->job);
}

/* CA-preempt: 1: a step was begun whose condition is not known. */
static int begin_early(struct swn_ensemble_run *run, uint64_t now)
{
    unsigned maker;
    int i = run->s->options.cascade == SWN_CASCADE_PREEMPT
                ? swn_ensemble_to_begin_early(run->ensemble, &run->progress, &maker)
                : -1;

    if (i < 0 || !run->steps[maker])
        return 0;
    if (start_step(run, (unsigned)i, run->steps[maker], now)) {
        run->progress.has_failed[i] = 1;
        run->job->error.status = 200;
    }
    return 1;
}

/* Starts what can start. Steps may end while it does: they leave the rest to it. */
static void advance(struct swn_ensemble_run *run, uint64_t now)
{
    struct swn_serving *s = run->s;

    if (run->is_advancing)
        return;
    run->is_advancing = 1;
    s->queue.coming++;
    while (run->job && !run->has_failed) {
        int i = swn_ensemble_to_judge(run->ensemble, &run->progress);
        if (i >= 0) {
            run->has_failed |= judge(run, (unsigned)i) != 0;
            continue;
        }
        settle_early(run);
        if (swn_ensemble_to_judge(run->ensemble, &run->progress) >= 0)
            continue; /* by what was held until now */
        i = swn_ensemble_to_start(run->ensemble, &run->progress);
        if (i < 0 && !begin_early(run, now))
            break;
        /* The step may have ended already, and the run with it. */
        if (i >= 0 && start_step(run, (unsigned)i, NULL, now))
            run->has_failed = 1;
    }
    if (run->has_failed)
        drop_steps(run, SWN_FAILURE_CANCELED);
    run->is_advancing = 0;
    if (run->running == 0)
        conclude(run, now);
    swn_requests_have_come(s, now);
}

/* ---- the request ---- */

void swn_ensembles_begin(struct swn_serving *s, struct swn_job *job, uint64_t now)
{
    const struct swn_served *m = s->models[job->item.model];
    struct swn_ensemble_run *run = calloc(1, sizeof *run);
    struct swn_infer *infer = job->infer;

    if (!run) {
        swn_requests_drop(s, job, 503, SWN_FAILURE_REJECTED, "out of memory");
        return;
    }
    run->s = s;
    run->job = job;
    run->failure = SWN_FAILURE_BACKEND;
    run->ensemble = swn_ensemble_share(m->config->ensemble);
    swn_ensemble_begin(run->ensemble, &run->progress);
    want_outputs(run, &infer->request);
    for (unsigned k = 0; k < infer->request.input_count; k++) {
        int tensor = swn_ensemble_tensor(run->ensemble, infer->request.inputs[k].tensor.name);
        if (tensor < 0) { /* it was matched with what the ensemble took before */
            run_free(run);
            swn_requests_drop(s, job, 503, SWN_FAILURE_OTHER, "ensemble '%s' takes other inputs now", job->name);
            return;
        }
        run->tensors[tensor] = infer->request.inputs[k].tensor;
        run->tensors[tensor].offset = infer->at[k];
    }
    job->run = run;
    infer->began_ns = now;
    s->models[job->item.model]->counts.pending--;
    swn_serve_item_begin(&s->queue, &job->item);
    advance(run, now);
}

void swn_ensembles_drop(struct swn_ensemble_run *run)
{
    run->is_advancing = 1;
    drop_steps(run, (enum swn_failure)run->job->infer->failure);
    run->is_advancing = 0;
    if (run->running == 0)
        conclude(run, swn_now_ns());
}

void swn_ensembles_make_place(struct swn_serving *s)
{
    struct swn_serve_item *item = swn_serve_queue_unlikely(&s->queue);

    if (item)
        swn_requests_drop(s, (struct swn_job *)item, 503, SWN_FAILURE_CANCELED, "its place is needed");
}

/* What step i made early is not there any more. */
static void give_up_held(struct swn_ensemble_run *run, unsigned i)
{
    for (struct swn_kept_slot *kept = run->job->infer->kept; kept; kept = kept->next)
        if (kept->step == i)
            swn_slot_give(run->s->buffer, &kept->slot);
    for (unsigned k = 0; k < run->ensemble->steps[i].output_count; k++)
        run->tensors[run->ensemble->steps[i].outputs[k].tensor].element = SWN_ELEMENT_NONE;
    run->progress.steps[i] = SWN_STEP_WAITS;
    run->progress.has_failed[i] = 1;
}

int swn_ensembles_make_room(struct swn_serving *s)
{
    for (struct swn_serve_item *item = s->queue.first; item; item = item->next) {
        struct swn_ensemble_run *run = ((struct swn_job *)item)->run;

        for (unsigned i = 0; run && i < run->ensemble->step_count; i++)
            if (run->progress.steps[i] == SWN_STEP_HELD) {
                give_up_held(run, i);
                return 1;
            }
    }
    return 0;
}

static unsigned note_expected(struct swn_lane_expected *to, unsigned count, unsigned most, uint32_t model,
                              double probability)
{
    unsigned at = 0;

    while (at < count && to[at].model != model)
        at++;
    if (at == most)
        return count;
    if (at == count)
        to[count++] = (struct swn_lane_expected){.model = model};
    if (probability <= to[at].probability)
        return count;
    for (; at > 0 && to[at - 1].probability < probability; at--)
        to[at] = to[at - 1];
    to[at] = (struct swn_lane_expected){.model = model, .probability = probability};
    return count;
}

/* So many requests for a cascade in a row let the next one be expected for it, and so likely must a step be. */
#define AGAIN_ASKED 4
#define AGAIN_LIKELY 0.75

/* The only request on its way that is no step; or NULL. */
static const struct swn_ensemble_run *only_run(const struct swn_serving *s)
{
    const struct swn_ensemble_run *only = NULL;

    for (const struct swn_serve_item *item = s->queue.first; item; item = item->next) {
        if (item->job)
            continue;
        if (only || !(only = ((const struct swn_job *)item)->run))
            return NULL;
    }
    return only && !only->has_failed && !only->job->item.is_dropped ? only : NULL;
}

/* Of steps without conditions all are known from the begin, and five networks that came round in each request read 1.8
 * times as much when the next request was foretold as well. */
static int is_cascade(const struct swn_ensemble *e)
{
    for (unsigned i = 0; i < e->step_count; i++)
        if (e->steps[i].condition.kind != SWN_CONDITION_NONE)
            return 1;
    return 0;
}

/* The models of the steps that the next request needs, if that is for the same ensemble as all lately. */
static unsigned note_again(struct swn_serving *s, unsigned engine, struct swn_lane_expected *to, unsigned count,
                           unsigned most)
{
    const struct swn_ensemble_run *run = only_run(s);
    double probability[SWN_ENSEMBLE_STEPS];
    struct swn_ensemble_progress next;

    if (!run || !is_cascade(run->ensemble) || run->job->item.model != s->queue.row.model ||
        s->queue.row.count < AGAIN_ASKED)
        return count;
    swn_ensemble_begin(run->ensemble, &next);
    swn_ensemble_expect(run->ensemble, &next, probability);
    for (unsigned i = 0; i < run->ensemble->step_count && count < most; i++) {
        const struct swn_ensemble_step *step = &run->ensemble->steps[i];
        const struct swn_served *m =
            probability[i] >= AGAIN_LIKELY ? swn_models_find(s, step->model, step->version) : NULL;
        if (m && m->config && !m->config->ensemble && m->engine == engine && m->state == SWN_MODEL_READY)
            to[count++] = (struct swn_lane_expected){m->number, probability[i], 1};
    }
    return count;
}

unsigned swn_ensembles_expect(struct swn_serving *s, unsigned engine, struct swn_lane_expected *to, unsigned most)
{
    double probability[SWN_ENSEMBLE_STEPS];
    unsigned count = 0;

    for (const struct swn_serve_item *item = s->queue.first; item; item = item->next) {
        const struct swn_ensemble_run *run = ((const struct swn_job *)item)->run;

        if (!run || run->has_failed || item->is_dropped)
            continue;
        swn_ensemble_expect(run->ensemble, &run->progress, probability);
        for (unsigned i = 0; i < run->ensemble->step_count; i++) {
            const struct swn_ensemble_step *step = &run->ensemble->steps[i];
            const struct swn_served *m;

            if (run->progress.steps[i] != SWN_STEP_WAITS || probability[i] <= 0)
                continue;
            m = swn_models_find(s, step->model, step->version);
            if (m && m->config && !m->config->ensemble && m->engine == engine && m->state == SWN_MODEL_READY)
                count = note_expected(to, count, most, m->number, probability[i]);
        }
    }
    return note_again(s, engine, to, count, most);
}

void swn_ensembles_abandon(struct swn_ensemble_run *run)
{
    run->job->run = NULL;
    run->job = NULL;
    run->has_failed = 1;
}
