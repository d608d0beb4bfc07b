/* blocks/memory/arena.c - see arena.h. */
#include "blocks/memory/arena.h"

#include <errno.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "base/huge_pages.h"
#include "blocks/memory/reserve.h"

#define HUGE_GRANULES (SWN_HUGE / SWN_GRANULE)
/* Tensors of at least this many granules begin at a huge page. */
#define ALIGNED_LEAST ((size_t)(16 << 20) / SWN_GRANULE)
/* The open part grows by an eighth of itself, and by at most OPEN_MOST. */
#define OPEN_PART 8
#define OPEN_MOST ((size_t)(64 << 20) / SWN_GRANULE)
/* Address space that is set apart for short-term tensors at a time. */
#define SHORT_AT_ONCE ((size_t)(8 << 20) / SWN_GRANULE)

/* Free address space, in granules, in two sorted lists: warm holes (pages in place) and cold holes. The lists are short
 * (activations come and go at the same few places), so a linear best-fit scan beats a tree here. */
struct hole {
    size_t at, count;
    struct hole *next;
};

/* A part of the address space with its own lists. Positions are the arena's. */
struct swn_activation_region {
    size_t at, count, taken; /* granules; taken: by ranges */
    struct hole *warm, *cold;
    struct swn_activation_region *next;
};

struct swn_arena {
    uintptr_t base;
    size_t granules;
    size_t open; /* granules, from the first on, that are open; the others are only reserved */
    int sealed;  /* hands out nothing any more */
    struct hole *warm[2], *cold[2], *spare_holes; /* by enum swn_term */
    unsigned char *term;                          /* for each huge page of addresses, its term */
    struct hole *mapped;                          /* of freed ranges whose mapping must go before they are used again */
    struct swn_activation_region *regions;
    size_t warm_granules;
    struct swn_range *first, *last, *spare_ranges;
    size_t tensor_bytes; /* of each range, for the caller */
    uint32_t next_id;
    _Atomic(struct swn_range *) *owner; /* per granule; granules that are not open can only be read */
    size_t owner_bytes;
    _Atomic(struct swn_mapped_file *) mapped_files; /* entries are never unlinked, only reused */
};

static struct hole *hole_new(struct swn_arena *a, size_t at, size_t count, struct hole *next)
{
    struct hole *h = a->spare_holes;
    if (h)
        a->spare_holes = h->next;
    else if (!(h = malloc(sizeof *h)))
        return NULL;
    *h = (struct hole){.at = at, .count = count, .next = next};
    return h;
}

static void hole_drop(struct swn_arena *a, struct hole **link)
{
    struct hole *h = *link;
    *link = h->next;
    h->next = a->spare_holes;
    a->spare_holes = h;
}

/* Adds [at, at+count) and joins it with its neighbours. Without memory for a descriptor the space is lost. */
static void hole_add(struct swn_arena *a, struct hole **list, size_t at, size_t count)
{
    struct hole **link = list;
    while (*link && (*link)->at + (*link)->count < at)
        link = &(*link)->next;
    struct hole *h = *link;
    if (h && h->at + h->count == at) {
        h->count += count;
        if (h->next && h->at + h->count == h->next->at) {
            h->count += h->next->count;
            hole_drop(a, &h->next);
        }
    } else if (h && at + count == h->at) {
        h->at = at;
        h->count += count;
    } else {
        struct hole *fresh = hole_new(a, at, count, h);
        if (fresh)
            *link = fresh;
    }
}

static struct hole **best_fit(struct hole **list, size_t count)
{
    struct hole **best = NULL;
    for (struct hole **link = list; *link; link = &(*link)->next)
        if ((*link)->count >= count && (!best || (*link)->count < (*best)->count))
            best = link;
    return best;
}

static struct hole **last_fit(struct hole **list, size_t count)
{
    struct hole **last = NULL;
    for (struct hole **link = list; *link; link = &(*link)->next)
        if ((*link)->count >= count)
            last = link;
    return last;
}

static struct hole **first_fit(struct hole **list, size_t count)
{
    for (struct hole **link = list; *link; link = &(*link)->next)
        if ((*link)->count >= count)
            return link;
    return NULL;
}

/* Takes `count` granules from the beginning or the end of a hole. */
static size_t hole_take(struct swn_arena *a, struct hole **link, size_t count, int end)
{
    struct hole *h = *link;
    size_t at = end ? h->at + h->count - count : h->at;
    h->at += end ? 0 : count;
    h->count -= count;
    if (!h->count)
        hole_drop(a, link);
    return at;
}

int swn_arena_create(struct swn_arena **out, size_t bytes, size_t tensor_bytes)
{
    struct swn_arena *a = calloc(1, sizeof *a);
    if (!a)
        return -ENOMEM;
    a->tensor_bytes = tensor_bytes;
    void *base = NULL;
    for (size_t least = bytes / 64; bytes >= least && bytes >= SWN_GRANULE; bytes /= 2)
        if ((base = swn_reserve(bytes)))
            break;
    if (!base) {
        free(a);
        return -ENOMEM;
    }
    a->base = (uintptr_t)base;
    swn_huge_refuse(a->base, bytes);
    a->granules = bytes / SWN_GRANULE;
    a->term = calloc(a->granules / HUGE_GRANULES + 1, 1);
    a->owner_bytes = swn_round_up(a->granules * sizeof *a->owner, SWN_PAGE);
    void *owner = swn_reserve_zeros(a->owner_bytes);
    if (!owner || !a->term || !(a->cold[SWN_LONG_TERM] = hole_new(a, 0, a->granules, NULL))) {
        swn_reserve_release(base, bytes);
        if (owner)
            swn_reserve_release(owner, a->owner_bytes);
        free(a->term);
        free(a);
        return -ENOMEM;
    }
    a->owner = owner;
    a->next_id = 1;
    *out = a;
    return 0;
}

void swn_arena_destroy(struct swn_arena *a)
{
    swn_reserve_release((void *)a->base, a->granules * SWN_GRANULE);
    swn_reserve_release((void *)a->owner, a->owner_bytes);
    while (a->regions)
        swn_arena_release_region(a, a->regions);
    struct hole *lists[] = {a->warm[0], a->warm[1], a->cold[0], a->cold[1], a->mapped, a->spare_holes};
    for (size_t i = 0; i < sizeof lists / sizeof *lists; i++)
        for (struct hole *h = lists[i], *n; h; h = n) {
            n = h->next;
            free(h);
        }
    for (struct swn_mapped_file *g = atomic_load(&a->mapped_files), *n; g; g = n) {
        n = g->next;
        munmap((void *)g->owner, g->owner_bytes);
        free(g);
    }
    struct swn_range *ranges[] = {a->first, a->spare_ranges};
    for (size_t i = 0; i < 2; i++)
        for (struct swn_range *r = ranges[i], *n; r; r = n) {
            n = r->next;
            free(r);
        }
    free(a->term);
    free(a);
}

uintptr_t swn_arena_lo(const struct swn_arena *a)
{
    return a->base;
}

uintptr_t swn_arena_hi(const struct swn_arena *a)
{
    return a->base + __atomic_load_n(&a->granules, __ATOMIC_RELAXED) * SWN_GRANULE;
}

static int open_to(struct swn_arena *a, size_t end)
{
    uintptr_t at = a->base + a->open * SWN_GRANULE;
    size_t bytes = (end - a->open) * SWN_GRANULE;
    size_t table = a->open * sizeof *a->owner / SWN_PAGE * SWN_PAGE, table_end = end * sizeof *a->owner;
    int err = swn_reserve_open((char *)a->owner + table, swn_round_up(table_end - table, SWN_PAGE));
    if (!err)
        err = swn_reserve_open((void *)at, bytes);
    if (err)
        return err;
    swn_reserve_dump((void *)at, bytes, 1);
    a->open = end;
    return 0;
}

/* Opens the granules up to `end` before any tensor gets them. The open part is one mapping, which only grows, in few
 * steps; where a mapping is filled at once (mlockall), or a limit leaves no room for more, it grows only by what is
 * needed. 0 or -errno. */
static int open_upto(struct swn_arena *a, size_t end)
{
    if (end <= a->open)
        return 0;
    size_t step = a->open / OPEN_PART, least = swn_round_up(end, HUGE_GRANULES);
    step = step < OPEN_MOST ? step : OPEN_MOST;
    size_t most = swn_round_up(a->open + step, HUGE_GRANULES);
    least = least < a->granules ? least : a->granules;
    most = most < least ? least : most < a->granules ? most : a->granules;
    if (most > least && !swn_reserve_is_locked((void *)(a->base + a->open * SWN_GRANULE)) && !open_to(a, most))
        return 0;
    return open_to(a, least);
}

/* The place of a tensor: `warm` granules of a warm hole, and `cold` granules before or behind it. */
struct site {
    struct hole **warm_from, **cold_from;
    size_t at, warm, cold;
};

/* The smallest sufficient warm hole; else the largest warm hole that suffices together with the cold space next to it;
 * else cold space, first-fit from the lowest address, so that parameters allocated in a row lie in a row. 0 when there
 * is none. */
static int find_site(struct swn_arena *a, size_t count, enum swn_term term, struct site *out)
{
    struct hole **best = best_fit(&a->warm[term], count);
    *out = (struct site){.warm_from = best};
    if (best) {
        out->at = (*best)->at;
        out->warm = count;
        return 1;
    }
    struct hole **warm = &a->warm[term], **cold = &a->cold[term];
    while (*warm && *cold) { /* both lists ascend: neighbours meet */
        size_t warm_end = (*warm)->at + (*warm)->count, cold_end = (*cold)->at + (*cold)->count;
        int before = cold_end == (*warm)->at, behind = warm_end == (*cold)->at;
        if ((before || behind) && (*warm)->count > out->warm && (*warm)->count + (*cold)->count >= count) {
            size_t rest = count - (*warm)->count;
            *out = (struct site){.warm_from = warm,
                                 .cold_from = cold,
                                 .at = before ? (*warm)->at - rest : (*warm)->at,
                                 .warm = (*warm)->count,
                                 .cold = rest};
        }
        if (warm_end < cold_end)
            warm = &(*warm)->next;
        else
            cold = &(*cold)->next;
    }
    if (out->warm)
        return 1;
    *out = (struct site){.cold_from = first_fit(&a->cold[term], count), .cold = count};
    if (out->cold_from)
        out->at = (*out->cold_from)->at;
    return out->cold_from != NULL;
}

/* Reserves the addresses of whole huge pages for the short term, at least `count` granules: *at. 0 when there are none.
 */
static int set_apart(struct swn_arena *a, size_t count, size_t *at)
{
    count = swn_round_up(count, HUGE_GRANULES);
    struct hole **from = &a->cold[SWN_LONG_TERM];
    while (*from && (*at = swn_round_up((*from)->at, HUGE_GRANULES)) + count > (*from)->at + (*from)->count)
        from = &(*from)->next;
    struct hole *h = *from, *before = h && *at > h->at ? hole_new(a, h->at, *at - h->at, h) : NULL;
    if (!h || (*at > h->at && !before))
        return 0;
    if (before)
        *from = before, from = &before->next;
    h->count -= *at + count - h->at;
    h->at = *at + count;
    if (!h->count)
        hole_drop(a, from);
    memset(a->term + *at / HUGE_GRANULES, SWN_SHORT_TERM, count / HUGE_GRANULES);
    return 1;
}

/* As find_site. Short-term tensors get addresses of their own; when these are used up, both terms share all addresses.
 */
static int find_room(struct swn_arena *a, size_t count, enum swn_term term, struct site *out)
{
    size_t at, apart = count > SHORT_AT_ONCE ? count : SHORT_AT_ONCE;
    if (find_site(a, count, term, out))
        return 1;
    if (term == SWN_SHORT_TERM && (set_apart(a, apart, &at) || set_apart(a, apart = count, &at))) {
        hole_add(a, &a->cold[SWN_SHORT_TERM], at, swn_round_up(apart, HUGE_GRANULES));
        return find_site(a, count, term, out);
    }
    return find_site(a, count, term == SWN_LONG_TERM ? SWN_SHORT_TERM : SWN_LONG_TERM, out);
}

/* The tensor's bytes that count as new. */
static size_t fresh_bytes(const struct site *s, size_t len)
{
    return s->warm ? s->cold * SWN_GRANULE : swn_round_up(len, SWN_PAGE);
}

size_t swn_arena_fresh(struct swn_arena *a, size_t len, enum swn_term term)
{
    struct site s;
    if (!len || len > a->granules * SWN_GRANULE)
        return swn_round_up(len, SWN_PAGE);
    int found = find_site(a, swn_round_up(len, SWN_GRANULE) / SWN_GRANULE, term, &s);
    return found ? fresh_bytes(&s, len) : swn_round_up(len, SWN_PAGE);
}

static struct swn_range *range_new(struct swn_arena *a)
{
    struct swn_range *r = a->spare_ranges;
    if (r)
        a->spare_ranges = r->next;
    else if (!(r = malloc(sizeof *r + a->tensor_bytes)))
        return NULL;
    memset(r, 0, sizeof *r + a->tensor_bytes);
    return r;
}

static void set_owner(struct swn_arena *a, const struct swn_range *r, struct swn_range *owner)
{
    const struct swn_mapped_file *g = r->mapped_file;
    size_t unit = g ? SWN_PAGE : SWN_GRANULE, first = (r->addr - (g ? g->lo : a->base)) / unit;
    for (size_t i = 0; i < r->span / unit; i++)
        atomic_store_explicit(&(g ? g->owner : a->owner)[first + i], owner, memory_order_release);
}

static void link_last(struct swn_arena *a, struct swn_range *r)
{
    r->prev = a->last;
    *(a->last ? &a->last->next : &a->first) = r;
    a->last = r;
}

size_t swn_arena_used(const struct swn_arena *a)
{
    const struct hole *last = a->cold[SWN_LONG_TERM];
    while (last && last->next)
        last = last->next;
    return (last && last->at + last->count == a->granules ? last->at : a->granules) * SWN_GRANULE;
}

void swn_arena_shrink(struct swn_arena *a, size_t bytes)
{
    size_t used = swn_arena_used(a) / SWN_GRANULE, to = bytes / SWN_GRANULE, was = a->granules;
    to = to > used ? to : used;
    if (to >= was)
        return;
    struct hole **last = &a->cold[SWN_LONG_TERM];
    while ((*last)->next)
        last = &(*last)->next;
    hole_take(a, last, was - to, 1);
    /* First, as another thread may map memory there once it has been released. */
    __atomic_store_n(&a->granules, to, __ATOMIC_SEQ_CST);
    a->open = a->open < to ? a->open : to;
    swn_reserve_release((void *)(a->base + to * SWN_GRANULE), (was - to) * SWN_GRANULE);
}

static void close_holes(const struct swn_arena *a, const struct hole *h)
{
    for (; h && h->at < a->open; h = h->next) {
        size_t end = h->at + h->count < a->open ? h->at + h->count : a->open;
        swn_reserve_close((void *)(a->base + h->at * SWN_GRANULE), (end - h->at) * SWN_GRANULE);
    }
}

void swn_arena_seal(struct swn_arena *a)
{
    a->sealed = 1;
    close_holes(a, a->cold[SWN_LONG_TERM]);
    close_holes(a, a->cold[SWN_SHORT_TERM]);
    for (const struct swn_activation_region *p = a->regions; p; p = p->next)
        close_holes(a, p->cold);
}

/* Begins a range on granules that have left the lists. `warm`: some of them have pages. */
static void range_begin(struct swn_arena *a, struct swn_range *r, size_t at, size_t len, int warm)
{
    r->addr = a->base + at * SWN_GRANULE;
    r->len = len;
    r->span = swn_round_up(len, SWN_GRANULE);
    /* Warm granules may have pages behind the last requested byte. */
    r->size = warm ? r->span : swn_round_up(len, SWN_PAGE);
    r->id = a->next_id++;
    r->weight = -1;
    atomic_store_explicit(&r->state, SWN_RESIDENT, memory_order_relaxed);
    r->place = at * SWN_GRANULE;
    link_last(a, r);
    set_owner(a, r, r);
}

/* A large tensor in cold space begins at a huge page's boundary, if its hole has room for that: experts of a mixture,
 * of which some are read, would begin and end in the middle of chunks otherwise. Smaller ones can get what lies before.
 */
static void align_site(struct swn_arena *a, struct site *site)
{
    struct hole *h = site->warm ? NULL : *site->cold_from;
    size_t at = swn_round_up(site->at, HUGE_GRANULES);
    if (!h || site->cold < ALIGNED_LEAST || at == site->at || at + site->cold > h->at + h->count)
        return;
    struct hole *before = hole_new(a, h->at, at - h->at, h);
    if (!before)
        return;
    *site->cold_from = before;
    h->count -= at - h->at;
    h->at = at;
    site->cold_from = &before->next;
    site->at = at;
}

struct swn_range *swn_arena_alloc(struct swn_arena *a, size_t len, enum swn_term term, size_t *fresh)
{
    if (!len || len > a->granules * SWN_GRANULE)
        return NULL;
    struct site site;
    size_t count = swn_round_up(len, SWN_GRANULE) / SWN_GRANULE;
    if (a->sealed || !find_room(a, count, term, &site))
        return NULL;
    align_site(a, &site);
    if (open_upto(a, site.at + count))
        return NULL;
    struct swn_range *r = range_new(a);
    if (!r)
        return NULL;
    if (site.warm)
        hole_take(a, site.warm_from, site.warm, 0);
    if (site.cold) /* the cold granules lie before the warm hole: take its end */
        hole_take(a, site.cold_from, site.cold, site.warm && (*site.cold_from)->at < site.at);
    a->warm_granules -= site.warm;
    range_begin(a, r, site.at, len, site.warm != 0);
    *fresh = fresh_bytes(&site, len);
    return r;
}

/* Unlinks r and keeps its descriptor for reuse. */
static void range_drop(struct swn_arena *a, struct swn_range *r)
{
    *(r->prev ? &r->prev->next : &a->first) = r->next;
    *(r->next ? &r->next->prev : &a->last) = r->prev;
    atomic_store(&r->state, SWN_FREE);
    r->id = 0;
    r->next = a->spare_ranges;
    a->spare_ranges = r;
}

static enum swn_term term_of(const struct swn_arena *a, size_t at)
{
    return a->term[at / HUGE_GRANULES] ? SWN_SHORT_TERM : SWN_LONG_TERM;
}

static struct swn_activation_region *plot_of(struct swn_arena *a, size_t at)
{
    struct swn_activation_region *p = a->regions;
    while (p && (at < p->at || at >= p->at + p->count))
        p = p->next;
    return p;
}

void swn_arena_free(struct swn_arena *a, struct swn_range *r, int warm)
{
    set_owner(a, r, NULL);
    range_drop(a, r);
    if (r->mapped_file)
        return;
    size_t at = (r->addr - a->base) / SWN_GRANULE, count = r->span / SWN_GRANULE;
    struct swn_activation_region *p = plot_of(a, at);
    if (p)
        p->taken -= count;
    enum swn_term term = term_of(a, at);
    hole_add(a, p ? warm ? &p->warm : &p->cold : warm ? &a->warm[term] : &a->cold[term], at, count);
    if (warm)
        a->warm_granules += count;
}

void swn_arena_free_mapped(struct swn_arena *a, struct swn_range *r)
{
    set_owner(a, r, NULL);
    range_drop(a, r);
    hole_add(a, &a->mapped, (r->addr - a->base) / SWN_GRANULE, r->span / SWN_GRANULE);
}

int swn_arena_take_mapped(struct swn_arena *a, struct swn_piece *out)
{
    if (!a->mapped)
        return 0;
    size_t count = a->mapped->count, at = hole_take(a, &a->mapped, count, 0);
    *out = (struct swn_piece){.addr = a->base + at * SWN_GRANULE, .bytes = count * SWN_GRANULE};
    return 1;
}

void swn_arena_unmapped(struct swn_arena *a, const struct swn_piece *piece)
{
    size_t at = (piece->addr - a->base) / SWN_GRANULE;
    hole_add(a, &a->cold[term_of(a, at)], at, piece->bytes / SWN_GRANULE);
}

/* Trims one pair of lists. */
static int trim(struct swn_arena *a, struct hole **warm, struct hole **cold, size_t bytes, struct swn_piece *out)
{
    struct hole **last = warm;
    if (!*last)
        return 0;
    while ((*last)->next)
        last = &(*last)->next;
    size_t count = bytes / SWN_GRANULE + (bytes % SWN_GRANULE != 0);
    count = count < (*last)->count ? count : (*last)->count;
    size_t at = hole_take(a, last, count, 1);
    a->warm_granules -= count;
    *out = (struct swn_piece){.addr = a->base + at * SWN_GRANULE, .bytes = count * SWN_GRANULE};
    hole_add(a, cold, at, count);
    return 1;
}

int swn_arena_trim(struct swn_arena *a, size_t bytes, struct swn_piece *out)
{
    return trim(a, &a->warm[SWN_LONG_TERM], &a->cold[SWN_LONG_TERM], bytes, out) ||
           trim(a, &a->warm[SWN_SHORT_TERM], &a->cold[SWN_SHORT_TERM], bytes, out);
}

int swn_arena_trim_regions(struct swn_arena *a, size_t bytes, struct swn_piece *out)
{
    struct swn_activation_region *p = a->regions;
    while (p && !p->warm)
        p = p->next;
    return p && trim(a, &p->warm, &p->cold, bytes, out);
}

void swn_arena_release_region(struct swn_arena *a, struct swn_activation_region *p)
{
    struct swn_activation_region **link = &a->regions;
    while (*link != p)
        link = &(*link)->next;
    *link = p->next;
    while (p->warm) {
        size_t count = p->warm->count;
        hole_add(a, &a->warm[SWN_SHORT_TERM], hole_take(a, &p->warm, count, 0), count);
    }
    while (p->cold) {
        size_t count = p->cold->count;
        hole_add(a, &a->cold[SWN_SHORT_TERM], hole_take(a, &p->cold, count, 0), count);
    }
    free(p);
}

size_t swn_region_bytes(const struct swn_activation_region *p)
{
    return p->count * SWN_GRANULE;
}

uintptr_t swn_region_addr(const struct swn_arena *a, const struct swn_activation_region *p)
{
    return a->base + p->at * SWN_GRANULE;
}

size_t swn_arena_region_bytes(const struct swn_arena *a)
{
    size_t bytes = 0;
    for (const struct swn_activation_region *p = a->regions; p; p = p->next)
        bytes += swn_region_bytes(p);
    return bytes;
}

size_t swn_arena_region_idle(const struct swn_arena *a)
{
    size_t idle = 0;
    for (const struct swn_activation_region *p = a->regions; p; p = p->next)
        idle += p->count - p->taken;
    return idle * SWN_GRANULE;
}

size_t swn_arena_region_cold(const struct swn_arena *a)
{
    size_t cold = 0;
    for (const struct swn_activation_region *p = a->regions; p; p = p->next)
        for (const struct hole *h = p->cold; h; h = h->next)
            cold += h->count;
    return cold * SWN_GRANULE;
}

/* How many granules of [at, at + count) are in the list. */
static size_t overlap(const struct hole *list, size_t at, size_t count)
{
    size_t sum = 0;
    for (const struct hole *h = list; h && h->at < at + count; h = h->next) {
        size_t lo = h->at > at ? h->at : at, end = h->at + h->count, hi = end < at + count ? end : at + count;
        sum += hi > lo ? hi - lo : 0;
    }
    return sum;
}

struct swn_range *swn_region_holder(const struct swn_arena *a, const struct swn_activation_region *p, size_t at,
                                    size_t len)
{
    size_t first = p->at + at / SWN_GRANULE, count = swn_round_up(len, SWN_GRANULE) / SWN_GRANULE;
    for (size_t i = first; i < first + count; i++) {
        struct swn_range *r = atomic_load_explicit(&a->owner[i], memory_order_relaxed);
        if (r)
            return r;
    }
    return NULL;
}

size_t swn_region_fresh(const struct swn_activation_region *p, size_t at, size_t len)
{
    return overlap(p->cold, p->at + at / SWN_GRANULE, swn_round_up(len, SWN_GRANULE) / SWN_GRANULE) * SWN_GRANULE;
}

/* Removes [at, at + count), or the parts of it that are free, from the list. `spare` is used if a hole splits in two.
 */
static void cut_out(struct swn_arena *a, struct hole **link, size_t at, size_t count, struct hole **spare)
{
    while (*link && (*link)->at < at + count) {
        struct hole *h = *link;
        size_t end = h->at + h->count;
        if (end <= at) {
            link = &h->next;
        } else if (h->at >= at && end <= at + count) {
            hole_drop(a, link);
        } else if (h->at < at && end > at + count) {
            **spare = (struct hole){.at = at + count, .count = end - at - count, .next = h->next};
            h->count = at - h->at;
            h->next = *spare;
            *spare = NULL;
        } else if (h->at < at) {
            h->count = at - h->at;
        } else {
            h->count = end - at - count;
            h->at = at + count;
        }
    }
}

struct swn_activation_region *swn_arena_reserve_region(struct swn_arena *a, size_t bytes)
{
    size_t count = swn_round_up(bytes, SWN_GRANULE) / SWN_GRANULE, at;
    struct hole *own = count ? hole_new(a, 0, count, NULL) : NULL;
    struct swn_activation_region *p = own ? calloc(1, sizeof *p) : NULL;
    if (p && set_apart(a, count, &at)) {
        own->at = at;
        *p = (struct swn_activation_region){.at = at, .count = count, .cold = own, .next = a->regions};
        a->regions = p;
        if (count % HUGE_GRANULES)
            hole_add(a, &a->cold[SWN_SHORT_TERM], at + count, HUGE_GRANULES - count % HUGE_GRANULES);
        return p;
    }
    if (own)
        hole_drop(a, &own);
    free(p);
    return NULL;
}

struct swn_range *swn_region_alloc(struct swn_arena *a, struct swn_activation_region *p, size_t at, size_t len,
                                   size_t *fresh)
{
    size_t first = p->at + at / SWN_GRANULE, count = swn_round_up(len, SWN_GRANULE) / SWN_GRANULE;
    size_t warm = overlap(p->warm, first, count), cold = overlap(p->cold, first, count);
    int free = count && warm + cold == count && !a->sealed && !open_upto(a, first + count);
    struct hole *spare = free ? hole_new(a, 0, 0, NULL) : NULL;
    struct swn_range *r = spare ? range_new(a) : NULL;
    if (r) {
        cut_out(a, &p->warm, first, count, &spare);
        cut_out(a, &p->cold, first, count, &spare);
        a->warm_granules -= warm;
        p->taken += count;
        range_begin(a, r, first, len, 1);
        r->planned_place = 1;
        *fresh = cold * SWN_GRANULE;
    }
    if (spare)
        hole_drop(a, &spare);
    return r;
}

size_t swn_arena_warm_bytes(const struct swn_arena *a)
{
    return a->warm_granules * SWN_GRANULE;
}

struct swn_range *swn_arena_find(const struct swn_arena *a, uintptr_t addr)
{
    if (addr < a->base || addr >= swn_arena_hi(a)) {
        struct swn_mapped_file *g = swn_arena_mapped_file(a, addr);
        return g ? atomic_load_explicit(&g->owner[(addr - g->lo) / SWN_PAGE], memory_order_acquire) : NULL;
    }
    return atomic_load_explicit(&a->owner[(addr - a->base) / SWN_GRANULE], memory_order_acquire);
}

/* The first that owns a unit of [lo, hi) which has a byte in [from, to). */
static struct swn_range *first_owner(const _Atomic(struct swn_range *) *owner, uintptr_t lo, uintptr_t hi, size_t unit,
                                     uintptr_t from, uintptr_t to)
{
    from = from < lo ? lo : from;
    to = to > hi ? hi : to;
    for (size_t i = (from - lo) / unit; from < to && i <= (to - 1 - lo) / unit; i++) {
        struct swn_range *r = atomic_load_explicit(&owner[i], memory_order_relaxed);
        if (r)
            return r;
    }
    return NULL;
}

struct swn_range *swn_arena_in(const struct swn_arena *a, uintptr_t from, uintptr_t to)
{
    struct swn_range *first = NULL;

    if (from >= a->base && from < swn_arena_hi(a))
        return first_owner(a->owner, a->base, swn_arena_hi(a), SWN_GRANULE, from, to);
    for (struct swn_mapped_file *g = atomic_load(&a->mapped_files); g; g = g->next) {
        uintptr_t hi = __atomic_load_n(&g->hi, __ATOMIC_ACQUIRE);
        struct swn_range *r = from < hi && to > g->lo ? first_owner(g->owner, g->lo, hi, SWN_PAGE, from, to) : NULL;
        if (r && (!first || r->addr < first->addr))
            first = r;
    }
    return first;
}

struct swn_range *swn_arena_first(const struct swn_arena *a)
{
    return a->first;
}

struct swn_mapped_file *swn_arena_mapped_file_in(const struct swn_arena *a, uintptr_t lo, uintptr_t hi)
{
    for (struct swn_mapped_file *g = atomic_load(&a->mapped_files); g; g = g->next)
        if (lo < __atomic_load_n(&g->hi, __ATOMIC_ACQUIRE) && hi > g->lo)
            return g;
    return NULL;
}

struct swn_mapped_file *swn_arena_mapped_file(const struct swn_arena *a, uintptr_t addr)
{
    return swn_arena_mapped_file_in(a, addr, addr + 1);
}

struct swn_mapped_file *swn_arena_register_mapping(struct swn_arena *a, uintptr_t lo, uintptr_t hi)
{
    size_t bytes = swn_round_up((hi - lo) / SWN_PAGE * sizeof *a->owner, SWN_PAGE);
    /* These addresses only give the range a name. They lie at the end, so that nothing is opened for them, and share no
     * chunk with other ranges. */
    size_t count = swn_round_up(hi - lo, SWN_GRANULE) / SWN_GRANULE + 3 * HUGE_GRANULES;
    struct hole **place = last_fit(&a->cold[SWN_LONG_TERM], count);
    if (!place)
        return NULL;
    struct swn_mapped_file *g = atomic_load(&a->mapped_files);
    while (g && (g->hi || g->owner_bytes < bytes))
        g = g->next;
    if (!g) {
        void *owner = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        if (owner == MAP_FAILED)
            return NULL;
        if (!(g = calloc(1, sizeof *g))) {
            munmap(owner, bytes);
            return NULL;
        }
        g->owner = owner;
        g->owner_bytes = bytes;
        g->next = atomic_load(&a->mapped_files);
        atomic_store(&a->mapped_files, g);
    }
    g->at = hole_take(a, place, count, 1);
    g->granules = count;
    g->place = swn_round_up(g->at * SWN_GRANULE, SWN_HUGE) + lo % SWN_HUGE;
    g->lo = lo;
    __atomic_store_n(&g->hi, hi, __ATOMIC_RELEASE);
    return g;
}

void swn_arena_unregister_mapping(struct swn_arena *a, struct swn_mapped_file *g)
{
    hole_add(a, &a->cold[SWN_LONG_TERM], g->at, g->granules);
    __atomic_store_n(&g->hi, 0, __ATOMIC_RELEASE);
    madvise((void *)g->owner, g->owner_bytes, MADV_DONTNEED);
}

struct swn_range *swn_arena_carve(struct swn_arena *a, struct swn_mapped_file *g, uintptr_t lo, uintptr_t hi)
{
    for (uintptr_t page = lo; page < hi; page += SWN_PAGE)
        if (atomic_load_explicit(&g->owner[(page - g->lo) / SWN_PAGE], memory_order_relaxed))
            return NULL;
    struct swn_range *r = range_new(a);
    if (!r)
        return NULL;
    r->addr = lo;
    r->len = r->size = r->span = hi - lo;
    r->place = g->place + (lo - g->lo);
    r->mapped_file = g;
    r->id = a->next_id++;
    r->weight = -1;
    r->file = g->file;
    r->extent = g->file_off + (lo - g->lo);
    r->foreign_map = 1;
    atomic_store_explicit(&r->state, SWN_FILE_BACKED, memory_order_relaxed);
    link_last(a, r);
    set_owner(a, r, r);
    return r;
}
