/* scheduler/serve/serving.h - the thread that owns models, engines and the queue, and the jobs that others give it.
 *
 * A thread of the HTTP side fills in a job, posts it, and has it back when the job's `done` is called, on the serving
 * thread: between the two the job is the serving thread's alone, so no state has a lock but the inbox.
 */
#ifndef SWN_SCHEDULER_SERVE_SERVING_H
#define SWN_SCHEDULER_SERVE_SERVING_H

#include <stddef.h>
#include <stdint.h>

#include "base/errmsg.h"
#include "scheduler/oip/oip_answer.h"
#include "scheduler/serve/repository.h"
#include "scheduler/policies/policy.h"
#include "scheduler/serve/serve_party.h"
#include "scheduler/serve/serve_queue.h"
#include "scheduler/serve/slots.h"

enum swn_job_kind {
    SWN_JOB_SERVER, /* its metadata, which have no state: never posted */
    SWN_JOB_LIVE,
    SWN_JOB_READY,
    SWN_JOB_METADATA,
    SWN_JOB_MODEL_READY,
    SWN_JOB_CONFIG,
    SWN_JOB_ESTIMATE,   /* how long a request would take that came now */
    SWN_JOB_STATISTICS, /* name "": of all models */
    SWN_JOB_INDEX,      /* version 1: ready ones only */
    SWN_JOB_LOAD,
    SWN_JOB_UNLOAD,
    SWN_JOB_METRICS,
    SWN_JOB_INFER,
};

struct swn_kept_slot {
    struct swn_kept_slot *next;
    unsigned step; /* that made what lies there */
    struct swn_slot slot;
};

/* An inference. Slots are given back with it: swn_infer_free. */
struct swn_infer {
    struct swn_kept_slot *kept; /* what an ensemble's steps made; what is answered instead of outputs */
    struct swn_slot body, inputs, outputs;
    struct swn_oip_request request;
    uint8_t is_raw;                /* the body is the data of the only input: its request is to be made yet */
    uint64_t at[SWN_WIRE_TENSORS]; /* where in the buffer each input of the request lies */
    unsigned output_count;
    struct swn_wire_tensor *tensors; /* outputs, malloc'd */
    struct swn_wire_tensor *classes; /* what is answered instead of some of them, malloc'd; NULL: nothing */
    struct swn_labels *labels;       /* of its model, which it holds; NULL: none */
    uint8_t has_batch;               /* the first dimension of outputs is that of samples */
    uint64_t began_ns, infer_ns, store_ns;
    uint64_t wait_ns;        /* with the answer: how long the next request of this model would take; 0: not known */
    unsigned crashes, kills; /* engines that died while they had it: by themselves under it, or of something else */
    uint8_t failure;         /* of one that is dropped or has failed: enum swn_failure */
    uint8_t may_differ;      /* its answer's bits: swn_model_config_may_differ */
    uint8_t is_execution;    /* the first of the requests that ran their last group at once */
    uint64_t batch;          /* samples of all of these; 0: it is not known */
    char skipped[SWN_OIP_SKIPPED]; /* of an ensemble: the models that were not run, "a,b"; "" */
};

struct swn_job {
    struct swn_serve_item item; /* of an inference; first: an item is its job */
    struct swn_job *next;       /* in the inbox, or among those that wait for a load */
    enum swn_job_kind kind;
    char name[SWN_REPOSITORY_NAME];
    int64_t version; /* 0: the newest that is ready; an inference's is filled in */
    int client;      /* socket; its end drops an inference. -1: nobody */
    int is_watched;  /* whether the serving thread hears of that end: only of requests that take some time */
    struct swn_infer *infer;
    struct swn_ensemble_run *run; /* of an ensemble, while its steps run */
    void (*done)(struct swn_job *job);

    struct swn_oip_error error; /* status: 200, or an error with its text */
    char *body;                 /* malloc'd, or NULL */
    size_t body_bytes;
};

struct swn_serving_options {
    const char *repository, *engine, *torch;
    const char *preload, *trace; /* NULL: none */
    uint64_t memory_bytes, buffer_bytes, front_bytes;
    struct swn_serve_party_options party; /* its bytes are filled in from these */
    unsigned threads, queue_most;
    unsigned group_ms, load_ms, start_ms,
        exit_ms; /* time limits: a layer group, a load, an engine's start, the drain */
    enum swn_lane_policy policy;
    enum swn_task_cascade
        cascade;         /* what is done for steps whose conditions are not known: WAIT, PREEMPT or PREFETCH */
    unsigned time_error; /* of predicted times, percent */
    int is_explicit;     /* models are loaded when they are asked for */
    int is_strict;       /* ready means that all models are */
    int is_verbose;
    const char *const *load; /* with is_explicit, at start; "*": all */
    size_t load_count;
};

/* What the loop asks of the HTTP side. */
struct swn_serving_hooks {
    void *user;
    void (*tick)(void *user);       /* once a second */
    void (*quiesce)(void *user);    /* no more connections */
    size_t (*requests)(void *user); /* that have begun and are not answered to the last byte */
    size_t (*connections)(void *user);
    unsigned port; /* that clients reach */
};

struct swn_serving;

/* 0, or -errno with `why` filled. */
int swn_serving_new(struct swn_serving **out, const struct swn_serving_options *options, char why[SWN_ERRMSG]);
void swn_serving_free(struct swn_serving *s);
struct swn_buffer *swn_serving_buffer(struct swn_serving *s);

/* From any thread. */
void swn_serving_post(struct swn_serving *s, struct swn_job *job);
/* All of the list; *kept is NULL then. */
void swn_kept_slots_give(struct swn_buffer *buffer, struct swn_kept_slot **kept);
/* The inference's slots, and all that it holds. NULL: nothing. From any thread that has it. */
void swn_infer_free(struct swn_buffer *buffer, struct swn_infer *infer);
/* The server is to end: new requests are refused. */
int swn_serving_is_draining(const struct swn_serving *s);

/* Runs until SIGTERM or SIGINT, then until requests are answered or exit_ms have passed. On return no job is left. */
int swn_serving_run(struct swn_serving *s, const struct swn_serving_hooks *hooks);

/* One line on stderr, control characters replaced. */
__attribute__((format(printf, 1, 2))) void swn_serve_say(const char *format, ...);

#endif
