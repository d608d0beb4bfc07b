/* What a first pass will read next of a mapped checkpoint. Its writers sort tensors by name, which is no order of
 * execution ("layers.1", "layers.10", "layers.2"; down, gate, up). But layers are alike: what followed a weight in the
 * layer before is followed by its like in this one. */
#include "swn_load.h"
#include "swn_load_priv.h"

/* A layer's last weights are followed by the next layer's first ones: what comes after those, this layer does not say
 * yet, but the one before it does. */
#define LAYERS_BACK 2

static struct swn_range *range_of(struct swn_engine *e, const struct swn_guest *g, const struct swn_ckpt_storage *at)
{
    uint64_t first = swn_round_up(at->off, SWN_PAGE);
    struct swn_range *r =
        first < g->file_off ? NULL : swn_arena_find(e->arena, g->lo + (uintptr_t)(first - g->file_off));
    return r && r->guest == g && r->extent == first ? r : NULL;
}

/* The storage whose whole pages r is, or -1. */
static long storage_of(const struct swn_layout *l, const struct swn_range *r)
{
    long i = swn_layout_at(l, r->extent);
    return i >= 0 && swn_round_up(swn_layout_storage(l, (size_t)i)->off, SWN_PAGE) == r->extent ? i : -1;
}

const struct swn_ckpt_storage *swn_load_foresee(struct swn_engine *e, const struct swn_range *r)
{
    const struct swn_layout *l = swn_source_of(r->guest->file)->layout;
    long at = l ? storage_of(l, r) : -1;
    for (int by = 1; at >= 0 && by <= LAYERS_BACK; by++) {
        long like = swn_layout_alike(l, (size_t)at, -by);
        struct swn_range *before = like >= 0 ? range_of(e, r->guest, swn_layout_storage(l, (size_t)like)) : NULL;
        struct swn_node *then = before && before->node >= 0 ? swn_node_of(e, e->nodes[before->node].then) : NULL;
        long next = then && then->range->guest == r->guest ? storage_of(l, then->range) : -1;
        if (next < 0)
            continue;
        next = swn_layout_alike(l, (size_t)next, by);
        return next >= 0 ? swn_layout_storage(l, (size_t)next) : NULL;
    }
    return NULL;
}
