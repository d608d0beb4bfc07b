/* tests/unit/support/lane_fixture.h - states of a lane at random, and a lane that does what a policy decides. */
#ifndef SWN_TESTS_UNIT_SUPPORT_LANE_FIXTURE_H
#define SWN_TESTS_UNIT_SUPPORT_LANE_FIXTURE_H

#include "scheduler/policies/lane.h"

#define LANE_MODELS 6
#define LANE_FIXTURE_REQUESTS 520

struct lane_scene {
    struct swn_lane_state state;
    struct swn_lane_model models[LANE_MODELS];
    struct swn_lane_group groups[LANE_MODELS][SWN_LANE_GROUPS];
    struct swn_lane_request requests[LANE_FIXTURE_REQUESTS];
    uint64_t next_id;
    /* What has happened. */
    double weighted_ns;          /* sum over requests that ended: weight * time since arrival */
    uint32_t ended, late, drops; /* late: ended after their deadlines */
    uint32_t batches, members;   /* groups that ran, and requests in them */
};

/* How a batch of n costs: the families of curves. */
enum lane_family { LANE_GPU, LANE_AFFINE, LANE_DISK, LANE_CPU, LANE_FAMILIES };

/* An empty scene with `models` models of `groups` groups, of a family; one byte is read per ns. */
void lane_scene_init(struct lane_scene *s, uint32_t models, uint32_t groups, enum lane_family family);
/* Activations, states, and a memory that is narrow but admits any request alone. */
void lane_scene_memory(struct lane_scene *s);
/* Appends a request; NULL-safe defaults: weight 1. Returns its index. */
uint32_t lane_scene_add(struct lane_scene *s, uint32_t model, uint32_t group, uint64_t arrived_ns,
                        uint64_t deadline_ns);
/* n requests at random groups, in FIFO order for one model: none is further than an older one. */
void lane_scene_fill(struct lane_scene *s, uint32_t n);

/* Memory for decisions: group set-up and tear-down of cmocka. */
struct swn_lane_scratch;
extern struct swn_lane_scratch *lane_scratch;
int lane_scratch_make(void **state);
int lane_scratch_done(void **state);

/* The invariants of any decision; a cmocka assertion fails where one does not hold. */
void lane_check(const struct lane_scene *s, const struct swn_lane_decision *d);
/* Does it: time passes, groups advance, requests end or are dropped. */
void lane_apply(struct lane_scene *s, const struct swn_lane_decision *d);

#endif
