/* skeleton/tiling/fill.h - a tensor larger than the budget gets its first numbers piece by piece: the kernel makes a
 * piece in a buffer of the library while the piece before is written to the tensor's extent, past the page cache.
 *
 * At its own address such a tensor would be written through a shared mapping, that is into dirty page cache, which has
 * to be reclaimed repeatedly meanwhile; a kernel that goes over it twice (as normal_ does) would read all of it back.
 */
#ifndef SWN_SKELETON_TILING_FILL_H
#define SWN_SKELETON_TILING_FILL_H

#include <stddef.h>

#include "skeleton/abi/abi.h"

struct swn_fill;

/* Runtime services, see skeleton/abi/abi.h. Called with no lock held. */
struct swn_fill *swn_fill_begin(struct swn_op *op, unsigned arg, size_t *piece);
void *swn_fill_next(struct swn_fill *f, size_t bytes);
void swn_fill_end(struct swn_fill *f, int made);

#endif
