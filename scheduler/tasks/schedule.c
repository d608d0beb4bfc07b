/* scheduler/tasks/schedule.c - see schedule.h. */
#include "scheduler/tasks/schedule.h"

#include "scheduler/tasks/lookahead.h"
#include "scheduler/tasks/state.h"

/* Ends of tasks before something must have computed: each layer is loaded at most once. */
#define ENDS_MOST (SWN_SCHEDULE_PASSES * SWN_TASK_LAYERS)

/* All that begins at this moment. When the first compute task ends is known then: *end_ns. */
static void settle(enum swn_task_policy policy, struct swn_task_state *s, struct swn_task_schedule *schedule,
                   uint64_t *end_ns)
{
    struct swn_task_decision d;

    while ((d = swn_task_decide(policy, SWN_TASK_RESPONSE, s)).kind) {
        uint32_t layer = d.kind == SWN_TASK_COMPUTE ? s->passes[d.pass].next_layer : d.layer;

        swn_task_note(schedule, &d, d.pass, layer, s->now_ns);
        if (d.kind == SWN_TASK_COMPUTE && *end_ns == SWN_TASK_NEVER)
            *end_ns = s->now_ns + swn_task_compute_ns(s, &s->passes[d.pass]);
        swn_task_apply(s, &d);
    }
}

void swn_task_schedule(enum swn_task_policy policy, struct swn_task_state *s, uint32_t steps,
                       struct swn_task_schedule *schedule)
{
    uint64_t end_ns = SWN_TASK_NEVER;

    schedule->count = 0;
    if (policy == SWN_TASK_LOOKAHEAD) {
        swn_task_lookahead_schedule(s, SWN_TASK_RESPONSE, steps, schedule);
        return;
    }
    for (uint32_t ends = 0; ends < ENDS_MOST; ends++) {
        uint64_t next;

        settle(policy, s, schedule, &end_ns);
        next = swn_task_next_ns(s);
        if (next == SWN_TASK_NEVER || next >= end_ns)
            return;
        swn_task_advance(s, next);
    }
}
