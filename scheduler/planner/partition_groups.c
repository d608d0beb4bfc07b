/* scheduler/planner/partition_groups.c - see partition_groups.h. */
#include "scheduler/planner/partition_groups.h"

size_t swn_partition_groups(const uint64_t *sum, size_t layers, size_t most, size_t *at)
{
    /* Two neighbouring groups have more bytes than this, or they would be one. */
    uint64_t limit = 2 * (sum[layers] / most) + 2;
    size_t n = 0;
    for (size_t i = 1, begin = at[n++] = 0; i < layers; i++)
        if (sum[i + 1] - sum[begin] > limit)
            at[n++] = begin = i;
    at[n] = layers;
    return n;
}
