/* scheduler/planner/partition.h - where to cut a model into blocks so that a pass is fastest (SwapNet 6.2.2, Eq. 2 to
 * 4, table 3).
 *
 * Of all partitions into n blocks whose neighbours fit together, s_i + s_(i+1) <= b (1 - delta), the search finds the
 * one with the least swn_pass_latency for m = 2. The paper lists all partitions in a table; here dynamic programming
 * finds the same one (the tests compare), for any number of layers. scheduler/planner/partition_table.h keeps those
 * partitions that are the best for some budget.
 *
 * For 1,000 layers a search takes one to four milliseconds, and perhaps six where there are many near ties. A look-up
 * in the table takes microseconds. The library itself plans with scheduler/planner/plan.h.
 *
 * Thread-safe: a model is not changed after swn_partition_model. Bytes and seconds.
 */
#ifndef SWN_SCHEDULER_PLANNER_PARTITION_H
#define SWN_SCHEDULER_PLANNER_PARTITION_H

#include <stddef.h>
#include <stdint.h>

#include "profiles/delay_model.h"

/* A model as sums over its layers: s[i] is the sum of layers 0..i-1. */
struct swn_part_model {
    size_t layers;
    uint64_t *bytes;
    double *in, *ex, *out;
};

struct swn_part {
    uint64_t memory_bytes; /* of the largest two neighbours */
    double latency_s;
    int exact; /* 0: the search gave up on too many near ties, or took groups of very many layers for one each, and a
                  better partition may exist */
};

/* 0; -EINVAL: no layers, or more than 2^20, or 2^62 bytes; -ENOMEM. */
int swn_partition_model(struct swn_part_model *m, const struct swn_layer *layers, size_t n,
                        const struct swn_coefficients *c);
void swn_partition_model_free(struct swn_part_model *m);

/* Memory and latency of a partition: first[0] = 0 and ascending. */
struct swn_part swn_partition_judge(const struct swn_part_model *m, const size_t *first, size_t blocks);

/* The best partition into exactly `blocks` blocks of which any two neighbours take at most `memory_bytes`. first has
 * room for them. -EINVAL: the model cannot have that number of blocks; -ENOSPC: there is no such partition, or, of very
 * many layers, none was found; -ENOMEM. */
int swn_partition_best(const struct swn_part_model *m, size_t blocks, uint64_t memory_bytes, size_t *first,
                       struct swn_part *out);

/* b (1 - delta) in bytes; delta from 0 to below 1. */
uint64_t swn_partition_memory(uint64_t budget_bytes, double delta);

/* The number of blocks for a budget: n = ceil(2 s / b), or more where the layers are too uneven for n. -ENOSPC: even
 * single layers are too large; -ENOMEM. */
int swn_partition_count(const struct swn_part_model *m, uint64_t budget_bytes, double delta, size_t *blocks);

/* swn_partition_count and swn_partition_best: the best partition for a budget. first has room for one block per
 * layer. Where swn_partition_best finds none of very many layers: the one whose pairs are smallest. */
int swn_partition_for_budget(const struct swn_part_model *m, uint64_t budget_bytes, double delta, size_t *blocks,
                             size_t *first, struct swn_part *out);

#endif
