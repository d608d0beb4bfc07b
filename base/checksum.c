/* base/checksum.c - see checksum.h. */
#include "base/checksum.h"

#include <xxhash.h>

uint64_t swn_sum(const void *bytes, size_t n)
{
#ifdef __x86_64__
    if (__builtin_cpu_supports("avx2"))
        return swn_sum_avx2(bytes, n);
#endif
    return XXH3_64bits(bytes, n);
}
