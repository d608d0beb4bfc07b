/* scheduler/daemon/lease_book.c - see scheduler/daemon/lease_book.h. */
#include "scheduler/daemon/lease_book.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* Growth by less than this is not worth a message, unless nothing more is missing. */
#define STEP ((uint64_t)1 << 20)

uint64_t swn_book_sum(const struct swn_book *b)
{
    uint64_t sum = 0;
    for (const struct swn_client_lease *p = b->first; p; p = p->next)
        sum += p->ceiling;
    return sum;
}

static uint64_t lesser(uint64_t a, uint64_t b)
{
    return a < b ? a : b;
}

uint64_t swn_client_lease_resident(const struct swn_client_lease *p)
{
    uint64_t given = lesser(p->resident, p->ceiling);
    return p->in_memory ? lesser(p->in_memory, given) : given;
}

uint64_t swn_book_resident(const struct swn_book *b)
{
    uint64_t sum = 0;
    for (const struct swn_client_lease *p = b->first; p; p = p->next)
        sum += swn_client_lease_resident(p);
    return sum;
}

static uint64_t room(const struct swn_book *b)
{
    uint64_t sum = swn_book_sum(b);
    return sum < b->total ? b->total - sum : 0;
}

struct swn_client_lease *swn_book_find(const struct swn_book *b, pid_t pid, uint64_t start)
{
    struct swn_client_lease *p = b->first;
    while (p && (p->pid != pid || p->start != start))
        p = p->next;
    return p;
}

double swn_client_lease_urgency(const struct swn_client_lease *p)
{
    return p->set.urgency > 0 ? p->set.urgency : p->own_urgency > 0 ? p->own_urgency : 1;
}

struct swn_client_lease *swn_book_join(struct swn_book *b, pid_t pid, uint64_t start, uint64_t lease)
{
    struct swn_client_lease *p = calloc(1, sizeof *p), **end = &b->first;
    if (!p)
        return NULL;
    p->pid = pid;
    p->start = start;
    p->lease = p->ceiling = lease;
    while (*end) /* in order of arrival, which is the order of service */
        end = &(*end)->next;
    *end = p;
    b->count++;
    b->dirty = 1;
    return p;
}

void swn_client_lease_hear(struct swn_client_lease *p, const struct swn_wire *m)
{
    if (m->has & SWN_HAS_NAME)
        memcpy(p->name, m->name, sizeof p->name);
    if (m->has & SWN_HAS_MINIMUM)
        p->minimum = m->minimum;
    if (m->has & SWN_HAS_DEMAND)
        p->demand = m->demand;
    if (m->has & SWN_HAS_WEIGHTS)
        p->weights = m->weights;
    if (m->has & SWN_HAS_RESIDENT)
        p->resident = m->resident;
    if (m->has & SWN_HAS_CAP)
        p->own_cap = m->cap;
    if (m->has & SWN_HAS_LATENCY)
        p->latency = m->latency;
    if (m->has & SWN_HAS_URGENCY)
        p->own_urgency = m->urgency;
    if (m->has & SWN_HAS_CURVE) {
        memcpy(p->curve, m->curve, sizeof p->curve);
        p->points = m->points;
    }
}

void swn_book_claim(struct swn_book *b, struct swn_client_lease *p, uint64_t lease, uint64_t in_memory)
{
    uint64_t most = p->ceiling > in_memory ? p->ceiling : in_memory;
    p->untold = lease > most;
    p->lease = p->ceiling = lesser(lease, most);
    b->dirty = 1;
}

void swn_book_leave(struct swn_book *b, struct swn_client_lease *p)
{
    struct swn_client_lease **link = &b->first;
    while (*link != p)
        link = &(*link)->next;
    *link = p->next;
    b->count--;
    b->dirty = 1;
    free(p);
}

int swn_book_ack(struct swn_book *b, struct swn_client_lease *p, uint64_t seq)
{
    if (seq != p->seq || !p->seq)
        return 0;
    p->refused = 0;
    if (p->ceiling == p->lease)
        return 0;
    p->ceiling = p->lease;
    b->dirty = 1;
    return 1;
}

int swn_book_refuse(struct swn_book *b, struct swn_client_lease *p, uint64_t seq, uint64_t minimum, uint64_t lease)
{
    if (seq != p->seq || !p->seq)
        return 0;
    /* The process may report a smaller holding than the book assumed, but never more than it was given. */
    if (lease < p->ceiling && lease >= p->lease)
        p->ceiling = lease;
    p->lease = p->ceiling;
    p->minimum = minimum;
    p->refused = 1;
    b->dirty = 1;
    return 1;
}

/* ---- the division ---- */

static uint64_t within_cap(const struct swn_client_lease *p, uint64_t bytes)
{
    return p->own_cap ? lesser(p->own_cap, bytes) : bytes;
}

/* pinned: a budget that a user set is a minimum as well. The process's own cap may be smaller by now: the memory above
 * it is free for others. */
static struct swn_divide_dnn as_dnn(const struct swn_client_lease *p, int pinned)
{
    uint64_t set = within_cap(p, p->set.budget);
    struct swn_divide_dnn d = {
        .min_bytes = p->minimum,
        .demand_bytes = within_cap(p, p->demand),
        .weight_bytes = p->weights,
        .latency_s = p->latency,
        .urgency = swn_client_lease_urgency(p),
        .curve = p->curve,
        .points = p->points,
    };
    if (set) {
        d.demand_bytes = set;
        if (pinned && set > d.min_bytes)
            d.min_bytes = set;
    }
    return d;
}

/* The processes of one division: holders of a lease in order of arrival, then those that get one now; all others wait.
 */
struct round {
    struct swn_client_lease **party;
    struct swn_divide_dnn *dnn; /* min_bytes: the part of its minimum that counts */
    uint64_t *bytes;
    size_t n, starved; /* starved: holders whose minimum cannot be had */
    uint64_t total;    /* total, less the ceilings of processes without a connection */
};

static int is_holder(const struct swn_client_lease *p)
{
    return p->attached && p->lease;
}

/* The bytes kept for the processes in the list: the minimums of holders, as far as they count, and the ceilings of
 * processes that are away. */
static uint64_t kept_for_all(const struct swn_book *b, const struct round *r)
{
    uint64_t sum = 0;
    for (size_t i = 0; i < r->n; i++)
        sum += r->dnn[i].min_bytes;
    for (const struct swn_client_lease *p = b->first; p; p = p->next)
        sum += p->attached ? 0 : p->ceiling;
    return sum;
}

/* Admits waiting processes in order of arrival to the memory that the holders leave. When a process would fit if later
 * arrivals were gone, no further process passes it by. */
static void admit_new(const struct swn_book *b, struct round *r, int pinned, uint64_t left)
{
    uint64_t later = kept_for_all(b, r); /* kept for processes that came after p */
    size_t at = 0;
    for (struct swn_client_lease *p = b->first; p; p = p->next) {
        if (!p->attached || is_holder(p)) {
            later -= p->attached ? r->dnn[at++].min_bytes : p->ceiling;
            continue;
        }
        struct swn_divide_dnn d = as_dnn(p, pinned);
        if (d.min_bytes <= left) {
            left -= d.min_bytes;
            r->party[r->n] = p;
            r->dnn[r->n++] = d;
        } else if (d.min_bytes - left <= later) {
            return;
        }
    }
}

/* A holder's minimum counts in full up to the memory that it has, and beyond that, in order of arrival, as far as the
 * other holders' minimums leave room. So a process that needs more than there is, or says so, takes no other's minimum.
 */
static void admit(const struct swn_book *b, struct round *r, int pinned)
{
    uint64_t left = r->total;
    r->n = r->starved = 0;
    for (struct swn_client_lease *p = b->first; p; p = p->next)
        if (is_holder(p)) {
            struct swn_divide_dnn d = as_dnn(p, pinned);
            left -= lesser(lesser(d.min_bytes, p->ceiling), left);
            r->party[r->n] = p;
            r->dnn[r->n++] = d;
        }
    for (size_t i = 0; i < r->n; i++) {
        uint64_t *need = &r->dnn[i].min_bytes, has = lesser(*need, r->party[i]->ceiling), more = *need - has;
        r->starved += more > left;
        *need = has + lesser(more, left);
        left -= lesser(more, left);
    }
    if (!b->draining)
        admit_new(b, r, pinned, left);
}

static int plan_round(const struct swn_book *b, struct round *r)
{
    r->party = calloc(b->count + 1, sizeof *r->party);
    r->dnn = calloc(b->count + 1, sizeof *r->dnn);
    r->bytes = calloc(b->count + 1, sizeof *r->bytes);
    if (!r->party || !r->dnn || !r->bytes)
        return -ENOMEM;
    r->total = b->total;
    for (const struct swn_client_lease *p = b->first; p; p = p->next)
        if (!p->attached)
            r->total -= lesser(p->ceiling, r->total);
    admit(b, r, 1);
    size_t starved = r->starved;
    int over = swn_divide_least(r->dnn, r->n) > r->total;
    if (starved || over) { /* with the users' wishes as minimums, a holder would starve */
        admit(b, r, 0);
        if (!over && r->starved == starved)
            admit(b, r, 1); /* the holder starves with or without the wishes */
    }
    int err = swn_divide(b->policy, r->dnn, r->n, r->total, r->bytes);
    return err == -ENOSPC ? 0 : err; /* then each process gets its minimum, and none can do with less */
}

static void offer(struct swn_book *b, struct swn_client_lease *p, uint64_t bytes, int64_t now_ms)
{
    p->lease = bytes;
    if (bytes > p->ceiling)
        p->ceiling = bytes;
    p->seq++;
    p->refused = p->untold = 0;
    p->offered_ms = now_ms;
    b->dirty = 1;
    b->offer(b->user, p);
}

static void grow(struct swn_book *b, struct swn_client_lease *p, uint64_t target, int64_t now_ms)
{
    uint64_t most = p->ceiling + room(b), bytes = target < most ? target : most;
    if (bytes <= p->lease || (!p->lease && bytes < p->minimum) || (bytes < target && bytes - p->lease < STEP))
        return;
    offer(b, p, bytes, now_ms);
}

/* Offers leases to waiting processes, in order of arrival. Other processes may not have confirmed yet that they gave
 * back the memory of such a process. Where these are later arrivals, no process behind it takes the free memory. */
static void serve_waiting(struct swn_book *b, const struct round *r, int64_t now_ms)
{
    for (size_t i = 0; i < r->n; i++) {
        struct swn_client_lease *p = r->party[i];
        if (p->lease || !r->bytes[i])
            continue;
        grow(b, p, r->bytes[i], now_ms);
        uint64_t free_bytes = room(b), lacks = p->minimum > free_bytes ? p->minimum - free_bytes : 0, later = 0;
        for (const struct swn_client_lease *q = p->next; q; q = q->next)
            later += q->ceiling;
        if (!p->lease && lacks <= later)
            return;
    }
}

static int larger_first(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x < y) - (x > y);
}

/* Min-max's order: the largest delays decide, then the next largest. A delay that no budget makes smaller must not hide
 * that other processes would be faster. */
static int as_small(double *has, double *gets, size_t n)
{
    qsort(has, n, sizeof *has, larger_first);
    qsort(gets, n, sizeof *gets, larger_first);
    for (size_t i = 0; i < n && gets[i] <= has[i] + SWN_DIVIDE_NOISE; i++)
        if (has[i] > gets[i] + SWN_DIVIDE_NOISE)
            return 0;
    return 1;
}

/* Whether the round's leases would make no process much faster, and the disk not much less busy. Nearly equal curves
 * may give very different shares, and each change costs spills and reads. */
static int as_good(const struct round *r)
{
    double *has = calloc(2 * r->n + 1, sizeof *has), *gets, reads = 0, would_read = 0;
    if (!has)
        return 1;
    gets = has + r->n;
    for (size_t i = 0; i < r->n; i++) {
        has[i] = swn_divide_delay(&r->dnn[i], r->party[i]->lease);
        gets[i] = swn_divide_delay(&r->dnn[i], r->bytes[i]);
        reads += swn_divide_reads(&r->dnn[i], r->party[i]->lease);
        would_read += swn_divide_reads(&r->dnn[i], r->bytes[i]);
    }
    int same = as_small(has, gets, r->n) && reads <= would_read * 1.25;
    free(has);
    return same;
}

/* Whether all leases are close to what the round gives, and no process could get more without another giving any. */
static int about_right(const struct swn_book *b, const struct round *r)
{
    uint64_t free_bytes = room(b);
    int stay = b->policy == SWN_DIVIDE_MINMAX && as_good(r);
    for (size_t i = 0; i < r->n; i++) {
        const struct swn_client_lease *p = r->party[i];
        uint64_t bytes = r->bytes[i], off = bytes > p->lease ? bytes - p->lease : p->lease - bytes;
        int grows = bytes > p->lease && (off <= free_bytes || free_bytes >= STEP);
        if (!p->lease || p->lease < r->dnn[i].min_bytes || (off > p->lease / 8 && !stay) || grows)
            return 0;
    }
    return 1;
}

static void balance(struct swn_book *b, int64_t now_ms, int drift)
{
    struct round r = {0};
    /* Out of memory: each process keeps its lease, and the next change tries again. */
    if (plan_round(b, &r) || (drift && swn_book_sum(b) <= b->total && about_right(b, &r)))
        r.n = 0;
    for (size_t i = 0; i < r.n; i++)
        if (r.bytes[i] < r.party[i]->lease)
            offer(b, r.party[i], r.bytes[i], now_ms);
    serve_waiting(b, &r, now_ms);
    for (size_t i = 0; i < r.n; i++)
        if (r.party[i]->lease && r.bytes[i] > r.party[i]->lease)
            grow(b, r.party[i], r.bytes[i], now_ms);
    for (struct swn_client_lease *p = b->first; p; p = p->next)
        if (p->untold && p->attached)
            offer(b, p, p->lease, now_ms);
    free(r.party);
    free(r.dnn);
    free(r.bytes);
}

void swn_book_balance(struct swn_book *b, int64_t now_ms)
{
    balance(b, now_ms, 0);
}

void swn_book_review(struct swn_book *b, int64_t now_ms)
{
    balance(b, now_ms, 1);
}

/* The bytes that no other process can be promised: a holder's minimum as far as it has it, and the budget that a user
 * set for it. */
static uint64_t sure_of(const struct swn_client_lease *p)
{
    uint64_t needs = lesser(p->minimum, p->ceiling), set = within_cap(p, p->set.budget);
    return !p->lease ? 0 : set > needs ? set : needs;
}

uint64_t swn_client_lease_least(const struct swn_client_lease *p)
{
    return p->attached ? lesser(p->minimum, p->ceiling) : p->ceiling;
}

uint64_t swn_book_least(const struct swn_book *b)
{
    uint64_t sum = 0;
    for (const struct swn_client_lease *p = b->first; p; p = p->next)
        sum += swn_client_lease_least(p);
    return sum;
}

int swn_book_set(struct swn_book *b, struct swn_client_lease *p, unsigned has, uint64_t budget, double urgency,
                 uint64_t *limit, int64_t now_ms)
{
    if (has & SWN_HAS_BUDGET && budget) {
        uint64_t others = 0;
        for (const struct swn_client_lease *q = b->first; q; q = q->next)
            if (q != p)
                others += q->attached ? sure_of(q) : q->ceiling;
        *limit = p->minimum;
        if (budget < p->minimum)
            return -ERANGE;
        *limit = p->own_cap > p->minimum ? p->own_cap : p->minimum;
        if (p->own_cap && budget > *limit)
            return -EDQUOT;
        *limit = others < b->total ? b->total - others : 0;
        if (budget > *limit)
            return -ENOSPC;
    }
    if (has & SWN_HAS_BUDGET)
        p->set.budget = budget;
    if (has & SWN_HAS_URGENCY)
        p->set.urgency = urgency;
    b->dirty = 1;
    swn_book_balance(b, now_ms);
    return 0;
}

const char *swn_client_lease_state(const struct swn_client_lease *p, int64_t now_ms)
{
    if (!p->attached)
        return "away";
    if (p->ceiling > p->lease)
        return now_ms - p->offered_ms > SWN_LEASE_OVERDUE_MS ? "holding" : "shrinking";
    if (!p->lease)
        return "waiting";
    return p->refused ? "holding" : "running";
}
