/* base/file_limit.c - see file_limit.h. */
#include "base/file_limit.h"

#include <sys/resource.h>
#include <sys/stat.h>

int swn_file_limit_below(uint64_t bytes)
{
    struct rlimit limit;
    return getrlimit(RLIMIT_FSIZE, &limit) == 0 && limit.rlim_cur != RLIM_INFINITY && limit.rlim_cur < bytes;
}

int swn_file_limit_stops(int fd, uint64_t bytes)
{
    struct stat st;
    return swn_file_limit_below(bytes) && fstat(fd, &st) == 0 && S_ISREG(st.st_mode) && (uint64_t)st.st_size < bytes;
}
