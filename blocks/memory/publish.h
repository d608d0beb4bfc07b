/* blocks/memory/publish.h - maps frames at the addresses of the weights whose bytes they have.
 *
 * FILE_BACKED --publish--> FILE_BACKED, with frames mapped at the range's own address --unpublish--> FILE_BACKED
 *
 * A frame holds parts of ranges. A part is mapped at its range's own address only while all its bytes are there and the
 * program has not written to the range since it left: the page map shows that, after the range is read-only and before
 * the mapping changes (blocks/memory/transition.h). The same check comes before the frame leaves.
 *
 * All functions need the caller's lock. Errors are -errno.
 */
#ifndef SWN_BLOCKS_MEMORY_PUBLISH_H
#define SWN_BLOCKS_MEMORY_PUBLISH_H

#include <stddef.h>
#include <stdint.h>

#include "blocks/memory/residency.h"

/* Adds a part for r to the frame of a chunk; r is streamed, and the frame has no part of it. The part says which bytes
 * are to be read (fill) and from where, or that it is `there` without a read. Parts are in the order of their
 * addresses. The pointer is valid until the next part is added. NULL: no memory for it. */
struct swn_part *swn_residency_part(const struct swn_residency *s, struct swn_frame *f, struct swn_range *r);
/* Maps the parts of n frames that have been read and are not mapped yet at their addresses; frames of neighbouring
 * chunks, in their order, cost less together. A part whose range was written to is left out, with the parts that follow
 * it in its stretch. *written is such a range, or NULL: its own address has its bytes, and it should become resident
 * before the call is repeated. */
void swn_residency_publish(struct swn_residency *s, struct swn_frame *const *frames, unsigned n,
                           struct swn_range **written);
/* Maps the parts' extents again: then no address of a weight shows the frames' memory. Returns NULL, or a range that
 * was written to, or cannot be mapped: the caller makes it resident and calls again. */
struct swn_range *swn_residency_unpublish(struct swn_residency *s, struct swn_frame *const *frames, unsigned n);
/* The part of the frame at `addr` that is mapped there, or NULL. */
struct swn_part *swn_residency_mapped(const struct swn_residency *s, const struct swn_range *r, uintptr_t addr);
/* The bytes of r that are read through the mapping of its extent, as no frame is mapped for them. */
size_t swn_residency_unmapped(const struct swn_residency *s, const struct swn_range *r);
/* Ends all parts of r: no frame has bytes of it any more. */
void swn_residency_forget(struct swn_residency *s, const struct swn_range *r);

/* The chunks of r, from the first to one behind the last. */
struct swn_chunks {
    uint64_t first, end;
};
struct swn_chunks swn_residency_chunks(const struct swn_residency *s, const struct swn_range *r);
/* The address of one of r's chunks. */
uintptr_t swn_residency_chunk_at(const struct swn_residency *s, const struct swn_range *r, uint64_t chunk);

#endif
