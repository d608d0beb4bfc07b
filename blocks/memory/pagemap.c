/* blocks/memory/pagemap.c - see pagemap.h. */
#define _GNU_SOURCE
#include "blocks/memory/pagemap.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/io.h"
#include "base/fd_registry.h"
#include "base/huge_pages.h"
#include "base/page.h"

/* Documentation/admin-guide/mm/pagemap.rst */
#define PM_PRESENT (1ULL << 63)
#define PM_SWAPPED (1ULL << 62)
#define PM_FILE (1ULL << 61)

int swn_pagemap_open(void)
{
    int fd = swn_fd_registry(open("/proc/self/pagemap", O_RDONLY | O_CLOEXEC));
    return fd < 0 ? -errno : fd;
}

void swn_pagemap_close(int fd)
{
    if (fd >= 0)
        swn_fd_registry_close(fd);
}

void swn_pagemap_reopen(int *fd)
{
    swn_pagemap_close(*fd);
    *fd = swn_pagemap_open();
}

int swn_pagemap_scan(int *fd, uintptr_t addr, size_t bytes, struct swn_pages *out)
{
    uint64_t entries[512];
    size_t first = addr / SWN_PAGE, pages = bytes / SWN_PAGE;
    *out = (struct swn_pages){0};
    if (!swn_fd_is_ours(*fd))
        swn_pagemap_reopen(fd);
    for (size_t done = 0; done < pages;) {
        size_t n = pages - done < 512 ? pages - done : 512;
        ssize_t got = pread(*fd, entries, n * 8, (off_t)((first + done) * 8));
        if (got < 8)
            return got < 0 ? -errno : -EIO;
        n = (size_t)got / 8;
        for (size_t i = 0; i < n; i++) {
            if (!(entries[i] & (PM_PRESENT | PM_SWAPPED)))
                continue;
            if (entries[i] & PM_FILE)
                out->mapped++;
            else
                out->private_pages++;
        }
        done += n;
    }
    return 0;
}

int swn_pagemap_knows_huge(int *pagemap)
{
    struct swn_pages pages = {0};
    int fd = memfd_create("swapnet-probe", MFD_CLOEXEC), knows = 1;
    void *at = fd >= 0 && !swn_file_limit_below(SWN_HUGE) && !ftruncate(fd, SWN_HUGE)
                   ? swn_huge_map(fd, 0, SWN_HUGE, PROT_READ | PROT_WRITE)
                   : MAP_FAILED;
    if (at != MAP_FAILED && !swn_huge_collapse(at, SWN_HUGE) &&
        mmap(at, SWN_HUGE, PROT_READ, MAP_PRIVATE | MAP_FIXED, fd, 0) == at) {
        (void)*(volatile char *)at;
        knows = !swn_pagemap_scan(pagemap, (uintptr_t)at, SWN_HUGE, &pages) && !pages.private_pages;
    }
    if (at != MAP_FAILED)
        munmap(at, SWN_HUGE);
    if (fd >= 0)
        close(fd);
    return knows;
}
