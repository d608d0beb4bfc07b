/* scheduler/serve/serve_queue.c - see serve_queue.h. */
#include "scheduler/serve/serve_queue.h"

void swn_serve_queue_add(struct swn_serve_queue *q, struct swn_serve_item *item)
{
    item->next = NULL;
    item->prev = q->last;
    if (q->last)
        q->last->next = item;
    else
        q->first = item;
    q->last = item;
    q->count++;
    q->waiting += !item->is_begun;
    q->early += item->upstream != 0;
}

void swn_serve_queue_remove(struct swn_serve_queue *q, struct swn_serve_item *item)
{
    if (item->prev)
        item->prev->next = item->next;
    else
        q->first = item->next;
    if (item->next)
        item->next->prev = item->prev;
    else
        q->last = item->prev;
    item->prev = item->next = NULL;
    q->count--;
    q->waiting -= !item->is_begun;
    q->early -= item->upstream != 0;
}

void swn_serve_queue_settle(struct swn_serve_queue *q, struct swn_serve_item *item)
{
    q->early -= item->upstream != 0;
    item->upstream = 0;
}

struct swn_serve_item *swn_serve_queue_unlikely(const struct swn_serve_queue *q)
{
    struct swn_serve_item *found = NULL;

    for (struct swn_serve_item *item = q->early ? q->first : NULL; item; item = item->next)
        if (item->upstream && !item->is_dropped && (!found || item->probability <= found->probability))
            found = item;
    return found;
}

struct swn_serve_item *swn_serve_queue_find(const struct swn_serve_queue *q, uint64_t id)
{
    for (struct swn_serve_item *item = q->first; item; item = item->next)
        if (item->id == id)
            return item;
    return NULL;
}

struct swn_serve_item *swn_serve_queue_after(const struct swn_serve_queue *q, uint64_t id)
{
    struct swn_serve_item *item = q->first;

    while (item && item->id <= id)
        item = item->next;
    return item;
}

int swn_serve_queue_runs(const struct swn_serve_queue *q, unsigned engine)
{
    for (const struct swn_serve_item *item = q->first; item; item = item->next)
        if (item->engine == engine && item->state == SWN_SERVE_RUNS)
            return 1;
    return 0;
}

int swn_serve_item_is_told(const struct swn_serve_item *item)
{
    return item->state == SWN_SERVE_RUNS || item->state == SWN_SERVE_STORES;
}

struct swn_serve_item *swn_serve_queue_late(const struct swn_serve_queue *q, uint64_t now_ns)
{
    for (struct swn_serve_item *item = q->first; item; item = item->next)
        if (item->deadline_ns && item->deadline_ns <= now_ns && !item->is_dropped)
            return item;
    return NULL;
}

uint64_t swn_serve_queue_deadline(const struct swn_serve_queue *q)
{
    uint64_t next = 0;

    for (struct swn_serve_item *item = q->first; item; item = item->next)
        if (item->deadline_ns && !item->is_dropped && (!next || item->deadline_ns < next))
            next = item->deadline_ns;
    return next;
}

void swn_serve_queue_reset(struct swn_serve_queue *q, unsigned engine, int is_crash)
{
    for (struct swn_serve_item *item = q->first; item; item = item->next) {
        if (item->engine != engine)
            continue;
        item->is_loaded = 0;
        q->waiting += item->is_begun;
        item->is_begun = 0;
        item->group = 0;
        item->is_alone |= is_crash && swn_serve_item_is_told(item);
        item->state = SWN_SERVE_WAITS;
    }
}

void swn_serve_item_begin(struct swn_serve_queue *q, struct swn_serve_item *item)
{
    q->waiting -= !item->is_begun;
    item->is_begun = 1;
    item->state = SWN_SERVE_RUNS;
}

int swn_serve_item_ran(struct swn_serve_item *item, uint32_t groups)
{
    item->group++;
    item->groups = groups;
    item->state = SWN_SERVE_WAITS;
    return item->group >= groups;
}

int swn_serve_item_again(struct swn_serve_queue *q, struct swn_serve_item *item)
{
    if (item->is_alone)
        return 0;
    q->waiting += item->is_begun;
    item->is_begun = 0;
    item->is_alone = 1;
    item->group = 0;
    item->state = SWN_SERVE_WAITS;
    return 1;
}
