/* scheduler/planner/simulate.h - how long a pass takes under a plan, simulated.
 *
 * One disk serves reads in order, and a read may begin when the window has room. A weight, or a slice of one, computes
 * when it has been read and its predecessor is done. The simulation runs four passes, of which the last two count, or
 * fewer where a pass leaves the window and the disk as it found them. A search simulates a hundred candidates, so the
 * memory is kept from one to the next, and a candidate that is certain to be too slow is not simulated to its end.
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

/* Memory for simulations; zero-initialised. */
struct swn_steps {
    struct swn_step *step;
    struct swn_held *held;
    size_t step_room, held_room;
};

void swn_steps_free(struct swn_steps *s);

/* Simulates one pass when weights[] say what is kept and sliced. INFINITY: the pass takes more than `limit_ns`. 0: no
 * memory. */
double swn_steps_pass(struct swn_steps *s, const struct swn_plan_weight *weights, size_t n, uint64_t window,
                      const struct swn_disk_model *disk, double limit_ns);

#endif
