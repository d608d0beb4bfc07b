/* base/huge_pages.h - huge pages for what the disk is read into, and for tensors.
 *
 * Shared memory: a virtual disk (virtio-blk) moves every page of a direct read separately, and pinning costs time per
 * page: such disks have been seen to read into huge pages 1.5 times as fast. The kernel gives shared memory no huge
 * pages by default (/sys/kernel/mm/transparent_hugepage/shmem_enabled is "never" nearly everywhere). Since Linux 6.1 it
 * makes them from existing pages on request (MADV_COLLAPSE), unless the administrator forbids it or the process has
 * PR_SET_THP_DISABLE. On an older kernel, or in fragmented memory, small pages stay, which is no error.
 *
 * Private memory: reading weights in small pages costs some percent, as the processor walks the page table for each (on
 * a virtual machine twice), and 512 faults take more than twice the time of one. But a huge page that several tensors
 * share stays as long as any of them, and its memory is not counted. So the library tells the kernel, tensor by tensor,
 * where it may make huge pages and where it may not, whatever /sys/kernel/mm/transparent_hugepage/enabled says of
 * memory without advice ("always" on Debian). "never" stays in force.
 *
 * Stateless and thread-safe.
 */
#ifndef SWN_BASE_HUGE_PAGES_H
#define SWN_BASE_HUGE_PAGES_H

#include <stddef.h>
#include <stdint.h>

/* The huge page of kernels with pages of 4 KiB. On kernels with larger pages huge pages are too large to be of use. */
#define SWN_HUGE ((size_t)2 << 20)

/* Maps `bytes` of the file, whole pages, from `off`, a multiple of SWN_HUGE: shared, at an address aligned for huge
 * pages. MAP_FAILED and errno on failure. The caller unmaps the same number of bytes. */
void *swn_huge_map(int fd, uint64_t off, size_t bytes, int prot);

/* Makes huge pages of [at, at+bytes) of a shared mapping, both multiples of SWN_HUGE from its beginning. The whole
 * range takes memory from then on; what had no page reads as zero. 0; -errno: some or none of the range became huge,
 * and its bytes are unchanged. */
int swn_huge_collapse(void *at, size_t bytes);

/* For the private memory of one tensor: the first touch of a huge page that lies in [at, at+bytes) as a whole makes it
 * at once. Huge pages that only overlap the range are never made. Whole pages. */
void swn_huge_advise(uintptr_t at, size_t bytes);
/* The kernel makes no huge page that overlaps [at, at+bytes). */
void swn_huge_refuse(uintptr_t at, size_t bytes);

/* Splits the huge page that has [at, at+bytes), before the caller frees that part of it; otherwise the kernel would
 * keep the whole page until memory is short. Takes some 0.1 ms. An older kernel than Linux 5.4 does not split, and no
 * kernel splits a page that a forked child shares, that is locked, or that I/O is using. */
void swn_huge_divide(uintptr_t at, size_t bytes);

#endif
