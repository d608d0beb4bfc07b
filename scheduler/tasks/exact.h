/* scheduler/tasks/exact.h - the shortest makespan of a tiny state, by branch and bound: what policies are measured by.
 *
 * A task of an optimal schedule can be moved forward until it begins at once or when another task ends. So the search
 * branches, whenever a task ends, over which tasks begin at this moment, and bounds each branch by the longest pass
 * that is left and by the work that is left for the workers. Memory is never exceeded. A block leaves when its layer
 * has computed and not before: reading one twice cannot help.
 */
#ifndef SWN_SCHEDULER_TASKS_EXACT_H
#define SWN_SCHEDULER_TASKS_EXACT_H

#include "scheduler/tasks/sandbox.h"

/* 0 and the time at which the last pass ends, of a state with copies of their own whose passes are all decided.
 * -E2BIG: more passes than a sandbox has. -EAGAIN: not known after `nodes` branches. -ENOSPC: no schedule fits. */
int swn_task_exact(const struct swn_task_state *s, uint64_t nodes, uint64_t *end_ns);

#endif
