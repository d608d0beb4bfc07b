/* scheduler/serve/serve_party.h - the server as one program under swapnetd.
 *
 * swapnet-serve registers once, for itself and for all of its engines, which do not register themselves. What the
 * daemon leases to it bounds the server, its buffer and its engines together; --memory is the most that it takes. As
 * for other programs (skeleton/budget/daemon_client.h): the last lease stays in force when the daemon is lost, and the
 * server registers again with the next one; a server without a lease that finds no daemon for ten seconds goes on
 * alone.
 *
 * Every function but the first two may be called with NULL, which stands for a server that no daemon rules. Nothing
 * waits, but for swn_serve_party_begin. For one thread.
 */
#ifndef SWN_SCHEDULER_SERVE_SERVE_PARTY_H
#define SWN_SCHEDULER_SERVE_SERVE_PARTY_H

#include <stdint.h>

#include "base/errmsg.h"

struct swn_serve_party_options {
    const char *daemon;   /* "auto", "off" or the path of a socket; NULL and "" are "auto" */
    const char *name;     /* by which users know the server */
    double urgency;       /* 1 is ordinary */
    uint64_t cap_bytes;   /* the most that the server takes */
    uint64_t least_bytes; /* what it has while it waits for its first lease */
    uint64_t alone_ns;    /* how long it waits with "auto"; 0: ten seconds */
};

/* What the server needs and has, at the time of the call. */
struct swn_serve_party_needs {
    uint64_t least_bytes, demand_bytes, weight_bytes, resident_bytes;
    uint64_t held_bytes; /* what the server and its engines may be using */
    double latency_s;    /* of a request whose weights are in memory; 0: not known */
    uint8_t is_settled;  /* no engine is on its way to another budget */
};

struct swn_serve_party;

/* *out is NULL where no daemon is to rule. 0, or -errno with `why` filled. */
int swn_serve_party_open(struct swn_serve_party **out, const struct swn_serve_party_options *options,
                         char why[SWN_ERRMSG]);
void swn_serve_party_close(struct swn_serve_party *p);

/* Registers, and waits up to 250 ms for the first lease: engines then begin with it. */
void swn_serve_party_begin(struct swn_serve_party *p, const struct swn_serve_party_needs *needs);
/* What the server may have in all, at most `most`. */
uint64_t swn_serve_party_bytes(const struct swn_serve_party *p, uint64_t most);

/* The connection, for epoll; -1: none. It changes with each connection. */
int swn_serve_party_socket(const struct swn_serve_party *p);
/* Reads what the daemon has sent. Afterwards the caller divides swn_serve_party_bytes anew, tells its engines, and then
 * calls swn_serve_party_say where swn_serve_party_has_to_say: that connects, confirms or refuses a lease, and reports
 * what the server needs. */
void swn_serve_party_hear(struct swn_serve_party *p, uint64_t now_ns);
int swn_serve_party_has_to_say(const struct swn_serve_party *p, uint64_t now_ns);
void swn_serve_party_say(struct swn_serve_party *p, const struct swn_serve_party_needs *needs, uint64_t now_ns);
/* When time alone gives swn_serve_party_say something to do; 0: never. */
uint64_t swn_serve_party_due(const struct swn_serve_party *p);
/* The needs have changed so that the daemon is to know it at once. */
void swn_serve_party_hurry(struct swn_serve_party *p);

/* What a user sets while the server runs. */
void swn_serve_party_wish(struct swn_serve_party *p, uint64_t cap_bytes, double urgency);

/* The socket of the daemon that rules, or that is waited for; NULL: none. */
const char *swn_serve_party_daemon(const struct swn_serve_party *p);

#endif
