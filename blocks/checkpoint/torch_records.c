/* blocks/checkpoint/torch_records.c - the records of an archive as they are: bytes with a place and no type.
 *
 * torch.save writes each storage as a record, whatever else it pickles, and torch.export writes each weight as one. So
 * the directory of the zip alone says which bytes a program will read at once. A record becomes a storage with one
 * tensor of bytes in it, both called by the record's name. Whoever maps these bytes instead of reading them has the
 * file's bytes, and depends on no description of them.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "blocks/checkpoint/torch_zip.h"

static int offset_order(const void *a, const void *b)
{
    uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return (x > y) - (x < y);
}

/* Whether a record of that name, behind the archive's folder, may be what a program loads into one tensor: it lies in a
 * folder of torch.save, TorchScript or torch.export for tensors, and is no text: torch.export has its descriptions of
 * weights beside them. A package of AOTInductor has large records elsewhere, which no tensor is read from. */
static int may_be_a_tensor(const char *name)
{
    static const char *const folders[] = {"data/", "constants/", "data/weights/", "data/constants/"};
    const char *slash = strrchr(name, '/');
    size_t folder = slash ? (size_t)(slash + 1 - name) : 0, len = strlen(name);
    if (len >= 5 && !strcmp(name + len - 5, ".json"))
        return 0;
    for (size_t i = 0; i < sizeof(folders) / sizeof(*folders); i++)
        if (folder == strlen(folders[i]) && !memcmp(name, folders[i], folder))
            return 1;
    return 0;
}

static int add_record(struct swn_ckpt_builder *b, const struct swn_zip_entry *e, const char *name, uint32_t file,
                      char *why)
{
    struct swn_ckpt_storage s = {.file = file, .off = e->data_off, .bytes = e->bytes};
    struct swn_ckpt_tensor t = {.storage = (uint32_t)b->c.storage_count, .dtype = SWN_U8, .ndim = 1};
    void *sizes;
    int rc = swn_bump_alloc_text(&b->bump, name, strlen(name), &s.name);
    if (!rc)
        rc = swn_bump_alloc_take(&b->bump, 2 * sizeof(int64_t), &sizes);
    if (rc)
        return swn_ckpt_fail_memory(why, name, rc);
    int64_t *shape = sizes;
    shape[0] = (int64_t)e->bytes;
    shape[1] = 1;
    t.name = s.name;
    t.shape = shape;
    t.stride = shape + 1;
    rc = swn_ckpt_add_storage(b, &s, why);
    return rc ? rc : swn_ckpt_add_tensor(b, &t, why);
}

int swn_ckpt_add_records(struct swn_ckpt_builder *b, const struct swn_zip *z, uint32_t file, const char *path,
                         char why[SWN_ERRMSG])
{
    size_t described = b->c.storage_count;
    uint64_t *taken = malloc((described + 1) * sizeof(*taken));
    if (!taken)
        return swn_ckpt_fail_memory(why, path, -ENOMEM);
    for (size_t i = 0; i < described; i++)
        taken[i] = b->c.storages[i].off;
    qsort(taken, described, sizeof(*taken), offset_order);
    b->bump.limit_bytes = SWN_CKPT_MAX_MEMORY;
    int rc = 0;
    for (size_t i = 0; i < z->count && !rc; i++) {
        const struct swn_zip_entry *e = &z->entries[i];
        const char *name = e->name + z->prefix;
        int plain = e->method == SWN_ZIP_STORED && e->bytes && e->bytes <= INT64_MAX;
        if (plain && may_be_a_tensor(name) && !bsearch(&e->data_off, taken, described, sizeof(*taken), offset_order))
            rc = add_record(b, e, name, file, why);
    }
    free(taken);
    return rc;
}
