/* scheduler/policies/edf.h - earliest deadline first, with batches (edge-serving paper, 4.2). Inside this folder.
 *
 * Requests are taken by deadline, of the model of the first one. Each is added to the batch if all members of the batch
 * are then still on time. The paper says "all jobs scheduled so far"; what follows the batch is not scheduled yet, so
 * these are its members. A batch is a set: its least advanced members begin, and the others join. Who is late even
 * alone is dropped.
 */
#ifndef SWN_SCHEDULER_POLICIES_EDF_H
#define SWN_SCHEDULER_POLICIES_EDF_H

#include "scheduler/policies/completion.h"
#include "scheduler/policies/lane.h"

struct swn_lane_scratch;

/* The batch of one model: of the requests of the problem, which `by_due` has by deadline, all that are on time in it.
 * left: to each one's deadline, or infinity. Marks who is in it, and returns what it takes. */
double swn_edf_batch(const struct swn_completion *c, const uint32_t *by_due, const double *left, uint8_t *is_in);

void swn_decide_edf(struct swn_lane_scratch *x, struct swn_lane_decision *decision);

#endif
