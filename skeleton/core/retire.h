/* skeleton/core/retire.h - what the engine does where the program asks the kernel for something that the engine stands
 * in the way of. */
#ifndef SWN_SKELETON_CORE_RETIRE_H
#define SWN_SKELETON_CORE_RETIRE_H

#include <stdint.h>

/* Before the program locks its memory, mlockall(flags). Where that will succeed, the engine retires: every weight comes
 * back into memory, nothing leaves any more, new tensors are PyTorch's own, and what is reserved is given back. */
void swn_retire_for_lock(int flags);

/* Before the program limits its address space to `bytes`: the engine gives back address space that is reserved and not
 * used. Where that is not enough the engine retires. */
void swn_retire_for_space(uint64_t bytes);

#endif
