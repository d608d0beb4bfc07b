/* blocks/store/layout.c - the order of layers, tensors and extents in a store, and its tables as bytes. Pure: no file
 * is touched.
 *
 * A layer is a module: the part of a tensor's name up to its last dot. Layers come in the order of the options, then in
 * the order in which the checkpoint first names them; tensors of a layer in checkpoint order; extents in the order in
 * which the tensors first use them.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

#include "blocks/store/store_internal.h"
#include "base/file_io.h"
#include "base/errmsg.h"

/* A tensor and its layer's name. */
struct member {
    const char *name;
    size_t len; /* of the layer's part */
    uint32_t tensor;
};

/* A layer whose place is not known yet. */
struct group {
    struct member *members; /* in checkpoint order */
    uint32_t count;
    uint64_t rank; /* its place: index in the given order, or behind all of those */
};

static size_t layer_length(const char *name)
{
    const char *dot = strrchr(name, '.');
    return dot ? (size_t)(dot - name) : 0;
}

static int compare_names(const char *a, size_t a_len, const char *b, size_t b_len)
{
    int order = memcmp(a, b, a_len < b_len ? a_len : b_len);
    return order ? order : (a_len > b_len) - (a_len < b_len);
}

static int by_layer_name(const void *a, const void *b)
{
    const struct member *x = a, *y = b;
    int order = compare_names(x->name, x->len, y->name, y->len);
    return order ? order : (x->tensor > y->tensor) - (x->tensor < y->tensor);
}

static int by_rank(const void *a, const void *b)
{
    const struct group *x = a, *y = b;
    return (x->rank > y->rank) - (x->rank < y->rank);
}

/* Groups sorted by name, for the look-up of ordered names. */
static struct group *find_group(struct group *groups, size_t count, const char *name)
{
    size_t low = 0, high = count, len = strlen(name);
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        struct group *g = &groups[middle];
        int order = compare_names(name, len, g->members->name, g->members->len);
        if (order == 0)
            return g;
        if (order < 0)
            high = middle;
        else
            low = middle + 1;
    }
    return NULL;
}

static size_t make_groups(struct group *groups, struct member *members, size_t count, const struct swn_store_opts *opts)
{
    size_t n = 0;
    qsort(members, count, sizeof *members, by_layer_name);
    for (size_t i = 0; i < count; i++) {
        if (!n ||
            compare_names(members[i].name, members[i].len, groups[n - 1].members->name, groups[n - 1].members->len))
            groups[n++] = (struct group){.members = &members[i], .rank = opts->order_count + members[i].tensor};
        groups[n - 1].count++;
    }
    for (size_t i = 0; i < opts->order_count; i++) {
        struct group *g = find_group(groups, n, opts->order[i]);
        if (g && g->rank >= opts->order_count)
            g->rank = i;
    }
    qsort(groups, n, sizeof *groups, by_rank);
    return n;
}

#define NOWHERE UINT32_MAX

/* Gives each storage its extent at its first use. `extent_of` is per storage. */
static int fill(struct swn_layout *l, const struct swn_checkpoint *c, const struct group *groups, uint32_t *extent_of)
{
    memset(extent_of, 0xff, c->storage_count * sizeof *extent_of);
    for (uint32_t layer = 0; layer < l->layer_count; layer++) {
        const struct group *g = &groups[layer];
        struct swn_disk_layer *to = &l->layers[layer];
        *to = (struct swn_disk_layer){.first_extent = (uint32_t)l->extent_count, .depth = g->count};
        l->layer_names[layer] = strndup(g->members->name, g->members->len);
        if (!l->layer_names[layer])
            return -ENOMEM;
        for (uint32_t i = 0; i < g->count; i++) {
            const struct swn_ckpt_tensor *t = &c->tensors[g->members[i].tensor];
            uint32_t *extent = &extent_of[t->storage];
            if (*extent == NOWHERE) {
                const struct swn_ckpt_storage *s = &c->storages[t->storage];
                *extent = (uint32_t)l->extent_count++;
                l->extents[*extent] = (struct swn_disk_extent){
                    .bytes = s->bytes, .source_off = s->off, .source = s->file, .layer = layer};
                l->inputs[*extent] = (struct swn_layout_input){.storage = t->storage, .file = s->file, .off = s->off};
                to->extents++;
                to->bytes += s->bytes;
                l->bytes += s->bytes;
            }
            l->described[l->tensor_count] = t;
            l->tensors[l->tensor_count++] = (struct swn_disk_tensor){
                .extent = *extent, .layer = layer, .dtype = (uint32_t)t->dtype, .ndim = t->ndim, .off = t->off};
        }
    }
    return 0;
}

/* A text for a mistake of a hand-made or misread checkpoint for which the store would be refused; NULL: none. */
static const char *unfit(const struct swn_checkpoint *c)
{
    uint64_t total = 0;
    if (c->tensor_count >= UINT32_MAX || c->storage_count >= UINT32_MAX || c->file_count >= UINT32_MAX)
        return "too many tensors";
    for (size_t i = 0; i < c->storage_count; i++) {
        const struct swn_ckpt_storage *s = &c->storages[i];
        if (s->file >= c->file_count || s->off > c->files[s->file].identity.size ||
            s->bytes > c->files[s->file].identity.size - s->off)
            return "a storage lies outside its file";
        if (s->bytes > INT64_MAX - (2 * SWN_STORE_TABLES_MAX) - total)
            return "too large";
        total += SWN_BLOCK_UP(s->bytes);
        if (i && s->file == s[-1].file && s[-1].off + s[-1].bytes > s->off)
            return "storages overlap or are not in file order";
    }
    for (size_t i = 0; i < c->tensor_count; i++) {
        const struct swn_ckpt_tensor *t = &c->tensors[i];
        if (t->storage >= c->storage_count)
            return "a tensor has no storage";
        const char *misfit =
            swn_tensor_misfit(t->dtype, t->ndim, t->shape, t->stride, t->off, c->storages[t->storage].bytes);
        if (misfit)
            return misfit;
    }
    return NULL;
}

static int allocate(struct swn_layout *l, const struct swn_checkpoint *c, size_t layers)
{
    l->own_sources = calloc(c->file_count + 1, sizeof *l->own_sources);
    l->layers = calloc(layers + 1, sizeof *l->layers);
    l->layer_names = calloc(layers + 1, sizeof *l->layer_names);
    l->extents = calloc(c->storage_count + 1, sizeof *l->extents);
    l->heads = calloc(c->storage_count + 1, sizeof *l->heads);
    l->inputs = calloc(c->storage_count + 1, sizeof *l->inputs);
    l->tensors = calloc(c->tensor_count + 1, sizeof *l->tensors);
    l->described = calloc(c->tensor_count + 1, sizeof *l->described);
    return l->own_sources && l->layers && l->layer_names && l->extents && l->heads && l->inputs && l->tensors &&
                   l->described
               ? 0
               : -ENOMEM;
}

static int arrange(struct swn_layout *l, const struct swn_checkpoint *c, const struct swn_store_opts *opts,
                   struct member *members, struct group *groups, uint32_t *extent_of)
{
    for (size_t i = 0; i < c->tensor_count; i++)
        members[i] = (struct member){c->tensors[i].name, layer_length(c->tensors[i].name), (uint32_t)i};
    size_t layers = make_groups(groups, members, c->tensor_count, opts);
    if (allocate(l, c, layers))
        return -ENOMEM;
    l->layer_count = layers;
    for (size_t i = 0; i < c->file_count; i++)
        l->own_sources[i] = (struct swn_store_source){c->files[i].path, c->files[i].identity};
    l->sources = l->own_sources;
    l->source_count = c->file_count;
    l->skipped_count = c->skipped_count;
    l->skipped = c->skipped;
    return fill(l, c, groups, extent_of);
}

int swn_layout_make(struct swn_layout *l, const struct swn_checkpoint *c, const struct swn_store_opts *opts,
                    char why[SWN_ERRMSG])
{
    memset(l, 0, sizeof *l);
    const char *wrong = unfit(c);
    if (wrong)
        return swn_errmsg(why, -EINVAL, "%s: cannot be made a store: %s",
                          c->file_count ? c->files[0].path : "checkpoint", wrong);
    struct member *members = calloc(c->tensor_count + 1, sizeof *members);
    struct group *groups = calloc(c->tensor_count + 1, sizeof *groups);
    uint32_t *extent_of = calloc(c->storage_count + 1, sizeof *extent_of);
    int rc = members && groups && extent_of ? arrange(l, c, opts, members, groups, extent_of) : -ENOMEM;
    free(members);
    free(groups);
    free(extent_of);
    return rc ? swn_errmsg(why, rc, "no memory for the tables of a store") : 0;
}

static uint64_t names_bytes(const struct swn_layout *l)
{
    uint64_t bytes = 0;
    for (size_t i = 0; i < l->source_count; i++)
        bytes += strlen(l->sources[i].path) + 1;
    for (size_t i = 0; i < l->layer_count; i++)
        bytes += strlen(l->layer_names[i]) + 1;
    for (size_t i = 0; i < l->tensor_count; i++)
        bytes += strlen(l->described[i]->name) + 1;
    return bytes + (l->skipped_count ? strlen(l->skipped) + 1 : 0);
}

int swn_layout_place(struct swn_layout *l, char why[SWN_ERRMSG])
{
    struct swn_disk_header *h = &l->header;
    *h = (struct swn_disk_header){.magic = SWN_STORE_MAGIC,
                                  .version = SWN_STORE_VERSION + SWN_STORE_HEADS + SWN_STORE_SUMS +
                                             (l->skipped_count ? SWN_STORE_LACKS : 0),
                                  .header_bytes = sizeof *h,
                                  .sources = l->source_count,
                                  .layers = l->layer_count,
                                  .extents = l->extent_count,
                                  .tensors = l->tensor_count,
                                  .names_bytes = names_bytes(l)};
    for (size_t i = 0; i < l->tensor_count; i++)
        h->dims += 2 * (uint64_t)l->tensors[i].ndim;
    l->sum_count = 0;
    for (size_t i = 0; i < l->extent_count; i++)
        l->sum_count += swn_sum_count(l->extents[i].bytes);
    h->data_off =
        SWN_BLOCK_UP(sizeof *h + l->source_count * sizeof(struct swn_disk_source) + l->layer_count * sizeof *l->layers +
                     l->extent_count * sizeof *l->extents + l->tensor_count * sizeof *l->tensors +
                     (l->skipped_count ? sizeof(struct swn_disk_lacking) : 0) + l->extent_count * sizeof *l->heads +
                     l->sum_count * sizeof *l->sums + h->dims * sizeof(int64_t) + h->names_bytes);
    if (h->data_off > SWN_STORE_TABLES_MAX)
        return swn_errmsg(why, -E2BIG, "the store's tables would take %llu bytes, more than the %llu allowed",
                          (unsigned long long)h->data_off, (unsigned long long)SWN_STORE_TABLES_MAX);
    free(l->sums);
    l->sums = calloc(l->sum_count + 1, sizeof *l->sums);
    if (!l->sums)
        return swn_errmsg(why, -ENOMEM, "no memory for the tables of a store");
    h->total_bytes = h->data_off;
    for (size_t i = 0; i < l->extent_count; i++) {
        l->extents[i].off = h->total_bytes;
        h->total_bytes += SWN_BLOCK_UP(l->extents[i].bytes);
    }
    return 0;
}

static void put(char **at, const void *bytes, size_t size)
{
    if (size) /* nothing may lie at NULL, and memcpy must not get NULL */
        memcpy(*at, bytes, size);
    *at += size;
}

static void put_name(char **at, const char *name)
{
    put(at, name, strlen(name) + 1);
}

static void put_names(const struct swn_layout *l, char **at)
{
    for (size_t i = 0; i < l->source_count; i++)
        put_name(at, l->sources[i].path);
    for (size_t i = 0; i < l->layer_count; i++)
        put_name(at, l->layer_names[i]);
    for (size_t i = 0; i < l->tensor_count; i++)
        put_name(at, l->described[i]->name);
    if (l->skipped_count)
        put_name(at, l->skipped);
}

char *swn_layout_tables(struct swn_layout *l)
{
    struct swn_disk_header *h = &l->header;
    char *tables = aligned_alloc(SWN_BLOCK, h->data_off), *at = tables + sizeof *h;
    if (!tables)
        return NULL;
    memset(tables, 0, h->data_off);
    for (size_t i = 0; i < l->source_count; i++) {
        const struct swn_identity *id = &l->sources[i].identity;
        struct swn_disk_source d = {id->dev, id->ino, id->size, id->mtime_ns, id->ctime_ns, id->directory};
        put(&at, &d, sizeof d);
    }
    put(&at, l->layers, l->layer_count * sizeof *l->layers);
    put(&at, l->extents, l->extent_count * sizeof *l->extents);
    put(&at, l->tensors, l->tensor_count * sizeof *l->tensors);
    if (l->skipped_count)
        put(&at, &(struct swn_disk_lacking){l->skipped_count}, sizeof(struct swn_disk_lacking));
    put(&at, l->heads, l->extent_count * sizeof *l->heads);
    put(&at, l->sums, l->sum_count * sizeof *l->sums);
    for (size_t i = 0; i < l->tensor_count; i++) {
        put(&at, l->described[i]->shape, l->described[i]->ndim * sizeof(int64_t));
        put(&at, l->described[i]->stride, l->described[i]->ndim * sizeof(int64_t));
    }
    put_names(l, &at);
    h->tables_checksum = XXH3_64bits(tables + sizeof *h, h->data_off - sizeof *h);
    h->checksum = XXH3_64bits(h, offsetof(struct swn_disk_header, checksum));
    memcpy(tables, h, sizeof *h);
    return tables;
}

void swn_layout_free(struct swn_layout *l)
{
    for (size_t i = 0; l->layer_names && i < l->layer_count; i++)
        free(l->layer_names[i]);
    free(l->layer_names);
    free(l->own_sources);
    free(l->layers);
    free(l->extents);
    free(l->heads);
    free(l->sums);
    free(l->inputs);
    free(l->tensors);
    free(l->described);
    memset(l, 0, sizeof *l);
}
