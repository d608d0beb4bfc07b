/* blocks/memory/pagemap_proof.h - whether the kernel's page map tells the truth.
 *
 * Only /proc/self/pagemap tells which weights the program has written. Where it can be read and does not tell (a
 * sandbox, an emulator), stores would be lost without a word. So the engine first asks it about pages of which the
 * engine knows what was done to them.
 */
#ifndef SWN_BLOCKS_MEMORY_PAGEMAP_PROOF_H
#define SWN_BLOCKS_MEMORY_PAGEMAP_PROOF_H

#include <stddef.h>
#include <stdint.h>

#include "blocks/memory/pagemap.h"

/* Counts the pages among `bytes` at addr, as swn_pagemap_scan does; 0 or -errno. */
typedef int swn_pagemap_ask(void *ctx, uintptr_t addr, size_t bytes, struct swn_pages *out);

/* 0: it tells private copies from pages of a file, and those from pages that no thread has touched, also where they
 * have been swapped out. -EBADMSG: it does not. Else -errno: it could not be asked. */
int swn_pagemap_proof(swn_pagemap_ask *ask, void *ctx);

#endif
