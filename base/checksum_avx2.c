/* Compiled for processors with AVX2 (see CMakeLists.txt), and empty for all others. */
#include "base/checksum.h"

#ifdef __AVX2__
#define XXH_INLINE_ALL
#include <xxhash.h>

uint64_t swn_sum_avx2(const void *bytes, size_t n)
{
    return XXH3_64bits(bytes, n);
}
#endif
