/* base/checksum.h - the checksum of bytes that come from a store: XXH3-64, by the fastest instructions that the
 * processor has.
 *
 * Every byte that a pass reads is checked, so the checksum's speed shows. The distribution's library uses only the
 * instructions of the oldest x86-64 processors, and takes twice as long. Stateless and thread-safe.
 */
#ifndef SWN_BASE_CHECKSUM_H
#define SWN_BASE_CHECKSUM_H

#include <stddef.h>
#include <stdint.h>

uint64_t swn_sum(const void *bytes, size_t n);

/* The same sum, computed with AVX2. Only for a processor that has it. */
uint64_t swn_sum_avx2(const void *bytes, size_t n);

#endif
