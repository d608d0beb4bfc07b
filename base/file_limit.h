/* base/file_limit.h - RLIMIT_FSIZE, asked before the kernel has to refuse: with its refusal comes SIGXFSZ, which ends a
 * program that neither handles nor ignores it, and no library may do that to a program. Memory files count, too. */
#ifndef SWN_BASE_FILE_LIMIT_H
#define SWN_BASE_FILE_LIMIT_H

#include <stdint.h>

/* Whether a file may not have as many bytes. */
int swn_file_limit_below(uint64_t bytes);

/* Whether the file is smaller than that, and may not grow to it. */
int swn_file_limit_stops(int fd, uint64_t bytes);

#endif
