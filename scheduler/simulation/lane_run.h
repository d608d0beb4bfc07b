/* scheduler/simulation/lane_run.h - a server's lane under a load, event by event: what would be with that much memory.
 *
 * Requests come at random, the real policy decides what runs, within the server's bounds (server.h), and a group takes
 * the time that the policy expects (scheduler/policies/curves.h). Weights that were read stay until others need their
 * place, the least recently used ones first; a real engine also keeps some by plan, and reads ahead, so it is rather
 * faster. Pure: no clock, no I/O; the same seed gives the same outcome.
 */
#ifndef SWN_SCHEDULER_SIMULATION_LANE_RUN_H
#define SWN_SCHEDULER_SIMULATION_LANE_RUN_H

#include "scheduler/policies/policy.h"

/* More requests than this are refused, as a server's queue has an end. */
#define SWN_LANE_RUN_QUEUE 1024
/* Requests of a run at most: one that would have more ends earlier. */
#define SWN_LANE_RUN_REQUESTS 1000000
#define SWN_LANE_RUN_MODELS 1024
/* A group's bytes and times at most, so that no sum of them wraps. */
#define SWN_LANE_RUN_MOST (UINT64_C(1) << 46)

enum swn_lane_spacing {
    SWN_LANE_POISSON,
    SWN_LANE_PARETO, /* of alpha 1.5: long pauses, and crowds */
    SWN_LANE_CONSTANT,
    SWN_LANE_SPACINGS
};

struct swn_lane_load {
    struct swn_lane_model model;
    double rate_per_s;    /* above 0 */
    uint64_t deadline_ns; /* after its arrival; 0: none */
};

struct swn_lane_run {
    const struct swn_lane_load *loads;
    uint32_t count; /* 1 .. SWN_LANE_RUN_MODELS */
    enum swn_lane_policy policy;
    uint64_t memory_bytes; /* for weights and activations; 0: all fit */
    double disk_bytes_per_ns;
    uint64_t duration_ns; /* in which requests come */
    uint64_t seed;
    enum swn_lane_spacing spacing;
    /* What the policy believes of the disk and of each group's computing is more or less than is true, by this part of
     * it at most: 0.25, say. 0: it knows the times. */
    double time_error;
    uint32_t batch_most; /* requests in lockstep at most; 0: as many as the server lets (SWN_LANE_TURNS) */
};

/* Of one model. */
struct swn_lane_outcome {
    uint64_t arrived, done, late, dropped, refused; /* late: done after the deadline */
    uint64_t batches, members;                      /* groups that ran, and requests in them */
    double mean_ns, p50_ns, p95_ns, p99_ns;         /* from arrival to end, of those that were done */
    double resident_bytes;                          /* its weights in memory, over time */
};

struct swn_lane_totals {
    uint64_t span_ns; /* to the end of the last request */
    uint64_t busy_ns, read_bytes;
};

/* outcomes: one for each load. 0; -EINVAL: a number is out of range; -ENOMEM. */
int swn_lane_run(const struct swn_lane_run *run, struct swn_lane_outcome *outcomes, struct swn_lane_totals *totals);

#endif
