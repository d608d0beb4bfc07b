/* Description: the book of leases never promises more than there is, whatever its clients do, with a clock of our own.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include <errno.h>

#include "tests/unit/support/book_fixture.h"
#include "tests/unit/support/random.h"

static void alone_and_together(void **state)
{
    (void)state;
    join(&clients[0], 20 * MIB, 600 * MIB);
    assert_int_equal(lease(&clients[0]), 600 * MIB);
    answer_all();
    join(&clients[1], 20 * MIB, 600 * MIB);
    /* There are 400 to be had at once, and the rest when the first has confirmed. */
    assert_int_equal(lease(&clients[1]), 400 * MIB);
    assert_int_equal(lease(&clients[0]), 500 * MIB);
    assert_int_equal(swn_book_sum(&book), 1000 * MIB);
    assert_string_equal(swn_client_lease_state(clients[0].party, clock_ms), "shrinking");
    answer(&clients[1]);
    assert_int_equal(lease(&clients[1]), 400 * MIB);
    answer(&clients[0]);
    assert_int_equal(lease(&clients[1]), 500 * MIB);
    answer_all();
    take_away(&clients[0]);
    assert_int_equal(lease(&clients[1]), 600 * MIB);
}

static void overdue_is_holding(void **state)
{
    (void)state;
    join(&clients[0], 20 * MIB, 900 * MIB);
    answer_all();
    join(&clients[1], 20 * MIB, 900 * MIB);
    uint64_t given = lease(&clients[1]);
    clock_ms += SWN_LEASE_OVERDUE_MS + 1;
    assert_string_equal(swn_client_lease_state(clients[0].party, clock_ms), "holding");
    swn_book_balance(&book, clock_ms);
    assert_int_equal(lease(&clients[1]), given);                                  /* not given away: it may be in use */
    assert_false(swn_book_ack(&book, clients[0].party, clients[0].told_seq - 1)); /* the answer to an older one */
    assert_int_equal(clients[0].party->ceiling, 900 * MIB);
    answer_all();
    assert_int_equal(lease(&clients[1]), 500 * MIB);
    assert_string_equal(swn_client_lease_state(clients[0].party, clock_ms), "running");
}

static void the_dead_and_those_away(void **state)
{
    (void)state;
    join(&clients[0], 20 * MIB, 900 * MIB);
    join(&clients[1], 20 * MIB, 900 * MIB);
    answer_all();
    uint64_t held = clients[0].using;
    clients[0].connected = clients[0].party->attached = 0;
    swn_book_balance(&book, clock_ms);
    assert_string_equal(swn_client_lease_state(clients[0].party, clock_ms), "away");
    assert_int_equal(lease(&clients[1]), 1000 * MIB - held); /* it goes on under its last lease */
    take_away(&clients[0]);
    answer_all();
    assert_int_equal(lease(&clients[1]), 900 * MIB);
}

static void refusal(void **state)
{
    (void)state;
    join(&clients[0], 20 * MIB, 900 * MIB);
    answer_all();
    join(&clients[1], 20 * MIB, 900 * MIB);
    answer(&clients[1]);
    clients[0].pending = 0;
    assert_true(swn_book_refuse(&book, clients[0].party, clients[0].told_seq, 700 * MIB, 800 * MIB));
    swn_book_balance(&book, clock_ms);
    assert_int_equal(clients[0].told_bytes, 700 * MIB); /* divided anew with the minimum it stated */
    answer_all();
    assert_int_equal(lease(&clients[0]), 700 * MIB);
    assert_int_equal(lease(&clients[1]), 300 * MIB);
}

/* Answers change the book and divide nothing: one that guesses the numbers of the next offers, and refuses them all in
 * one go, has the book divided once. */
static void many_answers_at_once(void **state)
{
    (void)state;
    join(&clients[0], 20 * MIB, 900 * MIB);
    answer_all();
    join(&clients[1], 20 * MIB, 900 * MIB);
    answer(&clients[1]);
    uint64_t seq = clients[0].told_seq;
    clients[0].pending = 0;
    int heard = 0;
    for (uint64_t i = 0; i < 1000; i++)
        heard += swn_book_refuse(&book, clients[0].party, seq + i, 700 * MIB, 800 * MIB);
    assert_true(heard >= 1 && !clients[0].pending && clients[0].party->seq == seq);
    swn_book_balance(&book, clock_ms);
    assert_true(clients[0].pending && clients[0].told_seq == seq + 1);
    clients[1].pending = 0;
    for (uint64_t i = 0; i < 1000; i++)
        swn_book_ack(&book, clients[0].party, clients[0].told_seq + i);
    assert_true(clients[0].party->ceiling == 700 * MIB && !clients[1].pending);
}

static void too_many_wait(void **state)
{
    (void)state;
    for (int i = 0; i < 4; i++) {
        join(&clients[i], 300 * MIB, 400 * MIB);
        answer_all();
    }
    assert_string_equal(swn_client_lease_state(clients[3].party, clock_ms), "waiting");
    for (int i = 0; i < 3; i++)
        assert_true(clients[i].using >= 300 * MIB);
    take_away(&clients[1]);
    answer_all();
    assert_true(clients[3].using >= 300 * MIB);
    book.draining = 1;
    join(&clients[4], MIB, MIB);
    assert_string_equal(swn_client_lease_state(clients[4].party, clock_ms), "waiting");
}

static void what_a_user_sets(void **state)
{
    uint64_t limit;
    (void)state;
    join(&clients[0], 50 * MIB, 900 * MIB);
    join(&clients[1], 50 * MIB, 900 * MIB);
    answer_all();
    struct swn_client_lease *p = clients[0].party;
    assert_int_equal(swn_book_set(&book, p, SWN_HAS_BUDGET | SWN_HAS_URGENCY, 40 * MIB, 3, &limit, clock_ms), -ERANGE);
    assert_int_equal(limit, 50 * MIB);
    assert_int_equal(swn_book_set(&book, p, SWN_HAS_BUDGET | SWN_HAS_URGENCY, 951 * MIB, 3, &limit, clock_ms), -ENOSPC);
    assert_int_equal(limit, 950 * MIB);
    assert_true(swn_client_lease_urgency(p) < 1.5); /* nothing of a refused wish is done */
    assert_int_equal(lease(&clients[0]), 500 * MIB);
    assert_int_equal(swn_book_set(&book, p, SWN_HAS_BUDGET | SWN_HAS_URGENCY, 300 * MIB, 3, &limit, clock_ms), 0);
    answer_all();
    assert_int_equal(clients[0].using, 300 * MIB);
    assert_int_equal(clients[1].using, 700 * MIB);
    assert_int_equal(swn_book_set(&book, p, SWN_HAS_BUDGET, 0, 0, &limit, clock_ms), 0);
    answer_all();
    assert_true(clients[0].using > 550 * MIB); /* urgency 3 is still in force */
}

/* A process takes no more than its own cap, whoever asks: so nothing more is set, nor kept from the others once the
 * cap, which may follow memory, has come down. */
static void what_it_would_not_use(void **state)
{
    uint64_t limit;
    (void)state;
    join(&clients[0], 50 * MIB, 900 * MIB);
    join(&clients[1], 50 * MIB, 900 * MIB);
    struct swn_client_lease *p = clients[0].party;
    p->own_cap = 60 * MIB;
    swn_book_balance(&book, clock_ms);
    answer_all();
    assert_int_equal(swn_book_set(&book, p, SWN_HAS_BUDGET, 500 * MIB, 0, &limit, clock_ms), -EDQUOT);
    assert_int_equal(limit, 60 * MIB);
    answer_all();
    assert_true(clients[0].using == 60 * MIB && clients[1].using == 900 * MIB);
    p->own_cap = 400 * MIB;
    assert_int_equal(swn_book_set(&book, p, SWN_HAS_BUDGET, 400 * MIB, 0, &limit, clock_ms), 0);
    answer_all();
    assert_true(clients[0].using == 400 * MIB && clients[1].using == 600 * MIB);
    p->own_cap = 200 * MIB;
    swn_book_balance(&book, clock_ms);
    answer_all();
    assert_true(clients[0].using == 200 * MIB && clients[1].using == 800 * MIB);
    assert_int_equal(swn_book_set(&book, clients[1].party, SWN_HAS_BUDGET, 790 * MIB, 0, &limit, clock_ms), 0);
    p->own_cap = 40 * MIB; /* below what it says it needs, which it gets all the same */
    assert_int_equal(swn_book_set(&book, p, SWN_HAS_BUDGET, 60 * MIB, 0, &limit, clock_ms), -EDQUOT);
    assert_int_equal(limit, 50 * MIB);
    swn_book_balance(&book, clock_ms);
    answer_all();
    assert_int_equal(clients[0].using, 50 * MIB);
}

static void lower_total(void **state)
{
    (void)state;
    for (int i = 0; i < 4; i++)
        join(&clients[i], 50 * MIB, 400 * MIB);
    answer_all();
    book.total = 600 * MIB;
    swn_book_balance(&book, clock_ms);
    assert_int_equal(swn_book_sum(&book), 1000 * MIB);
    answer_all();
    assert_int_equal(swn_book_sum(&book), 600 * MIB);
    assert_int_equal(swn_book_least(&book), 200 * MIB);
    /* Less than they need, as one that follows memory may come to: nobody is starved, nor gets more than it needs. */
    book.total = 100 * MIB;
    swn_book_balance(&book, clock_ms);
    answer_all();
    assert_int_equal(swn_book_sum(&book), 200 * MIB);
    /* What needs count for is what is there of them; one that is away keeps all it has. */
    clients[0].party->minimum = SWN_WIRE_BYTES_MOST;
    assert_int_equal(swn_book_least(&book), 200 * MIB);
    clients[0].party->minimum = clients[1].party->minimum = 10 * MIB;
    clients[1].connected = clients[1].party->attached = 0;
    assert_int_equal(swn_book_least(&book), 160 * MIB);
}

/* A process that knows its lease from a daemon that is gone. */
static void unknown_lease(void **state)
{
    (void)state;
    join(&clients[0], 20 * MIB, 900 * MIB);
    answer_all();
    clients[1] = (struct client){.alive = 1, .connected = 1, .using = 700 * MIB, .last_lease = 700 * MIB};
    struct swn_client_lease *p = clients[1].party = swn_book_join(&book, 7, 1, 700 * MIB);
    p->user = &clients[1];
    p->minimum = 20 * MIB;
    p->demand = 900 * MIB;
    p->attached = 1;
    assert_int_equal(swn_book_sum(&book), 1600 * MIB); /* told as it is */
    swn_book_balance(&book, clock_ms);
    assert_true(lease(&clients[0]) + lease(&clients[1]) <= 1000 * MIB);
    answer_all();
    assert_true(swn_book_sum(&book) <= 1000 * MIB);
    assert_ptr_equal(swn_book_find(&book, 7, 1), p);
    assert_null(swn_book_find(&book, 7, 2));
}

/* ---- numbers that are no more than words ---- */

/* One that was never here says it holds a lease: no more of it counts than can be true, and it hears of that. */
static void a_lease_that_cannot_be(void **state)
{
    (void)state;
    join(&clients[0], 20 * MIB, 400 * MIB);
    answer_all();
    join(&clients[1], 20 * MIB, 300 * MIB); /* the liar: at first as all others */
    answer_all();
    struct swn_client_lease *liar = clients[1].party;
    swn_book_claim(&book, liar, SWN_WIRE_BYTES_MOST, 30 * MIB);
    assert_int_equal(liar->ceiling, 300 * MIB); /* it was given that much */
    clients[1].pending = 0;
    swn_book_balance(&book, clock_ms);
    assert_true(clients[1].pending && clients[1].told_bytes == 300 * MIB); /* though it is what it has anyway */
    swn_book_claim(&book, liar, 200 * MIB, 30 * MIB);
    assert_int_equal(liar->ceiling, 200 * MIB);
    swn_book_claim(&book, liar, 700 * MIB,
                   250 * MIB); /* or has it in its memory: an honest one from before a restart */
    assert_int_equal(liar->ceiling, 250 * MIB);
    clients[1].connected = liar->attached = clients[1].pending = 0; /* it goes away before it hears of it */
    swn_book_balance(&book, clock_ms);
    assert_false(clients[1].pending);
    join(&clients[2], 20 * MIB, 350 * MIB);
    answer_all();
    assert_int_equal(lease(&clients[2]), 350 * MIB);
}

/* One that says it needs more than there is takes nobody below what it needs, and what a user set for others holds. */
static void needs_that_cannot_be(void **state)
{
    uint64_t limit;
    (void)state;
    join(&clients[0], 50 * MIB, 300 * MIB);
    join(&clients[1], 50 * MIB, 300 * MIB); /* the liar */
    join(&clients[2], 50 * MIB, 300 * MIB);
    answer_all();
    assert_int_equal(swn_book_set(&book, clients[0].party, SWN_HAS_BUDGET, 200 * MIB, 0, &limit, clock_ms), 0);
    clients[1].party->minimum = SWN_WIRE_BYTES_MOST;
    swn_book_review(&book, clock_ms);
    answer_all();
    assert_int_equal(lease(&clients[0]), 200 * MIB);
    assert_int_equal(lease(&clients[2]), 50 * MIB);
    assert_int_equal(swn_book_sum(&book), book.total);
    clients[1].party->minimum = 600 * MIB;
    join(&clients[3], 50 * MIB, 300 * MIB);
    answer_all();
    assert_true(lease(&clients[3]) >= 50 * MIB && lease(&clients[2]) >= 50 * MIB && lease(&clients[1]) >= 600 * MIB);
    assert_int_equal(lease(&clients[0]), 200 * MIB);
    /* Growing needs that can be met come before a new process. */
    clients[3].party->minimum = 100 * MIB;
    join(&clients[4], 100 * MIB, 300 * MIB);
    answer_all();
    assert_int_equal(lease(&clients[3]), 100 * MIB);
    assert_string_equal(swn_client_lease_state(clients[4].party, clock_ms), "waiting");
}

static void residence_that_cannot_be(void **state)
{
    (void)state;
    join(&clients[0], 50 * MIB, 300 * MIB);
    join(&clients[1], 50 * MIB, 300 * MIB);
    answer_all();
    clients[0].party->resident = 120 * MIB;
    clients[1].party->resident = SWN_WIRE_BYTES_MOST;
    assert_int_equal(swn_book_resident(&book), 420 * MIB);
    clients[1].party->in_memory = 200 * MIB; /* it was given more, and has not taken it */
    clients[0].party->in_memory = 130 * MIB; /* an interpreter has some besides */
    assert_int_equal(swn_book_resident(&book), 320 * MIB);
}

/* ---- the trace of Joining, dying, resizing, slow and silent clients ---- */

static void one_event(struct client *c)
{
    uint64_t limit;
    switch (rnd() % 10) {
    case 0:
    case 1:
        if (!c->alive)
            join(c, rnd() % (20 * MIB), rnd() % (300 * MIB));
        return;
    case 2:
        if (c->alive && rnd() % 2)
            take_away(c);
        return;
    case 3:
        if (c->alive) {
            c->party->demand = rnd() % (300 * MIB);
            c->party->minimum = c->minimum = rnd() % (20 * MIB);
            swn_book_balance(&book, clock_ms);
        }
        return;
    case 4:
        if (c->alive && c->connected) { /* the connection is lost; a message on its way may still have been read */
            if (c->pending && rnd() % 2)
                c->using = c->told_bytes;
            c->connected = c->party->attached = c->pending = 0;
            swn_book_balance(&book, clock_ms);
        } else if (c->alive) {
            c->connected = c->party->attached = 1;
            swn_book_balance(&book, clock_ms);
        }
        return;
    case 5:
        if (c->alive && c->connected)
            swn_book_set(&book, c->party, SWN_HAS_BUDGET | SWN_HAS_URGENCY, rnd() % 3 ? rnd() % (300 * MIB) : 0,
                         0.1 + (double)(rnd() % 50), &limit, clock_ms);
        return;
    case 6:
        if (c->alive && c->pending && rnd() % 4 == 0) {
            c->pending = 0;
            c->minimum = c->told_bytes + MIB < c->party->ceiling ? c->told_bytes + MIB : c->party->ceiling;
            c->last_lease = c->using = c->party->ceiling;
            if (swn_book_refuse(&book, c->party, c->told_seq, c->minimum, c->using))
                swn_book_balance(&book, clock_ms);
        }
        return;
    default:
        answer(c);
    }
}

static void trace_of_a_hundred(void **state)
{
    static const enum swn_divide_policy policies[] = {SWN_DIVIDE_EQ1, SWN_DIVIDE_EQUAL, SWN_DIVIDE_MINMAX};
    for (unsigned round = 0; round < 3; round++) {
        book_begin(state);
        book.policy = policies[round];
        book.total = 4000 * MIB;
        uint64_t allowed = book.total;
        for (unsigned step = 0; step < 20000; step++) {
            clock_ms += (int64_t)(rnd() % 50);
            if (rnd() % 200 == 0) {
                book.total = (2500 + rnd() % 3000) * MIB;
                swn_book_balance(&book, clock_ms);
            }
            one_event(&clients[rnd() % CLIENTS]);
            /* Above a lowered total only as long as it was above before; it never grows there. */
            uint64_t sum = swn_book_sum(&book);
            allowed = sum > book.total && sum < allowed ? sum : sum <= book.total ? book.total : allowed;
            if (allowed < book.total)
                allowed = book.total;
            check_book(allowed);
        }
        answer_all();
        assert_true(swn_book_sum(&book) <= allowed);
        book_end(state);
    }
}

/* What processes measure of themselves changes all the time: small changes do not move anybody's lease, large ones, and
 * needs, do. */
static void drift(void **state)
{
    (void)state;
    for (size_t i = 0; i < 3; i++)
        join(&clients[i], 50 * MIB, 600 * MIB);
    answer_all();
    uint64_t lease[3];
    for (size_t i = 0; i < 3; i++)
        lease[i] = clients[i].party->lease;
    assert_int_equal(lease[0] + lease[1] + lease[2], book.total);
    clients[0].party->latency = 0.11; /* its share by Eq. 1 is a few percent larger now */
    swn_book_review(&book, clock_ms);
    for (size_t i = 0; i < 3; i++)
        assert_false(clients[i].pending);
    clients[0].party->latency = 0.5;
    swn_book_review(&book, clock_ms);
    answer_all();
    assert_true(clients[0].party->lease > lease[0] * 9 / 8);
    assert_int_equal(swn_book_sum(&book), book.total);
    /* One that needs a little more than it has. */
    uint64_t needs = clients[1].party->lease + MIB;
    clients[1].party->minimum = needs;
    swn_book_review(&book, clock_ms);
    answer_all();
    assert_true(clients[1].party->lease >= needs);
    /* What nobody has is given at once, too. */
    for (size_t i = 0; i < 3; i++)
        clients[i].party->demand = clients[i].party->minimum = 200 * MIB;
    swn_book_balance(&book, clock_ms);
    answer_all();
    assert_int_equal(swn_book_sum(&book), 600 * MIB);
    clients[2].party->demand = 210 * MIB;
    swn_book_review(&book, clock_ms);
    answer_all();
    assert_int_equal(clients[2].party->lease, 210 * MIB);
    clients[0].party->demand = clients[1].party->demand = 600 * MIB;
    swn_book_balance(&book, clock_ms);
    answer_all();
    /* Less than is leased: at once, however little. */
    book.total -= MIB;
    swn_book_review(&book, clock_ms);
    answer_all();
    assert_true(swn_book_sum(&book) <= book.total);
}

static void curve(struct client *c, uint64_t from, double seconds, double least)
{
    c->party->points = 3;
    c->party->latency = least;
    c->party->curve[0] = (struct swn_divide_point){10 * MIB, seconds};
    c->party->curve[1] = (struct swn_divide_point){from, least * 1.01};
    c->party->curve[2] = (struct swn_divide_point){600 * MIB, least};
}

/* Min-max: curves that say nearly the same move nobody, though other shares would be as good. One that says that
 * somebody would be faster does, and so do passes that have become short, as the disk is busier for it. */
static void drift_of_curves(void **state)
{
    (void)state;
    book.policy = SWN_DIVIDE_MINMAX;
    for (size_t i = 0; i < 3; i++) {
        join(&clients[i], 50 * MIB, 600 * MIB);
        curve(&clients[i], 100 * MIB, 0.5, 0.1 + 0.001 * (double)i);
    }
    swn_book_balance(&book, clock_ms);
    answer_all();
    assert_int_equal(swn_book_sum(&book), book.total);
    uint64_t first = clients[0].party->lease, last = clients[2].party->lease;
    assert_true(first > last * 2);
    curve(&clients[0], 100 * MIB, 0.5, 0.103); /* now the last of the three to get what is left */
    swn_book_review(&book, clock_ms);
    for (size_t i = 0; i < 3; i++)
        assert_false(clients[i].pending);
    curve(&clients[2], 100 * MIB, 0.1, 0.01);
    swn_book_review(&book, clock_ms);
    answer_all();
    assert_true(clients[2].party->lease > first - 10 * MIB);
    curve(&clients[1], 300 * MIB, 0.5, 0.1);
    swn_book_review(&book, clock_ms);
    answer_all();
    assert_true(clients[1].party->lease > 250 * MIB);
}

/* Likewise where one of them is slow whatever it gets, and so the slowest before and after. */
static void drift_beside_a_slow_one(void **state)
{
    (void)state;
    book.policy = SWN_DIVIDE_MINMAX;
    join(&clients[0], 100 * MIB, 4000 * MIB);
    curve(&clients[0], 990 * MIB, 9, 9 / 1.01);
    clients[0].party->curve[2] = (struct swn_divide_point){4000 * MIB, 1};
    for (size_t i = 1; i < 3; i++) {
        join(&clients[i], 50 * MIB, 600 * MIB);
        curve(&clients[i], 400 * MIB, 0.2, 0.1);
    }
    swn_book_balance(&book, clock_ms);
    answer_all();
    assert_int_equal(swn_book_sum(&book), book.total);
    uint64_t had = clients[2].party->lease;
    curve(&clients[1], 100 * MIB, 0.11, 0.1);
    curve(&clients[2], 590 * MIB, 1, 0.1);
    swn_book_review(&book, clock_ms);
    answer_all();
    assert_true(had < 520 * MIB && clients[2].party->lease > 580 * MIB);
}

int main(void)
{
#define TEST(f) cmocka_unit_test_setup_teardown(f, book_begin, book_end)
    const struct CMUnitTest tests[] = {
        TEST(alone_and_together),
        TEST(drift),
        TEST(drift_of_curves),
        TEST(drift_beside_a_slow_one),
        TEST(overdue_is_holding),
        TEST(the_dead_and_those_away),
        TEST(refusal),
        TEST(many_answers_at_once),
        TEST(too_many_wait),
        TEST(what_a_user_sets),
        TEST(what_it_would_not_use),
        TEST(lower_total),
        TEST(unknown_lease),
        TEST(a_lease_that_cannot_be),
        TEST(needs_that_cannot_be),
        TEST(residence_that_cannot_be),
        cmocka_unit_test(trace_of_a_hundred),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
