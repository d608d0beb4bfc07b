/* scheduler/policies/leases.h - how a server divides its memory for models over its engines.
 *
 * Each engine has a base, which is its own when it has work; the bases add up to the total. While an engine is idle,
 * and one that works has weights that do not fit its base, the idle one is left with a part of its base, and the other
 * has the rest. Memory moves only when somebody gains by it: a changed budget costs an engine a new plan, and reads.
 */
#ifndef SWN_SCHEDULER_POLICIES_LEASES_H
#define SWN_SCHEDULER_POLICIES_LEASES_H

#include <stdint.h>

struct swn_lease {
    uint64_t base;
    uint64_t least;  /* it has said that it cannot do with less; 0: it has not */
    uint64_t need;   /* with so much nothing has to be read again; 0: not known */
    uint64_t bytes;  /* in: its lease until now, 0: none; out: from now on */
    uint8_t is_busy; /* it has work, or had until lately */
};

/* Divides `total` over all: the leases add up to it at most. An engine whose least is more than what is there for it
 * gets the least from what the others do not need at least; where that is not enough, a lease may be below its least.
 */
void swn_leases_divide(struct swn_lease *leases, unsigned n, uint64_t total);

#endif
