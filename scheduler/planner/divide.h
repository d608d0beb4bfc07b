/* scheduler/planner/divide.h - one budget for several DNNs: how many bytes each gets.
 *
 * Under every policy each DNN gets at least its minimum and at most its demand. Where all demands fit the total, each
 * gets its demand; else the sum is exactly the total (not a byte is lost to rounding). With the first two policies a
 * larger total takes nothing from any DNN. Pure functions of their arguments, thread-safe; bytes and seconds.
 */
#ifndef SWN_SCHEDULER_PLANNER_DIVIDE_H
#define SWN_SCHEDULER_PLANNER_DIVIDE_H

#include <stddef.h>
#include <stdint.h>

/* One point of a predicted curve: the seconds of one inference under a budget. */
struct swn_divide_point {
    uint64_t budget_bytes;
    double latency_s;
};

struct swn_divide_dnn {
    uint64_t min_bytes;
    uint64_t demand_bytes; /* all that it can use; a demand below min_bytes counts as min_bytes */
    uint64_t weight_bytes; /* "memory" of the performance score; 0: demand_bytes counts instead */
    double latency_s;      /* with all the memory that it can use; 0 or less: not known */
    double urgency;        /* 1 is ordinary; 0 or less, or not a number, counts as 1 */
    /* The predicted latency at some budgets, in ascending order of bytes. It is linear between them, constant outside
     * them, and where it rises with the bytes the rise is ignored. Borrowed. points 0: not known; a curve that falls
     * below a nanosecond counts as not known, too. */
    const struct swn_divide_point *curve;
    size_t points;
};

/* Predictions are good to a tenth (bench/predict.py): a smaller delay than this cannot be told from none. */
#define SWN_DIVIDE_NOISE 0.10

enum swn_divide_policy {
    /* SwapNet Eq. 1, with the performance score PS = urgency * latency / memory (6.2.2):
     *     A_i = M_i/sum(M) * (1 - 1/n) * M + PS_i/sum(PS) * 1/n * M
     * A DNN whose A_i is below its minimum gets the minimum, one whose A_i is above its demand the demand; the others
     * share the rest in the proportions of their A_i. An unknown latency counts as one with the mean score. */
    SWN_DIVIDE_EQ1,
    /* The same number of bytes for each DNN: the paper's ablation "w/o-pat-sch". */
    SWN_DIVIDE_EQUAL,
    /* Makes the largest urgency * (latency / least latency - 1) as small as it can be, then the next largest, and so
     * on. The objective is the slowdown, and not the latency, which the paper's 6.2.1 names: otherwise the largest DNN
     * would take the memory of DNNs that are ten times as fast until they are as slow as itself. The objective is the
     * part of the slowdown above 1, so that urgency 2 means half the delay of urgency 1; with the whole slowdown, a DNN
     * of urgency 1 would not count until it is twice as slow. Without a curve the slowdown is estimated from the
     * missing bytes and the weights. A delay below SWN_DIVIDE_NOISE is not made smaller: memory that is left then goes
     * to the DNNs with the shortest latencies (by their urgency), which would otherwise reread it most often from the
     * disk that all share. */
    SWN_DIVIDE_MINMAX,
    SWN_DIVIDE_POLICIES,
};

/* "eq1", "equal", "minmax"; "?" for anything else. Static. */
const char *swn_divide_name(enum swn_divide_policy policy);
/* 0 and *out; -EINVAL. */
int swn_divide_parse(const char *name, enum swn_divide_policy *out);

/* bytes[i] for each dnn[i]. 0; -ENOSPC: the minimums alone exceed the total, bytes[] are the minimums; -ENOMEM or
 * -EINVAL: bytes[] is untouched. n may be 0. */
int swn_divide(enum swn_divide_policy policy, const struct swn_divide_dnn *dnn, size_t n, uint64_t total,
               uint64_t *bytes);

/* The sum of all minimums; UINT64_MAX where it does not fit. */
uint64_t swn_divide_least(const struct swn_divide_dnn *dnn, size_t n);

/* Predicted seconds of one inference with `bytes`; 0: neither curve nor latency is known. */
double swn_divide_latency(const struct swn_divide_dnn *dnn, uint64_t bytes);
/* urgency * (predicted slowdown - 1): what SWN_DIVIDE_MINMAX minimises. 0 at the demand. */
double swn_divide_delay(const struct swn_divide_dnn *dnn, uint64_t bytes);
/* Bytes per second that the DNN rereads with a budget of `bytes`, when passes follow each other at once; 0: no latency
 * is known. */
double swn_divide_reads(const struct swn_divide_dnn *dnn, uint64_t bytes);

#endif
