/* blocks/memory/reserve.h - address space that is set aside, and costs no memory until it is used.
 *
 * Address space that is reserved and not open has no access rights, so that nothing can fill it: mlockall and core
 * dumps find no page there, neither RLIMIT_DATA nor the kernel's strict accounting (vm.overcommit_memory=2) count it,
 * and a fork copies no page table. Only RLIMIT_AS counts it: the module that reserves it gives back what it can do
 * without when the program lowers that limit. A part that is opened is ordinary memory; it stays out of core dumps
 * until the owner says that it holds the program's data.
 *
 * A locked mapping (mlockall) that is opened gets all its pages at once: open no more of one than is used.
 *
 * Stateless and thread-safe. Addresses and sizes are whole pages. Errors are -errno.
 */
#ifndef SWN_BLOCKS_MEMORY_RESERVE_H
#define SWN_BLOCKS_MEMORY_RESERVE_H

#include <stddef.h>
#include <stdint.h>

/* Reserves `bytes`, at a multiple of SWN_HUGE; NULL and errno. The addresses are the caller's until they are released,
 * whatever is open or mapped there meanwhile. */
void *swn_reserve(size_t bytes);
/* The same for tables: what is not open reads as zero, and takes no memory either. */
void *swn_reserve_zeros(size_t bytes);
/* Gives address space back: all that was reserved, or a part of it. */
void swn_reserve_release(void *at, size_t bytes);

/* Makes a part ordinary memory, which is zero. Next to a part that is open it becomes one mapping with it. -ENOMEM: the
 * system or a limit (RLIMIT_DATA, vm.overcommit_memory) has no room; nothing has changed. */
int swn_reserve_open(void *at, size_t bytes);
/* Maps `bytes` of the file, from `off` on, shared, in place of what is there. */
int swn_reserve_open_file(void *at, size_t bytes, int prot, int fd, uint64_t off);
/* Makes a part what it was before it was opened, in one step: whatever is mapped there and its pages go, locked ones as
 * well. On error it is as it was. */
int swn_reserve_close(void *at, size_t bytes);

/* Whether core dumps have it (1) or not (0). Every new mapping is in them, file mappings only their written pages. For
 * gdb's gcore each mapping of an unlinked file counts as written: it would read all of it in. */
void swn_reserve_dump(void *at, size_t bytes, int yes);
/* Drops the pages of a part of a private mapping, locked ones as well; the part stays open. */
void swn_reserve_drop(void *at, size_t bytes);

/* Whether the page at `at`, which has none yet, is locked, so that opening it fills it. */
int swn_reserve_is_locked(void *at);
/* Whether whatever is mapped from now on is (MCL_FUTURE). */
int swn_reserve_all_locked(void);

#endif
