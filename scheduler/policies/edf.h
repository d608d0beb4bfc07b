/* scheduler/policies/edf.h - earliest deadline first, with batches (edge-serving paper, 4.2). Inside this folder.
 *
 * Requests are taken by deadline, of the model of the first one. Each is added to the batch if all members of the batch
 * are then still on time. The paper says "all jobs scheduled so far"; what follows the batch is not scheduled yet, so
 * these are its members. A batch is a set: its least advanced members begin, and the others join. Who is late even
 * alone is dropped.
 */
#ifndef SWN_SCHEDULER_POLICIES_EDF_H
#define SWN_SCHEDULER_POLICIES_EDF_H

#include "scheduler/policies/lane.h"

struct swn_lane_scratch;

void swn_decide_edf(struct swn_lane_scratch *x, struct swn_lane_decision *decision);

#endif
