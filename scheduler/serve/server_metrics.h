/* scheduler/serve/server_metrics.h - what swapnet-serve counts, as Prometheus text and as Triton's statistics.
 *
 * Pure but for memory: numbers in, text out. Names of models need no escapes (repository.h).
 */
#ifndef SWN_SCHEDULER_SERVE_SERVER_METRICS_H
#define SWN_SCHEDULER_SERVE_SERVER_METRICS_H

#include <stddef.h>
#include <stdint.h>

/* Why a request failed, in Triton's words. */
enum swn_failure {
    SWN_FAILURE_REJECTED, /* no room, or its time was over before it began */
    SWN_FAILURE_CANCELED, /* its client is gone */
    SWN_FAILURE_BACKEND,  /* the model or its engine */
    SWN_FAILURE_OTHER,    /* the request itself */
    SWN_FAILURES,
};

#define SWN_BATCHES 64 /* statistics of more samples at once are not kept apart */

/* Runs of so many samples at once. */
struct swn_serve_batch {
    uint64_t executions, infer_ns, output_ns;
};

/* Of one version of a model; times are sums of those of requests that succeeded, but for fail_ns. */
struct swn_serve_counts {
    uint64_t success, failure[SWN_FAILURES];
    uint64_t inferences, executions; /* samples of requests that succeeded; of requests that were joined there is one */
    struct swn_serve_batch batches[SWN_BATCHES]; /* of 1, 2, ... samples */
    uint64_t request_ns, fail_ns, queue_ns, infer_ns, output_ns;
    uint64_t last_ms; /* since the epoch; 0: never */
    uint64_t pending; /* received and not begun */
};

struct swn_metrics_model {
    const char *name;
    int64_t version;
    const struct swn_serve_counts *counts;
    uint64_t weight_bytes; /* 0 where it is not loaded */
    uint8_t is_ready, is_quarantined;
};

struct swn_metrics {
    const struct swn_metrics_model *models;
    size_t count;
    uint64_t memory_bytes, budget_bytes; /* of all; of that, the engines' */
    uint64_t buffer_bytes, buffer_used_bytes, buffer_peak_bytes, buffer_refused;
    uint64_t engine_restarts, engines_up, queue;
    uint64_t connections;
};

/* malloc'd, terminated; NULL: no memory. */
char *swn_metrics_text(const struct swn_metrics *m);
char *swn_metrics_statistics(const struct swn_metrics_model *models, size_t count);

#endif
