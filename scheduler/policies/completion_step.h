/* scheduler/policies/completion_step.h - the first step of a completion-time plan, looked at once more.
 *
 * A plan is made anew after each step, so what is decided is a step: a group, and how many of the requests there run
 * it. The best plan's own first step is one of few. Another step, followed by the best plan from there, may cost less
 * than the best plan: plans are FIFO segmentations, steps need not be. So each step is tried where there are few
 * requests; that leaves a third of what the plans are above the optimum, in the mean and in the worst case.
 */
#ifndef SWN_SCHEDULER_POLICIES_COMPLETION_STEP_H
#define SWN_SCHEDULER_POLICIES_COMPLETION_STEP_H

#include "scheduler/policies/completion.h"

#define SWN_STEP_REQUESTS 24 /* plans for as many take some ten microseconds in all */

struct swn_step {
    uint32_t problem, group, count; /* the first `count` of the requests of that problem at that group */
};

/* Of several models that have SWN_STEP_REQUESTS requests or fewer, and at least one: the step after which the best
 * plans of all, in the order of several.h, come to least. switch_ns[p]: of problem p, unless it is `current`. *total:
 * what the step and the plans cost, never more than the plans alone. */
struct swn_step swn_completion_step(const struct swn_completion *problems, const double *switch_ns, uint32_t count,
                                    uint32_t current, struct swn_completion_room *room, double *total);

#endif
