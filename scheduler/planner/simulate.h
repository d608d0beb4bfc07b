/* scheduler/planner/simulate.h - how long a pass takes under a plan, simulated.
 *
 * Reads are served in order by one disk and may begin when the window has room; a weight, or a slice of one, computes
 * when it is there and its predecessor is done. Four passes, of which the last two count, or fewer where one leaves the
 * window and the disk as it found them. A search simulates a hundred candidates, so what they need of memory is kept
 * from one to the next, and one that is certain to be too slow is not followed to its end.
 *
 * Not thread-safe: a swn_steps belongs to one caller. Times in nanoseconds.
 */
#ifndef SWN_SCHEDULER_PLANNER_SIMULATE_H
#define SWN_SCHEDULER_PLANNER_SIMULATE_H

#include <stddef.h>
#include <stdint.h>

#include "scheduler/planner/plan.h"

struct swn_step;
struct swn_held;

/* Room for simulations; all zero to begin with. */
struct swn_steps {
    struct swn_step *step;
    struct swn_held *held;
    size_t step_room, held_room;
};

void swn_steps_free(struct swn_steps *s);

/* One pass under what weights[] say is kept and sliced. INFINITY: more than `limit_ns`, however the rest goes. 0: there
 * is no memory to find out. */
double swn_steps_pass(struct swn_steps *s, const struct swn_plan_weight *weights, size_t n, uint64_t window,
                      const struct swn_disk_model *disk, double limit_ns);

#endif
