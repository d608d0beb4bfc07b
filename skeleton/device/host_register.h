/* skeleton/device/host_register.h - tensors whose memory the program itself registers with a device's driver
 * (cudaHostRegister).
 *
 * The driver takes the pages that are behind the addresses at that moment, and the device uses these pages from then
 * on, whatever is mapped at the addresses later. So before the driver is called, every tensor that has a byte there
 * becomes resident as a whole, and until it is unregistered it does not leave, and nothing else is mapped at its
 * address; it counts, beyond the budget if need be (skeleton/core/held_pages.h). A tensor that is freed meanwhile keeps
 * its place until then, so that no other tensor gets memory that the device may still write.
 *
 * Thread-safe. In a forked child nothing is registered.
 */
#ifndef SWN_SKELETON_DEVICE_HOST_REGISTER_H
#define SWN_SKELETON_DEVICE_HOST_REGISTER_H

#include <stddef.h>

struct swn_registration;

/* The driver is about to register [p, p + bytes). *out, which may be NULL, is for swn_registered_end, which has to
 * follow. Not 0: -errno, and the caller must not call the driver, as the tensors would not stay in the pages that it
 * takes. No lock held. */
int swn_registered_begin(const void *p, size_t bytes, struct swn_registration **out);
/* The driver has registered them, or has refused. */
void swn_registered_end(struct swn_registration *r, int taken);

/* 1: the memory at p, which the program asks the driver to unregister, was registered by the library for a weight that
 * the device shares. */
int swn_registered_by_us(const void *p);
/* The driver has unregistered the memory at p. No lock held. */
void swn_registered_gone(const void *p);

/* In a forked child, which cannot use its parent's devices. */
void swn_registered_fork_child(void);

#endif
