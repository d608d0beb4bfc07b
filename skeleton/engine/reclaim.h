/* skeleton/engine/reclaim.h - the optional memory of all subsystems together (struct swn_reclaimer).
 *
 * The engine's lock is held, except in swn_reclaim_bytes.
 */
#ifndef SWN_SKELETON_ENGINE_RECLAIM_H
#define SWN_SKELETON_ENGINE_RECLAIM_H

#include <stddef.h>

struct swn_engine;

/* Bytes that count as resident. */
size_t swn_reclaim_bytes(void);
/* Frees memory that no operator uses now, at once. Returns the bytes. */
size_t swn_reclaim_trim(struct swn_engine *e);
/* Asks for `bytes`. 1: some are freed soon, and e->changed is signalled then. */
int swn_reclaim_ask(struct swn_engine *e, size_t bytes);
/* Waits until enough memory has been freed for `bytes`, as long as some is freed. May release the lock. */
void swn_reclaim_make_way(struct swn_engine *e, size_t bytes);

#endif
