/* base/huge_pages.h - huge pages for what the disk is read into, and for tensors.
 *
 * Shared memory: a virtual disk (virtio-blk) moves every page of a direct read by itself, and pinning costs by the
 * page: into huge pages such disks have been seen to read 1.5 times as fast. Left to itself the kernel gives shared
 * memory none (/sys/kernel/mm/transparent_hugepage/shmem_enabled is "never" nearly everywhere), but since Linux 6.1 it
 * makes them of what lies there when asked to (MADV_COLLAPSE), unless the administrator denies it or the process does
 * without (PR_SET_THP_DISABLE). Nothing else changes: an older kernel, or memory too fragmented, is no error.
 *
 * Private memory: going through weights in small pages costs some percent, as each has to be found (on a virtual
 * machine twice over), and 512 faults instead of one cost more than twice the time of one. But a huge page that several
 * tensors have a part of stays while any of them does, beyond what is counted. So the kernel is told, tensor by tensor,
 * where it may make some and where it may not, whatever /sys/kernel/mm/transparent_hugepage/enabled says of memory
 * without advice ("always" on Debian); "never" is never.
 *
 * Stateless and thread-safe.
 */
#ifndef SWN_BASE_HUGE_PAGES_H
#define SWN_BASE_HUGE_PAGES_H

#include <stddef.h>
#include <stdint.h>

/* The huge page of kernels with pages of 4 KiB. Those with larger ones have huge pages that are too large for us. */
#define SWN_HUGE ((size_t)2 << 20)

/* Maps `bytes` of the file, whole pages, from `off` on, a multiple of SWN_HUGE: shared, at an address that huge pages
 * can have; MAP_FAILED and errno. To be unmapped by munmap of as many bytes. */
void *swn_huge_map(int fd, uint64_t off, size_t bytes, int prot);

/* Makes huge pages of a shared mapping's [at, at+bytes), both multiples of SWN_HUGE from its beginning. All of it takes
 * memory from then on, which is zero where there was none. 0; -errno: in parts, or not at all, and what was there
 * stands as it was. */
int swn_huge_collapse(void *at, size_t bytes);

/* Private memory of one tensor that has no pages yet, or some: those huge pages that lie in [at, at+bytes) whole are
 * made at once when they are first touched, and no other that has a part of it. Whole pages. */
void swn_huge_advise(uintptr_t at, size_t bytes);
/* No huge page that has a part of [at, at+bytes). */
void swn_huge_refuse(uintptr_t at, size_t bytes);

/* Before a part of one is given back, [at, at+bytes) within it: it becomes small pages. Otherwise the kernel would keep
 * all of it until it is short of memory. Some 0.1 ms. Linux 5.4; an older kernel keeps it, and so does any one where a
 * forked child has it as well, or it is locked or being written from or read into. */
void swn_huge_divide(uintptr_t at, size_t bytes);

#endif
