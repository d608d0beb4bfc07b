/* skeleton/tape/tape.c - liveness, cuts and layer groups of a tape: see tape.h.
 *
 * A value is alive at the place before step s if it is an input of the model or was made before s, and a step from s on
 * reads it, or it is a result. So one pass over the values, each adding itself at one place and leaving at another,
 * counts what is alive everywhere.
 */
#include "skeleton/tape/tape.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define INPUT UINT32_MAX /* made by no step */
#define NEVER UINT32_MAX /* read by no step */

struct value {
    enum swn_tape_kind kind;
    uint32_t made, last; /* steps */
    int is_result;
};

struct step {
    uint64_t weight_bytes;
    uint32_t dead, deads; /* in t->dead */
    int is_cut;           /* of the place before the step */
};

struct swn_tape {
    struct value *values;
    struct step *steps;
    uint32_t *dead; /* values in the order in which they die; those that are never read come last */
    size_t values_count, values_room, steps_count, steps_room;
    size_t unread, unreads; /* in `dead` */
    size_t cuts;
    int finished;
};

struct swn_tape *swn_tape_new(void)
{
    return calloc(1, sizeof(struct swn_tape));
}

void swn_tape_free(struct swn_tape *t)
{
    if (t == NULL)
        return;
    free(t->values);
    free(t->steps);
    free(t->dead);
    free(t);
}

/* Room for one more element of *array. */
static int grow(void **array, size_t each, size_t count, size_t *room)
{
    size_t more = *room ? *room * 2 : 64;
    void *larger;

    if (count < *room)
        return 0;
    if (count >= NEVER - 1 || more > SIZE_MAX / each || (larger = realloc(*array, more * each)) == NULL)
        return -ENOMEM;
    *array = larger;
    *room = more;
    return 0;
}

int64_t swn_tape_value(struct swn_tape *t, enum swn_tape_kind kind)
{
    if (t->finished)
        return -EINVAL;
    if (grow((void **)&t->values, sizeof *t->values, t->values_count, &t->values_room) < 0)
        return -ENOMEM;
    t->values[t->values_count] = (struct value){.kind = kind, .made = INPUT, .last = NEVER};
    return (int64_t)t->values_count++;
}

int64_t swn_tape_step(struct swn_tape *t, const uint32_t *in, size_t ins, const uint32_t *out, size_t outs,
                      uint64_t weight_bytes)
{
    uint32_t step = (uint32_t)t->steps_count;

    if (t->finished)
        return -EINVAL;
    for (size_t i = 0; i < ins; i++)
        if (in[i] >= t->values_count)
            return -EINVAL;
    for (size_t i = 0; i < outs; i++)
        if (out[i] >= t->values_count || t->values[out[i]].made != INPUT || t->values[out[i]].last != NEVER)
            return -EINVAL;
    if (grow((void **)&t->steps, sizeof *t->steps, t->steps_count, &t->steps_room) < 0)
        return -ENOMEM;
    t->steps[step] = (struct step){.weight_bytes = weight_bytes};
    for (size_t i = 0; i < outs; i++)
        t->values[out[i]].made = step;
    for (size_t i = 0; i < ins; i++)
        t->values[in[i]].last = step;
    return (int64_t)t->steps_count++;
}

int swn_tape_result(struct swn_tape *t, uint32_t value)
{
    if (t->finished || value >= t->values_count)
        return -EINVAL;
    t->values[value].is_result = 1;
    return 0;
}

/* The step after which the value is no longer needed; NEVER for an input that no step reads. */
static uint32_t last_needed(const struct value *v)
{
    return v->last != NEVER ? v->last : v->made;
}

static int list_the_dead(struct swn_tape *t)
{
    uint32_t at = 0;

    t->dead = malloc((t->values_count + 1) * sizeof *t->dead);
    if (t->dead == NULL)
        return -ENOMEM;
    for (size_t i = 0; i < t->values_count; i++)
        if (!t->values[i].is_result && last_needed(&t->values[i]) != NEVER)
            t->steps[last_needed(&t->values[i])].deads++;
    for (size_t s = 0; s < t->steps_count; s++) {
        t->steps[s].dead = at;
        at += t->steps[s].deads;
        t->steps[s].deads = 0;
    }
    t->unread = at;
    for (size_t i = 0; i < t->values_count; i++) {
        uint32_t last = last_needed(&t->values[i]);
        if (t->values[i].is_result)
            continue;
        if (last == NEVER)
            t->dead[t->unread + t->unreads++] = (uint32_t)i;
        else
            t->dead[t->steps[last].dead + t->steps[last].deads++] = (uint32_t)i;
    }
    return 0;
}

static int mark_cuts(struct swn_tape *t)
{
    /* Per place, what becomes alive there less what died there. */
    int64_t(*alive)[2] = calloc(t->steps_count + 2, sizeof *alive);
    int64_t tensors = 0, others = 0;

    if (alive == NULL)
        return -ENOMEM;
    for (size_t i = 0; i < t->values_count; i++) {
        const struct value *v = &t->values[i];
        uint32_t last = last_needed(v);
        if (v->kind == SWN_TAPE_SCALAR || (last == NEVER && !v->is_result))
            continue;
        alive[v->made == INPUT ? 0 : v->made + 1][v->kind == SWN_TAPE_OTHER]++;
        if (!v->is_result)
            alive[last + 1][v->kind == SWN_TAPE_OTHER]--;
    }
    for (size_t s = 0; s < t->steps_count; s++) {
        tensors += alive[s][0];
        others += alive[s][1];
        t->steps[s].is_cut = s > 0 && tensors == 1 && others == 0;
        t->cuts += (size_t)t->steps[s].is_cut;
    }
    free(alive);
    return 0;
}

int swn_tape_finish(struct swn_tape *t)
{
    if (list_the_dead(t) < 0 || mark_cuts(t) < 0)
        return -ENOMEM;
    t->finished = 1;
    return 0;
}

size_t swn_tape_steps(const struct swn_tape *t)
{
    return t->steps_count;
}

size_t swn_tape_values(const struct swn_tape *t)
{
    return t->values_count;
}

const uint32_t *swn_tape_dead_after(const struct swn_tape *t, size_t step, size_t *count)
{
    *count = t->steps[step].deads;
    return t->dead + t->steps[step].dead;
}

const uint32_t *swn_tape_unread(const struct swn_tape *t, size_t *count)
{
    *count = t->unreads;
    return t->dead + t->unread;
}

int swn_tape_is_cut(const struct swn_tape *t, size_t step)
{
    return step < t->steps_count && t->steps[step].is_cut;
}

size_t swn_tape_cuts(const struct swn_tape *t)
{
    return t->cuts;
}

uint64_t swn_tape_weight_bytes(const struct swn_tape *t, size_t begin, size_t end)
{
    uint64_t sum = 0;

    for (size_t s = begin; s < end && s < t->steps_count; s++)
        if (__builtin_add_overflow(sum, t->steps[s].weight_bytes, &sum))
            return UINT64_MAX;
    return sum;
}

static uint64_t cost_of(const struct swn_tape *t, const uint64_t *cost, size_t step)
{
    return cost ? cost[step] : t->steps[step].weight_bytes + 1;
}

/* How many groups the steps from `begin` to `end` need if none may cost more than `limit`: each takes what fits, up to
 * a cut. A stretch without cuts that costs more is a group all the same. Fills first[] as far as `most` goes. */
static size_t groups_within(const struct swn_tape *t, const uint64_t *cost, size_t begin, size_t end, uint64_t limit,
                            size_t most, size_t *first)
{
    uint64_t group = 0, stretch = 0; /* costs: of the group up to its last cut, and of what follows that */
    size_t groups = 1, cut = begin;

    first[0] = begin;
    for (size_t s = begin; s < end; s++) {
        if (t->steps[s].is_cut && s > begin) {
            group += stretch;
            stretch = 0;
            cut = s;
        }
        stretch += cost_of(t, cost, s);
        /* The group ends at its last cut, unless it began there. */
        if (group + stretch > limit && cut > begin) {
            if (groups < most)
                first[groups] = cut;
            groups++;
            begin = cut;
            group = 0;
        }
    }
    return groups;
}

size_t swn_tape_groups(const struct swn_tape *t, const uint64_t *cost, size_t most, size_t *first)
{
    return swn_tape_groups_between(t, cost, 0, t->steps_count, most, first);
}

size_t swn_tape_groups_between(const struct swn_tape *t, const uint64_t *cost, size_t begin, size_t end, size_t most,
                               size_t *first)
{
    uint64_t low = 0, high = 0;
    size_t pieces = 1;

    if (begin >= end || end > t->steps_count || most == 0)
        return 0;
    for (size_t s = begin + 1; s < end; s++)
        pieces += (size_t)t->steps[s].is_cut;
    if (most >= pieces) {
        for (size_t s = begin, g = 0; s < end; s++)
            if (s == begin || t->steps[s].is_cut)
                first[g++] = s;
        return pieces;
    }
    for (size_t s = begin; s < end; s++)
        if (__builtin_add_overflow(high, cost_of(t, cost, s), &high))
            high = UINT64_MAX;
    /* The least limit with which `most` groups are enough. */
    while (low < high) {
        uint64_t limit = low + (high - low) / 2;
        if (groups_within(t, cost, begin, end, limit, most, first) <= most)
            high = limit;
        else
            low = limit + 1;
    }
    return groups_within(t, cost, begin, end, low, most, first);
}
