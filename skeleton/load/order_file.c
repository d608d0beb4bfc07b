/* The order in which a run read the layers of a store, left beside it as STORE.order: names, one a line. A store that
 * is written while loading is in the order of the checkpoint; `swapnet-partition build --from-store` puts it in this
 * one. */
#define _GNU_SOURCE
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "skeleton/load/load.h"
#include "skeleton/load/load_internal.h"
#include "base/atomic_file.h"
#include "skeleton/engine/weights.h"
#include "skeleton/engine/section.h"

static const struct swn_store_extent *extent_from(const struct swn_store *s, uint64_t off)
{
    size_t lo = 0, hi = s->extent_count;
    while (lo < hi) {
        size_t mid = (lo + hi) / 2;
        if (s->extents[mid].off < off)
            lo = mid + 1;
        else
            hi = mid;
    }
    return lo < s->extent_count && s->extents[lo].off == off ? &s->extents[lo] : NULL;
}

/* Adds the weight's layer to the order. */
static void add(struct source *s, const struct swn_range *r)
{
    const struct swn_store_extent *x = extent_from(s->store, r->extent);
    if (!s->learned)
        s->learned = calloc(s->store->layer_count + 1, sizeof *s->learned);
    if (!x || !s->learned)
        return;
    for (size_t i = 0; i < s->learned_count; i++)
        if (s->learned[i] == x->layer)
            return;
    s->learned[s->learned_count++] = x->layer;
}

static struct source *store_of(struct swn_engine *e, uint32_t id)
{
    const struct swn_weight *weight = swn_weight_of(e, id);
    if (!weight || atomic_load(&weight->range->state) != SWN_FILE_BACKED)
        return NULL;
    struct source *s = swn_source_of(weight->range->file);
    return s && s->store ? s : NULL;
}

void swn_load_order_learned(struct swn_engine *e, const uint32_t *ids, size_t n, uint32_t first)
{
    size_t begin = 0;
    struct source *s;
    for (size_t i = 0; i < n; i++) {
        begin = ids[i] == first ? i : begin;
        if ((s = store_of(e, ids[i])))
            s->learned_count = 0;
    }
    for (size_t i = 0; i < n; i++)
        if ((s = store_of(e, ids[(begin + i) % n])))
            add(s, swn_weight_of(e, ids[(begin + i) % n])->range);
}

static int is_the_stores(const struct source *s)
{
    for (size_t i = 1; i < s->learned_count; i++)
        if (s->learned[i] < s->learned[i - 1])
            return 0;
    return 1;
}

/* All lines, which the caller frees; NULL: no memory. */
static char *text_of(const struct source *s, size_t *len)
{
    size_t size = 1;
    for (size_t i = 0; i < s->learned_count; i++)
        size += strlen(s->store->layers[s->learned[i]].name) + 1;
    char *text = malloc(size), *end = text;
    for (size_t i = 0; text && i < s->learned_count; i++)
        end += sprintf(end, "%s\n", s->store->layers[s->learned[i]].name);
    *len = text ? (size_t)(end - text) : 0;
    return text;
}

void swn_load_write_order(struct swn_engine *e, const struct source *s)
{
    char path[4096 + sizeof SWN_ORDER_SUFFIX], why[SWN_ERRMSG];
    struct swn_atomic_file f;
    struct stat st;
    size_t len = 0;
    /* Other threads may still plan. */
    swn_lock(&e->lock);
    char *text = is_the_stores(s) ? NULL : text_of(s, &len);
    swn_unlock(&e->lock);
    if (!text || e->io->fstat(e->io->ctx, s->store->file.fd, &st) || !st.st_nlink) {
        free(text); /* no order, or the store has been removed */
        return;
    }
    snprintf(path, sizeof path, "%s%s", s->store->path, SWN_ORDER_SUFFIX);
    if (swn_atomic_file_open(&f, e->io, path, 0600, why) == 0) {
        if (e->io->pwrite(e->io->ctx, f.file.fd, text, len, 0) == (ssize_t)len)
            swn_atomic_file_commit(&f, e->io, why);
        else
            swn_atomic_file_abandon(&f, e->io);
    }
    free(text);
}
