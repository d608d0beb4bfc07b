/* swn_store_verify.c - an extent against its checksum, in bounded memory. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <xxhash.h>

#include "swn_store_priv.h"
#include "swn_transfer.h"

int swn_store_verify_extent(const struct swn_store *s, const struct swn_io *io, const struct swn_store_extent *extent,
                            size_t buffer_bytes)
{
    size_t room = SWN_BLOCK_UP(buffer_bytes ? buffer_bytes : 1);
    struct swn_fetch_file file = {.fd = s->file.fd, .direct_fd = swn_open_direct(io, s->file.fd, O_RDONLY)};
    void *buf = aligned_alloc(SWN_BLOCK, room);
    XXH3_state_t *hash = XXH3_createState();
    int err = buf && hash ? 0 : -ENOMEM;
    if (!err)
        XXH3_64bits_reset(hash);
    for (uint64_t done = 0; !err && done < extent->bytes;) {
        uint64_t left = extent->bytes - done;
        size_t want = left < room ? (size_t)SWN_BLOCK_UP(left) : room, got = 0;
        err = swn_read_blocks(io, &file, buf, want, extent->off + done, &got);
        if (!err && got < want)
            err = -ENODATA;
        want = left < room ? (size_t)left : room;
        if (!err)
            XXH3_64bits_update(hash, buf, want);
        done += want;
    }
    if (!err && XXH3_64bits_digest(hash) != extent->checksum)
        err = -EILSEQ;
    XXH3_freeState(hash);
    free(buf);
    if (file.direct_fd >= 0)
        io->close(io->ctx, file.direct_fd);
    return err;
}
