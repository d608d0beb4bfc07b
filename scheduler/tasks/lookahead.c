/* scheduler/tasks/lookahead.c - see lookahead.h. */
#include "scheduler/tasks/lookahead.h"

#include <math.h>
#include <string.h>

#include "scheduler/tasks/state.h"

#define WINDOW 4 /* passes that are planned for beside those that run */
#define ORDERS 4
#define STYLES 4
#define RULES (ORDERS * STYLES)
#define TRIES (2 * SWN_SANDBOX_PASSES + RULES + 1)

struct search {
    struct swn_sandbox box;
    struct swn_task_rule rules[RULES];
    uint32_t rule_count;
    struct swn_task_decision tries[TRIES];
    uint32_t try_count;
};

enum order { AS_THEY_ARE, LONGEST_FIRST, SHORTEST_FIRST, JOHNSON };

/* Does pass a go before pass b of the same job? Johnson's rule: those that read less than they compute come first, by
 * reading; then the others, the longest computing first. */
static int is_before(const struct swn_task_state *s, enum order order, uint32_t a, uint32_t b)
{
    uint64_t read_a = swn_task_left_load_ns(s, &s->passes[a]), read_b = swn_task_left_load_ns(s, &s->passes[b]);
    uint64_t run_a = swn_task_left_compute_ns(s, &s->passes[a]), run_b = swn_task_left_compute_ns(s, &s->passes[b]);

    if (order == LONGEST_FIRST)
        return read_a + run_a > read_b + run_b;
    if (order == SHORTEST_FIRST)
        return read_a + run_a < read_b + run_b;
    if ((read_a < run_a) != (read_b < run_b))
        return read_a < run_a;
    return read_a < run_a ? read_a < read_b : run_a > run_b;
}

/* Passes in the order of the sandbox, those of one job sorted among themselves. With the makespan as the objective
 * all passes are as of one job. */
static void sort(const struct swn_task_state *s, enum order order, enum swn_task_objective objective, uint32_t *to)
{
    for (uint32_t p = 0; p < s->pass_count; p++)
        to[p] = p;
    for (uint32_t i = 1; order != AS_THEY_ARE && i < s->pass_count; i++)
        for (uint32_t k = i; k > 0; k--) {
            uint32_t a = to[k], b = to[k - 1];

            if ((objective == SWN_TASK_RESPONSE && s->passes[a].job != s->passes[b].job) || !is_before(s, order, a, b))
                break;
            to[k] = b;
            to[k - 1] = a;
        }
}

static void make_rules(struct search *x, enum swn_task_objective objective)
{
    x->rule_count = 0;
    for (uint32_t o = 0; o < ORDERS; o++)
        for (uint32_t style = 0; style < STYLES; style++) {
            struct swn_task_rule *rule = &x->rules[x->rule_count];
            int is_new = 1;

            memset(rule, 0, sizeof *rule);
            sort(&x->box.s, o, objective, rule->order);
            rule->depth = style == 1 ? 1 : SWN_TASK_LAYERS;
            rule->reserves = 1;
            rule->is_strict = style == 3;
            rule->in_turns = style == 2;
            for (uint32_t r = 0; r < x->rule_count; r++)
                is_new &= memcmp(&x->rules[r], rule, sizeof *rule) != 0;
            x->rule_count += is_new ? 1 : 0;
        }
}

static void add(struct search *x, struct swn_task_decision d)
{
    for (uint32_t i = 0; i < x->try_count; i++)
        if (!memcmp(&x->tries[i], &d, sizeof d))
            return;
    if (x->try_count < TRIES)
        x->tries[x->try_count++] = d;
}

static uint64_t there_is(const struct search *x)
{
    return swn_task_free_bytes(&x->box.s) + x->box.s.spare_bytes;
}

/* What each rule would do, each layer that could compute, the next layer of each pass that could be loaded, and to
 * wait. */
static void make_tries(struct search *x)
{
    x->try_count = 0;
    for (uint32_t r = 0; r < x->rule_count; r++) {
        struct swn_task_decision d = {0};

        swn_task_rule_step(&x->box, &x->rules[r], &d);
        add(x, d);
    }
    for (uint32_t p = 0; p < x->box.s.pass_count; p++) {
        const struct swn_task_pass *pass = &x->box.passes[p];
        uint32_t l = pass->next_layer, layers = swn_task_layers(&x->box.s, pass);

        if (swn_task_can_compute(&x->box.s, p) && swn_sandbox_is_safe(&x->box, p))
            add(x, (struct swn_task_decision){SWN_TASK_COMPUTE, p, pass->copy, l});
        while (l < layers && x->box.copies[pass->copy].blocks[l] != SWN_BLOCK_ABSENT)
            l++;
        if (swn_task_can_load(&x->box.s, p, l) && swn_task_weight_bytes(&x->box.s, pass->network, l) <= there_is(x))
            add(x, (struct swn_task_decision){SWN_TASK_LOAD, p, pass->copy, l});
    }
    if (!swn_task_is_idle(&x->box.s))
        add(x, (struct swn_task_decision){0});
}

/* A first step, the rule behind it, and what both cost. */
struct found {
    struct swn_task_decision first;
    uint32_t rule;
    double cost;
};

static double run_copy(const struct search *x, struct swn_task_decision first, uint32_t rule,
                       enum swn_task_objective objective, double bound, struct swn_task_schedule *schedule)
{
    struct swn_sandbox box = x->box;

    box.s.passes = box.passes;
    box.s.copies = box.copies;
    return swn_sandbox_run(&box, first, &x->rules[rule], objective, bound, schedule);
}

/* The best first step. Rules are tried in turn with each step until the effort is spent: each step is tried with the
 * first rule at least. */
static struct found best(const struct search *x, enum swn_task_objective objective, uint32_t steps)
{
    struct found found = {x->tries[0], 0, INFINITY};
    uint64_t effort = 0, run = 1;

    for (uint32_t p = 0; p < x->box.s.pass_count; p++)
        run += 2 * (uint64_t)(swn_task_layers(&x->box.s, &x->box.passes[p]) - x->box.passes[p].next_layer);
    for (uint32_t r = 0; r < x->rule_count && (!r || effort < steps); r++)
        for (uint32_t i = 0; i < x->try_count; i++) {
            double value = run_copy(x, x->tries[i], r, objective, found.cost, NULL);

            effort += run;
            if (value < found.cost)
                found = (struct found){x->tries[i], r, value};
        }
    return found;
}

/* A spare block to drop: of copies that are not planned for, the one whose network computed longest ago, from its
 * last layer on. The first layers are what a new pass waits for. */
static int drop_spare(const struct search *x, const struct swn_task_state *s, struct swn_task_decision *d)
{
    uint64_t oldest = UINT64_MAX;

    for (uint32_t c = 0; c < s->copy_count; c++) {
        int inside = !s->copies[c].is_taken;

        for (uint32_t n = 0; n < x->box.s.copy_count; n++)
            inside |= x->box.copy_of[n] == c;
        for (uint32_t l = inside ? 0 : s->networks[s->copies[c].network].layer_count; l-- > 0;)
            if (s->copies[c].blocks[l] == SWN_BLOCK_LOADED && s->copies[c].used_ns < oldest) {
                oldest = s->copies[c].used_ns;
                *d = (struct swn_task_decision){SWN_TASK_DROP, 0, c, l};
                break;
            }
    }
    return oldest != UINT64_MAX;
}

uint32_t swn_task_prefetched(double probability, uint32_t layers)
{
    return probability < SWN_TASK_LIKELY ? 1 : layers;
}

/* The next block of the likeliest pass that waits for a result, where nothing else is to be loaded (CA-prefetch). */
static void prefetch(const struct search *x, const struct swn_task_state *s, struct swn_task_decision *d)
{
    double likeliest = 0;

    for (uint32_t p = 0; p < x->box.s.pass_count; p++)
        if (swn_task_left_load_ns(&x->box.s, &x->box.passes[p]))
            return;
    for (uint32_t p = 0; p < s->pass_count; p++) {
        const struct swn_task_pass *pass = &s->passes[p];
        uint32_t l = 0, most = swn_task_prefetched(pass->probability, swn_task_layers(s, pass));

        if (!pass->is_undecided || pass->probability <= likeliest)
            continue;
        while (l < most && s->copies[pass->copy].blocks[l] != SWN_BLOCK_ABSENT)
            l++;
        if (l < most && swn_task_can_load(s, p, l) &&
            swn_task_weight_bytes(s, pass->network, l) <= swn_task_free_bytes(s)) {
            likeliest = pass->probability;
            *d = (struct swn_task_decision){SWN_TASK_LOAD, p, pass->copy, l};
        }
    }
}

/* The sandbox's decision, as one of the state; where it needs room that only spare blocks give, first one of them goes.
 */
static void translate(const struct search *x, const struct swn_task_state *s, struct swn_task_decision chosen,
                      struct swn_task_decision *d)
{
    if (swn_sandbox_need(&x->box, &chosen) > swn_task_free_bytes(s) && drop_spare(x, s, d))
        return;
    *d = chosen;
    if (chosen.kind == SWN_TASK_NONE)
        return;
    d->copy = x->box.copy_of[chosen.copy];
    d->pass = chosen.kind == SWN_TASK_DROP ? 0 : x->box.pass_of[chosen.pass];
}

/* Where no memory is enough as far as is known: the first pass goes on all the same when nothing else is in memory.
 * What it really needs turns out then. */
static void run_alone(const struct search *x, const struct swn_task_state *s, struct swn_task_decision *d)
{
    uint32_t p = x->box.pass_of[0], own = s->passes[p].copy, layer = s->passes[p].next_layer;

    for (uint32_t c = 0; c < s->copy_count; c++)
        for (uint32_t l = 0; s->copies[c].is_taken && l < s->networks[s->copies[c].network].layer_count; l++)
            if (s->copies[c].blocks[l] == SWN_BLOCK_LOADED && (c != own || l != layer)) {
                *d = (struct swn_task_decision){SWN_TASK_DROP, 0, c, l};
                return;
            }
    if (swn_task_can_compute(s, p))
        *d = (struct swn_task_decision){SWN_TASK_COMPUTE, p, own, layer};
    else if (swn_task_can_load(s, p, layer))
        *d = (struct swn_task_decision){SWN_TASK_LOAD, p, own, layer};
}

void swn_task_lookahead(const struct swn_task_state *s, enum swn_task_objective objective, uint32_t steps,
                        struct swn_task_decision *decision)
{
    struct search x;

    if (swn_task_drop_computed(s, decision) || !swn_task_has_room(s))
        return;
    swn_sandbox_make(&x.box, s, WINDOW + s->flight_count);
    if (x.box.s.pass_count) {
        make_rules(&x, objective);
        make_tries(&x);
        translate(&x, s, x.try_count > 1 ? best(&x, objective, steps).first : x.tries[0], decision);
        if (!decision->kind && swn_task_is_idle(s))
            run_alone(&x, s, decision);
    }
    if (!decision->kind && s->cascade == SWN_CASCADE_PREFETCH)
        prefetch(&x, s, decision);
}

void swn_task_lookahead_schedule(const struct swn_task_state *s, enum swn_task_objective objective, uint32_t steps,
                                 struct swn_task_schedule *schedule)
{
    struct search x;
    struct found found;

    swn_sandbox_make(&x.box, s, WINDOW + s->flight_count);
    if (!x.box.s.pass_count)
        return;
    make_rules(&x, objective);
    make_tries(&x);
    found = best(&x, objective, steps);
    if (found.cost < INFINITY)
        run_copy(&x, found.first, found.rule, objective, INFINITY, schedule);
}
