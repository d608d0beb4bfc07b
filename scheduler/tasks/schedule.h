/* scheduler/tasks/schedule.h - what a policy does from a state on, if no more passes come: for a machine that is told
 * ahead what to read, as a server's engine is. */
#ifndef SWN_SCHEDULER_TASKS_SCHEDULE_H
#define SWN_SCHEDULER_TASKS_SCHEDULE_H

#include "scheduler/tasks/policy.h"

#define SWN_SCHEDULE_PASSES 32
#define SWN_SCHEDULE_EVENTS 64

/* A load or a compute task begins. */
struct swn_task_event {
    uint64_t begin_ns;
    enum swn_task_kind kind;
    uint32_t pass, layer; /* pass: index in the state that the schedule is of */
};

struct swn_task_schedule {
    uint32_t count; /* in the order in which they begin; those behind the first SWN_SCHEDULE_EVENTS are left out */
    struct swn_task_event events[SWN_SCHEDULE_EVENTS];
};

/* Appends an event where the schedule has room. Drops are none. */
static inline void swn_task_note(struct swn_task_schedule *schedule, const struct swn_task_decision *d, uint32_t pass,
                                 uint32_t layer, uint64_t now_ns)
{
    if ((d->kind == SWN_TASK_LOAD || d->kind == SWN_TASK_COMPUTE) && schedule->count < SWN_SCHEDULE_EVENTS)
        schedule->events[schedule->count++] = (struct swn_task_event){now_ns, d->kind, pass, layer};
}

/* Of lookahead: its best schedule, as far as there is room. Of the others: all that begins before the first compute
 * task has ended, as they do not plan further. The state, of at most SWN_SCHEDULE_PASSES passes, is used up. A policy
 * that finds nothing to compute leaves a schedule without compute tasks. */
void swn_task_schedule(enum swn_task_policy policy, struct swn_task_state *state, uint32_t steps,
                       struct swn_task_schedule *schedule);

#endif
