/* skeleton/core/retire.h - the engine's reaction when the program asks the kernel for something that conflicts with it.
 */
#ifndef SWN_SKELETON_CORE_RETIRE_H
#define SWN_SKELETON_CORE_RETIRE_H

#include <stdint.h>

/* Called before the program locks its memory, mlockall(flags). If that will succeed, the engine retires: every weight
 * becomes resident, nothing leaves any more, PyTorch allocates new tensors, and reservations are released. */
void swn_retire_for_lock(int flags);

/* Called before the program limits its address space to `bytes`: the engine releases reserved, unused address space. If
 * that does not suffice the engine retires. Nothing in a child of vfork: the limit is its own, and the memory its
 * parent's. (What mlockall locks is that memory.) */
void swn_retire_for_space(uint64_t bytes);

#endif
