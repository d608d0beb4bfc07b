/* scheduler/tasks/policy.h - the policies over load and compute tasks by name. */
#ifndef SWN_SCHEDULER_TASKS_POLICY_H
#define SWN_SCHEDULER_TASKS_POLICY_H

#include "scheduler/tasks/sandbox.h"

enum swn_task_policy {
    SWN_TASK_MASA,           /* Algorithm 1 of the paper (masa.h, as the next two) */
    SWN_TASK_MASA_ORDERED,   /* the same, loads in the order of layers */
    SWN_TASK_MASA_CODE,      /* as its public code behaves */
    SWN_TASK_BULK,           /* one network after the other (bulk.h, as the next two) */
    SWN_TASK_DEEPEYE,        /* convolutions and dense layers apart */
    SWN_TASK_DEEPEYE_FRUGAL, /* the same, dense layers of one network at a time */
    SWN_TASK_LOOKAHEAD,      /* swapnet's own (lookahead.h) */
    SWN_TASK_POLICIES
};

/* "masa", "masa-ordered", ...; "?" for anything else. Static. */
const char *swn_task_policy_name(enum swn_task_policy policy);
/* 0 and *out; -EINVAL: no such name. */
int swn_task_policy_parse(const char *name, enum swn_task_policy *out);
/* Do its passes share blocks, and does it keep to the memory that is really free? */
int swn_task_policy_is_bounded(enum swn_task_policy policy);

/* "ignore", "wait", "preempt", "prefetch"; "?" for anything else. Static. */
const char *swn_task_cascade_name(enum swn_task_cascade cascade);
/* 0 and *out; -EINVAL: no such name. */
int swn_task_cascade_parse(const char *name, enum swn_task_cascade *out);

/* The next step; SWN_TASK_NONE: nothing until a task ends or a job arrives. Only SWN_TASK_LOOKAHEAD looks at the
 * objective. */
struct swn_task_decision swn_task_decide(enum swn_task_policy policy, enum swn_task_objective objective,
                                         const struct swn_task_state *state);

#endif
