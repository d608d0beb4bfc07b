/* scheduler/planner/partition_table.c - making lookup tables and looking up; scheduler/planner/partition_table_file.c
 * has the file. */
#include "scheduler/planner/partition_table.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "scheduler/planner/partition_minmax.h"

/* In longer tables, rows that need nearly the same memory are dropped. */
#define THIN_FROM 64
#define THIN_SHARE 0.004
/* For models with at most this many layers every row is worth its time. */
#define FEW_LAYERS 200

static struct swn_table_row *add_row(struct swn_table_list *l, const struct swn_part *part, const size_t *first)
{
    struct swn_table_row *grown = realloc(l->row, (l->rows + 1) * sizeof *grown);
    if (!grown)
        return NULL;
    l->row = grown;
    uint32_t *points = malloc(l->blocks * sizeof *points);
    if (!points)
        return NULL;
    for (uint32_t i = 1; i < l->blocks; i++)
        points[i - 1] = (uint32_t)first[i];
    l->row[l->rows] = (struct swn_table_row){.part = *part, .points = points};
    return &l->row[l->rows++];
}

static void reverse(struct swn_table_list *l)
{
    for (uint32_t i = 0; i < l->rows / 2; i++) {
        struct swn_table_row row = l->row[i];
        l->row[i] = l->row[l->rows - 1 - i];
        l->row[l->rows - 1 - i] = row;
    }
}

static double cpu_s(void)
{
    struct timespec t;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

/* From the most memory down: the best partition, then the best with less memory than that one takes, and so on. Each
 * replaces the one before if it is not slower. */
static int make_list(struct swn_table_list *l, const struct swn_part_model *m, size_t *first, double until_s)
{
    uint64_t memory = l->most_memory;
    l->complete = 1;
    while (l->rows < SWN_TABLE_ROWS) {
        struct swn_part part;
        if (until_s > 0 && cpu_s() > until_s)
            return -ETIME;
        int rc = swn_partition_best(m, l->blocks, memory, first, &part);
        if (rc)
            break;
        if (!part.exact)
            l->complete = 0;
        while (l->rows && part.latency_s <= l->row[l->rows - 1].part.latency_s) {
            l->rows--;
            free((void *)l->row[l->rows].points);
        }
        if (!add_row(l, &part, first))
            return -ENOMEM;
        memory = part.memory_bytes ? part.memory_bytes - 1 : 0;
        if (!part.memory_bytes)
            break;
        if (l->rows >= THIN_FROM || m->layers > FEW_LAYERS) {
            uint64_t thin = (uint64_t)((double)part.memory_bytes * (1 - THIN_SHARE));
            l->complete &= thin >= memory;
            memory = thin < memory ? thin : memory;
        }
    }
    struct swn_part part;
    if (l->rows == SWN_TABLE_ROWS && !swn_partition_best(m, l->blocks, memory, first, &part))
        l->complete = 0; /* more rows exist */
    reverse(l);
    return 0;
}

/* The largest budget for which n = ceil(2 s / b) is this many blocks, or two fewer: the layers may be too uneven for n.
 */
static uint64_t most_memory(const struct swn_part_model *m, size_t blocks)
{
    uint64_t s = m->bytes[m->layers];
    return blocks <= 4 || m->layers <= FEW_LAYERS ? s : 2 * s / (blocks - 3);
}

static size_t list_bytes(const struct swn_table_list *l)
{
    return 24 + l->rows * (16 + 4 * (size_t)(l->blocks - 1));
}

int swn_table_make(struct swn_table **out, const struct swn_part_model *m, double most_s)
{
    double until_s = most_s > 0 ? cpu_s() + most_s : 0;
    struct swn_table *t = calloc(1, sizeof *t);
    size_t *first = calloc(m->layers, sizeof *first), bytes = 64; /* of the file so far */
    int rc = t && first ? 0 : -ENOMEM;
    if (!rc) {
        t->layers = (uint32_t)m->layers;
        t->list = calloc(SWN_TABLE_BLOCKS, sizeof *t->list);
        rc = t->list ? 0 : -ENOMEM;
    }
    for (size_t n = 1; !rc && n <= SWN_TABLE_BLOCKS && n <= m->layers; n++) {
        struct swn_table_list *l = &t->list[t->lists++];
        *l = (struct swn_table_list){.blocks = (uint32_t)n, .most_memory = most_memory(m, n)};
        rc = make_list(l, m, first, until_s);
        bytes += list_bytes(l);
        if (bytes > SWN_TABLE_BYTES || rc == -ETIME) {
            for (uint32_t i = 0; i < l->rows; i++)
                free((void *)l->row[i].points);
            free(l->row);
            t->lists--;
            rc = 0;
            break;
        }
    }
    free(first);
    if (rc)
        swn_table_free(t);
    else
        *out = t;
    return rc;
}

void swn_table_free(struct swn_table *t)
{
    if (!t)
        return;
    for (uint32_t i = 0; i < t->lists; i++) {
        for (uint32_t k = 0; !t->memory && k < t->list[i].rows; k++)
            free((void *)t->list[i].row[k].points);
        free(t->list[i].row);
    }
    free(t->memory); /* the points of all rows, when they were read from a file */
    free(t->list);
    free(t);
}

static const struct swn_table_list *find_list(const struct swn_table *t, size_t blocks)
{
    return blocks >= 1 && blocks <= t->lists ? &t->list[blocks - 1] : NULL; /* 1, 2, 3 ... without gaps */
}

static const struct swn_table_row *find_row(const struct swn_table_list *l, uint64_t memory_bytes)
{
    uint32_t low = 0, high = l->rows;
    while (low < high) {
        uint32_t middle = low + (high - low) / 2;
        if (l->row[middle].part.memory_bytes <= memory_bytes)
            low = middle + 1;
        else
            high = middle;
    }
    return low ? &l->row[low - 1] : NULL;
}

/* Partitions that fit `memory` are no faster than the next row, which needs more. */
static int is_near_best(const struct swn_table_list *l, const struct swn_table_row *row)
{
    return row == &l->row[l->rows - 1] || row->part.latency_s <= row[1].part.latency_s * (1 + SWN_TABLE_NEAR);
}

const struct swn_table_row *swn_table_find(const struct swn_table *t, size_t blocks, uint64_t memory_bytes)
{
    const struct swn_table_list *l = find_list(t, blocks);
    return l ? find_row(l, memory_bytes) : NULL;
}

int swn_table_for_budget(const struct swn_table *t, const struct swn_part_model *m, uint64_t budget_bytes, double delta,
                         size_t *blocks, size_t *first, struct swn_part *out)
{
    uint64_t memory = swn_partition_memory(budget_bytes, delta);
    for (size_t n = swn_partition_minmax_count(m->bytes[m->layers], budget_bytes, m->layers);; n++) {
        const struct swn_table_list *l = find_list(t, n);
        if (!l || (memory > l->most_memory && l->most_memory < m->bytes[m->layers]))
            return -ENODATA;
        const struct swn_table_row *row = find_row(l, memory);
        if (!row && l->complete)
            continue; /* the layers are too uneven for that number of blocks */
        if (!row || (!l->complete && !is_near_best(l, row)))
            return -ENODATA;
        *blocks = n;
        *out = row->part;
        out->exact = l->complete;
        first[0] = 0;
        for (size_t i = 1; i < n; i++)
            first[i] = row->points[i - 1];
        return 0;
    }
}
