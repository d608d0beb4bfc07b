/* scheduler/simulation/random.c - see random.h: SplitMix64, and distributions made of it. */
#include "scheduler/simulation/random.h"

#include <math.h>

uint64_t swn_random_next(struct swn_random *r)
{
    uint64_t z = r->state += UINT64_C(0x9e3779b97f4a7c15);

    z = (z ^ (z >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ (z >> 27)) * UINT64_C(0x94d049bb133111eb);
    return z ^ (z >> 31);
}

double swn_random_unit(struct swn_random *r)
{
    return (double)(swn_random_next(r) >> 11) * 0x1p-53;
}

uint32_t swn_random_below(struct swn_random *r, uint32_t most)
{
    return (uint32_t)(swn_random_unit(r) * most);
}

/* Box and Muller; the second number is not used, so that each call takes the same two. */
double swn_random_normal(struct swn_random *r, double mean, double deviation)
{
    double u = 1 - swn_random_unit(r), v = swn_random_unit(r);

    return mean + deviation * sqrt(-2 * log(u)) * cos(2 * 3.14159265358979323846 * v);
}

double swn_random_exponential(struct swn_random *r, double mean)
{
    return -mean * log(1 - swn_random_unit(r));
}

double swn_random_pareto(struct swn_random *r, double mean, double shape)
{
    return mean * (shape - 1) / shape * pow(1 - swn_random_unit(r), -1 / shape);
}
