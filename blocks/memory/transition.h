/* blocks/memory/transition.h - the steps by which what stands behind an address changes, for residency.c and publish.c,
 * and the fault handler's part in them.
 *
 * A range that leaves is read-only (EVICTING) while its bytes are secured. A store that comes in that time faults, and
 * swn_residency_trap, called by the SIGSEGV handler, sends the range back (EVICT_ABORTED). Between the last look and
 * the new mapping (EVICT_COMMIT) a store waits in the handler: the step takes microseconds and ends in a writable
 * mapping either way. So no store is ever lost, and none ever fails.
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

/* RESIDENT or FILE_BACKED -> EVICTING: from here on a store into the range faults. On an error swn_transition_undo is
 * to follow as well. */
int swn_transition_begin(struct swn_range *r);
/* EVICTING -> EVICT_COMMIT: from here on a store waits, and finds what is mapped next. -EBUSY: a store sent the range
 * back. */
int swn_transition_commit(struct swn_range *r);
/* Both steps for bytes of a range that its extent has already; *pages: what was there. -EBUSY also for private copies.
 */
int swn_transition_begin_clean(struct swn_residency *s, struct swn_range *r, uintptr_t addr, size_t bytes,
                               struct swn_pages *pages);
/* Ends what fault handlers do to the range: waits for the one that sends it back, and none begins to. */
void swn_transition_stop(struct swn_range *r);
/* These bytes of the range are writable again, and it is in `state`. */
void swn_transition_undo(struct swn_range *r, uintptr_t addr, size_t bytes, int state);
int swn_transition_protect(uintptr_t addr, size_t bytes, int prot);

/* Maps `size` bytes of the file at addr in place of what is there, in one mmap: a reader sees the old pages or the new
 * ones, never a hole. how: MAP_PRIVATE or MAP_SHARED. */
int swn_transition_map(struct swn_residency *s, const struct swn_range *r, uintptr_t addr, size_t size, int how,
                       const struct swn_extent_file *file, uint64_t off);
/* Ordinary pages, which are zero, in place of what is there. */
int swn_transition_map_anonymous(struct swn_residency *s, uintptr_t addr, size_t bytes);

/* Before the pages of [at, end) go: what stays of the huge pages at its ends is small from now on. */
void swn_transition_divide_huge(struct swn_residency *s, uintptr_t at, uintptr_t end);
/* After they have gone. */
void swn_transition_forget_huge(struct swn_residency *s, uintptr_t at, uintptr_t end);

/* For the fault handler; async-signal-safe. 0: addr is not in a range. Else the instruction is to be repeated; 2: the
 * call has repaired the cause of the fault, or waited for it to go; 1: it found nothing to repair. */
int swn_residency_trap(struct swn_residency *s, uintptr_t addr);

#endif
