/* skeleton/core/held_pages.h - tensors whose pages, not addresses, are used by a device's driver or by the kernel.
 *
 * A tensor that is held is resident with all of its bytes, does not leave, has nothing else mapped at its address, and
 * counts as nonweight bytes. A tensor that is freed meanwhile keeps its place until it is released, so that no other
 * tensor gets memory that the driver or the kernel may still write. Engine lock held, but for the first. In a forked
 * child nothing is held.
 */
#ifndef SWN_SKELETON_CORE_HELD_PAGES_H
#define SWN_SKELETON_CORE_HELD_PAGES_H

#include <stdint.h>

#include "skeleton/engine/tensor.h"

struct swn_engine;

/* Whether [lo, hi) has a byte that may belong to a tensor of the engine. */
int swn_held_concerns_us(struct swn_engine *e, uintptr_t lo, uintptr_t hi);
/* Calls `what` for each tensor that has a byte in [lo, hi), until one returns an error, which is returned. */
int swn_held_each(struct swn_engine *e, uintptr_t lo, uintptr_t hi,
                  int (*what)(struct swn_engine *, struct swn_range *));
/* From here on nothing of r leaves, is cut, or gets other memory. r is no weight of the order any more, as a plan could
 * move it. Returns 0. */
int swn_held_hold(struct swn_engine *e, struct swn_range *r);
/* Makes the held range resident. 0 or -errno. May release the lock. */
int swn_held_make_resident(struct swn_engine *e, struct swn_range *r);
/* Undoes one hold. Returns 0. */
int swn_held_release(struct swn_engine *e, struct swn_range *r);
/* Called when a tensor is freed. 1: it stays, as something of it is held. */
static inline int swn_held_keeps(struct swn_range *r)
{
    swn_tensor_of(r)->orphaned = swn_tensor_of(r)->registered > swn_tensor_of(r)->held;
    return swn_tensor_of(r)->orphaned;
}
void swn_held_fork_child(struct swn_engine *e);

#endif
