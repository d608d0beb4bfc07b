/* scheduler/planner/partition_groups.h - runs of layers that a search takes for one layer each: both searches for
 * partitions take memory and time by the square of the layers, and a mixture of experts has tens of thousands. Private.
 */
#ifndef SWN_SCHEDULER_PLANNER_PARTITION_GROUPS_H
#define SWN_SCHEDULER_PLANNER_PARTITION_GROUPS_H

#include <stddef.h>
#include <stdint.h>

/* Joins neighbouring layers, the small ones, into at most `most` + 1 groups. sum[i]: bytes of layers 0..i-1. at[] gets
 * the first layer of each group, and `layers` behind the last; it has room for most + 2. Returns the number of groups.
 */
size_t swn_partition_groups(const uint64_t *sum, size_t layers, size_t most, size_t *at);

#endif
