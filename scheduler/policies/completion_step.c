/* scheduler/policies/completion_step.c - see completion_step.h. */
#include "scheduler/policies/completion_step.h"

#include "scheduler/policies/several.h"

struct moved {
    struct swn_completion c;
    uint32_t group[SWN_STEP_REQUESTS];
    double weight[SWN_STEP_REQUESTS];
};

static double weight_of(const struct swn_completion *c, uint32_t i)
{
    return c->weight ? c->weight[i] : 1;
}

/* Appends a request in FIFO order: behind all that are further, and in its group behind the heavier ones. */
static void put(struct moved *m, uint32_t group, double weight)
{
    uint32_t k = m->c.n++;

    for (; k && (m->group[k - 1] < group || (m->group[k - 1] == group && m->weight[k - 1] < weight)); k--) {
        m->group[k] = m->group[k - 1];
        m->weight[k] = m->weight[k - 1];
    }
    m->group[k] = group;
    m->weight[k] = weight;
}

/* The requests after the step. */
static void move(const struct swn_completion *c, struct swn_step step, struct moved *m)
{
    uint32_t left = step.count;

    m->c = *c;
    m->c.n = 0;
    m->c.group = m->group;
    m->c.weight = m->weight;
    for (uint32_t i = 0; i < c->n; i++) {
        uint32_t group = c->group[i];
        if (group == step.group && left) {
            left--;
            group++;
        }
        if (group < c->group_count)
            put(m, group, weight_of(c, i));
    }
}

/* What the chains cost when they begin now, in their order. */
static double cost_of(const struct swn_chain *from, uint32_t count, uint32_t current)
{
    struct swn_chain chains[SWN_STEP_REQUESTS];
    double now = 0, sum = 0;
    uint32_t left = 0;

    for (uint32_t c = 0; c < count; c++) {
        chains[c] = from[c];
        left += chains[c].count;
    }
    while (left) {
        uint32_t length = 1, c = swn_chain_choose(chains, count, current, &length);
        now += c == current ? 0 : chains[c].switch_ns;
        current = c;
        for (left -= length; length; length--) {
            const struct swn_segment *s = &chains[c].segments[chains[c].next++];
            now += s->time_ns;
            sum += s->weight * now;
        }
    }
    return sum;
}

/* The first step of the plans. */
static struct swn_step planned(const struct swn_completion *problems, const struct swn_chain *chains, uint32_t count,
                               uint32_t current)
{
    struct swn_step step = {.count = 0};
    const struct swn_completion *c;
    uint32_t length, last;

    step.problem = swn_chain_choose(chains, count, current, &length);
    c = &problems[step.problem];
    last = chains[step.problem].segments[0].last;
    step.group = c->group[last];
    for (uint32_t i = 0; i <= last; i++)
        step.count += c->group[i] == step.group;
    return step;
}

struct swn_step swn_completion_step(const struct swn_completion *problems, const double *switch_ns, uint32_t count,
                                    uint32_t current, struct swn_completion_room *room, double *total)
{
    struct swn_segment segments[SWN_STEP_REQUESTS], after[SWN_STEP_REQUESTS];
    struct swn_chain chains[SWN_STEP_REQUESTS], chain;
    double waiting = 0, unused;
    struct swn_step best;
    struct moved m;

    for (uint32_t p = 0, at = 0; p < count; at += problems[p++].n) {
        chains[p] = (struct swn_chain){.segments = segments + at, .switch_ns = switch_ns[p]};
        chains[p].count = swn_completion_plan(&problems[p], room, segments + at, &unused);
        for (uint32_t i = 0; i < problems[p].n; i++)
            waiting += weight_of(&problems[p], i);
    }
    *total = cost_of(chains, count, current);
    best = planned(problems, chains, count, current);

    for (uint32_t p = 0; p < count; p++) {
        const struct swn_completion *c = &problems[p];
        chain = chains[p];
        for (uint32_t i = 0, run = 0; i < c->n; i++) {
            struct swn_step step = {.problem = p, .group = c->group[i]};
            double cost;
            run = i && c->group[i - 1] == step.group ? run + 1 : 1;
            step.count = run;
            if (c->bound && run > 1 && run > c->bound[step.group])
                continue;
            move(c, step, &m);
            chains[p].segments = after;
            chains[p].count = m.c.n ? swn_completion_plan(&m.c, room, after, &unused) : 0;
            cost = c->time[step.group * (c->most + (uint64_t)1) + run] + (p == current ? 0 : switch_ns[p]);
            cost = waiting * cost + cost_of(chains, count, p);
            /* Rounding is no reason to leave the plan. */
            if (cost < *total * (1 - 1e-9)) {
                *total = cost;
                best = step;
            }
        }
        chains[p] = chain;
    }
    return best;
}
