/* scheduler/planner/plan.h - what to keep, what to stream, and how wide the read window is.
 *
 * A pass reads its weights in a cycle. Every weight that is not kept is read again in every pass, so with a budget of b
 * bytes a pass takes at least max(T, (s - r)/BW), where r = b - w bytes are kept (SwapNet's Eq. 2 to 4 pick partition
 * points by s_i + s_(i+1) <= b; here the same bound is the read window w). The plan keeps what the disk cannot deliver
 * in time, spreads the rest evenly over the compute time, and picks the window by simulating the steady state for each
 * sensible width. A weight that its operator can take in slices (FlexNN 3.2) needs no window of its own size, and may
 * exceed the budget.
 *
 * Pure functions of their arguments.
 */
#ifndef SWN_SCHEDULER_PLANNER_PLAN_H
#define SWN_SCHEDULER_PLANNER_PLAN_H

#include <stddef.h>
#include <stdint.h>

#include "profiles/disk_speed.h"

struct swn_plan_weight {
    uint64_t bytes;
    double compute_ns; /* from the moment when its operator has its weights to the same moment of the next weight */
    double op_ns;  /* the part of compute_ns until its operator is done and the weight may go; 0: not known, all of it
                      counts */
    double saved;  /* the part of its bytes that a read saves, as they are stored compressed: 0 to below 1 */
    uint64_t unit; /* its operator can take it slice by slice, in multiples of this many bytes; 0: only whole */
    int joined;    /* its operator reads the next weight as well, and needs both at once */
    /* out */
    int keep;
    int sliced;          /* the part that is not kept is lent slice by slice, so the window need not hold all of it */
    uint64_t piece;      /* the part that is not kept comes in pieces of this size; 0: all at once */
    uint64_t keep_bytes; /* for a weight that is not kept whole: its bytes that are kept, see
                            scheduler/planner/plan_pieces.h */
    int oversize;        /* the part that is not kept does not fit the window: the mapping serves it */
};

struct swn_plan {
    uint64_t ring_bytes;
    uint64_t kept_bytes;
    uint64_t streamed_bytes; /* per pass, oversize weights included */
    double latency_ns;       /* predicted, steady state */
    double compute_ns;
};

/* The part of a predicted time that is noise. */
#define SWN_PLAN_NOISE 0.03
/* The part of a predicted time that a plan gives up to read fewer bytes, as bytes are certain and times are not. A
 * larger part would not pay: of the plans for GPT-2 within half of its weights, the one that read least among those
 * within three percent took 5 % longer on the measured disk. */
#define SWN_PLAN_TIE 0.01
/* The part of its measured speed that a disk has in slow hours. */
#define SWN_PLAN_CAUTION 0.6

/* The fastest plan for exactly that disk. weights: in the order in which they are read. budget: bytes for kept weights
 * and the window together. 0, -EINVAL for n == 0, or -ENOMEM. */
int swn_plan_make(struct swn_plan_weight *weights, size_t n, uint64_t budget, const struct swn_disk_model *disk,
                  struct swn_plan *out);

/* The steady-state time of one pass when weights[] say what is kept and sliced. One disk serves reads in order, and a
 * read may begin when the window has room. A weight, or a slice of one, computes when it has been read and its
 * predecessor is done (the overlap behind SwapNet Eq. 4, and FlexNN's between slices). 0: no memory to simulate. */
double swn_plan_simulate(const struct swn_plan_weight *weights, size_t n, uint64_t window,
                         const struct swn_disk_model *disk);

/* The plan that the library makes: the best for a disk that is slow now and then (SWN_PLAN_CAUTION). out->latency_ns:
 * the time at the disk's measured speed. Errors as swn_plan_make. */
int swn_plan_predict(struct swn_plan_weight *weights, size_t n, uint64_t budget, const struct swn_disk_model *disk,
                     struct swn_plan *out);

/* Which of n > 0 plans to take: of those whose time is within one percent of the least, the one that reads least, then
 * the fastest, then the one with the narrowest window. The result does not depend on their order, so that a model gets
 * the same plan in whatever order its candidates are made. */
size_t swn_plan_choose(const struct swn_plan *plans, size_t n);

/* A plan that keeps nothing: nearly all of the budget is the window. The benefit of a kept set is measured against this
 * plan. Errors as swn_plan_predict. */
int swn_plan_stream_all(struct swn_plan_weight *weights, size_t n, uint64_t budget, const struct swn_disk_model *disk,
                        struct swn_plan *out);

/* Whether a weight takes enough of the budget for slicing to pay, if its operator can take it in slices. */
int swn_plan_worth_slicing(uint64_t bytes, uint64_t budget_bytes);

/* Whether slicing pays for a weight that takes less of the budget, because the disk takes longer for the weight than
 * its operator: a weight that is read whole needs a window of two such weights, or reading waits for computing.
 * Matrices of transformers with few tokens are such weights. Where operators take longer than the disk slicing gains
 * nothing, and parts of a product are slower than the whole. Only for a pass that is short of the disk. bytes_per_ns:
 * the disk's speed. */
int swn_plan_gains_by_slices(uint64_t bytes, uint64_t budget_bytes, double compute_ns, double bytes_per_ns);

/* Whether a pass is short of the disk: reading the weights that do not fit the budget takes a good part of the time in
 * which all weights are computed, so the disk must not wait. Without this condition ResNet-152's last convolutions came
 * in slices, which are slower, and gained nothing. total: bytes of all weights; budget: bytes for weights. */
int swn_plan_short_of_disk(uint64_t total, uint64_t budget, double compute_ns, double bytes_per_ns);

/* A weight with fewer bytes is never sliced. */
#define SWN_PLAN_SLICED_LEAST ((uint64_t)512 << 10)

/* The length of slices, in whole units, of a weight that is lent through this window, which has to hold two of them. */
uint64_t swn_plan_slice(uint64_t unit, uint64_t window);

/* The narrowest window that holds two slices of full length; narrower windows have shorter slices. */
#define SWN_PLAN_NARROW_WINDOW ((uint64_t)4 << 20)

#endif
