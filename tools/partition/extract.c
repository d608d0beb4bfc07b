/* tools/partition/extract.c - `swapnet-partition extract`: the tensors of a store as one .safetensors file.
 *
 * safetensors knows no strides and no sharing, so every tensor is written contiguous and by itself. Contiguous tensors
 * are streamed; for the others the whole extent is read into memory. Where the format cannot hold a tensor the command
 * writes nothing: a user who did not ask for part of a model must not get part of it.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <inttypes.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tools/partition/partition_tool.h"
#include "base/atomic_file.h"
#include "base/size.h"
#include "base/file_io.h"
#include "base/errmsg.h"

#define BUFFER_BYTES ((size_t)4 << 20)
#define SMALL_REPEATS (UINT64_C(1) << 20)

struct extract {
    const struct swn_store *s;
    struct part_reader in;
    struct swn_atomic_file out;
    char *buf; /* BUFFER_BYTES, written as a whole */
    size_t fill;
    uint64_t off;     /* offset of buf in the file */
    uint8_t *checked; /* per extent */
    int skip;         /* leave out tensors that cannot be written */
    uint8_t *left;    /* per tensor: left out */
    uint64_t repeats; /* bytes that repeated ones may still take */
    char why[SWN_ERRMSG];
};

static uint64_t elements(const struct swn_store_tensor *t)
{
    uint64_t n = 1;
    for (uint32_t i = 0; i < t->ndim; i++)
        n *= (uint64_t)t->shape[i]; /* cannot overflow: the tensor lies in its extent, unless strides of 0 repeat it */
    return n;
}

/* Broadcast views can be larger than any disk; everything else has been checked against its extent. */
static int tensor_bytes(const struct swn_store_tensor *t, uint64_t *bytes)
{
    uint64_t n = swn_dtype_size(t->dtype);
    int empty = 0;
    for (uint32_t i = 0; i < t->ndim; i++)
        empty |= !t->shape[i];
    for (uint32_t i = 0; i < t->ndim && !empty; i++)
        if (__builtin_mul_overflow(n, (uint64_t)t->shape[i], &n) || n > INT64_MAX)
            return -EINVAL;
    *bytes = empty ? 0 : n;
    return 0;
}

static int is_contiguous(const struct swn_store_tensor *t)
{
    int64_t expected = 1;
    for (uint32_t i = t->ndim; i-- > 0;) {
        if (t->shape[i] != 1 && t->stride[i] != expected)
            return 0;
        expected *= t->shape[i];
    }
    return 1;
}

/* ---- the header ---- */

static json_t *describe(const struct swn_store_tensor *t, uint64_t begin, uint64_t bytes)
{
    json_t *shape = json_array();
    unsigned packed = swn_dtype_safetensors_elements(t->dtype);
    for (uint32_t i = 0; i < t->ndim; i++)
        json_array_append_new(shape, json_integer(i + 1 < t->ndim ? t->shape[i] : t->shape[i] * packed));
    return json_pack("{s:s s:o s:[I,I]}", "dtype", swn_dtype_safetensors(t->dtype), "shape", shape, "data_offsets",
                     (json_int_t)begin, (json_int_t)(begin + bytes));
}

/* 0, -ENOMEM, or -EINVAL: the name is not UTF-8. */
static int add_tensor(json_t *header, const struct swn_store_tensor *t, uint64_t begin, uint64_t bytes)
{
    json_t *tensor = describe(t, begin, bytes);
    return !tensor ? -ENOMEM : json_object_set_new(header, t->name, tensor) ? -EINVAL : 0;
}

/* A file of a few bytes can say that a tensor repeats one of them without end: what all of them repeat may take as much
 * as the store's own bytes, and SMALL_REPEATS. */
static int repeats_too_much(struct extract *x, const struct swn_store_tensor *t, uint64_t bytes)
{
    uint64_t own = x->s->extents[t->extent].bytes;
    if (bytes <= own)
        return 0;
    if (bytes - own > x->repeats)
        return 1;
    x->repeats -= bytes - own;
    return 0;
}

/* Why the tensor cannot be in the file, whose data end at `at` so far; NULL: it is in the header now. */
static const char *unfit(struct extract *x, json_t *header, const struct swn_store_tensor *t, uint64_t *at, int *rc)
{
    uint64_t bytes, end;
    if (!swn_dtype_safetensors(t->dtype))
        return "safetensors has no name for its element type";
    if (!t->ndim && swn_dtype_safetensors_elements(t->dtype) > 1)
        return "safetensors has no single element of its type";
    if (!t->name[0] || !strcmp(t->name, "__metadata__") || json_object_get(header, t->name))
        return "the name cannot be used, or is there twice";
    if (tensor_bytes(t, &bytes) || __builtin_add_overflow(*at, bytes, &end) || end > INT64_MAX)
        return "it repeats its bytes more often than a file can hold";
    if (repeats_too_much(x, t, bytes))
        return "by strides of 0 it repeats its bytes, and written out would take more than the whole store: save it as "
               "one row, and expand it after loading";
    *rc = add_tensor(header, t, *at, bytes);
    if (*rc == -EINVAL) {
        *rc = 0;
        return "the name is not UTF-8";
    }
    *at = end;
    return NULL;
}

/* Adds all tensors that can be added, and their bytes to *at. Unless skipping is allowed, a tensor that cannot be added
 * is an error. */
static int add_tensors(struct extract *x, json_t *header, uint64_t *at)
{
    size_t left = 0, first = 0;
    const char *why_first = NULL;
    int rc = 0;
    x->repeats = SMALL_REPEATS;
    for (size_t i = 0; i < x->s->extent_count; i++)
        x->repeats += x->s->extents[i].bytes;
    for (size_t i = 0; i < x->s->tensor_count && !rc; i++) {
        const struct swn_store_tensor *t = &x->s->tensors[i];
        const char *wrong = unfit(x, header, t, at, &rc);
        if (!wrong)
            continue;
        if (x->skip)
            swn_cli_error("left out: '%s': %s (%s)", t->name, wrong, swn_dtype_name(t->dtype));
        x->left[i] = 1;
        if (!left++) {
            first = i;
            why_first = wrong;
        }
    }
    if (rc)
        return swn_errmsg(x->why, rc, "no memory for the header");
    if (left && !x->skip)
        return swn_errmsg(
            x->why, -EINVAL, "'%.200s': %s (%s); --skip leaves out what cannot be written (%zu of %zu tensors)",
            x->s->tensors[first].name, why_first, swn_dtype_name(x->s->tensors[first].dtype), left, x->s->tensor_count);
    if (x->s->skipped_count && !x->skip)
        return swn_errmsg(x->why, -EINVAL,
                          "%s: lacks %" PRIu64
                          " of the checkpoint's tensors, the first: %.200s; --skip writes the others",
                          x->s->path, x->s->skipped_count, x->s->skipped);
    part_say_skipped(x->s, "the checkpoint");
    return 0;
}

/* *text: the JSON text, padded to a multiple of 8, to be freed; *total: the size of the file. 0, -EINVAL or -ENOMEM. */
static int make_header(struct extract *x, char **text, uint64_t *total)
{
    uint64_t at = 0;
    json_t *header = json_object();
    int rc = header ? add_tensors(x, header, &at) : swn_errmsg(x->why, -ENOMEM, "no memory for the header");
    char *dumped = rc ? NULL : json_dumps(header, JSON_COMPACT);
    json_decref(header);
    if (rc)
        return rc;
    size_t len = dumped ? strlen(dumped) : 0, padded = (len + 7) / 8 * 8;
    char *grown = dumped ? realloc(dumped, padded + 1) : NULL;
    if (!grown) {
        free(dumped);
        return swn_errmsg(x->why, -ENOMEM, "no memory for the header");
    }
    memset(grown + len, ' ', padded - len);
    grown[padded] = 0;
    *text = grown;
    *total = 8 + padded + at;
    return 0;
}

/* ---- writing ---- */

static int flush(struct extract *x)
{
    size_t len = SWN_BLOCK_UP(x->fill);
    memset(x->buf + x->fill, 0, len - x->fill); /* padding at the file's end, cut off afterwards */
    int rc = len ? swn_write_blocks(&swn_io_sys, &x->out.file, x->buf, len, x->off) : 0;
    x->off += x->fill;
    x->fill = 0;
    return rc ? swn_errmsg(x->why, rc, "%s: cannot be written: %s", x->out.path, strerror(-rc)) : 0;
}

static int append(struct extract *x, const char *bytes, size_t size)
{
    if (part_stopped())
        return swn_errmsg(x->why, -ECANCELED, "%s: cancelled", x->out.path);
    while (size) {
        size_t room = BUFFER_BYTES - x->fill, piece = size < room ? size : room;
        memcpy(x->buf + x->fill, bytes, piece);
        x->fill += piece;
        bytes += piece;
        size -= piece;
        int rc = x->fill == BUFFER_BYTES ? flush(x) : 0;
        if (rc)
            return rc;
    }
    return 0;
}

static int read_failed(struct extract *x, const struct swn_store_tensor *t, int rc)
{
    const struct swn_store_extent *e = &x->s->extents[t->extent];
    return swn_errmsg(x->why, rc, "%s: block '%s' (%s), extent %u at offset %" PRIu64 ": %s", x->s->path,
                      x->s->layers[t->layer].name, t->name, t->extent, e->off,
                      rc == -EILSEQ ? "the checksum does not match" : strerror(-rc));
}

static int stream(struct extract *x, const struct swn_store_tensor *t, uint64_t bytes)
{
    uint64_t off = x->s->extents[t->extent].off + t->off;
    const char *piece;
    for (uint64_t at = 0; at < bytes;) {
        ssize_t n = part_read(&x->in, off + at, bytes - at, &piece);
        if (n < 0)
            return read_failed(x, t, (int)n);
        int rc = append(x, piece, (size_t)n);
        if (rc)
            return rc;
        at += (uint64_t)n;
    }
    return 0;
}

/* Copies one element after the other in the order of the indices, like an odometer. */
static int gather_from(struct extract *x, const struct swn_store_tensor *t, const char *extent)
{
    size_t size = swn_dtype_size(t->dtype);
    int64_t index[64] = {0}, at = 0;
    for (uint64_t n = elements(t); n; n--) {
        int rc = append(x, extent + t->off + (uint64_t)at * size, size);
        if (rc)
            return rc;
        for (uint32_t d = t->ndim; d-- > 0;) {
            if (++index[d] < t->shape[d]) {
                at += t->stride[d];
                break;
            }
            /* Back by the steps that were made: the stride of a dimension of one element may be any number. */
            at -= t->stride[d] * (t->shape[d] - 1);
            index[d] = 0;
        }
    }
    return 0;
}

static int gather(struct extract *x, const struct swn_store_tensor *t)
{
    const struct swn_store_extent *e = &x->s->extents[t->extent];
    const char *piece;
    int rc = 0;
    char *extent = malloc(e->bytes + 1);
    if (!extent)
        return swn_errmsg(x->why, -ENOMEM, "'%s' is not contiguous, and there is no memory for it", t->name);
    for (uint64_t at = 0; at < e->bytes && !rc;) {
        ssize_t n = part_read(&x->in, e->off + at, e->bytes - at, &piece);
        if (n < 0) {
            rc = read_failed(x, t, (int)n);
            break;
        }
        memcpy(extent + at, piece, (size_t)n);
        at += (uint64_t)n;
    }
    if (!rc)
        rc = gather_from(x, t, extent);
    free(extent);
    return rc;
}

static int write_tensor(struct extract *x, const struct swn_store_tensor *t)
{
    uint64_t bytes = 0;
    tensor_bytes(t, &bytes);
    if (!x->checked[t->extent]) {
        int rc = part_check_extent(x->s, &x->s->extents[t->extent]);
        if (rc)
            return read_failed(x, t, rc);
        x->checked[t->extent] = 1;
    }
    if (!bytes)
        return 0;
    return is_contiguous(t) ? stream(x, t, bytes) : gather(x, t);
}

static int write_file(struct extract *x, const char *header, uint64_t total)
{
    char mib[32];
    uint64_t size = strlen(header);
    int rc = swn_io_sys.fallocate(NULL, x->out.file.fd, 0, 0, total);
    if (rc == -ENOSPC || rc == -EDQUOT || rc == -EFBIG)
        return swn_errmsg(x->why, rc, "%s: no room in %s: it needs %" PRIu64 " bytes (%s): %s", x->out.path, x->out.dir,
                          total, swn_format_mib(mib, total), strerror(-rc));
    rc = append(x, (const char *)&size, sizeof size);
    if (!rc)
        rc = append(x, header, size);
    for (size_t i = 0; i < x->s->tensor_count && !rc; i++)
        rc = x->left[i] ? 0 : write_tensor(x, &x->s->tensors[i]);
    if (!rc)
        rc = flush(x);
    if (!rc && (rc = swn_io_sys.ftruncate(NULL, x->out.file.fd, total)))
        swn_errmsg(x->why, rc, "%s: %s", x->out.path, strerror(-rc));
    return rc;
}

static int extract(struct extract *x, const char *path)
{
    uint64_t total = 0;
    char *header = NULL;
    struct stat st;
    int rc = swn_io_sys.fstat(NULL, x->s->file.fd, &st);
    if (rc)
        return swn_errmsg(x->why, rc, "%s: %s", x->s->path, strerror(-rc));
    rc = make_header(x, &header, &total);
    if (rc)
        return rc;
    /* Whoever may not read the store reads no copy of it either. */
    rc = swn_atomic_file_open(&x->out, &swn_io_sys, path, st.st_mode & 0666, x->why);
    if (!rc) {
        rc = write_file(x, header, total);
        if (rc)
            swn_atomic_file_abandon(&x->out, &swn_io_sys);
        else
            rc = swn_atomic_file_commit(&x->out, &swn_io_sys, x->why);
    }
    free(header);
    return rc;
}

static int run(const char *store, const char *output, int skip)
{
    struct extract *x = calloc(1, sizeof *x);
    struct swn_store *s = NULL;
    int rc = x ? swn_store_open(&s, &swn_io_sys, store, x->why) : -ENOMEM;
    if (!rc) {
        x->s = s;
        x->skip = skip;
        x->buf = aligned_alloc(SWN_BLOCK, BUFFER_BYTES);
        x->checked = calloc(s->extent_count + 1, 1);
        x->left = calloc(s->tensor_count + 1, 1);
        rc = x->buf && x->checked && x->left ? part_reader_open(&x->in, s->file.fd) : -ENOMEM;
        if (rc)
            swn_errmsg(x->why, rc, "no memory");
    }
    if (!rc) {
        part_catch_signals();
        rc = extract(x, output);
        part_reader_close(&x->in);
    }
    if (rc == -ECANCELED && part_stopped())
        part_stop();
    if (rc)
        swn_cli_error("%s", x ? x->why : "no memory");
    if (x) {
        free(x->buf);
        free(x->checked);
        free(x->left);
        free(x);
    }
    swn_store_close(s, &swn_io_sys);
    return part_exit_code(rc);
}

int part_extract(int argc, char **argv)
{
    static const struct option options[] = {{"output", required_argument, NULL, 'o'},
                                            {"skip", no_argument, NULL, 'k'},
                                            {"help", no_argument, NULL, 'h'},
                                            {NULL, 0, NULL, 0}};
    const char *output = NULL;
    int opt, skip = 0;
    while ((opt = getopt_long(argc, argv, ":o:h", options, NULL)) != -1) {
        if (opt == 'h') {
            swn_cli_help(argv[0]);
            return SWN_CLI_OK;
        }
        if (opt != 'o' && opt != 'k') {
            swn_cli_bad_option(argv, opt);
            return SWN_CLI_USAGE;
        }
        if (opt == 'k')
            skip = 1;
        else
            output = optarg;
    }
    if (!output || !*output || optind != argc - 1) {
        swn_cli_error("give one store and --output FILE; see 'swapnet-partition help extract'");
        return SWN_CLI_USAGE;
    }
    if (part_same_file(argv[optind], output)) {
        swn_cli_error("--output %s would replace the store itself", output);
        return SWN_CLI_USAGE;
    }
    return run(argv[optind], output, skip);
}
