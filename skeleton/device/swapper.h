/* skeleton/device/swapper.h - weights that come and go on a device: which of them are there, and what is on its way.
 *
 * Weights that go to a device one after the other are put together into blocks, which come and go as a whole. A block
 * is brought by a thread of ours, from the disk to where the device reads it, shortly before an operator that needs it:
 * the order is learned (skeleton/engine/access_order.h), and in a first pass taken to be that in which the weights were
 * moved. The block that is needed last goes first, and not before every kernel that may read it is done, which events
 * on their streams tell: no thread waits for the device as a whole.
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
struct swn_devweight; /* a tensor there */

/* Takes over the pool, which was chosen. capacity_bytes: the most that blocks take at once; `counted` if it is memory
 * of the budget. 0 or -errno. */
int swn_devswap_start(struct swn_devswap **out, const struct swn_devpool *pool, size_t capacity_bytes, int counted);
/* Sets the capacity; without `shrinks` only to more than it is. Blocks beyond it go when no operator uses them. Where
 * the memory is counted, two of the largest blocks always have room, or no operator could have them; a card's own
 * memory has the capacity that was asked for, and weights that do not fit are not added. */
void swn_devswap_resize(struct swn_devswap *s, size_t capacity_bytes, int shrinks);
/* Wakes its thread to look for work. Takes no lock, so that the thread may miss the call. */
void swn_devswap_wake(struct swn_devswap *s);
/* Bytes of all blocks that are there, and of buffers without a block. */
size_t swn_devswap_held(struct swn_devswap *s);

/* Adds the tensor at [data, data + bytes) of the arena, which the caller keeps alive and no thread writes. *address:
 * its address as long as no operator uses it: where the device will find it, or where nothing can be read. NULL: it
 * does not fit, or there is no memory. */
struct swn_devweight *swn_devswap_add(struct swn_devswap *s, uintptr_t data, size_t bytes, void **address);
/* No operator uses w, nor will; kernels that were launched may. The caller may write and free its bytes. */
void swn_devswap_remove(struct swn_devweight *w);

/* An operator of this thread, on this stream, is about to use these weights of one device: waits until all are there.
 * addresses[i]: where, until swn_devswap_end. captured: for as long as they live, as they are put into a graph; those
 * may be more than there is room for. 0; -ENOMEM: they do not fit together; -EIO, -ETIMEDOUT: one cannot be brought;
 * -EBUSY: another thread could keep the address, which would name something else then; none of them is lent in these
 * cases. */
int swn_devswap_begin(struct swn_devweight *const *w, unsigned n, void *stream, void **addresses, int *captured);
/* That operator has launched all its kernels. */
void swn_devswap_end(struct swn_devweight *const *w, unsigned n, void *stream, int captured);

/* The address at which w stays for as long as it lives, as a graph has that address; NULL: w comes and goes. */
void *swn_devswap_stays(const struct swn_devweight *w);

/* A child cannot use its parent's devices, and has no block of them. */
void swn_devswap_fork_child(void);
void swn_devswap_stats(struct swn_stats *out);

#endif
