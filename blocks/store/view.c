/* blocks/store/view.c - the properties of a store, or of a draft, without reading any weights. */
#define _GNU_SOURCE
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "blocks/store/store_internal.h"
#include "base/file_io.h"
#include "base/errmsg.h"

int swn_store_layer_bytes(const struct swn_store *s, uint64_t *bytes)
{
    uint32_t *seen = calloc(s->extent_count + 1, sizeof *seen); /* the last layer that needed it, plus 1 */
    if (!seen)
        return -ENOMEM;
    for (size_t i = 0; i < s->layer_count; i++) {
        bytes[i] = 0;
        for (uint32_t k = 0; k < s->layers[i].extents; k++)
            bytes[i] += SWN_BLOCK_UP(s->extents[s->layers[i].first_extent + k].bytes);
    }
    for (size_t i = 0; i < s->tensor_count; i++) {
        const struct swn_store_tensor *t = &s->tensors[i];
        if (s->extents[t->extent].layer != t->layer && seen[t->extent] != t->layer + 1)
            bytes[t->layer] += SWN_BLOCK_UP(s->extents[t->extent].bytes);
        seen[t->extent] = t->layer + 1;
    }
    free(seen);
    return 0;
}

int swn_store_draft(struct swn_store **out, const struct swn_checkpoint *c, const struct swn_store_opts *opts,
                    char why[SWN_ERRMSG])
{
    static const struct swn_store_opts defaults;
    struct swn_layout l;
    struct swn_store *s = calloc(1, sizeof *s);
    struct swn_store_priv *p = calloc(1, sizeof *p);
    int rc = swn_layout_make(&l, c, opts ? opts : &defaults, why);
    if (!rc)
        rc = swn_layout_place(&l, why);
    char *tables = rc ? NULL : swn_layout_tables(&l);
    if (!rc && (!s || !p || !tables || !(p->tables = malloc(l.header.data_off - sizeof l.header))))
        rc = swn_errmsg(why, -ENOMEM, "no memory for the tables of a store");
    if (s && p) {
        s->priv = p;
        s->file.fd = s->file.direct_fd = -1;
        s->path = strdup(c->file_count ? c->files[0].path : "");
    }
    if (!rc) {
        memcpy(p->tables, tables + sizeof l.header, l.header.data_off - sizeof l.header);
        s->total_bytes = l.header.total_bytes;
        rc = swn_store_parse(s, &l.header, why);
    }
    if (!rc)
        rc = swn_store_index(s, why);
    free(tables);
    swn_layout_free(&l);
    if (!rc && s->path) {
        *out = s;
        return 0;
    }
    if (s && p) {
        swn_store_close(s, &swn_io_sys);
    } else {
        free(s);
        free(p);
    }
    return rc ? rc : swn_errmsg(why, -ENOMEM, "no memory for the tables of a store");
}
