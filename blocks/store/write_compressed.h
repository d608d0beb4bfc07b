/* blocks/store/write_compressed.h - writes the compressed extents of a store, behind all plain extents. Private to the
 * block store.
 *
 * The writer sees an extent's bytes once, and cannot know beforehand how well they compress. So it begins a copy of
 * each extent, and abandons the copy as soon as it saves too little; the next copy overwrites it. Without more room on
 * the disk the remaining extents get no copy: such a store is as good, only slower.
 */
#ifndef SWN_BLOCKS_STORE_WRITE_COMPRESSED_H
#define SWN_BLOCKS_STORE_WRITE_COMPRESSED_H

#include "base/atomic_file.h"
#include "blocks/store/store_internal.h"

struct swn_compressed;

/* `begin`: where the extents end. `most`: bytes that copies may take; 0: any number. NULL: no memory. */
struct swn_compressed *swn_compressed_new(const struct swn_io *io, struct swn_atomic_file *file, uint64_t begin,
                                          uint64_t most);
void swn_compressed_free(struct swn_compressed *k);

/* For each extent: _begin with its number and size, _add with its bytes piece by piece, then _end. 0 or -errno of a
 * write; no room is no error. */
void swn_compressed_begin(struct swn_compressed *k, uint32_t extent, uint64_t bytes);
int swn_compressed_add(struct swn_compressed *k, const char *bytes, size_t size);
int swn_compressed_end(struct swn_compressed *k);

/* Writes the table behind the copies, ends the file there, and fills in the header. 0 or -errno; without room the store
 * has no copies, which is no error. */
int swn_compressed_finish(struct swn_compressed *k, struct swn_disk_header *h);

#endif
