/* tests/unit/support/kernel_does.c - see kernel_does.h. */
#define _GNU_SOURCE
#include "tests/unit/support/kernel_does.h"

#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <setjmp.h>

#include <cmocka.h>

#include <fcntl.h>
#include <inttypes.h>
#include <liburing.h>
#include <stdio.h>
#include <string.h>
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

/* Whether the line of a mapping's flags says what madvise() was told. */
static int leaves_out(void)
{
    char line[256], *found = NULL;
    void *p = mmap(NULL, BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (p == MAP_FAILED || madvise(p, BYTES, MADV_DONTDUMP))
        return 0;
    FILE *f = fopen("/proc/self/smaps", "re");
    for (int here = 0; f && !found && fgets(line, sizeof line, f);) {
        uintptr_t lo = 0, hi = 0;
        if (sscanf(line, "%" SCNxPTR "-%" SCNxPTR " ", &lo, &hi) == 2)
            here = (uintptr_t)p >= lo && (uintptr_t)p < hi;
        else if (here && !strncmp(line, "VmFlags:", 8))
            found = strstr(line, " dd");
    }
    if (f)
        fclose(f);
    munmap(p, BYTES);
    return found != NULL;
}

static int reads_in_rings(void)
{
    struct io_uring_probe *probe = io_uring_get_probe();
    int does = probe && io_uring_opcode_supported(probe, IORING_OP_READ);
    io_uring_free_probe(probe);
    return does;
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

int swn_probe_leaves_out(void)
{
    return told(leaves_out(), "MADV_DONTDUMP");
}

int swn_probe_populates(void)
{
    return told(populates(), "MADV_POPULATE_READ");
}

int swn_probe_rings(void)
{
    return told(reads_in_rings(), "io_uring");
}
