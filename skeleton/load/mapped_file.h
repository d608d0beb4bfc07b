/* skeleton/load/mapped_file.h - weights that lie in a file the program mapped itself: torch.load(mmap=True),
 * safetensors; np.load(mmap_mode='c').
 *
 * The engine serves them from where they lie. The mapping is the program's and stays; each tensor in it that an
 * operator is seen to read becomes a range (of whole pages), streamed from that file: fetched past the page cache and
 * mapped over the program's own pages for as long as the operator runs. The page that two tensors share at their edges
 * goes to the second one's range, so that neighbours leave no gap: a chunk with one cannot be mapped as a huge page.
 * Bytes that no operator announces are read through the program's mapping as ever.
 */
#ifndef SWN_SKELETON_LOAD_MAPPED_FILE_H
#define SWN_SKELETON_LOAD_MAPPED_FILE_H

#include <stddef.h>
#include <sys/types.h>

#include "skeleton/engine/engine_internal.h"

/* Smaller mappings are not worth a table. */
#define SWN_MAPPED_LEAST ((size_t)1 << 20)

/* The same for a mapping that is not PyTorch's own but the program's (numpy, the mmap module): left alone where
 * somebody may write to the file, or where descriptors are scarce. No lock held. */
void swn_mapped_file_of_program(void *addr, size_t len, int fd, off_t off);
/* Those that there are when the engine starts. No lock held. */
void swn_mapped_file_look_before(void);

/* PyTorch has mapped a file, privately and writable. No lock held. */
void swn_mapped_file_begin(void *addr, size_t len, int fd, off_t off);
/* The program is about to unmap addresses. Cheap where no file is mapped there. No lock held. */
void swn_mapped_file_end(void *addr, size_t len);
/* The program is about to move a mapping, or to map something over it, which may fail: the bytes stay. Nothing where it
 * is the library that maps (in a section, or on a thread of its own). Cheap where no file is mapped there. No lock
 * held.
 */
void swn_mapped_file_end_kept(const void *addr, size_t len);

/* The program drops pages (MADV_DONTNEED, whole ones): those of mapped files have the file's bytes again, and lose what
 * was stored there. 0, or -errno: none has been dropped, or not all. Cheap where no file is mapped there. No lock held.
 */
int swn_mapped_file_drop(void *addr, size_t len);
/* Whether a file is mapped at some of the addresses. No lock held. */
int swn_mapped_file_is_at(const void *addr, size_t len);

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
