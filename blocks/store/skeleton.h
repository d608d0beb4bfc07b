/* blocks/store/skeleton.h - a model without its weights: where each parameter will be, once its block is in memory.
 *
 * An array of slots in the order of the store's tensors (SwapNet section 5.2). A block is an index range of layers; its
 * extents lie in the store one after the other, so a block is one read, and registering its parameters is one walk over
 * its slots that writes base + offset into each: no search, no copy. Extents that a block shares with an earlier block
 * (tied weights) follow behind its own bytes.
 *
 * The skeleton is not kept in a file of its own: it follows from the store's tables, which are checksummed, replaced
 * together with the weights in one rename, and read in one go when the store is opened. A second file could only be
 * missing, or belong to another store.
 *
 * Not thread-safe for one object. The store must outlive its skeleton.
 */
#ifndef SWN_BLOCKS_STORE_SKELETON_H
#define SWN_BLOCKS_STORE_SKELETON_H

#include <stddef.h>
#include <stdint.h>

#include "blocks/store/store.h"

struct swn_skeleton_slot {
    void *data; /* the tensor's first byte; NULL while its block is not in memory */
    const int64_t *shape, *stride;
    uint64_t off; /* of that byte, in the store */
    uint32_t extent;
    uint16_t ndim;
    uint16_t dtype; /* enum swn_dtype */
};

struct swn_skeleton {
    const struct swn_store *store;
    struct swn_skeleton_slot *slots; /* slot i is tensor i of the store */
    size_t slot_count;
    uint32_t *first_slot; /* per layer, and one more */
};

/* An extent of an earlier block that this block needs, too. */
struct swn_tie {
    uint32_t extent;
    uint64_t at; /* where it goes in the block's memory, a multiple of 4096 */
};

struct swn_block {
    uint32_t first_layer, layers;
    uint32_t first_slot, slots;
    uint32_t first_extent, extents; /* its own */
    uint64_t off, own_bytes;        /* of its own extents in the store, padding included; multiples of 4096 */
    uint64_t bytes;                 /* of memory it takes, ties included; a multiple of 4096 */
    struct swn_tie *ties;           /* sorted by extent */
    uint32_t tie_count;
};

/* 0 or -ENOMEM. Nothing is registered in a new skeleton. */
int swn_skeleton_make(struct swn_skeleton **out, const struct swn_store *s);
void swn_skeleton_free(struct swn_skeleton *sk);
/* Bytes of memory the skeleton takes. */
size_t swn_skeleton_bytes(const struct swn_skeleton *sk);

/* Makes the block of `layers` layers from `first_layer` on. 0, -EINVAL or -ENOMEM; to be freed with swn_block_free. */
int swn_block_make(struct swn_block *b, const struct swn_skeleton *sk, uint32_t first_layer, uint32_t layers);
void swn_block_free(struct swn_block *b);

/* Points the slots of the block at its bytes at `base`: its own extents first, then its ties. */
void swn_skeleton_register(struct swn_skeleton *sk, const struct swn_block *b, void *base);
/* The block's memory is about to go: its slots become NULL again. */
void swn_skeleton_unregister(struct swn_skeleton *sk, const struct swn_block *b);

#endif
