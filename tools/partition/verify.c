/* tools/partition/verify.c - `swapnet-partition verify`: every checksum, all padding, and every byte of the checkpoint.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tools/partition/partition_tool.h"
#include "base/size.h"
#include "base/file_io.h"
#include "base/errmsg.h"

struct verify {
    const struct swn_store *s;
    struct part_reader store;
    uint64_t bytes;     /* read and found right */
    uint64_t lacking;   /* tensors of the compared checkpoints that no store can hold */
    uint32_t *compared; /* per extent: 1 + the storage of the checkpoint that it was last compared with; 0: none */
};

/* ---- the store alone ---- */

static int check_padding(struct verify *v, const struct swn_store_extent *e)
{
    uint64_t end = e->off + e->bytes;
    const char *piece;
    for (uint64_t n = SWN_BLOCK_UP(end) - end; n;) {
        ssize_t got = part_read(&v->store, end, n, &piece);
        if (got < 0)
            return (int)got;
        for (ssize_t i = 0; i < got; i++)
            if (piece[i])
                return -EILSEQ;
        end += (uint64_t)got;
        n -= (uint64_t)got;
    }
    return 0;
}

static int check_store(struct verify *v)
{
    for (size_t i = 0; i < v->s->extent_count; i++) {
        const struct swn_store_extent *e = &v->s->extents[i];
        int rc = part_check_extent(v->s, e);
        const char *what = "checksum";
        if (!rc) {
            rc = check_padding(v, e);
            what = "padding";
        }
        if (!rc && e->compressed) {
            rc = swn_store_verify_compressed(v->s, &swn_io_sys, e);
            what = "encoded copy";
        }
        if (rc == -EILSEQ)
            swn_cli_error(
                "%s: block '%s' (%s), extent %zu at offset %" PRIu64 ", %" PRIu64 " bytes: the %s does not match",
                v->s->path, v->s->layers[e->layer].name, part_extent_name(v->s, e), i, e->off, e->bytes, what);
        else if (rc)
            swn_cli_error("%s: extent %zu at offset %" PRIu64 ": %s", v->s->path, i, e->off, strerror(-rc));
        if (rc)
            return rc;
        v->bytes += e->bytes;
    }
    return 0;
}

/* ---- against a checkpoint ---- */

static int by_name(const void *a, const void *b)
{
    return strcmp((*(const struct swn_ckpt_tensor *const *)a)->name, (*(const struct swn_ckpt_tensor *const *)b)->name);
}

static const struct swn_ckpt_tensor **sorted_tensors(const struct swn_checkpoint *c)
{
    const struct swn_ckpt_tensor **list = calloc(c->tensor_count + 1, sizeof *list);
    for (size_t i = 0; list && i < c->tensor_count; i++)
        list[i] = &c->tensors[i];
    if (list)
        qsort(list, c->tensor_count, sizeof *list, by_name);
    return list;
}

static int same_description(const struct swn_store_tensor *a, const struct swn_ckpt_tensor *b)
{
    return a->dtype == b->dtype && a->ndim == b->ndim && a->off == b->off &&
           (!a->ndim || (!memcmp(a->shape, b->shape, a->ndim * sizeof *a->shape) &&
                         !memcmp(a->stride, b->stride, a->ndim * sizeof *a->stride)));
}

/* Compares the extent of tensor t with its storage in the checkpoint. */
static int compare_bytes(struct verify *v, const struct swn_store_tensor *t, const struct swn_checkpoint *c,
                         uint32_t storage)
{
    const struct swn_store_extent *e = &v->s->extents[t->extent];
    const struct swn_ckpt_storage *from = &c->storages[storage];
    const struct swn_ckpt_file *file = &c->files[from->file];
    struct part_reader r;
    const char *a = NULL, *b = NULL;
    ssize_t have_a = 0, have_b = 0, n;
    if (from->bytes != e->bytes) {
        swn_cli_error("%s: '%s' is of %" PRIu64 " bytes, of %" PRIu64 " in %s", v->s->path, t->name, e->bytes,
                      from->bytes, file->path);
        return -EILSEQ;
    }
    int rc = part_reader_open(&r, file->fd);
    if (rc)
        return rc;
    for (uint64_t at = 0; at < e->bytes && !rc; at += (uint64_t)n, a += n, b += n, have_a -= n, have_b -= n) {
        n = 0;
        if (!have_a && (have_a = part_read(&v->store, e->off + at, e->bytes - at, &a)) < 0)
            rc = (int)have_a;
        else if (!have_b && (have_b = part_read(&r, from->off + at, e->bytes - at, &b)) < 0)
            rc = (int)have_b;
        if (rc) {
            swn_cli_error("%s: offset %" PRIu64 ": %s", have_a < 0 ? v->s->path : file->path,
                          have_a < 0 ? e->off + at : from->off + at, strerror(-rc));
            break;
        }
        n = have_a < have_b ? have_a : have_b;
        if (memcmp(a, b, (size_t)n) == 0)
            continue;
        uint64_t first = 0;
        while (a[first] == b[first])
            first++;
        swn_cli_error("%s: block '%s' (%s): byte %" PRIu64 ", at offset %" PRIu64
                      ", is not that of %s at offset %" PRIu64,
                      v->s->path, v->s->layers[t->layer].name, t->name, at + first, e->off + at + first, file->path,
                      from->off + at + first);
        rc = -EILSEQ;
    }
    part_reader_close(&r);
    return rc;
}

/* Compares the tensors of the store that come from `source` (or all: UINT32_MAX) with those of the checkpoint, which
 * must have none that the store lacks. A shard may hold tensors that the index takes from another shard: for those the
 * store needs only a tensor of that name. */
static int compare(struct verify *v, const struct swn_checkpoint *c, uint32_t source)
{
    const struct swn_ckpt_tensor **list = sorted_tensors(c);
    char *found = calloc(c->tensor_count + 1, 1);
    size_t count = 0;
    int rc = list && found ? 0 : -ENOMEM;
    for (size_t i = 0; i < v->s->tensor_count && !rc; i++) {
        const struct swn_store_tensor *t = &v->s->tensors[i];
        struct swn_ckpt_tensor key = {.name = (char *)t->name};
        const struct swn_ckpt_tensor *wanted = &key, **hit;
        int claimed = source == UINT32_MAX || v->s->extents[t->extent].source == source;
        hit = bsearch(&wanted, list, c->tensor_count, sizeof *list, by_name);
        if (hit)
            found[hit - list] = 1;
        if (!claimed)
            continue;
        if (!hit || !same_description(t, *hit)) {
            swn_cli_error("%s: '%s' is %s %s", v->s->path, t->name, hit ? "described differently in" : "not in",
                          c->files[0].path);
            rc = -EILSEQ;
            break;
        }
        /* Tensors that share an extent in the store need not share memory in the checkpoint. */
        if (v->compared[t->extent] != (*hit)->storage + 1)
            rc = compare_bytes(v, t, c, (*hit)->storage);
        v->compared[t->extent] = (*hit)->storage + 1;
    }
    for (size_t i = 0; i < c->tensor_count && !rc; i++)
        count += (size_t)found[i];
    v->lacking += c->skipped_count;
    if (!rc && count != c->tensor_count) {
        swn_cli_error("%s: holds %zu of the %zu tensors of %s", v->s->path, count, c->tensor_count, c->files[0].path);
        rc = -EILSEQ;
    }
    free(found);
    free(list);
    return rc;
}

static int compare_given(struct verify *v, const char *path)
{
    struct swn_checkpoint *c;
    char why[SWN_ERRMSG] = "";
    int rc = swn_checkpoint_open(&c, &swn_io_sys, path, why);
    if (rc) {
        swn_cli_error("%s", why);
        return rc;
    }
    rc = compare(v, c, UINT32_MAX);
    swn_checkpoint_close(c, &swn_io_sys);
    return rc;
}

/* The checkpoint that the store names: 0: compared and equal; 1: it is missing, or has changed. */
static int compare_source(struct verify *v, uint32_t i)
{
    const struct swn_store_source *source = &v->s->sources[i];
    struct swn_checkpoint *c;
    char why[SWN_ERRMSG] = "";
    int rc = swn_checkpoint_open(&c, &swn_io_sys, source->path, why);
    if (rc == -ENOENT || rc == -EACCES || rc == -ENOTDIR)
        return 1;
    if (rc || c->file_count != 1 || memcmp(&c->files[0].identity, &source->identity, sizeof source->identity)) {
        swn_cli_error("note: %s has changed since the store was built; not compared with it", source->path);
        if (!rc)
            swn_checkpoint_close(c, &swn_io_sys);
        return 1;
    }
    rc = compare(v, c, i);
    swn_checkpoint_close(c, &swn_io_sys);
    return rc;
}

static int verify(const char *path, const char *checkpoint)
{
    struct verify v = {0};
    struct swn_store *s;
    char why[SWN_ERRMSG] = "", mib[32];
    int equal = 1, rc = swn_store_open(&s, &swn_io_sys, path, why);
    if (rc) {
        swn_cli_error("%s", why);
        return part_exit_code(rc);
    }
    v.s = s;
    v.compared = calloc(s->extent_count + 1, sizeof *v.compared);
    rc = v.compared ? part_reader_open(&v.store, s->file.fd) : -ENOMEM;
    if (rc) {
        swn_cli_error("no memory");
    } else {
        rc = check_store(&v);
        if (!rc && checkpoint)
            rc = compare_given(&v, checkpoint);
        for (uint32_t i = 0; !rc && !checkpoint && i < s->source_count; i++) {
            rc = compare_source(&v, i);
            equal &= rc == 0;
            rc = rc == 1 ? 0 : rc;
        }
        part_reader_close(&v.store);
    }
    if (!rc) {
        swn_cli_print_name(stdout, path, 0);
        printf(": ok: %zu tensors, %s%s", s->tensor_count, swn_format_mib(mib, v.bytes),
               equal ? ", equal to the checkpoint" : "");
        if (equal && v.lacking)
            printf(" but for %" PRIu64 " that %s not in the store", v.lacking, v.lacking == 1 ? "is" : "are");
        putchar('\n');
        part_say_skipped(s, "the checkpoint");
    }
    free(v.compared);
    swn_store_close(s, &swn_io_sys);
    return part_exit_code(rc);
}

int part_verify(int argc, char **argv)
{
    static const struct option options[] = {{"help", no_argument, NULL, 'h'}, {NULL, 0, NULL, 0}};
    int opt;
    while ((opt = getopt_long(argc, argv, ":h", options, NULL)) != -1) {
        if (opt == 'h') {
            swn_cli_help(argv[0]);
            return SWN_CLI_OK;
        }
        swn_cli_bad_option(argv, opt);
        return SWN_CLI_USAGE;
    }
    if (argc - optind < 1 || argc - optind > 2) {
        swn_cli_error("give one store, and its checkpoint if you like; see 'swapnet-partition help verify'");
        return SWN_CLI_USAGE;
    }
    return verify(argv[optind], argc - optind == 2 ? argv[optind + 1] : NULL);
}
