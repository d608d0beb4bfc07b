/* blocks/store/verify.c - checks an extent, and its compressed copy, against their checksums, in bounded memory. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <xxhash.h>

#include "blocks/store/store_internal.h"
#include "base/file_io.h"

/* 0, -EILSEQ, or an error of the reads. */
static int hash_extent(const struct swn_io *io, struct swn_io_file *file, const struct swn_store_extent *extent,
                       void *buf, size_t room, XXH3_state_t *hash)
{
    XXH3_64bits_reset(hash);
    for (uint64_t done = 0; done < extent->bytes;) {
        uint64_t left = extent->bytes - done;
        size_t want = left < room ? (size_t)SWN_BLOCK_UP(left) : room, got = 0;
        int err = swn_read_blocks(io, file, buf, want, extent->off + done, &got);
        if (err || got < want)
            return err ? err : -ENODATA;
        want = left < room ? (size_t)left : room;
        XXH3_64bits_update(hash, buf, want);
        done += want;
    }
    return XXH3_64bits_digest(hash) == extent->checksum ? 0 : -EILSEQ;
}

int swn_store_verify_extent(const struct swn_store *s, const struct swn_io *io, const struct swn_store_extent *extent,
                            size_t buffer_bytes)
{
    size_t room = SWN_BLOCK_UP(buffer_bytes ? buffer_bytes : 1);
    struct swn_io_file file = {.fd = s->file.fd, .direct_fd = swn_open_direct(io, s->file.fd, O_RDONLY)};
    void *buf = aligned_alloc(SWN_BLOCK, room);
    XXH3_state_t *hash = XXH3_createState();
    int err = buf && hash ? hash_extent(io, &file, extent, buf, room, hash) : -ENOMEM;
    if (err == -EILSEQ) /* the read itself may have been damaged */
        err = hash_extent(io, &file, extent, buf, room, hash);
    XXH3_freeState(hash);
    free(buf);
    if (file.direct_fd >= 0)
        io->close(io->ctx, file.direct_fd);
    return err;
}

/* Decodes a run of chunks into `raw`. 0, or -EILSEQ. */
static int decode_run(const struct swn_compressed_extent *c, size_t first, size_t last, const char *packed,
                      uint64_t raw_bytes, XXH3_state_t *hash, uint64_t *left, char *raw)
{
    uint64_t at = first ? c->chunks[first - 1].end : 0;
    for (size_t i = first; i < last; i++) {
        uint64_t begin = (uint64_t)i * SWN_CHUNK;
        size_t bytes = raw_bytes - begin < SWN_CHUNK ? (size_t)(raw_bytes - begin) : SWN_CHUNK;
        size_t stored = (size_t)(c->chunks[i].end - at), real = *left < bytes ? (size_t)*left : bytes;
        if (swn_decode_chunk(c->chunks[i].encoding, packed, stored, raw, bytes) ||
            XXH3_64bits(raw, bytes) != c->chunks[i].checksum)
            return -EILSEQ;
        XXH3_64bits_update(hash, raw, real);
        for (size_t k = real; k < bytes; k++)
            if (raw[k])
                return -EILSEQ;
        *left -= real;
        packed += stored;
        at += stored;
    }
    return 0;
}

int swn_store_verify_compressed(const struct swn_store *s, const struct swn_io *io,
                                const struct swn_store_extent *extent)
{
    enum { RUN = 16 };
    const struct swn_compressed_extent *c = extent->compressed;
    struct swn_io_file file = {.fd = s->file.fd, .direct_fd = swn_open_direct(io, s->file.fd, O_RDONLY)};
    size_t room = RUN * SWN_CHUNK + 2 * SWN_BLOCK, got = 0;
    char *buf = aligned_alloc(SWN_BLOCK, room), *raw = malloc(SWN_CHUNK);
    XXH3_state_t *hash = XXH3_createState();
    uint64_t left = extent->bytes;
    int err = buf && raw && hash ? 0 : -ENOMEM;
    if (!err)
        XXH3_64bits_reset(hash);
    for (size_t i = 0; !err && i < c->chunk_count; i += RUN) {
        size_t last = i + RUN < c->chunk_count ? i + RUN : c->chunk_count;
        uint64_t begin = i ? c->chunks[i - 1].end : 0, from = begin / SWN_BLOCK * SWN_BLOCK;
        uint64_t want = SWN_BLOCK_UP(c->chunks[last - 1].end) - from;
        err = swn_read_blocks(io, &file, buf, (size_t)want, c->off + from, &got);
        if (!err && got < want)
            err = -ENODATA;
        if (!err)
            err = decode_run(c, i, last, buf + (begin - from), SWN_BLOCK_UP(extent->bytes), hash, &left, raw);
        for (uint64_t k = c->chunks[last - 1].end - from; !err && last == c->chunk_count && k < want; k++)
            if (buf[k])
                err = -EILSEQ;
    }
    if (!err && XXH3_64bits_digest(hash) != extent->checksum)
        err = -EILSEQ;
    XXH3_freeState(hash);
    free(buf);
    free(raw);
    if (file.direct_fd >= 0)
        io->close(io->ctx, file.direct_fd);
    return err;
}
