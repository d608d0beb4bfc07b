/* scheduler/tasks/bulk.h - what Masa is compared with: Bulk and DeepEye. Neither looks at memory.
 *
 * Bulk: one network at a time, in the order of arrival. All layers are loaded, then all computed; its blocks stay until
 * it ends. With several workers layers are loaded side by side.
 *
 * DeepEye: one job at a time. One thread loads the convolutions of all of its networks, then computes them network by
 * network; another loads the dense layers of one network after the other, and computes those of a network whose
 * convolutions are done. Frugal DeepEye loads the dense layers of a network when those of the one before have computed.
 * A block is unloaded when its layer has computed. With one worker both threads take turns, convolutions first.
 */
#ifndef SWN_SCHEDULER_TASKS_BULK_H
#define SWN_SCHEDULER_TASKS_BULK_H

#include "scheduler/tasks/tasks.h"

void swn_task_bulk(const struct swn_task_state *s, struct swn_task_decision *decision);
void swn_deepeye(const struct swn_task_state *s, struct swn_task_decision *decision);
void swn_deepeye_frugal(const struct swn_task_state *s, struct swn_task_decision *decision);

#endif
