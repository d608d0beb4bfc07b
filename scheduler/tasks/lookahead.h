/* scheduler/tasks/lookahead.h - swapnet's own policy.
 *
 * Where Masa takes the task with the smallest need, this one compares whole schedules. It tries each task that could
 * begin now, and waiting, and behind each of them runs a few rules to the end (sandbox.h): layers are loaded in their
 * order, the leader is the job with the least remaining time by its weight (Smith's ratio), and clean blocks are
 * dropped where the leader needs room. The task with the best schedule begins. A rule's own first step is always among
 * those tried, so a schedule once found is never left for a worse one.
 *
 * Memory is never exceeded as far as needs are known: what does not fit does not begin, and no pass begins that could
 * keep others from ending (banker's rule over activations).
 *
 * In cascades a pass whose upstream has not ended is not planned for. Under SWN_CASCADE_PREFETCH blocks are
 * loaded when nothing else is left to be loaded, into free memory, the likely passes first: the first block, and where
 * a yes is as likely as a no those behind it. They count as spare.
 */
#ifndef SWN_SCHEDULER_TASKS_LOOKAHEAD_H
#define SWN_SCHEDULER_TASKS_LOOKAHEAD_H

#include "scheduler/tasks/sandbox.h"

/* Effort of a decision: so many tasks may begin in its schedules, all together; milliseconds at most. */
#define SWN_LOOKAHEAD_STEPS 2500

struct swn_task_schedule;

/* From this probability on more than the first block of a pass is prefetched (CA-prefetch). */
#define SWN_TASK_LIKELY 0.5
/* Of a pass that is needed with this probability: so many of its first layers are prefetched. */
uint32_t swn_task_prefetched(double probability, uint32_t layers);

void swn_task_lookahead(const struct swn_task_state *s, enum swn_task_objective objective, uint32_t steps,
                        struct swn_task_decision *decision);

/* The best schedule itself, appended: its first step is what swn_task_lookahead decides, but for drops before it. Where
 * no schedule ends, as memory seems to be too small, nothing is. */
void swn_task_lookahead_schedule(const struct swn_task_state *s, enum swn_task_objective objective, uint32_t steps,
                                 struct swn_task_schedule *schedule);

#endif
