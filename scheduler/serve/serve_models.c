/* scheduler/serve/serve_models.c - which models are served, and how each gets to where it is wanted.
 *
 * A model that is wanted stays so until it is unloaded, or does not load: whenever its engine is lost it is loaded
 * again. A model leaves only when no request of it is with the engine; then it is loaded again if it is still wanted.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "scheduler/serve/serve_outputs.h"
#include "scheduler/serve/serving_internal.h"

#define MODELS_MOST 4096

struct swn_served *swn_models_find(struct swn_serving *s, const char *name, int64_t version)
{
    struct swn_served *best = NULL;

    for (size_t i = 0; i < s->count; i++) {
        struct swn_served *m = s->models[i];
        if (strcmp(m->name, name) != 0 || (version && m->version != version))
            continue;
        /* Without a version: the newest that is ready, or is to be, before any that is not. */
        if (!best || m->is_wanted > best->is_wanted || (m->is_wanted == best->is_wanted && m->version > best->version))
            best = m;
    }
    return best;
}

static void set_state(struct swn_serving *s, struct swn_served *m, enum swn_model_state state)
{
    m->state = state;
    s->has_moved = 1;
    swn_requests_model_is(s, m, state == SWN_MODEL_READY && !m->is_leaving);
}

/* ---- the list ---- */

static int is_asked(const struct swn_serving *s, const struct swn_served *m)
{
    for (const struct swn_serve_item *item = s->queue.first; item; item = item->next)
        if (item->model == m->number)
            return 1;
    return 0;
}

/* What it holds, beside its place. */
static void free_held(struct swn_served *m)
{
    free(m->path);
    if (m->config)
        swn_model_config_free(m->config);
    free(m->config);
    swn_labels_drop(m->labels);
    free(m->tensors);
    free(m->views);
}

static const char unloaded[] = "unloaded";

/* The place of a version that was unloaded, which nothing refers to any more; NULL: there is none. */
static struct swn_served *place_of_another(struct swn_serving *s)
{
    for (size_t i = 0; i < s->count; i++) {
        struct swn_served *m = s->models[i];
        if (m->state == SWN_MODEL_UNAVAILABLE && !m->is_wanted && !m->is_leaving && !m->engine &&
            !strcmp(m->reason, unloaded) && !is_asked(s, m))
            return m;
    }
    return NULL;
}

/* A new place at the end of the list; where that is as long as it may be, the place of another. */
static struct swn_served *find_place(struct swn_serving *s)
{
    struct swn_served *m = s->count == MODELS_MOST ? place_of_another(s) : calloc(1, sizeof *m), **more;

    if (!m || s->count == MODELS_MOST) {
        if (m)
            free_held(m);
        return m;
    }
    more = realloc(s->models, (s->count + 1) * sizeof *more);
    if (!more) {
        free(m);
        return NULL;
    }
    s->models = more;
    m->number = (uint32_t)s->count;
    s->models[s->count++] = m;
    return m;
}

static struct swn_served *add(struct swn_serving *s, const char *name, int64_t version)
{
    struct swn_served *m = swn_models_find(s, name, version);

    if (m && version && m->version == version)
        return m;
    m = find_place(s);
    if (!m)
        return NULL;
    *m = (struct swn_served){.number = m->number, .version = version};
    snprintf(m->name, sizeof m->name, "%s", name);
    snprintf(m->reason, sizeof m->reason, "not loaded");
    return m;
}

void swn_models_free(struct swn_serving *s)
{
    for (size_t i = 0; i < s->count; i++) {
        free_held(s->models[i]);
        free(s->models[i]);
    }
    free(s->models);
    s->models = NULL;
    s->count = 0;
}

static void leave(struct swn_serving *s, struct swn_served *m, int is_wanted)
{
    m->is_wanted = (uint8_t)is_wanted;
    if (m->state == SWN_MODEL_READY || m->state == SWN_MODEL_LOADING) {
        m->is_leaving = 1;
        set_state(s, m, m->state);
    } else if (m->state != SWN_MODEL_UNLOADING) {
        set_state(s, m, is_wanted ? SWN_MODEL_WANTED : SWN_MODEL_UNAVAILABLE);
    }
    if (!is_wanted)
        snprintf(m->reason, sizeof m->reason, "%s", unloaded);
}

static int is_ensemble(const struct swn_served *m)
{
    return m->config && m->config->ensemble;
}

/* A model that an engine has, or that requests wait for, and an ensemble do not become each other. */
static int changes_kind(const struct swn_serving *s, const struct swn_served *m, const struct swn_model_config *to)
{
    return m->config && !m->config->ensemble != !to->ensemble && (m->state != SWN_MODEL_UNAVAILABLE || is_asked(s, m));
}

/* What it takes is known when it is loaded. */
static void forget_tensors(struct swn_served *m)
{
    free(m->tensors);
    free(m->views);
    m->tensors = NULL;
    m->views = NULL;
    m->input_count = m->output_count = 0;
    m->optional = 0;
}

/* A graph has no defaults; for a model in Python the call's are taken, and an ensemble's steps decide. */
static uint64_t optional_inputs(const struct swn_served *m)
{
    uint64_t mask = 0;

    for (unsigned i = 0; i < m->config->input_count && (m->is_python || is_ensemble(m)); i++)
        for (unsigned k = 0; k < m->input_count && m->config->inputs[i].is_optional; k++)
            if (strcmp(m->config->inputs[i].tensor.name, m->tensors[k].name) == 0)
                mask |= UINT64_C(1) << k;
    return mask;
}

/* An ensemble takes and gives what its configuration says. 0 or -ENOMEM. */
static int describe_ensemble(struct swn_served *m)
{
    const struct swn_model_config *c = m->config;
    unsigned batch = c->max_batch_size > 0;
    struct swn_wire_tensor *tensors = calloc((size_t)c->input_count + c->output_count + 1, sizeof *tensors);

    free(m->tensors);
    m->tensors = tensors;
    m->input_count = tensors ? c->input_count : 0;
    m->output_count = tensors ? c->output_count : 0;
    for (unsigned i = 0; i < m->input_count + m->output_count; i++) {
        const struct swn_config_tensor *from = i < c->input_count ? &c->inputs[i] : &c->outputs[i - c->input_count];
        tensors[i] = from->tensor;
        if (!batch)
            continue;
        memmove(tensors[i].shape + 1, tensors[i].shape, tensors[i].rank * sizeof *tensors[i].shape);
        tensors[i].shape[0] = -1;
        tensors[i].rank++; /* dims leave one place for it */
    }
    m->optional = optional_inputs(m);
    return tensors ? 0 : -ENOMEM;
}

/* A version of a model is to be loaded as the repository has it now. */
static int want(struct swn_serving *s, const char *name, const struct swn_repository_model *found,
                const struct swn_repository_version *v, char why[SWN_ERRMSG])
{
    struct swn_served *m = add(s, name, v->version);
    struct swn_model_config *config = malloc(sizeof *config);
    char path[PATH_MAX], *copy;

    if (m && changes_kind(s, m, &found->config)) {
        free(config);
        return swn_errmsg(why, -EBUSY, "it becomes %s: unload it first",
                          found->config.ensemble ? "an ensemble" : "a model of its own");
    }
    if (!m || !config || swn_repository_path(s->repository, name, v, path, sizeof path) || !(copy = strdup(path))) {
        free(config);
        return swn_errmsg(why, -ENOMEM, "no memory for it, or too many models");
    }
    if (swn_model_config_copy(config, &found->config)) {
        free(config);
        free(copy);
        return swn_errmsg(why, -ENOMEM, "no memory for it");
    }
    if (m->config && !m->config->ensemble != !config->ensemble)
        forget_tensors(m);
    if (m->config)
        swn_model_config_free(m->config);
    free(m->config);
    free(m->path);
    swn_labels_drop(m->labels);
    m->labels = swn_labels_hold(found->labels);
    m->config = config;
    m->path = copy;
    m->deaths = (struct swn_deaths){0};
    m->is_python = (uint8_t)swn_repository_is_python(v->file);
    if (is_ensemble(m) && describe_ensemble(m))
        return swn_errmsg(why, -ENOMEM, "no memory for it");
    leave(s, m, 1);
    return 0;
}

/* The model's versions are to be as the repository has them. 0, or -errno with `why` filled; a model of which nothing
 * can be used is in the list with that as its reason. */
static int want_model(struct swn_serving *s, const char *name, char why[SWN_ERRMSG])
{
    struct swn_repository_model *found = malloc(sizeof *found);
    int rc = found ? swn_repository_model(s->repository, name, found, why) : swn_errmsg(why, -ENOMEM, "out of memory");

    if (rc == -ENOENT) {
        swn_repository_model_free(found);
        free(found);
        return rc;
    }
    for (size_t i = 0; i < s->count && rc == 0; i++) {
        int stays = 0;
        for (unsigned k = 0; k < found->count; k++)
            stays |= found->versions[k].version == s->models[i]->version;
        if (strcmp(s->models[i]->name, name) == 0 && !stays)
            leave(s, s->models[i], 0);
    }
    for (unsigned k = 0; rc == 0 && k < found->count; k++)
        rc = want(s, name, found, &found->versions[k], why);
    if (rc) {
        struct swn_served *m = swn_models_find(s, name, 0);
        m = m ? m : add(s, name, 0);
        if (m && m->version == 0)
            snprintf(m->reason, sizeof m->reason, "%s", why);
    }
    if (rc)
        swn_serve_say("model %s: %s", name, why);
    else if (*found->config.ignored && s->options.is_verbose)
        swn_serve_say("model %s: config.pbtxt: without effect: %s", name, found->config.ignored);
    if (found)
        swn_repository_model_free(found);
    free(found);
    return rc;
}

static int is_asked_for(const struct swn_serving *s, const char *name)
{
    if (!s->options.is_explicit)
        return 1;
    for (size_t i = 0; i < s->options.load_count; i++)
        if (!strcmp(s->options.load[i], name) || !strcmp(s->options.load[i], "*"))
            return 1;
    return 0;
}

/* One that is asked for by its name and is not there is in the list with that as its reason: the server is not ready
 * without it. */
static int miss(struct swn_serving *s, const char *name, char why[SWN_ERRMSG])
{
    static const char reason[] = "no folder of that name is in the repository";
    struct swn_served *m;

    if (strcmp(name, "*") == 0 || swn_models_find(s, name, 0))
        return 0;
    if (!swn_repository_name_is_valid(name, strlen(name)))
        return swn_errmsg(why, -EINVAL, "--load-model '%s' is no name of a model", name);
    m = add(s, name, 0);
    if (!m)
        return swn_errmsg(why, -ENOMEM, "no memory for model '%s', or too many models", name);
    snprintf(m->reason, sizeof m->reason, "%s", reason);
    swn_serve_say("model %s: %s", name, reason);
    return 0;
}

int swn_models_start(struct swn_serving *s, char why[SWN_ERRMSG])
{
    char(*names)[SWN_REPOSITORY_NAME], said[SWN_ERRMSG];
    size_t count;
    int rc = swn_repository_names(s->repository, &names, &count);

    if (rc)
        return swn_errmsg(why, rc, "cannot read the model repository: %s", strerror(-rc));
    for (size_t i = 0; i < count; i++) {
        if (is_asked_for(s, names[i]))
            want_model(s, names[i], said); /* one that fails is in the index with its reason; others go on */
        else
            add(s, names[i], 0);
    }
    free(names);
    for (size_t i = 0; rc == 0 && i < s->options.load_count; i++)
        rc = miss(s, s->options.load[i], why);
    return rc;
}

/* ---- with the engine ---- */

static int is_busy(const struct swn_serving *s, const struct swn_served *m)
{
    for (const struct swn_serve_item *item = s->queue.first; item; item = item->next)
        if (item->model == m->number && item->is_begun)
            return 1;
    return 0;
}

/* The next model to load: one that requests wait for goes first. NULL also while one is being loaded. */
static struct swn_served *next_to_load(struct swn_serving *s, unsigned engine)
{
    struct swn_served *next = NULL;

    for (size_t i = 0; i < s->count; i++) {
        struct swn_served *m = s->models[i];
        if (m->engine != engine || is_ensemble(m) || (m->is_python && !engine)) /* it has no worker yet */
            continue;
        if (m->state == SWN_MODEL_LOADING || m->state == SWN_MODEL_UNLOADING)
            return NULL;
        if (m->state == SWN_MODEL_WANTED && (!next || (is_asked(s, m) && !is_asked(s, next))))
            next = m;
    }
    return next;
}

/* Inputs or outputs of config.pbtxt as an engine describes them. How many, or -EINVAL. */
static int of_config(const struct swn_model_config *config, const struct swn_config_tensor *list, unsigned count,
                     struct swn_wire_tensor *to)
{
    unsigned batch = config->max_batch_size > 0;

    for (unsigned i = 0; i < count; i++) {
        to[i] = list[i].tensor;
        to[i].offset = to[i].bytes = 0;
        if (to[i].rank + batch > SWN_WIRE_RANK)
            return -EINVAL;
        to[i].rank += batch;
        to[i].shape[0] = -1;
        memcpy(to[i].shape + batch, list[i].tensor.shape, list[i].tensor.rank * sizeof *to[i].shape);
    }
    return (int)count;
}

static void load(struct swn_serving *s, struct swn_served *m, uint64_t now)
{
    struct swn_wire_tensor tensors[SWN_WIRE_TENSORS];
    const struct swn_model_config *c = m->config;
    struct swn_engine_message load = {.op = SWN_ENGINE_LOAD,
                                      .model = m->number,
                                      .text = m->path,
                                      .tensors = tensors,
                                      .batch_most = swn_model_config_joins(c),
                                      .may_differ = (uint32_t)swn_model_config_may_differ(c)};
    char why[SWN_ERRMSG];
    int rc;

    if (m->is_python) {
        if (swn_repository_is_code(m->path) && swn_repository_trusts(s->repository, m->path, why)) {
            swn_models_fail(s, m, why);
            return;
        }
        load.inputs = c->input_count;
        load.outputs = c->output_count;
        if (load.inputs + load.outputs > SWN_WIRE_TENSORS || of_config(c, c->inputs, load.inputs, tensors) < 0 ||
            of_config(c, c->outputs, load.outputs, tensors + load.inputs) < 0) {
            swn_models_fail(s, m, "config.pbtxt has more inputs and outputs, or dimensions, than there may be");
            return;
        }
    }
    rc = swn_engine_link_tell(&s->engines[m->engine].link, &load, now);
    if (rc == 0)
        set_state(s, m, SWN_MODEL_LOADING);
    else if (rc == -EMSGSIZE)
        swn_models_fail(s, m, "its path is too long");
}

void swn_models_advance(struct swn_serving *s, unsigned engine, uint64_t now)
{
    struct swn_engine_link *link = &s->engines[engine].link;
    struct swn_served *next;

    for (size_t i = 0; i < s->count; i++) {
        struct swn_served *m = s->models[i];
        struct swn_engine_message unload = {.op = SWN_ENGINE_UNLOAD, .model = m->number};
        if (m->engine == engine && m->is_leaving && m->state == SWN_MODEL_READY && !is_busy(s, m) && !is_ensemble(m) &&
            swn_engine_link_tell(link, &unload, now) == 0)
            set_state(s, m, SWN_MODEL_UNLOADING);
    }
    next = next_to_load(s, engine);
    if (next)
        load(s, next, now);
}

/* The engine's tensor that the config's means: the one of its name, or, as Triton has it, NAME__INDEX. */
static unsigned engine_tensor(const struct swn_wire_tensor *tensors, unsigned count, const char *name,
                              unsigned position)
{
    const char *index = strstr(name, "__");

    for (unsigned i = 0; i < count; i++)
        if (strcmp(tensors[i].name, name) == 0)
            return i;
    if (index && index[2] >= '0' && index[2] <= '9') {
        unsigned long n = strtoul(index + 2, NULL, 10);
        return n < count ? (unsigned)n : count;
    }
    return position < count ? position : count;
}

/* Without a list of the model's there is nothing to be changed. 0 or -ENOTSUP. */
static int needs_no_list(const struct swn_config_tensor *wanted, unsigned count)
{
    for (unsigned i = 0; i < count; i++)
        if (wanted[i].has_reshape)
            return -ENOTSUP;
    return 0;
}

/* Inputs or outputs as the config has them, where it has any. 0, -EINVAL, or -ENOTSUP for a reshape of outputs that are
 * not known. */
static int apply_config(const struct swn_served *m, const struct swn_config_tensor *wanted, unsigned wanted_count,
                        struct swn_wire_tensor *tensors, struct swn_engine_view *views, unsigned count)
{
    struct swn_wire_tensor theirs[SWN_WIRE_TENSORS];

    memcpy(theirs, tensors, count * sizeof *theirs);
    for (unsigned i = 0; i < count; i++)
        memcpy(views[i].name, theirs[i].name, sizeof views[i].name);
    if (wanted_count == 0 || count == 0)
        return needs_no_list(wanted, wanted_count);
    if (wanted_count > count)
        return -EINVAL;
    for (unsigned i = 0; i < wanted_count; i++) {
        const struct swn_wire_tensor *w = &wanted[i].tensor;
        unsigned k = engine_tensor(theirs, count, w->name, i), batch = m->config->max_batch_size > 0;
        if (k == count)
            return -EINVAL;
        memcpy(tensors[k].name, w->name, sizeof tensors[k].name);
        if (tensors[k].element == SWN_ELEMENT_NONE) /* the model itself knows better */
            tensors[k].element = w->element;
        if (w->rank + batch > SWN_WIRE_RANK)
            return -EINVAL;
        tensors[k].rank = w->rank + batch;
        tensors[k].shape[0] = -1;
        memcpy(tensors[k].shape + batch, w->shape, w->rank * sizeof *w->shape);
        views[k].has_reshape = wanted[i].has_reshape;
        views[k].batch = (uint8_t)batch;
        views[k].shape = wanted[i].reshape;
    }
    return 0;
}

static int describe(struct swn_served *m, const struct swn_engine_message *loaded)
{
    size_t count = (size_t)loaded->inputs + loaded->outputs;
    struct swn_wire_tensor *tensors = calloc(count + 1, sizeof *tensors);
    struct swn_engine_view *views = calloc(count + 1, sizeof *views);
    int rc;

    free(m->tensors);
    free(m->views);
    m->tensors = tensors;
    m->views = views;
    m->input_count = m->output_count = 0;
    if (!tensors || !views)
        return -ENOMEM;
    if (count)
        memcpy(tensors, loaded->tensors, count * sizeof *tensors);
    m->input_count = loaded->inputs;
    m->output_count = loaded->outputs;
    m->weight_bytes = loaded->weight_bytes;
    rc = apply_config(m, m->config->inputs, m->config->input_count, tensors, views, m->input_count);
    if (rc == 0)
        rc = apply_config(m, m->config->outputs, m->config->output_count, tensors + m->input_count,
                          views + m->input_count, m->output_count);
    if (rc)
        return rc;
    m->optional = optional_inputs(m);
    return 0;
}

void swn_models_loaded(struct swn_serving *s, const struct swn_engine_message *m)
{
    struct swn_served *model = s->models[m->model];
    char why[SWN_ERRMSG];
    int rc;

    model->deaths.kills_loading = 0;
    if (model->is_leaving && model->is_wanted) { /* the repository has another one by now */
        model->is_leaving = m->status == SWN_ENGINE_OK;
        set_state(s, model, model->is_leaving ? SWN_MODEL_READY : SWN_MODEL_WANTED);
        return;
    }
    if (m->status != SWN_ENGINE_OK) {
        model->is_leaving = 0;
        swn_errmsg(why, 0, "%s", *m->text ? m->text : "the engine does not load it");
        swn_models_fail(s, model, why);
        return;
    }
    rc = describe(model, m);
    if (rc) {
        /* The engine has it, and is to give it up. */
        set_state(s, model, SWN_MODEL_READY);
        leave(s, model, 0);
        swn_models_fail(s, model,
                        rc == -ENOMEM ? "out of memory"
                        : rc == -ENOTSUP
                            ? "config.pbtxt has a reshape, and the model does not say what it takes or gives"
                            : "config.pbtxt has inputs or outputs that the model has not");
        return;
    }
    *model->reason = '\0';
    model->times.is_weighed = 0; /* by the engine that had it before */
    swn_group_times_weigh(&model->times, m->weights, m->weighed, s->engines[model->engine].read_total);
    set_state(s, model, SWN_MODEL_READY);
    if (s->options.is_verbose)
        swn_serve_say("model %s, version %" PRId64 ": ready after %" PRIu64 " ms", model->name, model->version,
                      m->ns / SWN_SERVE_MS);
}

/* Requests that wait for it get no answer any more. */
static void disappoint(struct swn_serving *s, const struct swn_served *m)
{
    struct swn_serve_item *item, *next;

    for (item = s->queue.first; item; item = next) {
        uint64_t id = item->id;
        next = item->next;
        if (item->model != m->number)
            continue;
        swn_requests_drop(s, (struct swn_job *)item, 503, SWN_FAILURE_BACKEND, "model '%s' is unavailable: %s", m->name,
                          m->reason);
        next = swn_serve_queue_after(&s->queue, id);
    }
}

void swn_models_unloaded(struct swn_serving *s, const struct swn_engine_message *m)
{
    struct swn_served *model = s->models[m->model];

    model->is_leaving = 0;
    model->weight_bytes = model->answer_bytes = 0;
    swn_outputs_keep_room(s);
    set_state(s, model, model->is_wanted ? SWN_MODEL_WANTED : SWN_MODEL_UNAVAILABLE);
    if (!model->is_wanted)
        disappoint(s, model);
}

void swn_models_fail(struct swn_serving *s, struct swn_served *model, const char *reason)
{
    snprintf(model->reason, sizeof model->reason, "%s", reason);
    swn_serve_say("model %s, version %" PRId64 ": %s", model->name, model->version, model->reason);
    swn_repository_hide(s->repository, model->reason); /* the log alone says where it lies */
    model->is_wanted = 0;
    if (!model->is_leaving)
        set_state(s, model, SWN_MODEL_UNAVAILABLE);
    disappoint(s, model);
}

void swn_models_lost(struct swn_serving *s, unsigned engine)
{
    s->has_moved = 1; /* loads do not wait for an engine that never starts */
    for (size_t i = 0; i < s->count; i++) {
        struct swn_served *m = s->models[i];
        if (m->engine != engine)
            continue;
        m->is_leaving = 0;
        m->weight_bytes = 0;
        set_state(s, m, m->is_wanted ? SWN_MODEL_WANTED : SWN_MODEL_UNAVAILABLE);
        if (!m->is_wanted)
            disappoint(s, m);
    }
}

/* What the ensemble is by the models of its steps; with SWN_MODEL_UNAVAILABLE m->reason says why. */
static enum swn_model_state state_by_steps(struct swn_serving *s, struct swn_served *m)
{
    const struct swn_ensemble *e = m->config->ensemble;
    enum swn_model_state state = SWN_MODEL_READY;

    for (unsigned i = 0; i < e->step_count; i++) {
        const struct swn_served *step = swn_models_find(s, e->steps[i].model, e->steps[i].version);
        const char *fault = !step || !step->config ? "is not there"
                            : is_ensemble(step)    ? "is an ensemble itself"
                            : !step->is_wanted     ? "is unavailable"
                                                   : NULL;
        if (fault) {
            snprintf(m->reason, sizeof m->reason, "model '%s' of step %u %s", e->steps[i].model, i, fault);
            return SWN_MODEL_UNAVAILABLE;
        }
        if (step->state != SWN_MODEL_READY || step->is_leaving)
            state = SWN_MODEL_WANTED;
    }
    *m->reason = '\0';
    return state;
}

void swn_models_settle_ensembles(struct swn_serving *s)
{
    for (size_t i = 0; i < s->count; i++) {
        struct swn_served *m = s->models[i];
        if (!is_ensemble(m))
            continue;
        enum swn_model_state state = m->state;
        int was_leaving = m->is_leaving;
        /* Requests that have begun keep the ensemble that they began with, so one that is wanted need not wait. */
        m->is_leaving = m->is_leaving && !m->is_wanted && is_asked(s, m);
        if (was_leaving && !m->is_leaving)
            m->state = SWN_MODEL_UNAVAILABLE;
        if (m->is_wanted)
            m->state = state_by_steps(s, m);
        s->has_moved |= m->state != state || m->is_leaving != was_leaving;
    }
}

/* ---- jobs ---- */

static void wait_for_models(struct swn_serving *s, struct swn_job *job)
{
    job->next = s->loads;
    s->loads = job;
    s->has_moved = 1;
}

void swn_models_load_job(struct swn_serving *s, struct swn_job *job)
{
    char why[SWN_ERRMSG];
    int rc;

    if (!s->options.is_explicit) {
        swn_serve_refuse(s, job, 400,
                         "explicit model load / unload is not allowed if polling is enabled: use --model-control-mode "
                         "explicit");
        return;
    }
    rc = s->is_draining ? swn_errmsg(why, -ESHUTDOWN, "the server is shutting down") : want_model(s, job->name, why);
    if (rc)
        swn_serve_refuse(s, job, rc == -ESHUTDOWN ? 503 : 400, "failed to load '%s': %s", job->name, why);
    else
        wait_for_models(s, job);
}

void swn_models_unload_job(struct swn_serving *s, struct swn_job *job)
{
    if (!s->options.is_explicit) {
        swn_serve_refuse(s, job, 400,
                         "explicit model load / unload is not allowed if polling is enabled: use --model-control-mode "
                         "explicit");
        return;
    }
    if (!swn_models_find(s, job->name, 0)) {
        swn_serve_refuse(s, job, 400, "failed to unload '%s': no model of that name is there", job->name);
        return;
    }
    for (size_t i = 0; i < s->count; i++)
        if (strcmp(s->models[i]->name, job->name) == 0) {
            leave(s, s->models[i], 0);
            if (s->models[i]->state == SWN_MODEL_UNAVAILABLE)
                disappoint(s, s->models[i]);
        }
    wait_for_models(s, job);
}

/* 1: none of the model's versions is on its way. *failed: one that was to be loaded is not. */
static int is_settled(struct swn_serving *s, const char *name, const struct swn_served **failed)
{
    int ready = 0;

    *failed = NULL;
    for (size_t i = 0; i < s->count; i++) {
        const struct swn_served *m = s->models[i];
        if (strcmp(m->name, name) != 0)
            continue;
        if (m->is_leaving || (m->state != SWN_MODEL_READY && m->state != SWN_MODEL_UNAVAILABLE))
            return 0;
        ready |= m->state == SWN_MODEL_READY;
        if (m->state == SWN_MODEL_UNAVAILABLE && strcmp(m->reason, unloaded) != 0)
            *failed = m;
    }
    if (ready)
        *failed = NULL;
    return 1;
}

/* It is wanted, and its engine does not start. */
static int waits_for_engine(const struct swn_serving *s, const struct swn_served *m)
{
    int has_engine = !m->is_python || m->engine; /* one in Python may wait for its place first */

    return m->state == SWN_MODEL_WANTED && has_engine && s->engines[m->engine].fruitless >= SWN_FRUITLESS_MOST;
}

static int waits_in_vain(struct swn_serving *s, const char *name)
{
    for (size_t i = 0; i < s->count; i++) {
        const struct swn_served *m = s->models[i];
        if (strcmp(m->name, name) != 0 || !m->is_wanted) /* others wait for nothing */
            continue;
        if (!is_ensemble(m) && waits_for_engine(s, m))
            return 1;
        for (unsigned k = 0; is_ensemble(m) && k < m->config->ensemble->step_count; k++) {
            const struct swn_ensemble_step *step = &m->config->ensemble->steps[k];
            const struct swn_served *one = swn_models_find(s, step->model, step->version);
            if (one && waits_for_engine(s, one))
                return 1;
        }
    }
    return 0;
}

void swn_models_settle(struct swn_serving *s)
{
    const struct swn_served *failed;

    if (!s->has_moved) /* the look below is one at each model for each job */
        return;
    s->has_moved = 0;
    for (struct swn_job **at = &s->loads; *at;) {
        struct swn_job *job = *at;
        int is_vain = job->kind == SWN_JOB_LOAD && waits_in_vain(s, job->name);
        if (!is_settled(s, job->name, &failed) && !is_vain) {
            at = &job->next;
            continue;
        }
        *at = job->next;
        if (is_vain)
            swn_serve_refuse(s, job, 503, "failed to load '%s': its engine does not start", job->name);
        else if (job->kind == SWN_JOB_LOAD && failed)
            swn_serve_refuse(s, job, 400, "failed to load '%s': %s", job->name, failed->reason);
        else
            swn_serve_finish(s, job);
    }
}
