/* scheduler/policies/baselines.h - what the paper, and others, do instead. Inside this folder.
 *
 * No-Batch (edge-serving paper, 6.1): one request after the other, each to its end.
 *
 * Batch (the same): the oldest requests of a model, as many as the bound allows, are one segment. Requests that arrive
 * join while there are fewer than the bound, and the others wait until they have caught up.
 */
#ifndef SWN_SCHEDULER_POLICIES_BASELINES_H
#define SWN_SCHEDULER_POLICIES_BASELINES_H

#include "scheduler/policies/lane_view.h"

void swn_decide_no_batch(const struct swn_lane_view *view, struct swn_lane_decision *decision);
/* problem: of cohort 0. segments: room. */
void swn_decide_batch(const struct swn_lane_view *view, struct swn_completion *problem, struct swn_segment *segments,
                      struct swn_lane_decision *decision);

#endif
