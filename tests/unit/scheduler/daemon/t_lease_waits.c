/* Description: who waits for a lease gets it, whoever else arrives, and keeps nobody from what it cannot have itself.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "tests/unit/support/book_fixture.h"
#include "tests/unit/support/random.h"

/* Small ones come and go for ever; the large one gets its turn when those that were there before it have gone. */
static void nobody_waits_for_ever(void **state)
{
    (void)state;
    for (int i = 0; i < 10; i++)
        join(&clients[i], 100 * MIB, 100 * MIB);
    answer_all();
    struct client *large = &clients[90], *never = &clients[91];
    join(large, 500 * MIB, 500 * MIB);
    join(never, 990 * MIB, 990 * MIB);
    clock_ms = 10000;
    for (int i = 0; i < 10 && !large->using; i++) { /* one goes, another one comes, and takes its place if it can */
        join(&clients[10 + i], 100 * MIB, 100 * MIB);
        take_away(&clients[i]);
        answer_all();
    }
    assert_int_equal(large->using, 500 * MIB);
    assert_int_equal(never->using, 0);
}

/* One that those before it leave no room delays nobody, from the first moment on; when they have gone nobody else
 * passes it by, and it is served when the last one that did has gone as well. */
static void passed_by_while_it_cannot_be_served(void **state)
{
    (void)state;
    join(&clients[0], 100 * MIB, 100 * MIB);
    join(&clients[1], 950 * MIB, 950 * MIB);
    join(&clients[2], 1010 * MIB, 1010 * MIB); /* more than there is */
    for (int i = 3; i < 6; i++)
        join(&clients[i], 200 * MIB, 200 * MIB);
    answer_all();
    for (int i = 3; i < 6; i++)
        assert_int_equal(clients[i].using, 200 * MIB);
    take_away(&clients[0]);
    take_away(&clients[3]);
    join(&clients[6], 10 * MIB, 10 * MIB);
    clients[4].connected = clients[4].party->attached = 0; /* in its way all the same */
    swn_book_balance(&book, clock_ms);
    answer_all();
    assert_true(!clients[1].using && !clients[6].using);
    clients[5].party->minimum = clients[5].party->demand = 300 * MIB; /* those that have something go on as ever */
    swn_book_balance(&book, clock_ms);
    answer_all();
    assert_int_equal(clients[5].using, 300 * MIB);
    take_away(&clients[4]);
    assert_true(!clients[1].using && !clients[6].using);
    take_away(&clients[5]);
    answer_all();
    assert_true(clients[1].using == 950 * MIB && clients[6].using == 10 * MIB);
    take_away(&clients[1]);
    join(&clients[7], 900 * MIB, 900 * MIB);
    answer_all();
    assert_int_equal(clients[7].using, 900 * MIB); /* past the one that never fits */
    assert_string_equal(swn_client_lease_state(clients[2].party, clock_ms), "waiting");
}

/* The same where there is room by what all need, and some of it is not given back yet. */
static void passed_by_while_others_give_back(void **state)
{
    (void)state;
    join(&clients[0], 20 * MIB, 500 * MIB);
    answer_all();
    join(&clients[1], 450 * MIB, 450 * MIB);
    answer(&clients[1]);
    join(&clients[2], 480 * MIB, 480 * MIB); /* the first is told to shrink, and is stopped */
    join(&clients[3], 50 * MIB, 50 * MIB);
    answer(&clients[3]);
    assert_true(!clients[2].using && clients[3].using == 50 * MIB);
    take_away(&clients[1]);
    join(&clients[4], 50 * MIB, 50 * MIB); /* now the one before it alone is in the way */
    assert_true(!clients[2].pending && !clients[4].pending);
    take_away(&clients[3]);
    assert_true(clients[2].pending && clients[2].told_bytes == 480 * MIB && !clients[4].pending);
    answer_all();
    assert_true(clients[2].using == 480 * MIB && clients[4].using == 50 * MIB);
}

/* Nobody gets a first lease past the first of those that wait, if that one would have its minimum were it not for those
 * that came after it. */
static void nobody_passes(const struct swn_client_lease *newcomer)
{
    const struct swn_client_lease *first = book.first;
    uint64_t before = 0;
    while (first != newcomer && (!first->attached || first->lease)) {
        uint64_t needs = first->minimum > first->set.budget ? first->minimum : first->set.budget;
        before += first->ceiling > needs || !first->attached ? first->ceiling : needs;
        first = first->next;
    }
    if (first != newcomer)
        assert_true(before + first->minimum > book.total);
}

static void trace_of_those_that_wait(void **state)
{
    size_t offers = 0, served = 0;
    (void)state;
    book.total = 2000 * MIB;
    book_first_offer = nobody_passes;
    for (unsigned step = 0; step < 40000; step++) {
        struct client *c = &clients[rnd() % 30];
        clock_ms += (int64_t)(rnd() % 50);
        unsigned what = rnd() % 8;
        if (!c->alive && what < 6)
            join(c, rnd() % (rnd() % 4 ? 200 * MIB : 1500 * MIB), rnd() % (400 * MIB));
        else if (c->alive && what == 0)
            take_away(c);
        else if (c->alive && what == 1 && rnd() % 4 == 0) {
            c->pending = 0;
            c->connected = c->party->attached = !c->connected;
            swn_book_balance(&book, clock_ms);
        } else if (what > 2)
            answer(c);
        check_book(book.total);
        offers += c->pending != 0;
        served += c->using && c->minimum > 700 * MIB;
    }
    assert_true(offers > 1000 && served > 100);
}

int main(void)
{
#define TEST(f) cmocka_unit_test_setup_teardown(f, book_begin, book_end)
    const struct CMUnitTest tests[] = {
        TEST(nobody_waits_for_ever),
        TEST(passed_by_while_it_cannot_be_served),
        TEST(passed_by_while_others_give_back),
        TEST(trace_of_those_that_wait),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
