/* scheduler/serve/serve_answers.c - answers that change nothing: health, metadata, config, statistics, index, metrics.
 */
#define _GNU_SOURCE
#include <inttypes.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "scheduler/oip/oip_answer.h"
#include "scheduler/serve/serve_leases.h"
#include "scheduler/serve/serving_internal.h"

static void give_text(struct swn_serving *s, struct swn_job *job, char *text)
{
    if (!text) {
        swn_serve_refuse(s, job, 503, "out of memory");
        return;
    }
    job->body = text;
    job->body_bytes = strlen(text);
    swn_serve_finish(s, job);
}

static int is_up(const struct swn_serving *s, const struct swn_served *m)
{
    return m->state == SWN_MODEL_READY && !m->is_leaving && s->engines[m->engine].link.state == SWN_ENGINE_IS_UP;
}

/* All models that are wanted, or without --strict-readiness the server alone. A model that failed to load counts: what
 * was asked for is not there. */
static int is_ready(const struct swn_serving *s)
{
    if (s->is_draining || s->engines[0].link.state != SWN_ENGINE_IS_UP)
        return 0;
    for (size_t i = 0; i < s->count && s->options.is_strict; i++) {
        const struct swn_served *m = s->models[i];
        int was_wanted =
            m->is_wanted || (*m->reason && strcmp(m->reason, "not loaded") && strcmp(m->reason, "unloaded"));
        if (was_wanted && !is_up(s, m))
            return 0;
    }
    return 1;
}

/* Clients made from the protocol read the body, others the status alone. */
static void give_health(struct swn_serving *s, struct swn_job *job, int is_well)
{
    static const char format[] = "{\"name\":\"%s\",\"ready\":true}"; /* a name has no character to escape */
    char text[sizeof format + SWN_REPOSITORY_NAME];

    if (!is_well) {
        swn_serve_refuse(s, job, 503, "not ready");
        return;
    }
    if (job->kind == SWN_JOB_MODEL_READY)
        snprintf(text, sizeof text, format, job->name);
    give_text(s, job,
              strdup(job->kind == SWN_JOB_MODEL_READY ? text
                     : job->kind == SWN_JOB_READY     ? "{\"ready\":true}"
                                                      : "{\"live\":true}"));
}

/* ---- one model ---- */

/* Of an ensemble: as that of any of its models may. */
static int may_differ(struct swn_serving *s, const struct swn_served *m)
{
    const struct swn_ensemble *e = m->config->ensemble;
    int found = swn_model_config_may_differ(m->config);

    for (unsigned i = 0; e && i < e->step_count; i++) {
        const struct swn_served *step = swn_models_find(s, e->steps[i].model, e->steps[i].version);
        found |= step && step->config && swn_model_config_may_differ(step->config);
    }
    return found;
}

static void give_metadata(struct swn_serving *s, struct swn_job *job, const struct swn_served *m)
{
    char texts[SWN_REPOSITORY_VERSIONS][24];
    const char *versions[SWN_REPOSITORY_VERSIONS];
    unsigned n = 0;

    for (size_t i = 0; i < s->count && n < SWN_REPOSITORY_VERSIONS; i++)
        if (strcmp(s->models[i]->name, m->name) == 0 && s->models[i]->is_wanted) {
            snprintf(texts[n], sizeof texts[n], "%" PRId64, s->models[i]->version);
            versions[n] = texts[n];
            n++;
        }
    struct swn_oip_model said = {.name = m->name,
                                 .platform = *m->config->platform ? m->config->platform
                                             : m->is_python       ? "python"
                                                                  : "pytorch_libtorch",
                                 .bits = may_differ(s, m) ? SWN_OIP_BATCH : SWN_OIP_EXACT,
                                 .versions = versions,
                                 .version_count = n,
                                 .input_count = m->input_count,
                                 .output_count = m->output_count,
                                 .inputs = m->tensors,
                                 .outputs = m->tensors + m->input_count};
    size_t bytes = swn_oip_model_metadata(NULL, 0, &said);
    char *text = malloc(bytes + 1);
    if (text) {
        swn_oip_model_metadata(text, bytes, &said);
        text[bytes] = '\0';
    }
    give_text(s, job, text);
}

/* The model's tensors as a config has them. malloc'd; NULL: none, or no memory. */
static struct swn_config_tensor *as_in_config(const struct swn_wire_tensor *from, unsigned n, uint32_t max_batch_size)
{
    struct swn_config_tensor *to = n ? calloc(n, sizeof *to) : NULL;

    for (unsigned i = 0; to && i < n; i++) {
        to[i].tensor = from[i];
        if (max_batch_size && from[i].rank) {
            to[i].tensor.rank--;
            memmove(to[i].tensor.shape, from[i].shape + 1, to[i].tensor.rank * sizeof *from[i].shape);
        }
    }
    return to;
}

/* malloc'd, or NULL. */
static char *config_text(const struct swn_model_config *c)
{
    size_t bytes = swn_model_config_json(c, NULL, 0);
    char *text = malloc(bytes + 1);

    if (text) {
        swn_model_config_json(c, text, bytes);
        text[bytes] = '\0';
    }
    return text;
}

/* What the config does not say, the model does. */
static void give_config(struct swn_serving *s, struct swn_job *job, const struct swn_served *m)
{
    struct swn_model_config c = *m->config; /* its lists are the model's */
    struct swn_config_tensor *inputs = NULL, *outputs = NULL;

    snprintf(c.name, sizeof c.name, "%s", m->name);
    if (!*c.platform && !m->is_python)
        snprintf(c.platform, sizeof c.platform, "pytorch_libtorch");
    if (!*c.backend)
        snprintf(c.backend, sizeof c.backend, m->is_python ? "python" : "pytorch");
    if (!c.input_count && (inputs = as_in_config(m->tensors, m->input_count, c.max_batch_size))) {
        c.inputs = inputs;
        c.input_count = m->input_count;
    }
    if (!c.output_count && (outputs = as_in_config(m->tensors + m->input_count, m->output_count, c.max_batch_size))) {
        c.outputs = outputs;
        c.output_count = m->output_count;
    }
    give_text(s, job, config_text(&c));
    free(inputs);
    free(outputs);
}

/* ---- all of them ---- */

/* malloc'd; those of `name`, or with "" all. */
static struct swn_metrics_model *look_at_models(const struct swn_serving *s, const char *name, int64_t version,
                                                size_t *count)
{
    struct swn_metrics_model *list = calloc(s->count + 1, sizeof *list);

    *count = 0;
    for (size_t i = 0; i < s->count && list; i++) {
        const struct swn_served *m = s->models[i];
        if (m->version == 0 || (*name && strcmp(name, m->name) != 0) || (version && version != m->version))
            continue;
        list[(*count)++] = (struct swn_metrics_model){.name = m->name,
                                                      .version = m->version,
                                                      .counts = &m->counts,
                                                      .weight_bytes = m->weight_bytes,
                                                      .is_ready = (uint8_t)is_up(s, m),
                                                      .is_quarantined = m->is_quarantined};
    }
    return list;
}

static void give_statistics(struct swn_serving *s, struct swn_job *job)
{
    size_t count;
    struct swn_metrics_model *list = look_at_models(s, job->name, job->version, &count);
    char *text = list ? swn_metrics_statistics(list, count) : NULL;

    free(list);
    give_text(s, job, text);
}

static void give_metrics(struct swn_serving *s, struct swn_job *job)
{
    struct swn_buffer_use use;
    struct swn_metrics m = {.memory_bytes = s->options.memory_bytes, .engine_restarts = s->restarts};
    struct swn_metrics_model *list = look_at_models(s, "", 0, &m.count);
    char *text;

    swn_buffer_use(s->buffer, &use);
    m.models = list;
    m.budget_bytes = swn_leases_total(s);
    m.buffer_bytes = use.bytes;
    m.buffer_used_bytes = use.used_bytes;
    m.buffer_peak_bytes = use.peak_bytes;
    m.buffer_refused = use.refused;
    for (int i = 0; i < SWN_ENGINES_MOST; i++)
        m.engines_up += s->engines[i].link.state == SWN_ENGINE_IS_UP;
    m.queue = s->queue.count;
    m.connections = s->hooks->connections(s->hooks->user);
    text = list ? swn_metrics_text(&m) : NULL;
    free(list);
    give_text(s, job, text);
}

const char *swn_answers_state(const struct swn_serving *s, const struct swn_served *m)
{
    if (m->state == SWN_MODEL_READY && !m->is_leaving)
        return is_up(s, m) ? "READY" : "LOADING";
    return m->state == SWN_MODEL_UNLOADING || m->is_leaving ? "UNLOADING"
           : m->state == SWN_MODEL_UNAVAILABLE              ? "UNAVAILABLE"
                                                            : "LOADING";
}

static void give_index(struct swn_serving *s, struct swn_job *job)
{
    json_t *list = json_array();
    char *text;

    for (size_t i = 0; i < s->count; i++) {
        const struct swn_served *m = s->models[i];
        json_t *one = json_object();
        char version[24];
        if ((job->version && !is_up(s, m)) || (m->version == 0 && swn_models_find(s, m->name, 0) != m)) {
            json_decref(one);
            continue;
        }
        json_object_set_new(one, "name", json_string(m->name));
        if (m->version) {
            snprintf(version, sizeof version, "%" PRId64, m->version);
            json_object_set_new(one, "version", json_string(version));
        }
        json_object_set_new(one, "state", json_string(swn_answers_state(s, m)));
        json_object_set_new(one, "reason",
                            json_string(m->is_quarantined ? "quarantined: engines died under it" : m->reason));
        json_array_append_new(list, one);
    }
    text = json_dumps(list, JSON_COMPACT);
    json_decref(list);
    give_text(s, job, text);
}

/* Jobs about one model. */
static void give_estimate(struct swn_serving *s, struct swn_job *job, const struct swn_served *m)
{
    char *text = NULL;

    if (asprintf(&text, "{\"model_name\":\"%s\",\"model_version\":\"%" PRId64 "\",\"wait_ms\":%.3f}", m->name,
                 m->version, (double)swn_requests_wait_ns(s, m, swn_now_ns()) / 1e6) < 0)
        text = NULL;
    give_text(s, job, text);
}

static void give_model(struct swn_serving *s, struct swn_job *job)
{
    const struct swn_served *m = swn_models_find(s, job->name, job->version);

    if (!m)
        swn_serve_refuse_unknown(s, job);
    else if (job->kind == SWN_JOB_STATISTICS)
        give_statistics(s, job);
    else if (job->kind == SWN_JOB_MODEL_READY)
        give_health(s, job, is_up(s, m));
    else if (!m->tensors || !m->config || !m->is_wanted)
        swn_serve_refuse(s, job, m->is_wanted ? 503 : 404,
                         "Request for unknown model: '%s' has no available version%s%s", job->name,
                         *m->reason ? ": " : "", m->reason);
    else if (job->kind == SWN_JOB_METADATA)
        give_metadata(s, job, m);
    else if (job->kind == SWN_JOB_ESTIMATE)
        give_estimate(s, job, m);
    else
        give_config(s, job, m);
}

void swn_answers_give(struct swn_serving *s, struct swn_job *job)
{
    switch (job->kind) {
    case SWN_JOB_LIVE:
        give_health(s, job, 1);
        break;
    case SWN_JOB_READY:
        give_health(s, job, is_ready(s));
        break;
    case SWN_JOB_INDEX:
        give_index(s, job);
        break;
    case SWN_JOB_METRICS:
        give_metrics(s, job);
        break;
    case SWN_JOB_STATISTICS:
        if (!*job->name) {
            give_statistics(s, job);
            break;
        }
        /* fall through */
    default:
        give_model(s, job);
    }
}
