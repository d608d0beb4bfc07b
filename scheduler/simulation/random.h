/* scheduler/simulation/random.h - seeded random numbers: the same series from the same seed on every machine whose
 * libm rounds alike. */
#ifndef SWN_SCHEDULER_SIMULATION_RANDOM_H
#define SWN_SCHEDULER_SIMULATION_RANDOM_H

#include <stdint.h>

struct swn_random {
    uint64_t state;
};

uint64_t swn_random_next(struct swn_random *r);
double swn_random_unit(struct swn_random *r);                   /* in [0, 1) */
uint32_t swn_random_below(struct swn_random *r, uint32_t most); /* 0 .. most - 1; most is not 0 */
double swn_random_normal(struct swn_random *r, double mean, double deviation);
double swn_random_exponential(struct swn_random *r, double mean);
/* Pareto's distribution with this shape, which is above 1, and mean. */
double swn_random_pareto(struct swn_random *r, double mean, double shape);

#endif
