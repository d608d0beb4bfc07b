/* blocks/checkpoint/safetensors.c - .safetensors files.
 *
 * 8 bytes: the header's size. The header: JSON, one object, name -> dtype, shape and [begin, end) in the data. Then the
 * data. Rules: the header has at most 100 MB and begins with '{'; no key twice; the tensors cover the data from its
 * first byte to the end of the file, without holes and without overlaps; a tensor's bytes are its shape times its
 * element size. F4, of half a byte, is read as PyTorch's float4_e2m1fn_x2, two of which are one element, so the last
 * dimension has to be even. Other element types of less than a byte are refused.
 *
 * Memory: at most twice the header; only the tensors stay.
 */
#define _GNU_SOURCE /* qsort_r */
#include "blocks/checkpoint/builder.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include <xxhash.h>

#include "blocks/checkpoint/json_reader.h"

#define MAX_HEADER UINT64_C(100000000) /* as in the reference implementation */
#define LENGTH_BYTES 8
#define METADATA "__metadata__"

struct reader {
    struct swn_json json;
    struct swn_ckpt_builder *b;
    uint32_t file;
    uint64_t data_off, data_bytes;
    size_t first_storage;
    int metadata_seen;
    uint64_t *hashes; /* of the metadata's keys */
    size_t hash_count, hash_room;
    char name[SWN_CKPT_MAX_NAME + 1];
};

static int header_size(const struct swn_ckpt_source *src, uint64_t *bytes, char *why)
{
    unsigned char p[LENGTH_BYTES + 1];
    if (src->size < sizeof(p) + 1)
        return swn_ckpt_fail(why, -EINVAL, "%s: too short for a safetensors file", src->path);
    int rc = swn_ckpt_read(src, p, sizeof(p), 0, why);
    if (rc)
        return rc;
    uint64_t n = 0;
    for (int i = LENGTH_BYTES; i-- > 0;)
        n = n << 8 | p[i];
    if (n > MAX_HEADER)
        return swn_ckpt_fail(why, -EINVAL, "%s: the header's size is %" PRIu64 " bytes, above the limit of 100 MB",
                             src->path, n);
    if (n < 2 || n > src->size - LENGTH_BYTES)
        return swn_ckpt_fail(why, -EINVAL, "%s: the header's size is %" PRIu64 " bytes, the file has %" PRIu64,
                             src->path, n, src->size);
    if (p[LENGTH_BYTES] != '{')
        return swn_ckpt_fail(why, -EINVAL, "%s: the header does not begin with '{'", src->path);
    *bytes = n;
    return 0;
}

int swn_ckpt_hash_safetensors(const struct swn_ckpt_source *src, uint64_t *hash, char why[SWN_ERRMSG])
{
    uint64_t left, at = LENGTH_BYTES;
    int rc = header_size(src, &left, why);
    if (rc)
        return rc;
    unsigned char *window = malloc(SWN_JSON_WINDOW);
    XXH3_state_t *state = XXH3_createState();
    if (!window || !state)
        rc = swn_ckpt_fail_memory(why, src->path, -ENOMEM);
    else
        XXH3_64bits_reset(state);
    while (!rc && left) {
        size_t n = left < SWN_JSON_WINDOW ? (size_t)left : SWN_JSON_WINDOW;
        rc = swn_ckpt_read(src, window, n, at, why);
        if (!rc)
            XXH3_64bits_update(state, window, n);
        at += n;
        left -= n;
    }
    if (!rc)
        *hash = XXH3_64bits_digest(state);
    XXH3_freeState(state);
    free(window);
    return rc;
}

static int read_dtype(struct reader *r, enum swn_dtype *out)
{
    static const char *const small[] = {"F6_E2M3", "F6_E3M2"};
    char text[32];
    int rc = swn_json_text(&r->json, text, sizeof(text), NULL);
    if (rc)
        return rc;
    for (int d = SWN_DTYPE_NONE + 1; d < SWN_DTYPE_COUNT; d++) {
        const char *name = swn_dtype_safetensors((enum swn_dtype)d);
        if (name && !strcmp(name, text)) {
            *out = (enum swn_dtype)d;
            return 0;
        }
    }
    for (size_t i = 0; i < sizeof(small) / sizeof(*small); i++)
        if (!strcmp(small[i], text))
            return swn_json_fail(&r->json,
                                 "tensor '%.100s': %s is an element type of less than a byte, which is not read",
                                 r->name, text);
    return swn_json_fail(&r->json, "tensor '%.100s': %s is not a known element type", r->name, text);
}

/* An array of at most `most` whole numbers. */
static int read_numbers(struct reader *r, uint64_t *out, uint32_t most, uint32_t *n)
{
    int more = swn_json_take(&r->json, '[') ? -1 : 1;
    *n = 0;
    if (more > 0 && swn_json_peek(&r->json) == ']')
        return swn_json_take(&r->json, ']');
    while (more > 0) {
        if (*n == most)
            return swn_json_fail(&r->json, "tensor '%.100s': more than %u numbers", r->name, most);
        if (swn_json_number(&r->json, &out[(*n)++]))
            break;
        more = swn_json_more(&r->json, ']');
    }
    return r->json.err;
}

/* Shape and row-major strides, in the bump. A dimension of 0 counts as 1 in the strides, as in PyTorch. */
static int set_shape(struct reader *r, struct swn_ckpt_tensor *t, uint64_t *dims, uint32_t n)
{
    static int64_t none[1];
    void *p = none;
    unsigned packed = swn_dtype_safetensors_elements(t->dtype);
    if (packed > 1 && (!n || dims[n - 1] % packed))
        return swn_json_fail(&r->json, "tensor '%.100s': the last dimension of %s has to be a multiple of %u", r->name,
                             swn_dtype_safetensors(t->dtype), packed);
    if (n)
        dims[n - 1] /= packed;
    int rc = n ? swn_bump_alloc_take(&r->b->bump, 2 * n * sizeof(int64_t), &p) : 0;
    if (rc)
        return swn_ckpt_fail_memory(r->json.why, r->json.src->path, rc);
    int64_t *shape = p, *stride = shape + n, step = 1;
    for (uint32_t i = n; i-- > 0;) {
        shape[i] = (int64_t)dims[i];
        stride[i] = step;
        if (dims[i] && __builtin_mul_overflow(step, shape[i], &step))
            return swn_json_fail(&r->json, "tensor '%.100s': its shape overflows", r->name);
    }
    t->shape = shape;
    t->stride = stride;
    t->ndim = n;
    return 0;
}

/* Checks the tensor's bytes against its shape, and adds it with a storage of its own. */
static int add_tensor(struct reader *r, struct swn_ckpt_tensor *t, const uint64_t *range)
{
    uint64_t count, bytes;
    if (swn_ckpt_elements(t->shape, t->ndim, &count) || __builtin_mul_overflow(count, swn_dtype_size(t->dtype), &bytes))
        return swn_json_fail(&r->json, "tensor '%.100s': its shape overflows", r->name);
    if (range[0] > range[1] || range[1] > r->data_bytes)
        return swn_json_fail(&r->json, "tensor '%.100s': its data_offsets lie outside the file", r->name);
    if (range[1] - range[0] != bytes)
        return swn_json_fail(&r->json,
                             "tensor '%.100s': its data_offsets span %" PRIu64 " bytes, its shape needs %" PRIu64,
                             r->name, range[1] - range[0], bytes);
    int rc = swn_bump_alloc_text(&r->b->bump, r->name, strlen(r->name), &t->name);
    if (rc)
        return swn_ckpt_fail_memory(r->json.why, r->json.src->path, rc);
    struct swn_ckpt_storage s = {.name = t->name, .file = r->file, .off = r->data_off + range[0], .bytes = bytes};
    t->storage = (uint32_t)r->b->c.storage_count;
    rc = swn_ckpt_add_storage(r->b, &s, r->json.why);
    return rc ? rc : swn_ckpt_add_tensor(r->b, t, r->json.why);
}

/* {"dtype": ..., "shape": [...], "data_offsets": [begin, end]} in any order, each once, nothing else. */
static int read_tensor(struct reader *r)
{
    enum { DTYPE = 1, SHAPE = 2, OFFSETS = 4 };
    struct swn_ckpt_tensor t = {.dtype = SWN_DTYPE_NONE};
    uint64_t dims[SWN_CKPT_MAX_DIMS], range[2];
    uint32_t ndim = 0, n, seen = 0;
    int rc = swn_json_take(&r->json, '{'), more = 1;
    while (!rc && more) {
        char key[32];
        uint32_t field;
        rc = swn_json_text(&r->json, key, sizeof(key), NULL);
        if (!rc)
            rc = swn_json_take(&r->json, ':');
        if (rc)
            return rc;
        if (!strcmp(key, "dtype")) {
            field = DTYPE;
            rc = read_dtype(r, &t.dtype);
        } else if (!strcmp(key, "shape")) {
            field = SHAPE;
            rc = read_numbers(r, dims, SWN_CKPT_MAX_DIMS, &ndim);
        } else if (!strcmp(key, "data_offsets")) {
            field = OFFSETS;
            rc = read_numbers(r, range, 2, &n);
            if (!rc && n != 2)
                rc = swn_json_fail(&r->json, "tensor '%.100s': data_offsets has not two numbers", r->name);
        } else {
            return swn_json_fail(&r->json, "tensor '%.100s': '%s' is not a known key", r->name, key);
        }
        if (!rc && seen & field)
            rc = swn_json_fail(&r->json, "tensor '%.100s': the key '%s' is there twice", r->name, key);
        seen |= field;
        if (!rc)
            more = swn_json_more(&r->json, '}');
        if (more < 0)
            rc = more;
    }
    if (!rc && seen != (DTYPE | SHAPE | OFFSETS))
        rc = swn_json_fail(&r->json, "tensor '%.100s': dtype, shape or data_offsets is missing", r->name);
    if (!rc)
        rc = set_shape(r, &t, dims, ndim);
    return rc ? rc : add_tensor(r, &t, range);
}

/* Remembers a metadata key by its hash; equal hashes count as equal keys, which is safe here. */
static int add_hash(struct reader *r, const char *key, size_t len)
{
    if (r->hash_count == r->hash_room) {
        size_t room = r->hash_room + r->hash_room / 2 + 16;
        uint64_t *grown = realloc(r->hashes, room * sizeof(*grown));
        if (!grown)
            return swn_ckpt_fail_memory(r->json.why, r->json.src->path, -ENOMEM);
        r->hashes = grown;
        r->hash_room = room;
    }
    r->hashes[r->hash_count++] = XXH3_64bits(key, len);
    return 0;
}

static int hash_order(const void *a, const void *b)
{
    uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return (x > y) - (x < y);
}

/* {"key": "text", ...}: checked and dropped. */
static int read_metadata(struct reader *r)
{
    int rc = swn_json_take(&r->json, '{'), more = 1;
    if (r->metadata_seen++)
        return swn_json_fail(&r->json, "the key '" METADATA "' is there twice");
    if (!rc && swn_json_peek(&r->json) == '}')
        return swn_json_take(&r->json, '}');
    while (!rc && more) {
        size_t len;
        rc = swn_json_text(&r->json, r->name, sizeof(r->name), &len);
        if (!rc)
            rc = add_hash(r, r->name, len);
        if (!rc)
            rc = swn_json_take(&r->json, ':');
        if (!rc)
            rc = swn_json_text(&r->json, NULL, 0, NULL);
        if (!rc)
            more = swn_json_more(&r->json, '}');
        if (more < 0)
            rc = more;
    }
    if (rc)
        return rc;
    qsort(r->hashes, r->hash_count, sizeof(*r->hashes), hash_order);
    for (size_t i = 1; i < r->hash_count; i++)
        if (r->hashes[i - 1] == r->hashes[i])
            return swn_json_fail(&r->json, "a key of '" METADATA "' is there twice");
    return 0;
}

static int read_header(struct reader *r)
{
    int rc = swn_json_take(&r->json, '{'), more = 1;
    if (!rc && swn_json_peek(&r->json) == '}') {
        more = 0;
        rc = swn_json_take(&r->json, '}');
    }
    while (!rc && more) {
        size_t len;
        rc = swn_json_text(&r->json, r->name, sizeof(r->name), &len);
        if (!rc)
            rc = swn_json_take(&r->json, ':');
        if (!rc && strlen(r->name) != len)
            rc = swn_json_fail(&r->json, "a tensor's name has a zero byte");
        if (!rc)
            rc = strcmp(r->name, METADATA) ? read_tensor(r) : read_metadata(r);
        if (!rc)
            more = swn_json_more(&r->json, '}');
        if (more < 0)
            rc = more;
    }
    return rc ? rc : swn_json_finish(&r->json);
}

static int place_order(const void *a, const void *b, void *ctx)
{
    const struct swn_ckpt_storage *all = ctx, *x = &all[*(const uint32_t *)a], *y = &all[*(const uint32_t *)b];
    if (x->off != y->off)
        return x->off < y->off ? -1 : 1;
    return (x->bytes > y->bytes) - (x->bytes < y->bytes);
}

/* Checks that the tensors cover each byte from the first byte of the data to the end of the file exactly once. */
static int check_cover(struct reader *r)
{
    const struct swn_ckpt_storage *s = r->b->c.storages;
    size_t n = r->b->c.storage_count - r->first_storage;
    const char *path = r->json.src->path;
    uint32_t *order = malloc((n + 1) * sizeof(*order));
    if (!order)
        return swn_ckpt_fail_memory(r->json.why, path, -ENOMEM);
    for (size_t i = 0; i < n; i++)
        order[i] = (uint32_t)(r->first_storage + i);
    qsort_r(order, n, sizeof(*order), place_order, r->b->c.storages);
    uint64_t at = r->data_off;
    int rc = 0;
    for (size_t i = 0; i < n && !rc; i++) {
        const struct swn_ckpt_storage *p = &s[order[i]];
        if (p->off != at)
            rc = swn_ckpt_fail(r->json.why, -EINVAL, "%s: there is %s in front of tensor '%.200s'", path,
                               p->off > at ? "a hole" : "an overlap", p->name);
        at = p->off + p->bytes;
    }
    free(order);
    if (!rc && at != r->data_off + r->data_bytes)
        rc = swn_ckpt_fail(r->json.why, -EINVAL, "%s: %" PRIu64 " bytes at the end belong to no tensor", path,
                           r->data_off + r->data_bytes - at);
    return rc;
}

int swn_ckpt_read_safetensors(struct swn_ckpt_builder *b, const struct swn_ckpt_source *src, uint32_t file,
                              uint64_t *directory, char why[SWN_ERRMSG])
{
    uint64_t bytes;
    int rc = swn_ckpt_hash_safetensors(src, directory, why);
    if (!rc)
        rc = header_size(src, &bytes, why);
    if (rc)
        return rc;
    struct reader *r = calloc(1, sizeof(*r));
    if (!r)
        return swn_ckpt_fail_memory(why, src->path, -ENOMEM);
    r->b = b;
    r->file = file;
    r->data_off = LENGTH_BYTES + bytes;
    r->data_bytes = src->size - r->data_off;
    r->first_storage = b->c.storage_count;
    b->c.kind = SWN_CKPT_SAFETENSORS;
    swn_json_begin(&r->json, src, LENGTH_BYTES, bytes, why);
    rc = read_header(r);
    if (!rc)
        rc = check_cover(r);
    free(r->hashes);
    free(r);
    return rc;
}
