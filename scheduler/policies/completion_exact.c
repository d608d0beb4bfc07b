/* scheduler/policies/completion_exact.c - see completion_exact.h. A state is packed: four bits for how many requests of
 * a class are at a group. A class is a model and a weight; those of one model follow each other, the heaviest first. */
#include "scheduler/policies/completion_exact.h"

#include <errno.h>
#include <math.h>

#define PLACES 32 /* of four bits, in two words */

struct class
{
    uint32_t problem, place; /* place: that of its group 0 */
    double weight;
};

struct search {
    const struct swn_completion *problems;
    struct class class[SWN_EXACT_REQUESTS];
    uint32_t class_count;
    struct swn_exact_room *room;
};

struct counts {
    uint64_t word[2];
};

static uint32_t count_at(const struct counts *s, uint32_t place)
{
    return (uint32_t)(s->word[place / 16] >> 4 * (place % 16)) & 15;
}

static void add(struct counts *s, uint32_t place)
{
    s->word[place / 16] += (uint64_t)1 << 4 * (place % 16);
}

static void take(struct counts *s, uint32_t place)
{
    s->word[place / 16] -= (uint64_t)1 << 4 * (place % 16);
}

/* Its entry, or the empty one where it belongs. */
static uint32_t find(const struct swn_exact_room *room, const struct counts *s)
{
    uint64_t hash = (s->word[0] ^ s->word[1] * 0x9e3779b97f4a7c15) * 0xd6e8feb86659fd93;
    uint32_t at = (uint32_t)(hash >> 40) % (2 * SWN_EXACT_STATES);

    while (room->entry[at].round == room->round &&
           (room->entry[at].counts[0] != s->word[0] || room->entry[at].counts[1] != s->word[1]))
        at = (at + 1) % (2 * SWN_EXACT_STATES);
    return at;
}

static double search(struct search *x, struct counts s, struct swn_exact_step *step);

/* Steps of one group: one request after the other joins, the heaviest first. */
static double steps_of_group(struct search *x, const struct counts *s, uint32_t first, uint32_t group, double waiting,
                             struct swn_exact_step *step)
{
    uint32_t problem = x->class[first].problem;
    const struct swn_completion *c = &x->problems[problem];
    uint32_t bound = c->bound && c->bound[group] > 0 ? c->bound[group] : UINT32_MAX, moved = 0;
    struct counts next = *s;
    double best = INFINITY;

    for (uint32_t k = first; k < x->class_count && x->class[k].problem == problem; k++) {
        uint32_t place = x->class[k].place + group;
        for (uint32_t left = count_at(s, place); left && moved < bound; left--) {
            double cost;
            take(&next, place);
            if (group + 1 < c->group_count)
                add(&next, place + 1);
            moved++;
            cost = waiting * c->time[group * (size_t)(c->most + 1) + moved] + search(x, next, NULL);
            if (cost < best) {
                best = cost;
                if (step)
                    *step = (struct swn_exact_step){.problem = problem, .group = group, .count = moved};
            }
        }
    }
    return best;
}

static double search(struct search *x, struct counts s, struct swn_exact_step *step)
{
    double best = INFINITY, waiting = 0;
    uint32_t at;

    if (!(s.word[0] | s.word[1]))
        return 0;
    at = find(x->room, &s);
    if (x->room->entry[at].round == x->room->round)
        return x->room->entry[at].cost;
    for (uint32_t k = 0; k < x->class_count; k++)
        for (uint32_t g = 0; g < x->problems[x->class[k].problem].group_count; g++)
            waiting += x->class[k].weight * count_at(&s, x->class[k].place + g);
    for (uint32_t k = 0; k < x->class_count; k++) {
        if (k && x->class[k].problem == x->class[k - 1].problem)
            continue;
        for (uint32_t g = x->problems[x->class[k].problem].group_count; g-- > 0;) {
            struct swn_exact_step here;
            double cost = steps_of_group(x, &s, k, g, waiting, &here);
            if (cost < best) {
                best = cost;
                if (step)
                    *step = here;
            }
        }
    }
    at = find(x->room, &s);
    x->room->entry[at].counts[0] = s.word[0];
    x->room->entry[at].counts[1] = s.word[1];
    x->room->entry[at].cost = best;
    x->room->entry[at].round = x->room->round;
    return best;
}

static double weight_of(const struct swn_completion *c, uint32_t i)
{
    return c->weight ? c->weight[i] : 1;
}

/* The classes of a problem, the heaviest first. */
static int add_classes(struct search *x, uint32_t problem)
{
    const struct swn_completion *c = &x->problems[problem];
    uint32_t first = x->class_count;

    for (uint32_t i = 0; i < c->n; i++) {
        double w = weight_of(c, i);
        uint32_t k = first;
        while (k < x->class_count && x->class[k].weight > w)
            k++;
        if (k < x->class_count && x->class[k].weight == w)
            continue;
        if (x->class_count == SWN_EXACT_REQUESTS)
            return -E2BIG;
        for (uint32_t j = x->class_count++; j > k; j--)
            x->class[j] = x->class[j - 1];
        x->class[k] = (struct class){.problem = problem, .weight = w};
    }
    return 0;
}

/* How many states n requests of a class can be in, each at one of `places`: C(n + places - 1, n). */
static double states_of(uint32_t n, uint32_t places)
{
    double count = 1;

    for (uint32_t k = 1; k <= n; k++)
        count = count * (places - 1 + k) / k;
    return count;
}

/* The packed state, and whether there is room for all that follow. */
static int pack(struct search *x, struct counts *s)
{
    double states = 1;
    uint32_t place = 0;

    *s = (struct counts){{0, 0}};
    for (uint32_t k = 0; k < x->class_count; k++) {
        const struct swn_completion *c = &x->problems[x->class[k].problem];
        uint32_t n = 0, least = c->group_count;
        x->class[k].place = place;
        place += c->group_count;
        if (place > PLACES)
            return -E2BIG;
        for (uint32_t i = 0; i < c->n; i++)
            if (weight_of(c, i) == x->class[k].weight) {
                add(s, x->class[k].place + c->group[i]);
                least = c->group[i] < least ? c->group[i] : least;
                n++;
            }
        states *= states_of(n, c->group_count - least + 1);
        if (states > SWN_EXACT_STATES)
            return -E2BIG;
    }
    return 0;
}

int swn_exact_plan(const struct swn_completion *problems, uint32_t count, struct swn_exact_room *room,
                   struct swn_exact_step *step, double *total)
{
    struct search x = {.problems = problems, .room = room};
    struct counts s;
    uint32_t n = 0;

    for (uint32_t p = 0; p < count; p++) {
        n += problems[p].n;
        if (n > SWN_EXACT_REQUESTS || add_classes(&x, p))
            return -E2BIG;
    }
    if (!n || pack(&x, &s))
        return -E2BIG;
    room->round++;
    *total = search(&x, s, step);
    return 0;
}
