/* blocks/memory/arena.h - one reserved range of addresses, and the tensors that live in it.
 *
 * Tensors of at least SWN_GRANULE bytes get page-aligned ranges, in allocation order, so that the parameters of a
 * model lie in layer order. Address space is handed out in granules; memory is counted in pages. A freed range may keep
 * its pages ("warm"): the next tensor that fits takes them over without a fault and without zeroing.
 *
 * Pure bookkeeping: the arena reserves, and opens what it hands out for the first time (blocks/memory/reserve.h), but
 * never touches, maps or drops a page itself; the caller does what `swn_arena_*` tells it to. Not thread-safe, except
 * swn_arena_find, which may race with everything (a signal handler uses it) and then sees the old or the new owner of
 * an address. Errors are -errno. Range descriptors belong to the arena and are never given back to the system, so that
 * a racing reader never follows a dead pointer.
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

/* What stands behind a range's own address. Only the holder of the engine's lock changes it, except for the two
 * hand-shakes with the fault handler (see blocks/memory/transition.h). */
enum swn_state {
    SWN_FREE = 0,
    SWN_RESIDENT,       /* ordinary private pages */
    SWN_FILE_BACKED,    /* private mapping of an extent; pages written since are private copies */
    SWN_EVICTING,       /* read-only while its bytes are being secured; a store sends it back */
    SWN_EVICT_COMMIT,   /* bytes secured, mapping about to change: a store must wait for a moment */
    SWN_EVICT_ABORTING, /* a store came while EVICTING; its thread is making the range writable again */
    SWN_EVICT_ABORTED,
};

struct swn_range {
    uintptr_t addr;
    size_t len;  /* bytes asked for */
    size_t size; /* bytes counted: pages that may be resident when RESIDENT */
    size_t span; /* address space, a multiple of SWN_GRANULE */
    _Atomic int state;
    uint32_t id;                         /* never reused while the process lives; 0 when free */
    uint64_t place;                      /* [place, place + span) is its own, and below the size of the arena */
    struct swn_mapped_file *mapped_file; /* the mapping it is part of, or NULL: the arena's own memory */
    int pins;                            /* running operators and system calls that may write it: it must not leave */
    int filling; /* skeleton/tiling/fill.c writes its extent, and its mapping does not show these bytes yet */

    /* where its bytes are on disk, valid while FILE_BACKED */
    struct swn_extent_file *file;
    uint64_t extent;
    uint64_t extent_epoch; /* fork epoch in which the extent was written */
    uint64_t extent_turn;  /* changes with the extent's bytes, though they may be in the same place */
    /* of a RESIDENT range: the file in which that extent is left to it, so that it is written there again; or NULL */
    struct swn_extent_file *reserved_extent;

    int shared;      /* FILE_BACKED, and stores at addr go straight into the extent (see swn_residency_share) */
    int foreign_map; /* the mapping at addr is not the arena's own anonymous one */

    int weight;        /* index in the learned order, or -1; the caller's */
    int planned_place; /* its place was chosen: swn_region_alloc made it */

    struct swn_range *prev, *next; /* all live ranges, oldest first */

    /* What the caller knows of it: `tensor_bytes` of swn_arena_create, zero when the range begins. */
    _Alignas(16) unsigned char tensor[];
};

struct swn_arena;

/* Reserves `bytes` of address space (halving down to 1/64 of it when the system refuses). tensor_bytes: of each range's
 * own for the caller. 0 or -errno. */
int swn_arena_create(struct swn_arena **out, size_t bytes, size_t tensor_bytes);
void swn_arena_destroy(struct swn_arena *a);
uintptr_t swn_arena_lo(const struct swn_arena *a);
uintptr_t swn_arena_hi(const struct swn_arena *a);

/* Bytes of its address space, from the beginning, that have been given to tensors, regions and mapped files so far. */
size_t swn_arena_used(const struct swn_arena *a);
/* Gives back address space from swn_arena_used on, or from `bytes` on if that is more: swn_arena_hi is lower then. */
void swn_arena_shrink(struct swn_arena *a, size_t bytes);
/* Hands out nothing any more, and closes what is free and has no pages. */
void swn_arena_seal(struct swn_arena *a);

/* A piece of address space to be used or dropped. */
struct swn_piece {
    uintptr_t addr;
    size_t bytes;
};

/* Tensors that are made while an operator runs are mostly gone soon. They lie apart from those that stay, so that
 * chunks of addresses hold weights and nothing else (see blocks/memory/frame_pool.h). */
enum swn_term { SWN_LONG_TERM, SWN_SHORT_TERM };
/* A range for `len` bytes, or NULL when no address space or descriptor is left. *fresh: bytes of it that have no pages
 * yet. */
struct swn_range *swn_arena_alloc(struct swn_arena *a, size_t len, enum swn_term term, size_t *fresh);
/* The *fresh that swn_arena_alloc(len) would give; 0: it would be served from warm pages. */
size_t swn_arena_fresh(struct swn_arena *a, size_t len, enum swn_term term);
/* Address space for tensors whose places are chosen by the caller, apart from all others: swn_arena_alloc and
 * swn_arena_trim never take of it. It is the arena's, and begins where a huge page can if it has room for one. NULL: no
 * address space, or no memory for its tables. */
struct swn_activation_region;
struct swn_activation_region *swn_arena_reserve_region(struct swn_arena *a, size_t bytes);
/* Ends a region: any tensor can get its free addresses now, and the rest when its tensors are gone. */
void swn_arena_release_region(struct swn_arena *a, struct swn_activation_region *p);
size_t swn_region_bytes(const struct swn_activation_region *p);
uintptr_t swn_region_addr(const struct swn_arena *a, const struct swn_activation_region *p);
/* Bytes of all regions. */
size_t swn_arena_region_bytes(const struct swn_arena *a);
/* Bytes of all regions that belong to no tensor now, and those of them that have no pages. */
size_t swn_arena_region_idle(const struct swn_arena *a);
size_t swn_arena_region_cold(const struct swn_arena *a);
/* The range that has the first taken granule of [at, at + len) of the region; NULL: all are free. `at` is a multiple of
 * SWN_GRANULE. */
struct swn_range *swn_region_holder(const struct swn_arena *a, const struct swn_activation_region *p, size_t at,
                                    size_t len);
/* How many bytes of that are free and have no pages. */
size_t swn_region_fresh(const struct swn_activation_region *p, size_t at, size_t len);
/* A range just there. NULL: it is not all free, or there is no memory for a descriptor. *fresh as swn_arena_alloc. */
struct swn_range *swn_region_alloc(struct swn_arena *a, struct swn_activation_region *p, size_t at, size_t len,
                                   size_t *fresh);

/* Gives a range back. warm: its pages stay in place and are counted as warm bytes; else the caller has dropped them. */
void swn_arena_free(struct swn_arena *a, struct swn_range *r, int warm);
/* The same for a range whose mapping must go first: no tensor gets its addresses before swn_arena_unmapped. Outside all
 * regions. */
void swn_arena_free_mapped(struct swn_arena *a, struct swn_range *r);
/* Takes out one contiguous piece of such address space: 1, or 0 when there is none. The caller makes it ordinary memory
 * without pages, and then gives it back, or else it is lost. */
int swn_arena_take_mapped(struct swn_arena *a, struct swn_piece *out);
void swn_arena_unmapped(struct swn_arena *a, const struct swn_piece *piece);
/* Takes about `bytes` at the end of the last warm piece outside all regions out of the warm set, or all of it: 1 and
 * *out to be dropped by the caller, or 0 when none is left. */
int swn_arena_trim(struct swn_arena *a, size_t bytes, struct swn_piece *out);
/* The same inside them. */
int swn_arena_trim_regions(struct swn_arena *a, size_t bytes, struct swn_piece *out);
size_t swn_arena_warm_bytes(const struct swn_arena *a);

/* Memory that the program mapped itself, [lo, hi), page-aligned: parts of it may be ranges too. They have no granules:
 * any whole pages can be a range. */
struct swn_mapped_file {
    uintptr_t lo, hi;                   /* hi is 0 when it is gone */
    _Atomic(struct swn_range *) *owner; /* per page */
    size_t owner_bytes;
    uint64_t place;               /* of lo among the arena's chunks: as far from where a huge page begins as lo is */
    size_t at, granules;          /* of the arena's address space, for that: whole huge pages */
    struct swn_extent_file *file; /* the caller's: what was mapped, at which offset */
    uint64_t file_off;
    struct swn_mapped_file *next;
};
/* NULL: no address space for its tables. */
struct swn_mapped_file *swn_arena_register_mapping(struct swn_arena *a, uintptr_t lo, uintptr_t hi);
/* All its ranges have been given back. */
void swn_arena_unregister_mapping(struct swn_arena *a, struct swn_mapped_file *g);
/* The mapped_file that contains addr, or NULL. Lock-free. */
struct swn_mapped_file *swn_arena_mapped_file(const struct swn_arena *a, uintptr_t addr);
/* Any mapped_file of which [lo, hi) has a part, or NULL. Lock-free. */
struct swn_mapped_file *swn_arena_mapped_file_in(const struct swn_arena *a, uintptr_t lo, uintptr_t hi);
/* A range for pages [lo, hi) of g. Its state is SWN_FILE_BACKED from the mapped_file's file. NULL: some of them are a
 * range's already, or there is no memory. */
struct swn_range *swn_arena_carve(struct swn_arena *a, struct swn_mapped_file *g, uintptr_t lo, uintptr_t hi);

/* The live range that contains addr, or NULL. O(1), lock-free. */
struct swn_range *swn_arena_find(const struct swn_arena *a, uintptr_t addr);
/* The first live range that has a byte in [from, to), all of which is the arena's own or one mapped_file's; or NULL. */
struct swn_range *swn_arena_in(const struct swn_arena *a, uintptr_t from, uintptr_t to);
/* Live ranges from the oldest to the newest. */
struct swn_range *swn_arena_first(const struct swn_arena *a);

#endif
