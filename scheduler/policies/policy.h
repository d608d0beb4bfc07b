/* scheduler/policies/policy.h - the policies by name, the decision of one, and when requests will be done under it.
 *
 * Memory is a hard bound under every policy: a decision never names a batch whose weights, activations and states set
 * aside exceed memory_bytes, nor one after which the requests that have begun could not all be finished (memory.h). A
 * request that does not fit even alone is decided all the same, by itself and when its turn has come: the engine finds
 * out what it really needs, and the server refuses it. So no request keeps others waiting for ever.
 *
 * No policy drops all requests while the deadline of one has not passed: that one runs alone, as only runs correct
 * predicted times. It goes on for as long as it has the lane to itself.
 */
#ifndef SWN_SCHEDULER_POLICIES_POLICY_H
#define SWN_SCHEDULER_POLICIES_POLICY_H

#include "scheduler/policies/lane.h"
#include "scheduler/tasks/policy.h"

enum swn_lane_policy {
    SWN_LANE_COMPLETION,  /* least total completion time among FIFO segmentations (completion.h), the default; the
                           * models' order and common groups are those of several.h and shared_prefix.h */
    SWN_LANE_EXACT,       /* the same among all schedules, for few requests (completion_exact.h) of models that share
                           * no groups; else completion */
    SWN_LANE_TARDY,       /* the fewest late requests (tardy.h) */
    SWN_LANE_TARDY_PAPER, /* the same, by the edge-serving paper's program */
    SWN_LANE_EDF,         /* earliest deadline first, with batches (edf.h) */
    SWN_LANE_NO_BATCH,    /* one request after the other (baselines.h) */
    SWN_LANE_BATCH,       /* the oldest ones together (baselines.h) */
    SWN_LANE_DYNAMIC,     /* closed batches, after a delay (peers.h, as the next three) */
    SWN_LANE_LAZY,        /* LazyBatching */
    SWN_LANE_NEXUS,       /* Nexus: early drop */
    SWN_LANE_SYMPHONY,    /* Symphony: deferred start */
    SWN_LANE_LOOKAHEAD,   /* load and compute tasks (lane_tasks.h, as all behind it): swapnet's own schedule */
    SWN_LANE_MASA,        /* Algorithm 1 of the Masa paper */
    SWN_LANE_MASA_ORDERED,
    SWN_LANE_MASA_CODE, /* as its public code behaves */
    SWN_LANE_BULK,      /* what that paper compares with */
    SWN_LANE_DEEPEYE,
    SWN_LANE_DEEPEYE_FRUGAL,
    SWN_LANE_POLICIES
};

/* "completion", "no-batch", ...; "?" for anything else. Static. */
const char *swn_lane_policy_name(enum swn_lane_policy policy);
/* 0 and *out; -EINVAL: no such name. */
int swn_lane_policy_parse(const char *name, enum swn_lane_policy *out);

/* The policy over load and compute tasks that it is; SWN_TASK_POLICIES: it is none. */
enum swn_task_policy swn_lane_task_policy(enum swn_lane_policy policy);

/* Memory that a decision works in; its contents mean nothing between calls. NULL: no memory. One thread at a time. */
struct swn_lane_scratch;
struct swn_lane_scratch *swn_lane_scratch_new(void);
void swn_lane_scratch_free(struct swn_lane_scratch *scratch);

/* What the lane runs next. 0, and *decision: members, or none. Where no request is left, and where all that the policy
 * looks at are dropped, there is no member and wake_ns is 0; after drops without members, decide again. -EINVAL:
 * policy, a model of a request, its group, or the group_count of that model is out of range; *decision is empty then.
 */
int swn_lane_decide(enum swn_lane_policy policy, const struct swn_lane_state *state, struct swn_lane_scratch *scratch,
                    struct swn_lane_decision *decision);

/* What the lane runs behind `decision`, which was made for this state, if nothing else comes: at most `most` steps, in
 * their order, of which no two in a row are equal. The policy is asked again and again, with the times that are
 * expected, and with the weights in memory that have been read; as few times as many requests allow, so it may foretell
 * less than there is to run. Policy exact foretells what completion would decide. A policy over tasks foretells what it
 * loads, or lookahead what its plan computes. Returns how many. */
uint32_t swn_lane_foretell(enum swn_lane_policy policy, const struct swn_lane_state *state,
                           const struct swn_lane_decision *decision, struct swn_lane_scratch *scratch,
                           struct swn_lane_step *steps, uint32_t most);

/* When requests will be done, on the state's clock: done_ns[i] of request i, and where `added` is not NULL
 * done_ns[request_count] of that one, as if it had arrived now. What clients are told that ask how long it would take
 * (edge-serving paper, 4.4). Requests that come later, drops and waits for others are not foreseen; requests that a
 * policy does not look at yet count like those that it does. One plan, O(n^2); policies that only batch what is there
 * are planned as Batch. 0; -EINVAL as above, and then done_ns is not written. */
int swn_lane_estimate(enum swn_lane_policy policy, const struct swn_lane_state *state,
                      const struct swn_lane_request *added, struct swn_lane_scratch *scratch, uint64_t *done_ns);

#endif
