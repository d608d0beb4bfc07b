/* scheduler/serve/serve_leases.c - gives engines the memory that swn_leases_divide has for them, of --memory or of what
 * swapnetd leases to the server (serve_party.h).
 *
 * What an engine may be using counts, not what it was told: a smaller budget counts when the engine has said that it is
 * in force, a larger one before the engine is told. So together they never have more than the total; when the total
 * itself becomes smaller, until they have given way.
 */
#include <sys/epoll.h>

#include "base/clock.h"
#include "base/process.h"
#include "base/size.h"
#include "scheduler/policies/leases.h"
#include "scheduler/serve/serve_leases.h"
#include "scheduler/serve/serving_internal.h"

/* An engine without work for so long is idle. */
#define IDLE_NS (2000 * SWN_SERVE_MS)
/* One that is on its way to a smaller budget is asked again after so long. */
#define AGAIN_NS (100 * SWN_SERVE_MS)
/* For so long after a request that found too little memory, the server asks swapnetd for all that it may have. */
#define SHORT_NS (60000 * SWN_SERVE_MS)
/* What the shared engine is said to need beside weights, before its requests have shown it. */
#define ACTIVATIONS (UINT64_C(64) << 20)

static uint64_t most_of(uint64_t a, uint64_t b)
{
    return a > b ? a : b;
}

static uint64_t least_of(uint64_t a, uint64_t b)
{
    return a < b ? a : b;
}

/* What is no engine's. */
static uint64_t fixed(const struct swn_serving *s)
{
    return s->options.buffer_bytes + s->options.front_bytes;
}

/* What the engine takes at least: less than libswapnet can begin with, and it would run without its budget. What it has
 * shown since counts too. */
static uint64_t least_for(const struct swn_served_engine *e)
{
    return most_of(e->least_bytes, swn_budget_unasked(e->own_bytes));
}

/* All engines, with the buffer and the server itself. */
static uint64_t least_of_all(const struct swn_serving *s)
{
    uint64_t all = fixed(s);

    for (unsigned i = 0; i < SWN_ENGINES_MOST; i++)
        all += s->engines[i].is_wanted ? least_for(&s->engines[i]) : 0;
    return all;
}

uint64_t swn_leases_most(const struct swn_serving *s)
{
    return s->options.memory_bytes - fixed(s);
}

void swn_leases_cap(struct swn_serving *s, uint64_t bytes)
{
    s->limits.cap_bytes = bytes;
}

uint64_t swn_leases_cap_now(const struct swn_serving *s)
{
    uint64_t cap = s->limits.cap_bytes ? s->limits.cap_bytes : s->options.memory_bytes;

    /* An engine that comes later, or has shown what it takes, may need more than a user has set before. */
    return least_of(most_of(cap, least_of_all(s)), s->options.memory_bytes);
}

uint64_t swn_leases_budget(const struct swn_serving *s)
{
    return swn_serve_party_bytes(s->limits.party, swn_leases_cap_now(s));
}

uint64_t swn_leases_total(const struct swn_serving *s)
{
    uint64_t bytes = swn_leases_budget(s);

    return most_of(bytes - least_of(bytes, fixed(s)), SWN_BUDGET_UNASKED_BYTES);
}

/* Where the server has a part of --memory only, an engine of one model has that part of its own. */
uint64_t swn_leases_base(const struct swn_serving *s, unsigned engine, uint64_t total)
{
    double part = (double)total / (double)swn_leases_most(s);
    uint64_t own = 0;

    for (unsigned i = 1; i < SWN_ENGINES_MOST; i++) {
        const struct swn_served_engine *e = &s->engines[i];
        uint64_t bytes = part < 1 ? (uint64_t)((double)e->own_bytes * part) : e->own_bytes;
        bytes = most_of(bytes, swn_budget_unasked(e->own_bytes));
        if (i == engine)
            return bytes;
        own += e->is_wanted ? bytes : 0;
    }
    return total - least_of(own, total);
}

/* What no engine that lives may be using, and none that is to be started waits for. `engine` is not counted. */
static uint64_t room_beside(const struct swn_serving *s, unsigned engine)
{
    uint64_t all = 0, total = swn_leases_total(s);

    for (unsigned i = 0; i < SWN_ENGINES_MOST; i++) {
        const struct swn_served_engine *e = &s->engines[i];
        if (i != engine)
            all += e->link.state != SWN_ENGINE_IS_DOWN ? e->budget_bytes : e->is_wanted ? e->lease_bytes : 0;
    }
    return all < total ? total - all : 0;
}

/* To start with. */
static int is_enough(const struct swn_served_engine *e)
{
    return e->lease_bytes >= swn_budget_unasked(e->own_bytes);
}

int swn_leases_has_room(const struct swn_serving *s, unsigned engine)
{
    uint64_t all = s->engines[engine].lease_bytes;

    for (unsigned i = 0; i < SWN_ENGINES_MOST; i++)
        if (i != engine && s->engines[i].link.state != SWN_ENGINE_IS_DOWN)
            all += s->engines[i].budget_bytes;
    return all <= swn_leases_total(s) && is_enough(&s->engines[engine]);
}

/* Of the weights that it has, and a quarter for activations. */
static uint64_t need_of(const struct swn_serving *s, unsigned engine)
{
    uint64_t bytes = 0;

    for (size_t i = 0; i < s->count; i++)
        if (s->models[i]->engine == engine)
            bytes += s->models[i]->weight_bytes;
    return bytes > UINT64_MAX / 2 ? bytes : bytes + bytes / 4;
}

static void divide(struct swn_serving *s, uint64_t now)
{
    struct swn_lease leases[SWN_ENGINES_MOST];
    uint64_t total = swn_leases_total(s);
    unsigned who[SWN_ENGINES_MOST], n = 0;

    for (const struct swn_serve_item *item = s->queue.first; item; item = item->next)
        if (item->engine < SWN_ENGINES_MOST) /* an ensemble's own has none */
            s->engines[item->engine].busy_ns = now;
    for (unsigned i = 0; i < SWN_ENGINES_MOST; i++) {
        const struct swn_served_engine *e = &s->engines[i];
        if (!e->is_wanted)
            continue;
        leases[n] = (struct swn_lease){.base = swn_leases_base(s, i, total),
                                       .least = least_for(e),
                                       .need = need_of(s, i),
                                       .bytes = e->lease_bytes,
                                       .is_busy = e->busy_ns && now - e->busy_ns < IDLE_NS};
        who[n++] = i;
    }
    swn_leases_divide(leases, n, total);
    for (unsigned k = 0; k < n; k++)
        s->engines[who[k]].lease_bytes = leases[k].bytes;
}

/* What the engine is to have, but for what it has said that it cannot do without. */
static uint64_t wanted_of(const struct swn_served_engine *e)
{
    return most_of(e->lease_bytes, least_of(e->least_bytes, e->budget_bytes));
}

/* The engine is told, where it has another lease than budget. */
static void tell(struct swn_serving *s, unsigned i, uint64_t now)
{
    struct swn_served_engine *e = &s->engines[i];
    uint64_t room = room_beside(s, i), wanted = wanted_of(e);
    struct swn_engine_message m = {.op = SWN_ENGINE_BUDGET, .budget_bytes = wanted};

    if (e->link.state != SWN_ENGINE_IS_UP || e->told_bytes || now < e->tell_at_ns)
        return;
    e->tell_at_ns = 0;
    if (m.budget_bytes > room)
        m.budget_bytes = room;
    if (m.budget_bytes < e->budget_bytes)
        m.budget_bytes = least_of(wanted, e->budget_bytes);
    if (m.budget_bytes == e->budget_bytes || swn_engine_link_tell(&e->link, &m, now))
        return;
    e->told_bytes = m.budget_bytes;
    if (m.budget_bytes > e->budget_bytes)
        e->budget_bytes = m.budget_bytes;
}

void swn_leases_review(struct swn_serving *s, uint64_t now)
{
    divide(s, now);
    for (unsigned i = 0; i < SWN_ENGINES_MOST; i++)
        if (s->engines[i].is_wanted)
            tell(s, i, now);
}

void swn_leases_told(struct swn_serving *s, unsigned engine, const struct swn_engine_message *m, uint64_t now)
{
    struct swn_served_engine *e = &s->engines[engine];

    if (m->status == SWN_ENGINE_OK)
        e->budget_bytes = e->told_bytes;
    else if (m->status == SWN_ENGINE_FAILED)
        e->tell_at_ns = now + AGAIN_NS;
    else /* what it says is to be more than what it refused, and no more than what it has */
        e->least_bytes =
            m->budget_bytes > e->told_bytes && m->budget_bytes < e->budget_bytes ? m->budget_bytes : e->budget_bytes;
    e->told_bytes = 0;
}

void swn_leases_started(struct swn_served_engine *e)
{
    e->budget_bytes = e->lease_bytes;
    e->least_bytes = e->told_bytes = e->tell_at_ns = 0;
}

int swn_leases_is_hopeless(const struct swn_serving *s, unsigned engine)
{
    if (swn_leases_total(s) < swn_leases_most(s))
        return 0; /* swapnetd may give more */
    for (unsigned i = 0; i < SWN_ENGINES_MOST; i++) {
        const struct swn_served_engine *e = &s->engines[i];
        if (i != engine && e->link.state != SWN_ENGINE_IS_DOWN &&
            (e->link.state != SWN_ENGINE_IS_UP || e->told_bytes || e->tell_at_ns || e->budget_bytes > e->lease_bytes))
            return 0;
    }
    return !swn_leases_has_room(s, engine);
}

/* ---- what swapnetd is told ---- */

void swn_leases_ran_short(struct swn_serving *s, uint64_t now)
{
    s->limits.short_until_ns = now + SHORT_NS;
    swn_serve_party_hurry(s->limits.party);
}

/* What the engine can use. */
static uint64_t demand_of(const struct swn_serving *s, unsigned engine)
{
    uint64_t need = need_of(s, engine);

    return engine ? most_of(need, s->engines[engine].own_bytes) : need + ACTIVATIONS;
}

/* 1: the engine has what it is to have, or what it cannot do without. */
static int is_settled(const struct swn_served_engine *e)
{
    if (e->link.state == SWN_ENGINE_IS_DOWN)
        return 1;
    return e->link.state == SWN_ENGINE_IS_UP && !e->told_bytes && !e->tell_at_ns && e->budget_bytes <= wanted_of(e);
}

uint64_t swn_leases_in_memory(const struct swn_serving *s, const struct swn_served *m)
{
    struct swn_lane_group groups[SWN_GROUPS_MOST];
    uint64_t bytes = 0;
    uint32_t count;

    if (m->state != SWN_MODEL_READY || m->engine >= SWN_ENGINES_MOST)
        return 0;
    count = swn_group_times_now(&m->times, m->weight_bytes, s->engines[m->engine].read_total, groups);
    for (uint32_t g = 0; g < count; g++)
        bytes += groups[g].weight_bytes - groups[g].missing_bytes;
    return bytes < m->weight_bytes ? bytes : m->weight_bytes; /* weights of two groups count once */
}

static void add_models(const struct swn_serving *s, struct swn_serve_party_needs *needs, int *is_known)
{
    uint64_t requests = 0, all_ns = 0;

    for (size_t i = 0; i < s->count; i++) {
        const struct swn_served *m = s->models[i];
        uint64_t compute_ns = 0;
        *is_known &= m->state != SWN_MODEL_WANTED && m->state != SWN_MODEL_LOADING;
        if (m->state != SWN_MODEL_READY)
            continue;
        needs->weight_bytes += m->weight_bytes;
        for (uint32_t g = 0; g < m->times.count && g < SWN_GROUPS_MOST; g++)
            compute_ns += m->times.groups[g].compute_ns;
        requests += m->counts.success;
        all_ns += m->counts.success * compute_ns;
    }
    needs->latency_s = requests ? (double)all_ns / (double)requests / 1e9 : 0;
}

/* What the engine has of its budget in memory, by the kernel's word: what it says of weights is about those that ran
 * last. PyTorch's own memory is in that, but no more than the budget counts. */
static uint64_t resident_of(const struct swn_served_engine *e)
{
    uint64_t bytes;

    if (e->link.pid <= 0 || swn_process_own_memory(e->link.pid, &bytes))
        return 0;
    return least_of(bytes, e->budget_bytes);
}

void swn_leases_needs(const struct swn_serving *s, uint64_t now, struct swn_serve_party_needs *needs)
{
    struct swn_buffer_use use;
    int is_known = now >= s->limits.short_until_ns;

    swn_buffer_use(s->buffer, &use);
    *needs = (struct swn_serve_party_needs){.least_bytes = least_of_all(s),
                                            .demand_bytes = fixed(s),
                                            .held_bytes = fixed(s),
                                            .resident_bytes = use.used_bytes,
                                            .is_settled = 1};
    for (unsigned i = 0; i < SWN_ENGINES_MOST; i++) {
        const struct swn_served_engine *e = &s->engines[i];
        int is_alive = e->link.state != SWN_ENGINE_IS_DOWN;
        if (e->is_wanted)
            needs->demand_bytes += demand_of(s, i);
        needs->held_bytes += is_alive ? e->budget_bytes : 0;
        needs->resident_bytes += is_alive ? resident_of(e) : 0;
        needs->is_settled = needs->is_settled && is_settled(e);
    }
    add_models(s, needs, &is_known);
    if (!is_known || needs->demand_bytes > swn_leases_cap_now(s))
        needs->demand_bytes = swn_leases_cap_now(s);
}

static void watch_party(struct swn_serving *s)
{
    int socket = swn_serve_party_socket(s->limits.party);

    if (socket >= 0 && socket != s->limits.party_socket)
        swn_serve_watch(s, socket, SWN_SERVE_TAG(SWN_TAG_PARTY, 0), EPOLLIN);
    s->limits.party_socket = socket;
}

/* Engines begin with what the first lease has for them. */
int swn_leases_register(struct swn_serving *s, char why[SWN_ERRMSG])
{
    struct swn_serve_party_options options = s->options.party;
    struct swn_serve_party_needs needs;
    int rc;

    swn_leases_needs(s, swn_now_ns(), &needs);
    options.cap_bytes = s->options.memory_bytes;
    options.least_bytes = needs.least_bytes;
    rc = swn_serve_party_open(&s->limits.party, &options, why);
    if (rc == 0) {
        swn_serve_party_begin(s->limits.party, &needs);
        watch_party(s);
    }
    return rc;
}

/* The engines have been told their part of what swapnetd gave by now. */
void swn_leases_report(struct swn_serving *s, uint64_t now)
{
    struct swn_serve_party_needs needs;

    if (!swn_serve_party_has_to_say(s->limits.party, now))
        return;
    if (swn_serve_party_socket(s->limits.party) < 0)
        s->limits.party_socket = -1; /* the next connection may have the same number */
    swn_leases_needs(s, now, &needs);
    swn_serve_party_say(s->limits.party, &needs, now);
    watch_party(s);
}
