/* scheduler/policies/peers.h - what other servers do, as policies of this lane. Inside this folder.
 *
 * In all of them but LazyBatching a batch is closed: who begins together runs to the end together, and nobody joins.
 * A closed batch has as many requests of one model as every group's bound allows.
 *
 * - dynamic: Triton's dynamic batcher. A batch begins when it is full, or when its oldest request has waited for
 *   its model's batch_delay_ns.
 * - lazy: LazyBatching (Choi et al., HPCA 2021). While a batch runs, requests that wait begin and catch up at the edge
 *   of a group, as many as leave all of them on time. Without a deadline a request is due as due.h says.
 * - nexus: Nexus' early drop (Shen et al., SOSP 2019). The target is the largest batch that takes half of a request's
 *   time; a window of that size moves over the queue, and who stands before the first window that is on time is
 * dropped.
 * - symphony: Symphony's deferred start (Chen et al., 2023, arXiv 2308.07470). A batch waits as long as it might grow,
 *   and begins when one more request would make its first one late. Times are taken larger by time_error.
 */
#ifndef SWN_SCHEDULER_POLICIES_PEERS_H
#define SWN_SCHEDULER_POLICIES_PEERS_H

#include "scheduler/policies/lane.h"

struct swn_lane_scratch;

void swn_decide_dynamic(struct swn_lane_scratch *x, struct swn_lane_decision *decision);
void swn_decide_lazy(struct swn_lane_scratch *x, struct swn_lane_decision *decision);
void swn_decide_nexus(struct swn_lane_scratch *x, struct swn_lane_decision *decision);
void swn_decide_symphony(struct swn_lane_scratch *x, struct swn_lane_decision *decision);

#endif
