/* scheduler/planner/partition_minmax.h - where to cut a model into blocks.
 *
 * Two neighbouring blocks are in memory at once, one computing while the next one comes in, so a partition fits a
 * budget b when s_i + s_(i+1) <= b for all i (SwapNet section 6.2, Eq. 3 with m = 2). Of the partitions into n blocks,
 * this module finds the one whose largest neighbouring pair is smallest: it leaves the most memory for everything else.
 * Cutting a block in two never makes a pair larger, so more blocks never need more memory, and a model needs the least
 * memory when each layer is a block.
 *
 * Takes memory and time in proportion to the number of layer ranges that fit the result. Where these are more than two
 * million, as with tens of thousands of layers, groups of small layers count as one layer: then another partition may
 * have smaller pairs, or fewer blocks.
 *
 * Pure functions, thread-safe. Sizes are bytes.
 */
#ifndef SWN_SCHEDULER_PLANNER_PARTITION_MINMAX_H
#define SWN_SCHEDULER_PLANNER_PARTITION_MINMAX_H

#include <stddef.h>
#include <stdint.h>

/* n = ceil(2 s / b), at least 1 and at most `layers`: the number of blocks if all could be of equal size. */
size_t swn_partition_minmax_count(uint64_t model_bytes, uint64_t budget_bytes, size_t layers);

/* The largest neighbouring pair when each layer is a block: the least possible budget. 0 without layers. */
uint64_t swn_partition_minmax_budget(const uint64_t *layer_bytes, size_t layers);

/* The largest neighbouring pair of a partition; for a single block, its size. `first`: the first layer of each block.
 */
uint64_t swn_partition_minmax_largest_pair(const uint64_t *layer_bytes, size_t layers, const size_t *first,
                                           size_t blocks);

/* Cuts into exactly `blocks` blocks (1 to `layers`) of at least one layer each: first[i] is the first layer of block i.
 * The largest neighbouring pair is as small as it can be. -EINVAL, -ENOMEM. */
int swn_partition_minmax(const uint64_t *layer_bytes, size_t layers, size_t blocks, size_t *first);

/* The fewest blocks of which any two neighbours take at most `pair_bytes`; any larger number up to `layers` is
 * possible, too. -ENOSPC: below swn_partition_minmax_budget; -EINVAL, -ENOMEM. */
int swn_partition_minmax_fewest(const uint64_t *layer_bytes, size_t layers, uint64_t pair_bytes, size_t *blocks);

/* The fewest blocks from swn_partition_minmax_count on that fit the budget, cut as by swn_partition_minmax. *blocks
 * receives their number, first has room for `layers`. -ENOSPC: the budget is below swn_partition_minmax_budget;
 * -EINVAL, -ENOMEM. */
int swn_partition_minmax_for_budget(const uint64_t *layer_bytes, size_t layers, uint64_t budget_bytes, size_t *blocks,
                                    size_t *first);

#endif
