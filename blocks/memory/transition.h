/* blocks/memory/transition.h - the steps by which the backing of an address changes, for residency.c and publish.c, and
 * the fault handler's part in them.
 *
 * A range that leaves is read-only (EVICTING) while its bytes are secured. A store that comes in that time faults, and
 * swn_residency_trap, called by the SIGSEGV handler, sends the range back (EVICT_ABORTED). Between the last check and
 * the new mapping (EVICT_COMMIT) a store waits in the handler: the step takes microseconds and ends in a writable
 * mapping either way. So no store is ever lost, and none ever fails. The thread that ends the transition holds its
 * signals from before EVICT_COMMIT on: a handler of the program that stores into the range would wait for itself.
 *
 * The caller that begins a transition ends it: with a new mapping and a state, or with swn_transition_undo.
 *
 * All functions but swn_residency_trap need the caller's lock. Errors are -errno.
 */
#ifndef SWN_BLOCKS_MEMORY_TRANSITION_H
#define SWN_BLOCKS_MEMORY_TRANSITION_H

#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>

#include "blocks/memory/residency.h"

static inline int swn_state_of(const struct swn_range *r)
{
    return atomic_load(&((struct swn_range *)(uintptr_t)r)->state);
}

/* RESIDENT or FILE_BACKED -> EVICTING: from here on a store into the range faults. After an error the caller calls
 * swn_transition_undo, too. */
int swn_transition_begin(struct swn_range *r);
/* EVICTING -> EVICT_COMMIT: from here on a store waits for the next mapping. -EBUSY: a store sent the range back. */
int swn_transition_commit(struct swn_range *r);
/* Both steps for bytes of a range that its extent has already; *pages: the pages that were present. -EBUSY also for
 * private copies. */
int swn_transition_begin_clean(struct swn_residency *s, struct swn_range *r, uintptr_t addr, size_t bytes,
                               struct swn_pages *pages);
/* Ends the work of fault handlers on the range: waits for one that sends the range back, and lets no other begin. */
void swn_transition_stop(struct swn_range *r);
/* Makes these bytes of the range writable again, and sets `state`. */
void swn_transition_undo(struct swn_range *r, uintptr_t addr, size_t bytes, int state);
int swn_transition_protect(uintptr_t addr, size_t bytes, int prot);

/* Maps `size` bytes of the file at addr in place of the present mapping, in one mmap: a reader sees the old pages or
 * the new ones, never a hole. how: MAP_PRIVATE or MAP_SHARED. */
int swn_transition_map(struct swn_residency *s, const struct swn_range *r, uintptr_t addr, size_t size, int how,
                       const struct swn_extent_file *file, uint64_t off);
/* Maps ordinary pages, which are zero, in place of the present mapping. */
int swn_transition_map_anonymous(struct swn_residency *s, uintptr_t addr, size_t bytes);

/* Before the pages of [at, end) go: splits the huge pages at both ends, whose rest is small from now on. */
void swn_transition_divide_huge(struct swn_residency *s, uintptr_t at, uintptr_t end);
/* After these pages have gone. */
void swn_transition_forget_huge(struct swn_residency *s, uintptr_t at, uintptr_t end);

/* For the fault handler; async-signal-safe. 0: addr is not in a range. Else the instruction is to be repeated; 2: the
 * call has removed the cause of the fault, or waited until it was gone; 1: it found nothing to repair. */
int swn_residency_trap(struct swn_residency *s, uintptr_t addr);

#endif
