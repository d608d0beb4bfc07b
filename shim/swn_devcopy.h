/* swn_devcopy.h - what those who need memory of the processor's ask the devices for: copies of weights in pinned
 * memory, which are there only as long as nobody else has a use for the room. */
#ifndef SWN_DEVCOPY_H
#define SWN_DEVCOPY_H

#include <stddef.h>

#include "swn_stats.h"

struct swn_engine;

/* So many bytes are wanted. 1: there are copies, which will go soon; e->changed says so. Waits for nobody. Engine lock
 * held, and let go of by those who wait. */
int swn_devcopy_ask(struct swn_engine *e, size_t bytes);
/* A tensor of so many bytes is to be made: waits for what has to go for it, at most for a second. The same. */
void swn_devcopy_vacate(struct swn_engine *e, size_t bytes);
void swn_devcopy_stats(struct swn_stats *out);
void swn_devcopy_fork_child(void);

#endif
