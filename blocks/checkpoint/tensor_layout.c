/* blocks/checkpoint/tensor_layout.c - see tensor_layout.h. */
#include "blocks/checkpoint/tensor_layout.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* A longer name has no counterpart. */
#define NAME_MOST 512
/* The most digits of a layer's number. */
#define DIGITS_MOST 6

struct swn_layout {
    struct swn_checkpoint *c;
    const struct swn_ckpt_tensor **by_name;
    const struct swn_ckpt_tensor **of; /* per storage: the first tensor in it, or NULL */
};

static int compare_names(const void *a, const void *b)
{
    return strcmp((*(const struct swn_ckpt_tensor *const *)a)->name, (*(const struct swn_ckpt_tensor *const *)b)->name);
}

int swn_layout_create(struct swn_layout **out, struct swn_checkpoint *c)
{
    struct swn_layout *l = calloc(1, sizeof *l);
    if (l) {
        l->by_name = calloc(c->tensor_count + 1, sizeof(struct swn_ckpt_tensor *));
        l->of = calloc(c->storage_count + 1, sizeof(struct swn_ckpt_tensor *));
    }
    if (!l || !l->by_name || !l->of) {
        if (l) {
            free(l->by_name);
            free(l->of);
        }
        free(l);
        return -ENOMEM;
    }
    l->c = c;
    for (size_t i = 0; i < c->tensor_count; i++) {
        l->by_name[i] = &c->tensors[i];
        if (!l->of[c->tensors[i].storage])
            l->of[c->tensors[i].storage] = &c->tensors[i];
    }
    if (c->tensor_count)
        qsort(l->by_name, c->tensor_count, sizeof(struct swn_ckpt_tensor *), compare_names);
    *out = l;
    return 0;
}

void swn_layout_destroy(struct swn_layout *l, const struct swn_io *io)
{
    swn_checkpoint_close(l->c, io);
    free(l->by_name);
    free(l->of);
    free(l);
}

size_t swn_layout_count(const struct swn_layout *l)
{
    return l->c->storage_count;
}

const struct swn_ckpt_storage *swn_layout_storage(const struct swn_layout *l, size_t storage)
{
    return &l->c->storages[storage];
}

long swn_layout_at(const struct swn_layout *l, uint64_t off)
{
    size_t lo = 0, hi = l->c->storage_count;
    while (lo < hi) {
        size_t mid = (lo + hi) / 2;
        if (l->c->storages[mid].off <= off)
            lo = mid + 1;
        else
            hi = mid;
    }
    return (long)lo - 1;
}

/* The digits in a name that say which layer it belongs to, or NULL. */
static const char *layer_number(const char *name, size_t *digits)
{
    for (const char *part = name; part; part = strchr(part, '.'), part += part != NULL) {
        size_t n = strspn(part, "0123456789");
        if (n && n <= DIGITS_MOST && (part[n] == '.' || !part[n])) {
            *digits = n;
            return part;
        }
    }
    return NULL;
}

long swn_layout_alike(const struct swn_layout *l, size_t storage, int by)
{
    char name[NAME_MOST];
    size_t digits;
    const struct swn_ckpt_tensor *t = l->of[storage], key = {.name = name}, *wanted = &key;
    const char *number = t ? layer_number(t->name, &digits) : NULL;
    int layer = number ? atoi(number) + by : -1;
    if (layer < 0 || snprintf(name, sizeof name, "%.*s%d%s", (int)(number - t->name), t->name, layer,
                              number + digits) >= (int)sizeof name)
        return -1;
    const struct swn_ckpt_tensor **found =
        bsearch(&wanted, l->by_name, l->c->tensor_count, sizeof(struct swn_ckpt_tensor *), compare_names);
    return found ? (long)(*found)->storage : -1;
}
