/* skeleton/engine/access_order.c - see access_order.h. */
#include "skeleton/engine/access_order.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* Open addressing, linear probing, power-of-two size; only a rebuild drops steps. */
struct step {
    uint32_t before, at, next;
    uint32_t age; /* access number (low bits) at which it was last confirmed */
};

struct swn_access_order {
    struct step *steps;
    size_t slots, used;
    uint32_t accesses;
    uint64_t changes;
};

#define FIRST_SLOTS ((size_t)1024)
#define MOST_SLOTS ((size_t)1 << 20)

int swn_access_order_create(struct swn_access_order **out)
{
    struct swn_access_order *o = calloc(1, sizeof *o);
    if (!o)
        return -ENOMEM;
    o->slots = FIRST_SLOTS;
    o->steps = calloc(o->slots, sizeof *o->steps);
    if (!o->steps) {
        free(o);
        return -ENOMEM;
    }
    *out = o;
    return 0;
}

void swn_access_order_destroy(struct swn_access_order *o)
{
    if (!o)
        return;
    free(o->steps);
    free(o);
}

static struct step *slot(struct step *steps, size_t slots, uint32_t before, uint32_t at)
{
    uint64_t h = ((uint64_t)before << 32 | at) * 0x9E3779B97F4A7C15ULL;
    size_t i = (size_t)(h >> 32) & (slots - 1);
    while (steps[i].at && (steps[i].at != at || steps[i].before != before))
        i = (i + 1) & (slots - 1);
    return &steps[i];
}

uint32_t swn_access_order_next(const struct swn_access_order *o, uint32_t before, uint32_t at)
{
    return at ? slot(o->steps, o->slots, before, at)->next : 0;
}

/* Number of steps that were taken in the last `window` accesses. */
static size_t recent_steps(const struct swn_access_order *o, uint32_t window)
{
    size_t recent = 0;
    for (size_t i = 0; i < o->slots; i++)
        recent += o->steps[i].at && o->accesses - o->steps[i].age < window;
    return recent;
}

/* Makes room: grows while most steps are recent, else keeps the size and forgets old ones. Age alone decides which
 * steps stay: a choice by slot would crowd one part of the table until every probe walks through it. */
static void rebuild(struct swn_access_order *o)
{
    o->changes++;
    size_t slots = o->slots;
    uint32_t window = (uint32_t)(4 * o->slots);
    size_t recent = recent_steps(o, window);
    if (recent > slots / 3 && slots < MOST_SLOTS) {
        slots *= 2;
    } else {
        for (; recent > slots / 2; recent = recent_steps(o, window))
            window /= 2;
    }
    struct step *fresh = calloc(slots, sizeof *fresh);
    if (!fresh) {
        memset(o->steps, 0, o->slots * sizeof *o->steps); /* the order can be learned again */
        o->used = 0;
        return;
    }
    size_t used = 0;
    for (size_t i = 0; i < o->slots; i++) {
        const struct step *s = &o->steps[i];
        if (!s->at || !s->next || o->accesses - s->age >= window)
            continue;
        *slot(fresh, slots, s->before, s->at) = *s;
        used++;
    }
    free(o->steps);
    o->steps = fresh;
    o->slots = slots;
    o->used = used;
}

int swn_access_order_record(struct swn_access_order *o, struct swn_cursor *c, uint32_t weight)
{
    o->accesses++;
    if (!c->anchor)
        c->anchor = weight;
    else if (c->anchor == weight)
        c->passes++;
    int right = 0;
    if (c->at) {
        if (o->used * 3 > o->slots * 2)
            rebuild(o);
        struct step *s = slot(o->steps, o->slots, c->before, c->at);
        right = s->at && s->next == weight;
        if (!s->at) {
            s->before = c->before;
            s->at = c->at;
            o->used++;
        }
        o->changes += (uint64_t)!right;
        s->next = weight;
        s->age = o->accesses;
    }
    c->hits += (uint64_t)right;
    c->run = right ? c->run + 1 : 0;
    c->misses += (uint64_t)!right;
    c->before = c->at;
    c->at = weight;
    return right;
}

size_t swn_access_order_cycle(const struct swn_access_order *o, const struct swn_cursor *c, uint32_t *weights,
                              size_t max)
{
    uint32_t before = c->before, at = c->at;
    for (size_t n = 0; n < max; n++) {
        uint32_t next = swn_access_order_next(o, before, at);
        if (!next)
            return 0;
        if (weights)
            weights[n] = next;
        before = at;
        at = next;
        if (before == c->before && at == c->at)
            return n + 1;
    }
    return 0;
}

uint64_t swn_access_order_changes(const struct swn_access_order *o)
{
    return o->changes;
}

void swn_access_order_forget(struct swn_access_order *o, uint32_t weight)
{
    o->changes++;
    for (size_t i = 0; i < o->slots; i++)
        if (o->steps[i].next == weight)
            o->steps[i].next = 0;
}
