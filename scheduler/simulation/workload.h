/* scheduler/simulation/workload.h - the arrivals of Masa's experiments (paper, 5.2 to 5.5), seeded.
 *
 * A scenario says which networks a job has and how far apart jobs arrive. Where the paper and its public code differ,
 * there are both. S is the time that a job takes alone, with memory enough (swn_workload_alone_ns).
 *
 *   fixed         each job has the listed networks, with their cascade; jobs arrive at `interval_ns`, or at E[S]/rho
 *   one-as-printed  I-a: one network, all alike likely; the mean interval is the sum of all S. The load is light
 *   one           I-b: the same, with the mean interval E[S]/rho
 *   three         the code's scenario I: three networks with replacement
 *   subset        II-a: the paper's scenario II: any set of networks that is not empty, all alike likely; the interval
 *                 is constant
 *   geometric     II-b: the code's scenario II: one network with probability 1/2, two with 1/4, ..., no network twice
 *
 * rho is the load: E[S] over the mean interval. (The code multiplies intervals by its factor: there 0.8 is the heavy
 * one.)
 */
#ifndef SWN_SCHEDULER_SIMULATION_WORKLOAD_H
#define SWN_SCHEDULER_SIMULATION_WORKLOAD_H

#include "scheduler/simulation/table.h"

enum swn_scenario {
    SWN_SCENARIO_FIXED,
    SWN_SCENARIO_ONE_AS_PRINTED,
    SWN_SCENARIO_ONE,
    SWN_SCENARIO_THREE,
    SWN_SCENARIO_SUBSET,
    SWN_SCENARIO_GEOMETRIC,
    SWN_SCENARIOS
};

enum swn_spacing {
    SWN_SPACING_OF_SCENARIO, /* constant for fixed and subset, else normal */
    SWN_SPACING_CONSTANT,
    SWN_SPACING_NORMAL, /* deviation_ns; what is below 0 counts as 0 */
    SWN_SPACING_POISSON,
    SWN_SPACING_PARETO, /* shape 1.5: its variance is infinite */
    SWN_SPACINGS
};

struct swn_workload {
    enum swn_scenario scenario;
    enum swn_spacing spacing;
    uint32_t jobs;
    uint32_t inputs;       /* of each pass */
    uint64_t interval_ns;  /* mean; 0: by rho */
    double rho;            /* above 0 */
    uint64_t deviation_ns; /* of normal spacing */
    double probability;    /* exactly this share of the jobs has results that ask for what is behind them */
    uint64_t seed;
    /* fixed: networks of a job, and the place in this list of the one that each is behind, or SWN_TABLE_NONE. The
     * others choose among the listed networks. */
    uint32_t member_count;
    uint32_t members[SWN_TABLE_NETWORKS], upstream[SWN_TABLE_NETWORKS];
};

/* Time of a network alone, with memory enough: its layers are read one after the other while those before compute. */
uint64_t swn_workload_alone_ns(const struct swn_task_network *network, double disk_bytes_per_ns, uint32_t inputs);

/* 0; -EINVAL: a field is out of range; -ENOMEM. */
int swn_workload_make(const struct swn_network_table *networks, const struct swn_workload *how,
                      double disk_bytes_per_ns, struct swn_arrival_table *out);

/* Names as above; -EINVAL: no such name. */
int swn_scenario_parse(const char *name, enum swn_scenario *out);
int swn_spacing_parse(const char *name, enum swn_spacing *out);

#endif
