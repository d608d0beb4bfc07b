/* tools/partition/reader.c - how the commands open models and read weights. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "tools/partition/partition_tool.h"
#include "blocks/store/format.h"
#include "base/file_io.h"
#include "base/errmsg.h"

#define PIECE_BYTES ((size_t)4 << 20)

int part_open_model(struct swn_store **out, const char **kind, const char *path)
{
    char why[SWN_ERRMSG] = "";
    int rc = swn_store_of(out, kind, &swn_io_sys, path, why);
    if (rc)
        swn_cli_error("%s", why);
    return rc;
}

void part_say_skipped(const struct swn_store *s, const char *path)
{
    if (s->skipped_count)
        swn_cli_error("note: %" PRIu64 " %s of %s %s not in the store, the first: %s", s->skipped_count,
                      s->skipped_count == 1 ? "tensor" : "tensors", path, s->skipped_count == 1 ? "is" : "are",
                      s->skipped);
}

int part_same_file(const char *a, const char *b)
{
    struct stat x, y;
    return stat(a, &x) == 0 && stat(b, &y) == 0 && x.st_dev == y.st_dev && x.st_ino == y.st_ino;
}

int part_reader_open(struct part_reader *r, int fd)
{
    r->file.fd = fd;
    r->file.direct_fd = -1;
    r->buf = aligned_alloc(SWN_BLOCK, PIECE_BYTES);
    if (!r->buf)
        return -ENOMEM;
    r->file.direct_fd = swn_open_direct(&swn_io_sys, fd, O_RDONLY);
    return 0;
}

void part_reader_close(struct part_reader *r)
{
    if (r->file.direct_fd >= 0)
        swn_io_sys.close(NULL, r->file.direct_fd);
    free(r->buf);
}

ssize_t part_read(struct part_reader *r, uint64_t off, uint64_t bytes, const char **piece)
{
    uint64_t start = off / SWN_BLOCK * SWN_BLOCK, want = SWN_BLOCK_UP(off + bytes) - start;
    size_t got = 0;
    int rc = swn_read_blocks(&swn_io_sys, &r->file, r->buf, want < PIECE_BYTES ? want : PIECE_BYTES, start, &got);
    if (rc)
        return rc;
    if (start + got <= off)
        return -ENODATA;
    *piece = r->buf + (off - start);
    uint64_t have = start + got - off;
    return (ssize_t)(have < bytes ? have : bytes);
}

int part_check_extent(const struct swn_store *s, const struct swn_store_extent *e)
{
    return swn_store_verify_extent(s, &swn_io_sys, e, PIECE_BYTES);
}

const char *part_extent_name(const struct swn_store *s, const struct swn_store_extent *e)
{
    for (size_t i = 0; i < s->tensor_count; i++)
        if (&s->extents[s->tensors[i].extent] == e)
            return s->tensors[i].name;
    return "(no tensor)";
}
