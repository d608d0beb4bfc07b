/* scheduler/tasks/policy.c - see policy.h. */
#include "scheduler/tasks/policy.h"

#include <errno.h>
#include <string.h>

#include "scheduler/tasks/bulk.h"
#include "scheduler/tasks/lookahead.h"
#include "scheduler/tasks/masa.h"

static const struct {
    const char *name;
    void (*decide)(const struct swn_task_state *, struct swn_task_decision *);
} policies[SWN_TASK_POLICIES] = {
    [SWN_TASK_MASA] = {"masa", swn_masa_paper},
    [SWN_TASK_MASA_ORDERED] = {"masa-ordered", swn_masa_ordered},
    [SWN_TASK_MASA_CODE] = {"masa-code", swn_masa_code},
    [SWN_TASK_BULK] = {"bulk", swn_task_bulk},
    [SWN_TASK_DEEPEYE] = {"deepeye", swn_deepeye},
    [SWN_TASK_DEEPEYE_FRUGAL] = {"deepeye-frugal", swn_deepeye_frugal},
    [SWN_TASK_LOOKAHEAD] = {"lookahead", NULL},
};

const char *swn_task_policy_name(enum swn_task_policy policy)
{
    return (unsigned)policy < SWN_TASK_POLICIES ? policies[policy].name : "?";
}

int swn_task_policy_parse(const char *name, enum swn_task_policy *out)
{
    for (unsigned p = 0; p < SWN_TASK_POLICIES; p++)
        if (!strcmp(policies[p].name, name)) {
            *out = p;
            return 0;
        }
    return -EINVAL;
}

static const char *const cascades[] = {
    [SWN_CASCADE_IGNORE] = "ignore",
    [SWN_CASCADE_WAIT] = "wait",
    [SWN_CASCADE_PREEMPT] = "preempt",
    [SWN_CASCADE_PREFETCH] = "prefetch",
};
#define CASCADES (sizeof cascades / sizeof *cascades)

const char *swn_task_cascade_name(enum swn_task_cascade cascade)
{
    return (unsigned)cascade < CASCADES ? cascades[cascade] : "?";
}

int swn_task_cascade_parse(const char *name, enum swn_task_cascade *out)
{
    for (unsigned c = 0; c < CASCADES; c++)
        if (!strcmp(cascades[c], name)) {
            *out = c;
            return 0;
        }
    return -EINVAL;
}

int swn_task_policy_is_bounded(enum swn_task_policy policy)
{
    return policy == SWN_TASK_LOOKAHEAD;
}

struct swn_task_decision swn_task_decide(enum swn_task_policy policy, enum swn_task_objective objective,
                                         const struct swn_task_state *state)
{
    struct swn_task_decision d = {0};

    if (policy == SWN_TASK_LOOKAHEAD)
        swn_task_lookahead(state, objective, SWN_LOOKAHEAD_STEPS, &d);
    else
        policies[policy].decide(state, &d);
    return d;
}
