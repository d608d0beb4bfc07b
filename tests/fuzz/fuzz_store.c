/* fuzz_store - any bytes as the header and tables of a store.
 *
 * Checksums would stop every mutation at the door, so they are made right first: what is tested is that whoever can
 * compute a checksum gets no further. The file is as long as its header claims, and zeros where the input says nothing,
 * so that inputs need not hold extents: what they have behind the tables is the table of copies, wherever that lies.
 */
#define _GNU_SOURCE
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <xxhash.h>

#include "scheduler/planner/partition_minmax.h"
#include "blocks/store/store.h"
#include "blocks/store/format.h"

#define MOST_TABLES ((uint64_t)1 << 20)

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

struct virtual_file {
    unsigned char *bytes; /* header and tables */
    uint64_t have, size;
    const uint8_t *copies; /* the table of copies */
    uint64_t copies_have, copies_off;
};

static int open_any(void *ctx, const char *path, int flags, mode_t mode)
{
    (void)ctx, (void)path, (void)flags, (void)mode;
    return 100; /* never given to the kernel */
}

static int close_any(void *ctx, int fd)
{
    (void)ctx, (void)fd;
    return 0;
}

static ssize_t pread_any(void *ctx, int fd, void *buf, size_t len, uint64_t off)
{
    const struct virtual_file *f = ctx;
    (void)fd;
    if (off >= f->size)
        return 0;
    if (len > f->size - off)
        len = f->size - off;
    memset(buf, 0, len);
    if (off < f->have)
        memcpy(buf, f->bytes + off, len < f->have - off ? len : f->have - off);
    if (f->copies_have && off == f->copies_off)
        memcpy(buf, f->copies, len < f->copies_have ? len : f->copies_have);
    return (ssize_t)len;
}

static int fstat_any(void *ctx, int fd, struct stat *st)
{
    const struct virtual_file *f = ctx;
    (void)fd;
    memset(st, 0, sizeof *st);
    st->st_mode = S_IFREG | 0600;
    st->st_size = (off_t)f->size;
    return 0;
}

static int fadvise_any(void *ctx, int fd, uint64_t off, uint64_t len, int advice)
{
    (void)ctx, (void)fd, (void)off, (void)len, (void)advice;
    return 0;
}

static void expect(int holds)
{
    if (!holds)
        abort();
}

static void check_tensor(const struct swn_store *s, const struct swn_store_tensor *t)
{
    uint64_t last = 0;
    int empty = 0;
    expect(t->extent < s->extent_count && t->layer < s->layer_count && s->extents[t->extent].layer <= t->layer);
    expect(swn_dtype_size(t->dtype) > 0 && t->name && strlen(t->name) < MOST_TABLES);
    for (uint32_t i = 0; i < t->ndim; i++) {
        expect(t->shape[i] >= 0 && t->stride[i] >= 0);
        empty |= !t->shape[i];
    }
    for (uint32_t i = 0; i < t->ndim && !empty; i++)
        last += (uint64_t)(t->shape[i] - 1) * (uint64_t)t->stride[i];
    expect(empty ? t->off <= s->extents[t->extent].bytes
                 : t->off + (last + 1) * swn_dtype_size(t->dtype) <= s->extents[t->extent].bytes);
}

/* Chunks that decode into their extent's memory, in place. */
static void check_copy(const struct swn_store *s, const struct swn_store_extent *x, uint64_t *end)
{
    const struct swn_compressed_extent *c = x->compressed;
    uint64_t raw = (x->bytes + 4095) / 4096 * 4096, done = 0, stored = 0;
    expect(c >= s->copies && c < s->copies + s->compressed_count && c->off == *end && c->off % 4096 == 0);
    expect(c->chunks >= s->chunks && c->chunks + c->chunk_count <= s->chunks + s->chunk_count);
    for (size_t i = 0; i < c->chunk_count; i++) {
        uint64_t bytes = raw - done < SWN_CHUNK ? raw - done : SWN_CHUNK;
        expect(c->chunks[i].encoding < SWN_ENCODINGS && c->chunks[i].end > stored);
        expect(c->chunks[i].end - stored == swn_encoded_bytes(c->chunks[i].encoding, (size_t)bytes));
        stored = c->chunks[i].end;
        done += bytes;
    }
    expect(done == raw && stored == c->bytes && (c->bytes + 4095) / 4096 * 4096 < raw);
    *end += (c->bytes + 4095) / 4096 * 4096;
}

static void check_store(const struct swn_store *s)
{
    uint64_t end = s->extent_count ? s->extents[0].off : s->total_bytes;
    uint32_t extents = 0;
    size_t tensors = 0;
    for (size_t i = 0; i < s->extent_count; i++) {
        const struct swn_store_extent *e = &s->extents[i];
        expect(e->off == end && e->off % 4096 == 0 && e->layer < s->layer_count && e->source < s->source_count);
        end = e->off + (e->bytes + 4095) / 4096 * 4096;
        const struct swn_store_extent *found = swn_store_find(s, e->source, e->source_off, e->bytes);
        expect(found && found->source_off == e->source_off && found->bytes == e->bytes);
    }
    size_t copies = 0;
    for (size_t i = 0; i < s->extent_count; i++)
        if (s->extents[i].compressed) {
            check_copy(s, &s->extents[i], &end);
            copies++;
        }
    expect(copies == s->compressed_count && (copies ? end < s->total_bytes : end <= s->total_bytes));
    for (size_t i = 0; i < s->extent_count; i++)
        expect(s->has_heads || !s->extents[i].head);
    for (size_t i = 0; i < s->layer_count; i++) {
        expect(s->layers[i].first_extent == extents && s->layers[i].name);
        extents += s->layers[i].extents;
        tensors += s->layers[i].depth;
    }
    expect(extents == s->extent_count && tensors == s->tensor_count);
    expect((s->skipped_count > 0) == (s->skipped && s->skipped[0]));
    for (size_t i = 0; i < s->tensor_count; i++)
        check_tensor(s, &s->tensors[i]);
    uint64_t *bytes = calloc(s->layer_count + 1, sizeof *bytes);
    expect(bytes && swn_store_layer_bytes(s, bytes) == 0);
    (void)swn_partition_minmax_budget(bytes, s->layer_count);
    free(bytes);
}

/* The file that the input's header describes, with checksums that fit. NULL: longer than is worth trying. */
static unsigned char *make_file(const uint8_t *data, size_t size, struct virtual_file *f)
{
    struct swn_disk_header h;
    memcpy(&h, data, sizeof h);
    if (h.data_off < sizeof h || h.data_off > MOST_TABLES || h.total_bytes > INT64_MAX)
        return NULL;
    f->have = h.data_off;
    f->size = h.total_bytes;
    f->bytes = calloc(1, h.data_off);
    if (!f->bytes)
        return NULL;
    memcpy(f->bytes, data, size < h.data_off ? size : h.data_off);
    if (swn_disk_has(&h, SWN_STORE_COPIES) && h.copies_off >= h.data_off && h.copies_off <= h.total_bytes &&
        h.total_bytes - h.copies_off <= MOST_TABLES) {
        uint64_t bytes = h.total_bytes - h.copies_off, given = size > h.data_off ? size - h.data_off : 0;
        f->copies = data + (given ? h.data_off : 0);
        f->copies_have = given < bytes ? given : bytes;
        f->copies_off = h.copies_off;
        unsigned char *table = calloc(1, bytes + 1);
        if (table) {
            memcpy(table, f->copies, f->copies_have);
            h.copies_checksum = XXH3_64bits(table, bytes);
        }
        free(table);
    }
    h.tables_checksum = XXH3_64bits(f->bytes + sizeof h, h.data_off - sizeof h);
    h.checksum = XXH3_64bits(&h, offsetof(struct swn_disk_header, checksum));
    memcpy(f->bytes, &h, sizeof h);
    return f->bytes;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct virtual_file f = {.bytes = NULL};
    struct swn_io io = swn_io_sys;
    struct swn_store *s;
    char why[SWN_ERRMSG] = "";
    if (size < sizeof(struct swn_disk_header) || !make_file(data, size, &f))
        return 0;
    io.ctx = &f;
    io.open = open_any;
    io.close = close_any;
    io.pread = pread_any;
    io.fstat = fstat_any;
    io.fadvise = fadvise_any;
    if (swn_store_open(&s, &io, "fuzz.store", why) == 0) {
        check_store(s);
        swn_store_close(s, &io);
    } else {
        expect(why[0]);
    }
    free(f.bytes);
    return 0;
}
