/* scheduler/policies/memory.h - which batches memory admits. Inside this folder.
 *
 * Weights are clean: they can leave memory at any time, and be read again. So what counts is what cannot leave: the
 * states of requests set aside, and the weights and activations of the group that runs.
 *
 * - A request alone needs the group's window, and its activations. Several in lockstep need all weights of the group in
 *   memory, as they share the reading, the activations of one of them, and the states of the others, before or after.
 * - What a request takes in a group that has not run yet is not known. It runs such a group alone, while no other holds
 *   anything: it may take all there is. Once begun it does not keep others from ending, who then leave it the memory.
 * - The banker's rule (Dijkstra 1965): a batch is admitted only if there is afterwards an order in which every request
 *   that has begun can be run to its end alone, with the states of those that are still set aside in memory. Nothing
 *   that has begun is ever in want of memory that others hold for ever.
 * - Where memory lets less than half of a batch begin, those that have begun go on instead, as if nothing else were
 *   there. Else requests would begin one by one as others end, and nothing would be shared.
 * - A group that does not fit even alone, with all memory to itself, is run all the same, by one request: that request
 *   ends there, as far as the rule goes.
 */
#ifndef SWN_SCHEDULER_POLICIES_MEMORY_H
#define SWN_SCHEDULER_POLICIES_MEMORY_H

#include "scheduler/policies/lane_view.h"

/* Bytes that all requests of the state hold which are set aside. */
uint64_t swn_lane_held(const struct swn_lane_state *state);

/* Whether the request could run its next group if there were no other one. */
int swn_lane_fits_alone(const struct swn_lane_state *state, const struct swn_lane_request *request);

/* bound[g] for each group of the cohort's model: how many requests of it memory and batch_most let run in lockstep,
 * 1 or more, when the begun requests of other cohorts are set aside. */
void swn_lane_bounds(const struct swn_lane_view *view, const struct swn_cohort *cohort, uint32_t *bound);

/* Whether the first `count` members can run the decision's group, by the rules above. */
int swn_lane_admits(const struct swn_lane_view *view, const struct swn_lane_decision *decision, uint32_t count);

/* Makes a decision one that memory admits: fewer members; or if not even the first one fits now, a request that has
 * begun instead; the caller's first member alone where no rule can hold any more. */
void swn_lane_fit(struct swn_lane_view *view, struct swn_lane_decision *decision);

#endif
