/* skeleton/load/mapped_file.h - weights that lie in a file the program mapped itself: torch.load(mmap=True),
 * safetensors.
 *
 * The engine serves them from where they lie. The mapping is the program's and stays; each tensor in it that an
 * operator is seen to read becomes a range (its whole pages), streamed from that file: fetched past the page cache and
 * mapped over the program's own pages for as long as the operator runs. The pages that two tensors share at their
 * edges, and bytes that no operator announces, are read through the program's mapping as ever.
 */
#ifndef SWN_SKELETON_LOAD_MAPPED_FILE_H
#define SWN_SKELETON_LOAD_MAPPED_FILE_H

#include <stddef.h>
#include <sys/types.h>

#include "skeleton/engine/engine_internal.h"

/* PyTorch has mapped a file, privately and writable. No lock held. */
void swn_mapped_file_begin(void *addr, size_t len, int fd, off_t off);
/* The program is about to unmap addresses. Cheap where no file is mapped there. No lock held. */
void swn_mapped_file_end(void *addr, size_t len);

/* The program maps a file to read, perhaps the header of a checkpoint. Cheap except for large files. No lock held. */
void swn_mapped_file_looking(size_t len, int fd);

/* An operator is about to begin; no lock held. */
void swn_mapped_file_woken(const struct swn_op *op);
/* The range that is likely to be read after r, which lies in a mapped file, or NULL. Engine lock held. */
struct swn_range *swn_mapped_file_successor(struct swn_engine *e, const struct swn_range *r);

/* Arguments without a data word are tensors in such mappings: finds or makes their ranges. Engine lock held. */
void swn_mapped_file_resolve(struct swn_engine *e, struct swn_op *op);

/* Pages of [lo, hi) in mapped files that no range has become ranges. Engine lock held. */
void swn_mapped_file_cover(struct swn_engine *e, uintptr_t lo, uintptr_t hi);

#endif
