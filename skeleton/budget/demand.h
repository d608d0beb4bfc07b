/* skeleton/budget/demand.h - what this process says of itself to the daemon that divides memory. */
#ifndef SWN_SKELETON_BUDGET_DEMAND_H
#define SWN_SKELETON_BUDGET_DEMAND_H

#include <stddef.h>
#include <stdint.h>

#include "scheduler/protocol/wire.h"

struct swn_demand {
    uint64_t minimum, demand, weights, resident;
    double latency; /* seconds of a pass with all of it in memory; 0: not known yet */
    uint64_t plans; /* changes with every new plan, and when the one in force stays that of another machine */
    size_t points;
    struct swn_divide_point curve[SWN_WIRE_POINTS];
};

/* Everything but the curve, which stays as it is. Cheap. Once a second `settle` lets the memory of a peak that has not
 * come back fade. */
void swn_demand_read(struct swn_demand *n, int settle);
/* The predicted latency at some budgets between minimum and demand: some plans' worth of computing, without any lock.
 * points is 0 while there is no plan. */
void swn_demand_curve(struct swn_demand *n);

#endif
