/* scheduler/serve/server_metrics.c - see server_metrics.h. */
#define _GNU_SOURCE
#include "scheduler/serve/server_metrics.h"

#include <inttypes.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>

static const char *const reasons[SWN_FAILURES] = {"REJECTED", "CANCELED", "BACKEND", "OTHER"};

/* ---- Prometheus ---- */

static void head(FILE *f, const char *name, const char *type, const char *help)
{
    fprintf(f, "# HELP %s %s\n# TYPE %s %s\n", name, help, name, type);
}

static void one(FILE *f, const char *name, const char *type, const char *help, uint64_t value)
{
    head(f, name, type, help);
    fprintf(f, "%s %" PRIu64 "\n", name, value);
}

static uint64_t success(const struct swn_metrics_model *m)
{
    return m->counts->success;
}

static uint64_t inferences(const struct swn_metrics_model *m)
{
    return m->counts->inferences;
}

static uint64_t executions(const struct swn_metrics_model *m)
{
    return m->counts->executions;
}

static uint64_t request_us(const struct swn_metrics_model *m)
{
    return m->counts->request_ns / 1000;
}

static uint64_t queue_us(const struct swn_metrics_model *m)
{
    return m->counts->queue_ns / 1000;
}

static uint64_t infer_us(const struct swn_metrics_model *m)
{
    return m->counts->infer_ns / 1000;
}

/* Inputs are read where they lie; what that takes is part of computing. */
static uint64_t input_us(const struct swn_metrics_model *m)
{
    (void)m;
    return 0;
}

static uint64_t output_us(const struct swn_metrics_model *m)
{
    return m->counts->output_ns / 1000;
}

static uint64_t pending(const struct swn_metrics_model *m)
{
    return m->counts->pending;
}

static uint64_t weight_bytes(const struct swn_metrics_model *m)
{
    return m->weight_bytes;
}

static uint64_t is_ready(const struct swn_metrics_model *m)
{
    return m->is_ready;
}

static uint64_t is_quarantined(const struct swn_metrics_model *m)
{
    return m->is_quarantined;
}

static const struct {
    const char *name, *type, *help;
    uint64_t (*value)(const struct swn_metrics_model *m);
} families[] = {
    {"nv_inference_request_success", "counter", "Number of successful inference requests", success},
    {"nv_inference_count", "counter", "Number of inferences performed", inferences},
    {"nv_inference_exec_count", "counter", "Number of model executions performed", executions},
    {"nv_inference_request_duration_us", "counter", "Cumulative inference request duration in microseconds",
     request_us},
    {"nv_inference_queue_duration_us", "counter", "Cumulative inference queuing duration in microseconds", queue_us},
    {"nv_inference_compute_input_duration_us", "counter", "Cumulative inference compute input duration in microseconds",
     input_us},
    {"nv_inference_compute_infer_duration_us", "counter", "Cumulative compute inference duration in microseconds",
     infer_us},
    {"nv_inference_compute_output_duration_us", "counter",
     "Cumulative inference compute output duration in microseconds", output_us},
    {"nv_inference_pending_request_count", "gauge", "Number of requests received and not begun", pending},
    {"swapnet_serve_model_weight_bytes", "gauge", "Bytes of the weights of a model that is loaded", weight_bytes},
    {"swapnet_serve_model_ready", "gauge", "Whether the model answers", is_ready},
    {"swapnet_serve_model_quarantined", "gauge", "Whether the model has an engine of its own, as engines died under it",
     is_quarantined},
};

static void failures(FILE *f, const struct swn_metrics *m)
{
    head(f, "nv_inference_request_failure", "counter", "Number of failed inference requests");
    for (size_t i = 0; i < m->count; i++)
        for (int r = 0; r < SWN_FAILURES; r++)
            fprintf(f, "nv_inference_request_failure{model=\"%s\",version=\"%" PRId64 "\",reason=\"%s\"} %" PRIu64 "\n",
                    m->models[i].name, m->models[i].version, reasons[r], m->models[i].counts->failure[r]);
}

static void server(FILE *f, const struct swn_metrics *m)
{
    one(f, "swapnet_serve_memory_bytes", "gauge", "Memory for tensors, weights and buffers", m->memory_bytes);
    one(f, "swapnet_serve_engine_budget_bytes", "gauge", "Of that, what engines have", m->budget_bytes);
    one(f, "swapnet_serve_buffer_bytes", "gauge", "Of that, what requests and answers have", m->buffer_bytes);
    one(f, "swapnet_serve_buffer_used_bytes", "gauge", "Bytes of the buffer that are in use", m->buffer_used_bytes);
    one(f, "swapnet_serve_buffer_peak_bytes", "gauge", "Most bytes of the buffer that were in use",
        m->buffer_peak_bytes);
    one(f, "swapnet_serve_buffer_refused_total", "counter", "Requests and outputs for which the buffer had no room",
        m->buffer_refused);
    one(f, "swapnet_serve_engine_restarts_total", "counter", "Engines that died and were started again",
        m->engine_restarts);
    one(f, "swapnet_serve_engines_up", "gauge", "Engines that answer", m->engines_up);
    one(f, "swapnet_serve_requests", "gauge", "Requests in the server", m->queue);
    one(f, "swapnet_serve_connections", "gauge", "Connections of clients", m->connections);
}

char *swn_metrics_text(const struct swn_metrics *m)
{
    char *text = NULL;
    size_t bytes;
    FILE *f = open_memstream(&text, &bytes);

    if (!f)
        return NULL;
    for (size_t k = 0; k < sizeof families / sizeof *families; k++) {
        head(f, families[k].name, families[k].type, families[k].help);
        for (size_t i = 0; i < m->count; i++)
            fprintf(f, "%s{model=\"%s\",version=\"%" PRId64 "\"} %" PRIu64 "\n", families[k].name, m->models[i].name,
                    m->models[i].version, families[k].value(&m->models[i]));
    }
    failures(f, m);
    server(f, m);
    if (fclose(f)) {
        free(text);
        return NULL;
    }
    return text;
}

/* ---- Triton's statistics ---- */

static json_t *duration(uint64_t count, uint64_t ns)
{
    return json_pack("{s:I, s:I}", "count", (json_int_t)count, "ns", (json_int_t)ns);
}

static json_t *batch_statistics(const struct swn_serve_counts *c)
{
    json_t *list = json_array();

    for (int i = 0; i < SWN_BATCHES; i++) {
        const struct swn_serve_batch *b = &c->batches[i];
        if (b->executions)
            json_array_append_new(list, json_pack("{s:i, s:o, s:o, s:o}", "batch_size", i + 1, "compute_input",
                                                  duration(b->executions, 0), "compute_infer",
                                                  duration(b->executions, b->infer_ns), "compute_output",
                                                  duration(b->executions, b->output_ns)));
    }
    return list;
}

static json_t *model_statistics(const struct swn_metrics_model *m)
{
    const struct swn_serve_counts *c = m->counts;
    char version[24];
    uint64_t failed = 0;

    snprintf(version, sizeof version, "%" PRId64, m->version);
    for (int r = 0; r < SWN_FAILURES; r++)
        failed += c->failure[r];
    return json_pack("{s:s, s:s, s:I, s:I, s:I, s:{s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o}, s:o, s:[{s:s, s:i, s:I}]}",
                     "name", m->name, "version", version, "last_inference", (json_int_t)c->last_ms, "inference_count",
                     (json_int_t)c->inferences, "execution_count", (json_int_t)c->executions, "inference_stats",
                     "success", duration(c->success, c->request_ns), "fail", duration(failed, c->fail_ns), "queue",
                     duration(c->success, c->queue_ns), "compute_input", duration(c->success, 0), "compute_infer",
                     duration(c->success, c->infer_ns), "compute_output", duration(c->success, c->output_ns),
                     "cache_hit", duration(0, 0), "cache_miss", duration(0, 0), "batch_stats", batch_statistics(c),
                     "memory_usage", "type", "CPU", "id", 0, "byte_size", (json_int_t)m->weight_bytes);
}

char *swn_metrics_statistics(const struct swn_metrics_model *models, size_t count)
{
    json_t *all = json_array(), *root = json_object();
    char *text;

    for (size_t i = 0; i < count; i++)
        json_array_append_new(all, model_statistics(&models[i]));
    json_object_set_new(root, "model_stats", all);
    text = json_dumps(root, JSON_COMPACT);
    json_decref(root);
    return text;
}
