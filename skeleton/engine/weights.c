/* skeleton/engine/weights.c - see weights.h. */
#include <stdlib.h>

#include "skeleton/engine/engine_internal.h"
#include "skeleton/engine/reclaim.h"
#include "skeleton/engine/subsystem.h"
#include "skeleton/engine/weights.h"
#include "skeleton/engine/accounting.h"

struct swn_weight *swn_weight_of(struct swn_engine *e, uint32_t id)
{
    size_t i = (id & (SWN_WEIGHT_MOST - 1));
    if (!i || i > e->weights.count || e->weights.all[i - 1].id != id || !e->weights.all[i - 1].range)
        return NULL;
    return &e->weights.all[i - 1];
}

static int grow(struct swn_engine *e)
{
    size_t room = e->weights.room ? e->weights.room * 2 : 256;
    struct swn_weight *weights = realloc(e->weights.all, room * sizeof *weights);
    if (!weights)
        return 0;
    e->weights.all = weights;
    uint32_t *free_weights = realloc(e->weights.free, room * sizeof *free_weights);
    if (!free_weights)
        return 0;
    e->weights.free = free_weights;
    e->weights.room = room;
    return 1;
}

/* Makes r a weight of the order. 0: there is no room for one more, and r stays as it is. */
int swn_weight_add(struct swn_engine *e, struct swn_range *r)
{
    size_t i;
    if (e->weights.free_count) {
        i = e->weights.free[--e->weights.free_count];
    } else {
        if (e->weights.count == e->weights.room && (e->weights.count >= SWN_WEIGHT_MOST - 1 || !grow(e)))
            return 0;
        i = e->weights.count++;
        e->weights.all[i].id = (uint32_t)i + 1;
    }
    int loaded = atomic_load(&r->state) == SWN_FILE_BACKED && r->file->immutable;
    e->weights.all[i] = (struct swn_weight){.range = r, .id = e->weights.all[i].id, .loaded = loaded};
    r->weight = (int)i;
    e->weights.live++;
    e->plan.dirty = 1;
    if (atomic_load(&r->state) == SWN_RESIDENT)
        e->weights.resident_bytes += r->size;
    e->nonweight.before = 0; /* bytes that counted as activations so far belonged to a weight */
    e->nonweight.peak = e->nonweight.peak_ever = swn_nonweight_held(e);
    return 1;
}

int swn_is_aged(const struct swn_engine *e, const struct swn_range *r)
{
    return e->ops.seq - swn_tensor_of(r)->alloc_seq >= (e->ops.aged ? e->ops.aged : SWN_AGED_OPS);
}

/* What was read again and again after few other weights each time, and is freed, was no weight but part of a pass: a
 * weight's next read comes a pass later. The order had no use for it. Tensors of its kind, which may be a little older,
 * are not taken for weights from now on. */
static void learn_age(struct swn_engine *e, const struct swn_weight *weight)
{
    uint64_t age = e->ops.seq - swn_tensor_of(weight->range)->alloc_seq, aged = age + age / 2;
    uint64_t now = e->ops.aged ? e->ops.aged : SWN_AGED_OPS;

    if (!weight->loaded && weight->widest_gap && weight->widest_gap * 2 < e->weights.live && age < SWN_AGED_OPS_MOST &&
        aged > now)
        e->ops.aged = aged;
}

void swn_weight_remove(struct swn_engine *e, struct swn_range *r)
{
    if (r->weight < 0)
        return;
    struct swn_weight *n = &e->weights.all[r->weight];
    learn_age(e, n);
    if (e->features.record)
        e->features.observer->leaving(e);
    swn_access_order_forget(e->weights.order, n->id);
    for (struct swn_thread_state *t = e->ops.threads; t; t = t->next)
        if (t->cursor.anchor == n->id) {
            t->cursor.anchor = 0;
            e->features.placement->drop(e, t);
        }
    if (atomic_load(&r->state) == SWN_RESIDENT)
        e->weights.resident_bytes -= r->size;
    n->range = NULL;
    n->id += (uint32_t)SWN_WEIGHT_MOST;
    e->weights.free[e->weights.free_count++] = (uint32_t)r->weight;
    r->weight = -1;
    if (!--e->weights.live)
        swn_reclaim_trim(e);
    e->plan.dirty = 1;
}
