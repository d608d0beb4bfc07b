/* scheduler/planner/partition.c - the model, the number of blocks, and the cost of a partition; the search is in
 * scheduler/planner/partition_search.c. */
#include "scheduler/planner/partition.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "scheduler/planner/partition_minmax.h"
#include "scheduler/planner/block_pipeline.h"

#define MOST_LAYERS ((size_t)1 << 20)
#define MOST_BYTES ((uint64_t)1 << 62)

int swn_partition_model(struct swn_part_model *m, const struct swn_layer *layers, size_t n,
                        const struct swn_coefficients *c)
{
    memset(m, 0, sizeof *m);
    if (!n || n > MOST_LAYERS)
        return -EINVAL;
    m->layers = n;
    m->bytes = calloc(n + 1, sizeof *m->bytes);
    m->in = calloc(3 * (n + 1), sizeof *m->in);
    if (!m->bytes || !m->in) {
        swn_partition_model_free(m);
        return -ENOMEM;
    }
    m->ex = m->in + n + 1;
    m->out = m->ex + n + 1;
    for (size_t i = 0; i < n; i++) {
        struct swn_delay d = swn_delay_of(c, &layers[i]);
        if (layers[i].bytes > MOST_BYTES - m->bytes[i]) {
            swn_partition_model_free(m);
            return -EINVAL;
        }
        m->bytes[i + 1] = m->bytes[i] + layers[i].bytes;
        m->in[i + 1] = m->in[i] + d.in;
        m->ex[i + 1] = m->ex[i] + d.ex;
        m->out[i + 1] = m->out[i] + d.out;
    }
    return 0;
}

void swn_partition_model_free(struct swn_part_model *m)
{
    free(m->bytes);
    free(m->in);
    memset(m, 0, sizeof *m);
}

struct swn_part swn_partition_judge(const struct swn_part_model *m, const size_t *first, size_t blocks)
{
    struct swn_part part = {.exact = 1};
    double load = 0, done = 0, before = 0;
    uint64_t neighbour = 0;
    for (size_t k = 0; k < blocks; k++) {
        size_t begin = first[k], end = k + 1 < blocks ? first[k + 1] : m->layers;
        uint64_t bytes = m->bytes[end] - m->bytes[begin];
        if (neighbour + bytes > part.memory_bytes)
            part.memory_bytes = neighbour + bytes;
        neighbour = bytes;
        /* as swn_pass_latency with m = 2: `before` is done(k-2) */
        if (k >= 2)
            load = (load > before ? load : before) + m->out[first[k - 1]] - m->out[first[k - 2]];
        load += m->in[end] - m->in[begin];
        before = done;
        done = (load > done ? load : done) + m->ex[end] - m->ex[begin];
    }
    part.latency_s = done;
    return part;
}

uint64_t swn_partition_memory(uint64_t budget_bytes, double delta)
{
    if (!(delta > 0))
        return budget_bytes;
    return delta < 1 ? (uint64_t)((double)budget_bytes * (1 - delta)) : 0;
}

static uint64_t *layer_bytes(const struct swn_part_model *m)
{
    uint64_t *bytes = calloc(m->layers, sizeof *bytes);
    for (size_t i = 0; bytes && i < m->layers; i++)
        bytes[i] = m->bytes[i + 1] - m->bytes[i];
    return bytes;
}

int swn_partition_count(const struct swn_part_model *m, uint64_t budget_bytes, double delta, size_t *blocks)
{
    uint64_t *bytes = layer_bytes(m);
    size_t fewest = 0;
    if (!bytes)
        return -ENOMEM;
    int rc = swn_partition_minmax_fewest(bytes, m->layers, swn_partition_memory(budget_bytes, delta), &fewest);
    free(bytes);
    size_t wanted = swn_partition_minmax_count(m->bytes[m->layers], budget_bytes, m->layers);
    *blocks = fewest > wanted ? fewest : wanted;
    return rc;
}

/* For very many layers, of which swn_partition_best has found none. */
static int smallest_pairs(const struct swn_part_model *m, uint64_t memory_bytes, size_t *blocks, size_t *first,
                          struct swn_part *out)
{
    uint64_t *bytes = layer_bytes(m);
    int rc = bytes ? swn_partition_minmax_for_budget(bytes, m->layers, memory_bytes, blocks, first) : -ENOMEM;
    if (!rc)
        *out = swn_partition_judge(m, first, *blocks);
    out->exact = 0;
    free(bytes);
    return rc;
}

int swn_partition_for_budget(const struct swn_part_model *m, uint64_t budget_bytes, double delta, size_t *blocks,
                             size_t *first, struct swn_part *out)
{
    uint64_t memory = swn_partition_memory(budget_bytes, delta);
    *blocks = swn_partition_minmax_count(m->bytes[m->layers], budget_bytes, m->layers);
    /* This number, or one or two more, mostly suffice: trying is faster than computing the number that is needed. */
    for (size_t tries = 0; tries < 3 && *blocks <= m->layers; tries++, ++*blocks) {
        int rc = swn_partition_best(m, *blocks, memory, first, out);
        if (rc != -ENOSPC)
            return rc;
    }
    int rc = swn_partition_count(m, budget_bytes, delta, blocks);
    if (rc)
        return rc;
    rc = swn_partition_best(m, *blocks, memory, first, out);
    return rc == -ENOSPC ? smallest_pairs(m, memory, blocks, first, out) : rc;
}
