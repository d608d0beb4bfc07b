/* skeleton/core/kernel_holds.h - memory of tensors that the kernel keeps beyond the call that it was given in.
 *
 * A pipe that was given pages (vmsplice), a socket's queue (MSG_ZEROCOPY) and a disk's (O_DIRECT) hold pages, not
 * addresses, and take the bytes out of them later. A page of the pool has another weight's bytes by then. So each
 * tensor that has a byte there becomes resident before the kernel is asked, and stays until it is freed: the kernel
 * does not tell for how long it has the pages. Such a tensor counts, beyond the budget if need be.
 */
#ifndef SWN_SKELETON_CORE_KERNEL_HOLDS_H
#define SWN_SKELETON_CORE_KERNEL_HOLDS_H

#include <stddef.h>

/* Whether [p, p + bytes) has a byte that may belong to a tensor of the engine. Async-signal-safe, and cheap. */
int swn_kernel_holds_ours(const void *p, size_t bytes);
/* The kernel is about to be given [p, p + bytes). Not 0: -errno, and the caller must not give it. No lock held. */
int swn_kernel_holds(const void *p, size_t bytes);

#endif
