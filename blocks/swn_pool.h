/* swn_pool.h - the memory that fetched extents land in.
 *
 * One memfd. Its first part is the read window: frames are placed one behind the other, around and around, and their
 * pages stay in place when a frame is let go. The window is mapped once more behind its own end, so a frame that begins
 * before its end and goes on at its beginning is one piece of memory: what is let go in the order it came leaves no
 * gaps, and a window holds what its bytes say, as the planner counts. Behind the window every range has a place of its
 * own for the time it is kept resident after having been streamed. The memory is mapped twice: writable for the
 * fetcher, read-only for operators, so that a stray store through a borrowed pointer traps instead of changing bytes.
 * Both mappings are MADV_DONTFORK and MAP_SHARED: direct reads never target memory that a fork may duplicate.
 *
 * Not thread-safe, but where it says so. Errors are -errno.
 */
#ifndef SWN_POOL_H
#define SWN_POOL_H

#include <stddef.h>
#include <stdint.h>

#include "swn_fetch.h"

struct swn_range;
struct swn_store_copy;

enum swn_frame_state {
    SWN_FRAME_FILLING, /* a fetch is on its way */
    SWN_FRAME_READY,   /* fetched, not used yet */
    SWN_FRAME_USED,    /* fetched and used at least once; may go as soon as users is 0 */
};

struct swn_frame {
    struct swn_range *range; /* NULL: its range was freed while the fetch was under way */
    uint32_t range_id;
    uint64_t off; /* in the memfd; what ends behind the window's end goes on at its beginning */
    size_t size;
    enum swn_frame_state state;
    int users;    /* operators that hold it */
    int kept;     /* lives behind the window, not part of it */
    void *lodged; /* where it lies, if that is memory of the caller's and no part of the pool; else NULL */
    int urgent, wanted;
    int checked;                /* its file has checksums; 2: a fetch did not match, and is being repeated */
    _Atomic int tainted;        /* the fault handler let a store through its read-only view */
    const void *owner;          /* cursor it was fetched for */
    uint64_t start_ns, written; /* when its read began, and what had been spilled by then */
    struct swn_fetch_job job;
    /* The job reads chunks of an extent's copy to the frame's end, and they are decoded to where they belong as they
     * arrive; NULL: it reads the bytes themselves. */
    const struct swn_store_copy *copy;
    size_t first_chunk, chunk; /* of those that the frame holds; the next to be decoded */
    uint64_t raw_off;          /* where the bytes themselves are */
    struct swn_frame *next;    /* window frames, by offset, then lodged ones */
};

struct swn_pool;

/* window_max: most the window may ever be; arena_bytes: address space of the arena. */
int swn_pool_create(struct swn_pool **out, size_t window_max, size_t arena_bytes);
void swn_pool_destroy(struct swn_pool *p);

size_t swn_pool_window(const struct swn_pool *p);
size_t swn_pool_window_most(const struct swn_pool *p);
/* Changes the size of the window. -EBUSY when a frame stands in the way of that: no new one is placed there, what is to
 * go behind the last such frame goes at once, and a later call succeeds when there is none. -ENOMEM, or -EBADF where
 * the program has closed the memfd: it stays as it is. */
int swn_pool_resize(struct swn_pool *p, size_t window);
/* Whether this frame does: it has a byte in the part to be given up, or goes on behind an end that is about to move. */
int swn_pool_in_the_way(const struct swn_pool *p, const struct swn_frame *f, size_t window);

/* The window is a ring from now on. Not before its size is planned: a frame that goes on at its beginning keeps it from
 * being widened for the next, and an operator may need both at once. */
void swn_pool_ring(struct swn_pool *p);

/* How much may be put out of the way for a new frame. */
enum swn_pool_force { SWN_POOL_STALE, SWN_POOL_READY };

/* Places a frame of `size` bytes in the window, evicting what `force` allows; evict() is called for each evicted frame
 * before its memory is reused, must not fail, and must not call the pool except swn_pool_release of that very frame
 * (which it must do). NULL when there is no place now. */
struct swn_frame *swn_pool_place(struct swn_pool *p, size_t size, enum swn_pool_force force,
                                 void (*evict)(void *ctx, struct swn_frame *f), void *ctx);
/* A frame outside the window, at the place that belongs to arena offset `arena_off`. */
struct swn_frame *swn_pool_keep(struct swn_pool *p, uint64_t arena_off, size_t size);
/* Kept frames are never made of huge pages. Before there are any. */
void swn_pool_keep_small(struct swn_pool *p);
/* Makes huge pages of a kept frame's memory: of those that begin in [from, upto) of it and end within it. Any thread
 * may call this for a frame that lives. */
void swn_pool_make_huge(struct swn_pool *p, const struct swn_frame *f, size_t from, size_t upto);
/* A frame in memory of the caller's, who keeps it for as long as the frame lives. It is in no other frame's way, and
 * has no read-only view. */
struct swn_frame *swn_pool_lodge(struct swn_pool *p, void *at, size_t size);
/* Cuts a kept frame that nobody is using and nothing is read into: f has its first `at` bytes (whole pages) from now
 * on, the result the others. What is mapped stays mapped. NULL: no memory for a descriptor, nothing changed. */
struct swn_frame *swn_pool_cut(struct swn_pool *p, struct swn_frame *f, size_t at);
/* Undoes a cut: f takes over what `rest` holds, right behind it. */
void swn_pool_join(struct swn_pool *p, struct swn_frame *f, struct swn_frame *rest);
/* Gives a frame back; kept frames give their memory to the system. */
void swn_pool_release(struct swn_pool *p, struct swn_frame *f);
struct swn_frame *swn_pool_first(struct swn_pool *p);

void *swn_pool_rw(const struct swn_pool *p, const struct swn_frame *f); /* for the fetcher */
void *swn_pool_ro(const struct swn_pool *p, const struct swn_frame *f); /* for operators; not of kept frames */
/* Maps the frame's first bytes, whole pages, at `at`, private, in place of what is there. 0 or -errno. Where there is
 * no memory for the second of two mappings what was there stays instead of the frame's end. */
int swn_pool_lend(const struct swn_pool *p, const struct swn_frame *f, void *at, size_t bytes);
int swn_pool_fd(const struct swn_pool *p);
/* The window frame whose read-only view contains addr, or NULL. Lock-free as far as the frame list stands still. */
struct swn_frame *swn_pool_find_ro(const struct swn_pool *p, uintptr_t addr);
int swn_pool_in_ro(const struct swn_pool *p, uintptr_t addr);

#endif
