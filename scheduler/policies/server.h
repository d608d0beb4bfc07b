/* scheduler/policies/server.h - what swapnet-serve says of itself in each state that it asks a policy about. The
 * simulated lane says the same, so that what it foretells is what the server does. */
#ifndef SWN_SCHEDULER_POLICIES_SERVER_H
#define SWN_SCHEDULER_POLICIES_SERVER_H

#include <stdint.h>

/* Requests that take turns in a group at most: each holds its state. batch_most of the state. */
#define SWN_LANE_TURNS 32
/* turn_ns of the state. The way to the engine and back takes a fifth or a half of this, and no client sees it. */
#define SWN_LANE_TURN_NS UINT64_C(200000)
/* time_error of the state in per cent, where --time-error says nothing else. */
#define SWN_LANE_TIME_ERROR_PERCENT 25
/* Engines divide models so that a group has as much of their budget at most, where it can be divided. */
#define SWN_LANE_WINDOW_PART 8

/* window_bytes of a group. An engine that has `memory_bytes` streams the weights of a group that one request runs
 * alone: so many of them need room at once. */
static inline uint64_t swn_lane_window(uint64_t weight_bytes, uint64_t memory_bytes)
{
    uint64_t part = memory_bytes / SWN_LANE_WINDOW_PART;

    return part && part < weight_bytes ? part : weight_bytes;
}

#endif
