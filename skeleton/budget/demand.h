/* skeleton/budget/demand.h - the report of this process to the daemon that divides memory. */
#ifndef SWN_SKELETON_BUDGET_DEMAND_H
#define SWN_SKELETON_BUDGET_DEMAND_H

#include <stddef.h>
#include <stdint.h>

#include "scheduler/protocol/wire.h"

struct swn_demand {
    uint64_t minimum, demand, weights, resident;
    double latency; /* seconds of a pass with all its memory; 0: not known yet */
    uint64_t plans; /* changes with every new plan, and when a review keeps the plan for a changed machine */
    size_t points;
    struct swn_divide_point curve[SWN_WIRE_POINTS];
};

/* Fills in everything but the curve, which stays as it is. Cheap. Called with `settle` once a second, which lets the
 * memory of a past peak fade. */
void swn_demand_read(struct swn_demand *n, int settle);
/* The predicted latency at some budgets between minimum and demand: takes as long as some plans, without any lock.
 * points is 0 while there is no plan. */
void swn_demand_curve(struct swn_demand *n);

#endif
