/* Predicts what a first pass reads next of a mapped checkpoint. Such files sort tensors by name, which is no order of
 * execution ("layers.1", "layers.10", "layers.2"; down, gate, up). But layers are alike: the weight that followed in
 * the layer before corresponds to one in this layer, which is likely to follow now. */
#include "skeleton/load/load.h"
#include "skeleton/load/load_internal.h"
#include "skeleton/engine/weights.h"

/* A layer's last weights are followed by the next layer's first ones. This layer does not show yet what follows those,
 * but the one before does. */
#define LAYERS_BACK 2

/* The address of the first page of a storage in the mapping, or 0: not mapped. */
static uintptr_t address_of(const struct swn_mapped_file *g, const struct swn_ckpt_storage *at)
{
    uint64_t first = at->off / SWN_PAGE * SWN_PAGE;
    return first < g->file_off || first - g->file_off >= g->hi - g->lo ? 0 : g->lo + (uintptr_t)(first - g->file_off);
}

/* The storage that r is for, which begins in r's first page, or -1. */
static long storage_of(const struct swn_layout *l, const struct swn_range *r)
{
    long i = swn_layout_at(l, r->mapped_file->file_off + (r->addr - r->mapped_file->lo) + SWN_PAGE - 1);
    return i >= 0 && address_of(r->mapped_file, swn_layout_storage(l, (size_t)i)) == r->addr ? i : -1;
}

/* The weight that corresponds to storage `at`, `by` layers earlier, or NULL. */
static const struct swn_weight *weight_before(struct swn_engine *e, const struct swn_mapped_file *g,
                                              const struct swn_layout *l, long at, int by)
{
    long like = swn_layout_alike(l, (size_t)at, -by);
    uintptr_t addr = like >= 0 ? address_of(g, swn_layout_storage(l, (size_t)like)) : 0;
    const struct swn_range *r = addr ? swn_arena_find(e->arena, addr) : NULL;
    return r && r->addr == addr && r->weight >= 0 ? &e->weights.all[r->weight] : NULL;
}

const struct swn_ckpt_storage *swn_load_predict_next(struct swn_engine *e, const struct swn_range *r)
{
    const struct swn_layout *l = swn_source_of(r->mapped_file->file)->layout;
    long at = l ? storage_of(l, r) : -1;
    for (int by = 1; at >= 0 && by <= LAYERS_BACK; by++) {
        const struct swn_weight *before = weight_before(e, r->mapped_file, l, at, by);
        const struct swn_weight *then = before ? swn_weight_of(e, before->then) : NULL;
        long next = then && then->range->mapped_file == r->mapped_file ? storage_of(l, then->range) : -1;
        if (next < 0)
            continue;
        next = swn_layout_alike(l, (size_t)next, by);
        return next >= 0 ? swn_layout_storage(l, (size_t)next) : NULL;
    }
    return NULL;
}
