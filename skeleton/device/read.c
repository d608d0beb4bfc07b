/* skeleton/device/read.c - see read.h. */
#define _GNU_SOURCE
#include "skeleton/device/read.h"

#include <fcntl.h>
#include <string.h>

#include "skeleton/core/write_behind.h"
#include "skeleton/load/load.h"
#include "base/file_io.h"
#include "skeleton/core/op_window.h"
#include "skeleton/engine/section.h"

/* The place of a part of a range in its file, valid as long as no thread writes the range. */
struct place {
    struct swn_range *range;
    uint32_t id;
    struct swn_extent_file *file;
    uint64_t extent, off, turn;
    int whole; /* it is all of its extent */
};

/* 0: the range is not in a file, or its file does not have its present bytes. */
static int look(struct swn_engine *e, struct swn_range *r, uintptr_t at, size_t len, struct place *out)
{
    struct swn_pages pages;
    if (atomic_load(&r->state) != SWN_FILE_BACKED || r->shared || swn_tensor_of(r)->io_failed ||
        swn_residency_scan(&e->res, r, &pages) || pages.private_pages)
        return 0;
    *out = (struct place){.range = r,
                          .id = r->id,
                          .file = r->file,
                          .extent = r->extent,
                          .turn = r->extent_turn,
                          .off = r->extent + (at - r->addr),
                          .whole = at == r->addr && len == r->len};
    return 1;
}

static int still_there(const struct place *p)
{
    const struct swn_range *r = p->range;
    return r->id == p->id && atomic_load(&((struct swn_range *)r)->state) == SWN_FILE_BACKED && r->file == p->file &&
           r->extent == p->extent && r->extent_turn == p->turn;
}

/* Checks the bytes that were read against the checksum; on a mismatch reads once more, as a bit may have flipped during
 * the read. */
static int check(struct swn_engine *e, struct swn_io_file *own, const struct place *p, char *to, size_t size)
{
    struct swn_part part = {.file = p->file, .range_id = p->id};
    part.job.off = p->off;
    part.job.len = size;
    size_t got;
    for (int tries = 0; swn_load_check(&part, to); tries++)
        if (tries || swn_read_blocks(e->io, own, to, size, p->off, &got))
            swn_engine_corrupt(p->file, p->id, p->off);
    return 0;
}

static int read_place(struct swn_engine *e, const struct place *p, size_t len, char *to, struct swn_devread *count)
{
    struct swn_io_file own = {.fd = p->file->fetch.fd,
                              .direct_fd = swn_open_direct(e->io, p->file->fetch.fd, O_RDONLY)};
    size_t size = swn_round_up(len, SWN_PAGE), got = 0;
    int direct = own.direct_fd >= 0, err = swn_read_blocks(e->io, &own, to, size, p->off, &got);
    if (!err && got < len)
        err = -1;
    if (!err && p->whole && p->file->immutable)
        err = check(e, &own, p, to, size);
    count->bounced |= direct && (err || own.direct_fd < 0);
    if (own.direct_fd >= 0)
        e->io->close(e->io->ctx, own.direct_fd);
    return err;
}

/* Copies from the tensor's own address, which reads right even while its pages are replaced by others with the same
 * bytes: the thread sanitizer takes that for a race. */
#ifdef __SANITIZE_THREAD__
__attribute__((no_sanitize("thread"))) static void copy_home(char *to, uintptr_t at, size_t len)
{
    const volatile char *from = (const volatile char *)at;
    for (size_t i = 0; i < len; i++)
        to[i] = from[i];
}
#else
static void copy_home(char *to, uintptr_t at, size_t len)
{
    memcpy(to, (const void *)at, len);
}
#endif

/* Reads the part that lies in one range. Returns its size. */
static size_t read_stretch(struct swn_engine *e, uintptr_t at, size_t most, char *to, struct swn_devread *count)
{
    struct place place = {0};
    swn_lock(&e->lock);
    struct swn_range *r = swn_arena_find(e->arena, at);
    size_t len = r->addr + r->len - at < most ? r->addr + r->len - at : most;
    swn_write_behind_cancel(e, r);
    swn_tensor_of(r)->readers++; /* so that the range is not cut */
    int there = look(e, r, at, len, &place);
    if (there && !place.whole)
        swn_load_verify(e, r);
    if (there)
        place.file->refs++;
    swn_unlock(&e->lock);
    int err = there ? read_place(e, &place, len, to, count) : -1;
    swn_lock(&e->lock);
    if (there) {
        place.file->refs--;
        if (!still_there(&place))
            err = -1; /* became resident meanwhile, and its extent may be a hole by now */
    }
    swn_unlock(&e->lock);
    if (err)
        copy_home(to, at, len);
    else
        count->disk_bytes += len;
    swn_lock(&e->lock);
    swn_tensor_of(r)->readers--;
    if (err)
        swn_window_forget(e, r);
    swn_unlock(&e->lock);
    return len;
}

void swn_devread(struct swn_engine *e, uintptr_t data, size_t off, size_t len, char *to, struct swn_devread *count)
{
    for (size_t done = 0; done < len;)
        done += read_stretch(e, data + off + done, len - done, to + done, count);
}
