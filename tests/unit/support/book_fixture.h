/* tests/unit/support/book_fixture.h - a book of leases, processes that are simulated, and a clock of our own. */
#ifndef SWN_TESTS_UNIT_SUPPORT_BOOK_FIXTURE_H
#define SWN_TESTS_UNIT_SUPPORT_BOOK_FIXTURE_H

#include <stdint.h>
#include <sys/types.h>

#include "scheduler/daemon/lease_book.h"

#define MIB ((uint64_t)1 << 20)
#define CLIENTS 100

/* A simulated process: what it was told and has not answered yet, and what it really uses. */
struct client {
    struct swn_client_lease *party;
    uint64_t minimum, last_lease, using;
    uint64_t told_seq, told_bytes;
    int pending, alive, connected;
    pid_t pid;
};

extern struct swn_book book; /* of 1000 MiB */
extern int64_t clock_ms;
extern struct client clients[CLIENTS];
/* Called for the first lease that a process is offered, before anything else happens; NULL: not called. */
extern void (*book_first_offer)(const struct swn_client_lease *p);

/* For cmocka_unit_test_setup_teardown. */
int book_begin(void **state);
int book_end(void **state);

/* Each divides the book anew. A client that is told something does nothing before it answers. */
void join(struct client *c, uint64_t minimum, uint64_t demand);
void take_away(struct client *c);
/* The process does what it was told, and says so. Growing needs no answer to be used. */
void answer(struct client *c);
void answer_all(void);

uint64_t lease(const struct client *c);
/* What is counted is what they may be using, and no more than `allowed` in all. */
void check_book(uint64_t allowed);

#endif
