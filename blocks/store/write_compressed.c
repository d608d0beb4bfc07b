/* blocks/store/write_compressed.c - see write_compressed.h. */
#define _GNU_SOURCE
#include "blocks/store/write_compressed.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

#include "base/file_io.h"

#define OUT_BYTES ((size_t)1 << 20)
/* A compressed extent has to save this part of its extent. Less is not worth the disk space; after this many chunks the
 * ratio is known. */
#define SAVED_PART 8
#define TRIAL_CHUNKS 4
/* Without O_DIRECT, how many dirty bytes may gather in the page cache. */
#define DIRTY_BYTES ((uint64_t)32 << 20)

struct swn_compressed {
    const struct swn_io *io;
    struct swn_atomic_file *file;
    uint64_t begin, end, limit; /* end of the extents, end of the compressed ones, and their limit */
    int full;                   /* no room for more */
    /* the compressed extent in the making */
    int live;
    uint64_t raw, stored, dirty;
    size_t first_chunk;
    char *chunk, *packed, *out; /* raw and encoded chunk; bytes not written yet, up to end + stored */
    size_t chunk_fill, out_fill;
    /* the table */
    struct swn_disk_copy *copies;
    struct swn_disk_chunk *chunks;
    size_t compressed_count, copy_room, chunk_count, chunk_room;
};

struct swn_compressed *swn_compressed_new(const struct swn_io *io, struct swn_atomic_file *file, uint64_t begin,
                                          uint64_t most)
{
    struct swn_compressed *k = calloc(1, sizeof *k);
    if (!k)
        return NULL;
    *k = (struct swn_compressed){.io = io, .file = file, .begin = begin, .end = begin};
    k->limit = most && most < INT64_MAX - begin ? begin + most : INT64_MAX;
    k->chunk = malloc(SWN_CHUNK);
    k->packed = malloc(SWN_CHUNK);
    k->out = aligned_alloc(SWN_BLOCK, OUT_BYTES);
    if (k->chunk && k->packed && k->out)
        return k;
    swn_compressed_free(k);
    return NULL;
}

void swn_compressed_free(struct swn_compressed *k)
{
    if (!k)
        return;
    free(k->chunk);
    free(k->packed);
    free(k->out);
    free(k->copies);
    free(k->chunks);
    free(k);
}

/* Room for one more of `size` bytes, or NULL. */
static void *grow(void *array, size_t *room, size_t count, size_t size)
{
    if (count < *room)
        return array;
    size_t more = *room ? 2 * *room : 256;
    void *grown = realloc(array, more * size);
    *room = grown ? more : *room;
    return grown;
}

static void give_up(struct swn_compressed *k)
{
    k->live = 0;
    k->chunk_count = k->first_chunk;
}

/* 0: the disk is full, and the store does without further compressed extents. */
static int no_room(struct swn_compressed *k, int rc)
{
    if (rc != -ENOSPC && rc != -EDQUOT && rc != -EFBIG)
        return rc;
    give_up(k);
    k->full = 1;
    return 0;
}

/* Writes the bytes in `out` behind those on the disk. Whole blocks except for the last time. */
static int flush(struct swn_compressed *k)
{
    size_t size = (size_t)SWN_BLOCK_UP(k->out_fill);
    uint64_t off = k->end + k->stored - k->out_fill;
    if (!size || !k->live)
        return 0;
    memset(k->out + k->out_fill, 0, size - k->out_fill);
    size_t table = (k->compressed_count + 1) * sizeof *k->copies + k->chunk_count * sizeof *k->chunks;
    if (off + size + SWN_BLOCK_UP(table) > k->limit)
        return no_room(k, -ENOSPC);
    int rc = no_room(k, swn_write_blocks(k->io, &k->file->file, k->out, size, off));
    k->out_fill = 0;
    if (!rc && k->live && k->file->file.direct_fd < 0 && (k->dirty += size) >= DIRTY_BYTES) {
        k->dirty = 0;
        rc = swn_write_settle(k->io, &k->file->file); /* of the extents, too, where an error counts */
    }
    return rc;
}

static int append(struct swn_compressed *k, const char *bytes, size_t size)
{
    while (size && k->live) {
        size_t room = OUT_BYTES - k->out_fill, piece = size < room ? size : room;
        memcpy(k->out + k->out_fill, bytes, piece);
        k->out_fill += piece;
        k->stored += piece;
        bytes += piece;
        size -= piece;
        int rc = k->out_fill == OUT_BYTES ? flush(k) : 0;
        if (rc)
            return rc;
    }
    return 0;
}

static int add_chunk(struct swn_compressed *k)
{
    size_t raw = k->chunk_fill, bytes = 0;
    enum swn_encoding how = SWN_STORED_BF16;
    struct swn_disk_chunk *grown = grow(k->chunks, &k->chunk_room, k->chunk_count, sizeof *grown);
    if (!grown) {
        give_up(k);
        k->full = 1;
        return 0;
    }
    k->chunks = grown;
    while (!bytes) /* ends, as any chunk can be stored raw */
        if (!(bytes = swn_encode_chunk(how, k->chunk, raw, k->packed)))
            how = how == SWN_STORED_BF16 ? SWN_STORED_FP16 : SWN_STORED_RAW;
    k->chunks[k->chunk_count++] = (struct swn_disk_chunk){
        .checksum = XXH3_64bits(k->chunk, raw), .bytes = (uint32_t)bytes, .encoding = (uint32_t)how};
    k->chunk_fill = 0;
    k->raw += raw;
    int rc = append(k, k->packed, bytes);
    if (k->chunk_count - k->first_chunk >= TRIAL_CHUNKS && k->stored > k->raw - k->raw / SAVED_PART)
        give_up(k);
    return rc;
}

void swn_compressed_begin(struct swn_compressed *k, uint32_t extent, uint64_t bytes)
{
    struct swn_disk_copy *grown = grow(k->copies, &k->copy_room, k->compressed_count, sizeof *grown);
    k->copies = grown ? grown : k->copies;
    k->live = !k->full && grown && bytes >= SWN_CHUNK;
    k->raw = k->stored = 0;
    k->chunk_fill = k->out_fill = 0;
    k->first_chunk = k->chunk_count;
    if (k->live)
        k->copies[k->compressed_count] = (struct swn_disk_copy){.off = k->end, .extent = extent};
}

int swn_compressed_add(struct swn_compressed *k, const char *bytes, size_t size)
{
    while (size && k->live) {
        size_t room = SWN_CHUNK - k->chunk_fill, piece = size < room ? size : room;
        memcpy(k->chunk + k->chunk_fill, bytes, piece);
        k->chunk_fill += piece;
        bytes += piece;
        size -= piece;
        int rc = k->chunk_fill == SWN_CHUNK ? add_chunk(k) : 0;
        if (rc)
            return rc;
    }
    return 0;
}

int swn_compressed_end(struct swn_compressed *k)
{
    int rc = 0;
    if (k->live && k->chunk_fill) {
        size_t whole = (size_t)SWN_BLOCK_UP(k->chunk_fill);
        memset(k->chunk + k->chunk_fill, 0, whole - k->chunk_fill);
        k->chunk_fill = whole;
        rc = add_chunk(k);
    }
    if (k->live && k->stored > k->raw - k->raw / SAVED_PART)
        give_up(k);
    if (!rc)
        rc = flush(k);
    if (rc || !k->live)
        return rc;
    k->copies[k->compressed_count++].bytes = k->stored;
    k->end += SWN_BLOCK_UP(k->stored);
    return 0;
}

static char *make_table(const struct swn_compressed *k, size_t *bytes)
{
    size_t copies = k->compressed_count * sizeof *k->copies, chunks = k->chunk_count * sizeof *k->chunks;
    *bytes = (size_t)SWN_BLOCK_UP(copies + chunks);
    char *table = *bytes > SWN_STORE_TABLES_MAX ? NULL : aligned_alloc(SWN_BLOCK, *bytes);
    if (!table)
        return NULL;
    memset(table, 0, *bytes);
    memcpy(table, k->copies, copies);
    memcpy(table + copies, k->chunks, chunks);
    return table;
}

int swn_compressed_finish(struct swn_compressed *k, struct swn_disk_header *h)
{
    size_t bytes = 0;
    char *table = k->compressed_count ? make_table(k, &bytes) : NULL;
    int rc = table ? swn_write_blocks(k->io, &k->file->file, table, bytes, k->end) : -ENOSPC;
    if (!rc) {
        h->version += SWN_STORE_COPIES;
        h->data_end = k->begin;
        h->copies = k->compressed_count;
        h->chunks = k->chunk_count;
        h->copies_off = k->end;
        h->copies_checksum = XXH3_64bits(table, bytes);
        h->total_bytes = k->end + bytes;
    }
    free(table);
    rc = no_room(k, rc);
    return rc ? rc : k->io->ftruncate(k->io->ctx, k->file->file.fd, h->total_bytes);
}
