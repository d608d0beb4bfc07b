/* scheduler/tasks/rule.c - the list schedules of sandbox.h: what a rule does in a state. Memory is never exceeded:
 * where a load of the leader finds no room, clean blocks of others go, the last ones first. */
#include "scheduler/tasks/sandbox.h"
#include "scheduler/tasks/state.h"

static uint64_t there_is(const struct swn_sandbox *box)
{
    return swn_task_free_bytes(&box->s) + box->s.spare_bytes;
}

static int is_needed(const struct swn_sandbox *box, uint32_t copy, uint32_t layer)
{
    for (uint32_t p = 0; p < box->s.pass_count; p++)
        if (box->passes[p].copy == copy && box->passes[p].next_layer <= layer)
            return 1;
    return 0;
}

static int is_clean(const struct swn_sandbox *box, uint32_t copy, uint32_t layer)
{
    return box->copies[copy].blocks[layer] == SWN_BLOCK_LOADED && !swn_task_is_block_running(&box->s, copy, layer);
}

/* A block that no pass needs any more, the deepest one. */
static int drop_unneeded(const struct swn_sandbox *box, struct swn_task_decision *d)
{
    for (uint32_t c = 0; c < box->s.copy_count; c++)
        for (uint32_t l = box->s.networks[box->copies[c].network].layer_count; l-- > 0;)
            if (is_clean(box, c, l) && !is_needed(box, c, l)) {
                *d = (struct swn_task_decision){SWN_TASK_DROP, 0, c, l};
                return 1;
            }
    return 0;
}

/* Room for the leader: one block at a time, from the last pass on; at last of its own, beyond its next layer. */
static int make_room(const struct swn_sandbox *box, const struct swn_task_rule *rule, uint32_t leader,
                     struct swn_task_decision *d)
{
    uint32_t own = box->passes[leader].copy;

    if (drop_unneeded(box, d))
        return 1;
    for (uint32_t k = box->s.pass_count; k-- > 0;) {
        const struct swn_task_pass *p = &box->passes[rule->order[k]];

        for (uint32_t l = swn_task_layers(&box->s, p); l-- > p->next_layer;)
            if (is_clean(box, p->copy, l) && (p->copy != own || l > box->passes[leader].next_layer)) {
                *d = (struct swn_task_decision){SWN_TASK_DROP, rule->order[k], p->copy, l};
                return 1;
            }
    }
    return 0;
}

static int compute(const struct swn_sandbox *box, const struct swn_task_rule *rule, uint32_t leader,
                   struct swn_task_decision *d)
{
    for (uint32_t k = 0; k < box->s.pass_count; k++) {
        uint32_t p = rule->order[k];

        if (!swn_task_can_compute(&box->s, p))
            continue;
        if (swn_sandbox_is_safe(box, p)) {
            *d = (struct swn_task_decision){SWN_TASK_COMPUTE, p, box->passes[p].copy, box->passes[p].next_layer};
            return 1;
        }
        if (p == leader && swn_task_compute_bytes(&box->s, &box->passes[p]) > there_is(box) &&
            make_room(box, rule, p, d))
            return 1;
    }
    return 0;
}

/* The first layer of a pass that is to be loaded, not beyond the depth; layer count: none. */
static uint32_t next_load(const struct swn_sandbox *box, uint32_t pass, uint32_t depth)
{
    const struct swn_task_pass *p = &box->passes[pass];
    uint32_t layers = swn_task_layers(&box->s, p);

    for (uint32_t l = p->next_layer; l < layers && l - p->next_layer <= depth; l++)
        if (box->copies[p->copy].blocks[l] == SWN_BLOCK_ABSENT)
            return l;
    return layers;
}

static void load(const struct swn_sandbox *box, const struct swn_task_rule *rule, uint32_t leader, uint32_t depth,
                 struct swn_task_decision *d)
{
    uint64_t reserve = 0;

    if (rule->reserves && !box->passes[leader].is_running)
        reserve = swn_task_compute_bytes(&box->s, &box->passes[leader]);
    /* The leader first: passes before it in the order may not begin yet. */
    for (uint32_t k = 0; k <= box->s.pass_count; k++) {
        uint32_t p = k ? rule->order[k - 1] : leader, l = next_load(box, p, depth);
        uint64_t need;
        int is_urgent = p == leader && l == box->passes[p].next_layer;

        if ((k && p == leader) || !swn_task_can_load(&box->s, p, l))
            continue;
        need = swn_task_weight_bytes(&box->s, box->passes[p].network, l);
        if (need + (is_urgent ? 0 : reserve) <= there_is(box)) {
            *d = (struct swn_task_decision){SWN_TASK_LOAD, p, box->passes[p].copy, l};
            return;
        }
        if (is_urgent ? make_room(box, rule, p, d) : drop_unneeded(box, d))
            return;
        /* Or the memory that the leader waits for would go to others again and again. */
        if (rule->is_strict || is_urgent)
            return;
    }
}

void swn_task_rule_step(const struct swn_sandbox *box, const struct swn_task_rule *rule, struct swn_task_decision *d)
{
    uint32_t leader = SWN_SANDBOX_PASSES;

    if (swn_task_drop_computed(&box->s, d))
        return;
    for (uint32_t k = 0; k < box->s.pass_count && leader == SWN_SANDBOX_PASSES; k++)
        if (!swn_task_is_done(&box->s, &box->passes[rule->order[k]]) && swn_sandbox_may_begin(box, rule->order[k]))
            leader = rule->order[k];
    if (leader == SWN_SANDBOX_PASSES || compute(box, rule, leader, d))
        return;
    if (rule->in_turns)
        load(box, rule, leader, 0, d);
    if (!d->kind)
        load(box, rule, leader, rule->depth, d);
}
