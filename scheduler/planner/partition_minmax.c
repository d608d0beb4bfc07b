/* scheduler/planner/partition_minmax.c - partition points by exact search.
 *
 * For a bound B on neighbouring pairs, let f(j, i) be the fewest blocks that layers 0..i-1 can be cut into with j..i-1
 * as the last block: 1 + the least f(k, j) over those k for which the block k..j-1 is at most B less the last one. The
 * allowed k are the last ones before j, so a running minimum from the end gives the least f(k, j) in one step.
 * Bisection finds the smallest B for which the model can be cut into at most n blocks; then blocks are halved until
 * there are n.
 *
 * Where that would take too many cells f(j, i), groups of layers are searched instead, half as many each time.
 */
#include "scheduler/planner/partition_minmax.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "scheduler/planner/partition_groups.h"

/* Of one bound: 16 MiB, and a twentieth of a second. */
#define MOST_CELLS ((size_t)1 << 21)
#define IMPOSSIBLE UINT32_MAX

/* Ranges j..i-1 that fit the bound, for one j: i runs over (j, end]. */
struct row {
    size_t end;     /* the last i with a size within the bound */
    uint32_t *best; /* of the blocks that END at j, by their start k: best[j - 1 - k] = least f(k', j), k' >= k */
    uint32_t *from; /* the k' that gives it */
    size_t count;
};

struct search {
    const uint64_t *sum; /* sum[i]: bytes of layers 0..i-1 */
    size_t layers;
    struct row *rows; /* by layer boundary 0..layers */
    uint32_t *pool;
    size_t pool_size;
};

static uint64_t range(const struct search *s, size_t j, size_t i)
{
    return s->sum[i] - s->sum[j];
}

/* How many blocks can end at i: those that begin at the smallest k with range(k, i) <= bound, or at a larger k. */
static size_t first_start(const struct search *s, size_t i, uint64_t bound)
{
    size_t low = 0, high = i;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (range(s, middle, i) <= bound)
            high = middle;
        else
            low = middle + 1;
    }
    return low;
}

static int make_room(struct search *s, uint64_t bound)
{
    size_t total = 0;
    for (size_t i = 1; i <= s->layers; i++) {
        s->rows[i].count = i - first_start(s, i, bound);
        total += s->rows[i].count;
        if (total > MOST_CELLS)
            return -E2BIG;
    }
    if (2 * total > s->pool_size) {
        uint32_t *grown = realloc(s->pool, 2 * total * sizeof *grown);
        if (!grown)
            return -ENOMEM;
        s->pool = grown;
        s->pool_size = 2 * total;
    }
    uint32_t *at = s->pool;
    for (size_t i = 1; i <= s->layers; i++) {
        s->rows[i].best = at;
        s->rows[i].from = at + s->rows[i].count;
        at += 2 * s->rows[i].count;
    }
    return 0;
}

/* f(j, i) when the last block is j..i-1. */
static uint32_t fewest(const struct search *s, size_t j, size_t i, uint64_t bound)
{
    if (j == 0)
        return range(s, 0, i) <= bound ? 1 : IMPOSSIBLE;
    const struct row *r = &s->rows[j];
    size_t k = first_start(s, j, bound - range(s, j, i));
    if (k >= j || j - k > r->count) /* also when no k is allowed: the layer before is too large beside this block */
        return IMPOSSIBLE;
    uint32_t before = r->best[j - 1 - k];
    return before == IMPOSSIBLE ? IMPOSSIBLE : before + 1;
}

/* The fewest blocks under the bound, or IMPOSSIBLE. Fills the rows for walk_back. 0, -ENOMEM or -E2BIG. */
static int solve(struct search *s, uint64_t bound, uint32_t *blocks)
{
    int rc = make_room(s, bound);
    *blocks = IMPOSSIBLE;
    if (rc)
        return rc;
    for (size_t i = 1; i <= s->layers; i++) {
        struct row *r = &s->rows[i];
        uint32_t least = IMPOSSIBLE, from = 0;
        for (size_t back = 0; back < r->count; back++) {
            uint32_t f = fewest(s, i - 1 - back, i, bound);
            if (f < least) {
                least = f;
                from = (uint32_t)(i - 1 - back);
            }
            r->best[back] = least;
            r->from[back] = from;
        }
    }
    const struct row *last = &s->rows[s->layers];
    *blocks = last->count ? last->best[last->count - 1] : IMPOSSIBLE;
    return 0;
}

/* The starts of the blocks that `solve` found, last to first, into first[0..n). */
static void walk_back(const struct search *s, uint64_t bound, size_t n, size_t *first)
{
    size_t i = s->layers, j = s->rows[i].from[s->rows[i].count - 1];
    first[n - 1] = j;
    while (j > 0) {
        size_t k = first_start(s, j, bound - range(s, j, i));
        i = j;
        j = s->rows[i].from[i - 1 - k];
        first[--n - 1] = j;
    }
}

static size_t end_of(const size_t *first, size_t blocks, size_t layers, size_t b)
{
    return b + 1 < blocks ? first[b + 1] : layers;
}

/* Halves the largest block that has two layers or more, where its halves are most alike. */
static void split_one(const struct search *s, size_t *first, size_t blocks)
{
    size_t largest = blocks;
    for (size_t b = 0; b < blocks; b++) {
        size_t end = end_of(first, blocks, s->layers, b);
        if (end - first[b] < 2)
            continue;
        if (largest == blocks ||
            range(s, first[b], end) > range(s, first[largest], end_of(first, blocks, s->layers, largest)))
            largest = b;
    }
    size_t begin = first[largest], end = end_of(first, blocks, s->layers, largest), cut = begin + 1;
    while (cut + 1 < end && range(s, begin, cut) < range(s, cut, end))
        cut++;
    memmove(&first[largest + 2], &first[largest + 1], (blocks - largest - 1) * sizeof *first);
    first[largest + 1] = cut;
}

/* Cuts the layers into `blocks`, for which pairs of `high` bytes suffice. */
static int search_bound(struct search *s, size_t blocks, uint64_t high, size_t *first)
{
    /* Every second pair together is the whole model. */
    uint64_t low = s->sum[s->layers] / (blocks / 2 + blocks % 2);
    uint32_t found;
    int rc = make_room(s, high); /* no later bound has more cells */
    while (!rc && low < high) {
        uint64_t middle = low + (high - low) / 2;
        rc = solve(s, middle, &found);
        if (found <= blocks)
            high = middle;
        else
            low = middle + 1;
    }
    if (!rc)
        rc = solve(s, low, &found);
    if (rc)
        return rc;
    walk_back(s, low, found, first);
    for (size_t n = found; n < blocks; n++)
        split_one(s, first, n);
    return 0;
}

/* Blocks that are filled until they have their share of the bytes are no more than `blocks`, and none has a whole layer
 * more than its share. */
static uint64_t enough_for(const struct search *s, size_t blocks)
{
    uint64_t all = s->sum[s->layers], largest = 0, pair;
    for (size_t i = 0; i < s->layers; i++)
        largest = range(s, i, i + 1) > largest ? range(s, i, i + 1) : largest;
    return __builtin_mul_overflow(2, all / blocks + 1 + largest, &pair) || pair > all ? all : pair;
}

static int prepare(struct search *s, const uint64_t *layer_bytes, size_t layers)
{
    uint64_t *sum = calloc(layers + 1, sizeof *sum);
    *s = (struct search){.sum = sum, .layers = layers, .rows = calloc(layers + 1, sizeof *s->rows)};
    for (size_t i = 0; sum && i < layers; i++)
        sum[i + 1] = sum[i] + layer_bytes[i];
    return sum && s->rows ? 0 : -ENOMEM;
}

static void release(struct search *s)
{
    free((void *)s->sum);
    free(s->rows);
    free(s->pool);
}

struct task {
    uint64_t pair_bytes; /* of two neighbouring blocks at most; 0: as few as can be */
    size_t least;        /* the number of blocks, unless pair_bytes needs more */
    size_t blocks;       /* the result; without pair_bytes `least` */
    size_t *first;       /* NULL: only the number is wanted */
};

/* 0, -ENOMEM; -E2BIG: too many cells; -ENOSPC: these layers are too large. */
static int run(struct search *s, struct task *t)
{
    uint32_t fewest_blocks = 0;
    int rc = t->pair_bytes ? solve(s, t->pair_bytes, &fewest_blocks) : 0;
    if (rc || fewest_blocks == IMPOSSIBLE)
        return rc ? rc : -ENOSPC;
    t->blocks = fewest_blocks > t->least ? fewest_blocks : t->least;
    if (!t->first)
        return 0;
    size_t n = t->blocks < s->layers ? t->blocks : s->layers;
    uint64_t enough = enough_for(s, n), high = fewest_blocks && t->pair_bytes < enough ? t->pair_bytes : enough;
    return search_bound(s, n, high, t->first);
}

/* As `run`, with groups of layers for layers. */
static int run_groups(const struct search *s, struct task *t, size_t most)
{
    size_t *at = malloc((most + 2) * sizeof *at), groups = at ? swn_partition_groups(s->sum, s->layers, most, at) : 0;
    struct search coarse = {.layers = groups, .rows = calloc(groups + 1, sizeof *coarse.rows)};
    uint64_t *sum = malloc((groups + 1) * sizeof *sum);
    int rc = at && sum && coarse.rows ? 0 : -ENOMEM;
    for (size_t i = 0; !rc && i <= groups; i++)
        sum[i] = s->sum[at[i]];
    coarse.sum = sum;
    rc = rc ? rc : run(&coarse, t);
    for (size_t k = 0; !rc && t->first && k < t->blocks && k < groups; k++)
        t->first[k] = at[t->first[k]];
    for (size_t n = groups; !rc && t->first && n < t->blocks; n++)
        split_one(s, t->first, n);
    free(at);
    release(&coarse);
    return rc;
}

static int search(const uint64_t *layer_bytes, size_t layers, struct task *t)
{
    struct search s;
    int rc = prepare(&s, layer_bytes, layers);
    rc = rc ? rc : run(&s, t);
    for (size_t most = layers / 2; rc == -E2BIG; most /= 2)
        rc = run_groups(&s, t, most);
    if (rc == -ENOSPC) { /* of groups: single layers fit */
        t->blocks = layers;
        for (size_t i = 0; t->first && i < layers; i++)
            t->first[i] = i;
        rc = 0;
    }
    release(&s);
    return rc;
}

int swn_partition_minmax(const uint64_t *layer_bytes, size_t layers, size_t blocks, size_t *first)
{
    struct task t = {.least = blocks, .first = first};
    if (!blocks || blocks > layers || layers >= UINT32_MAX)
        return -EINVAL;
    return search(layer_bytes, layers, &t);
}

size_t swn_partition_minmax_count(uint64_t model_bytes, uint64_t budget_bytes, size_t layers)
{
    uint64_t n = budget_bytes ? (2 * model_bytes + budget_bytes - 1) / budget_bytes : layers;
    return n < 1 ? 1 : n < layers ? (size_t)n : layers;
}

uint64_t swn_partition_minmax_budget(const uint64_t *layer_bytes, size_t layers)
{
    uint64_t most = layers == 1 ? layer_bytes[0] : 0;
    for (size_t i = 1; i < layers; i++)
        if (layer_bytes[i - 1] + layer_bytes[i] > most)
            most = layer_bytes[i - 1] + layer_bytes[i];
    return most;
}

uint64_t swn_partition_minmax_largest_pair(const uint64_t *layer_bytes, size_t layers, const size_t *first,
                                           size_t blocks)
{
    uint64_t most = 0, before = 0;
    for (size_t b = 0; b < blocks; b++) {
        uint64_t size = 0;
        for (size_t i = first[b]; i < end_of(first, blocks, layers, b); i++)
            size += layer_bytes[i];
        if (before + size > most)
            most = before + size;
        before = size;
    }
    return most;
}

int swn_partition_minmax_fewest(const uint64_t *layer_bytes, size_t layers, uint64_t pair_bytes, size_t *blocks)
{
    struct task t = {.pair_bytes = pair_bytes};
    if (!layers || layers >= UINT32_MAX)
        return -EINVAL;
    if (swn_partition_minmax_budget(layer_bytes, layers) > pair_bytes)
        return -ENOSPC;
    int rc = search(layer_bytes, layers, &t);
    *blocks = t.blocks;
    return rc;
}

int swn_partition_minmax_for_budget(const uint64_t *layer_bytes, size_t layers, uint64_t budget_bytes, size_t *blocks,
                                    size_t *first)
{
    struct task t = {.pair_bytes = budget_bytes, .first = first};
    uint64_t all = 0;
    if (!layers || layers >= UINT32_MAX)
        return -EINVAL;
    if (swn_partition_minmax_budget(layer_bytes, layers) > budget_bytes)
        return -ENOSPC;
    for (size_t i = 0; i < layers; i++)
        all += layer_bytes[i];
    t.least = swn_partition_minmax_count(all, budget_bytes, layers);
    int rc = search(layer_bytes, layers, &t);
    *blocks = t.blocks;
    return rc;
}
