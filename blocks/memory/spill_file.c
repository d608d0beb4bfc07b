/* blocks/memory/spill_file.c - see spill_file.h. */
#define _GNU_SOURCE
#include "blocks/memory/spill_file.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/falloc.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/fd_registry.h"
#include "base/paths.h"
#include "base/file_io.h"

#define PIECE ((size_t)4 << 20)
/* A sixteenth of the largest file that ext4 has. */
#define OFFSETS_MOST ((uint64_t)1 << 40)
/* So many dropped bytes may stay on the disk, or as many as the file has others. */
#define DROPPED_MOST ((uint64_t)256 << 20)

struct swn_hole {
    uint64_t off, size;
    struct swn_hole *next;
};

static int punch(struct swn_extent_file *f, uint64_t off, uint64_t size)
{
    return f->io->fallocate(f->io->ctx, f->fetch.fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, off, size);
}

int swn_spill_open(struct swn_extent_file **out, const struct swn_io *io, const char *dir)
{
    struct swn_extent_file *f = calloc(1, sizeof *f);
    if (!f)
        return -ENOMEM;
    f->io = io;
    pthread_mutex_init(&f->dropped_lock, NULL);
    pthread_cond_init(&f->punched, NULL);
    int err = swn_make_dirs(dir);
    if (err) {
        free(f);
        return err;
    }
    snprintf(f->dir, sizeof f->dir, "%s", dir);
    f->fetch.fd = swn_open_unlinked(io, dir);
    if (f->fetch.fd < 0) {
        err = f->fetch.fd;
        free(f);
        return err;
    }
    char self[64];
    snprintf(self, sizeof self, "/proc/self/fd/%d", f->fetch.fd);
    int direct = io->open(io->ctx, self, O_RDWR | O_DIRECT | O_CLOEXEC, 0);
    f->fetch.direct_fd = direct < 0 ? -1 : direct;
    f->no_holes = punch(f, 0, 4096) == -EOPNOTSUPP;
    *out = f;
    return 0;
}

void swn_spill_close(struct swn_extent_file *f)
{
    if (f->fetch.direct_fd >= 0)
        f->io->close(f->io->ctx, f->fetch.direct_fd);
    f->io->close(f->io->ctx, f->fetch.fd);
    for (struct swn_hole *h = f->dropped, *next; h; h = next) {
        next = h->next;
        free(h);
    }
    free(f);
}

int swn_spill_is_ours(const struct swn_extent_file *f)
{
    return swn_fd_is_ours(f->fetch.fd) && swn_fd_is_ours(f->fetch.direct_fd);
}

int swn_spill_is_full(const struct swn_extent_file *f)
{
    uint64_t live = f->live_bytes, most = live > DROPPED_MOST ? live : DROPPED_MOST;
    return f->tail && (f->tail >= OFFSETS_MOST || f->too_large || f->kept_bytes > most);
}

int swn_spill_is_crowded(int err)
{
    return err == -ENOSPC || err == -EDQUOT;
}

static int write_all(struct swn_extent_file *f, int fd, const char *buf, size_t size, uint64_t off)
{
    const struct swn_io *io = f->io;
    int retries = SWN_IO_RETRIES;
    for (size_t done = 0; done < size;) {
        size_t piece = size - done < PIECE ? size - done : PIECE;
        ssize_t n = io->pwrite(io->ctx, fd, buf + done, piece, off + done);
        if (n == -EINTR || n == -EAGAIN)
            continue;
        if (n == -EIO && retries-- > 0)
            continue;
        if (n <= 0)
            return n ? (int)n : -EIO;
        /* A short direct write may end inside a block; the rest is written again from the last whole block. */
        done += fd == f->fetch.direct_fd && done + (size_t)n < size ? (size_t)n & ~(size_t)4095 : (size_t)n;
        if ((size_t)n < 4096 && fd == f->fetch.direct_fd && retries-- <= 0)
            return -EIO;
    }
    return 0;
}

/* The kernel reports a failed write-back to one fsync of a descriptor, and then counts the pages as clean: so a failure
 * is remembered for the shared ranges of the file. Their blocks are reserved: a full disk is no matter of theirs. */
static int sync_file(struct swn_extent_file *f)
{
    int err;
    do
        err = f->io->fsync(f->io->ctx, f->fetch.fd);
    while (err == -EINTR);
    if (err && err != -EBADF && err != -ENOSPC && err != -EDQUOT)
        f->sync_err = err;
    return err;
}

static int write_once(struct swn_extent_file *f, const void *buf, size_t size, uint64_t off)
{
    int err = -EINVAL;
    if (f->fetch.direct_fd >= 0)
        err = write_all(f, f->fetch.direct_fd, buf, size, off);
    if (err == -EINVAL) {
        err = write_all(f, f->fetch.fd, buf, size, off);
        if (!err)
            err = sync_file(f); /* dirty cache pages would stay charged to the process */
        if (!err)
            swn_spill_uncache(f, off, size);
    }
    return err;
}

/* Punches out what has been dropped, and waits for other threads that do. 0: there was nothing. */
static int make_room(struct swn_extent_file *f)
{
    int any = 0;
    while (swn_spill_punch(f))
        any = 1;
    pthread_mutex_lock(&f->dropped_lock);
    for (; f->punching; any = 1)
        pthread_cond_wait(&f->punched, &f->dropped_lock);
    pthread_mutex_unlock(&f->dropped_lock);
    return any;
}

int swn_spill_write_at(struct swn_extent_file *f, const void *buf, size_t size, uint64_t off)
{
    int err = swn_file_limit_below(off + size) ? -EFBIG : write_once(f, buf, size, off);
    if (swn_spill_is_crowded(err) && make_room(f))
        err = write_once(f, buf, size, off);
    if (err == -EFBIG)
        f->too_large = 1;
    return err;
}

uint64_t swn_spill_lay_out(struct swn_extent_file *f, uint64_t bytes)
{
    uint64_t off = f->tail;
    f->tail += bytes;
    return off;
}

uint64_t swn_spill_place(struct swn_extent_file *f, size_t size)
{
    f->live_bytes += size;
    return swn_spill_lay_out(f, size);
}

int swn_spill_write(struct swn_extent_file *f, const void *buf, size_t size, uint64_t off)
{
    f->live_bytes += size;
    return swn_spill_write_again(f, buf, size, off);
}

int swn_spill_write_again(struct swn_extent_file *f, const void *buf, size_t size, uint64_t off)
{
    int err = swn_spill_write_at(f, buf, size, off);
    if (err) {
        f->live_bytes -= size;
        punch(f, off, size);
        return err;
    }
    f->written_bytes += size;
    return 0;
}

int swn_spill_reserve(struct swn_extent_file *f, size_t size, uint64_t *off)
{
    /* Allocates blocks instead of leaving a hole: a store into a hole of a full disk is a SIGBUS. */
    int err = f->io->fallocate(f->io->ctx, f->fetch.fd, 0, f->tail, size);
    if (swn_spill_is_crowded(err) && make_room(f))
        err = f->io->fallocate(f->io->ctx, f->fetch.fd, 0, f->tail, size);
    if (err == -EFBIG)
        f->too_large = 1;
    if (err) {
        punch(f, f->tail, size);
        return err;
    }
    *off = swn_spill_place(f, size);
    return 0;
}

/* Merges neighbours: extents that were freed one after the other were written one after the other. */
static int remember(struct swn_extent_file *f, uint64_t off, size_t size)
{
    for (struct swn_hole **link = &f->dropped; *link; link = &(*link)->next) {
        struct swn_hole *h = *link;
        if (h->off + h->size != off && off + size != h->off)
            continue;
        h->off = off < h->off ? off : h->off;
        h->size += size;
        *link = h->next;
        h->next = f->dropped;
        f->dropped = h;
        return 0;
    }
    struct swn_hole *h = malloc(sizeof *h);
    if (!h)
        return -ENOMEM;
    *h = (struct swn_hole){.off = off, .size = size, .next = f->dropped};
    f->dropped = h;
    return 0;
}

void swn_spill_drop(struct swn_extent_file *f, uint64_t off, size_t size)
{
    if (f->no_holes) {
        swn_spill_leave(f, size);
        return;
    }
    f->live_bytes -= size;
    int later = f->defer;
    if (later) {
        pthread_mutex_lock(&f->dropped_lock);
        later = !remember(f, off, size);
        pthread_mutex_unlock(&f->dropped_lock);
    }
    if (!later)
        punch(f, off, size);
}

void swn_spill_leave(struct swn_extent_file *f, size_t size)
{
    f->live_bytes -= size;
    f->kept_bytes += size;
}

void swn_spill_defer(struct swn_extent_file *f)
{
    f->defer = 1;
}

void swn_spill_punch_all(struct swn_extent_file *f)
{
    f->defer = 0;
    make_room(f);
}

int swn_spill_punch(struct swn_extent_file *f)
{
    pthread_mutex_lock(&f->dropped_lock);
    struct swn_hole *h = f->dropped;
    if (h) {
        f->dropped = h->next;
        f->punching++;
        pthread_mutex_unlock(&f->dropped_lock);
        punch(f, h->off, h->size);
        free(h);
        pthread_mutex_lock(&f->dropped_lock);
        f->punching--;
        pthread_cond_broadcast(&f->punched);
    }
    pthread_mutex_unlock(&f->dropped_lock);
    return h != NULL;
}

int swn_spill_sync(struct swn_extent_file *f, uint64_t off, size_t size)
{
    int err = sync_file(f);
    if (err == -EBADF)
        return 0;
    err = err ? err : f->sync_err;
    if (!err)
        swn_spill_uncache(f, off, size);
    return err;
}

void swn_spill_uncache(struct swn_extent_file *f, uint64_t off, size_t size)
{
    f->io->fadvise(f->io->ctx, f->fetch.fd, off, size, POSIX_FADV_DONTNEED);
}
