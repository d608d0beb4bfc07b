/* scheduler/planner/block_pipeline.h - how long a pass over a model takes when the model is cut into blocks, of which m
 * are in memory at once.
 *
 * One thread computes. Another thread, with one disk, drops block k - m as soon as it has been computed, and then reads
 * block k (SwapNet figure 10 and the recursion behind Eq. 4, m = 2):
 *     load(k) = max(load(k-1), done(k-m)) + t_out(k-m) + t_in(k)        (the first m blocks: load(k-1) + t_in(k))
 *     done(k) = max(load(k), done(k-1)) + t_ex(k)
 * The pass ends with done(n). Eq. 4's t_ov(k) is load(k+1) - done(k). The paper subtracts t_ov(k-1), and so reads a
 * block while the read of the previous one is under way, as if there were two disks; here reads queue.
 *
 * This model is for blocks that all come and go. The library keeps the weights that fit and streams the rest: see
 * scheduler/planner/plan.h. Pure functions, seconds.
 */
#ifndef SWN_SCHEDULER_PLANNER_BLOCK_PIPELINE_H
#define SWN_SCHEDULER_PLANNER_BLOCK_PIPELINE_H

#include <stddef.h>

#include "profiles/delay_model.h"

/* 0 for n == 0. m is at least 1. done: receives when each block is done, or NULL. */
double swn_pass_latency(const struct swn_delay *blocks, size_t n, size_t m, double *done);

/* The sum of Eq. 4 as it is printed, m = 2: for i from 2 to n the positive parts of
 *     t_ov(i) = (t_out(i-1) + t_in(i+1)) - (t_ex(i) + t_ov(i-1)), t_in(n+1) = 0, t_ov(1) = 0
 * but with the positive part of t_ov(i-1): a block that waited for the processor leaves no residual delay. */
double swn_pass_eq4(const struct swn_delay *blocks, size_t n);

#endif
