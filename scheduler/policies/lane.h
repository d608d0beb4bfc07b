/* scheduler/policies/lane.h - what a policy sees of a server, and what it decides.
 *
 * An engine is one compute lane: it runs one layer group at a time, for one request or for several in lockstep. In
 * lockstep the group runs for the first request, then for the next one, while its weights are in memory: the requests
 * share the reading and keep the bits that each has alone. A decision is made when the lane is free, and is never taken
 * back: arrivals do not interrupt a group.
 *
 * Policies are pure: state in, decision out, no clock and no I/O. Times are nanoseconds, sizes bytes. The caller owns
 * all memory; nothing is kept between calls.
 *
 * Any number is allowed in any field but for indices and counts (policy.h says which are refused): sums saturate, a
 * weight or speed that is no positive number counts as its default.
 */
#ifndef SWN_SCHEDULER_POLICIES_LANE_H
#define SWN_SCHEDULER_POLICIES_LANE_H

#include <stdint.h>

#define SWN_LANE_REQUESTS 500 /* the oldest ones; a policy looks at no more */
#define SWN_LANE_GROUPS 32    /* of a model, at most */
#define SWN_LANE_NOT_KNOWN UINT64_MAX

struct swn_lane_group {
    uint64_t compute_ns;    /* for one request, when the weights are in memory */
    uint64_t weight_bytes;  /* that the group reads */
    uint64_t missing_bytes; /* of these: not in memory now */
    uint64_t window_bytes;  /* of these: must be in memory at once when one request runs alone; 0: all of them */
    /* That a request needs while it runs the group, its states before and after included; SWN_LANE_NOT_KNOWN: nobody
     * has seen it, so a request runs the group with all memory to itself. */
    uint64_t activation_bytes;
    uint64_t state_bytes; /* that a request holds which is set aside before the group; 0 before the first one */
    uint64_t dense_bytes; /* of weight_bytes: what matrices have that are multiplied as a whole, no kernels */
    uint64_t identity;    /* equal where two models have the same operators and weights; 0: like no other */
    /* Computing for 1 .. batch_count requests at once, where they are joined into one tensor; from there on each
     * further request costs what the last one did. NULL or 0: lockstep, n requests take n times compute_ns. */
    const uint64_t *batch_ns;
    uint32_t batch_count;
};

struct swn_lane_model {
    const struct swn_lane_group *groups;
    uint32_t group_count;  /* 1 .. SWN_LANE_GROUPS */
    uint64_t output_bytes; /* that a request holds which has run its last group, until its answer is stored */
    uint64_t switch_ns;    /* what running this model costs beside its groups if the lane ran another one before */
    /* Policy dynamic: how long the oldest request waits for others to join it, and how many are not waited beyond (0:
     * batch_most of the state). */
    uint64_t batch_delay_ns;
    uint32_t batch_full;
};

struct swn_lane_request {
    uint64_t id;
    uint32_t model, group;            /* group: the one that it runs next */
    uint64_t arrived_ns, deadline_ns; /* of the state's clock; deadline 0: none */
    double weight;                    /* of its waiting time; 1 for an ordinary request */
    uint64_t job; /* where several are for one answer, which waits for all of them: the older id that it has; or 0 */
    /* The request whose result says whether this one is needed, which may run before (CA-preempt); 0: none. It is with
     * `probability`, 0..1. */
    uint64_t upstream;
    double probability;
};

/* A model that a request may come for, when one that is there has ended: what it needs first is read ahead where
 * nothing else is (CA-prefetch). */
struct swn_lane_expected {
    uint32_t model;
    double probability;
    /* By the next request, which is like the one on its way: behind all others, and only groups that are not to come
     * before that. */
    uint8_t is_again;
};

struct swn_lane_state {
    uint64_t now_ns;
    const struct swn_lane_model *models;
    uint32_t model_count;
    uint32_t last_model;                     /* that the lane ran last; model_count or more: none */
    const struct swn_lane_request *requests; /* unfinished ones, the oldest first */
    uint32_t request_count;
    double disk_bytes_per_ns; /* what reading gives while the lane computes; not above 0: reading takes no time */
    uint64_t memory_bytes;    /* for weights and activations together; 0: no bound */
    uint32_t batch_most;      /* requests in lockstep at most; 0: no bound */
    uint64_t turn_ns;         /* what a decision may cost beside its groups: see short_turn.h; 0: nothing */
    /* Policies tardy, edf and symphony: predicted times may be too short by this part of them, 0.25 say. */
    double time_error;
    const struct swn_lane_expected *expected; /* the likeliest first */
    uint32_t expected_count;
    uint64_t free_bytes; /* of memory_bytes: what nothing lies in; only the expected are read into it */
};

/* A group that the lane will run, for one request or for several in turn. */
struct swn_lane_step {
    uint32_t model, group;
};

/* A lane runs `group` of each member, in this order. Each member runs it as a group of its own model: members are of
 * several models only where the identities of all groups up to this one are equal. */
struct swn_lane_decision {
    uint32_t model, group;               /* model: that of the first member */
    uint32_t member_count;               /* 0: nothing runs now */
    uint32_t members[SWN_LANE_REQUESTS]; /* indices of requests */
    uint32_t dropped_count;
    uint32_t dropped[SWN_LANE_REQUESTS]; /* cannot be on time any more: to be forgotten before the members run */
    uint64_t wake_ns; /* when nothing runs: decide again at this time, or at the next arrival; 0: at an arrival only */
};

#endif
