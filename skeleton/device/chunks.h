/* skeleton/device/chunks.h - a card's memory for blocks, where the driver can map it: in chunks, of which a block has
 * as few as may be, since each of them takes the driver as long to map as any other, whatever its size.
 *
 * Chunks are of two sizes, the pool's unit, which the driver sets, and `large`. A buffer of so many bytes has as many
 * large ones as go into that, as long as there are any; where small ones run out, a large one is made into small ones,
 * for good: so in the end the driver is asked for none and given none back. Threads and results as in
 * skeleton/device/pool.h.
 */
#ifndef SWN_SKELETON_DEVICE_CHUNKS_H
#define SWN_SKELETON_DEVICE_CHUNKS_H

#include "skeleton/device/pool.h"

/* Sets the pool's unit. 0; -ENOSYS: the device or its driver cannot do it; or a CUresult. */
int swn_devchunks_open(struct swn_devpool *p);
int swn_devchunks_make(struct swn_devpool *p, struct swn_devbuffer *b);
/* What the driver does not take back stays in the buffer. */
int swn_devchunks_drop(struct swn_devpool *p, struct swn_devbuffer *b);
int swn_devchunks_map(struct swn_devpool *p, struct swn_devbuffer *b, char *at);
int swn_devchunks_unmap(struct swn_devpool *p, struct swn_devbuffer *b);

/* `bytes` of `from`, which has as many, come to be `to`, which has none. 0; -ENOMEM: a chunk could not be made into
 * small ones, and `from` has less by what was lost with it. */
int swn_devchunks_divide(struct swn_devpool *p, struct swn_devbuffer *from, size_t bytes, struct swn_devbuffer *to);
/* All of `from` becomes a part of `to`. */
void swn_devchunks_join(struct swn_devbuffer *to, struct swn_devbuffer *from);

#endif
