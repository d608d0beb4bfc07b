/* swn_huge.h - huge pages for shared memory that the disk is read into.
 *
 * A virtual disk (virtio-blk) moves every page of a direct read by itself, and pinning costs by the page: into huge
 * pages such disks have been seen to read 1.5 times as fast. Left to itself the kernel gives shared memory none
 * (/sys/kernel/mm/transparent_hugepage/shmem_enabled is "never" nearly everywhere), but since Linux 6.1 it makes them
 * of what lies there when asked to (MADV_COLLAPSE), unless the administrator denies it or the process does without
 * (PR_SET_THP_DISABLE). Nothing else changes: an older kernel, or memory too fragmented, is no error to anybody.
 *
 * Stateless and thread-safe.
 */
#ifndef SWN_HUGE_H
#define SWN_HUGE_H

#include <stddef.h>
#include <stdint.h>

/* The huge page of kernels with pages of 4 KiB. Those with larger ones have huge pages that are too large for us. */
#define SWN_HUGE ((size_t)2 << 20)

/* Maps so many bytes of the file, whole pages, from `off` on, a multiple of SWN_HUGE: shared, at an address that huge
 * pages can have; MAP_FAILED and errno. Ends with munmap of as many bytes. */
void *swn_huge_map(int fd, uint64_t off, size_t bytes, int prot);

/* Makes huge pages of a shared mapping's [at, at+bytes), both multiples of SWN_HUGE from its beginning. All of it takes
 * memory from then on, which is zero where there was none. 0; -errno: in parts, or not at all, and what was there
 * stands as it was. */
int swn_huge_collapse(void *at, size_t bytes);

#endif
