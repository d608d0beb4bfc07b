/* scheduler/planner/activation_layout.c - see activation_layout.h. */
#include "scheduler/planner/activation_layout.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* Steps that the search may take, some 20 ms. A network of 500 tensors gets 80 rounds. */
#define MOST_STEPS ((size_t)20 << 20)
#define MOST_ROUNDS 128

struct layout {
    const struct swn_activation_tensor *slots;
    uint64_t *sizes;  /* rounded up */
    uint32_t *order;  /* the order in which tensors get their places */
    uint32_t *placed; /* tensors that have a place, by its offset */
    uint64_t *at;
    size_t n, count; /* of slots, and of those that get a place */
};

static int placeable(const struct swn_activation_tensor *s, size_t i, size_t n)
{
    return s->bytes && s->dies > i && s->dies <= i + n;
}

static int meet(const struct swn_activation_tensor *slots, size_t n, size_t i, size_t j)
{
    size_t first = i < j ? i : j, second = i < j ? j : i;
    return second < slots[first].dies || first + n < slots[second].dies;
}

/* The lowest place for tensor i beside those that have a place already. */
static uint64_t lowest(const struct layout *l, size_t placed, uint32_t i)
{
    uint64_t end = 0;
    for (size_t k = 0; k < placed; k++) {
        uint32_t j = l->placed[k];
        if (l->at[j] + l->sizes[j] <= end || !meet(l->slots, l->n, i, j))
            continue;
        if (l->at[j] >= end + l->sizes[i])
            break;
        end = l->at[j] + l->sizes[j];
    }
    return end;
}

/* Places all tensors in the order of l->order. Returns the end of the last place, and in *highest the index in l->order
 * of the tensor that ends there. */
static uint64_t place_all(const struct layout *l, size_t *highest)
{
    uint64_t extent = 0;
    for (size_t k = 0; k < l->count; k++) {
        uint32_t i = l->order[k];
        l->at[i] = lowest(l, k, i);
        size_t lo = 0;
        for (size_t hi = k; lo < hi;) {
            size_t mid = (lo + hi) / 2;
            if (l->at[l->placed[mid]] <= l->at[i])
                lo = mid + 1;
            else
                hi = mid;
        }
        memmove(&l->placed[lo + 1], &l->placed[lo], (k - lo) * sizeof *l->placed);
        l->placed[lo] = i;
        if (l->at[i] + l->sizes[i] > extent) {
            extent = l->at[i] + l->sizes[i];
            *highest = k;
        }
    }
    return extent;
}

struct sized {
    uint64_t bytes;
    uint32_t i;
};

static int largest_first(const void *a, const void *b)
{
    const struct sized *x = a, *y = b;
    if (x->bytes != y->bytes)
        return x->bytes > y->bytes ? -1 : 1;
    return x->i < y->i ? -1 : x->i > y->i;
}

static void improve(struct swn_activation_tensor *slots, const struct layout *l, uint64_t peak, uint64_t *extent)
{
    *extent = UINT64_MAX;
    size_t steps = 0, rounds = 0;
    while (rounds++<MOST_ROUNDS && * extent> peak && steps < MOST_STEPS) {
        size_t highest = 0;
        uint64_t reached = place_all(l, &highest);
        steps += l->count * l->count / 2;
        if (reached < *extent) {
            *extent = reached;
            for (size_t i = 0; i < l->n; i++)
                slots[i].at = l->at[i];
        }
        uint32_t i = l->order[highest];
        memmove(&l->order[1], l->order, highest * sizeof *l->order);
        l->order[0] = i;
    }
}

int swn_activation_layout_place(struct swn_activation_tensor *slots, size_t n, uint64_t unit, uint64_t *extent)
{
    struct layout l = {.slots = slots, .n = n};
    struct sized *sized = malloc((n + 1) * sizeof *sized);
    l.sizes = malloc((n + 1) * sizeof *l.sizes);
    l.at = malloc((n + 1) * sizeof *l.at);
    l.order = malloc((n + 1) * sizeof *l.order);
    l.placed = malloc((n + 1) * sizeof *l.placed);
    int err = sized && l.sizes && l.at && l.order && l.placed ? 0 : -ENOMEM;
    *extent = 0;
    for (size_t i = 0; !err && i < n; i++) {
        l.sizes[i] = (slots[i].bytes + unit - 1) / unit * unit;
        l.at[i] = slots[i].at = SWN_NOWHERE;
        if (placeable(&slots[i], i, n))
            sized[l.count++] = (struct sized){l.sizes[i], (uint32_t)i};
    }
    if (!err && l.count) {
        qsort(sized, l.count, sizeof *sized, largest_first);
        for (size_t k = 0; k < l.count; k++)
            l.order[k] = sized[k].i;
        improve(slots, &l, swn_activation_layout_peak(slots, n, unit), extent);
    }
    free(sized);
    free(l.sizes);
    free(l.at);
    free(l.order);
    free(l.placed);
    return err;
}

uint64_t swn_activation_layout_peak(const struct swn_activation_tensor *slots, size_t n, uint64_t unit)
{
    uint64_t peak = 0;
    for (size_t now = 0; now < n; now++) {
        uint64_t live = 0;
        for (size_t i = 0; i < n; i++)
            if (placeable(&slots[i], i, n) && ((i <= now && now < slots[i].dies) || now + n < slots[i].dies))
                live += (slots[i].bytes + unit - 1) / unit * unit;
        peak = live > peak ? live : peak;
    }
    return peak;
}

/* Whether the tensor lives at any time in [from, until). Both count from the beginning of the pass that contains
 * `from`; `dies` counts from the beginning of the pass in which the tensor is born. */
static int lives(const struct swn_activation_tensor *s, size_t i, size_t n, size_t from, size_t until)
{
    for (size_t born = i, pass = 0; pass < 3; pass++, born += n) { /* in the pass before, in this one, in the next */
        size_t dies = s->dies + pass * n;
        if (born < until + n && from + n < dies)
            return 1;
    }
    return 0;
}

uint64_t swn_activation_layout_gap(const struct swn_activation_tensor *slots, size_t n, uint64_t unit, uint64_t extent,
                                   uint32_t from, uint32_t until, uint64_t least, uint64_t bytes)
{
    for (int moved = 1; moved;) {
        moved = 0;
        for (size_t i = 0; i < n; i++) {
            const struct swn_activation_tensor *s = &slots[i];
            if (s->at == SWN_NOWHERE || s->at >= least + bytes || s->at + s->bytes <= least ||
                !lives(s, i, n, from, until))
                continue;
            least = (s->at + s->bytes + unit - 1) / unit * unit;
            moved = 1;
        }
    }
    return least + bytes <= extent ? least : SWN_NOWHERE;
}
