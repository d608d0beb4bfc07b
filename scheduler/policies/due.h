/* scheduler/policies/due.h - the requests of a model by what is left until their deadlines. Inside this folder.
 *
 * A request that would be late even if it ran alone from now on is dropped, unless all would be: then one of them runs
 * (policy.h). One without a deadline is never dropped, and is nobody's limit; but it counts in the order as due
 * SWN_DUE_FAR times its own time after its arrival, so that requests with deadlines do not keep it waiting for ever.
 */
#ifndef SWN_SCHEDULER_POLICIES_DUE_H
#define SWN_SCHEDULER_POLICIES_DUE_H

#include "scheduler/policies/lane_view.h"

#define SWN_DUE_FAR 64

struct swn_due {
    uint32_t index, group; /* index: of requests */
    double left_ns;        /* to the deadline; infinite: none */
    double order_ns;       /* the same, for the order */
};

enum swn_due_order { SWN_DUE_FIRST, SWN_DUE_IN_GROUPS }; /* by deadline; the furthest first, in a group by deadline */

/* Those of a cohort that can be on time alone, in this order, and their number. The others are appended to the
 * decision's drops; all stay where that is NULL. */
uint32_t swn_due_list(const struct swn_lane_view *view, const struct swn_cohort *cohort, enum swn_due_order order,
                      struct swn_due *due, struct swn_lane_decision *decision);

/* What others may delay the request to, so that it is in time even if predicted times are too short by the state's
 * time_error: less than left_ns, but not less than it takes alone. */
double swn_due_safe(const struct swn_lane_view *view, const struct swn_cohort *cohort, const struct swn_due *due);

#endif
