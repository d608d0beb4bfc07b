/* base/checksum.h - the checksum of bytes that come from a store: XXH3-64, by the fastest instructions that the
 * processor has.
 *
 * Every byte that a pass reads is checked, so its speed shows: the distribution's library uses those of the oldest
 * x86-64 processors, and takes twice as long. Stateless and thread-safe.
 */
#ifndef SWN_BASE_CHECKSUM_H
#define SWN_BASE_CHECKSUM_H

#include <stddef.h>
#include <stdint.h>

uint64_t swn_sum(const void *bytes, size_t n);

/* Only where the processor has AVX2. The same number. */
uint64_t swn_sum_avx2(const void *bytes, size_t n);

#endif
