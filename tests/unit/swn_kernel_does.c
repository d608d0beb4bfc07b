#define _GNU_SOURCE
#include "swn_kernel_does.h"

#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <setjmp.h>

#include <cmocka.h>

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#define BYTES ((size_t)1 << 20)

static int removes(void)
{
    struct stat before, after;
    int fd = memfd_create("probe", MFD_CLOEXEC), gone = 0;
    void *p = fd < 0 || ftruncate(fd, BYTES) ? MAP_FAILED : mmap(NULL, BYTES, PROT_WRITE, MAP_SHARED, fd, 0);
    if (p != MAP_FAILED) {
        *(volatile char *)p = 1;
        gone = !fstat(fd, &before) && !madvise(p, BYTES, MADV_REMOVE) && !fstat(fd, &after) &&
               after.st_blocks < before.st_blocks;
        munmap(p, BYTES);
    }
    close(fd);
    return gone;
}

static int populates(void)
{
#ifdef MADV_POPULATE_READ
    unsigned char there = 0;
    void *p = mmap(NULL, BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    int does = p != MAP_FAILED && (madvise(p, BYTES, MADV_POPULATE_READ) || (!mincore(p, 1, &there) && there));
    munmap(p, BYTES);
    return does;
#else
    return 1;
#endif
}

static int told(int does, const char *what)
{
    if (!does)
        print_message("%s does nothing here: what depends on it is not looked at\n", what);
    return does;
}

int swn_probe_removes(void)
{
    return told(removes(), "MADV_REMOVE");
}

int swn_probe_populates(void)
{
    return told(populates(), "MADV_POPULATE_READ");
}
