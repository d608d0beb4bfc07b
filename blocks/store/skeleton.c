/* blocks/store/skeleton.c - see skeleton.h. */
#include "blocks/store/skeleton.h"

#include <errno.h>
#include <stdlib.h>

#define PAGE_UP(n) (((n) + 4095) & ~(uint64_t)4095)

int swn_skeleton_make(struct swn_skeleton **out, const struct swn_store *s)
{
    struct swn_skeleton *sk = calloc(1, sizeof *sk);
    if (!sk)
        return -ENOMEM;
    sk->store = s;
    sk->slot_count = s->tensor_count;
    sk->slots = calloc(s->tensor_count + 1, sizeof *sk->slots);
    sk->first_slot = calloc(s->layer_count + 1, sizeof *sk->first_slot);
    if (!sk->slots || !sk->first_slot) {
        swn_skeleton_free(sk);
        return -ENOMEM;
    }
    for (size_t i = 0; i < s->tensor_count; i++) {
        const struct swn_store_tensor *t = &s->tensors[i];
        sk->slots[i] = (struct swn_skeleton_slot){.shape = t->shape,
                                                  .stride = t->stride,
                                                  .off = s->extents[t->extent].off + t->off,
                                                  .extent = t->extent,
                                                  .ndim = (uint16_t)t->ndim,
                                                  .dtype = (uint16_t)t->dtype};
    }
    for (size_t i = 0; i < s->layer_count; i++)
        sk->first_slot[i + 1] = sk->first_slot[i] + s->layers[i].depth;
    *out = sk;
    return 0;
}

void swn_skeleton_free(struct swn_skeleton *sk)
{
    if (!sk)
        return;
    free(sk->slots);
    free(sk->first_slot);
    free(sk);
}

size_t swn_skeleton_bytes(const struct swn_skeleton *sk)
{
    return sizeof *sk + sk->slot_count * sizeof *sk->slots + (sk->store->layer_count + 1) * sizeof *sk->first_slot;
}

/* ---- blocks ---- */

static int by_number(const void *a, const void *b)
{
    uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;
    return (x > y) - (x < y);
}

/* The extents before `own` that slots [first, first + count) need, sorted, each once; allocated. */
static int foreign_extents(const struct swn_skeleton *sk, uint32_t first, uint32_t count, uint32_t own, uint32_t **out,
                           uint32_t *found)
{
    uint32_t n = 0, kept = 0;
    for (uint32_t i = 0; i < count; i++)
        n += sk->slots[first + i].extent < own;
    *out = NULL;
    *found = 0;
    if (!n)
        return 0;
    uint32_t *list = malloc(n * sizeof *list);
    if (!list)
        return -ENOMEM;
    n = 0;
    for (uint32_t i = 0; i < count; i++)
        if (sk->slots[first + i].extent < own)
            list[n++] = sk->slots[first + i].extent;
    qsort(list, n, sizeof *list, by_number);
    for (uint32_t i = 0; i < n; i++)
        if (!i || list[i] != list[kept - 1])
            list[kept++] = list[i];
    *out = list;
    *found = kept;
    return 0;
}

static uint64_t padded(const struct swn_store *s, uint32_t extent)
{
    return PAGE_UP(s->extents[extent].bytes);
}

int swn_block_make(struct swn_block *b, const struct swn_skeleton *sk, uint32_t first_layer, uint32_t layers)
{
    const struct swn_store *s = sk->store;
    uint32_t *foreign;
    if (!layers || first_layer >= s->layer_count || layers > s->layer_count - first_layer)
        return -EINVAL;
    const struct swn_store_layer *first = &s->layers[first_layer], *last = &s->layers[first_layer + layers - 1];
    *b = (struct swn_block){.first_layer = first_layer,
                            .layers = layers,
                            .first_slot = sk->first_slot[first_layer],
                            .slots = sk->first_slot[first_layer + layers] - sk->first_slot[first_layer],
                            .first_extent = first->first_extent,
                            .extents = last->first_extent + last->extents - first->first_extent};
    b->off = b->first_extent < s->extent_count ? s->extents[b->first_extent].off : s->total_bytes;
    for (uint32_t i = 0; i < b->extents; i++)
        b->own_bytes += padded(s, b->first_extent + i);
    b->bytes = b->own_bytes;
    int rc = foreign_extents(sk, b->first_slot, b->slots, b->first_extent, &foreign, &b->tie_count);
    if (!rc && b->tie_count && !(b->ties = calloc(b->tie_count, sizeof *b->ties)))
        rc = -ENOMEM;
    for (uint32_t i = 0; !rc && i < b->tie_count; i++) {
        b->ties[i] = (struct swn_tie){.extent = foreign[i], .at = b->bytes};
        b->bytes += padded(s, foreign[i]);
    }
    free(foreign);
    return rc;
}

void swn_block_free(struct swn_block *b)
{
    free(b->ties);
    *b = (struct swn_block){0};
}

static const struct swn_tie *find_tie(const struct swn_block *b, uint32_t extent)
{
    uint32_t low = 0, high = b->tie_count - 1;
    while (low < high) {
        uint32_t middle = low + (high - low) / 2;
        if (b->ties[middle].extent < extent)
            low = middle + 1;
        else
            high = middle;
    }
    return &b->ties[low];
}

void swn_skeleton_register(struct swn_skeleton *sk, const struct swn_block *b, void *base)
{
    struct swn_skeleton_slot *slot = &sk->slots[b->first_slot], *end = slot + b->slots;
    for (; slot < end; slot++) {
        if (slot->extent >= b->first_extent) {
            slot->data = (char *)base + (slot->off - b->off);
        } else {
            const struct swn_tie *tie = find_tie(b, slot->extent);
            slot->data = (char *)base + tie->at + (slot->off - sk->store->extents[tie->extent].off);
        }
    }
}

void swn_skeleton_unregister(struct swn_skeleton *sk, const struct swn_block *b)
{
    for (uint32_t i = 0; i < b->slots; i++)
        sk->slots[b->first_slot + i].data = NULL;
}
