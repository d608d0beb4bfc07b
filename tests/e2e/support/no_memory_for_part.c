/* no_memory_for_part.c - a preload that lets the second allocation of $PART_BYTES fail behind each one of $WHOLE_BYTES:
 * a whole is there, and memory for its first part, but none for the second. Of aligned memory, as PyTorch takes it. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdlib.h>

static _Atomic int to_come;

static size_t bytes_in(const char *name)
{
    const char *text = getenv(name);

    return text ? strtoul(text, NULL, 10) : 0;
}

int posix_memalign(void **to, size_t alignment, size_t bytes)
{
    static int (*real)(void **, size_t, size_t);

    if (!real)
        real = (int (*)(void **, size_t, size_t))dlsym(RTLD_NEXT, "posix_memalign");
    if (bytes == bytes_in("WHOLE_BYTES"))
        to_come = 2;
    else if (to_come > 0 && bytes == bytes_in("PART_BYTES") && --to_come == 0)
        return ENOMEM;
    return real(to, alignment, bytes);
}
