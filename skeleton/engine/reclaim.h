/* skeleton/engine/reclaim.h - memory that subsystems hold and can do without (struct swn_reclaimer), all of it
 * together.
 *
 * The engine's lock is held, but for swn_reclaim_bytes.
 */
#ifndef SWN_SKELETON_ENGINE_RECLAIM_H
#define SWN_SKELETON_ENGINE_RECLAIM_H

#include <stddef.h>

struct swn_engine;

/* Bytes that count as resident. */
size_t swn_reclaim_bytes(void);
/* Gives back at once the memory that no operator uses now. Returns the bytes. */
size_t swn_reclaim_trim(struct swn_engine *e);
/* Asks for `bytes`. 1: some go soon, and e->changed is signalled then. */
int swn_reclaim_ask(struct swn_engine *e, size_t bytes);
/* Waits until the memory that has to go for `bytes` has gone, as long as some goes. May release the lock. */
void swn_reclaim_make_way(struct swn_engine *e, size_t bytes);

#endif
