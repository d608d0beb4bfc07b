/* scheduler/policies/several.c - see several.h. */
#include "scheduler/policies/several.h"

uint32_t swn_chain_choose(const struct swn_chain *chains, uint32_t count, uint32_t current, uint32_t *length)
{
    uint32_t best = SWN_CHAIN_NONE;
    double best_weight = 0, best_time = 0;

    for (uint32_t c = 0; c < count; c++) {
        double weight = 0, time = c == current ? 0 : chains[c].switch_ns;
        for (uint32_t k = chains[c].next; k < chains[c].count; k++) {
            int is_first = best == SWN_CHAIN_NONE;
            weight += chains[c].segments[k].weight;
            time += chains[c].segments[k].time_ns;
            /* Ratios by products: times may be 0. A tie goes to the model that is running. */
            if (is_first || weight * best_time > best_weight * time ||
                (c == current && best != c && weight * best_time >= best_weight * time)) {
                best = c;
                best_weight = weight;
                best_time = time;
                *length = k - chains[c].next + 1;
            }
        }
    }
    return best;
}
