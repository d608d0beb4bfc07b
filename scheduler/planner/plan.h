/* scheduler/planner/plan.h - what to keep, what to stream, and how wide the read window is.
 *
 * A pass reads its weights in a cycle. Whatever is not kept must be read again every pass, so a budget of b bytes costs
 * at least max(T, (s - r)/BW) with r = b - w kept (SwapNet's Eq. 2 to 4 pick partition points by s_i + s_(i+1) <= b;
 * here the same bound is the read window w). The plan keeps what the disk cannot deliver in time, spreads the rest
 * evenly over the compute time, and picks the window by simulating the steady state for each sensible width. A weight
 * that its operator can take in slices (FlexNN 3.2) needs no window of its own size, and may exceed the budget.
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
    double compute_ns; /* from the moment its operator has its weights to the next weight's */
    double op_ns;      /* of that, until its operator is done, and needs them no more; 0: not known, all of it counts */
    double saved;      /* the part of its bytes that a read need not bring, as they are stored in fewer: 0 to below 1 */
    uint64_t unit;     /* its operator can take it slice by slice, in multiples of this many bytes; 0: only whole */
    int joined;        /* its operator reads the next weight as well, and wants both at once */
    /* out */
    int keep;
    int sliced;          /* what is not kept is lent slice by slice, so the window need not hold all of it */
    uint64_t piece;      /* what is not kept comes in pieces of this size; 0: all at once */
    uint64_t keep_bytes; /* of a weight that is not kept whole: the bytes of it that are kept, see
                          * scheduler/planner/plan_pieces.h */
    int oversize;        /* what is not kept does not fit the window either: served by the mapping */
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
/* The part of a predicted time that a plan gives up to read fewer bytes, as those are certain. A larger part would not
 * pay: of plans for GPT-2 within half of its weights, the one that read least among those within three percent took 5 %
 * longer on the measured disk. */
#define SWN_PLAN_TIE 0.01
/* The part of its measured speed that a disk gives in its slower hours. */
#define SWN_PLAN_CAUTION 0.6

/* weights in the order they are read; the fastest plan for exactly that disk. budget: bytes for kept weights and the
 * window together. Returns 0, -EINVAL for n == 0, or -ENOMEM. */
int swn_plan_make(struct swn_plan_weight *weights, size_t n, uint64_t budget, const struct swn_disk_model *disk,
                  struct swn_plan *out);

/* Steady-state time of one pass under what weights[] say is kept and sliced: reads are served in order by one disk and
 * may begin when the window has room; a weight, or a slice of one, computes when it is there and its predecessor is
 * done (the overlap behind SwapNet Eq. 4, and FlexNN's between slices). 0 when there is no memory to find out. */
double swn_plan_simulate(const struct swn_plan_weight *weights, size_t n, uint64_t window,
                         const struct swn_disk_model *disk);

/* The plan that the library makes: the best for a disk that has a slower hour (SWN_PLAN_CAUTION) now and then.
 * out->latency_ns: how long it takes at the disk's measured speed. Errors as swn_plan_make. */
int swn_plan_predict(struct swn_plan_weight *weights, size_t n, uint64_t budget, const struct swn_disk_model *disk,
                     struct swn_plan *out);

/* Which of n > 0 plans to take: of those whose time is within one percent of the least the one that reads least, then
 * the fastest, then the one with the narrowest window. Does not depend on their order, so that a model gets the same
 * plan however its candidates come about. */
size_t swn_plan_choose(const struct swn_plan *plans, size_t n);

/* A plan that keeps nothing: nearly all of the budget is the window. The kept set is measured against it. As
 * swn_plan_predict. */
int swn_plan_stream_all(struct swn_plan_weight *weights, size_t n, uint64_t budget, const struct swn_disk_model *disk,
                        struct swn_plan *out);

/* Whether a weight takes enough of the budget to be worth slicing, where its operator can take it in slices. */
int swn_plan_worth_slicing(uint64_t bytes, uint64_t budget_bytes);

/* Whether slicing pays for a weight that takes less of the budget, as the disk takes longer for it than its operator
 * does: a weight that is read whole needs a window of two such weights, or reading waits for computing. Matrices of
 * transformers with few tokens are of this kind. Where operators take longer than the disk they gain nothing, and parts
 * of a product are slower than the whole. Only where a pass is short of the disk. bytes_per_ns: what that gives. */
int swn_plan_gains_by_slices(uint64_t bytes, uint64_t budget_bytes, double compute_ns, double bytes_per_ns);

/* Whether a pass is short of the disk: whether reading the weights that do not fit the budget takes a good part of the
 * time in which they are computed with, so that the disk must not wait. Else ResNet-152's last convolutions came in
 * slices, which are slower, for nothing. total: bytes of all weights; budget: what there is for them. */
int swn_plan_short_of_disk(uint64_t total, uint64_t budget, double compute_ns, double bytes_per_ns);

/* A weight with fewer bytes is never sliced. */
#define SWN_PLAN_SLICED_LEAST ((uint64_t)512 << 10)

/* The length of slices, in whole units, of a weight that is lent through this window; two of them have to fit. */
uint64_t swn_plan_slice(uint64_t unit, uint64_t window);

/* The narrowest window that has two slices of full length; slices of narrower windows are shorter. */
#define SWN_PLAN_NARROW_WINDOW ((uint64_t)4 << 20)

#endif
