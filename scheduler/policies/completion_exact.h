/* scheduler/policies/completion_exact.h - the least total weighted completion time of all schedules there are, for few
 * requests.
 *
 * The plan of completion.h is the best FIFO segmentation: a segment runs to its end once it has begun (Lemma 1 of the
 * edge-serving paper). Lemma 1 rests on curves that grow slowly. Where a group costs the larger of computing and
 * reading, leaving FIFO order pays: in tests/unit/scheduler/policies/t_completion_exact.c the plan is some 2 % above
 * this optimum.
 *
 * Requests of one model and weight at one group are alike, so the state is how many are where, and the optimum is a
 * shortest path: a step runs k of the requests at a group, costs the weight of all unfinished requests times f[g][k],
 * and k of them move on. At one group the heavier go first; what they do afterwards, the others could have done.
 * With 12 requests of one model in 5 groups there are 6188 states.
 *
 * Pure; the waits of such a schedule are not bounded by FIFO order, but by the factor of age (lane_view.h).
 */
#ifndef SWN_SCHEDULER_POLICIES_COMPLETION_EXACT_H
#define SWN_SCHEDULER_POLICIES_COMPLETION_EXACT_H

#include "scheduler/policies/completion.h"

#define SWN_EXACT_REQUESTS 12
#define SWN_EXACT_STATES 8192 /* a decision takes some milliseconds with as many */

/* Room for one call; zeroed once, before the first one. */
struct swn_exact_room {
    struct {
        uint64_t counts[2];
        double cost;
        uint64_t round; /* an entry of another round is empty */
    } entry[2 * SWN_EXACT_STATES];
    uint64_t round;
};

struct swn_exact_step {
    uint32_t problem, group, count; /* `count` of the requests of that problem at that group, the heaviest ones */
};

/* The first step of the best schedule of several models' requests, and its cost. 0; -E2BIG: too many requests, weights,
 * models or groups. */
int swn_exact_plan(const struct swn_completion *problems, uint32_t count, struct swn_exact_room *room,
                   struct swn_exact_step *step, double *total);

#endif
