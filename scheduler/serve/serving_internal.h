/* scheduler/serve/serving_internal.h - what the files of the serving thread share. */
#ifndef SWN_SCHEDULER_SERVE_SERVING_INTERNAL_H
#define SWN_SCHEDULER_SERVE_SERVING_INTERNAL_H

#include <pthread.h>
#include <stdatomic.h>

#include "scheduler/protocol/trace.h"
#include "scheduler/serve/engine_link.h"
#include "scheduler/serve/group_times.h"
#include "scheduler/serve/serve_lane.h"
#include "scheduler/serve/serve_party.h"
#include "scheduler/serve/serve_status.h"
#include "scheduler/serve/server_metrics.h"
#include "scheduler/serve/serving.h"

#define SWN_SERVE_MS UINT64_C(1000000)
/* What an engine of one model has, unless its config.pbtxt says: this part of the budget of all engines. The shared one
 * keeps as much in any case. */
#define SWN_OWN_PART 8

enum swn_model_state {
    SWN_MODEL_UNAVAILABLE, /* `reason` says why */
    SWN_MODEL_WANTED,      /* to be loaded when its engine has time */
    SWN_MODEL_LOADING,
    SWN_MODEL_READY,
    SWN_MODEL_UNLOADING,
};

/* How many engines have died while they loaded or ran a model, and when the last one did. */
struct swn_deaths {
    unsigned count;
    unsigned kills_loading; /* engines in a row that somebody else killed while they loaded it */
    uint64_t last_ns;
};

/* An input or output as the engine has it: its name, and with has_reshape its shape behind the first `batch`
 * dimensions.
 */
struct swn_engine_view {
    char name[SWN_WIRE_TENSOR_NAME];
    uint8_t has_reshape, batch;
    struct swn_shape shape;
};

/* One version of a model; its number is its place in the list, and another's only where an unloaded one makes room in a
 * list that is full. */
struct swn_served {
    uint32_t number;
    char name[SWN_REPOSITORY_NAME];
    int64_t version;
    char *path;
    struct swn_model_config *config;
    struct swn_labels *labels; /* of its outputs' classes, which it holds; NULL: none */
    enum swn_model_state state;
    uint8_t is_leaving; /* to be unloaded when no request of it is with the engine */
    uint8_t is_wanted;  /* to be loaded (again) afterwards, and whenever its engine was lost */
    uint8_t is_quarantined;
    uint8_t is_python; /* a worker of its own runs it */
    unsigned engine;   /* 0: the shared one; of a model in Python: none yet */
    struct swn_deaths deaths;
    uint64_t weight_bytes;
    uint64_t answer_bytes; /* of the outputs of its last answer, as they lie in the buffer; 0: none yet */
    struct swn_group_times times;
    unsigned input_count, output_count;
    uint64_t optional;               /* bit i: a request may do without input i */
    struct swn_wire_tensor *tensors; /* inputs, then outputs, as clients see them */
    struct swn_engine_view *views;   /* likewise, as the engine has them */
    struct swn_serve_counts counts;
    uint64_t batch; /* samples that ran the last group at once, and whether a request has counted it as an execution */
    int is_counted;
    char reason[SWN_ERRMSG];
};

/* Once so many engines have died in a row without any work done, requests and loads are refused instead of waiting for
 * the next engine. */
#define SWN_FRUITLESS_MOST 4

struct swn_served_engine {
    struct swn_engine_link link;
    uint8_t is_wanted;
    uint8_t is_worker;
    uint8_t has_died;      /* the last one, and no other has been started for its models */
    uint64_t own_bytes;    /* what an engine of one model has when all work */
    uint64_t lease_bytes;  /* what it is to have */
    uint64_t budget_bytes; /* what it may be using */
    uint64_t told_bytes;   /* the budget that it was told and has not answered; 0: none */
    uint64_t least_bytes;  /* it has refused less; 0: it has not */
    uint64_t tell_at_ns;   /* when it is asked again to give way; 0: at once */
    uint64_t busy_ns;      /* when it had work last */
    uint64_t start_at_ns;  /* not before */
    uint64_t ending_ns;    /* since when its end is waited for; 0: it is not */
    uint64_t look_at_ns;   /* when its end is looked for next */
    unsigned fruitless;    /* ends in a row without any work done */
    unsigned quick;        /* ends in a row within QUICK_NS of a start, whatever was done */
    uint64_t started_ns;
    uint64_t starts;
    uint64_t read_total;                        /* bytes that its engines have read, one after the other */
    struct swn_wire_step ahead[SWN_WIRE_STEPS]; /* what it was told last to read ahead */
    unsigned ahead_count;
    struct swn_disk_rate disk;
    uint64_t wake_ns; /* the policy has nothing run before; 0: it has not said so */
    uint32_t last_model;
    uint64_t traced_ns; /* where the last span of its row ended */
};

/* What bounds all that the server has, beside --memory. */
struct swn_serve_limits {
    struct swn_serve_party *party; /* NULL: no swapnetd rules */
    int party_socket;              /* that is watched; -1: none */
    uint64_t cap_bytes;            /* a user's own limit; 0: none */
    uint64_t short_until_ns;       /* lately a request found too little memory */
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
    struct swn_serve_lane *lane;
    struct swn_job *loads; /* jobs that wait for models */
    uint8_t has_moved;     /* a model, so one of these jobs may be done */
    struct swn_serve_limits limits;
    struct swn_serve_status *status; /* NULL: no status socket */
    struct swn_trace *trace;         /* NULL: none */
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
enum { SWN_TAG_INBOX = 1, SWN_TAG_SIGNAL, SWN_TAG_ENGINE, SWN_TAG_CLIENT, SWN_TAG_PARTY };

/* serving.c: the loop takes another turn. From any thread. */
void swn_serving_wake(struct swn_serving *s);

/* serve_steps.c */
/* events 0: no longer. */
void swn_serve_watch(struct swn_serving *s, int fd, uint64_t tag, uint32_t events);
void swn_serve_finish(struct swn_serving *s, struct swn_job *job);
/* Answers with an error. */
__attribute__((format(printf, 4, 5))) void swn_serve_refuse(struct swn_serving *s, struct swn_job *job, int status,
                                                            const char *format, ...);

/* There is no model of that name, or no such version of it. */
void swn_serve_refuse_unknown(struct swn_serving *s, struct swn_job *job);

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
/* Ensembles are what the models of their steps are. */
void swn_models_settle_ensembles(struct swn_serving *s);
/* Answers jobs whose models are where they were wanted. */
void swn_models_settle(struct swn_serving *s);

/* serve_engines.c */
void swn_engines_pump(struct swn_serving *s, uint64_t now_ns);
void swn_engines_readable(struct swn_serving *s, unsigned engine, uint64_t now_ns);
/* A child of ours has ended: what it has said is heard, and nothing more is waited for. */
void swn_engines_bury(struct swn_serving *s, uint64_t now_ns);
/* When something is due; 0: nothing is. */
uint64_t swn_engines_due(const struct swn_serving *s);

/* serve_requests.c */
void swn_requests_admit(struct swn_serving *s, struct swn_job *job, uint64_t now_ns);
/* Tells the engine what to run next, where it has time. */
void swn_requests_run(struct swn_serving *s, unsigned engine, uint64_t now_ns);
/* Ends what `queue.coming` began: engines run what has come meanwhile. */
void swn_requests_have_come(struct swn_serving *s, uint64_t now_ns);
void swn_requests_ran(struct swn_serving *s, unsigned engine, const struct swn_engine_message *m, uint64_t now_ns);
void swn_requests_stored(struct swn_serving *s, const struct swn_engine_message *m, uint64_t now_ns);
/* Nobody waits for it any more, or what it waits for does not come. */
__attribute__((format(printf, 5, 6))) void swn_requests_drop(struct swn_serving *s, struct swn_job *job, int status,
                                                             enum swn_failure failure, const char *format, ...);
/* is_crash: the engine died by itself, while it ran or stored requests. */
void swn_requests_lost(struct swn_serving *s, unsigned engine, int is_crash);
/* Whether a model's state lets its requests run. */
void swn_requests_model_is(struct swn_serving *s, const struct swn_served *model, int is_loaded);

/* How long a request for the model that came now would take; 0: not known. */
uint64_t swn_requests_wait_ns(struct swn_serving *s, const struct swn_served *model, uint64_t now_ns);
void swn_requests_succeed(struct swn_serving *s, struct swn_job *job, uint64_t now_ns);
void swn_requests_fail(struct swn_serving *s, struct swn_job *job, enum swn_failure failure, uint64_t now_ns);

/* serve_ensembles.c */
/* The request is in the queue, and has what the ensemble takes. */
void swn_ensembles_begin(struct swn_serving *s, struct swn_job *job, uint64_t now_ns);
/* It is dropped: it ends when no step of it runs any more. */
void swn_ensembles_drop(struct swn_ensemble_run *run);
/* Models of the engine that steps will run whose conditions or inputs are not known yet: how many, at most `most`, the
 * likeliest first. */
unsigned swn_ensembles_expect(struct swn_serving *s, unsigned engine, struct swn_lane_expected *to, unsigned most);
/* A step that runs early is ended, for a request that has no place in the queue. It runs again where it is needed. */
void swn_ensembles_make_place(struct swn_serving *s);
/* The same for room in the buffer: what a step made early is given up. 0: there is none. */
int swn_ensembles_make_room(struct swn_serving *s);
/* Its job is about to be finished without it. */
void swn_ensembles_abandon(struct swn_ensemble_run *run);

/* serve_answers.c: jobs that only look. */
void swn_answers_give(struct swn_serving *s, struct swn_job *job);
/* "READY", "LOADING", "UNLOADING", "UNAVAILABLE". Static. */
const char *swn_answers_state(const struct swn_serving *s, const struct swn_served *model);

#endif
