/* scheduler/config/queue_terms.c - see queue_terms.h. */
#include "scheduler/config/queue_terms.h"

#include <math.h>

/* Powers of two: a level is worth eight of the next. More than nine levels share the distance of those: weights stay
 * numbers that can be added. */
#define LEVEL_BITS 3U
#define ALL_BITS 24U

static const struct swn_queue_policy *policy_of(const struct swn_config_batching *b, uint32_t level)
{
    for (unsigned i = 0; i < b->level_count; i++)
        if (b->levels[i].priority == level)
            return &b->levels[i].policy;
    return &b->policy;
}

static double weight_of(const struct swn_config_batching *b, uint32_t level)
{
    uint32_t steps = b->priority_levels - 1, above = b->priority_levels - level;
    double bits = (double)above * LEVEL_BITS;

    if (steps > ALL_BITS / LEVEL_BITS)
        bits = (double)above * ALL_BITS / steps;
    return ldexp(1 + (bits - (int)bits), (int)bits); /* it grows with each level, and needs no libm */
}

struct swn_queue_terms swn_queue_terms(const struct swn_config_batching *b, uint64_t priority, uint64_t timeout_us)
{
    uint32_t level = priority && priority <= b->priority_levels ? (uint32_t)priority : b->default_priority;
    const struct swn_queue_policy *policy = policy_of(b, level);
    struct swn_queue_terms terms = {.weight = b->priority_levels ? weight_of(b, level) : 1,
                                    .timeout_us = timeout_us,
                                    .queue_most = policy->max_queue_size};

    if (!b->is_dynamic)
        return terms;
    if (policy->default_timeout_us &&
        (!timeout_us || !policy->allow_override || timeout_us > policy->default_timeout_us))
        terms.timeout_us = policy->default_timeout_us;
    if (policy->timeout_action == SWN_QUEUE_DELAY)
        terms.timeout_us = 0;
    return terms;
}

uint64_t swn_queue_deadline(const struct swn_queue_terms *terms, uint64_t arrived_ns, uint64_t due_ns)
{
    uint64_t timeout_ns, deadline_ns;

    if (!terms->timeout_us || __builtin_mul_overflow(terms->timeout_us, UINT64_C(1000), &timeout_ns) ||
        __builtin_add_overflow(arrived_ns, timeout_ns, &deadline_ns) || deadline_ns == UINT64_MAX)
        return due_ns;
    return due_ns && due_ns < deadline_ns ? due_ns : deadline_ns;
}
