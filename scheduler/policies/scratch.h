/* scheduler/policies/scratch.h - what a decision works in, and the chains of models. Inside this folder. */
#ifndef SWN_SCHEDULER_POLICIES_SCRATCH_H
#define SWN_SCHEDULER_POLICIES_SCRATCH_H

#include "scheduler/policies/completion.h"
#include "scheduler/policies/completion_exact.h"
#include "scheduler/policies/completion_step.h"
#include "scheduler/policies/due.h"
#include "scheduler/policies/lane_tasks.h"
#include "scheduler/policies/lane_view.h"
#include "scheduler/policies/several.h"
#include "scheduler/policies/tardy.h"

#define SWN_FORETOLD_MODELS 16 /* of which it is foreseen that weights are in memory */

/* What foretelling works in. */
struct swn_foretelling {
    struct swn_lane_decision decision;
    struct swn_lane_model models[SWN_LANE_REQUESTS];
    struct swn_lane_group groups[SWN_FORETOLD_MODELS][SWN_LANE_GROUPS];
    uint32_t copy_of[SWN_FORETOLD_MODELS]; /* whose groups these are */
};

/* A state of the requests that have begun alone. */
struct swn_begun {
    struct swn_lane_state state;
    struct swn_lane_request requests[SWN_LANE_REQUESTS];
    uint32_t index[SWN_LANE_REQUESTS]; /* in the whole state */
    struct swn_lane_decision decision;
};

struct swn_lane_scratch {
    struct swn_lane_view view;
    double time[SWN_LANE_GROUPS * (SWN_LANE_REQUESTS + 1)];
    uint32_t bound[SWN_LANE_GROUPS];
    struct swn_completion_room room;
    struct swn_segment segments[SWN_LANE_REQUESTS];
    struct swn_chain chains[SWN_LANE_REQUESTS];
    struct swn_exact_room exact;
    struct swn_tardy_room tardy;
    struct swn_due due[2 * SWN_LANE_REQUESTS];
    struct swn_lane_request requests[SWN_LANE_REQUESTS]; /* of a state with one more, or of one to come */
    struct swn_foretelling foretelling;
    struct swn_lane_tasks tasks;
    struct swn_begun begun;
};

/* chains[c] of each cohort of the view: by the completion-time plan, or for a size that is not 0 in segments of at most
 * so many. The cohort of the model that the lane ran last, or SWN_CHAIN_NONE. */
uint32_t swn_lane_chains(struct swn_lane_scratch *x, uint32_t size);

#endif
