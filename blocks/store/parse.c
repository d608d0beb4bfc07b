/* blocks/store/parse.c - turns a store's tables into arrays, and checks every rule of the format. Reads no file. */
#define _GNU_SOURCE
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "blocks/store/store_internal.h"
#include "base/file_io.h"
#include "base/errmsg.h"

const char *swn_tensor_misfit(enum swn_dtype dtype, uint32_t ndim, const int64_t *shape, const int64_t *stride,
                              uint64_t off, uint64_t bytes)
{
    uint64_t element = swn_dtype_size(dtype), last = 0, term;
    int empty = 0;
    if (!element)
        return "has an unknown element type";
    if (ndim > SWN_STORE_DIMS_MAX)
        return "has more than 64 dimensions";
    if (off > bytes)
        return "begins behind its storage";
    for (uint32_t i = 0; i < ndim; i++) {
        if (shape[i] < 0 || stride[i] < 0)
            return "has a negative size or stride";
        empty |= shape[i] == 0;
    }
    for (uint32_t i = 0; i < ndim && !empty; i++)
        if (__builtin_mul_overflow((uint64_t)shape[i] - 1, (uint64_t)stride[i], &term) ||
            __builtin_add_overflow(last, term, &last))
            return "is larger than any storage";
    if (__builtin_mul_overflow(last, element, &last) || __builtin_add_overflow(last, off + element, &last))
        return "is larger than any storage";
    return empty || last <= bytes ? NULL : "ends behind its storage";
}

/* A walk through the tables; `bad` stays set once bytes were missing. */
struct cursor {
    char *at, *end;
    int bad;
};

static void *take(struct cursor *c, uint64_t count, size_t size)
{
    uint64_t bytes;
    void *at = c->at;
    if (c->bad || __builtin_mul_overflow(count, size, &bytes) || bytes > (uint64_t)(c->end - c->at)) {
        c->bad = 1;
        return NULL;
    }
    c->at += bytes;
    return at;
}

static const char *take_name(struct cursor *c)
{
    if (c->bad)
        return NULL;
    char *end = memchr(c->at, 0, (size_t)(c->end - c->at)), *name = c->at;
    if (!end) {
        c->bad = 1;
        return NULL;
    }
    c->at = end + 1;
    return name;
}

struct tables {
    const struct swn_disk_source *sources;
    const struct swn_disk_layer *layers;
    const struct swn_disk_extent *extents;
    const struct swn_disk_tensor *tensors;
    const struct swn_disk_lacking *lacking; /* NULL: no tensor is lacking */
    const struct swn_disk_head *heads;      /* NULL: the store has none */
    const struct swn_disk_sum *sums;        /* likewise */
    struct cursor dims, names;
};

/* The number of all extents' sums; UINT64_MAX: more than possible. */
static uint64_t count_sums(const struct swn_disk_extent *extents, uint64_t n)
{
    uint64_t count = 0;
    for (uint64_t i = 0; i < n; i++)
        if (__builtin_add_overflow(count, swn_sum_count(extents[i].bytes), &count))
            return UINT64_MAX;
    return count;
}

static int find_tables(struct tables *t, const struct swn_store *s, const struct swn_disk_header *h)
{
    const struct swn_store_priv *p = s->priv;
    struct cursor c = {p->tables, p->tables + (h->data_off - sizeof *h), 0};
    t->sources = take(&c, h->sources, sizeof *t->sources);
    t->layers = take(&c, h->layers, sizeof *t->layers);
    t->extents = take(&c, h->extents, sizeof *t->extents);
    t->tensors = take(&c, h->tensors, sizeof *t->tensors);
    t->lacking = swn_disk_has(h, SWN_STORE_LACKS) ? take(&c, 1, sizeof *t->lacking) : NULL;
    t->heads = swn_disk_has(h, SWN_STORE_HEADS) ? take(&c, h->extents, sizeof *t->heads) : NULL;
    int sums = !c.bad && swn_disk_has(h, SWN_STORE_SUMS);
    t->sums = sums ? take(&c, count_sums(t->extents, h->extents), sizeof *t->sums) : NULL;
    t->dims.at = take(&c, h->dims, sizeof(int64_t));
    t->dims.end = c.at;
    t->names.at = take(&c, h->names_bytes, 1);
    t->names.end = c.at;
    t->dims.bad = t->names.bad = c.bad;
    if (c.bad || c.end - c.at >= (ptrdiff_t)SWN_BLOCK)
        return -EINVAL;
    for (; c.at < c.end; c.at++)
        if (*c.at)
            return -EINVAL;
    return 0;
}

static int make_arrays(struct swn_store *s, const struct swn_disk_header *h)
{
    s->sources = calloc(h->sources + 1, sizeof *s->sources);
    s->layers = calloc(h->layers + 1, sizeof *s->layers);
    s->extents = calloc(h->extents + 1, sizeof *s->extents);
    s->tensors = calloc(h->tensors + 1, sizeof *s->tensors);
    if (!s->sources || !s->layers || !s->extents || !s->tensors)
        return -ENOMEM;
    s->source_count = h->sources;
    s->layer_count = h->layers;
    s->extent_count = h->extents;
    s->tensor_count = h->tensors;
    return 0;
}

static const char *parse_sources(struct swn_store *s, struct tables *t)
{
    for (size_t i = 0; i < s->source_count; i++) {
        struct swn_store_source *to = (struct swn_store_source *)&s->sources[i];
        const struct swn_disk_source *from = &t->sources[i];
        to->identity = (struct swn_identity){.dev = from->dev,
                                             .ino = from->ino,
                                             .size = from->size,
                                             .mtime_ns = from->mtime_ns,
                                             .ctime_ns = from->ctime_ns,
                                             .directory = from->directory};
        to->path = take_name(&t->names);
    }
    return t->names.bad ? "names are missing" : NULL;
}

static const char *parse_layers(struct swn_store *s, struct tables *t)
{
    uint64_t next = 0;
    for (size_t i = 0; i < s->layer_count; i++) {
        struct swn_store_layer *to = (struct swn_store_layer *)&s->layers[i];
        const struct swn_disk_layer *from = &t->layers[i];
        if (from->zero)
            return "a layer has bits set that mean nothing";
        *to = (struct swn_store_layer){.first_extent = from->first_extent,
                                       .extents = from->extents,
                                       .bytes = from->bytes,
                                       .depth = from->depth,
                                       .flops = from->flops};
        to->name = take_name(&t->names);
        if (from->first_extent != next)
            return "the extents of layers are not one after the other";
        next += from->extents;
    }
    if (next != s->extent_count)
        return "an extent belongs to no layer";
    return t->names.bad ? "names are missing" : NULL;
}

static const char *parse_extents(struct swn_store *s, struct tables *t, const struct swn_disk_header *h)
{
    const struct swn_disk_sum *sums = t->sums;
    s->has_heads = t->heads != NULL;
    uint64_t off = h->data_off, bytes = 0, end = swn_disk_has(h, SWN_STORE_COPIES) ? h->data_end : h->total_bytes;
    for (size_t i = 0, layer = 0; i < s->extent_count; i++) {
        struct swn_store_extent *to = (struct swn_store_extent *)&s->extents[i];
        const struct swn_disk_extent *from = &t->extents[i];
        while (i >= s->layers[layer].first_extent + (uint64_t)s->layers[layer].extents)
            layer++; /* ends: parse_layers counted the extents */
        if (from->layer != layer)
            return "an extent and its layer disagree";
        if (from->off != off || from->bytes > end - off || SWN_BLOCK_UP(from->bytes) > end - off)
            return "an extent is out of place";
        off += SWN_BLOCK_UP(from->bytes);
        if (from->source >= s->source_count || from->source_off > s->sources[from->source].identity.size ||
            from->bytes > s->sources[from->source].identity.size - from->source_off)
            return "an extent comes from outside its source";
        *to = (struct swn_store_extent){.off = from->off,
                                        .bytes = from->bytes,
                                        .checksum = from->checksum,
                                        .source = from->source,
                                        .layer = from->layer,
                                        .source_off = from->source_off,
                                        .head = t->heads ? t->heads[i].checksum : 0,
                                        .sums = sums ? &sums->checksum : NULL};
        sums += sums ? swn_sum_count(from->bytes) : 0;
    }
    for (size_t i = 0; i < s->layer_count; i++) {
        bytes = 0;
        for (uint32_t k = 0; k < s->layers[i].extents; k++)
            bytes += s->extents[s->layers[i].first_extent + k].bytes;
        if (bytes != s->layers[i].bytes)
            return "a layer's size is not that of its extents";
    }
    return off == end ? NULL : "the extents do not end where the header says";
}

static const char *parse_tensors(struct swn_store *s, struct tables *t)
{
    uint32_t layer = 0, depth = 0;
    for (size_t i = 0; i < s->tensor_count; i++) {
        struct swn_store_tensor *to = (struct swn_store_tensor *)&s->tensors[i];
        const struct swn_disk_tensor *from = &t->tensors[i];
        for (; layer < from->layer && layer < s->layer_count; layer++, depth = 0)
            if (depth != s->layers[layer].depth)
                return "a layer's depth is not the number of its tensors";
        if (from->layer != layer || layer >= s->layer_count)
            return "tensors are not in the order of their layers";
        depth++;
        if (from->extent >= s->extent_count || s->extents[from->extent].layer > layer)
            return "a tensor's extent comes after its layer";
        *to = (struct swn_store_tensor){.extent = from->extent,
                                        .layer = from->layer,
                                        .dtype = (enum swn_dtype)from->dtype,
                                        .ndim = from->ndim,
                                        .off = from->off};
        to->shape = take(&t->dims, from->ndim, sizeof(int64_t));
        to->stride = take(&t->dims, from->ndim, sizeof(int64_t));
        to->name = take_name(&t->names);
        if (t->dims.bad || t->names.bad)
            return "names or dimensions are missing";
        if (from->dtype >= SWN_DTYPE_COUNT)
            return "a tensor has an unknown element type";
        const char *misfit =
            swn_tensor_misfit(to->dtype, to->ndim, to->shape, to->stride, to->off, s->extents[to->extent].bytes);
        if (misfit)
            return misfit;
    }
    for (; layer < s->layer_count; layer++, depth = 0)
        if (depth != s->layers[layer].depth)
            return "a layer's depth is not the number of its tensors";
    return NULL;
}

static const char *parse_lacking(struct swn_store *s, struct tables *t)
{
    if (t->lacking) {
        s->skipped_count = t->lacking->tensors;
        s->skipped = take_name(&t->names);
        if (!s->skipped_count || !s->skipped || !s->skipped[0])
            return "it does not say what it lacks";
    }
    return t->dims.at != t->dims.end || t->names.at != t->names.end ? "there are more names or dimensions than used"
                                                                    : NULL;
}

/* Records at odd addresses would be undefined behaviour: all of them are multiples of 8, and so is the header. */
_Static_assert(sizeof(struct swn_disk_header) % 8 == 0, "alignment of the tables");

int swn_store_parse(struct swn_store *s, const struct swn_disk_header *h, char why[SWN_ERRMSG])
{
    struct tables t;
    if (h->sources > UINT32_MAX || h->layers > UINT32_MAX || h->extents > UINT32_MAX || h->tensors > UINT32_MAX ||
        find_tables(&t, s, h))
        return swn_errmsg(why, -EINVAL, "%s: the tables do not have the sizes that the header states", s->path);
    if (make_arrays(s, h))
        return swn_errmsg(why, -ENOMEM, "%s: no memory for its tables", s->path);
    const char *wrong = parse_sources(s, &t);
    if (!wrong)
        wrong = parse_layers(s, &t);
    if (!wrong)
        wrong = parse_extents(s, &t, h);
    if (!wrong)
        wrong = parse_tensors(s, &t);
    if (!wrong)
        wrong = parse_lacking(s, &t);
    return wrong ? swn_errmsg(why, -EINVAL, "%s: malformed store: %s", s->path, wrong) : 0;
}
