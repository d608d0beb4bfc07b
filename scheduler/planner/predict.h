/* scheduler/planner/predict.h - predicts how fast a model will run within a budget: the library's own plan
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

/* Properties of a layer that the delay model does not need. */
struct swn_predict_more {
    uint64_t slice_bytes;      /* its operator can take it in multiples of this many bytes; 0: only whole */
    uint64_t activation_bytes; /* most nonweight bytes while it computes; 0: not known */
    double own;                /* the part of its time until its operator is done; 0: not known */
};

struct swn_predict {
    const struct swn_layer *layers; /* in reading order; those below SWN_PREDICT_STREAMED stay in memory */
    size_t n;
    struct swn_coefficients c;
    uint64_t other_bytes;                /* everything that is not a weight: activations, inputs */
    const struct swn_predict_more *more; /* of each layer, or NULL */
    double busy_alpha; /* the disk's seconds per byte while the program computes; 0: as c says. The idle disk never
                          takes longer, whatever c and rest_alpha say */
    double rest_alpha; /* the same while the program waits for the disk; 0: not known, as c and busy_alpha say */
    double read_s;     /* seconds of the disk per read, besides its bytes; 0: not known, as c says */
    double contention; /* how much longer computing takes while the disk reads all the time: 0.07 is 7 % */
    double wait_s;     /* how much longer a read takes when no other read is under way; 0: nothing */
    double watching_s; /* the part of computing all layers that is not needed when nothing streams */
};

/* The seconds that a read of a layer takes besides its bytes. One read brings one weight, and the references of all
 * layers are spread over the reads. */
double swn_predict_read_s(const struct swn_layer *layers, size_t n, double beta);

/* The typical size of a read, weighted by bytes: the layers' sizes, where large layers come in pieces. A multiple of a
 * page. */
uint64_t swn_predict_read_bytes(const struct swn_layer *layers, size_t n);

/* The bytes that the model can use: all weights and the other bytes. */
uint64_t swn_predict_demand(const struct swn_predict *p);
/* The budget below which the library reads layers through mappings, ten times as slowly: a window for the largest
 * layer, or for pieces of it, and the nonweight bytes; at most the demand. */
uint64_t swn_predict_least(const struct swn_predict *p);

/* The plan for a budget; out->latency_ns is the time of a pass. weights: room for p->n, or NULL. Returns the number of
 * weights, or -EINVAL (no weights), -ENOMEM. */
int swn_predict_plan(const struct swn_predict *p, uint64_t budget_bytes, struct swn_plan_weight *weights,
                     struct swn_plan *out);

/* The predicted latency at `points` budgets, spaced evenly from the least to the demand, in the form of
 * scheduler/planner/divide.h. points is at least 2. 0 or -errno as above. */
int swn_predict_curve(const struct swn_predict *p, struct swn_divide_point *curve, size_t points);

#endif
