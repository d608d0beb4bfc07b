/* blocks/memory/pagemap_proof.h - whether the kernel's page map tells the truth.
 *
 * Only /proc/self/pagemap tells which weights the program has written. Where it can be read and is wrong (a sandbox, an
 * emulator), stores would be lost silently. So the engine first tests the page map with pages whose history is known.
 */
#ifndef SWN_BLOCKS_MEMORY_PAGEMAP_PROOF_H
#define SWN_BLOCKS_MEMORY_PAGEMAP_PROOF_H

#include <stddef.h>
#include <stdint.h>

#include "blocks/memory/pagemap.h"

/* Counts the pages among `bytes` at addr, as swn_pagemap_scan does; 0 or -errno. */
typedef int swn_pagemap_ask(void *ctx, uintptr_t addr, size_t bytes, struct swn_pages *out);

/* 0: the page map tells private copies from pages of a file, and those from untouched pages, also after they were
 * swapped out. -EBADMSG: it does not. Another -errno: it cannot be read. */
int swn_pagemap_proof(swn_pagemap_ask *ask, void *ctx);
/* The same of the kernel's page map, by its descriptor. */
int swn_pagemap_proof_of(int *pagemap_fd);

#endif
