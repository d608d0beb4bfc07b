/* blocks/store/open.c - opening a store, finding extents in it, checking them. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

#include "blocks/store/store_internal.h"
#include "base/checksum.h"
#include "base/file_io.h"
#include "base/errmsg.h"

static int read_error(const struct swn_store *s, int rc, char why[SWN_ERRMSG])
{
    return rc == -ENODATA ? swn_errmsg(why, -EINVAL, "%s: truncated store", s->path)
                          : swn_errmsg(why, rc, "%s: %s", s->path, strerror(-rc));
}

static int has_stray_copies(const struct swn_disk_header *h)
{
    return !swn_disk_has(h, SWN_STORE_COPIES) &&
           (h->data_end || h->copies || h->chunks || h->copies_off || h->copies_checksum);
}

static int tables_fit(const struct swn_disk_header *h)
{
    return h->header_bytes == sizeof *h && h->data_off % SWN_BLOCK == 0 && h->data_off >= sizeof *h &&
           h->data_off <= h->total_bytes && h->data_off <= SWN_STORE_TABLES_MAX;
}

static int copies_fit(const struct swn_disk_header *h)
{
    if (!swn_disk_has(h, SWN_STORE_COPIES))
        return 1;
    return h->data_end >= h->data_off && h->copies_off >= h->data_end && h->copies_off <= h->total_bytes &&
           h->data_end % SWN_BLOCK == 0 && h->copies_off % SWN_BLOCK == 0 && h->total_bytes % SWN_BLOCK == 0 &&
           h->total_bytes - h->copies_off <= SWN_STORE_TABLES_MAX;
}

static int check_header(const struct swn_store *s, const struct swn_disk_header *h, char why[SWN_ERRMSG])
{
    if (memcmp(h->magic, SWN_STORE_MAGIC, sizeof h->magic) != 0)
        return swn_errmsg(why, -EINVAL, "%s: not a block store", s->path);
    if (h->checksum != XXH3_64bits(h, offsetof(struct swn_disk_header, checksum)))
        return swn_errmsg(why, -EILSEQ, "%s: the header's checksum does not match", s->path);
    if (h->version < SWN_STORE_VERSION || h->version > SWN_STORE_NEWEST)
        return swn_errmsg(why, -ENOTSUP, "%s: a store of version %u, of which only %u to %u are read; build it anew",
                          s->path, h->version, SWN_STORE_VERSION, SWN_STORE_NEWEST);
    if (has_stray_copies(h))
        return swn_errmsg(why, -EINVAL, "%s: malformed store: reserved fields are set", s->path);
    if (h->total_bytes != s->identity.size)
        return swn_errmsg(why, -EINVAL, "%s: %s store: %llu bytes where the header states %llu", s->path,
                          h->total_bytes > s->identity.size ? "truncated" : "malformed",
                          (unsigned long long)s->identity.size, (unsigned long long)h->total_bytes);
    if (!tables_fit(h) || !copies_fit(h))
        return swn_errmsg(why, -EINVAL, "%s: malformed store: the header's offsets are wrong", s->path);
    return 0;
}

static int read_copies(struct swn_store *s, const struct swn_io *io, const struct swn_disk_header *h,
                       char why[SWN_ERRMSG])
{
    size_t bytes = h->total_bytes - h->copies_off;
    void *table = malloc(bytes + 1);
    if (!table)
        return swn_errmsg(why, -ENOMEM, "%s: no memory for its tables", s->path);
    int rc = swn_read_whole(io, s->file.fd, table, bytes, h->copies_off);
    if (rc)
        rc = read_error(s, rc, why);
    else if (XXH3_64bits(table, bytes) != h->copies_checksum)
        rc = swn_errmsg(why, -EILSEQ, "%s: the checksum of its table of copies does not match", s->path);
    else
        rc = swn_store_parse_compressed(s, h, table, bytes, why);
    free(table);
    return rc;
}

static int read_tables(struct swn_store *s, const struct swn_io *io, char why[SWN_ERRMSG])
{
    struct swn_store_priv *p = s->priv;
    struct swn_disk_header h;
    int rc = swn_read_whole(io, s->file.fd, &h, sizeof h, 0);
    if (rc)
        return read_error(s, rc, why);
    rc = check_header(s, &h, why);
    if (rc)
        return rc;
    size_t bytes = h.data_off - sizeof h;
    p->tables = malloc(bytes);
    if (!p->tables)
        return swn_errmsg(why, -ENOMEM, "%s: no memory for its tables", s->path);
    rc = swn_read_whole(io, s->file.fd, p->tables, bytes, sizeof h);
    if (rc)
        return read_error(s, rc, why);
    if (XXH3_64bits(p->tables, bytes) != h.tables_checksum)
        return swn_errmsg(why, -EILSEQ, "%s: the tables' checksum does not match", s->path);
    s->total_bytes = h.total_bytes;
    s->identity.directory = h.checksum;
    rc = swn_store_parse(s, &h, why);
    if (!rc && swn_disk_has(&h, SWN_STORE_COPIES))
        rc = read_copies(s, io, &h, why);
    return rc ? rc : swn_store_index(s, why);
}

static int open_file(struct swn_store *s, const struct swn_io *io, char why[SWN_ERRMSG])
{
    int rc = swn_open_regular(io, s->path, 0, why);
    if (rc < 0)
        return rc;
    s->file.fd = rc;
    rc = swn_identity_stat(io, s->file.fd, &s->identity);
    return rc ? swn_errmsg(why, rc, "%s: %s", s->path, strerror(-rc)) : 0;
}

int swn_store_open(struct swn_store **out, const struct swn_io *io, const char *path, char why[SWN_ERRMSG])
{
    struct swn_store *s = calloc(1, sizeof *s);
    struct swn_store_priv *p = calloc(1, sizeof *p);
    if (s)
        s->path = strdup(path);
    if (!s || !p || !s->path) {
        if (s)
            free(s->path);
        free(s);
        free(p);
        return swn_errmsg(why, -ENOMEM, "%s: no memory", path);
    }
    s->priv = p;
    s->file.fd = s->file.direct_fd = -1;
    int rc = open_file(s, io, why);
    if (!rc) {
        /* Read-ahead would pull the first extents into the page cache. */
        io->fadvise(io->ctx, s->file.fd, 0, 0, POSIX_FADV_RANDOM);
        rc = read_tables(s, io, why);
        io->fadvise(io->ctx, s->file.fd, 0, 0, POSIX_FADV_NORMAL);
    }
    if (rc) {
        swn_store_close(s, io);
        return rc;
    }
    s->file.direct_fd = swn_open_direct(io, s->file.fd, O_RDONLY);
    *out = s;
    return 0;
}

void swn_store_close(struct swn_store *s, const struct swn_io *io)
{
    if (!s)
        return;
    struct swn_store_priv *p = s->priv;
    if (s->file.direct_fd >= 0)
        io->close(io->ctx, s->file.direct_fd);
    if (s->file.fd >= 0)
        io->close(io->ctx, s->file.fd);
    free((void *)s->sources);
    free((void *)s->layers);
    free((void *)s->extents);
    free((void *)s->tensors);
    free((void *)s->copies);
    free((void *)s->chunks);
    free(p->tables);
    free(p->by_source);
    free(p);
    free(s->path);
    free(s);
}

/* ---- by source and offset ---- */

static int compare_keys(uint32_t source_a, uint64_t off_a, uint64_t bytes_a, const struct swn_store_extent *b)
{
    if (source_a != b->source)
        return source_a < b->source ? -1 : 1;
    if (off_a != b->source_off)
        return off_a < b->source_off ? -1 : 1;
    return bytes_a < b->bytes ? -1 : bytes_a > b->bytes;
}

static int by_source(const void *a, const void *b, void *extents)
{
    const struct swn_store_extent *e = extents;
    const struct swn_store_extent *x = &e[*(const uint32_t *)a], *y = &e[*(const uint32_t *)b];
    return compare_keys(x->source, x->source_off, x->bytes, y);
}

int swn_store_index(struct swn_store *s, char why[SWN_ERRMSG])
{
    struct swn_store_priv *p = s->priv;
    uint32_t *index = malloc((s->extent_count + 1) * sizeof *index);
    p->by_source = index;
    if (!index)
        return swn_errmsg(why, -ENOMEM, "%s: no memory for its index", s->path);
    for (size_t i = 0; i < s->extent_count; i++)
        index[i] = (uint32_t)i;
    qsort_r(index, s->extent_count, sizeof *index, by_source, (void *)s->extents);
    for (size_t i = 1; i < s->extent_count; i++) {
        const struct swn_store_extent *a = &s->extents[index[i - 1]], *b = &s->extents[index[i]];
        if (a->source == b->source && a->source_off + a->bytes > b->source_off)
            return swn_errmsg(why, -EINVAL, "%s: malformed store: two extents come from the same bytes", s->path);
    }
    return 0;
}

const struct swn_store_extent *swn_store_find(const struct swn_store *s, uint32_t source, uint64_t off, uint64_t bytes)
{
    const struct swn_store_priv *p = s->priv;
    size_t low = 0, high = s->extent_count;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        const struct swn_store_extent *e = &s->extents[p->by_source[middle]];
        int order = compare_keys(source, off, bytes, e);
        if (order == 0)
            return e;
        if (order < 0)
            high = middle;
        else
            low = middle + 1;
    }
    return NULL;
}

int swn_store_check_part(const struct swn_store_extent *extent, uint64_t off, const void *buf, size_t bytes)
{
    uint64_t end = SWN_BLOCK_UP(extent->bytes);
    if (!extent->sums || off % SWN_CHUNK || off > end || bytes > end - off || (bytes % SWN_CHUNK && off + bytes < end))
        return -EINVAL;
    const uint64_t *sum = extent->sums + off / SWN_CHUNK;
    for (size_t at = 0; at < bytes; at += SWN_CHUNK)
        if (swn_sum((const char *)buf + at, bytes - at < SWN_CHUNK ? bytes - at : SWN_CHUNK) != *sum++)
            return -EILSEQ;
    return 0;
}

int swn_store_check(const struct swn_store_extent *extent, const void *buf)
{
    return swn_sum(buf, extent->bytes) == extent->checksum ? 0 : -EILSEQ;
}
