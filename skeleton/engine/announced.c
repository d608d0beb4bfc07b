/* skeleton/engine/announced.c - see announced.h. */
#include "skeleton/engine/announced.h"

#include <errno.h>
#include <stdlib.h>

#include <string.h>

#include "skeleton/engine/engine_internal.h"

#define FIRST_ROOM ((size_t)256)

/* Room for n reads; the order before is lost. */
static int make_room(struct swn_announced *a, size_t n)
{
    size_t room = a->room ? a->room : FIRST_ROOM;

    while (room < n)
        room *= 2;
    if (room > a->room) {
        free(a->reads);
        free(a->weights);
        a->reads = malloc(room * sizeof *a->reads);
        a->weights = malloc(2 * room * sizeof *a->weights);
        a->room = a->reads && a->weights ? room : 0;
        a->slots = 2 * a->room;
    }
    if (!a->room)
        return -ENOMEM;
    memset(a->weights, 0, a->slots * sizeof *a->weights);
    return 0;
}

static struct swn_announced_weight *weight_of(const struct swn_announced *a, uint32_t id)
{
    size_t at = (uint32_t)(id * 2654435761u) & (a->slots - 1);

    while (a->weights[at].id && a->weights[at].id != id)
        at = (at + 1) & (a->slots - 1);
    return &a->weights[at];
}

/* Appends a read, and notes of it and of the one before of the same weight that there are several. */
static void append(struct swn_announced *a, uintptr_t address, uint32_t id)
{
    struct swn_announced_weight *weight = weight_of(a, id);
    struct swn_announced_read *read = &a->reads[a->count++];
    uint32_t place = (uint32_t)a->count;

    *read = (struct swn_announced_read){.address = address, .id = id};
    if (!weight->id) {
        *weight = (struct swn_announced_weight){.id = id, .next = place, .last = place};
        return;
    }
    struct swn_announced_read *earlier = &a->reads[weight->last - 1];
    a->repeated += 2u - earlier->is_repeated;
    read->is_repeated = earlier->is_repeated = 1;
    earlier->again = weight->last = place;
}

static int comes_and_goes(const struct swn_range *r)
{
    return r && atomic_load(&((struct swn_range *)(uintptr_t)r)->state) == SWN_FILE_BACKED;
}

/* Whether the plan's model comes again behind another one, in an order that goes all round: the model at work does,
 * too. Whose a read is its model says, not the file that it is from, as models may have weights in common. */
static void note_returning(struct swn_engine *e, const struct swn_serving_weight *weights, size_t n, uintptr_t at_work)
{
    struct swn_announced *a = &e->ops.announced;
    const struct swn_extent_file *planned = e->plan.planned ? e->plan.in_force.file : NULL;
    int others = 0, is_of_plan = 0, comes = 0;
    uintptr_t own = at_work;

    for (size_t i = 0; planned && a->is_told && !a->returning && i < n; i++) {
        if (weights[i].own && weights[i].own != own) {
            const struct swn_range *r = swn_arena_find(e->arena, own = weights[i].own);
            is_of_plan = comes_and_goes(r) && r->file == planned;
            others = 1;
        }
        comes |= is_of_plan;
        a->returning = others && own == at_work && (comes || a->file == planned) ? planned : NULL;
    }
}

int swn_announced_set(struct swn_engine *e, const struct swn_serving_weight *weights, size_t n, uintptr_t own)
{
    struct swn_announced *a = &e->ops.announced;
    const struct swn_range *of_model = own ? swn_arena_find(e->arena, own) : NULL;

    a->first = a->count = a->repeated = a->settled = 0;
    a->returning = NULL;
    a->is_cut = n >= SWN_ANNOUNCED_MOST; /* who has more to tell tells no more */
    a->is_told = comes_and_goes(of_model);
    if (a->is_told)
        a->file = of_model->file;
    if (!n)
        return 0;
    n = a->is_cut ? SWN_ANNOUNCED_MOST : n;
    if (make_room(a, n))
        return -ENOMEM;
    for (size_t i = 0; i < n; i++) {
        const struct swn_range *r = swn_arena_find(e->arena, weights[i].address);
        if (!comes_and_goes(r))
            continue;
        append(a, weights[i].address, r->id);
        a->file = a->count == 1 && !a->is_told ? r->file : a->file;
    }
    note_returning(e, weights, n, own);
    return 0;
}

int swn_announced_is_all(const struct swn_engine *e)
{
    const struct swn_announced *a = &e->ops.announced;

    return e->config.stores & SWN_MANY_MODELS && a->room && !a->is_cut &&
           (!e->plan.planned || a->file != e->plan.in_force.file || swn_announced_is_round(e));
}

int swn_announced_is_round(const struct swn_engine *e)
{
    const struct swn_announced *a = &e->ops.announced;

    return e->config.stores & SWN_MANY_MODELS && e->plan.planned && !a->is_cut && a->returning &&
           a->returning == e->plan.in_force.file;
}

void swn_announced_note_read(struct swn_engine *e, const struct swn_range *r)
{
    struct swn_announced *a = &e->ops.announced;

    if (!a->is_told && comes_and_goes(r))
        a->file = r->file;
    struct swn_announced_weight *weight = a->count ? weight_of(a, r->id) : NULL;
    if (weight && weight->next) {
        struct swn_announced_read *read = &a->reads[weight->next - 1];
        read->is_over = 1;
        a->repeated -= read->is_repeated;
        weight->next = read->again;
    }
    while (a->first < a->count && a->reads[a->first].is_over)
        a->first++;
}

uint32_t swn_announced_place(const struct swn_engine *e, uint32_t id)
{
    const struct swn_announced *a = &e->ops.announced;

    return a->count ? weight_of(a, id)->next : 0;
}

void swn_announced_unsettle(struct swn_engine *e, size_t place)
{
    if (place && place <= e->ops.announced.settled)
        e->ops.announced.settled = place - 1;
}

struct swn_range *swn_announced_next(struct swn_engine *e, size_t *at)
{
    const struct swn_announced *a = &e->ops.announced;

    for (size_t i = *at > a->first ? *at : a->first; i < a->count; i++) {
        struct swn_range *r = a->reads[i].is_over ? NULL : swn_arena_find(e->arena, a->reads[i].address);
        if (r && r->id == a->reads[i].id) {
            *at = i + 1;
            return r;
        }
    }
    return NULL;
}
