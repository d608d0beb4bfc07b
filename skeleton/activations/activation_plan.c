/* Places for activations. The engine records the tensors that a pass allocates, with their sizes and lives; a pass that
 * recurs is laid out (scheduler/planner/activation_layout.h), and from then on the k-th tensor of a pass that has gone
 * as planned so far gets its planned address: its pages exist, no search is needed, and the region is no larger than
 * the peak of the pass.
 *
 * A plan is a proposal. A tensor gets a place only when no other tensor has it, so a tensor that outlives its pass
 * keeps its bytes. Once a pass departs from the plan, its tensors are allocated as if there were no plan, until the
 * pass ends. Records, plans and the region they lie in belong to a thread.
 */
#include <stdlib.h>
#include <string.h>

#include "skeleton/engine/engine_internal.h"
#include "base/huge_pages.h"
#include "base/size.h"
#include "scheduler/planner/activation_layout.h"
#include "skeleton/activations/activation_plan.h"
#include "skeleton/core/plan.h"
#include "skeleton/engine/accounting.h"

#define FIRST_SLOTS 256
/* Laying out this many tensors takes some 20 ms, once. */
#define MOST_SLOTS 2048
#define MOST_PLANS 16
/* A plan that was not used for this many passes may be replaced. */
#define IDLE_PASSES 256
/* Passes that are remembered by a hash only, to see that they recur. */
#define SEEN 64
/* How often a region whose pages come and go is promoted to huge pages. */
#define PROMOTIONS_MOST 8
/* Passes until the memory that is needed beside a new region is known. */
#define SETTLING 2
/* How often a plan is corrected: lifetimes may change from pass to pass for ever. */
#define MOST_MENDED 8
/* Accesses of other threads after which an idle thread's region is given up, with its room. */
#define IDLE_ACCESSES 4096

/* The tensors of one pass. */
struct record {
    struct swn_activation_tensor *slots;
    size_t n, room;
    int lost; /* tensors are missing in it */
};

struct plan {
    struct record pass;
    uint64_t hash, extent;
    uint64_t used; /* the last pass that followed the plan */
    unsigned missed, mended;
};

struct swn_activation_plan {
    struct record now, last; /* the pass under way, and the one before, some of whose tensors may still live */
    uint64_t pass;
    struct plan plans[MOST_PLANS];
    size_t count;
    struct plan *plan; /* the plan that the pass under way has followed so far; NULL: none */
    struct swn_activation_region *region;
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

/* Whether the first n tensors of both have the same sizes. */
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
    struct swn_activation_tensor *slots = realloc(r->slots, room * sizeof *slots);
    if (!slots)
        return 0;
    r->slots = slots;
    r->room = room;
    return 1;
}

/* Lays `pass` out. 0: no memory, and no plan. */
static int lay_out(struct plan *p, const struct record *pass)
{
    if (!reserve(&p->pass, pass->n))
        return 0;
    memcpy(p->pass.slots, pass->slots, pass->n * sizeof *pass->slots);
    p->pass.n = pass->n;
    p->missed = 0;
    return !swn_activation_layout_place(p->pass.slots, pass->n, SWN_GRANULE, &p->extent);
}

/* Provides a region with room for all plans that is not much larger. 0: there is none. */
static int have_region(struct swn_engine *e, struct swn_activation_plan *s)
{
    uint64_t most = 0;
    for (size_t i = 0; i < s->count; i++)
        most = s->plans[i].extent > most ? s->plans[i].extent : most;
    size_t now = s->region ? swn_region_bytes(s->region) : 0;
    if (!most || (now >= most && now <= most + most / 4))
        return 1;
    size_t peak = swn_nonweight_peak(e), without_regions = e->regions.nonweight_without;
    if (!s->region)
        without_regions = peak;
    else if (!without_regions && peak > e->regions.extra)
        without_regions = peak - e->regions.extra;
    struct swn_activation_region *region = swn_arena_reserve_region(e->arena, most);
    if (!region)
        return now >= most;
    e->regions.nonweight_without = without_regions;
    if (s->region)
        swn_arena_release_region(e->arena, s->region);
    s->region = region;
    e->regions.warmup_passes = SETTLING;
    e->regions.huge_promotions = 0;
    return 1;
}

static void say_layout(const struct plan *p)
{
    char extent[32], peak[32];
    swn_say("activations: %zu tensors a pass are laid out in %s, of which %s are in use at once", p->pass.n,
            swn_format_mib(extent, p->extent),
            swn_format_mib(peak, swn_activation_layout_peak(p->pass.slots, p->pass.n, SWN_GRANULE)));
}

static void forget(struct swn_engine *e, struct swn_activation_plan *s)
{
    s->count = 0;
    s->plan = NULL;
    if (s->region)
        swn_arena_release_region(e->arena, s->region);
    s->region = NULL;
}

/* A free descriptor, or that of an unused plan; or NULL. */
static struct plan *place_for_plan(struct swn_activation_plan *s)
{
    if (s->count < MOST_PLANS)
        return &s->plans[s->count++];
    struct plan *oldest = s->plans;
    for (size_t i = 1; i < s->count; i++)
        oldest = s->plans[i].used < oldest->used ? &s->plans[i] : oldest;
    return s->pass - oldest->used > IDLE_PASSES ? oldest : NULL;
}

static struct plan *plan_of(struct swn_activation_plan *s, const struct record *pass, uint64_t hash)
{
    for (size_t i = 0; i < s->count; i++)
        if (s->plans[i].hash == hash && s->plans[i].pass.n == pass->n && alike(&s->plans[i].pass, pass, pass->n))
            return &s->plans[i];
    return NULL;
}

static int recurs(struct swn_activation_plan *s, uint64_t hash)
{
    for (size_t i = 0; i < SEEN; i++)
        if (s->seen[i] == hash)
            return 1;
    s->seen[s->seen_at++ % SEEN] = hash;
    return 0;
}

/* Concludes a pass of which everything is known: all its tensors are gone, or another pass old. */
static void conclude(struct swn_engine *e, struct swn_activation_plan *s, const struct record *pass)
{
    uint64_t hash = hash_of(pass);
    struct plan *p = plan_of(s, pass, hash);
    /* Only one thread's activations have a region. Threads that take turns would each keep theirs, until no budget is
     * left for weights; the activations of other threads come and go on demand. */
    if (!s->region && swn_arena_region_bytes(e->arena))
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
    if (!lay_out(p, pass) || !have_region(e, s))
        forget(e, s);
    else if (e->config.verbose)
        say_layout(p);
}

/* In the first pass with a new region some tensors still lie beside it, and lie in it from the next pass on; that pass
 * shows how much has to be left for activations. */
static void settle(struct swn_engine *e)
{
    if (!e->regions.warmup_passes)
        return;
    if (--e->regions.warmup_passes) {
        e->nonweight.peak = e->nonweight.before = 0;
        return;
    }
    size_t peak = swn_nonweight_peak(e), before = e->regions.nonweight_without;
    if (before)
        e->regions.extra = peak > before ? peak - before : 0;
    e->regions.nonweight_without = 0;
    e->plan.dirty = 1;
}

static int has_small_pages(const struct swn_engine *e)
{
    return e->regions.small_pages && e->regions.huge_promotions < PROMOTIONS_MOST;
}

/* Whether all pages of a huge page's place exist, and are ordinary ones that can be moved. */
static int is_solid(const struct swn_engine *e, const struct swn_activation_region *region, size_t at)
{
    size_t end = at + SWN_HUGE;
    const struct swn_range *r;
    for (size_t next = at; next < end && (r = swn_region_holder(e->arena, region, next, end - next));
         next = r->addr + r->span - swn_region_addr(e->arena, region))
        if (atomic_load(&((struct swn_range *)r)->state) != SWN_RESIDENT || r->foreign_map ||
            swn_tensor_of(r)->registered || swn_tensor_of(r)->on_device)
            return 0;
    return !swn_region_fresh(region, at, SWN_HUGE);
}

static void make_huge(struct swn_engine *e, uintptr_t at)
{
    swn_huge_advise(at, SWN_HUGE);
    swn_residency_made_huge(&e->res, at); /* if not now, then when it is filled again */
    (void)swn_huge_collapse((void *)at, SWN_HUGE);
}

/* A region that has been through a pass is counted in full, so promoting it to huge pages takes no more memory. */
static void promote_to_huge(struct swn_engine *e)
{
    if (!has_small_pages(e) || e->regions.warmup_passes)
        return;
    e->regions.small_pages = 0;
    e->regions.huge_promotions++;
    for (struct swn_thread_state *t = e->ops.threads; t; t = t->next) {
        const struct swn_activation_region *region = t->places ? t->places->region : NULL;
        for (size_t at = 0; region && at + SWN_HUGE <= swn_region_bytes(region); at += SWN_HUGE)
            if (is_solid(e, region, at))
                make_huge(e, swn_region_addr(e->arena, region) + at);
    }
}

void swn_activation_plan_passed(struct swn_engine *e, struct swn_thread_state *t)
{
    struct swn_activation_plan *s = t->places;
    if (e->config.without & SWN_WITHOUT_PLACES || (!s && !(s = t->places = calloc(1, sizeof *s))))
        return;
    settle(e);
    promote_to_huge(e);
    for (struct swn_thread_state *other = e->ops.threads; other; other = other->next)
        if (other != t && other->places && other->places->region &&
            e->weights.accesses - other->last_access > IDLE_ACCESSES)
            forget(e, other->places);
    struct plan *latest = s->plan;
    s->plan = NULL;
    if (s->last.n && !s->last.lost && e->regions.refused != e->budget.target)
        conclude(e, s, &s->last);
    struct record done = s->last;
    s->last = s->now;
    s->now = done;
    s->now.n = 0;
    s->now.lost = 0;
    s->pass++;
    s->plan = !s->count ? NULL : latest ? latest : &s->plans[s->count - 1];
}

void swn_activation_plan_drop(struct swn_engine *e, struct swn_thread_state *t)
{
    if (t->places)
        forget(e, t->places);
    e->regions.refused = 0;
}

void swn_activation_plan_refuse(struct swn_engine *e)
{
    char extra[32];
    if (e->config.verbose)
        swn_say("activations: no places in this budget, weights have a better use for the %s that they take more",
                swn_format_mib(extra, e->regions.extra));
    for (struct swn_thread_state *t = e->ops.threads; t; t = t->next)
        if (t->places)
            forget(e, t->places);
    e->regions.refused = e->budget.target;
    e->regions.extra = e->regions.nonweight_without = 0;
    e->regions.warmup_passes = 0;
    e->nonweight.before = 0;
    e->nonweight.peak = swn_nonweight_bytes(e);
}

/* --- a pass --- */

/* The plan that the pass has followed so far and that continues with n bytes, or NULL. */
static struct plan *goes_on(struct swn_activation_plan *s, size_t n)
{
    size_t k = s->now.n;
    if (!s->plan || (k < s->plan->pass.n && s->plan->pass.slots[k].bytes == n))
        return s->plan;
    for (struct plan *p = s->plans; p < s->plans + s->count; p++)
        if (k < p->pass.n && p->pass.slots[k].bytes == n && alike(&p->pass, &s->now, k))
            return p;
    return NULL;
}

/* Memory of the region that no tensor has, and no tensor of the plan needs until the pass has made a given number of
 * allocations. */
static int find_gap(struct swn_engine *e, const struct swn_activation_plan *s, size_t n, uint32_t until, size_t *out)
{
    const struct record *pass = &s->plan->pass;
    uint32_t now = (uint32_t)s->now.n;
    uint64_t size = swn_round_up(n, SWN_GRANULE), at = 0;
    while (until >= now &&
           (at = swn_activation_layout_gap(pass->slots, pass->n, SWN_GRANULE, swn_region_bytes(s->region), now, until,
                                           at, size)) != SWN_NOWHERE) {
        const struct swn_range *r = swn_region_holder(e->arena, s->region, at, size);
        *out = at;
        if (!r)
            return 1;
        at = r->addr + r->span - swn_region_addr(e->arena, s->region);
    }
    return 0;
}

/* A pass without a plan has the region to itself. */
static int find_anywhere(struct swn_engine *e, const struct swn_activation_plan *s, size_t n,
                         struct swn_activation_slot *out)
{
    const struct swn_range *r;
    *out = (struct swn_activation_slot){.region = s->region};
    while (out->at + swn_round_up(n, SWN_GRANULE) <= swn_region_bytes(s->region)) {
        if (!(r = swn_region_holder(e->arena, s->region, out->at, n)))
            return 1;
        out->at = r->addr + r->span - swn_region_addr(e->arena, s->region);
    }
    return 0;
}

int swn_activation_plan_find(struct swn_engine *e, struct swn_thread_state *t, size_t n,
                             struct swn_activation_slot *out)
{
    struct swn_activation_plan *s = t ? t->places : NULL;
    if (!s || !s->region)
        return 0;
    if (!s->plan || !(s->plan = goes_on(s, n)))
        return find_anywhere(e, s, n, out);
    const struct swn_activation_tensor *slot = &s->plan->pass.slots[s->now.n];
    if (slot->at == SWN_NOWHERE)
        return 0;
    const struct swn_range *holder = swn_region_holder(e->arena, s->region, slot->at, n);
    s->plan->missed += holder != NULL;
    *out = (struct swn_activation_slot){.region = s->region, .at = slot->at};
    return !holder || find_gap(e, s, n, slot->dies, &out->at);
}

void swn_activation_plan_on_alloc(struct swn_thread_state *t, struct swn_range *r)
{
    struct swn_activation_plan *s = t ? t->places : NULL;
    if (!s)
        return;
    if (s->now.n == MOST_SLOTS || !reserve(&s->now, s->now.n + 1)) {
        s->now.lost = 1;
        s->plan = NULL;
        return;
    }
    swn_tensor_of(r)->places = s;
    swn_tensor_of(r)->alloc_index = (uint32_t)s->now.n;
    swn_tensor_of(r)->alloc_pass = s->pass;
    s->now.slots[s->now.n++] = (struct swn_activation_tensor){.bytes = r->len};
}

void swn_activation_plan_on_free(struct swn_range *r)
{
    struct swn_activation_plan *s = swn_tensor_of(r)->places;
    if (!s)
        return;
    if (swn_tensor_of(r)->alloc_pass == s->pass)
        s->now.slots[swn_tensor_of(r)->alloc_index].dies = (uint32_t)s->now.n;
    else if (swn_tensor_of(r)->alloc_pass + 1 == s->pass)
        s->last.slots[swn_tensor_of(r)->alloc_index].dies = (uint32_t)(s->last.n + s->now.n);
}
