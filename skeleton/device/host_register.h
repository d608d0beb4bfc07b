/* skeleton/device/host_register.h - tensors whose memory the program itself registers with a device's driver
 * (cudaHostRegister).
 *
 * The driver takes the pages that are behind the addresses at that moment, and the device uses them from then on,
 * whatever is behind the addresses later. So before the driver is asked, every tensor that has a byte there comes home,
 * with all of its pieces, and until it has been unregistered it neither leaves nor is anything else mapped where it is;
 * what it takes counts, beyond the budget if need be. A tensor that is freed meanwhile keeps its place until then, so
 * that no other tensor gets memory that the device may still write.
 *
 * Thread-safe. In a forked child nothing is registered, as it cannot use its parent's devices.
 */
#ifndef SWN_SKELETON_DEVICE_HOST_REGISTER_H
#define SWN_SKELETON_DEVICE_HOST_REGISTER_H

#include <stddef.h>

#include "skeleton/core/engine_internal.h"

struct swn_registration;

/* The driver is about to be asked for [p, p + bytes). *out, which may be NULL, is for swn_registered_end, which has to
 * follow. Not 0: -errno, and it must not be asked, as its pages would not be those that the tensors stay in. No lock
 * held. */
int swn_registered_begin(const void *p, size_t bytes, struct swn_registration **out);
/* The driver has them now, or has refused. */
void swn_registered_end(struct swn_registration *r, int taken);

/* What the program asks the driver to let go of is not the program's, but was registered by us for a weight that the
 * device shares. */
int swn_registered_by_us(const void *p);
/* The driver has let go of what was registered at p. No lock held. */
void swn_registered_gone(const void *p);

/* The steps of that, for whoever else has pages of tensors (skeleton/core/kernel_holds.c). Engine lock held, but for
 * the first.
 */
int swn_registered_concerns_us(struct swn_engine *e, uintptr_t lo, uintptr_t hi);
/* Calls `what` for each tensor that has a byte in [lo, hi), until one returns an error, which is returned. */
int swn_registered_each(struct swn_engine *e, uintptr_t lo, uintptr_t hi,
                        int (*what)(struct swn_engine *, struct swn_range *));
/* From here on nothing of it leaves, is cut, or has other memory put in its place. It is no weight of the order, whose
 * plan would have a say in that, and counts as what is no weight does. 0. */
int swn_registered_hold(struct swn_engine *e, struct swn_range *r);
/* What is held comes home. 0 or -errno. May release the lock. */
int swn_registered_home(struct swn_engine *e, struct swn_range *r);
/* Undoes one hold. 0. */
int swn_registered_release(struct swn_engine *e, struct swn_range *r);

/* A tensor is freed. 1: not yet, something of it is registered. Engine lock held. */
int swn_registered_keeps(struct swn_range *r);
void swn_registered_fork_child(struct swn_engine *e);

#endif
