/* blocks/store/parse_compressed.c - turns the table of compressed extents into arrays, and checks every rule. */
#include <errno.h>
#include <stdlib.h>

#include "blocks/store/store_internal.h"
#include "base/file_io.h"
#include "base/errmsg.h"

/* Parses the chunks of the copy of an extent that has `left` bytes with its padding. Returns what is wrong, or NULL. */
static const char *parse_chunks(struct swn_compressed_extent *copy, const struct swn_disk_chunk *from, uint64_t left)
{
    struct swn_store_chunk *to = (struct swn_store_chunk *)copy->chunks;
    uint64_t end = 0;
    for (size_t i = 0; i < copy->chunk_count; i++) {
        size_t raw = left < SWN_CHUNK ? (size_t)left : SWN_CHUNK;
        if (from[i].encoding >= SWN_ENCODINGS || from[i].bytes != swn_encoded_bytes(from[i].encoding, raw))
            return "a chunk is of an unknown encoding, or not of its size";
        end += from[i].bytes;
        left -= raw;
        to[i] = (struct swn_store_chunk){
            .checksum = from[i].checksum, .end = end, .encoding = (enum swn_encoding)from[i].encoding};
    }
    return end == copy->bytes ? NULL : "a copy's size is not that of its chunks";
}

static const char *parse(struct swn_store *s, const struct swn_disk_header *h, const struct swn_disk_copy *copies,
                         const struct swn_disk_chunk *chunks)
{
    uint64_t off = h->data_end, next_extent = 0, done = 0;
    for (size_t i = 0; i < s->compressed_count; i++) {
        const struct swn_disk_copy *from = &copies[i];
        struct swn_compressed_extent *to = (struct swn_compressed_extent *)&s->copies[i];
        if (from->extent >= s->extent_count || from->extent < next_extent || from->zero)
            return "copies are not in the order of the extents";
        struct swn_store_extent *x = (struct swn_store_extent *)&s->extents[from->extent];
        uint64_t raw = SWN_BLOCK_UP(x->bytes), count = (raw + SWN_CHUNK - 1) / SWN_CHUNK;
        if (x->bytes < SWN_CHUNK || count > s->chunk_count - done)
            return "a copy is of a small extent, or chunks are missing";
        if (from->off != off || from->bytes > h->copies_off - off || SWN_BLOCK_UP(from->bytes) > h->copies_off - off ||
            SWN_BLOCK_UP(from->bytes) >= raw)
            return "a copy is out of place, or no smaller than its extent";
        *to = (struct swn_compressed_extent){
            .off = off, .bytes = from->bytes, .chunks = &s->chunks[done], .chunk_count = (size_t)count};
        const char *wrong = parse_chunks(to, &chunks[done], raw);
        if (wrong)
            return wrong;
        x->compressed = to;
        off += SWN_BLOCK_UP(from->bytes);
        next_extent = (uint64_t)from->extent + 1;
        done += count;
    }
    return off != h->copies_off || done != s->chunk_count ? "there are more copies or chunks than used" : NULL;
}

int swn_store_parse_compressed(struct swn_store *s, const struct swn_disk_header *h, const void *table, size_t bytes,
                               char why[SWN_ERRMSG])
{
    const char *at = table;
    size_t copies = bytes / sizeof(struct swn_disk_copy), chunks = bytes / sizeof(struct swn_disk_chunk);
    copies = h->copies < copies ? (size_t)h->copies : copies;
    chunks = h->chunks < chunks ? (size_t)h->chunks : chunks;
    size_t used = copies * sizeof(struct swn_disk_copy) + chunks * sizeof(struct swn_disk_chunk);
    if (copies != h->copies || chunks != h->chunks || used > bytes || bytes - used >= SWN_BLOCK)
        return swn_errmsg(why, -EINVAL, "%s: the table of copies does not have the size that the header states",
                          s->path);
    for (size_t i = used; i < bytes; i++)
        if (at[i])
            return swn_errmsg(why, -EINVAL, "%s: malformed store: padding is not zero", s->path);
    s->copies = calloc(copies + 1, sizeof *s->copies);
    s->chunks = calloc(chunks + 1, sizeof *s->chunks);
    if (!s->copies || !s->chunks)
        return swn_errmsg(why, -ENOMEM, "%s: no memory for its tables", s->path);
    s->compressed_count = copies;
    s->chunk_count = chunks;
    const char *wrong = parse(s, h, table, (const void *)(at + copies * sizeof(struct swn_disk_copy)));
    return wrong ? swn_errmsg(why, -EINVAL, "%s: malformed store: %s", s->path, wrong) : 0;
}
