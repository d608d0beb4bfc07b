/* scheduler/planner/model.h - a model as the planner sees it: its layers from a store, a checkpoint or a model profile,
 * and the coefficients of a device.
 *
 * For programs: reads files. A model owns what it points to. Not thread-safe.
 */
#ifndef SWN_SCHEDULER_PLANNER_MODEL_H
#define SWN_SCHEDULER_PLANNER_MODEL_H

#include <stddef.h>
#include <stdint.h>

#include "profiles/delay_model.h"
#include "scheduler/planner/predict.h"
#include "profiles/profile.h"

#define SWN_MODEL_WHY 1024

struct swn_model_opts {
    const char *device;  /* file or name of a device profile, or NULL */
    const char *profile; /* a model profile with the times of a store's layers, or NULL */
};

struct swn_model {
    char *name;       /* of the file, without directory */
    char **layer;     /* names */
    char *store_path; /* path of the store; NULL: the model is no store */
    struct swn_layer *layers;
    struct swn_predict_more *more; /* for each layer */
    size_t n;
    struct swn_coefficients c;
    unsigned known; /* which coefficients are known */
    int timed;      /* some layer has a measured time or operations, so t_ex is known */
    /* How many of the layers' measured times, with a device, are still those of the measured machine (`foreign`), are
     * multiplied by `slower` (`scaled`), or are dropped, as they cannot be converted (`lost`). */
    size_t foreign, scaled, lost;
    size_t untimed; /* how many layers that would be streamed have no time in opts->profile */
    double slower;
    uint64_t other_bytes;              /* 0: not measured */
    double contention;                 /* as in struct swn_predict; 0: not measured */
    double busy_alpha, rest_alpha;     /* the same */
    double read_s, wait_s, watching_s; /* the same */
    double latency_s;                  /* measured in the profile's run; below 0: not known */
};

/* 0; -errno with a text in *why: -EINVAL: the content is wrong; -EILSEQ, -ENOENT and so on: the file. */
int swn_model_load(struct swn_model *out, const char *path, const struct swn_model_opts *opts, char why[SWN_MODEL_WHY]);
void swn_model_free(struct swn_model *m);

/* What the library needs and the model lacks: alpha at least, and times. NULL: it lacks nothing. Static. */
const char *swn_model_lacks(const struct swn_model *m);

/* 1: the operations alone do not give the device's times, or the profile lacks times; *text says what happened to the
 * measured ones, and how many are missing. */
int swn_model_converted(const struct swn_model *m, char text[SWN_MODEL_WHY]);

struct swn_predict swn_model_predict(const struct swn_model *m);

/* Loads a device profile by file or by the name of a shipped one ("jetson-nx"). */
int swn_model_device(struct swn_profile **out, const char *name, char why[SWN_MODEL_WHY]);

#endif
