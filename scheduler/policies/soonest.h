/* scheduler/policies/soonest.h - the least total completion time where that keeps everybody on time. Inside this
 * folder.
 *
 * A plan that only counts who is late makes batches as large as deadlines allow, and ends each of them as late: what
 * comes next, or takes longer than expected, makes it late. The plan of completion.h ends requests as early as it can.
 * But it makes smaller batches, with which the lane does less in all. So it decides only while there is much time left:
 * all requests have to end in a part of the time that they have.
 */
#ifndef SWN_SCHEDULER_POLICIES_SOONEST_H
#define SWN_SCHEDULER_POLICIES_SOONEST_H

#include <stdint.h>

#define SWN_SOONEST_PART 2 /* in half of their time */

struct swn_lane_decision;
struct swn_lane_scratch;

/* Of each cohort of the view there are count[c] requests in FIFO order, from x->due[cohort->first] on. 1, and who runs
 * first: in the plan all of them end in that part of their time, even if times are too short by the state's time_error.
 * 0: they do not, or there are none; the decision is as it was. */
int swn_decide_soonest(struct swn_lane_scratch *x, const uint32_t *count, struct swn_lane_decision *decision);

#endif
