/* scheduler/tasks/masa.c - see masa.h. */
#include "scheduler/tasks/masa.h"

#include "scheduler/tasks/state.h"

/* The best ready task until now. */
struct candidate {
    struct swn_task_decision decision;
    uint64_t need;
};

/* ValidTask, lines 1 to 4. */
static int is_valid(const struct swn_task_state *s, uint64_t need)
{
    return swn_task_is_idle(s) || need <= swn_task_free_bytes(s);
}

static void consider(const struct swn_task_state *s, struct candidate *best, enum swn_task_kind kind, uint32_t pass,
                     uint32_t layer, uint64_t need)
{
    if (!is_valid(s, need) || (best->decision.kind && best->need <= need))
        return;
    *best = (struct candidate){{kind, pass, s->passes[pass].copy, layer}, need};
}

static int is_loaded_before(const struct swn_task_state *s, const struct swn_task_pass *p, uint32_t layer)
{
    for (uint32_t l = p->next_layer; l < layer; l++)
        if (s->copies[p->copy].blocks[l] == SWN_BLOCK_ABSENT)
            return 0;
    return 1;
}

/* ScheduleTask over compute tasks, then over load tasks: lines 17 to 19. */
static void paper(const struct swn_task_state *s, int in_order, struct swn_task_decision *decision)
{
    struct candidate best = {0};

    if (swn_task_drop_computed(s, decision))
        return;
    for (uint32_t p = 0; p < s->pass_count; p++)
        if (swn_task_can_compute(s, p))
            consider(s, &best, SWN_TASK_COMPUTE, p, s->passes[p].next_layer, swn_task_compute_bytes(s, &s->passes[p]));
    for (uint32_t p = 0; best.decision.kind != SWN_TASK_COMPUTE && p < s->pass_count; p++)
        for (uint32_t l = s->passes[p].next_layer; l < swn_task_layers(s, &s->passes[p]); l++)
            if (swn_task_can_load(s, p, l) && (!in_order || is_loaded_before(s, &s->passes[p], l)))
                consider(s, &best, SWN_TASK_LOAD, p, l, swn_task_weight_bytes(s, s->passes[p].network, l));
    *decision = best.decision;
}

void swn_masa_paper(const struct swn_task_state *s, struct swn_task_decision *decision)
{
    paper(s, 0, decision);
}

void swn_masa_ordered(const struct swn_task_state *s, struct swn_task_decision *decision)
{
    paper(s, 1, decision);
}

static uint64_t reservation(const struct swn_task_state *s, const struct swn_task_pass *p)
{
    const struct swn_task_network *network = &s->networks[p->network];
    uint64_t bytes = network->peak_bytes ? network->peak_bytes : swn_task_largest(network, 1);

    return (uint64_t)((double)bytes * s->estimate);
}

static uint64_t estimated_ns(const struct swn_task_state *s, const struct swn_task_pass *p)
{
    const struct swn_task_network *network = &s->networks[p->network];
    uint64_t sum = 0;

    for (uint32_t l = 0; !network->estimated_ns && l < network->layer_count; l++)
        sum += network->layers[l].compute_ns;
    return network->estimated_ns ? network->estimated_ns : sum;
}

static int is_active(const struct swn_task_state *s, const struct swn_task_pass *p)
{
    for (uint32_t l = 0; l < swn_task_layers(s, p); l++)
        if (s->copies[p->copy].blocks[l] != SWN_BLOCK_ABSENT)
            return 1;
    return swn_task_has_begun(p);
}

/* The first load of an active pass, in the order of creation. */
static int load_active(const struct swn_task_state *s, struct swn_task_decision *decision)
{
    for (uint32_t p = 0; p < s->pass_count; p++)
        for (uint32_t l = 0; is_active(s, &s->passes[p]) && l < swn_task_layers(s, &s->passes[p]); l++)
            if (swn_task_can_load(s, p, l)) {
                *decision = (struct swn_task_decision){SWN_TASK_LOAD, p, s->passes[p].copy, l};
                return 1;
            }
    return 0;
}

/* The INIT task: the first load of the quickest network whose reservation fits. */
static void begin(const struct swn_task_state *s, struct swn_task_decision *decision)
{
    uint64_t reserved = 0, best = UINT64_MAX;
    int active = 0;

    for (uint32_t p = 0; p < s->pass_count; p++)
        if (is_active(s, &s->passes[p])) {
            reserved += reservation(s, &s->passes[p]);
            active = 1;
        }
    for (uint32_t p = 0; p < s->pass_count; p++) {
        if (is_active(s, &s->passes[p]) || !swn_task_can_load(s, p, 0) || estimated_ns(s, &s->passes[p]) >= best ||
            (active && reserved + reservation(s, &s->passes[p]) > s->machine.memory_bytes))
            continue;
        best = estimated_ns(s, &s->passes[p]);
        *decision = (struct swn_task_decision){SWN_TASK_LOAD, p, s->passes[p].copy, 0};
    }
}

void swn_masa_code(const struct swn_task_state *s, struct swn_task_decision *decision)
{
    if (swn_task_drop_computed(s, decision))
        return;
    for (uint32_t p = 0; p < s->pass_count; p++)
        if (swn_task_can_compute(s, p)) {
            *decision = (struct swn_task_decision){SWN_TASK_COMPUTE, p, s->passes[p].copy, s->passes[p].next_layer};
            return;
        }
    if (!load_active(s, decision))
        begin(s, decision);
}
