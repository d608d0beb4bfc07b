/* skeleton/core/kernel_holds.h - memory of tensors that the kernel keeps beyond the end of a system call.
 *
 * A pipe (vmsplice), a socket's queue (MSG_ZEROCOPY) and a disk's queue (O_DIRECT) hold pages, not addresses, and read
 * their bytes later. By then a page of the pool has another weight's bytes. So each tensor that has a byte there
 * becomes resident before the system call, and stays until it is freed: the kernel does not tell how long it has the
 * pages. Such a tensor counts, beyond the budget if need be.
 */
#ifndef SWN_SKELETON_CORE_KERNEL_HOLDS_H
#define SWN_SKELETON_CORE_KERNEL_HOLDS_H

#include <stddef.h>

/* Whether [p, p + bytes) has a byte that may belong to a tensor of the engine. Async-signal-safe, and cheap. */
int swn_kernel_holds_ours(const void *p, size_t bytes);
/* The kernel is about to get [p, p + bytes). Not 0: -errno, and the caller must not make the call. No lock held. */
int swn_kernel_holds(const void *p, size_t bytes);

#endif
