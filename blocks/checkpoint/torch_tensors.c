/* blocks/checkpoint/torch_tensors.c - from the values of a pickle to named tensors; see blocks/checkpoint/torch_zip.h.
 *
 * Time: linear in the pickle. The values form a graph, and a path through it costs two bytes of pickle for each step;
 * so no step may cost more than its container has items. The walk writes a name where it has found a tensor, whose
 * description pays for the name's bytes, and goes once through a container without tensors.
 */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <xxhash.h>

#include "blocks/checkpoint/torch_zip.h"

#define MAX_DEPTH 64

/* A step on the way to a value: a text, or a number where there is none. */
struct part {
    const char *text;
    size_t len;
    int64_t number;
    size_t end; /* how long the name is with it; once it is written */
};

struct walk {
    struct swn_ckpt_builder *b;
    struct swn_ckpt_named *named;
    const char *path;
    char *why;
    size_t budget, found;             /* found: tensors so far, described or not */
    int depth, part_count, written;   /* written: so many parts are in `name` */
    struct part parts[MAX_DEPTH + 1]; /* a step for each container, and the prefix */
    char name[SWN_CKPT_MAX_NAME + 1];
};

static void enter(struct walk *w, const char *text, size_t len)
{
    w->parts[w->part_count++] = (struct part){.text = text, .len = len};
}

static void enter_number(struct walk *w, int64_t i)
{
    w->parts[w->part_count++] = (struct part){.number = i};
}

static void leave(struct walk *w)
{
    w->part_count--;
    if (w->written > w->part_count)
        w->written = w->part_count;
}

static int add_part(struct walk *w, const struct part *part, size_t *len)
{
    char digits[24];
    const char *text = part->text ? part->text : digits;
    size_t n = part->text ? part->len : (size_t)snprintf(digits, sizeof(digits), "%" PRId64, part->number);
    size_t dot = *len ? 1 : 0;
    if (n + dot > SWN_CKPT_MAX_NAME - *len)
        return swn_ckpt_fail(w->why, -EINVAL, "%s: a tensor's name is longer than %d bytes", w->path,
                             SWN_CKPT_MAX_NAME);
    if (memchr(text, 0, n))
        return swn_ckpt_fail(w->why, -EINVAL, "%s: a name has a zero byte", w->path);
    if (dot)
        w->name[(*len)++] = '.';
    memcpy(w->name + *len, text, n);
    *len += n;
    return 0;
}

/* The steps so far, in w->name. */
static int write_name(struct walk *w, size_t *len)
{
    *len = w->written ? w->parts[w->written - 1].end : 0;
    for (; w->written < w->part_count; w->written++) {
        int rc = add_part(w, &w->parts[w->written], len);
        if (rc)
            return rc;
        w->parts[w->written].end = *len;
    }
    return 0;
}

/* A copy of the current name; "tensor" where the checkpoint is a single tensor. */
static int current_name(struct walk *w, char **out)
{
    size_t len;
    int rc = write_name(w, &len);
    if (rc)
        return rc;
    rc = len ? swn_bump_alloc_text(&w->b->bump, w->name, len, out) : swn_bump_alloc_text(&w->b->bump, "tensor", 6, out);
    return rc ? swn_ckpt_fail_memory(w->why, w->path, rc) : 0;
}

static int skip(struct walk *w, const char *what)
{
    char *name;
    int rc = current_name(w, &name);
    if (rc)
        return rc;
    w->found++;
    const struct swn_ckpt_skipped t = {.name = name, .what = what, .file = (uint32_t)w->b->c.file_count - 1};
    return swn_ckpt_add_skipped(w->b, &t, w->why);
}

static int copy_ints(struct walk *w, const int64_t *ints, uint32_t n, const int64_t **out)
{
    void *copy;
    int rc = swn_bump_alloc_take(&w->b->bump, (n + 1) * sizeof(*ints), &copy);
    if (rc)
        return swn_ckpt_fail_memory(w->why, w->path, rc);
    memcpy(copy, ints, n * sizeof(*ints));
    *out = copy;
    return 0;
}

static int use_storage(struct walk *w, struct swn_ckpt_named *n)
{
    if (n->index != SWN_CKPT_UNUSED)
        return 0;
    struct swn_ckpt_storage s = n->storage;
    int rc = swn_bump_alloc_text(&w->b->bump, s.name, strlen(s.name), &s.name);
    if (rc)
        return swn_ckpt_fail_memory(w->why, w->path, rc);
    n->index = (uint32_t)w->b->c.storage_count;
    return swn_ckpt_add_storage(w->b, &s, w->why);
}

static int add_tensor(struct walk *w, const struct swn_pickle_tensor *t)
{
    if (t->skip)
        return skip(w, t->skip);
    struct swn_ckpt_tensor out = {.dtype = t->dtype, .ndim = t->ndim, .off = t->off};
    int rc = use_storage(w, &w->named[t->storage]);
    if (!rc)
        rc = current_name(w, &out.name);
    if (!rc)
        rc = copy_ints(w, t->shape, t->ndim, &out.shape);
    if (!rc)
        rc = copy_ints(w, t->stride, t->ndim, &out.stride);
    if (rc)
        return rc;
    out.storage = w->named[t->storage].index;
    w->found++;
    return swn_ckpt_add_tensor(w->b, &out, w->why);
}

static int is_int(const struct swn_pickle_value *v)
{
    return v->kind == SWN_PV_INT || v->kind == SWN_PV_BOOL; /* True is 1, also as a key */
}

/* Equal for keys that are equal in Python; of others, for none that were not made to be. Texts and integers only. */
static uint64_t key_hash(const struct swn_pickle_value *key)
{
    return is_int(key) ? XXH3_64bits_withSeed(&key->i, sizeof(key->i), 1) : key->hash;
}

static int hash_order(const void *a, const void *b)
{
    uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return (x > y) - (x < y);
}

/* What is wrong with the dict to which the steps so far lead. */
static int refuse_dict(struct walk *w, const char *what)
{
    size_t len;
    int rc = write_name(w, &len);
    return rc ? rc
              : swn_ckpt_fail(w->why, -EINVAL, "%s: the dict '%.*s' %s", w->path, (int)(len < 200 ? len : 200), w->name,
                              what);
}

/* A key that is set twice would be two tensors here and one in Python. */
static int compare_keys(struct walk *w, struct swn_pickle_value *dict)
{
    size_t n = 0;
    int twice = 0;
    if (dict->compared)
        return 0;
    uint64_t *hashes = malloc((dict->count / 2 + 1) * sizeof(*hashes));
    if (!hashes)
        return swn_ckpt_fail_memory(w->why, w->path, -ENOMEM);
    for (uint32_t i = 0; i < dict->count; i += 2) {
        if (dict->items[i]->kind == SWN_PV_TEXT || is_int(dict->items[i]))
            hashes[n++] = key_hash(dict->items[i]);
    }
    qsort(hashes, n, sizeof(*hashes), hash_order);
    for (size_t i = 1; i < n; i++)
        twice |= hashes[i - 1] == hashes[i];
    free(hashes);
    if (twice)
        return refuse_dict(w, "has a key twice");
    dict->strange = dict->count / 2 - (uint32_t)n;
    dict->compared = 1;
    return 0;
}

static int visit(struct walk *w, struct swn_pickle_value *v);

static int visit_dict(struct walk *w, struct swn_pickle_value *dict)
{
    size_t found = w->found;
    int rc = compare_keys(w, dict);
    for (uint32_t i = 0; i < dict->count && !rc; i += 2) {
        const struct swn_pickle_value *key = dict->items[i];
        if (key->kind == SWN_PV_TEXT)
            enter(w, key->text, key->count);
        else if (is_int(key))
            enter_number(w, key->i);
        else
            enter(w, "?", 1);
        rc = visit(w, dict->items[i + 1]);
        leave(w);
    }
    if (!rc && dict->strange && w->found != found)
        rc = refuse_dict(w, "holds tensors and has keys that are neither texts nor integers");
    return rc;
}

static int visit_items(struct walk *w, const struct swn_pickle_value *list)
{
    int rc = 0;
    for (uint32_t i = 0; i < list->count && !rc; i++) {
        enter_number(w, i);
        rc = visit(w, list->items[i]);
        leave(w);
    }
    return rc;
}

static int visit(struct walk *w, struct swn_pickle_value *v)
{
    int rc = 0;
    if (v->kind == SWN_PV_TENSOR)
        return add_tensor(w, v->tensor);
    if (v->kind == SWN_PV_STORAGE)
        return skip(w, "a storage without a tensor");
    /* What is in a container that the walk is in the middle of gets its names there. */
    if (v->kind < SWN_PV_TUPLE || v->kind > SWN_PV_OBJECT || v->visiting || v->barren)
        return 0;
    if (w->depth == MAX_DEPTH)
        return swn_ckpt_fail(w->why, -EINVAL, "%s: containers are nested more than %d deep", w->path, MAX_DEPTH);
    if (w->budget <= v->count)
        return swn_ckpt_fail(w->why, -EINVAL, "%s: containers refer to each other too often", w->path);
    w->budget -= v->count + 1;
    size_t found = w->found;
    v->visiting = 1;
    w->depth++;
    if (v->kind == SWN_PV_DICT)
        rc = visit_dict(w, v);
    else if (v->kind == SWN_PV_OBJECT)
        rc = v->count ? visit(w, v->items[0]) : 0;
    else
        rc = visit_items(w, v);
    w->depth--;
    v->visiting = 0;
    v->barren = w->found == found;
    return rc;
}

int swn_ckpt_walk(struct swn_ckpt_builder *b, struct swn_pickle_value *root, struct swn_ckpt_named *named,
                  const char *prefix, size_t budget, const char *path, char why[SWN_ERRMSG])
{
    struct walk *w = calloc(1, sizeof(*w));
    if (!w)
        return swn_ckpt_fail_memory(why, path, -ENOMEM);
    w->b = b;
    w->named = named;
    w->path = path;
    w->why = why;
    w->budget = budget;
    if (*prefix)
        enter(w, prefix, strlen(prefix));
    int rc = visit(w, root);
    free(w);
    return rc;
}
