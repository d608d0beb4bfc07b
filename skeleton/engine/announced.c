/* skeleton/engine/announced.c - see announced.h. */
#include "skeleton/engine/announced.h"

#include <errno.h>
#include <stdlib.h>

#include <string.h>

#include "skeleton/engine/engine_internal.h"

#define PLACES (4 * (size_t)SWN_ANNOUNCED_MOST)

static int make_room(struct swn_announced *a)
{
    if (!a->reads &&
        (a->reads = calloc(SWN_ANNOUNCED_MOST, sizeof *a->reads + PLACES / SWN_ANNOUNCED_MOST * sizeof *a->places)))
        a->places = (uint16_t *)(a->reads + SWN_ANNOUNCED_MOST);
    return a->reads ? 0 : -ENOMEM;
}

/* Appends a read, and notes of it and of the first one of the same weight that there are several. */
static void append(struct swn_announced *a, uintptr_t address, uint32_t id)
{
    size_t at = id * (size_t)2654435761u % PLACES;
    struct swn_announced_read *read = &a->reads[a->count++];

    *read = (struct swn_announced_read){.address = address, .id = id};
    while (a->places[at] && a->reads[a->places[at] - 1].id != id)
        at = (at + 1) % PLACES;
    if (!a->places[at]) {
        a->places[at] = (uint16_t)a->count;
        return;
    }
    struct swn_announced_read *earlier = &a->reads[a->places[at] - 1];
    a->repeated += 2u - earlier->is_repeated;
    read->is_repeated = earlier->is_repeated = 1;
}

int swn_announced_set(struct swn_engine *e, const struct swn_serving_weight *weights, size_t n)
{
    struct swn_announced *a = &e->ops.announced;

    a->first = a->count = a->repeated = 0;
    if (!n)
        return 0;
    if (make_room(a))
        return -ENOMEM;
    memset(a->places, 0, PLACES * sizeof *a->places);
    for (size_t i = 0; i < n && a->count < SWN_ANNOUNCED_MOST; i++) {
        const struct swn_range *r = swn_arena_find(e->arena, weights[i].address);
        if (!r || atomic_load(&((struct swn_range *)(uintptr_t)r)->state) != SWN_FILE_BACKED)
            continue;
        append(a, weights[i].address, r->id);
        a->file = a->count == 1 ? r->file : a->file;
    }
    return 0;
}

int swn_announced_is_all(const struct swn_engine *e)
{
    const struct swn_announced *a = &e->ops.announced;

    return e->config.stores & SWN_MANY_MODELS && a->reads && (!e->plan.planned || a->file != e->plan.in_force.file);
}

void swn_announced_note_read(struct swn_engine *e, const struct swn_range *r)
{
    struct swn_announced *a = &e->ops.announced;
    size_t i = a->first;

    if (atomic_load(&((struct swn_range *)(uintptr_t)r)->state) == SWN_FILE_BACKED)
        a->file = r->file;
    while (i < a->count && (a->reads[i].id != r->id || a->reads[i].is_over))
        i++;
    if (i < a->count) {
        a->reads[i].is_over = 1;
        a->repeated -= a->reads[i].is_repeated;
    }
    while (a->first < a->count && a->reads[a->first].is_over)
        a->first++;
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
