/* skeleton/device/swapper_internal.h - what the files of the device's swapper share: its blocks, and the functions of
 * each file.
 *
 * All functions need the swapper's lock, unless they say otherwise. "May wait": releases the lock meanwhile, so that
 * everything except the given block may have changed.
 */
#ifndef SWN_SKELETON_DEVICE_SWAPPER_INTERNAL_H
#define SWN_SKELETON_DEVICE_SWAPPER_INTERNAL_H

#include <pthread.h>
#include <stdatomic.h>

#include "skeleton/device/spare_buffers.h"
#include "skeleton/device/swapper.h"
#include "skeleton/engine/access_order.h"

#define SWN_DEVSWAP_CURSORS 16
#define SWN_DEVSWAP_NEVER UINT64_MAX

enum state { OUT, FILLING, IN, EVICTING };

/* KEPT_FOR_GRAPHS: a captured graph has its address, until its weights are gone. KEPT_FOR_GOOD: it is unknown when the
 * device is done with it. */
enum keeping { NOT_KEPT, KEPT_FOR_GRAPHS, KEPT_FOR_GOOD };

struct use {
    void *stream, *event;
    struct use *next;
};

struct swn_devweight {
    struct swap_group *block;
    uintptr_t data;
    size_t bytes, off;
    int gone;
    struct swn_devweight *next; /* next weight of the block */
};

/* When operators need the block, in accesses, and how often that was met. */
struct swap_group_use {
    uint64_t asked;    /* when the first of its present users came */
    uint64_t next_use; /* number of accesses until its next use; SWN_DEVSWAP_NEVER: not predicted */
    int ahead;         /* to be brought in before an operator asks for it */
    unsigned came;     /* how often it was brought in */
    unsigned mark, tried;
};

struct swap_group {
    struct swn_devswap *swapper;
    uint32_t id; /* never reused: a weight of the order */
    char *at;
    size_t reserved, bytes; /* of addresses; of memory once it is sealed */
    struct swn_devweight *weights, **last;
    size_t used;
    unsigned live;
    int sealed; /* takes no more weights */
    enum state state;
    int users;         /* operators that hold it or wait for it */
    enum keeping kept; /* counts as one more user */
    int failed;        /* it could not be brought */
    int lost;          /* the driver does not release the memory at its address, which no other block may get then */
    int dying;         /* all its weights are gone */
    int moves; /* its buffer is too large, and an operator needs the rest: the block leaves, and comes back in a smaller
                  buffer */
    const struct swn_devweight *reading; /* the weight that is being read */
    struct swn_devbuffer buffer;         /* at least as large as the block; none while it is OUT */
    struct use *uses;
    struct swap_group_use use;
    uint64_t last_use;
    uint64_t flight; /* its last flight, for which launched work may have to wait */
    char *copy;      /* pinned memory with its bytes, once `copied`; NULL: none */
    int copied;
};

struct cursor {
    void *stream;
    struct swn_cursor at;
    uint64_t last_access; /* 0: free */
};

struct swn_devswap {
    pthread_mutex_t lock;
    pthread_cond_t changed;
    struct swn_devpool pool;
    struct swn_access_order *order;
    size_t capacity;
    size_t held;    /* bytes of all buffers */
    size_t claimed; /* bytes of blocks with users: the buffers that they have, or will have */
    size_t kept;    /* bytes of blocks that are kept */
    int counted;
    struct swap_group **blocks; /* by id */
    size_t count, room;
    uint32_t last_id;
    struct swn_devspares spare; /* buffers without a block */
    struct cursor cursors[SWN_DEVSWAP_CURSORS];
    uint64_t accesses;
    unsigned marks, tries;
    pthread_t thread;
    uint64_t departed, landed; /* the last flight that has begun, and the last one known to have arrived */
    int no_copies;             /* number of blocks that get no copy, as the driver has refused memory */
    unsigned turns;
    int broken; /* its thread could not begin */
    int retry;  /* a capture holds up some of its work */
};

/* skeleton/device/block.c. The index of the first block with that id or a later one. */
size_t swn_swap_group_from(const struct swn_devswap *s, uint32_t id);
/* A new block with at least `bytes` of addresses; NULL: no addresses, or no memory. */
struct swap_group *swn_swap_group_new(struct swn_devswap *s, size_t bytes);
void swn_swap_group_free(struct swn_devswap *s, struct swap_group *b);
/* Sizes of blocks are multiples of this, so that there are few sizes, and a buffer fits other blocks. */
size_t swn_swap_group_step(const struct swn_devswap *s);
/* The size of large chunks (skeleton/device/chunks.h); 0: there are none. */
size_t swn_swap_group_chunk(size_t unit, size_t capacity);
/* The bytes that the block takes of the capacity. */
size_t swn_swap_group_cost(const struct swap_group *b);
void swn_swap_group_set(struct swn_devswap *s, struct swap_group *b, enum state state);
/* The block stays in place, until swn_swap_group_keep_no_more. */
void swn_swap_group_keep(struct swn_devswap *s, struct swap_group *b, enum keeping why);
void swn_swap_group_keep_no_more(struct swn_devswap *s, struct swap_group *b);

/* skeleton/device/block_order.c. The position of a stream's operators in the order of the blocks. */
struct cursor *swn_swap_order_cursor(struct swn_devswap *s, void *stream);
/* Records that the stream's operator uses b. 1: b differs from the block before. */
int swn_swap_order_record(struct swn_devswap *s, struct cursor *c, struct swap_group *b);
/* Predicts when each block will be used again, and marks those to be brought in ahead. */
void swn_swap_order_look_ahead(struct swn_devswap *s);

/* skeleton/device/buffer.c. Waits until launched work does not use b any more, and takes its buffer. 0, or an error: it
 * stays for good. May wait. */
int swn_devbuffer_take(struct swn_devswap *s, struct swap_group *b, struct swn_devbuffer *out);
/* Gives the buffer back to the driver; may wait. 0 or an error: it still counts. */
int swn_devbuffer_drop(struct swn_devswap *s, struct swn_devbuffer buffer);
/* Keeps the buffer for the next block that needs one. */
void swn_devbuffer_spare(struct swn_devswap *s, struct swn_devbuffer buffer);
/* A buffer for b: 0; -EAGAIN: something has changed, look again; -EBUSY: not before operators end; -ENOMEM: no memory.
 * May wait. */
int swn_devbuffer_find(struct swn_devswap *s, const struct swap_group *b, struct swn_devbuffer *out);
/* After the capacity has shrunk: frees blocks and buffers. 1: one is gone. May wait. */
int swn_devbuffer_shrink(struct swn_devswap *s);
/* Bytes in all buffers, now and at most; without lock. */
void swn_devbuffer_stats(struct swn_stats *out);
void swn_devbuffer_fork_child(void);

/* skeleton/device/in_flight.c. Everything sent from `begin` on is b's flight, which is under way from `end` on; 0 or an
 * error. May wait. */
int swn_devflight_begin(struct swn_devswap *s);
int swn_devflight_end(struct swn_devswap *s, struct swap_group *b);
/* Waits until the flight has arrived. 0 or an error. May wait. */
int swn_devflight_land(struct swn_devswap *s, uint64_t flight);
/* Kernels that are launched on the stream from now on find b in place. 0 or an error. */
int swn_devflight_follow(struct swn_devswap *s, const struct swap_group *b, void *stream);

/* skeleton/device/pinned_cache.c. Gives b a copy in pinned memory, if there is room and it pays; it is still to be
 * filled. May wait. */
void swn_pinned_cache_make(struct swn_devswap *s, struct swap_group *b);
/* Gives up b's copy, if it has one. May wait. */
void swn_pinned_cache_drop(struct swn_devswap *s, struct swap_group *b);
/* Whether other parts of the engine want the room of copies. Without lock. */
int swn_pinned_cache_wanted(void);
/* Gives up one copy for them. 1: one is gone. May wait. */
int swn_pinned_cache_give(struct swn_devswap *s);

/* skeleton/device/swapper_thread.c. The main function of a swapper's thread; never returns. */
void *swn_devswap_work(void *swapper);
void swn_devwork_stats(struct swn_stats *out);

#endif
