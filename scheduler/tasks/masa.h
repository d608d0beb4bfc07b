/* scheduler/tasks/masa.h - Masa's scheduler as its paper prints it, and as its public code behaves.
 *
 * Paper (Algorithm 1): the first ready compute task in ascending memory that is valid, else the first such load task.
 * Valid is a task that fits the free memory, and any task when no worker is busy: there the memory limit is given up so
 * that something happens. A load task of any layer is ready from the beginning. Ties: the older pass, the lower layer.
 *
 * Paper, loads in order: the same, but a load task is ready when the layers before it are loaded.
 *
 * Code: memory is reserved for a network as a whole, when its first task begins, and given back when it ends; only that
 * first step is checked, against the reservations of the others, and by no more than that where no network is active.
 * Compute tasks are never checked. Tasks go in the order of their creation: by pass, then by layer. New passes begin in
 * the order of their networks' estimated times.
 *
 * In all of them a block is unloaded when its layer has computed.
 */
#ifndef SWN_SCHEDULER_TASKS_MASA_H
#define SWN_SCHEDULER_TASKS_MASA_H

#include "scheduler/tasks/tasks.h"

void swn_masa_paper(const struct swn_task_state *s, struct swn_task_decision *decision);
void swn_masa_ordered(const struct swn_task_state *s, struct swn_task_decision *decision);
void swn_masa_code(const struct swn_task_state *s, struct swn_task_decision *decision);

#endif
