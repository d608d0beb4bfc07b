/* scheduler/config/queue_terms.h - on which terms a request waits: what its model's config.pbtxt and its own parameters
 * say of its priority, its time and its place in the queue. As Triton reads them; pure.
 */
#ifndef SWN_SCHEDULER_CONFIG_QUEUE_TERMS_H
#define SWN_SCHEDULER_CONFIG_QUEUE_TERMS_H

#include <stdint.h>

#include "scheduler/config/model_config.h"

struct swn_queue_terms {
    double weight;       /* of its waiting time against that of others: a level is worth eight of the next lower one */
    uint64_t timeout_us; /* after which it is refused; 0: never */
    uint32_t queue_most; /* requests of the model that may wait; 0: no limit of the model's own */
};

/* `priority` and `timeout_us` are the request's parameters, 0 where it has none. Level 1 is the highest; a level that
 * the model does not have is its default one, and a model without levels has no priorities. A request's timeout counts
 * where the model has no policy, or allows it and it is shorter than the policy's. */
struct swn_queue_terms swn_queue_terms(const struct swn_config_batching *b, uint64_t priority, uint64_t timeout_us);

/* The deadline of a request that arrived then, which is for an answer that is due at `due_ns` (0: at no time): the
 * earlier one. 0: none. */
uint64_t swn_queue_deadline(const struct swn_queue_terms *terms, uint64_t arrived_ns, uint64_t due_ns);

#endif
