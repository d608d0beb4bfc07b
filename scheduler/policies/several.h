/* scheduler/policies/several.h - the order of several models' segments (edge-serving paper, 4.3). Inside this folder.
 *
 * The paper runs all requests of a model before those of another one, and tries all orders of models. Sorting models by
 * time over weight gives the same order (Smith 1956). Better still, models need not be run as a whole: the segments of
 * each one are a chain, and the order of least total weighted completion time takes again and again the beginning of a
 * chain that has the largest weight per time (Horn 1972, Sidney 1975). Without switching costs that is optimal.
 *
 * Changing to another model costs its switch_ns, which is added to the first segment after the change. With it the
 * order is a heuristic.
 */
#ifndef SWN_SCHEDULER_POLICIES_SEVERAL_H
#define SWN_SCHEDULER_POLICIES_SEVERAL_H

#include "scheduler/policies/completion.h"

struct swn_chain {
    const struct swn_segment *segments;
    uint32_t count;
    uint32_t next; /* the first one that is not taken yet */
    double switch_ns;
};

#define SWN_CHAIN_NONE UINT32_MAX

/* The chain that goes next, when chain `current` ran last (or SWN_CHAIN_NONE), and in *length how many of its segments
 * are taken together. At least one chain has one left. */
uint32_t swn_chain_choose(const struct swn_chain *chains, uint32_t count, uint32_t current, uint32_t *length);

#endif
