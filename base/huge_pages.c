/* base/huge_pages.c - see huge_pages.h. */
#define _GNU_SOURCE
#include "base/huge_pages.h"

#include <errno.h>
#include <stdint.h>
#include <sys/mman.h>
#include <unistd.h>

/* From Linux 5.14, 5.4 and 6.1; the headers of the build may be older. */
#ifndef MADV_POPULATE_WRITE
#define MADV_POPULATE_WRITE 23
#endif
#ifndef MADV_COLD
#define MADV_COLD 20
#endif
#ifndef MADV_COLLAPSE
#define MADV_COLLAPSE 25
#endif

void *swn_huge_map(int fd, uint64_t off, size_t bytes, int prot)
{
    size_t room = bytes + SWN_HUGE;
    char *at = mmap(NULL, room, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (at == MAP_FAILED)
        return MAP_FAILED;
    size_t before = -(uintptr_t)at % SWN_HUGE;
    void *map = mmap(at + before, bytes, prot, MAP_SHARED | MAP_NORESERVE | MAP_FIXED, fd, (off_t)off);
    if (map == MAP_FAILED) {
        int err = errno;
        munmap(at, room);
        errno = err;
        return MAP_FAILED;
    }
    if (before)
        munmap(at, before);
    munmap(at + before + bytes, room - before - bytes);
    return map;
}

int swn_huge_collapse(void *at, size_t bytes)
{
    if (sysconf(_SC_PAGESIZE) != 4096)
        return -ENOTSUP;
    /* The kernel collapses only a range that has pages: make one page in each huge page. */
    for (size_t done = 0; done < bytes; done += SWN_HUGE)
        if (madvise((char *)at + done, 4096, MADV_POPULATE_WRITE))
            return -errno;
    return madvise(at, bytes, MADV_COLLAPSE) ? -errno : 0;
}

void swn_huge_refuse(uintptr_t at, size_t bytes)
{
    if (bytes)
        madvise((void *)at, bytes, MADV_NOHUGEPAGE); /* fails on a kernel without huge pages, which makes none anyway */
}

void swn_huge_divide(uintptr_t at, size_t bytes)
{
    /* The advice covers a part of the huge page, so the kernel has to split it. That the pages then count as cold does
     * not matter: the caller frees them. */
    madvise((void *)at, bytes, MADV_COLD);
}

void swn_huge_advise(uintptr_t at, size_t bytes)
{
    uintptr_t end = at + bytes, from = (at + SWN_HUGE - 1) / SWN_HUGE * SWN_HUGE, to = end / SWN_HUGE * SWN_HUGE;
    if (from >= to) {
        swn_huge_refuse(at, bytes);
        return;
    }
    swn_huge_refuse(at, from - at);
    madvise((void *)from, to - from, MADV_HUGEPAGE);
    swn_huge_refuse(to, end - to);
}
