/* blocks/memory/residency.h - the backing of a range's own address, and how it changes without the program noticing.
 *
 *   RESIDENT --spill--> FILE_BACKED --make_resident--> RESIDENT
 *
 * The address of a range always reads right: RESIDENT ranges have ordinary pages, FILE_BACKED ranges are a private
 * mapping of their extent in the spill file, or, chunk by chunk, of pool frames with the same bytes (published). A
 * store into a FILE_BACKED range makes a private copy of its page, and the engine looks for such copies in
 * /proc/self/pagemap before it uses the range's extent, or another frame, again. No caller ever gets another address
 * for a range's bytes.
 *
 * transition.h keeps stores that come during a change; publish.h maps frames at the addresses of their chunks.
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
    int spill_in_memory;           /* as on a tmpfs: a resident range keeps no place there */
    int pagemap_fd;                /* negative: pages cannot be inspected, nothing is ever streamed */
    uint64_t turns;                /* of extents, see blocks/memory/arena.h */
    uint64_t fork_epoch;           /* extents of an earlier epoch may be mapped by a child and are not punched out */
    size_t resident_bytes;         /* of RESIDENT ranges */
    uint64_t fallback_pages;       /* page-cache pages read through mappings */
    uint64_t recalls;              /* transitions undone by a store */
    uint64_t mappings;             /* made for frames */
    unsigned char *huge;           /* of the arena, for each SWN_HUGE: it may be one huge page */
};

/* -EBADMSG: the page map is readable, but does not tell which pages have been written (blocks/memory/pagemap_proof.h).
 */
int swn_residency_init(struct swn_residency *s, const struct swn_io *io, struct swn_arena *a);
void swn_residency_fini(struct swn_residency *s);

/* For memory that was just given to a range and has pages only in part: lets the kernel make huge pages of those that
 * lie within it (base/huge_pages.h). */
void swn_residency_fresh(struct swn_residency *s, struct swn_range *r);
/* Notes that the memory at `at` may be one huge page. */
void swn_residency_made_huge(struct swn_residency *s, uintptr_t at);
/* Drops the pages of arena memory that belongs to no range. The kernel keeps none of them as part of a huge page. */
void swn_residency_drop(struct swn_residency *s, uintptr_t at, size_t bytes);

/* Counts the present pages of r. -errno when the page map cannot be read. */
int swn_residency_scan(struct swn_residency *s, const struct swn_range *r, struct swn_pages *out);

/* The same for `bytes` of whole pages at addr, counting only private copies. */
int swn_residency_private(struct swn_residency *s, uintptr_t addr, size_t bytes, size_t *own);

/* RESIDENT -> FILE_BACKED: writes the bytes to the range's place in the spill file and drops the pages. The place stays
 * the range's when that becomes RESIDENT again. -EBUSY: pinned, or recalled by a store. */
int swn_residency_spill(struct swn_residency *s, struct swn_range *r);

/* Of a RESIDENT range: it has none from here on, and where it leaves again its bytes are written to a new one. */
void swn_residency_give_up_place(struct swn_residency *s, struct swn_range *r);
/* The same for all that have places in that file. 1: there were some. */
int swn_residency_give_up_places(struct swn_residency *s, const struct swn_extent_file *file);

/* The same in steps, for a caller that writes the bytes itself: _leave, and then either _left, when the bytes are at
 * `off` of the spill file, or _stay. Between the two the range reads as before, is EVICTING or, after a store,
 * EVICT_ABORTED, and no other function here may be called for it. -EBUSY of _left: a store came, and the range is
 * RESIDENT again. */
int swn_residency_leave(struct swn_residency *s, struct swn_range *r);
int swn_residency_left(struct swn_residency *s, struct swn_range *r, uint64_t off);
void swn_residency_stay(struct swn_range *r);
/* Replaces the range's bytes by an extent of an immutable file: nothing is read, and no frame has bytes of the range
 * any more. No operator may be using it. -EBUSY: pinned. On error nothing has changed. */
int swn_residency_register(struct swn_residency *s, struct swn_range *r, struct swn_extent_file *file, uint64_t off);

/* For a range that is larger than the budget, and so cannot become resident: maps its extent in the spill file for
 * writing, so that stores go to the file through the page cache, which the kernel can always reclaim. A RESIDENT range
 * must have no pages yet. -EBUSY: a child or a store shares the extent, or there are private copies. */
int swn_residency_share(struct swn_residency *s, struct swn_range *r);
/* Ends the shared mapping: all written bytes are on the disk and out of the cache, and the mapping is private again. On
 * an error with r->shared still set nothing has changed. With r->shared unset the disk has not taken the bytes:
 * whatever the cache still has of them is gone at any moment, so nothing may be computed with the range. */
int swn_residency_unshare(struct swn_residency *s, struct swn_range *r);
/* Ends the shared mapping where nothing has been stored yet: the caller writes to the extent itself. */
int swn_residency_take_over(struct swn_residency *s, struct swn_range *r);

/* FILE_BACKED -> RESIDENT: ordinary pages with the same bytes; the extent becomes the range's place in the spill file,
 * or is dropped, and no frame has a part of the range any more. pages: the range's new bytes, in private memory of the
 * same size, which is moved to its address: a thread that reads meanwhile finds the old bytes or the new ones. On an
 * error `pages` still exist. */
int swn_residency_make_resident(struct swn_residency *s, struct swn_range *r, void *pages);

/* Maps the extent again where no frame is mapped, which drops cache pages. -EBUSY: a store came, or private copies
 * exist; the range is unchanged (use swn_residency_make_resident). */
int swn_residency_remap(struct swn_residency *s, struct swn_range *r);

/* Ends a range: drops its extent and frees it in the arena; warm: keeps its ordinary pages in place. No frame has bytes
 * of it any more. */
void swn_residency_free(struct swn_residency *s, struct swn_range *r, int warm);
/* Makes ordinary memory of addresses that ended ranges left mapped, so that they can be used again. Unmapping costs as
 * much for a hundred adjacent tensors as for one, and a program frees a whole checkpoint at once: so the caller does
 * this later, for many ranges together. */
void swn_residency_tidy(struct swn_residency *s);

/* In a forked child: addresses of mapped frames are holes there, and become a mapping of their extent. The pool belongs
 * to the parent, and the child's copy is destroyed when this returns. */
void swn_residency_child(struct swn_residency *s);

#endif
