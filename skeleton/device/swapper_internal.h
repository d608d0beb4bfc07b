/* skeleton/device/swapper_internal.h - what the files of the device's swapper share: its blocks, and which file does
 * what with them.
 *
 * All of it with the swapper's lock held, unless said. "May wait": releases the lock meanwhile, so that anything but
 * the block it was called for may have changed.
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

/* KEPT_FOR_GRAPHS: a captured graph has its address, until its weights go. KEPT_FOR_GOOD: it is not known when the
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
    struct swn_devweight *next; /* of the block */
};

/* When operators want it, in accesses, and how that went so far. */
struct swap_group_use {
    uint64_t asked;    /* when the first of its users came */
    uint64_t next_use; /* from now, SWN_DEVSWAP_NEVER: not foreseen */
    int ahead;         /* is to be brought before it is asked for */
    unsigned came;     /* how often it came */
    unsigned mark, tried;
};

struct swap_group {
    struct swn_devswap *swapper;
    uint32_t id; /* never reused: a weight of the order */
    char *at;
    size_t reserved, bytes; /* of addresses, and of memory once it is sealed */
    struct swn_devweight *weights, **last;
    size_t used;
    unsigned live;
    int sealed; /* takes no more weights */
    enum state state;
    int users;         /* operators that have it, or wait for it */
    enum keeping kept; /* which makes it a user more */
    int failed;        /* it could not be brought */
    int lost;          /* the driver does not take back the memory at its address, which no other block may get then */
    int dying;         /* all its weights are gone */
    int moves;         /* its buffer is larger than it, and an operator needs the rest: the block goes, and comes back
                        * in a smaller one */
    const struct swn_devweight *reading; /* the one that is being read */
    struct swn_devbuffer buffer;         /* no smaller than it; unless it is OUT */
    struct use *uses;
    struct swap_group_use use;
    uint64_t last_use;
    uint64_t flight; /* with which it came last; what is launched may have to wait for it */
    char *copy;      /* pinned memory with its bytes, once it is `copied`; NULL: none */
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
    size_t held;    /* by all buffers */
    size_t claimed; /* by blocks that have users: what they have, or will have, of those */
    size_t kept;    /* by those that are kept */
    int counted;
    struct swap_group **blocks; /* by id */
    size_t count, room;
    uint32_t last_id;
    struct swn_devspares spare; /* buffers without a block */
    struct cursor cursors[SWN_DEVSWAP_CURSORS];
    uint64_t accesses;
    unsigned marks, tries;
    pthread_t thread;
    uint64_t departed, landed; /* the last flight that has begun, and the last one that is known to have arrived */
    int no_copies;             /* number of blocks that get no copy, as the driver has refused memory */
    unsigned turns;
    int broken; /* its thread could not begin */
    int retry;  /* it has something to do that a capture holds up */
};

/* skeleton/device/block.c. The index of the first block that was made no earlier. */
size_t swn_swap_group_from(const struct swn_devswap *s, uint32_t id);
/* A new block with at least `bytes` of addresses; NULL: there are none, or no memory. */
struct swap_group *swn_swap_group_new(struct swn_devswap *s, size_t bytes);
void swn_swap_group_free(struct swn_devswap *s, struct swap_group *b);
/* Sizes of blocks are multiples of this, so that there are few of them, and a buffer fits another block. */
size_t swn_swap_group_step(const struct swn_devswap *s);
/* The size of large chunks (skeleton/device/chunks.h), 0: there are none. */
size_t swn_swap_group_chunk(size_t unit, size_t capacity);
/* The bytes that the block takes of the capacity. */
size_t swn_swap_group_cost(const struct swap_group *b);
void swn_swap_group_set(struct swn_devswap *s, struct swap_group *b, enum state state);
/* The block stays where it is, until swn_swap_group_keep_no_more. */
void swn_swap_group_keep(struct swn_devswap *s, struct swap_group *b, enum keeping why);
void swn_swap_group_keep_no_more(struct swn_devswap *s, struct swap_group *b);

/* skeleton/device/block_order.c. What comes next: the place of a stream's operators in the order of the blocks. */
struct cursor *swn_swap_order_cursor(struct swn_devswap *s, void *stream);
/* Records that the stream's operator uses b. 1: b is another block than the one before. */
int swn_swap_order_record(struct swn_devswap *s, struct cursor *c, struct swap_group *b);
/* When each block will be used again, as far as that can be foreseen, and which are to be brought by then. */
void swn_swap_order_look_ahead(struct swn_devswap *s);

/* skeleton/device/buffer.c. Waits until what was launched does not use b any more, and takes its buffer. 0, or an
 * error: it stays for good. May wait. */
int swn_devbuffer_take(struct swn_devswap *s, struct swap_group *b, struct swn_devbuffer *out);
/* Gives the buffer back to the driver, may wait. 0 or an error: it still counts. */
int swn_devbuffer_drop(struct swn_devswap *s, struct swn_devbuffer buffer);
/* Keeps the buffer for the next block that needs one. */
void swn_devbuffer_spare(struct swn_devswap *s, struct swn_devbuffer buffer);
/* A buffer for b: 0; -EAGAIN: something has changed, look again; -EBUSY: not before operators end; -ENOMEM: there is no
 * memory for it. May wait. */
int swn_devbuffer_find(struct swn_devswap *s, const struct swap_group *b, struct swn_devbuffer *out);
/* After the capacity has shrunk: lets blocks and buffers go. 1: one has gone. May wait. */
int swn_devbuffer_shrink(struct swn_devswap *s);
/* Bytes in all buffers, now and at most; without lock. */
void swn_devbuffer_stats(struct swn_stats *out);
void swn_devbuffer_fork_child(void);

/* skeleton/device/in_flight.c. What is sent from `begin` on is b's flight, and under way from `end` on; 0 or an error.
 * May wait. */
int swn_devflight_begin(struct swn_devswap *s);
int swn_devflight_end(struct swn_devswap *s, struct swap_group *b);
/* Waits until the flight has arrived. 0 or an error. May wait. */
int swn_devflight_land(struct swn_devswap *s, uint64_t flight);
/* Kernels that are launched on the stream from now on find b there. 0 or an error. */
int swn_devflight_follow(struct swn_devswap *s, const struct swap_group *b, void *stream);

/* skeleton/device/pinned_cache.c. Gives b a copy to be sent from, if there is room and it is worth it; to be filled.
 * May wait. */
void swn_pinned_cache_make(struct swn_devswap *s, struct swap_group *b);
/* Gives up b's copy, if it has one. May wait. */
void swn_pinned_cache_drop(struct swn_devswap *s, struct swap_group *b);
/* Whether other parts of the engine want the room of copies. Without lock. */
int swn_pinned_cache_wanted(void);
/* Gives up one copy for them. 1: one has gone. May wait. */
int swn_pinned_cache_give(struct swn_devswap *s);

/* skeleton/device/swapper_thread.c. What the swapper's thread runs, with the swapper; it never ends. */
void *swn_devswap_work(void *swapper);
void swn_devwork_stats(struct swn_stats *out);

#endif
