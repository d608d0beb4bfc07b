/* skeleton/engine/access_order.h - the order in which a program reads its weights, learned while it runs.
 *
 * A weight's successor is remembered by the two weights read last: (a, b) -> c, the newest observation winning. A chain
 * of such steps from a thread's position predicts what comes next, across the end of a pass into the next one, for any
 * number of models and threads at once, and after a branch is back on the right track two weights later. Orders belong
 * to the process; a cursor (one per thread) is only a position in them.
 *
 * Weights are named by ids that are never reused (0: none). Not thread-safe.
 */
#ifndef SWN_SKELETON_ENGINE_ACCESS_ORDER_H
#define SWN_SKELETON_ENGINE_ACCESS_ORDER_H

#include <stddef.h>
#include <stdint.h>

struct swn_access_order;

struct swn_cursor {
    uint32_t before, at; /* the two weights read last */
    uint32_t anchor;     /* first weight that this thread was seen reading; reading it again ends a pass */
    uint64_t hits, run;  /* right predictions, in all and in a row */
    uint64_t misses;
    uint64_t passes;
};

int swn_access_order_create(struct swn_access_order **out);
void swn_access_order_destroy(struct swn_access_order *o);

/* The thread at `c` reads `weight`: learns the step, moves the cursor. 1 when the weight was predicted, else 0. */
int swn_access_order_record(struct swn_access_order *o, struct swn_cursor *c, uint32_t weight);

/* The weight that follows (before, at), or 0 where that is unknown. */
uint32_t swn_access_order_next(const struct swn_access_order *o, uint32_t before, uint32_t at);

/* The cycle of a cursor: follows predictions from it until they return to it; fills weights[], if it is not NULL, in
 * order, from the weight after `at` to `at`. Its length, or 0 when the chain breaks or exceeds `max`. */
size_t swn_access_order_cycle(const struct swn_access_order *o, const struct swn_cursor *c, uint32_t *weights,
                              size_t max);

/* Grows whenever a prediction changes: as long as it stays, so do the cycles. */
uint64_t swn_access_order_changes(const struct swn_access_order *o);

/* The weight's range is gone. Steps that mention it are dropped when the table is next rebuilt. */
void swn_access_order_forget(struct swn_access_order *o, uint32_t weight);

#endif
