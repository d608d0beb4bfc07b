/* blocks/memory/reserve.h - address space that is set aside, and costs no memory until it is used.
 *
 * Address space that is reserved and not open has no access rights, so that nothing can fill it: mlockall and core
 * dumps find no page there, neither RLIMIT_DATA nor the kernel's strict accounting (vm.overcommit_memory=2) count it,
 * and a fork copies no page table. Only RLIMIT_AS counts it: the module that reserves it releases what it does not need
 * when the program lowers that limit. A part that is opened is ordinary memory; it stays out of core dumps until the
 * owner says that it holds the program's data.
 *
 * Opening a part of a locked mapping (mlockall) fills it with pages at once, so the caller opens no more than it uses.
 *
 * Stateless and thread-safe. Addresses and sizes are whole pages. Errors are -errno.
 */
#ifndef SWN_BLOCKS_MEMORY_RESERVE_H
#define SWN_BLOCKS_MEMORY_RESERVE_H

#include <stddef.h>
#include <stdint.h>

/* Reserves `bytes`, at a multiple of SWN_HUGE; NULL and errno. The caller owns the addresses until they are released,
 * whatever is open or mapped there meanwhile. */
void *swn_reserve(size_t bytes);
/* The same for tables: closed parts read as zero, and take no memory, either. */
void *swn_reserve_zeros(size_t bytes);
/* Releases address space: all of a reservation, or a part of it. */
void swn_reserve_release(void *at, size_t bytes);

/* Makes a part ordinary memory, which is zero. It joins the mapping of an adjacent open part. -ENOMEM: the system or a
 * limit (RLIMIT_DATA, vm.overcommit_memory) has no room; nothing has changed. */
int swn_reserve_open(void *at, size_t bytes);
/* Maps `bytes` of the file, from `off` on, shared, in place of the present mapping. */
int swn_reserve_open_file(void *at, size_t bytes, int prot, int fd, uint64_t off);
/* Closes a part in one step: its mapping and its pages go, locked pages as well. On error nothing has changed. */
int swn_reserve_close(void *at, size_t bytes);

/* Whether core dumps include the part (1) or not (0). They include every new mapping, but of file mappings only the
 * written pages. gdb's gcore takes each mapping of an unlinked file as written, and would read all of it. */
void swn_reserve_dump(void *at, size_t bytes, int yes);
/* Drops the pages of a part of a private mapping, locked ones as well; the part stays open. */
void swn_reserve_drop(void *at, size_t bytes);

/* Whether the page at `at`, which has none yet, is locked, so that opening it fills it. */
int swn_reserve_is_locked(void *at);
/* Whether all later mappings are locked (MCL_FUTURE). */
int swn_reserve_all_locked(void);

#endif
