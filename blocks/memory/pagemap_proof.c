/* blocks/memory/pagemap_proof.c - see pagemap_proof.h. */
#define _GNU_SOURCE
#include "blocks/memory/pagemap_proof.h"

#include <errno.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/huge_pages.h"
#include "base/page.h"

/* Only every other page is used, so that the kernel's answer for a page cannot be that for its neighbour. */
enum { READ, WRITTEN = 2, READ_AND_WRITTEN = 4, BESIDE = 6, PAGES = 8 };
/* The kernel may reclaim a clean page of a file at any moment, and then the page looks untouched. */
#define TRIES 3

static volatile unsigned char *page(void *map, size_t i)
{
    return (volatile unsigned char *)map + i * SWN_PAGE;
}

static void *map(int fd, int flags)
{
    void *at = mmap(NULL, PAGES * SWN_PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | flags, fd, 0);
    /* Where the program has locked all of its memory, the kernel has touched each page already; and where large folios
     * are used, several pages get memory at once. */
    if (at != MAP_FAILED) {
        swn_huge_refuse((uintptr_t)at, PAGES * SWN_PAGE);
        munlock(at, PAGES * SWN_PAGE);
        madvise(at, PAGES * SWN_PAGE, MADV_DONTNEED);
    }
    return at;
}

/* 0: of `pages` pages from the i-th on, `own` are private copies, and at least `least` and at most `most` are the
 * file's. */
static int expect(swn_pagemap_ask *ask, void *ctx, void *map, size_t i, size_t pages, size_t own, size_t least,
                  size_t most)
{
    struct swn_pages got = {0};
    int err = ask(ctx, (uintptr_t)page(map, i), pages * SWN_PAGE, &got);
    if (err)
        return err;
    return got.private_pages == own && got.mapped >= least && got.mapped <= most ? 0 : -EBADMSG;
}

/* Reading one page may map its neighbours, so about other pages of the file only one thing is known: none is a copy. */
static int of_a_file(swn_pagemap_ask *ask, void *ctx, void *at, void *untouched)
{
    (void)*page(at, READ);
    (void)*page(at, READ_AND_WRITTEN);
    *page(at, WRITTEN) = 1;
    *page(at, READ_AND_WRITTEN) = 1;
    int err = expect(ask, ctx, at, READ, 1, 0, 1, 1);
    err = err ? err : expect(ask, ctx, at, WRITTEN, 1, 1, 0, 0);
    err = err ? err : expect(ask, ctx, at, READ_AND_WRITTEN, 1, 1, 0, 0);
    err = err ? err : expect(ask, ctx, at, BESIDE, 1, 0, 0, 1);
    err = err ? err : expect(ask, ctx, at, READ, PAGES, 2, 1, PAGES - 2);
    return err ? err : expect(ask, ctx, untouched, 0, PAGES, 0, 0, 0);
}

static int of_none(swn_pagemap_ask *ask, void *ctx, void *at)
{
    *page(at, WRITTEN) = 1;
    int err = expect(ask, ctx, at, WRITTEN, 1, 1, 0, 0);
    err = err ? err : expect(ask, ctx, at, BESIDE, 1, 0, 0, 0);
    return err ? err : expect(ask, ctx, at, 0, PAGES, 1, 0, 0);
}

/* A private copy that was swapped out is still a private copy. The kernel swaps it out at once, or has no swap. */
static int swapped_out(swn_pagemap_ask *ask, void *ctx, void *file, void *none)
{
#ifdef MADV_PAGEOUT
    madvise((void *)page(file, WRITTEN), SWN_PAGE, MADV_PAGEOUT);
    madvise((void *)page(none, WRITTEN), SWN_PAGE, MADV_PAGEOUT);
#endif
    int err = expect(ask, ctx, file, WRITTEN, 1, 1, 0, 0);
    return err ? err : expect(ask, ctx, none, WRITTEN, 1, 1, 0, 0);
}

static int proof(swn_pagemap_ask *ask, void *ctx, int fd)
{
    void *file = map(fd, 0), *untouched = map(fd, 0), *none = map(-1, MAP_ANONYMOUS);
    int err = -ENOMEM;
    if (file != MAP_FAILED && untouched != MAP_FAILED && none != MAP_FAILED) {
        err = of_a_file(ask, ctx, file, untouched);
        err = err ? err : of_none(ask, ctx, none);
        err = err ? err : swapped_out(ask, ctx, file, none);
    }
    void *maps[] = {file, untouched, none};
    for (unsigned i = 0; i < 3; i++)
        if (maps[i] != MAP_FAILED)
            munmap(maps[i], PAGES * SWN_PAGE);
    return err;
}

int swn_pagemap_proof(swn_pagemap_ask *ask, void *ctx)
{
    int fd = memfd_create("swapnet-proof", MFD_CLOEXEC);
    if (fd < 0)
        return -errno;
    int err = ftruncate(fd, PAGES * SWN_PAGE) ? -errno : -EBADMSG;
    for (unsigned i = 0; i < TRIES && err == -EBADMSG; i++)
        err = proof(ask, ctx, fd);
    close(fd);
    return err;
}

static int scan(void *pagemap_fd, uintptr_t addr, size_t bytes, struct swn_pages *out)
{
    return swn_pagemap_scan(pagemap_fd, addr, bytes, out);
}

int swn_pagemap_proof_of(int *pagemap_fd)
{
    return swn_pagemap_proof(scan, pagemap_fd);
}
