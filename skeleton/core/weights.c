#include <stdlib.h>

#include "skeleton/core/engine_internal.h"
#include "skeleton/core/reclaim.h"
#include "skeleton/core/subsystem.h"
#include "skeleton/core/plan.h"
#include "skeleton/core/weights.h"
#include "skeleton/core/accounting.h"

struct swn_node *swn_node_of(struct swn_engine *e, uint32_t id)
{
    size_t i = (id & (SWN_NODE_MOST - 1));
    if (!i || i > e->node_count || e->nodes[i - 1].id != id || !e->nodes[i - 1].range)
        return NULL;
    return &e->nodes[i - 1];
}

static int grow(struct swn_engine *e)
{
    size_t room = e->node_room ? e->node_room * 2 : 256;
    struct swn_node *nodes = realloc(e->nodes, room * sizeof *nodes);
    if (!nodes)
        return 0;
    e->nodes = nodes;
    uint32_t *free_nodes = realloc(e->free_nodes, room * sizeof *free_nodes);
    if (!free_nodes)
        return 0;
    e->free_nodes = free_nodes;
    e->node_room = room;
    return 1;
}

/* Makes r a weight of the order. 0 when there is no room for one more: it stays what it is. */
int swn_node_add(struct swn_engine *e, struct swn_range *r)
{
    size_t i;
    if (e->free_count) {
        i = e->free_nodes[--e->free_count];
    } else {
        if (e->node_count == e->node_room && (e->node_count >= SWN_NODE_MOST - 1 || !grow(e)))
            return 0;
        i = e->node_count++;
        e->nodes[i].id = (uint32_t)i + 1;
    }
    e->nodes[i] = (struct swn_node){.range = r, .id = e->nodes[i].id};
    r->node = (int)i;
    e->node_live++;
    e->plan_dirty = 1;
    if (atomic_load(&r->state) == SWN_HOME)
        e->node_home_bytes += r->size;
    e->other_before = 0; /* what was counted as an activation so far was a weight */
    e->other_peak = e->other_peak_ever = swn_policy_other_held(e);
    return 1;
}

void swn_node_remove(struct swn_engine *e, struct swn_range *r)
{
    if (r->node < 0)
        return;
    struct swn_node *n = &e->nodes[r->node];
    if (e->record)
        e->observer->leaving(e);
    swn_order_forget(e->order, n->id);
    for (struct swn_thread_state *t = e->threads; t; t = t->next)
        if (t->cursor.anchor == n->id) {
            t->cursor.anchor = 0;
            e->placement->drop(e, t);
        }
    if (atomic_load(&r->state) == SWN_HOME)
        e->node_home_bytes -= r->size;
    n->range = NULL;
    n->id += (uint32_t)SWN_NODE_MOST;
    e->free_nodes[e->free_count++] = (uint32_t)r->node;
    r->node = -1;
    if (!--e->node_live)
        swn_reclaim_trim(e);
    e->plan_dirty = 1;
}
