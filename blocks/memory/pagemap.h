/* blocks/memory/pagemap.h - which pages are private copies, and which are a file's, by /proc/self/pagemap.
 *
 * The descriptor is the process's own page map. A child has to open its own, and so has a process whose program closed
 * it: swn_pagemap_scan does the latter, so it takes a pointer. Errors are -errno.
 */
#ifndef SWN_BLOCKS_MEMORY_PAGEMAP_H
#define SWN_BLOCKS_MEMORY_PAGEMAP_H

#include <stddef.h>
#include <stdint.h>

struct swn_pages {
    size_t private_pages; /* private copies: the program wrote them */
    size_t mapped;        /* pages of the file or the pool that have been touched */
};

/* A descriptor, which is in the fd registry. */
int swn_pagemap_open(void);
/* Ignores a negative descriptor. */
void swn_pagemap_close(int fd);
void swn_pagemap_reopen(int *fd);

/* Counts the present pages among `bytes`, whole pages, at addr. */
int swn_pagemap_scan(int *fd, uintptr_t addr, size_t bytes, struct swn_pages *out);

/* Whether the kernel tells a fully mapped huge page of a file from a private copy. Kernels of 2022 to 2024 (before 6.11
 * and its backports) do not: every such page would look written. */
int swn_pagemap_knows_huge(int *fd);

#endif
