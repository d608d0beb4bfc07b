/* scheduler/serve/serving_internal.h - what the files of the serving thread share. */
#ifndef SWN_SCHEDULER_SERVE_SERVING_INTERNAL_H
#define SWN_SCHEDULER_SERVE_SERVING_INTERNAL_H

#include <pthread.h>
#include <stdatomic.h>

#include "scheduler/serve/engine_link.h"
#include "scheduler/serve/server_metrics.h"
#include "scheduler/serve/serving.h"

#define SWN_SERVE_MS UINT64_C(1000000)
/* What an engine of a quarantined model has: this part of the budget of all engines. */
#define SWN_QUARANTINE_PART 8

enum swn_model_state {
    SWN_MODEL_UNAVAILABLE, /* `reason` says why */
    SWN_MODEL_WANTED,      /* to be loaded when its engine has time */
    SWN_MODEL_LOADING,
    SWN_MODEL_READY,
    SWN_MODEL_UNLOADING,
};

/* One version of a model; its number is its place in the list, and never another's. */
struct swn_served {
    uint32_t number;
    char name[SWN_REPOSITORY_NAME];
    int64_t version;
    char *path;
    struct swn_model_config *config;
    enum swn_model_state state;
    uint8_t is_leaving; /* to be unloaded when no request of it is with the engine */
    uint8_t is_wanted;  /* to be loaded (again) afterwards, and whenever its engine was lost */
    uint8_t is_quarantined;
    unsigned engine, deaths;
    uint64_t weight_bytes;
    unsigned input_count, output_count;
    struct swn_wire_tensor *tensors;            /* inputs, then outputs, as clients see them */
    char (*engine_names)[SWN_WIRE_TENSOR_NAME]; /* likewise, as the engine calls them */
    struct swn_serve_counts counts;
    char reason[SWN_ERRMSG];
};

struct swn_served_engine {
    struct swn_engine_link link;
    uint8_t is_wanted;
    uint64_t budget_bytes;
    uint64_t start_at_ns; /* not before */
    unsigned fruitless;   /* ends in a row without any work done */
    unsigned quick;       /* ends in a row within QUICK_NS of a start, whatever was done */
    uint64_t started_ns;
    uint64_t starts;
};

struct swn_serving {
    struct swn_serving_options options;
    const struct swn_serving_hooks *hooks;
    struct swn_buffer *buffer;
    struct swn_repository *repository;
    struct swn_served **models;
    size_t count;
    struct swn_served_engine engines[SWN_ENGINES_MOST];
    struct swn_serve_queue queue;
    struct swn_job *loads; /* jobs that wait for models */
    uint64_t last_id, restarts;
    int epoll_fd, event_fd, signal_fd;
    atomic_int is_draining;
    uint64_t exit_at_ns; /* of the drain */
    pthread_mutex_t inbox_lock;
    struct swn_job *inbox, **inbox_end;
    int is_closed; /* the inbox, under its lock */
};

/* An event's tag: what it is, and which. */
#define SWN_SERVE_TAG(kind, number) ((uint64_t)(kind) << 56 | (uint64_t)(number))
enum { SWN_TAG_INBOX = 1, SWN_TAG_SIGNAL, SWN_TAG_ENGINE, SWN_TAG_CLIENT };

/* serve_steps.c */
/* events 0: no longer. */
void swn_serve_watch(struct swn_serving *s, int fd, uint64_t tag, uint32_t events);
void swn_serve_finish(struct swn_serving *s, struct swn_job *job);
/* Answers with an error. */
__attribute__((format(printf, 4, 5))) void swn_serve_refuse(struct swn_serving *s, struct swn_job *job, int status,
                                                            const char *format, ...);

/* serve_models.c */
int swn_models_start(struct swn_serving *s, char why[SWN_ERRMSG]);
void swn_models_free(struct swn_serving *s);
struct swn_served *swn_models_find(struct swn_serving *s, const char *name, int64_t version);
void swn_models_advance(struct swn_serving *s, unsigned engine, uint64_t now_ns);
void swn_models_loaded(struct swn_serving *s, const struct swn_engine_message *m);
void swn_models_unloaded(struct swn_serving *s, const struct swn_engine_message *m);
/* The engine is gone: what it had is to be loaded again. */
void swn_models_lost(struct swn_serving *s, unsigned engine);
void swn_models_fail(struct swn_serving *s, struct swn_served *model, const char *reason);
void swn_models_load_job(struct swn_serving *s, struct swn_job *job);
void swn_models_unload_job(struct swn_serving *s, struct swn_job *job);
/* Answers jobs whose models are where they were wanted. */
void swn_models_settle(struct swn_serving *s);

/* serve_engines.c */
void swn_engines_pump(struct swn_serving *s, uint64_t now_ns);
void swn_engines_readable(struct swn_serving *s, unsigned engine, uint64_t now_ns);
/* When something is due; 0: nothing is. */
uint64_t swn_engines_due(const struct swn_serving *s);

/* serve_requests.c */
void swn_requests_admit(struct swn_serving *s, struct swn_job *job, uint64_t now_ns);
/* Tells the engine what to run next, where it has time. */
void swn_requests_run(struct swn_serving *s, unsigned engine, uint64_t now_ns);
void swn_requests_ran(struct swn_serving *s, unsigned engine, const struct swn_engine_message *m, uint64_t now_ns);
void swn_requests_stored(struct swn_serving *s, const struct swn_engine_message *m, uint64_t now_ns);
/* Nobody waits for it any more, or what it waits for does not come. */
__attribute__((format(printf, 5, 6))) void swn_requests_drop(struct swn_serving *s, struct swn_job *job, int status,
                                                             enum swn_failure failure, const char *format, ...);
void swn_requests_lost(struct swn_serving *s, unsigned engine, int is_crash);
/* Whether a model's state lets its requests run. */
void swn_requests_model_is(struct swn_serving *s, const struct swn_served *model, int is_loaded);

/* serve_answers.c: jobs that only look. */
void swn_answers_give(struct swn_serving *s, struct swn_job *job);

#endif
