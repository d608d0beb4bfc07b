/* scheduler/serve/serve_queue.h - the requests that are in the server, and how far each is.
 *
 * An engine computes one layer group at a time, of any request that it has. What it runs next (serve_lane.h) is decided
 * when it has run what it was told to, so that is when another request may go first, and when one that nobody waits for
 * any more leaves. No I/O and no clock: times are arguments. For one thread.
 */
#ifndef SWN_SCHEDULER_SERVE_SERVE_QUEUE_H
#define SWN_SCHEDULER_SERVE_SERVE_QUEUE_H

#include <stddef.h>
#include <stdint.h>

#define SWN_ENGINES_MOST 8       /* the shared one, and those of quarantined models and of models in Python */
#define SWN_NO_ENGINE UINT32_MAX /* of a request that no engine runs itself: its steps are requests of their own */

enum swn_serve_state {
    SWN_SERVE_WAITS, /* for a turn, or for its model */
    SWN_SERVE_RUNS,  /* the engine was told to run its next group */
    SWN_SERVE_HOLDS, /* the engine has its outputs, and cannot be told yet where in the buffer they have room */
    SWN_SERVE_STORES /* the engine was told to store its outputs */
};

/* Part of a request. The queue's fields are prev and next. */
struct swn_serve_item {
    struct swn_serve_item *prev, *next; /* by arrival */
    uint64_t id;
    uint64_t arrived_ns, deadline_ns; /* 0: no deadline */
    uint64_t asked_ns; /* of a step that is needed: when the ensemble's request arrived, whose place it has; or 0 */
    double weight;     /* of its waiting time: scheduler/policies/lane.h */
    uint64_t job;      /* likewise: the ensemble's request that it is a step of; 0: none */
    uint64_t upstream; /* likewise: the request whose result says whether this one is needed; 0: it is */
    double probability;
    uint32_t model;
    unsigned engine;
    uint32_t group, groups; /* the one to run next; how many there are, 0: not known yet */
    enum swn_serve_state state;
    uint8_t is_loaded;  /* the engine has its model */
    uint8_t is_begun;   /* the engine knows it */
    uint8_t is_dropped; /* nobody waits for it: it leaves at the next edge of a group */
    /* It did not fit beside others, or an engine has crashed under it and others: it runs from its begin to its end
     * while no other has begun. */
    uint8_t is_alone;
};

/* Of the requests of clients: the model of the last one, and how many for it have come without one for another. */
struct swn_asked_in_a_row {
    uint32_t model;
    unsigned count;
};

struct swn_serve_queue {
    struct swn_serve_item *first, *last;
    size_t count, waiting; /* waiting: not begun */
    size_t early;          /* steps with an upstream: no client waits for them yet, so queue limits leave them out */
    /* While some more come together, such as the steps of an ensemble that can start at once, engines wait, so that the
     * lane chooses among all of them; and the engines that do. */
    unsigned coming;
    uint8_t is_due[SWN_ENGINES_MOST];
    struct swn_asked_in_a_row row;
};

void swn_serve_queue_add(struct swn_serve_queue *q, struct swn_serve_item *item);
void swn_serve_queue_remove(struct swn_serve_queue *q, struct swn_serve_item *item);
struct swn_serve_item *swn_serve_queue_find(const struct swn_serve_queue *q, uint64_t id);

/* The one behind request `id`, which may have left: numbers rise along the queue. A request that ends may take others
 * with it (steps of an ensemble), so who ends requests in a loop goes on from here. */
struct swn_serve_item *swn_serve_queue_after(const struct swn_serve_queue *q, uint64_t id);

/* 1: the engine was told to run a group, and has not answered. */
int swn_serve_queue_runs(const struct swn_serve_queue *q, unsigned engine);

/* 1: the engine has not answered to what it was told for the request. */
int swn_serve_item_is_told(const struct swn_serve_item *item);

/* One whose deadline has passed at `now`, and that is not dropped yet; or NULL. */
struct swn_serve_item *swn_serve_queue_late(const struct swn_serve_queue *q, uint64_t now_ns);
/* The next deadline of those that are not dropped; 0: there is none. */
uint64_t swn_serve_queue_deadline(const struct swn_serve_queue *q);

/* The engine is gone: whatever it knew begins anew. is_crash: while it did what it was told for requests; each of these
 * begins anew alone, so that it is seen whether it was the one. */
void swn_serve_queue_reset(struct swn_serve_queue *q, unsigned engine, int is_crash);

/* One with an upstream is needed now: it is as any other. */
void swn_serve_queue_settle(struct swn_serve_queue *q, struct swn_serve_item *item);
/* Of those with an upstream the least likely one that is not dropped, and of these the youngest; or NULL. */
struct swn_serve_item *swn_serve_queue_unlikely(const struct swn_serve_queue *q);

/* Steps of one item. begin: its next group is with the engine. ran: that group has ended, and the request has `groups`;
 * 1: it was the last one, so that its outputs are next; 0. */
void swn_serve_item_begin(struct swn_serve_queue *q, struct swn_serve_item *item);
int swn_serve_item_ran(struct swn_serve_item *item, uint32_t groups);
/* again: the engine has forgotten it, as it did not fit in memory beside others; it begins anew, alone. 0: it was alone
 * already, so it does not fit. */
int swn_serve_item_again(struct swn_serve_queue *q, struct swn_serve_item *item);

#endif
