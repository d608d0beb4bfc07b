/* blocks/memory/residency.h - what stands behind a range's own address, and how that changes without the program
 * noticing.
 *
 *   RESIDENT --spill--> FILE_BACKED --make_resident--> RESIDENT
 *
 * The address of a range always reads right: RESIDENT ranges have ordinary pages, FILE_BACKED ranges are a private
 * mapping of their extent in the spill file, or, chunk by chunk, of pool frames with the same bytes (published). A
 * store into a FILE_BACKED range makes a private copy of its page, which is found by /proc/self/pagemap before the
 * range's extent, or another frame, is believed again. No caller ever gets another address for a range's bytes.
 *
 * How a store that comes while this changes is kept is in transition.h; how frames come to the addresses of their
 * chunks in publish.h.
 *
 * All functions need the caller's lock. Errors are -errno.
 */
#ifndef SWN_BLOCKS_MEMORY_RESIDENCY_H
#define SWN_BLOCKS_MEMORY_RESIDENCY_H

#include <stddef.h>
#include <stdint.h>

#include "blocks/memory/arena.h"
#include "base/io.h"
#include "blocks/memory/frame_pool.h"
#include "blocks/memory/pagemap.h"
#include "blocks/memory/spill_file.h"

struct swn_residency {
    const struct swn_io *io;
    struct swn_arena *arena;       /* borrowed */
    struct swn_pool *pool;         /* borrowed; may be NULL until something is fetched */
    struct swn_extent_file *spill; /* borrowed; NULL: nothing can be spilled */
    int pagemap_fd;                /* negative: pages cannot be inspected, nothing is ever streamed */
    uint64_t turns;                /* of extents, see blocks/memory/arena.h */
    uint64_t fork_epoch;           /* extents of an earlier epoch may be mapped by a child and are not punched out */
    size_t resident_bytes;         /* of RESIDENT ranges */
    uint64_t fallback_pages;       /* page-cache pages read through mappings */
    uint64_t recalls;              /* transitions undone by a store */
    uint64_t mappings;             /* made for frames */
    unsigned char *huge;           /* of the arena, for each SWN_HUGE: it may be one huge page */
};

/* -EBADMSG: the page map can be read and does not tell which pages have been written (blocks/memory/pagemap_proof.h).
 */
int swn_residency_init(struct swn_residency *s, const struct swn_io *io, struct swn_arena *a);
void swn_residency_fini(struct swn_residency *s);

/* Memory that has been given to a range, not all of which has pages: those within it may be huge (base/huge_pages.h).
 */
void swn_residency_fresh(struct swn_residency *s, struct swn_range *r);
/* Notes that the memory at `at` may be one huge page. */
void swn_residency_made_huge(struct swn_residency *s, uintptr_t at);
/* Gives back the pages of arena memory that belongs to no range. The kernel keeps none of them as part of a huge
 * page. */
void swn_residency_drop(struct swn_residency *s, uintptr_t at, size_t bytes);

/* Counts the pages of r that are present. -errno when the kernel does not tell. */
int swn_residency_scan(struct swn_residency *s, const struct swn_range *r, struct swn_pages *out);

/* The same for `bytes` of whole pages at addr, of which only private copies are counted. */
int swn_residency_private(struct swn_residency *s, uintptr_t addr, size_t bytes, size_t *own);

/* RESIDENT -> FILE_BACKED: writes the bytes out and lets the pages go. -EBUSY: pinned, or recalled by a store. */
int swn_residency_spill(struct swn_residency *s, struct swn_range *r);

/* The same in steps, for a caller that writes the bytes itself: _leave, and then either _left, when they are at `off`
 * of the spill file, or _stay. Between the two the range reads as ever, is EVICTING or, after a store, EVICT_ABORTED,
 * and nothing else here may be asked for it. -EBUSY of _left: a store came, and the range is RESIDENT again. */
int swn_residency_leave(struct swn_residency *s, struct swn_range *r);
int swn_residency_left(struct swn_residency *s, struct swn_range *r, uint64_t off);
void swn_residency_stay(struct swn_range *r);
/* Whatever the range held is replaced by an extent of an immutable file: nothing is read, and no frame has bytes of it
 * any more. No operator may be using it. -EBUSY: pinned. On error the range is as it was. */
int swn_residency_register(struct swn_residency *s, struct swn_range *r, struct swn_extent_file *file, uint64_t off);

/* For a range that is larger than the budget, and so cannot become resident: maps its extent in the spill file for
 * writing, so that stores go to the file by way of the page cache, which the kernel can always reclaim. A RESIDENT
 * range must have no pages yet. -EBUSY: the extent is not ours alone (a child or a store has it), or there are private
 * copies. */
int swn_residency_share(struct swn_residency *s, struct swn_range *r);
/* Ends the shared mapping: everything written is on the disk and out of the cache, and the mapping is a private one
 * again. */
int swn_residency_unshare(struct swn_residency *s, struct swn_range *r);
/* Ends the shared mapping where nothing has been stored yet: the caller writes to the extent itself. */
int swn_residency_take_over(struct swn_residency *s, struct swn_range *r);

/* FILE_BACKED -> RESIDENT: ordinary pages with the same bytes; the extent is dropped, and frames have no part of it any
 * more. pages: what the range is to hold instead, as many bytes of private memory, which is moved to its address: a
 * thread that reads finds the old bytes or the new ones. On an error `pages` are still there. */
int swn_residency_make_resident(struct swn_residency *s, struct swn_range *r, void *pages);

/* Maps the extent again where no frame is mapped, which drops cache pages. -EBUSY: a store came, or private copies
 * exist; the range is as it was (use swn_residency_make_resident). */
int swn_residency_remap(struct swn_residency *s, struct swn_range *r);

/* Ends a range's life: drops its extent and gives it back to the arena; warm: leave its pages in place where they are
 * ordinary ones. No frame has bytes of it any more. */
void swn_residency_free(struct swn_residency *s, struct swn_range *r, int warm);
/* Makes ordinary memory of what ranges that were mapped have left, so that it can be used again. A mapping costs as
 * much for a hundred tensors in a row as for one, and a model's checkpoint is freed in one go: so the caller does it
 * later, for many at once. */
void swn_residency_tidy(struct swn_residency *s);

/* In a forked child: addresses at which a frame was mapped are holes now, and become a mapping of their extent. The
 * pool belongs to the parent, and the child's is destroyed when this returns. */
void swn_residency_child(struct swn_residency *s);

#endif
