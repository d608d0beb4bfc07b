/* skeleton/device/chunks.h - a card's memory for blocks, where the driver can map it: in chunks. A block has as few of
 * them as possible, since the driver takes as long to map a small chunk as a large one.
 *
 * Chunks are of two sizes, the pool's unit, which the driver sets, and `large`. A buffer has as many large chunks as
 * fit its size, as long as there are any. Where small chunks run out, a large one is made into small ones, for good: so
 * in the end the pool neither asks the driver for chunks nor gives any back. Threads and results as in
 * skeleton/device/pool.h.
 */
#ifndef SWN_SKELETON_DEVICE_CHUNKS_H
#define SWN_SKELETON_DEVICE_CHUNKS_H

#include "skeleton/device/pool.h"

/* Sets the pool's unit. 0; -ENOSYS: the device or its driver cannot do it; or a CUresult. */
int swn_devchunks_open(struct swn_devpool *p);
int swn_devchunks_make(struct swn_devpool *p, struct swn_devbuffer *b);
/* Chunks that the driver does not take back stay in the buffer. */
int swn_devchunks_drop(struct swn_devpool *p, struct swn_devbuffer *b);
int swn_devchunks_map(struct swn_devpool *p, struct swn_devbuffer *b, char *at);
int swn_devchunks_unmap(struct swn_devpool *p, struct swn_devbuffer *b);

/* Moves `bytes` of `from`, which has at least these, to `to`, which has none. 0; -ENOMEM: a chunk could not be split;
 * it is lost, and `from` is smaller by its size. */
int swn_devchunks_divide(struct swn_devpool *p, struct swn_devbuffer *from, size_t bytes, struct swn_devbuffer *to);
/* All of `from` becomes a part of `to`. */
void swn_devchunks_join(struct swn_devbuffer *to, struct swn_devbuffer *from);

#endif
