/* blocks/checkpoint/torch_tensors.c - from the values of a pickle to named tensors; see blocks/checkpoint/torch_zip.h.
 */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "blocks/checkpoint/torch_zip.h"

#define MAX_DEPTH 64

struct walk {
    struct swn_ckpt_builder *b;
    struct swn_ckpt_named *named;
    const char *path;
    char *why;
    size_t budget, name_len, found; /* found: tensors so far, described or not */
    int depth;
    char name[SWN_CKPT_MAX_NAME + 1];
};

/* Appends a part to the name; *before is the name_len to restore afterwards. */
static int enter(struct walk *w, const char *part, size_t len, size_t *before)
{
    *before = w->name_len;
    size_t dot = w->name_len ? 1 : 0;
    if (memchr(part, 0, len))
        return swn_ckpt_fail(w->why, -EINVAL, "%s: a name has a zero byte", w->path);
    if (len + dot > SWN_CKPT_MAX_NAME - w->name_len)
        return swn_ckpt_fail(w->why, -EINVAL, "%s: a tensor's name is longer than %d bytes", w->path,
                             SWN_CKPT_MAX_NAME);
    if (dot)
        w->name[w->name_len++] = '.';
    memcpy(w->name + w->name_len, part, len);
    w->name_len += len;
    return 0;
}

static int enter_number(struct walk *w, int64_t i, size_t *before)
{
    char text[24];
    int n = snprintf(text, sizeof(text), "%" PRId64, i);
    return enter(w, text, (size_t)n, before);
}

static void leave(struct walk *w, size_t before)
{
    w->name_len = before;
}

/* A copy of the current name; "tensor" where the checkpoint is a single tensor. */
static int current_name(struct walk *w, char **out)
{
    int rc = w->name_len ? swn_bump_alloc_text(&w->b->bump, w->name, w->name_len, out)
                         : swn_bump_alloc_text(&w->b->bump, "tensor", 6, out);
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

/* Sorts keys that are equal in Python next to each other. Texts and integers only. */
static int key_order(const void *a, const void *b)
{
    const struct swn_pickle_value *x = *(struct swn_pickle_value *const *)a, *y = *(struct swn_pickle_value *const *)b;
    if (is_int(x) != is_int(y))
        return is_int(x) - is_int(y);
    if (is_int(x))
        return (x->i > y->i) - (x->i < y->i);
    if (x->count != y->count)
        return x->count < y->count ? -1 : 1;
    return memcmp(x->text, y->text, x->count);
}

/* A repeated key would be two tensors here and one in Python. *odd: there are keys of other kinds. */
static int check_keys(struct walk *w, const struct swn_pickle_value *dict, int *odd)
{
    size_t n = 0;
    struct swn_pickle_value **keys = malloc((dict->count / 2 + 1) * sizeof(*keys));
    if (!keys)
        return swn_ckpt_fail_memory(w->why, w->path, -ENOMEM);
    for (uint32_t i = 0; i < dict->count; i += 2) {
        if (dict->items[i]->kind == SWN_PV_TEXT || is_int(dict->items[i]))
            keys[n++] = dict->items[i];
    }
    *odd = n < dict->count / 2;
    qsort(keys, n, sizeof(*keys), key_order);
    int twice = 0;
    for (size_t i = 1; i < n; i++)
        twice |= !key_order(&keys[i - 1], &keys[i]);
    free(keys);
    if (twice)
        return swn_ckpt_fail(w->why, -EINVAL, "%s: the dict '%.*s' has a key twice", w->path,
                             (int)(w->name_len < 200 ? w->name_len : 200), w->name);
    return 0;
}

static int visit(struct walk *w, struct swn_pickle_value *v);

static int visit_dict(struct walk *w, const struct swn_pickle_value *dict)
{
    int odd = 0;
    size_t found = w->found;
    int rc = check_keys(w, dict, &odd);
    for (uint32_t i = 0; i < dict->count && !rc; i += 2) {
        const struct swn_pickle_value *key = dict->items[i];
        size_t before = w->name_len;
        if (key->kind == SWN_PV_TEXT)
            rc = enter(w, key->text, key->count, &before);
        else
            rc = is_int(key) ? enter_number(w, key->i, &before) : enter(w, "?", 1, &before);
        if (!rc)
            rc = visit(w, dict->items[i + 1]);
        leave(w, before);
    }
    if (!rc && odd && w->found != found)
        rc = swn_ckpt_fail(w->why, -EINVAL,
                           "%s: the dict '%.*s' holds tensors and has keys that are neither texts nor integers",
                           w->path, (int)(w->name_len < 200 ? w->name_len : 200), w->name);
    return rc;
}

static int visit_items(struct walk *w, const struct swn_pickle_value *list)
{
    int rc = 0;
    for (uint32_t i = 0; i < list->count && !rc; i++) {
        size_t before;
        rc = enter_number(w, i, &before);
        if (!rc)
            rc = visit(w, list->items[i]);
        leave(w, before);
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
    if (v->kind < SWN_PV_TUPLE || v->kind > SWN_PV_OBJECT || v->visiting)
        return 0; /* a container that contains itself is named already */
    if (w->depth == MAX_DEPTH)
        return swn_ckpt_fail(w->why, -EINVAL, "%s: containers are nested more than %d deep", w->path, MAX_DEPTH);
    if (w->budget <= v->count)
        return swn_ckpt_fail(w->why, -EINVAL, "%s: containers refer to each other too often", w->path);
    w->budget -= v->count + 1;
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
    return rc;
}

int swn_ckpt_walk(struct swn_ckpt_builder *b, struct swn_pickle_value *root, struct swn_ckpt_named *named,
                  const char *prefix, size_t budget, const char *path, char why[SWN_ERRMSG])
{
    size_t before;
    struct walk *w = calloc(1, sizeof(*w));
    if (!w)
        return swn_ckpt_fail_memory(why, path, -ENOMEM);
    w->b = b;
    w->named = named;
    w->path = path;
    w->why = why;
    w->budget = budget;
    int rc = enter(w, prefix, strlen(prefix), &before);
    if (!rc)
        rc = visit(w, root);
    free(w);
    return rc;
}
