/* skeleton/engine/experts.c - see experts.h. */
#include "skeleton/engine/experts.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "blocks/memory/publish.h"

/* An epoch ends when a weight has been read so often in it: as many tokens of a text. Counts have to tell experts apart
 * that are used every tenth and every twentieth time, and to follow another text. */
#define EPOCH_READS 256
/* Counts that differ by less are chance. */
#define FADED_MOST 31

static void fade(const struct swn_engine *e, struct swn_chunk *c)
{
    uint32_t epochs = e->weights.epoch - c->epoch;
    c->uses = epochs > FADED_MOST ? 0 : c->uses >> epochs;
    c->epoch = e->weights.epoch;
}

void swn_expert_bounds(const struct swn_range *r, uint32_t number, size_t *from, size_t *upto)
{
    const struct swn_mixture *p = &swn_tensor_of(r)->mixture;
    uintptr_t lo = p->first + number * p->each, hi = lo + p->each, end = r->addr + r->len;
    lo = lo < r->addr ? r->addr : lo > end ? end : lo;
    hi = hi < lo ? lo : hi > end ? end : hi;
    *from = lo - r->addr;
    *upto = hi - r->addr;
}

static void count_uses(struct swn_engine *e, const struct swn_range *r, uint32_t number)
{
    size_t from, upto, unit = swn_pool_unit(e->pool);
    swn_expert_bounds(r, number, &from, &upto);
    for (uint64_t c = (r->place + from) / unit; from < upto && c < (r->place + upto + unit - 1) / unit; c++) {
        struct swn_chunk *chunk = swn_pool_chunk(e->pool, c);
        fade(e, chunk);
        chunk->uses++;
    }
}

int swn_experts_note(struct swn_engine *e, struct swn_thread_state *t, struct swn_range *r,
                     const struct swn_experts *experts)
{
    struct swn_mixture *p = &swn_tensor_of(r)->mixture;
    struct swn_expert_list *list = t->experts;
    size_t n = experts->n < SWN_EXPERTS_MOST ? experts->n : SWN_EXPERTS_MOST;
    if (!list && !(list = t->experts = calloc(1, sizeof *list)))
        return -ENOMEM;
    int same = list->count == experts->count && list->n == n && n &&
               !memcmp(list->numbers, experts->numbers, n * sizeof *list->numbers);
    e->plan.dirty |= !p->count; /* a plan does not count it any more */
    p->first = experts->first;
    p->each = experts->each;
    p->count = experts->count;
    p->follows = same ? p->follows + (p->follows < 2) : 0;
    p->reads = p->epoch == e->weights.epoch ? p->reads + 1 : 1;
    p->epoch = e->weights.epoch;
    if (p->reads > EPOCH_READS)
        e->weights.epoch++;
    list->range_id = r->id;
    list->is_told = 1;
    list->count = experts->count;
    list->n = n;
    list->next = 0;
    memcpy(list->numbers, experts->numbers, n * sizeof *list->numbers);
    for (size_t i = 0; e->pool && i < experts->n; i++)
        count_uses(e, r, experts->numbers[i]);
    return 0;
}

int swn_frame_has_experts(const struct swn_frame *f)
{
    for (unsigned i = 0; !f->pinned_by_plan && i < f->n; i++)
        if (f->parts[i].range && swn_is_mixture(f->parts[i].range))
            return 1;
    return 0;
}

uint32_t swn_chunk_uses(const struct swn_engine *e, struct swn_chunk *c)
{
    fade(e, c);
    return c->uses;
}

uint32_t swn_frame_uses(struct swn_engine *e, const struct swn_frame *f)
{
    return swn_chunk_uses(e, swn_pool_chunk(e->pool, f->chunk));
}

struct swn_frame *swn_frame_rarer(struct swn_engine *e, struct swn_frame *f, struct swn_frame *rarest)
{
    return !rarest || swn_frame_uses(e, f) <= swn_frame_uses(e, rarest) ? f : rarest;
}

static size_t number_of(const struct swn_frame *f)
{
    for (unsigned i = 0; i < f->n; i++) {
        const struct swn_range *r = f->parts[i].range;
        if (!r || !swn_is_mixture(r))
            continue;
        uintptr_t at = f->addr + f->parts[i].at, first = swn_tensor_of(r)->mixture.first;
        return at > first ? (at - first) / swn_tensor_of(r)->mixture.each : 0; /* r begins with first's whole page */
    }
    return SIZE_MAX;
}

int swn_frames_of_one_expert(const struct swn_frame *a, const struct swn_frame *b)
{
    return number_of(a) == number_of(b);
}
