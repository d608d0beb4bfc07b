/* skeleton/core/prefault.h - pages for a tensor while an operator writes all of it.
 *
 * A model under construction fills its weights with numbers, and under a budget they get fresh pages each time: the
 * operator takes a fault for each, 0.4 ms a MiB on virtual machines. A thread of the library makes the kernel allocate
 * them, in pieces, ahead of the operator, which hardly ever catches up. The bytes count already. The operator finds the
 * same as without the thread: zeros, or its own numbers.
 *
 * One tensor at a time: an operator that begins meanwhile takes its faults itself. Thread-safe.
 */
#ifndef SWN_SKELETON_CORE_PREFAULT_H
#define SWN_SKELETON_CORE_PREFAULT_H

#include <stddef.h>
#include <stdint.h>

struct swn_prefault;

/* Begins with [at, at+bytes), whole pages of private memory that stay so until swn_prefault_end. *p is made when it is
 * NULL. 1, or 0: the pages come as they are touched. */
int swn_prefault_begin(struct swn_prefault **p, uintptr_t at, size_t bytes);
/* To be called after swn_prefault_begin returned 1 for this `at`. After the return the thread makes no more pages of
 * it. */
void swn_prefault_end(struct swn_prefault *p, uintptr_t at);
/* In a forked child: there is no thread. */
void swn_prefault_fork_child(struct swn_prefault **p);

#endif
