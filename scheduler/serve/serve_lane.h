/* scheduler/serve/serve_lane.h - what an engine runs next: the queue and the models, as a policy sees them.
 *
 * An engine is the compute lane of scheduler/policies/lane.h. When it has run all that it was told to, the policy
 * chooses a layer group and the requests that run it in turn. For one thread.
 */
#ifndef SWN_SCHEDULER_SERVE_SERVE_LANE_H
#define SWN_SCHEDULER_SERVE_SERVE_LANE_H

#include "scheduler/policies/policy.h"
#include "scheduler/policies/server.h"
#include "scheduler/serve/group_times.h"
#include "scheduler/serve/serve_queue.h"

#define SWN_LANE_EXPECTED 16 /* models that may be asked for next, at most */

/* What the lane knows of a model. */
struct swn_lane_served {
    const struct swn_group_times *times;
    uint64_t weight_bytes;
    uint64_t batch_delay_ns; /* policy dynamic: scheduler/policies/lane.h */
    uint32_t batch_full;
    uint32_t batch_most; /* samples that the engine may join: max_batch_size; 0: none */
};

struct swn_serve_lane; /* memory for decisions, which the serving thread has one of */

/* time_error: that of scheduler/policies/lane.h. NULL: no memory. */
struct swn_serve_lane *swn_serve_lane_new(enum swn_lane_policy policy, double time_error);
void swn_serve_lane_free(struct swn_serve_lane *lane);

/* Of the engine that decides. */
struct swn_lane_engine {
    unsigned number;
    uint64_t memory_bytes;
    uint64_t read_total; /* bytes that it has read in all */
    uint32_t last_model; /* that it ran last */
    double disk_bytes_per_ns;
    /* Models that requests may come for soon, by their numbers, the likeliest first; and how much of memory nothing
     * lies in. Nothing is expected where `expected_count` is 0. */
    struct swn_lane_expected expected[SWN_LANE_EXPECTED];
    uint32_t expected_count;
    uint64_t free_bytes;
};

struct swn_lane_choice {
    unsigned count, dropped_count;
    struct swn_serve_item *items[SWN_LANE_TURNS];      /* run their next group, which is one group of one model */
    struct swn_serve_item *dropped[SWN_LANE_REQUESTS]; /* cannot be on time any more */
    uint64_t wake_ns;                                  /* nothing runs: ask again at this time; 0: at the next event */
    struct swn_wire_step foretold[SWN_WIRE_STEPS];     /* what runs behind the items, by the numbers of models */
    unsigned foretold_count;
};

/* `models`: of the numbers that items have. Nothing is chosen while the engine runs what it was told. */
void swn_serve_lane_choose(struct swn_serve_lane *lane, const struct swn_serve_queue *q,
                           const struct swn_lane_engine *engine,
                           struct swn_lane_served (*model)(void *user, uint32_t number), void *user, uint64_t now_ns,
                           struct swn_lane_choice *choice);

/* How many of the items behind the turn-th run the same group of the same model, and may be joined with it. samples: of
 * each item. */
uint32_t swn_serve_lane_following(const struct swn_lane_choice *choice, unsigned turn, uint32_t batch_most,
                                  uint64_t (*samples)(const struct swn_serve_item *item));

/* What the engine runs behind the turn-th of the items, if nothing else comes: room for SWN_WIRE_STEPS. Returns how
 * many. Where all weights are in memory no more is foretold than the items. */
uint32_t swn_serve_lane_behind(const struct swn_lane_choice *choice, unsigned turn, struct swn_wire_step *steps);

/* How long a request for model `number` that came now would take, as far as can be foreseen. 0: not known, as what has
 * begun is not to be shared with, or there is no answer. */
uint64_t swn_serve_lane_wait_ns(struct swn_serve_lane *lane, const struct swn_serve_queue *q,
                                const struct swn_lane_engine *engine,
                                struct swn_lane_served (*model)(void *user, uint32_t number), void *user,
                                uint32_t number, uint64_t now_ns);

#endif
