/* scheduler/policies/curves.h - what a group takes for a batch of n: f[g][n] of the edge-serving paper (4.1.1).
 *
 * The paper measures f on a GPU, where computing itself gets cheaper in a batch. On a CPU a batch shares the reading of
 * weights, and computing hardly gains. So the time is the larger of computing and reading, which run side by side:
 *     f[g][n] = max(compute(n), missing bytes / disk speed)
 */
#ifndef SWN_SCHEDULER_POLICIES_CURVES_H
#define SWN_SCHEDULER_POLICIES_CURVES_H

#include "scheduler/policies/lane.h"

/* f[g][n] in nanoseconds, finite; n of 1 or more. */
double swn_curve_time(const struct swn_lane_group *group, double disk_bytes_per_ns, uint32_t n);

/* time[g * (most + 1) + n] = f[g][n] for n of 1 .. most, and 0 for n = 0. */
void swn_curve_table(const struct swn_lane_model *model, double disk_bytes_per_ns, uint32_t most, double *time);

/* One request alone, from `group` to the end. */
double swn_curve_alone(const struct swn_lane_model *model, double disk_bytes_per_ns, uint32_t group);

#endif
