/* skeleton/device/pinned_cache.h - copies of weights in pinned memory of the processor, which stay only as long as no
 * other part of the engine needs the room. They count as resident, but not as memory that the process needs.
 *
 * The engine's lock is held; functions that wait release it meanwhile.
 */
#ifndef SWN_SKELETON_DEVICE_PINNED_CACHE_H
#define SWN_SKELETON_DEVICE_PINNED_CACHE_H

#include <stddef.h>

#include "scheduler/protocol/stats.h"

struct swn_engine;
struct swn_op;

/* Called when room is wanted: wakes the swappers, which look for copies to give up. Set once, before any copy is made;
 * any lock except a swapper's may be held. */
extern void (*swn_pinned_cache_tell)(void);

/* Bytes of all copies. Needs no lock. */
size_t swn_pinned_cache_bytes(void);
/* Asks for `bytes`. 1: there are copies, and some leave soon; e->changed is signalled then. 0: there are none, or their
 * device has not given any up for a while. Does not wait. */
int swn_pinned_cache_ask(struct swn_engine *e, size_t bytes);
/* `bytes` are about to be allocated, or to become resident: waits until enough copies have left for them, as long as
 * copies leave. */
void swn_pinned_cache_vacate(struct swn_engine *e, size_t bytes);
/* The same for the weights that the operator will write. */
void swn_pinned_cache_vacate_for(struct swn_engine *e, const struct swn_op *op);
void swn_pinned_cache_stats(struct swn_stats *out);
void swn_pinned_cache_fork_child(void);

#endif
