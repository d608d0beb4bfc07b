/* scheduler/planner/plan_pieces.h - where a weight is cut, and which of its pieces stay, under a plan.
 *
 * A weight that its operator takes whole has a kept head and a streamed tail, which comes in pieces or at once. A
 * weight that its operator takes in slices has kept and streamed slices in turns, spread evenly in groups of a few MiB:
 * while a kept slice computes the next one is read, so neither the disk nor the operator waits for long, and the window
 * need not hold all that the disk could bring during a long head. The slices do not depend on how much is kept. Of two
 * plans with the same slices, the one that keeps more bytes keeps all that the other one keeps; with slices of another
 * length, most of them.
 *
 * Pure functions of their arguments; offsets in bytes from the weight's start.
 */
#ifndef SWN_SCHEDULER_PLANNER_PLAN_PIECES_H
#define SWN_SCHEDULER_PLANNER_PLAN_PIECES_H

#include "scheduler/planner/plan.h"

/* Whether the weight is cut at `at`. The last piece is never smaller than the others, but up to twice as large: math
 * libraries compute very small products in another way, with other bits. */
int swn_plan_cuts(const struct swn_plan_weight *weight, uint64_t at);

/* The first cut after `at`, or weight->bytes. */
uint64_t swn_plan_next_cut(const struct swn_plan_weight *weight, uint64_t at);

/* Whether all of from..to is kept. `to` may be beyond the end. */
int swn_plan_keeps(const struct swn_plan_weight *weight, uint64_t from, uint64_t to);

#endif
