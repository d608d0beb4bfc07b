/* scheduler/planner/partition_search.h - what the two halves of the search for the best partition share:
 * scheduler/planner/partition_bounds.c has the relaxed problems, whose costs bound the true one from below;
 * scheduler/planner/partition_search.c follows the bounds and closes the gap. Private.
 */
#ifndef SWN_SCHEDULER_PLANNER_PARTITION_SEARCH_H
#define SWN_SCHEDULER_PLANNER_PARTITION_SEARCH_H

#include <float.h>

#include "scheduler/planner/partition.h"

#define INFINITE DBL_MAX

/* For block k: its first layer b and the layer c behind it. For each b only some c have a cell. */
struct level {
    size_t b_low, b_high, c_low, c_high; /* inclusive; none when low > high */
    size_t cells;
    size_t *row;   /* by b - b_low: (b, c) has cell row + c */
    double *h, *g; /* least cost from here, or INFINITE; NULL until solved */
};

struct search {
    const struct swn_part_model *m;
    size_t n; /* blocks */
    uint64_t memory;
    size_t *fits_first, *fits_last; /* by c, by b: how far [b, c) reaches within the memory */
    size_t *end_low, *end_high;     /* by b: the range of c to try, both ascending */
    struct level *levels;
};

/* The c to try for a block that begins at b; none when the last is below the first. */
static inline size_t first_end(const struct search *s, const struct level *l, size_t b)
{
    size_t low = s->end_low[b] > b + 1 ? s->end_low[b] : b + 1;
    return l->c_low > low ? l->c_low : low;
}

static inline size_t last_end(const struct search *s, const struct level *l, size_t b)
{
    return l->c_high < s->end_high[b] ? l->c_high : s->end_high[b];
}

static inline size_t cell(const struct level *l, size_t b, size_t c)
{
    return l->row[b - l->b_low] + c;
}

/* Prepares a search for partitions that take at most `most_s`. 0, -ENOSPC, -ENOMEM, -E2BIG: there are too many layers.
 * The caller closes it in any case. */
int search_open(struct search *s, double most_s);
void search_close(struct search *s);

/* Solves a relaxed problem: G, which counts t_out, or H. first[] becomes its partition, *bound the lower bound of any
 * partition's cost, INFINITE if there is none. 0 or -ENOMEM. */
int search_relax(struct search *s, int counts_out, size_t *first, double *bound);

#endif
