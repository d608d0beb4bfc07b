/* skeleton/tiling/expert.c - see expert.h. Experts are lent at the weight's own address, one after the other; the reads
 * of the ones behind are under way meanwhile (walk_ahead in skeleton/core/prefetch.c). What stays in memory afterwards
 * goes by how often it is used (skeleton/engine/experts.h). */
#include "skeleton/tiling/expert.h"

#include "skeleton/core/op_window.h"
#include "skeleton/core/prefetch.h"
#include "skeleton/core/residency_steps.h"
#include "skeleton/engine/experts.h"
#include "skeleton/engine/section.h"
#include "skeleton/engine/thread_state.h"
#include "skeleton/load/load.h"

/* The argument's weight; NULL: it is gone, or nothing the engine knows. */
static struct swn_range *weight_of(const struct swn_arg *arg)
{
    struct swn_range *r = arg->range;
    return r && r->id == arg->range_id && arg->use == SWN_USE_EXPERTS && arg->reading ? r : NULL;
}

void swn_experts_begin(struct swn_op *op, unsigned index, const struct swn_experts *experts)
{
    SWN_SECTION();
    struct swn_engine *e = &swn_engine_one;
    swn_lock(&e->lock);
    struct swn_thread_state *t = swn_window_thread(e);
    struct swn_range *r = weight_of(&op->args[index]);
    if (r && t && experts->each && swn_is_weight(r)) {
        if (!e->pool && atomic_load(&r->state) == SWN_FILE_BACKED)
            swn_open_pool(e);
        if (!swn_experts_note(e, t, r, experts))
            swn_prefetch_run(e, t);
    }
    swn_unlock(&e->lock);
}

void swn_expert_lend(struct swn_op *op, unsigned index, uintptr_t at, size_t bytes)
{
    SWN_SECTION();
    struct swn_engine *e = &swn_engine_one;
    struct swn_arg *arg = &op->args[index];
    swn_lock(&e->lock);
    uint64_t begin = swn_now_ns();
    struct swn_thread_state *t = swn_window_thread(e);
    struct swn_range *r = weight_of(arg);
    uintptr_t end = r ? r->addr + r->len : 0;
    if (r && t && at < end && at + bytes > r->addr) {
        size_t from = at > r->addr ? at - r->addr : 0, upto = (at + bytes < end ? at + bytes : end) - r->addr;
        struct swn_expert_list *list = t->experts;
        if (list && list->range_id == r->id && list->next < list->n)
            list->next++;
        if (swn_arg_is_file_backed(arg) && (e->fetch || !swn_open_pool(e)) && e->pool) {
            swn_window_hold(e, arg, from, upto);
            swn_window_lend(e, arg, t);
            arg->experts = 2;
            swn_prefetch_run(e, t);
        }
    }
    if (t)
        t->ready_ns += swn_now_ns() - begin; /* waiting is not computing */
    swn_unlock(&e->lock);
}

void swn_experts_end(struct swn_engine *e, struct swn_arg *arg)
{
    struct swn_thread_state *t = swn_window_self();
    if (t && t->experts && t->experts->range_id == arg->range_id)
        t->experts->range_id = 0;
    if (arg->experts == 1 && arg->range && arg->range->id == arg->range_id &&
        swn_arg_is_file_backed(arg)) { /* read through its mapping, if at all */
        swn_load_verify(e, arg->range);
        arg->remap = 1;
    }
}
