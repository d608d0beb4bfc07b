/* shim/hooks/readable.c - see readable.h. */
#define _GNU_SOURCE
#include "shim/hooks/readable.h"

#include <errno.h>
#include <stdint.h>
#include <sys/syscall.h>
#include <unistd.h>

#define WORD sizeof(uint64_t)  /* the kernel's set of signals */
#define PAGE ((uintptr_t)4096) /* the least there is; where pages are larger, some are asked for twice */
#define NO_SUCH_WAY (-1)

/* The kernel reads the set before it looks at the way in which the mask is to change, and there is no such way. */
static int is_word_readable(uintptr_t at)
{
    return syscall(SYS_rt_sigprocmask, NO_SUCH_WAY, at / WORD * WORD, NULL, WORD) == 0 || errno != EFAULT;
}

size_t swn_readable(const void *p, size_t bytes)
{
    uintptr_t lo = (uintptr_t)p, hi = lo + bytes, at = lo;
    int saved = errno;
    if (hi < lo)
        return 0;
    while (at < hi && at >= PAGE && is_word_readable(at))
        at = (at / PAGE + 1) * PAGE;
    errno = saved;
    return at >= hi ? bytes : at - lo;
}
