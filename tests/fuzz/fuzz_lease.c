/* fuzz_lease - processes that say to swapnetd whatever the messages allow, in any order, and die: the book of leases
 * never promises more than there is, and never counts less than an honest process may be using. */
#include <stdlib.h>
#include <string.h>

#include "scheduler/daemon/lease_book.h"

#define CLIENTS 6
#define MIB ((uint64_t)1 << 20)

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static struct client {
    struct swn_client_lease *party;
    uint64_t uses; /* at most, if it is honest */
} clients[CLIENTS];
static struct swn_book book;
static const uint8_t *at, *end;

static void promise(int kept)
{
    if (!kept)
        abort();
}

static unsigned byte(void)
{
    return at < end ? *at++ : 0;
}

/* Small and large numbers alike, up to what a message may name. */
static uint64_t bytes(void)
{
    unsigned b = byte();
    return b == 255 ? SWN_WIRE_BYTES_MOST : (uint64_t)(b & 15) << (b >> 4) * 3;
}

static void offer(void *user, struct swn_client_lease *p)
{
    (void)user;
    struct client *c = p->user;
    promise(p->attached && c->party == p);
    c->uses = p->lease > c->uses ? p->lease : c->uses; /* a larger one at once, a smaller one when it says so */
}

/* Any of the fields, as of a hello or an update. */
static struct swn_wire facts(void)
{
    static struct swn_wire m;
    unsigned points = byte() % 4;
    memset(&m, 0, sizeof m);
    m.has = (byte() << 8 | byte()) & (SWN_HAS_MINIMUM | SWN_HAS_DEMAND | SWN_HAS_WEIGHTS | SWN_HAS_RESIDENT |
                                      SWN_HAS_CAP | SWN_HAS_LATENCY | SWN_HAS_URGENCY | SWN_HAS_LEASE);
    m.has |= points ? (unsigned)SWN_HAS_CURVE : 0;
    m.minimum = bytes();
    m.demand = bytes();
    m.weights = bytes();
    m.resident = bytes();
    m.cap = bytes();
    m.lease = bytes();
    m.latency = byte() / 16.0;
    m.urgency = SWN_WIRE_URGENCY_LEAST * (1 << byte() % 20);
    for (uint64_t sum = 1; m.points < points; m.points++) {
        sum += bytes() / 4;
        m.curve[m.points] = (struct swn_divide_point){sum + m.points, byte() / 16.0};
    }
    return m;
}

static void hello(struct client *c)
{
    static pid_t next_pid = 1;
    struct swn_wire m = facts();
    uint64_t in_memory = byte() * MIB;
    if (!c->party) {
        c->party = swn_book_join(&book, next_pid++, 1, 0);
        if (!c->party)
            abort();
        c->party->user = c;
    }
    swn_book_claim(&book, c->party, m.has & SWN_HAS_LEASE ? m.lease : 0, in_memory);
    c->uses = c->party->ceiling; /* what it claims beyond that it does not hold */
    c->party->attached = 1;
    swn_client_lease_hear(c->party, &m);
}

static void answer(struct client *c, int refuses)
{
    struct swn_client_lease *p = c->party;
    uint64_t seq = p->seq + byte() % 3 - 1, minimum = bytes(), lease = bytes();
    int heard = seq == p->seq && seq;
    if (!refuses) {
        swn_book_ack(&book, p, seq);
        if (heard)
            c->uses = p->lease;
        return;
    }
    uint64_t told = p->lease;
    swn_book_refuse(&book, p, seq, minimum, lease);
    if (heard && lease >= told && lease < c->uses)
        c->uses = lease;
}

static void die(struct client *c)
{
    swn_book_leave(&book, c->party);
    *c = (struct client){0};
}

/* 1: of the kind that brings a lease along that nobody knew of. */
static int step(void)
{
    unsigned what = byte() % 12;
    struct client *c = &clients[byte() % CLIENTS];
    uint64_t limit, budget;
    if (what == 0 || what == 1) {
        hello(c);
    } else if (what == 2) {
        book.total = 8 * MIB + bytes() / 2;
    } else if (what == 3) {
        book.draining = byte() % 8 == 0;
    } else if (!c->party) {
        return 0;
    } else if (what == 4) {
        c->party->attached = 0;
    } else if (what == 5) {
        die(c);
    } else if (!c->party->attached) {
        return 0;
    } else if (what == 6) {
        struct swn_wire m = facts();
        swn_client_lease_hear(c->party, &m);
    } else if (what == 7) {
        answer(c, 1);
    } else if (what == 8) {
        budget = bytes();
        unsigned has = (byte() % 2 ? SWN_HAS_BUDGET : 0) | (byte() % 2 ? SWN_HAS_URGENCY : 0);
        swn_book_set(&book, c->party, has, budget, 0.5 + byte(), &limit, 0);
    } else {
        answer(c, 0);
    }
    return what < 2;
}

static void check(uint64_t allowed)
{
    uint64_t sum = 0;
    size_t count = 0;
    for (const struct swn_client_lease *p = book.first; p; p = p->next, count++) {
        const struct client *c = p->user;
        promise(p->lease <= p->ceiling && c->uses <= p->ceiling);
        sum += p->ceiling;
    }
    promise(sum == swn_book_sum(&book) && sum <= allowed && count == book.count);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    int64_t now_ms = 0;
    at = data;
    end = data + size;
    book = (struct swn_book){.total = 1000 * MIB, .policy = byte() % 3, .offer = offer};
    memset(clients, 0, sizeof clients);
    while (at < end) {
        unsigned how = byte();
        now_ms += (int64_t)(how >> 2) * 100;
        /* Only what a newcomer holds already may exceed the total, or a total that was lowered. */
        uint64_t before = swn_book_sum(&book);
        before = step() ? swn_book_sum(&book) : before;
        uint64_t allowed = before > book.total ? before : book.total;
        if (how % 4 == 1)
            swn_book_review(&book, now_ms);
        else if (how % 4)
            swn_book_balance(&book, now_ms);
        check(allowed);
    }
    while (book.first)
        die(book.first->user);
    return 0;
}
