/* scheduler/planner/predict.h - how fast a model will be within a budget, before it runs: the library's own plan
 * (scheduler/planner/plan.h: what is kept, how wide the window is), made from a model information table and a device's
 * coefficients.
 *
 * Pure functions of their arguments. Bytes and seconds.
 */
#ifndef SWN_SCHEDULER_PLANNER_PREDICT_H
#define SWN_SCHEDULER_PLANNER_PREDICT_H

#include <stddef.h>
#include <stdint.h>

#include "profiles/delay_model.h"
#include "scheduler/planner/divide.h"
#include "scheduler/planner/plan.h"

/* The library streams tensors from this size up. */
#define SWN_PREDICT_STREAMED ((uint64_t)65536)

/* Facts of a layer that the delay model does not need. */
struct swn_predict_more {
    uint64_t slice_bytes;      /* its operator can take it in multiples of this many bytes; 0: only whole */
    uint64_t activation_bytes; /* most that is not a weight while it computes; 0: not known */
    double own;                /* part of its time until its operator is done; 0: not known */
};

struct swn_predict {
    const struct swn_layer *layers; /* in the order they are read; those below SWN_PREDICT_STREAMED stay in memory */
    size_t n;
    struct swn_coefficients c;
    uint64_t other_bytes;                /* everything that is not a weight: activations, inputs */
    const struct swn_predict_more *more; /* of each layer, or NULL */
    double busy_alpha; /* seconds per byte that the disk takes while the program computes; 0: what c says. At rest it
                        * takes no more than that, whatever c and rest_alpha say */
    double rest_alpha; /* the same while it waits for the disk; 0: not known, as c and busy_alpha say */
    double read_s;     /* what a read takes of the disk besides its bytes; 0: not known, as c says */
    double contention; /* what computing takes longer while the disk is kept reading: 0.07 is 7 % */
    double wait_s;     /* what a read takes longer before which none is under way; 0: nothing */
    double watching_s; /* of computing all layers, what does not have to be where nothing streams */
};

/* The seconds that a read of one of the layers takes beside its bytes: a read brings one weight, and with it come the
 * references of all that is read with it. */
double swn_predict_read_s(const struct swn_layer *layers, size_t n, double beta);

/* The size of the reads that bring most of the bytes: the layers' sizes, each counted by its bytes, as those that are
 * large come in pieces. A multiple of a page. */
uint64_t swn_predict_read_bytes(const struct swn_layer *layers, size_t n);

/* The bytes that the model can use: all weights and the other bytes. */
uint64_t swn_predict_demand(const struct swn_predict *p);
/* The budget below which the library reads layers through mappings, ten times as slowly: a window for the largest
 * layer, or for pieces of it, and the other bytes; at most the demand. */
uint64_t swn_predict_least(const struct swn_predict *p);

/* The plan for a budget; out->latency_ns is what a pass takes. weights: room for p->n, or NULL. The number of weights,
 * or -EINVAL (no weights), -ENOMEM. */
int swn_predict_plan(const struct swn_predict *p, uint64_t budget_bytes, struct swn_plan_weight *weights,
                     struct swn_plan *out);

/* The predicted latency at `points` budgets, evenly from the least to the demand, as scheduler/planner/divide.h takes
 * it. points is at least 2. 0 or -errno as above. */
int swn_predict_curve(const struct swn_predict *p, struct swn_divide_point *curve, size_t points);

#endif
