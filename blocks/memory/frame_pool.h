/* blocks/memory/frame_pool.h - the memory that extents are read into: frames for chunks of addresses.
 *
 * Addresses are divided into chunks of `unit` bytes, a huge page where the budget is no smaller than a few of them. A
 * frame is `unit` bytes of one memfd and holds, for one chunk, the bytes of all weights or parts of weights that lie in
 * it and are streamed: its parts. Frame and chunk are congruent modulo a huge page, so one entry of the page table maps
 * the frame at the weights' own address. Any free frame will do for any chunk: there is nothing to fragment.
 *
 * The memfd is mapped once, for the fetcher only; at a chunk's address swn_residency maps a frame privately. The
 * fetcher's mapping is MAP_SHARED: no fork makes direct reads end in a copy. A forked child keeps this mapping until it
 * destroys the pool, so that no mapping of its own can take the addresses before. It exists only where frames have
 * memory, and its page-table entries go when a frame is mapped at a chunk's address, so that the process's RSS counts
 * each page once.
 *
 * Not thread-safe. Errors are -errno.
 */
#ifndef SWN_BLOCKS_MEMORY_FRAME_POOL_H
#define SWN_BLOCKS_MEMORY_FRAME_POOL_H

#include <stddef.h>
#include <stdint.h>

#include "blocks/memory/fetch_queue.h"

struct swn_range;
struct swn_extent_file;
struct swn_compressed_extent;

struct swn_frame;

/* Bytes of one range in a frame. */
struct swn_part {
    struct swn_range *range; /* NULL: the range is gone, or has other bytes by now */
    uint32_t range_id;
    struct swn_frame *frame;
    size_t at, bytes; /* in the chunk; whole pages */
    size_t fill;      /* the bytes of `bytes` that the extent has */
    struct swn_extent_file *file;
    uint64_t off; /* their offset in the extent */
    int there;    /* they have been read */
    int checked;  /* and are what was stored */
    int mapped;   /* the range's address names them */
    int repeated; /* a fetch did not match its checksum, and is being made once more */
    struct swn_fetch_job job;
    /* The job reads chunks of a compressed extent to the part's end, and they are decoded to their place as they
     * arrive; NULL: the job reads the bytes themselves. */
    const struct swn_compressed_extent *compressed;
    size_t first_chunk, chunk; /* the first chunk of the part; the next to be decoded */
};

struct swn_frame {
    uint64_t chunk;
    uintptr_t addr;            /* of its chunk; where the parts are resident */
    size_t slot;               /* of the memfd */
    int pinned_by_plan;        /* the plan has it stay from pass to pass, beside the staging ring */
    unsigned n, room, pending; /* parts; those with a fetch under way, during which none is added */
    struct swn_part *parts;
    struct swn_frame *prev, *next;           /* least recently used first */
    struct swn_frame *ring_prev, *ring_next; /* likewise, of frames that the plan does not keep */

    /* What the caller knows of it: `use_bytes` of swn_pool_create, zero when the frame is taken. */
    _Alignas(16) unsigned char use[];
};

/* One entry for each unit of the arena's addresses. */
struct swn_chunk {
    struct swn_frame *frame;  /* or NULL */
    uint32_t users;           /* operators that hold it */
    uint32_t weight;          /* the weight with which it is planned; 0: none */
    unsigned char plan_keep;  /* the plan wants to keep it */
    unsigned char read_twice; /* in each pass, if it comes and goes: for two weights; the caller's */
    uint32_t uses,
        epoch; /* how often operators read experts of mixtures in it, as counted in that epoch; the caller's */
};

struct swn_pool;

/* unit: a power of two, from SWN_GRANULE to SWN_HUGE. chunks: the number of chunks of addresses, and the most
 * frames. use_bytes: of each frame's own for the caller. */
int swn_pool_create(struct swn_pool **out, size_t unit, size_t chunks, size_t use_bytes);
void swn_pool_destroy(struct swn_pool *p);
size_t swn_pool_unit(const struct swn_pool *p);
struct swn_chunk *swn_pool_chunk(struct swn_pool *p, uint64_t chunk);

/* A frame with memory, for a chunk that has none: a free frame, or a new one. It has no parts yet, and is the most
 * recently used. NULL: no memory, or -EBADF where the program has closed the memfd. */
struct swn_frame *swn_pool_take(struct swn_pool *p, uint64_t chunk, uintptr_t addr);
/* Whether a limit on files (ulimit -f) leaves no frames but those that there are: frames are a file to the kernel. */
int swn_pool_is_limited(const struct swn_pool *p);
/* Whether the next frame would need new memory. */
int swn_pool_is_full(const struct swn_pool *p);
/* Grows whenever a frame is taken or put. */
uint64_t swn_pool_changes(const struct swn_pool *p);
/* Adds a part to a frame into which nothing is being read; NULL: no memory for it. Pointers to parts are valid until
 * the next part is added. */
struct swn_part *swn_pool_part(struct swn_frame *f);
/* The range's part in the frame; NULL: there is none, or the frame is NULL. */
struct swn_part *swn_pool_part_of(const struct swn_frame *f, const struct swn_range *r);
/* Frees a frame; its memory stays for the next one. */
void swn_pool_put(struct swn_pool *p, struct swn_frame *f);
/* Returns the memory of at most n free frames to the system. Returns the number of frames. */
size_t swn_pool_trim(struct swn_pool *p, size_t n);

/* Bytes of all frames with memory, of free frames, and of frames that are kept or not. */
size_t swn_pool_bytes(const struct swn_pool *p);
size_t swn_pool_free_bytes(const struct swn_pool *p);
size_t swn_pool_pinned(const struct swn_pool *p); /* frames */
size_t swn_pool_ring(const struct swn_pool *p);   /* frames */
void swn_pool_set_pinned(struct swn_pool *p, struct swn_frame *f, int kept);

/* Makes the frame the most recently used one. */
void swn_pool_touch(struct swn_pool *p, struct swn_frame *f);
/* The least recently used frame; NULL: there is none. */
struct swn_frame *swn_pool_first(struct swn_pool *p);
/* The same of frames that the plan does not keep, which are few: `ring_next` follows. */
struct swn_frame *swn_pool_ring_first(struct swn_pool *p);

/* The frame's memory, for the fetcher. */
void *swn_pool_at(const struct swn_pool *p, const struct swn_frame *f);
/* Tells the pool that the frame is mapped elsewhere. The fetcher's page-table entries of such frames have to go, or
 * their memory would count twice as resident; the pool drops them for several frames at a time, as that interrupts
 * other processors. The bytes stay. */
void swn_pool_unsee(struct swn_pool *p, const struct swn_frame *f);
/* Whether b's memory follows a's in the memfd. */
int swn_pool_follows(const struct swn_frame *a, const struct swn_frame *b);
/* Maps [off, off + bytes) of the frame, and of the frames that follow it, at `at`, private, in place of the present
 * mapping. 0 or -errno. */
int swn_pool_map(const struct swn_pool *p, const struct swn_frame *f, size_t off, size_t bytes, void *at);
/* Frames never get huge pages, as the kernel cannot tell those from private copies. To be called before there are
 * frames. */
void swn_pool_keep_small(struct swn_pool *p);
/* Whether frames are huge pages, as far as tried. */
int swn_pool_is_huge(const struct swn_pool *p);

#endif
