/* scheduler/daemon/lease_book.h - the leases of all processes: the state of swapnetd, without any I/O.
 *
 * Every process has a lease (what it was offered last) and a ceiling (the most it may be using: the lease, and until a
 * smaller one is confirmed the larger one before). The sum of the ceilings is what counts. It never grows beyond the
 * total: processes that lose memory are told first, and the book gives away what they lose when they have confirmed, or
 * are dead. The sum can only be above the total when the total was lowered, or when a process connects that holds a
 * lease from before a restart which is not on record; then the book gives nothing until the sum is below again.
 *
 * The book checks what a process says of itself against facts that it cannot forge: it holds no more than is on record
 * of it or in its memory, and its minimum counts only up to what it has or the minimums of the others leave.
 *
 * A process without a connection keeps its ceiling until it is known to be dead: it goes on under its last lease. A
 * process whose minimum does not fit has no lease and waits; it is served before any other process grows. Processes
 * that come later and need less pass it by as long as those that came before it leave no room for it anyway, so that a
 * process that never fits, or says so, keeps no other out. As soon as only processes that passed it by are in its way,
 * no further process passes it by: it waits until enough of them have ended, however many keep arriving.
 *
 * Not thread-safe. Bytes, milliseconds of any clock that does not go back.
 */
#ifndef SWN_SCHEDULER_DAEMON_LEASE_BOOK_H
#define SWN_SCHEDULER_DAEMON_LEASE_BOOK_H

#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "scheduler/planner/divide.h"
#include "scheduler/protocol/wire.h"

/* A lease that is not confirmed for this long is shown as holding. */
#define SWN_LEASE_OVERDUE_MS 1000

/* What a user set for a process; 0: not set. */
struct swn_lease_wish {
    uint64_t budget;
    double urgency;
};

struct swn_client_lease {
    pid_t pid;
    uint64_t start; /* of the process, so that another one with its number is not taken for it */
    uid_t uid;
    char name[SWN_WIRE_NAME];
    /* What it says of itself. */
    uint64_t minimum, demand, weights, resident;
    uint64_t own_cap; /* it asks for no more; 0: no such limit */
    double latency, own_urgency;
    uint64_t in_memory; /* what is really there of it, and of no file, when the caller last looked; 0: it has not */
    struct swn_divide_point curve[SWN_WIRE_POINTS];
    size_t points;
    struct swn_lease_wish set;
    /* What was promised. */
    uint64_t lease, ceiling, seq;
    int64_t offered_ms;
    int attached;    /* has a connection */
    int has_library; /* the library's thread was seen in it: without that thread it is another program */
    int refused;     /* its answer to the last offer: it stays above it */
    int untold;      /* it obeys more than its lease, which was cut down to what it can hold, and it has not been told
                      * yet */
    void *user;      /* the caller's */
    struct swn_client_lease *next;
};

struct swn_book {
    uint64_t total;
    enum swn_divide_policy policy;
    int draining; /* no new process gets a lease */
    struct swn_client_lease *first;
    size_t count;
    int dirty; /* ceilings, or what a user set, changed since the caller last cleared this */
    /* A lease to be sent. Called from within the functions below; must not call them. Before it goes out, what the book
     * says now has to be on record. */
    void (*offer)(void *user, struct swn_client_lease *p);
    void *user;
};

/* The sum of all ceilings. */
uint64_t swn_book_sum(const struct swn_book *b);
/* The bytes that no smaller total makes it give back: its ceiling while it is away, else its minimum, as far as it has
 * that. */
uint64_t swn_client_lease_least(const struct swn_client_lease *p);
uint64_t swn_book_least(const struct swn_book *b); /* of all */
/* The resident bytes of its tensors: what it says, as far as its lease and its memory allow. The daemon sees these
 * pages in the process's memory, so this is never too little. */
uint64_t swn_client_lease_resident(const struct swn_client_lease *p);
uint64_t swn_book_resident(const struct swn_book *b); /* of all */
struct swn_client_lease *swn_book_find(const struct swn_book *b, pid_t pid, uint64_t start);

/* A process that is new to the book, and was given `lease` bytes once (0: none that we know of). NULL: out of memory.
 * The caller fills what it says of itself, and then calls swn_book_balance. */
struct swn_client_lease *swn_book_join(struct swn_book *b, pid_t pid, uint64_t start, uint64_t lease);
/* Takes over what the process says of itself in the message. */
void swn_client_lease_hear(struct swn_client_lease *p, const struct swn_wire *m);
/* The process says that it obeys a lease of `lease` bytes, from this daemon or the one before. The book believes that
 * up to its ceiling, or the bytes in its memory, `in_memory`; if it says more, the next swn_book_balance offers it a
 * smaller lease. */
void swn_book_claim(struct swn_book *b, struct swn_client_lease *p, uint64_t lease, uint64_t in_memory);
/* The process is dead, or gave everything back: other processes get its memory once the caller has called
 * swn_book_balance. Frees p.
 */
void swn_book_leave(struct swn_book *b, struct swn_client_lease *p);
/* Confirmed. A number that is not that of the last offer is ignored. 1: the next swn_book_balance has something to give
 * away; call it once for many answers, since its cost grows with the number of processes. */
int swn_book_ack(struct swn_book *b, struct swn_client_lease *p, uint64_t seq);
/* The process refuses: it needs `minimum`, and holds at most `lease`. 1 as above. */
int swn_book_refuse(struct swn_book *b, struct swn_client_lease *p, uint64_t seq, uint64_t minimum, uint64_t lease);
/* Divides anew and offers what can be offered; after every change of what is in the book. */
void swn_book_balance(struct swn_book *b, int64_t now_ms);
/* The same where only what processes say of themselves has changed, which is measured and never quite the same: nothing
 * is done as long as each lease is within an eighth of what its process would get, and is at least its minimum, and no
 * process can grow into free memory. */
void swn_book_review(struct swn_book *b, int64_t now_ms);

/* A user's wish, all of it or nothing. has: SWN_HAS_BUDGET (0: whatever the policy gives), SWN_HAS_URGENCY. 0; -ERANGE:
 * below its minimum; -EDQUOT: above its own cap, which it would not use; -ENOSPC: the minimums of the others leave no
 * room for it. *limit: what the number may be at most, or at least. */
int swn_book_set(struct swn_book *b, struct swn_client_lease *p, unsigned has, uint64_t budget, double urgency,
                 uint64_t *limit, int64_t now_ms);

/* "running"; "shrinking": a smaller lease is not confirmed yet; "holding": nor will it soon; "waiting": has no lease;
 * "away": has no connection, and its lease counts all the same. Static. */
const char *swn_client_lease_state(const struct swn_client_lease *p, int64_t now_ms);
double swn_client_lease_urgency(const struct swn_client_lease *p);

#endif
