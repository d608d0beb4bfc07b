/* scheduler/policies/shared_prefix.h - models that begin with the same groups (edge-serving paper, 4.3). Inside this
 * folder.
 *
 * Groups of two models are the same node of a trie if their identities, and those of all groups before them, are equal
 * and not 0. Requests of either model that are at one node can run it in lockstep: its weights are read once, and
 * charged once. Behind the last common node each goes on with its own model, and a new decision is made there.
 *
 * The paper runs all requests of a model to the end, and takes the others along as far as they go with it, up to the
 * bound. Where a batch gains little that delays the model's own requests for nothing. So others ride along by what it
 * comes to. With W the weight of all unfinished requests, w that of the segment that runs, f the time of the group, n
 * members of it and r riders of m others that are at the node,
 *     (W - w) * (f[m] - f[m - r])   is saved: who is not done before the segment waits less for the others' own run;
 *     W * (f[n + r] - f[n])         is lost: everybody waits for a longer batch,
 * and r is the number for which the difference is largest.
 */
#ifndef SWN_SCHEDULER_POLICIES_SHARED_PREFIX_H
#define SWN_SCHEDULER_POLICIES_SHARED_PREFIX_H

#include "scheduler/policies/lane.h"

struct swn_lane_view;

/* Whether `group` of both models is one node. */
int swn_prefix_is_same(const struct swn_lane_state *state, uint32_t model, uint32_t other, uint32_t group);

/* Whether two of the models that have requests begin with the same group. */
int swn_prefix_is_any(const struct swn_lane_view *view);

/* Appends riders to a decision for a segment of this weight, the oldest first. */
void swn_prefix_ride(const struct swn_lane_view *view, double segment_weight, struct swn_lane_decision *decision);

#endif
