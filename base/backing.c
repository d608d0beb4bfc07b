/* base/backing.c - see backing.h. */
#define _GNU_SOURCE
#include "base/backing.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/fiemap.h>
#include <linux/fs.h>
#include <linux/magic.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/vfs.h>

#include "base/file_io.h"

/* Pages of the probe file. One page of a file on a disk might stay in the cache for a moment in which it is in use. */
#define PROBE_PAGES 16

enum medium { DISK, MEMORY, OVERLAY };

static enum medium medium_of(int fd)
{
    struct statfs fs;
    if (fstatfs(fd, &fs))
        return DISK;
    if (fs.f_type == TMPFS_MAGIC || fs.f_type == RAMFS_MAGIC || fs.f_type == HUGETLBFS_MAGIC)
        return MEMORY;
    return fs.f_type == OVERLAYFS_SUPER_MAGIC ? OVERLAY : DISK;
}

/* An overlay passes the question on to the file system that has the file. The question is about the first byte only: a
 * large file may have many extents, which the kernel would count. */
static int has_blocks(int fd)
{
    struct fiemap map = {.fm_length = 1};
    return ioctl(fd, FS_IOC_FIEMAP, &map) == 0;
}

/* Whether the first pages, which are clean, stay in the page cache although the kernel was asked to drop them. */
static int stays(const struct swn_io *io, int fd, size_t pages)
{
    unsigned char there[PROBE_PAGES] = {0};
    void *at = NULL;
    io->fadvise(io->ctx, fd, 0, pages * SWN_BLOCK, POSIX_FADV_DONTNEED);
    if (io->mmap(io->ctx, &at, pages * SWN_BLOCK, PROT_READ, MAP_SHARED, fd, 0))
        return 0;
    int all = !mincore(at, pages * SWN_BLOCK, there);
    munmap(at, pages * SWN_BLOCK);
    for (size_t i = 0; i < pages; i++)
        all = all && there[i] & 1;
    return all;
}

int swn_file_in_memory(const struct swn_io *io, int fd)
{
    char byte;
    enum medium medium = medium_of(fd);
    if (medium != OVERLAY)
        return medium == MEMORY;
    return !has_blocks(fd) && io->pread(io->ctx, fd, &byte, 1, 0) == 1 && stays(io, fd, 1);
}

static int what_is_written_stays(const struct swn_io *io, int fd)
{
    static const char page[SWN_BLOCK];
    for (size_t i = 0; i < PROBE_PAGES; i++)
        if (io->pwrite(io->ctx, fd, page, sizeof page, i * sizeof page) != (ssize_t)sizeof page)
            return 0;
    return !io->fsync(io->ctx, fd) && stays(io, fd, PROBE_PAGES);
}

int swn_is_memory_backed(const struct swn_io *io, const char *dir)
{
    int fd = io->open(io->ctx, dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC, 0);
    if (fd < 0)
        return 0;
    enum medium medium = medium_of(fd);
    io->close(io->ctx, fd);
    if (medium != OVERLAY)
        return medium == MEMORY;
    fd = swn_open_unlinked(io, dir);
    if (fd < 0)
        return 0;
    int in_memory = !has_blocks(fd) && what_is_written_stays(io, fd);
    io->close(io->ctx, fd);
    return in_memory;
}
