/* scheduler/policies/short_turn.h - further requests for a turn that is shorter than its way. Inside this folder.
 *
 * Each decision goes to the engine and back, which wakes two processes, however little its group computes. So a turn
 * that takes less than the state's turn_ns is filled up to that with further requests that wait for the same group of
 * the same model, the oldest first: no other request waits longer than turn_ns for it. Policies need not know.
 */
#ifndef SWN_SCHEDULER_POLICIES_SHORT_TURN_H
#define SWN_SCHEDULER_POLICIES_SHORT_TURN_H

#include "scheduler/policies/lane_view.h"

void swn_short_turn_fill(const struct swn_lane_view *view, struct swn_lane_decision *decision);

#endif
