/* Places for activations. What a pass allocates, how much each time and until when, is recorded; a pass that recurs is
 * laid out (scheduler/planner/activation_layout.h), and from then on the k-th tensor of a pass that has gone as planned
 * so far gets its planned address: pages that are there, nothing to search, and no more memory than the pass needs at
 * its fullest.
 *
 * A plan is a proposal. A place is given only when nobody has it, so a tensor that outlives its pass keeps its bytes;
 * whatever does not go as planned is allocated as if there were no plan, until the pass ends. Records, plans and the
 * plot they lie in belong to a thread. */
#include <stdlib.h>
#include <string.h>

#include "skeleton/core/engine_internal.h"
#include "base/huge_pages.h"
#include "base/size.h"
#include "scheduler/planner/activation_layout.h"
#include "skeleton/activations/activation_plan.h"
#include "skeleton/core/plan.h"
#include "skeleton/core/accounting.h"

#define FIRST_SLOTS 256
/* Laying out so many takes some 20 ms, once. */
#define MOST_SLOTS 2048
#define MOST_PLANS 16
/* A plan that nobody has used for so many passes makes way for another. */
#define IDLE_PASSES 256
/* Passes remembered by a hash only, to see that they recur. */
#define SEEN 64
/* A plot whose pages come and go is made of huge pages so often. */
#define MOST_SMOOTHED 8
/* Passes until it is known what is needed beside a new plot. */
#define SETTLING 2
/* Lives may change from pass to pass for ever: a plan is mended so often. */
#define MOST_MENDED 8
/* Of other threads, while one does nothing: it is given up, and its room with it. */
#define IDLE_VISITS 4096

/* The tensors of one pass. */
struct record {
    struct swn_slot *slots;
    size_t n, room;
    int lost; /* it is incomplete */
};

struct plan {
    struct record pass;
    uint64_t hash, extent;
    uint64_t used; /* the last pass that went as planned */
    unsigned missed, mended;
};

struct swn_places {
    struct record now, last; /* the pass under way, and the one before: of that, some are alive still */
    uint64_t pass;
    struct plan plans[MOST_PLANS];
    size_t count;
    struct plan *plan; /* that the pass under way has followed so far; NULL: none */
    struct swn_plot *plot;
    uint64_t seen[SEEN];
    size_t seen_at;
};

static uint64_t hash_of(const struct record *r)
{
    uint64_t h = r->n;
    for (size_t i = 0; i < r->n; i++)
        h = (h ^ r->slots[i].bytes) * 0x9E3779B97F4A7C15ULL;
    return h | 1;
}

/* Whether the first n of both are of the same size. */
static int alike(const struct record *a, const struct record *b, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (a->slots[i].bytes != b->slots[i].bytes)
            return 0;
    return 1;
}

static int same_lives(const struct record *a, const struct record *b)
{
    for (size_t i = 0; i < a->n; i++)
        if (a->slots[i].dies != b->slots[i].dies)
            return 0;
    return 1;
}

/* --- plans --- */

static int reserve(struct record *r, size_t n)
{
    if (n <= r->room)
        return 1;
    size_t room = r->room ? r->room : FIRST_SLOTS;
    while (room < n)
        room *= 2;
    struct swn_slot *slots = realloc(r->slots, room * sizeof *slots);
    if (!slots)
        return 0;
    r->slots = slots;
    r->room = room;
    return 1;
}

/* Lays `pass` out. 0: there is no memory to do it, and no plan. */
static int lay_out(struct plan *p, const struct record *pass)
{
    if (!reserve(&p->pass, pass->n))
        return 0;
    memcpy(p->pass.slots, pass->slots, pass->n * sizeof *pass->slots);
    p->pass.n = pass->n;
    p->missed = 0;
    return !swn_slots_place(p->pass.slots, pass->n, SWN_GRANULE, &p->extent);
}

/* A plot that all plans find room in, and that is not much larger. 0: there is
 * none. */
static int have_plot(struct swn_engine *e, struct swn_places *s)
{
    uint64_t most = 0;
    for (size_t i = 0; i < s->count; i++)
        most = s->plans[i].extent > most ? s->plans[i].extent : most;
    size_t now = s->plot ? swn_plot_bytes(s->plot) : 0;
    if (!most || (now >= most && now <= most + most / 4))
        return 1;
    size_t peak = swn_policy_other_peak(e), unplotted = e->unplotted_other;
    if (!s->plot)
        unplotted = peak;
    else if (!unplotted && peak > e->plot_extra)
        unplotted = peak - e->plot_extra;
    struct swn_plot *plot = swn_arena_plot(e->arena, most);
    if (!plot)
        return now >= most;
    e->unplotted_other = unplotted;
    if (s->plot)
        swn_arena_unplot(e->arena, s->plot);
    s->plot = plot;
    e->settling = SETTLING;
    e->plots_smoothed = 0;
    return 1;
}

static void say_layout(const struct plan *p)
{
    char extent[32], peak[32];
    swn_say("activations: %zu tensors a pass are laid out in %s, of which %s are in use at once", p->pass.n,
            swn_format_mib(extent, p->extent),
            swn_format_mib(peak, swn_slots_peak(p->pass.slots, p->pass.n, SWN_GRANULE)));
}

static void forget(struct swn_engine *e, struct swn_places *s)
{
    s->count = 0;
    s->plan = NULL;
    if (s->plot)
        swn_arena_unplot(e->arena, s->plot);
    s->plot = NULL;
}

/* A free descriptor, or that of a plan which is not used any more; or NULL. */
static struct plan *place_for_plan(struct swn_places *s)
{
    if (s->count < MOST_PLANS)
        return &s->plans[s->count++];
    struct plan *oldest = s->plans;
    for (size_t i = 1; i < s->count; i++)
        oldest = s->plans[i].used < oldest->used ? &s->plans[i] : oldest;
    return s->pass - oldest->used > IDLE_PASSES ? oldest : NULL;
}

static struct plan *plan_of(struct swn_places *s, const struct record *pass, uint64_t hash)
{
    for (size_t i = 0; i < s->count; i++)
        if (s->plans[i].hash == hash && s->plans[i].pass.n == pass->n && alike(&s->plans[i].pass, pass, pass->n))
            return &s->plans[i];
    return NULL;
}

static int recurs(struct swn_places *s, uint64_t hash)
{
    for (size_t i = 0; i < SEEN; i++)
        if (s->seen[i] == hash)
            return 1;
    s->seen[s->seen_at++ % SEEN] = hash;
    return 0;
}

/* Everything is known of a pass: all its tensors are gone, or another pass old. */
static void conclude(struct swn_engine *e, struct swn_places *s, const struct record *pass)
{
    uint64_t hash = hash_of(pass);
    struct plan *p = plan_of(s, pass, hash);
    /* One thread's activations have a plot. Threads that take turns would each keep theirs, until nothing of the budget
     * is left for weights; the others' come and go on demand. */
    if (!s->plot && swn_arena_plot_bytes(e->arena))
        return;
    if (p) {
        p->used = s->pass;
        if (!p->missed || same_lives(&p->pass, pass) || p->mended++ >= MOST_MENDED)
            return;
    } else if (recurs(s, hash) && (p = place_for_plan(s))) {
        *p = (struct plan){.pass = p->pass, .hash = hash, .used = s->pass};
    } else {
        return;
    }
    if (!lay_out(p, pass) || !have_plot(e, s))
        forget(e, s);
    else if (e->config.verbose)
        say_layout(p);
}

/* In the first pass with another plot there are tensors beside it that will be in it from then on; the one after that
 * shows what has to be left for activations. */
static void settle(struct swn_engine *e)
{
    if (!e->settling)
        return;
    if (--e->settling) {
        e->other_peak = e->other_before = 0;
        return;
    }
    size_t peak = swn_policy_other_peak(e), before = e->unplotted_other;
    if (before)
        e->plot_extra = peak > before ? peak - before : 0;
    e->unplotted_other = 0;
    e->plan_dirty = 1;
}

static int is_rough(const struct swn_engine *e)
{
    return e->plots_rough && e->plots_smoothed < MOST_SMOOTHED;
}

/* Whether all of a huge page's place has pages, and they are ordinary ones that can be moved. */
static int is_solid(const struct swn_engine *e, const struct swn_plot *plot, size_t at)
{
    size_t end = at + SWN_HUGE;
    const struct swn_range *r;
    for (size_t next = at; next < end && (r = swn_plot_holder(e->arena, plot, next, end - next));
         next = r->addr + r->span - swn_plot_addr(e->arena, plot))
        if (atomic_load(&((struct swn_range *)r)->state) != SWN_HOME || r->foreign_map || r->registered || r->on_device)
            return 0;
    return !swn_plot_fresh(plot, at, SWN_HUGE);
}

static void make_huge(struct swn_engine *e, uintptr_t at)
{
    swn_huge_advise(at, SWN_HUGE);
    swn_residency_made_huge(&e->res, at); /* if not now, then when it is filled again */
    (void)swn_huge_collapse((void *)at, SWN_HUGE);
}

/* All that a pass has been through is counted: making huge pages of it takes no more memory. */
static void smooth(struct swn_engine *e)
{
    if (!is_rough(e) || e->settling)
        return;
    e->plots_rough = 0;
    e->plots_smoothed++;
    for (struct swn_thread_state *t = e->threads; t; t = t->next) {
        const struct swn_plot *plot = t->places ? t->places->plot : NULL;
        for (size_t at = 0; plot && at + SWN_HUGE <= swn_plot_bytes(plot); at += SWN_HUGE)
            if (is_solid(e, plot, at))
                make_huge(e, swn_plot_addr(e->arena, plot) + at);
    }
}

void swn_places_passed(struct swn_engine *e, struct swn_thread_state *t)
{
    struct swn_places *s = t->places;
    if (e->config.without & SWN_WITHOUT_PLACES || (!s && !(s = t->places = calloc(1, sizeof *s))))
        return;
    settle(e);
    smooth(e);
    for (struct swn_thread_state *other = e->threads; other; other = other->next)
        if (other != t && other->places && other->places->plot && e->visits - other->last_visit > IDLE_VISITS)
            forget(e, other->places);
    struct plan *latest = s->plan;
    s->plan = NULL;
    if (s->last.n && !s->last.lost && e->plots_refused != e->goal_bytes)
        conclude(e, s, &s->last);
    struct record done = s->last;
    s->last = s->now;
    s->now = done;
    s->now.n = 0;
    s->now.lost = 0;
    s->pass++;
    s->plan = !s->count ? NULL : latest ? latest : &s->plans[s->count - 1];
}

void swn_places_drop(struct swn_engine *e, struct swn_thread_state *t)
{
    if (t->places)
        forget(e, t->places);
    e->plots_refused = 0;
}

void swn_places_refuse(struct swn_engine *e)
{
    char extra[32];
    if (e->config.verbose)
        swn_say("activations: no places in this budget, weights have a better use for the %s that they take more",
                swn_format_mib(extra, e->plot_extra));
    for (struct swn_thread_state *t = e->threads; t; t = t->next)
        if (t->places)
            forget(e, t->places);
    e->plots_refused = e->goal_bytes;
    e->plot_extra = e->unplotted_other = 0;
    e->settling = 0;
    e->other_before = 0;
    e->other_peak = swn_policy_other(e);
}

/* --- a pass --- */

/* The plan that the pass has followed so far and that goes on with n bytes, or NULL. */
static struct plan *goes_on(struct swn_places *s, size_t n)
{
    size_t k = s->now.n;
    if (!s->plan || (k < s->plan->pass.n && s->plan->pass.slots[k].bytes == n))
        return s->plan;
    for (struct plan *p = s->plans; p < s->plans + s->count; p++)
        if (k < p->pass.n && p->pass.slots[k].bytes == n && alike(&p->pass, &s->now, k))
            return p;
    return NULL;
}

/* Memory of the plot that nobody has, and no tensor of the plan needs until the pass has made so many allocations. */
static int find_gap(struct swn_engine *e, const struct swn_places *s, size_t n, uint32_t until, size_t *out)
{
    const struct record *pass = &s->plan->pass;
    uint32_t now = (uint32_t)s->now.n;
    uint64_t size = swn_round_up(n, SWN_GRANULE), at = 0;
    while (until >= now && (at = swn_slots_gap(pass->slots, pass->n, SWN_GRANULE, swn_plot_bytes(s->plot), now, until,
                                               at, size)) != SWN_NOWHERE) {
        const struct swn_range *r = swn_plot_holder(e->arena, s->plot, at, size);
        *out = at;
        if (!r)
            return 1;
        at = r->addr + r->span - swn_plot_addr(e->arena, s->plot);
    }
    return 0;
}

/* A pass that no plan is for has the plot to itself. */
static int find_anywhere(struct swn_engine *e, const struct swn_places *s, size_t n, struct swn_place *out)
{
    const struct swn_range *r;
    *out = (struct swn_place){.plot = s->plot};
    while (out->at + swn_round_up(n, SWN_GRANULE) <= swn_plot_bytes(s->plot)) {
        if (!(r = swn_plot_holder(e->arena, s->plot, out->at, n)))
            return 1;
        out->at = r->addr + r->span - swn_plot_addr(e->arena, s->plot);
    }
    return 0;
}

int swn_places_find(struct swn_engine *e, struct swn_thread_state *t, size_t n, struct swn_place *out)
{
    struct swn_places *s = t ? t->places : NULL;
    if (!s || !s->plot)
        return 0;
    if (!s->plan || !(s->plan = goes_on(s, n)))
        return find_anywhere(e, s, n, out);
    const struct swn_slot *slot = &s->plan->pass.slots[s->now.n];
    if (slot->at == SWN_NOWHERE)
        return 0;
    const struct swn_range *holder = swn_plot_holder(e->arena, s->plot, slot->at, n);
    s->plan->missed += holder != NULL;
    *out = (struct swn_place){.plot = s->plot, .at = slot->at};
    return !holder || find_gap(e, s, n, slot->dies, &out->at);
}

void swn_places_born(struct swn_thread_state *t, struct swn_range *r)
{
    struct swn_places *s = t ? t->places : NULL;
    if (!s)
        return;
    if (s->now.n == MOST_SLOTS || !reserve(&s->now, s->now.n + 1)) {
        s->now.lost = 1;
        s->plan = NULL;
        return;
    }
    r->places = s;
    r->born = (uint32_t)s->now.n;
    r->born_pass = s->pass;
    s->now.slots[s->now.n++] = (struct swn_slot){.bytes = r->len};
}

void swn_places_died(struct swn_range *r)
{
    struct swn_places *s = r->places;
    if (!s)
        return;
    if (r->born_pass == s->pass)
        s->now.slots[r->born].dies = (uint32_t)s->now.n;
    else if (r->born_pass + 1 == s->pass)
        s->last.slots[r->born].dies = (uint32_t)(s->last.n + s->now.n);
}
