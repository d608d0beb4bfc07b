/* blocks/store/build.c - copying weights into a new store.
 *
 * Bytes go from the source into a window of whole blocks, from there, shifted, into the output buffer, and from there
 * to the disk: storages lie at multiples of 64 in a checkpoint and of 4096 in a store, and O_DIRECT takes whole blocks
 * at both ends. Besides the tables the copy needs only these two buffers.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <xxhash.h>

#include "base/atomic_file.h"
#include "base/size.h"
#include "blocks/store/write_compressed.h"
#include "blocks/store/store_internal.h"
#include "base/file_io.h"
#include "base/errmsg.h"

#define BUFFER_BYTES ((size_t)8 << 20)
#define BUFFER_MIN ((size_t)64 << 10)
/* Storages closer than this are read in one request: a request costs about as much time as reading these bytes. */
#define GAP_BYTES ((uint64_t)64 << 10)
/* Without O_DIRECT, how many dirty bytes may gather in the page cache. */
#define DIRTY_BYTES ((uint64_t)32 << 20)

#define NO_FILE UINT32_MAX

struct copy {
    const struct swn_io *io;
    const struct swn_checkpoint *c;
    struct swn_layout *l;
    const struct swn_store_opts *opts;
    size_t half; /* size of each buffer */
    /* window: bytes [start, end) of file `in_file` */
    char *window;
    uint32_t in_file;
    struct swn_io_file in; /* fd borrowed, direct_fd owned */
    uint64_t start, end;
    /* output: `fill` bytes that belong at `out_off` */
    char *out;
    size_t fill;
    uint64_t out_off, dirty;
    struct swn_atomic_file file;
    struct swn_compressed *copies; /* NULL: no compressed extents are wanted */
    uint64_t done;
};

static const char *in_path(const struct copy *k)
{
    return k->c->files[k->in_file].path;
}

static void leave_file(struct copy *k)
{
    if (k->in_file != NO_FILE && k->in.direct_fd >= 0)
        k->io->close(k->io->ctx, k->in.direct_fd);
    k->in_file = NO_FILE;
    k->start = k->end = 0;
}

static void enter_file(struct copy *k, uint32_t file)
{
    if (file == k->in_file)
        return;
    leave_file(k);
    k->in_file = file;
    k->in.fd = k->c->files[file].fd;
    k->in.direct_fd = swn_open_direct(k->io, k->in.fd, O_RDONLY);
}

/* The end of a read that begins with extent `i`, and includes the following ones while the gaps are small. */
static uint64_t worth_reading(const struct copy *k, size_t i, uint64_t start)
{
    const struct swn_layout_input *in = k->l->inputs;
    uint64_t end = in[i].off + k->l->extents[i].bytes;
    for (i++; i < k->l->extent_count && end - start < k->half; i++) {
        if (in[i].file != k->in_file || in[i].off < end || in[i].off - end > GAP_BYTES)
            break;
        end = in[i].off + k->l->extents[i].bytes;
    }
    return end;
}

static int fill_window(struct copy *k, size_t extent, uint64_t pos, char why[SWN_ERRMSG])
{
    uint64_t start = pos / SWN_BLOCK * SWN_BLOCK, want = SWN_BLOCK_UP(worth_reading(k, extent, start)) - start;
    size_t got = 0;
    int rc = swn_read_blocks(k->io, &k->in, k->window, want < k->half ? want : k->half, start, &got);
    if (rc)
        return swn_errmsg(why, rc, "%s: cannot be read at offset %llu: %s", in_path(k), (unsigned long long)start,
                          strerror(-rc));
    if (start + got <= pos)
        return swn_errmsg(why, -ESTALE, "%s: ends at %llu, it was truncated meanwhile", in_path(k),
                          (unsigned long long)(start + got));
    k->start = start;
    k->end = start + got;
    return 0;
}

static int write_error(const struct copy *k, int rc, char why[SWN_ERRMSG])
{
    char mib[32];
    const struct swn_atomic_file *f = &k->file;
    if (rc == -ENOSPC || rc == -EDQUOT || rc == -EFBIG)
        return swn_errmsg(why, rc, "%s: no room in %s: the store needs %llu bytes (%s): %s", f->path, f->dir,
                          (unsigned long long)k->l->header.total_bytes, swn_format_mib(mib, k->l->header.total_bytes),
                          strerror(-rc));
    return swn_errmsg(why, rc, "%s: cannot be written: %s", f->path, strerror(-rc));
}

static int flush(struct copy *k, char why[SWN_ERRMSG])
{
    if (!k->fill)
        return 0;
    int rc = swn_write_blocks(k->io, &k->file.file, k->out, k->fill, k->out_off);
    k->out_off += k->fill;
    if (!rc && k->file.file.direct_fd < 0 && (k->dirty += k->fill) >= DIRTY_BYTES) {
        rc = swn_write_settle(k->io, &k->file.file);
        k->dirty = 0;
    }
    k->fill = 0;
    return rc ? write_error(k, rc, why) : 0;
}

static int append(struct copy *k, const char *bytes, size_t size, char why[SWN_ERRMSG])
{
    while (size) {
        size_t room = k->half - k->fill, piece = size < room ? size : room;
        if (bytes) {
            memcpy(k->out + k->fill, bytes, piece);
            bytes += piece;
        } else {
            memset(k->out + k->fill, 0, piece);
        }
        k->fill += piece;
        size -= piece;
        int rc = k->fill == k->half ? flush(k, why) : 0;
        if (rc)
            return rc;
    }
    return 0;
}

/* Computes the checksums of the parts of an extent. */
struct summing {
    XXH3_state_t *hash;
    struct swn_disk_sum *next;
    size_t in_part; /* bytes of the part that are in the hash */
};

static void sum_up(struct summing *s, const char *bytes, size_t size)
{
    while (size) {
        size_t room = SWN_CHUNK - s->in_part, piece = size < room ? size : room;
        XXH3_64bits_update(s->hash, bytes, piece);
        s->in_part += piece;
        bytes += piece;
        size -= piece;
        if (s->in_part < SWN_CHUNK)
            continue;
        s->next++->checksum = XXH3_64bits_digest(s->hash);
        XXH3_64bits_reset(s->hash);
        s->in_part = 0;
    }
}

/* The last part, with `padding` zeros. */
static void sum_end(struct summing *s, size_t padding)
{
    static const char zeros[SWN_BLOCK];
    sum_up(s, zeros, padding);
    if (s->in_part)
        s->next++->checksum = XXH3_64bits_digest(s->hash);
    XXH3_64bits_reset(s->hash);
    s->in_part = 0;
}

static int copy_extent(struct copy *k, size_t i, XXH3_state_t *hash, struct summing *sums, char why[SWN_ERRMSG])
{
    struct swn_disk_extent *e = &k->l->extents[i];
    const struct swn_layout_input *in = &k->l->inputs[i];
    char head[SWN_BLOCK];
    XXH3_64bits_reset(hash);
    enter_file(k, in->file);
    if (k->copies)
        swn_compressed_begin(k->copies, (uint32_t)i, e->bytes);
    for (uint64_t at = 0; at < e->bytes;) {
        uint64_t pos = in->off + at;
        int rc = pos >= k->start && pos < k->end ? 0 : fill_window(k, i, pos, why);
        if (rc)
            return rc;
        size_t piece = k->end - pos < e->bytes - at ? k->end - pos : e->bytes - at;
        XXH3_64bits_update(hash, k->window + (pos - k->start), piece);
        sum_up(sums, k->window + (pos - k->start), piece);
        if (at < sizeof head)
            memcpy(head + at, k->window + (pos - k->start), piece < sizeof head - at ? piece : sizeof head - at);
        rc = append(k, k->window + (pos - k->start), piece, why);
        if (!rc && k->copies && (rc = swn_compressed_add(k->copies, k->window + (pos - k->start), piece)))
            rc = write_error(k, rc, why);
        if (rc)
            return rc;
        at += piece;
        k->done += piece;
        if (k->opts->progress && k->opts->progress(k->opts->user, k->done, k->l->bytes))
            return swn_errmsg(why, -ECANCELED, "%s: cancelled", k->file.path);
    }
    e->checksum = XXH3_64bits_digest(hash);
    sum_end(sums, (size_t)(SWN_BLOCK_UP(e->bytes) - e->bytes));
    k->l->heads[i].checksum = XXH3_64bits(head, e->bytes < sizeof head ? e->bytes : sizeof head);
    if (k->l->known && e->checksum != in->checksum)
        return swn_errmsg(why, -EILSEQ, "%s: extent %u at offset %llu: the checksum does not match", in_path(k),
                          in->storage, (unsigned long long)in->off);
    int rc = k->copies ? swn_compressed_end(k->copies) : 0;
    return rc ? write_error(k, rc, why) : append(k, NULL, SWN_BLOCK_UP(e->bytes) - e->bytes, why);
}

/* The sources must be unchanged since the checkpoint was opened, or the copy would be a mixture. For a store as the
 * source the checksum of each extent suffices, and its times change when it is marked as used. */
static int check_identities(const struct copy *k, char why[SWN_ERRMSG])
{
    for (size_t i = 0; i < k->c->file_count && !k->l->known; i++) {
        const struct swn_ckpt_file *f = &k->c->files[i];
        struct swn_identity now;
        int rc = swn_identity_stat(k->io, f->fd, &now);
        if (rc)
            return swn_errmsg(why, rc, "%s: %s", f->path, strerror(-rc));
        if (!swn_identity_same_file(&now, &f->identity))
            return swn_errmsg(why, -ESTALE, "%s: changed while it was read; build again", f->path);
        k->io->fadvise(k->io->ctx, f->fd, 0, 0, POSIX_FADV_DONTNEED);
    }
    return 0;
}

static int copy_all(struct copy *k, char why[SWN_ERRMSG])
{
    XXH3_state_t *hash = XXH3_createState();
    struct summing sums = {.hash = XXH3_createState(), .next = k->l->sums};
    int rc = hash && sums.hash ? 0 : swn_errmsg(why, -ENOMEM, "no memory for a checksum");
    k->out_off = k->l->header.data_off;
    if (!rc)
        XXH3_64bits_reset(sums.hash);
    for (size_t i = 0; i < k->l->extent_count && !rc; i++)
        rc = copy_extent(k, i, hash, &sums, why);
    XXH3_freeState(hash);
    XXH3_freeState(sums.hash);
    rc = rc ? rc : flush(k, why);
    if (!rc && k->copies && (rc = swn_compressed_finish(k->copies, &k->l->header)))
        rc = write_error(k, rc, why);
    return rc;
}

static int write_tables(struct copy *k, char why[SWN_ERRMSG])
{
    char *tables = swn_layout_tables(k->l);
    if (!tables)
        return swn_errmsg(why, -ENOMEM, "no memory for the tables of a store");
    int rc = swn_write_blocks(k->io, &k->file.file, tables, k->l->header.data_off, 0);
    free(tables);
    return rc ? write_error(k, rc, why) : 0;
}

/* Reserves the disk space in one piece, before an hour is spent on filling it. Some file systems cannot. */
static int reserve(struct copy *k, int *reserved, char why[SWN_ERRMSG])
{
    int rc;
    do
        rc = k->io->fallocate(k->io->ctx, k->file.file.fd, 0, 0, k->l->header.total_bytes);
    while (rc == -EINTR);
    if (rc == -ENOSPC || rc == -EDQUOT || rc == -EFBIG || rc == -EIO)
        return write_error(k, rc, why);
    *reserved = !rc;
    return 0;
}

static int write_store(struct copy *k, const char *path, char why[SWN_ERRMSG])
{
    int rc = swn_atomic_file_open(&k->file, k->io, path, 0600, why);
    if (rc)
        return rc;
    int reserved = 0;
    rc = reserve(k, &reserved, why);
    /* If the room for the extents could not be reserved, compressed extents might take it, so there are none. */
    if (!rc && reserved && k->opts->copies)
        k->copies = swn_compressed_new(k->io, &k->file, k->l->header.total_bytes, k->opts->copies_most);
    if (!rc)
        rc = copy_all(k, why);
    swn_compressed_free(k->copies);
    if (!rc)
        rc = write_tables(k, why);
    if (!rc)
        rc = check_identities(k, why);
    leave_file(k);
    if (rc) {
        swn_atomic_file_abandon(&k->file, k->io);
        return rc;
    }
    rc = swn_atomic_file_commit(&k->file, k->io, why);
    return rc == -ENOSPC || rc == -EDQUOT ? write_error(k, rc, why) : rc;
}

static int build(struct swn_layout *l, const struct swn_checkpoint *c, const struct swn_io *io, const char *path,
                 const struct swn_store_opts *opts, char why[SWN_ERRMSG])
{
    size_t bytes = opts->buffer_bytes ? opts->buffer_bytes : BUFFER_BYTES;
    size_t half = bytes / 2 / SWN_BLOCK * SWN_BLOCK;
    struct copy *k = calloc(1, sizeof *k);
    int rc = -ENOMEM;
    if (k) {
        *k = (struct copy){.io = io, .c = c, .l = l, .opts = opts, .in_file = NO_FILE};
        k->half = half < BUFFER_MIN / 2 ? BUFFER_MIN / 2 : half;
        k->window = aligned_alloc(SWN_BLOCK, k->half);
        k->out = aligned_alloc(SWN_BLOCK, k->half);
        /* Another thread may fork: on older kernels a direct read then ends in the child's page (invariant 6). */
        if (k->window)
            madvise(k->window, k->half, MADV_DONTFORK);
    }
    if (k && k->window && k->out)
        rc = write_store(k, path, why);
    else
        swn_errmsg(why, rc, "no memory for copying");
    if (k) {
        if (k->window)
            madvise(k->window, k->half, MADV_DOFORK);
        free(k->window);
        free(k->out);
    }
    free(k);
    return rc;
}

int swn_store_build(const struct swn_checkpoint *c, const struct swn_io *io, const char *path,
                    const struct swn_store_opts *opts, char why[SWN_ERRMSG])
{
    static const struct swn_store_opts defaults;
    struct swn_layout l;
    if (!opts)
        opts = &defaults;
    int rc = swn_layout_make(&l, c, opts, why);
    if (!rc)
        rc = swn_layout_place(&l, why);
    if (!rc)
        rc = build(&l, c, io, path, opts, why);
    swn_layout_free(&l);
    return rc;
}

/* ---- from another store ---- */

/* Presents the store as a checkpoint whose weights can be copied. Only the arrays are owned. */
static int as_checkpoint(struct swn_checkpoint *c, const struct swn_store *s)
{
    *c = (struct swn_checkpoint){.file_count = 1,
                                 .storage_count = s->extent_count,
                                 .tensor_count = s->tensor_count,
                                 .skipped_count = s->skipped_count,
                                 .skipped = (char *)s->skipped};
    c->files = calloc(1, sizeof *c->files);
    c->storages = calloc(s->extent_count + 1, sizeof *c->storages);
    c->tensors = calloc(s->tensor_count + 1, sizeof *c->tensors);
    if (!c->files || !c->storages || !c->tensors)
        return -ENOMEM;
    c->files[0] = (struct swn_ckpt_file){.path = s->path, .fd = s->file.fd, .identity = s->identity};
    for (size_t i = 0; i < s->extent_count; i++)
        c->storages[i] = (struct swn_ckpt_storage){.off = s->extents[i].off, .bytes = s->extents[i].bytes};
    for (size_t i = 0; i < s->tensor_count; i++) {
        const struct swn_store_tensor *t = &s->tensors[i];
        c->tensors[i] = (struct swn_ckpt_tensor){.name = (char *)t->name,
                                                 .storage = t->extent,
                                                 .dtype = t->dtype,
                                                 .ndim = t->ndim,
                                                 .shape = t->shape,
                                                 .stride = t->stride,
                                                 .off = t->off};
    }
    return 0;
}

int swn_store_recut(const struct swn_store *from, const struct swn_io *io, const char *path,
                    const struct swn_store_opts *opts, char why[SWN_ERRMSG])
{
    static const struct swn_store_opts defaults;
    struct swn_checkpoint c;
    struct swn_layout l = {0};
    int rc = as_checkpoint(&c, from);
    if (!opts)
        opts = &defaults;
    rc = rc ? swn_errmsg(why, rc, "no memory for the tables of a store") : swn_layout_make(&l, &c, opts, why);
    if (!rc) {
        l.sources = from->sources;
        l.source_count = from->source_count;
        l.known = 1;
        for (size_t i = 0; i < l.extent_count; i++) {
            const struct swn_store_extent *e = &from->extents[l.inputs[i].storage];
            l.extents[i].source = e->source;
            l.extents[i].source_off = e->source_off;
            l.inputs[i].checksum = e->checksum;
        }
        rc = swn_layout_place(&l, why);
    }
    if (!rc)
        rc = build(&l, &c, io, path, opts, why);
    swn_layout_free(&l);
    free(c.files);
    free(c.storages);
    free(c.tensors);
    return rc;
}
