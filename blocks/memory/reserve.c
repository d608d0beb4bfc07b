/* blocks/memory/reserve.c - see reserve.h. */
#define _GNU_SOURCE
#include "blocks/memory/reserve.h"

#include <errno.h>
#include <sys/mman.h>

#include "blocks/memory/arena.h"
#include "base/huge_pages.h"

/* From Linux 5.18; the headers of the build may be older. */
#ifndef MADV_DONTNEED_LOCKED
#define MADV_DONTNEED_LOCKED 24
#endif

#define RESERVED (MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE)

static void *reserve(size_t bytes, int prot)
{
    size_t room = bytes + SWN_HUGE;
    if (!bytes || room < bytes) {
        errno = ENOMEM;
        return NULL;
    }
    char *at = mmap(NULL, room, prot, RESERVED, -1, 0);
    if (at == MAP_FAILED)
        return NULL;
    size_t before = -(uintptr_t)at % SWN_HUGE;
    if (before)
        munmap(at, before);
    munmap(at + before + bytes, room - before - bytes);
    swn_reserve_dump(at + before, bytes, 0);
    return at + before;
}

void *swn_reserve(size_t bytes)
{
    return reserve(bytes, PROT_NONE);
}

void *swn_reserve_zeros(size_t bytes)
{
    return reserve(bytes, PROT_READ);
}

void swn_reserve_release(void *at, size_t bytes)
{
    if (bytes)
        munmap(at, bytes);
}

int swn_reserve_open(void *at, size_t bytes)
{
    return mprotect(at, bytes, PROT_READ | PROT_WRITE) ? -errno : 0;
}

int swn_reserve_open_file(void *at, size_t bytes, int prot, int fd, uint64_t off)
{
    if (mmap(at, bytes, prot, MAP_SHARED | MAP_NORESERVE | MAP_FIXED, fd, (off_t)off) == MAP_FAILED)
        return -errno;
    swn_reserve_dump(at, bytes, 0);
    return 0;
}

int swn_reserve_close(void *at, size_t bytes)
{
    if (mmap(at, bytes, PROT_NONE, RESERVED | MAP_FIXED, -1, 0) == MAP_FAILED)
        return -errno;
    swn_reserve_dump(at, bytes, 0);
    return 0;
}

void swn_reserve_dump(void *at, size_t bytes, int yes)
{
    madvise(at, bytes, yes ? MADV_DODUMP : MADV_DONTDUMP);
}

void swn_reserve_drop(void *at, size_t bytes)
{
    if (!madvise(at, bytes, MADV_DONTNEED) || errno != EINVAL || !madvise(at, bytes, MADV_DONTNEED_LOCKED))
        return;
    munlock(at, bytes); /* an older kernel has no other way */
    madvise(at, bytes, MADV_DONTNEED);
}

int swn_reserve_is_locked(void *at)
{
    return madvise(at, SWN_PAGE, MADV_DONTNEED) && errno == EINVAL;
}

int swn_reserve_all_locked(void)
{
    void *page = mmap(NULL, SWN_PAGE, PROT_NONE, RESERVED, -1, 0);
    if (page == MAP_FAILED)
        return 0;
    int locked = swn_reserve_is_locked(page);
    munmap(page, SWN_PAGE);
    return locked;
}
