/* scheduler/daemon/lease_book.h - the leases of all processes: the state of swapnetd, without any I/O.
 *
 * Every process has a lease (the last offer) and a ceiling (the most it may be using: the lease, or the larger one
 * before, until the smaller one is confirmed). The book bounds the sum of the ceilings by the total: it tells the
 * processes that lose memory first, and gives their memory away when they have confirmed, or are dead. The sum exceeds
 * the total only when the total was lowered, or when a process connects with a lease from before a restart which is not
 * on record; then the book gives nothing until the sum is below the total again.
 *
 * The book checks a process's report against facts that the process cannot forge: its holding counts up to its record
 * or its resident memory, and its minimum up to the memory that it has or that the other minimums leave.
 *
 * A process without a connection keeps its ceiling until it is known to be dead, as it continues under its last lease.
 * A process whose minimum does not fit has no lease and waits; it is served before any other process grows. Later
 * arrivals that need less may pass it by while the earlier ones leave no room for it anyway, so a process that never
 * fits, or says so, blocks no other. As soon as only later arrivals are in its way, no further process passes it by,
 * and it waits until enough of them have ended.
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
    uint64_t start; /* start time of the process, its identity together with pid */
    uid_t uid;
    char name[SWN_WIRE_NAME];
    /* The process's own report. */
    uint64_t minimum, demand, weights, resident;
    uint64_t own_cap; /* its own limit; 0: none */
    double latency, own_urgency;
    uint64_t in_memory; /* its resident memory that belongs to no file, at the caller's last look; 0: not looked at */
    struct swn_divide_point curve[SWN_WIRE_POINTS];
    size_t points;
    struct swn_lease_wish set;
    /* The daemon's promise. */
    uint64_t lease, ceiling, seq;
    int64_t offered_ms;
    int attached;    /* has a connection */
    int has_library; /* the process once had the library's thread; without that thread it has become another program */
    int refused;     /* it refused the last offer, and holds more */
    int untold;      /* its lease was cut to what it can hold, and it has not been told yet */
    void *user;      /* the caller's data */
    struct swn_client_lease *next;
};

struct swn_book {
    uint64_t total;
    enum swn_divide_policy policy;
    int draining; /* no new process gets a lease */
    struct swn_client_lease *first;
    size_t count;
    int dirty; /* ceilings or user settings changed since the caller last cleared this */
    /* Sends a lease. Called from the functions below; must not call them. The caller sends it only after the book is on
     * record. */
    void (*offer)(void *user, struct swn_client_lease *p);
    void *user;
};

/* The sum of all ceilings. */
uint64_t swn_book_sum(const struct swn_book *b);
/* The bytes that remain with the process at any smaller total: its ceiling while it is away, else its minimum, as far
 * as it has that. */
uint64_t swn_client_lease_least(const struct swn_client_lease *p);
uint64_t swn_book_least(const struct swn_book *b); /* of all */
/* The resident bytes of its tensors, as reported, up to its lease and its memory. The daemon sees these pages in the
 * process's memory, so this is never too little. */
uint64_t swn_client_lease_resident(const struct swn_client_lease *p);
uint64_t swn_book_resident(const struct swn_book *b); /* of all */
struct swn_client_lease *swn_book_find(const struct swn_book *b, pid_t pid, uint64_t start);

/* Adds a process that was given `lease` bytes before (0: none known). NULL: out of memory. The caller fills in the
 * process's report, and then calls swn_book_balance. */
struct swn_client_lease *swn_book_join(struct swn_book *b, pid_t pid, uint64_t start, uint64_t lease);
/* Takes over the process's report from the message. */
void swn_client_lease_hear(struct swn_client_lease *p, const struct swn_wire *m);
/* The process says that it obeys a lease of `lease` bytes, from this daemon or the one before. The book accepts that up
 * to its ceiling, or the bytes in its memory, `in_memory`; for a larger claim, the next swn_book_balance offers a
 * smaller lease. */
void swn_book_claim(struct swn_book *b, struct swn_client_lease *p, uint64_t lease, uint64_t in_memory);
/* The process is dead, or gave everything back: other processes get its memory once the caller has called
 * swn_book_balance. Frees p.
 */
void swn_book_leave(struct swn_book *b, struct swn_client_lease *p);
/* The process confirms offer `seq`; any other number than that of the last offer is ignored. 1: the next
 * swn_book_balance has something to give away. One call for many answers suffices, and its cost grows with the number
 * of processes. */
int swn_book_ack(struct swn_book *b, struct swn_client_lease *p, uint64_t seq);
/* The process refuses offer `seq`: it needs `minimum`, and holds at most `lease`. 1 as above. */
int swn_book_refuse(struct swn_book *b, struct swn_client_lease *p, uint64_t seq, uint64_t minimum, uint64_t lease);
/* Divides the total anew and makes the possible offers. To be called after every change of the book. */
void swn_book_balance(struct swn_book *b, int64_t now_ms);
/* The same, when only the processes' reports have changed, which are measured and never quite the same: does nothing as
 * long as each lease is within an eighth of the new share, and is at least its minimum, and no process can grow into
 * free memory. */
void swn_book_review(struct swn_book *b, int64_t now_ms);

/* Applies a user's setting, all of it or nothing. has: SWN_HAS_BUDGET (0: as the policy gives), SWN_HAS_URGENCY. 0;
 * -ERANGE: below its minimum; -EDQUOT: above its own cap, which it would not use; -ENOSPC: the minimums of the others
 * leave no room for it. *limit: the most, or the least, that the number may be. */
int swn_book_set(struct swn_book *b, struct swn_client_lease *p, unsigned has, uint64_t budget, double urgency,
                 uint64_t *limit, int64_t now_ms);

/* "running"; "shrinking": a smaller lease is not confirmed yet; "holding": it is overdue or refused; "waiting": has no
 * lease; "away": has no connection, and its lease counts all the same. Static. */
const char *swn_client_lease_state(const struct swn_client_lease *p, int64_t now_ms);
double swn_client_lease_urgency(const struct swn_client_lease *p);

#endif
