/* skeleton/device/swapper.h - weights that come and go on a device: which of them are in its memory, and which are in
 * flight.
 *
 * Weights that are moved to a device one after the other form blocks, which come and go as a whole. A thread of the
 * library brings a block from the disk to its place shortly before an operator needs it. The order is learned
 * (skeleton/engine/access_order.h); in a first pass it is assumed to be that in which the weights were moved. The block
 * that is needed last leaves first, but only when every kernel that may read it is done, as shown by events on the
 * kernels' streams: no thread waits for the device as a whole.
 *
 * Thread-safe. Lock rank: a swapper's lock, then the engine's; neither may be held.
 */
#ifndef SWN_SKELETON_DEVICE_SWAPPER_H
#define SWN_SKELETON_DEVICE_SWAPPER_H

#include <stddef.h>
#include <stdint.h>

#include "skeleton/device/pool.h"
#include "scheduler/protocol/stats.h"

struct swn_devswap;   /* of one device */
struct swn_devweight; /* a tensor on the device */

/* Takes over the pool, for which a way was chosen. capacity_bytes: the most that blocks take at once; `counted` if it
 * is memory of the budget. 0 or -errno. */
int swn_devswap_start(struct swn_devswap **out, const struct swn_devpool *pool, size_t capacity_bytes, int counted);
/* Sets the capacity; without `shrinks` only raises it. Blocks beyond the capacity leave when no operator uses them.
 * Where the memory is counted, two of the largest blocks always have room, or no operator could have them; a card's own
 * memory has exactly the requested capacity, and weights that do not fit are not added. */
void swn_devswap_resize(struct swn_devswap *s, size_t capacity_bytes, int shrinks);
/* Wakes the swapper's thread to look for work. Takes no lock, so the thread may miss the call. */
void swn_devswap_wake(struct swn_devswap *s);
/* Bytes of all blocks in memory, and of buffers without a block. */
size_t swn_devswap_held(struct swn_devswap *s);

/* Adds the tensor at [data, data + bytes) of the arena, which the caller keeps alive and no thread writes. *address:
 * its address while no operator uses it: the device's address, or one that cannot be read. NULL: it does not fit, or
 * there is no memory. */
struct swn_devweight *swn_devswap_add(struct swn_devswap *s, uintptr_t data, size_t bytes, void **address);
/* No operator uses w any more, but launched kernels may. The caller may write and free its bytes. */
void swn_devswap_remove(struct swn_devweight *w);

/* An operator of this thread, on this stream, is about to use these weights of one device: waits until all are in
 * place. addresses[i]: their addresses, until swn_devswap_end; captured: as long as they live, as they are captured
 * into a graph, and may exceed the room. 0; -ENOMEM: they do not fit together; -EIO, -ETIMEDOUT: one cannot be brought;
 * -EBUSY: another thread could keep the address, which would belong to another block later. None of them is lent after
 * an error. */
int swn_devswap_begin(struct swn_devweight *const *w, unsigned n, void *stream, void **addresses, int *captured);
/* That operator has launched all its kernels. */
void swn_devswap_end(struct swn_devweight *const *w, unsigned n, void *stream, int captured);

/* The address at which w stays as long as it lives, as a graph has that address; NULL: w comes and goes. */
void *swn_devswap_stays(const struct swn_devweight *w);

/* A child cannot use its parent's devices, and has no block of them. */
void swn_devswap_fork_child(void);
void swn_devswap_stats(struct swn_stats *out);

#endif
