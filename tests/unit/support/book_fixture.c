#include "tests/unit/support/book_fixture.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

struct swn_book book;
int64_t clock_ms;
struct client clients[CLIENTS];
void (*book_first_offer)(const struct swn_client_lease *p);

static void on_offer(void *user, struct swn_client_lease *p)
{
    (void)user;
    struct client *c = p->user;
    if (book_first_offer && p->seq == 1)
        book_first_offer(p);
    c->told_seq = p->seq;
    c->told_bytes = p->lease;
    c->pending = 1;
    assert_true(c->alive && c->connected);
}

int book_begin(void **state)
{
    (void)state;
    book = (struct swn_book){.total = 1000 * MIB, .offer = on_offer};
    memset(clients, 0, sizeof clients);
    clock_ms = 0;
    book_first_offer = NULL;
    return 0;
}

int book_end(void **state)
{
    (void)state;
    while (book.first)
        swn_book_leave(&book, book.first);
    return 0;
}

void join(struct client *c, uint64_t minimum, uint64_t demand)
{
    static pid_t next_pid = 100;
    *c = (struct client){.minimum = minimum, .alive = 1, .connected = 1, .pid = next_pid++};
    c->party = swn_book_join(&book, c->pid, 1, 0);
    c->party->user = c;
    c->party->minimum = minimum;
    c->party->demand = demand;
    c->party->latency = 0.1;
    c->party->attached = 1;
    swn_book_balance(&book, clock_ms);
}

void answer(struct client *c)
{
    if (!c->pending)
        return;
    c->pending = 0;
    c->using = c->last_lease = c->told_bytes;
    if (swn_book_ack(&book, c->party, c->told_seq))
        swn_book_balance(&book, clock_ms);
}

void answer_all(void)
{
    for (int more = 1; more;) {
        more = 0;
        for (size_t i = 0; i < CLIENTS; i++)
            if (clients[i].pending) {
                answer(&clients[i]);
                more = 1;
            }
    }
}

void take_away(struct client *c)
{
    c->alive = c->connected = c->pending = 0;
    struct swn_client_lease *p = c->party;
    c->party = NULL;
    swn_book_leave(&book, p);
    swn_book_balance(&book, clock_ms);
}

uint64_t lease(const struct client *c)
{
    return c->party->lease;
}

void check_book(uint64_t allowed)
{
    uint64_t ceilings = 0, used = 0;
    for (size_t i = 0; i < CLIENTS; i++) {
        struct client *c = &clients[i];
        if (!c->alive)
            continue;
        uint64_t most = c->using > c->last_lease ? c->using : c->last_lease;
        if (c->pending && c->told_bytes > most)
            most = c->told_bytes; /* it may be using that already */
        assert_true(c->party->ceiling >= most);
        ceilings += c->party->ceiling;
        used += most;
    }
    assert_int_equal(ceilings, swn_book_sum(&book));
    assert_true(ceilings <= allowed);
    assert_true(used <= allowed);
}
