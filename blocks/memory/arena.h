/* blocks/memory/arena.h - one reserved range of addresses, and the tensors that live in it.
 *
 * Tensors of at least SWN_GRANULE bytes get page-aligned ranges, in allocation order, so that the parameters of a
 * model lie in layer order. Address space is handed out in granules; memory is counted in pages. A freed range may keep
 * its pages ("warm"): the next tensor that fits takes them over without a fault and without zeroing.
 *
 * Pure bookkeeping: the arena reserves addresses, and opens them when it first hands them out
 * (blocks/memory/reserve.h), but never touches, maps or drops a page itself; the caller does that, as `swn_arena_*`
 * says. Not thread-safe, except swn_arena_find, which may race with all other functions (a signal handler uses it) and
 * then sees the old or the new owner of an address. Errors are -errno. Range descriptors belong to the arena and are
 * never freed, so that a racing reader never follows a dangling pointer.
 */
#ifndef SWN_BLOCKS_MEMORY_ARENA_H
#define SWN_BLOCKS_MEMORY_ARENA_H

#include <stddef.h>
#include <stdint.h>

#include "base/page.h"

#define SWN_GRANULE ((size_t)65536)

static inline size_t swn_round_up(size_t n, size_t to)
{
    return (n + to - 1) / to * to;
}

struct swn_extent_file;

/* The backing of a range's own address. Only the holder of the engine's lock changes it, except for the two hand-shakes
 * with the fault handler (see blocks/memory/residency.h). */
enum swn_state {
    SWN_FREE = 0,
    SWN_RESIDENT,       /* ordinary private pages */
    SWN_FILE_BACKED,    /* private mapping of an extent; pages written since are private copies */
    SWN_EVICTING,       /* read-only while its bytes are being secured; a store sends it back */
    SWN_EVICT_COMMIT,   /* bytes secured, mapping about to change: a store waits for a moment */
    SWN_EVICT_ABORTING, /* a store came while EVICTING; its thread is making the range writable again */
    SWN_EVICT_ABORTED,
};

struct swn_range {
    uintptr_t addr;
    size_t len;  /* requested bytes */
    size_t size; /* counted bytes: pages that may be resident when RESIDENT */
    size_t span; /* address space, a multiple of SWN_GRANULE */
    _Atomic int state;
    uint32_t id;                         /* never reused while the process lives; 0 when free */
    uint64_t place;                      /* the offset of its addresses [place, place + span) in the arena */
    struct swn_mapped_file *mapped_file; /* the mapping that the range is part of, or NULL: the arena's own memory */
    int pins;      /* running operators and system calls that may write the range: it must not leave */
    int receiving; /* of these, system calls: the kernel must not find it read-only, not for a moment */
    int filling;   /* skeleton/tiling/fill.c writes its extent, and its mapping does not show these bytes yet */

    /* its bytes on disk, valid while FILE_BACKED */
    struct swn_extent_file *file;
    uint64_t extent;
    uint64_t extent_epoch; /* fork epoch in which the extent was written */
    uint64_t extent_turn;  /* changes with the extent's bytes, even if the place stays the same */
    /* of a RESIDENT range: the file with the extent that it owns, to be written there again; or NULL */
    struct swn_extent_file *reserved_extent;

    int shared;      /* FILE_BACKED, and stores at addr go straight into the extent (see swn_residency_share) */
    int foreign_map; /* the mapping at addr is not the arena's own anonymous one */

    int weight;        /* index in the learned order, or -1; the caller's field */
    int planned_place; /* swn_region_alloc made it at a chosen place */

    struct swn_range *prev, *next; /* all live ranges, oldest first */

    /* The caller's data: `tensor_bytes` of swn_arena_create, zero when the range begins. */
    _Alignas(16) unsigned char tensor[];
};

struct swn_arena;

/* Reserves `bytes` of address space (halving down to 1/64 of that when the system refuses). tensor_bytes: the caller's
 * data of each range. 0 or -errno. */
int swn_arena_create(struct swn_arena **out, size_t bytes, size_t tensor_bytes);
void swn_arena_destroy(struct swn_arena *a);
uintptr_t swn_arena_lo(const struct swn_arena *a);
uintptr_t swn_arena_hi(const struct swn_arena *a);

/* How far, in bytes from the beginning, its address space has ever been given to tensors, regions and mapped files. */
size_t swn_arena_used(const struct swn_arena *a);
/* Releases address space from swn_arena_used on, or from `bytes` on if that is more; this lowers swn_arena_hi. */
void swn_arena_shrink(struct swn_arena *a, size_t bytes);
/* From now on hands out nothing, and closes free addresses without pages. */
void swn_arena_seal(struct swn_arena *a);

/* A piece of address space that the caller is to use or drop. */
struct swn_piece {
    uintptr_t addr;
    size_t bytes;
};

/* Tensors that are made while an operator runs are mostly short-lived. They lie apart from long-lived ones, so that
 * chunks of addresses hold weights and nothing else (see blocks/memory/frame_pool.h). */
enum swn_term { SWN_LONG_TERM, SWN_SHORT_TERM };
/* A range for `len` bytes, or NULL: no address space or descriptor is left. *fresh: its bytes that have no pages yet.
 */
struct swn_range *swn_arena_alloc(struct swn_arena *a, size_t len, enum swn_term term, size_t *fresh);
/* The *fresh that swn_arena_alloc(len) would return; 0: warm pages would serve it. */
size_t swn_arena_fresh(struct swn_arena *a, size_t len, enum swn_term term);
/* Address space for tensors whose places the caller chooses, apart from all others: swn_arena_alloc and swn_arena_trim
 * never use it. The arena owns it. It begins at a huge page's boundary if it has room for one. NULL: no address space,
 * or no memory for its tables. */
struct swn_activation_region;
struct swn_activation_region *swn_arena_reserve_region(struct swn_arena *a, size_t bytes);
/* Ends a region: any tensor can get its free addresses now, and the other addresses when their tensors are gone. */
void swn_arena_release_region(struct swn_arena *a, struct swn_activation_region *p);
size_t swn_region_bytes(const struct swn_activation_region *p);
uintptr_t swn_region_addr(const struct swn_arena *a, const struct swn_activation_region *p);
/* Bytes of all regions. */
size_t swn_arena_region_bytes(const struct swn_arena *a);
/* Bytes of all regions that belong to no tensor now; the bytes among them without pages. */
size_t swn_arena_region_idle(const struct swn_arena *a);
size_t swn_arena_region_cold(const struct swn_arena *a);
/* The range at the first taken granule of [at, at + len) of the region; NULL: all granules are free. `at` is a multiple
 * of SWN_GRANULE. */
struct swn_range *swn_region_holder(const struct swn_arena *a, const struct swn_activation_region *p, size_t at,
                                    size_t len);
/* How many bytes of [at, at + len) are free and have no pages. */
size_t swn_region_fresh(const struct swn_activation_region *p, size_t at, size_t len);
/* A range exactly there. NULL: some of it is taken, or there is no memory for a descriptor. *fresh as swn_arena_alloc.
 */
struct swn_range *swn_region_alloc(struct swn_arena *a, struct swn_activation_region *p, size_t at, size_t len,
                                   size_t *fresh);

/* Frees a range. warm: its pages stay in place and count as warm bytes; else the caller has dropped them. */
void swn_arena_free(struct swn_arena *a, struct swn_range *r, int warm);
/* The same for a range whose mapping must go first: no tensor gets its addresses until the caller has taken them with
 * swn_arena_take_mapped and returned them with swn_arena_unmapped. Only for ranges outside all regions. */
void swn_arena_free_mapped(struct swn_arena *a, struct swn_range *r);
/* Takes one contiguous piece of such address space: 1, or 0 when there is none. The caller makes it ordinary memory
 * without pages and returns it; otherwise it is lost. */
int swn_arena_take_mapped(struct swn_arena *a, struct swn_piece *out);
void swn_arena_unmapped(struct swn_arena *a, const struct swn_piece *piece);
/* Takes about `bytes` at the end of the last warm piece outside all regions, or all of that piece, out of the warm set:
 * 1 and *out for the caller to drop, or 0 when there is no warm piece. */
int swn_arena_trim(struct swn_arena *a, size_t bytes, struct swn_piece *out);
/* The same inside the regions. */
int swn_arena_trim_regions(struct swn_arena *a, size_t bytes, struct swn_piece *out);
size_t swn_arena_warm_bytes(const struct swn_arena *a);

/* Memory that the program mapped itself, [lo, hi), page-aligned: parts of it may be ranges, too. It has no granules:
 * any whole pages can be a range. */
struct swn_mapped_file {
    uintptr_t lo, hi;                   /* hi is 0 when the mapping is gone */
    _Atomic(struct swn_range *) *owner; /* per page */
    size_t owner_bytes;
    uint64_t place;               /* of lo among the arena's chunks: has lo's offset within a huge page */
    size_t at, granules;          /* the arena's address space for that: whole huge pages */
    struct swn_extent_file *file; /* the caller's: the mapped file and its offset */
    uint64_t file_off;
    struct swn_mapped_file *next;
};
/* NULL: no address space for its tables. */
struct swn_mapped_file *swn_arena_register_mapping(struct swn_arena *a, uintptr_t lo, uintptr_t hi);
/* All ranges of the mapping must have been freed. */
void swn_arena_unregister_mapping(struct swn_arena *a, struct swn_mapped_file *g);
/* The mapped file that contains addr, or NULL. Lock-free. */
struct swn_mapped_file *swn_arena_mapped_file(const struct swn_arena *a, uintptr_t addr);
/* Any mapped file that overlaps [lo, hi), or NULL. Lock-free. */
struct swn_mapped_file *swn_arena_mapped_file_in(const struct swn_arena *a, uintptr_t lo, uintptr_t hi);
/* A range for pages [lo, hi) of g, in state SWN_FILE_BACKED with the mapping's file. NULL: a range has some of the
 * pages already, or there is no memory. */
struct swn_range *swn_arena_carve(struct swn_arena *a, struct swn_mapped_file *g, uintptr_t lo, uintptr_t hi);

/* The live range that contains addr, or NULL. O(1), lock-free. */
struct swn_range *swn_arena_find(const struct swn_arena *a, uintptr_t addr);
/* The first live range that has a byte in [from, to), or NULL: of the arena's own memory if `from` lies there, else of
 * mapped files. */
struct swn_range *swn_arena_in(const struct swn_arena *a, uintptr_t from, uintptr_t to);
/* Live ranges from the oldest to the newest. */
struct swn_range *swn_arena_first(const struct swn_arena *a);

#endif
