/* scheduler/policies/lane_tasks.h - the policies over load and compute tasks (scheduler/tasks), as policies of a lane.
 * Inside this folder.
 *
 * A layer group is a layer, a request is a pass, requests of one job are a job. The lane is the only worker, and a
 * reader beside it loads what is foretold. The policy makes its schedule from this state on; what it computes first is
 * what the lane runs, and what it loads meanwhile is foretold, in its order. docs/design/scheduling.md says what of the
 * policies an engine does otherwise.
 */
#ifndef SWN_SCHEDULER_POLICIES_LANE_TASKS_H
#define SWN_SCHEDULER_POLICIES_LANE_TASKS_H

#include "scheduler/policies/lane.h"
#include "scheduler/tasks/schedule.h"

struct swn_lane_scratch;

/* What a decision works in. Passes are of the oldest requests. */
struct swn_lane_tasks {
    struct swn_task_layer layers[SWN_SCHEDULE_PASSES][SWN_LANE_GROUPS];
    struct swn_task_network networks[SWN_SCHEDULE_PASSES];
    struct swn_task_pass passes[SWN_SCHEDULE_PASSES];
    struct swn_task_copy copies[SWN_SCHEDULE_PASSES];
    uint32_t requests[SWN_SCHEDULE_PASSES]; /* of passes[] */
    uint32_t models[SWN_SCHEDULE_PASSES];   /* of networks[] */
    struct swn_task_schedule schedule;
};

void swn_decide_tasks(struct swn_lane_scratch *x, enum swn_task_policy policy, struct swn_lane_decision *decision);

/* What swn_lane_foretell says under such a policy. The view is of the state. */
uint32_t swn_tasks_foretell(struct swn_lane_scratch *x, enum swn_task_policy policy,
                            const struct swn_lane_decision *decision, struct swn_lane_step *steps, uint32_t most);

#endif
