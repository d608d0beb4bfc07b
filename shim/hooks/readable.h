/* shim/hooks/readable.h - whether a structure of the program's, a vector or a message, can be read at all. */
#ifndef SWN_SHIM_HOOKS_READABLE_H
#define SWN_SHIM_HOOKS_READABLE_H

#include <stddef.h>

/* How many bytes of [p, p + bytes) can be read, from the first on; to its end, or to a page that cannot. A hook that
 * looks at what a pointer leads to asks this first: where the pointer leads nowhere, the kernel answers EFAULT, and a
 * hook would crash. One system call per page, which every sandbox allows. Async-signal-safe; keeps errno. */
size_t swn_readable(const void *p, size_t bytes);

/* All of them. */
static inline int swn_is_readable(const void *p, size_t bytes)
{
    return swn_readable(p, bytes) == bytes;
}

#endif
