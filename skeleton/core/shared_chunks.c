/* skeleton/core/shared_chunks.c - see shared_chunks.h. Reads stay spread over the pass as the plan has spread them, as
 * places are changed between neighbours in the order only. */
#include "skeleton/core/shared_chunks.h"

#include <stdlib.h>

#include "blocks/memory/publish.h"
#include "skeleton/engine/weights.h"

/* How far places are changed, in weights. */
#define NEAR 32

struct view {
    struct swn_engine *e;
    const struct swn_plan_weight *weights;
    const uint32_t *ids;
    size_t n;
    uint64_t ring, unit;
    uint64_t *streamed; /* of each weight */
    uint64_t *before;   /* streamed bytes of a pass before each weight; of all at the end */
    size_t *place;      /* in the order, by number in e->weights.all */
};

static struct swn_range *range_at(const struct view *v, size_t i)
{
    return swn_weight_of(v->e, v->ids[i])->range;
}

static int is_own(const struct view *v, const struct swn_chunk *c, size_t i)
{
    return c->weight == v->ids[i];
}

/* Whether so much is read between the two weights that the chunk has left before the second one reads it, and before
 * the first one does in the next pass. */
static int is_apart(const struct view *v, size_t first, size_t second)
{
    uint64_t between = v->before[second] - v->before[first];
    return between > v->ring && v->before[v->n] - between > v->ring;
}

/* Marks all chunks that are read twice in a pass. */
static void mark(const struct view *v)
{
    for (size_t i = 0; i < v->n; i++) {
        struct swn_chunks all = swn_residency_chunks(&v->e->res, range_at(v, i));
        for (uint64_t c = all.first; c < all.end; c++)
            swn_pool_chunk(v->e->pool, c)->read_twice = 0;
    }
    for (size_t i = 0; i < v->n; i++) {
        struct swn_chunks all = swn_residency_chunks(&v->e->res, range_at(v, i));
        for (uint64_t c = all.first; c < all.end; c++) {
            struct swn_chunk *chunk = swn_pool_chunk(v->e->pool, c);
            const struct swn_weight *first = is_own(v, chunk, i) ? NULL : swn_weight_of(v->e, chunk->weight);
            chunk->read_twice |= first && is_apart(v, v->place[first - v->e->weights.all], i);
        }
    }
}

/* Slices of a weight are kept in turns, and an oversize one is served by its mapping. */
static int may_change(const struct view *v, size_t i)
{
    return !v->weights[i].sliced && !v->weights[i].oversize;
}

/* A chunk of weight i that is kept though it would be read only once. What the weight streams then still fits the ring
 * with another one. */
static struct swn_chunk *giver_of(const struct view *v, size_t i)
{
    if (!may_change(v, i) || v->streamed[i] + v->unit > v->ring / 2)
        return NULL;
    struct swn_chunks all = swn_residency_chunks(&v->e->res, range_at(v, i));
    for (uint64_t c = all.end; c-- > all.first;) {
        struct swn_chunk *chunk = swn_pool_chunk(v->e->pool, c);
        if (is_own(v, chunk, i) && chunk->plan_keep && !chunk->read_twice)
            return chunk;
    }
    return NULL;
}

/* The place of a chunk near i for `chunk`, which is i's. */
static void change_places(const struct view *v, size_t i, struct swn_chunk *chunk)
{
    for (size_t d = 0; d <= NEAR; d++)
        for (int behind = 0; behind <= (d > 0); behind++) {
            size_t j = behind ? i + d : i - d; /* beyond n, where i < d */
            struct swn_chunk *giver = j < v->n ? giver_of(v, j) : NULL;
            if (!giver)
                continue;
            giver->plan_keep = 0;
            chunk->plan_keep = 1;
            v->streamed[j] += v->unit;
            v->streamed[i] -= v->unit;
            return;
        }
}

void swn_shared_chunks_keep(struct swn_engine *e, const struct swn_plan_weight *weights, const uint32_t *ids, size_t n,
                            uint64_t ring)
{
    struct view v = {e, weights, ids, n, ring, swn_pool_unit(e->pool), NULL, NULL, NULL};
    v.streamed = calloc(n + 1, sizeof *v.streamed);
    v.before = calloc(n + 1, sizeof *v.before);
    v.place = calloc(e->weights.count + 1, sizeof *v.place);
    for (size_t i = 0; v.streamed && v.before && v.place && i < n; i++) {
        struct swn_chunks all = swn_residency_chunks(&e->res, range_at(&v, i));
        for (uint64_t c = all.first; c < all.end; c++) {
            const struct swn_chunk *chunk = swn_pool_chunk(e->pool, c);
            v.streamed[i] += is_own(&v, chunk, i) && !chunk->plan_keep ? v.unit : 0;
        }
        v.before[i + 1] = v.before[i] + v.streamed[i];
        v.place[swn_weight_of(e, ids[i]) - e->weights.all] = i;
    }
    if (v.streamed && v.before && v.place) {
        mark(&v);
        for (size_t i = 0; i < n; i++) {
            struct swn_chunks all = swn_residency_chunks(&e->res, range_at(&v, i));
            for (uint64_t c = all.first; may_change(&v, i) && c < all.end; c++) {
                struct swn_chunk *chunk = swn_pool_chunk(e->pool, c);
                if (is_own(&v, chunk, i) && chunk->read_twice && !chunk->plan_keep)
                    change_places(&v, i, chunk);
            }
        }
    }
    free(v.streamed);
    free(v.before);
    free(v.place);
}
