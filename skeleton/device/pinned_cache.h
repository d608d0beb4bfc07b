/* skeleton/device/pinned_cache.h - what those who need memory of the processor's ask the devices for: copies of weights
 * in pinned memory, which are there only as long as nobody else has a use for the room. They are resident, and nobody's
 * need.
 *
 * The engine's lock is held, and let go of by those who wait.
 */
#ifndef SWN_SKELETON_DEVICE_PINNED_CACHE_H
#define SWN_SKELETON_DEVICE_PINNED_CACHE_H

#include <stddef.h>

#include "scheduler/protocol/stats.h"

struct swn_engine;
struct swn_op;

/* Called when room is wanted: those who bring weights to devices look whether they can give some. Set once, before any
 * copy is made; any lock but theirs may be held. */
extern void (*swn_pinned_cache_tell)(void);

/* All of them. Needs no lock. */
size_t swn_pinned_cache_bytes(void);
/* So many bytes are wanted. 1: there are copies, which will go soon; e->changed says so. 0: there are none, or their
 * device has not come to it for a while. Waits for nobody. */
int swn_pinned_cache_ask(struct swn_engine *e, size_t bytes);
/* So many bytes are to come into being, or to become resident: waits until what has to go for them has gone, as long as
 * something goes. */
void swn_pinned_cache_vacate(struct swn_engine *e, size_t bytes);
/* The same for the weights that the operator will write. */
void swn_pinned_cache_vacate_for(struct swn_engine *e, const struct swn_op *op);
void swn_pinned_cache_stats(struct swn_stats *out);
void swn_pinned_cache_fork_child(void);

#endif
