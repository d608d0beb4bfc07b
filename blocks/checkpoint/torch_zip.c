/* blocks/checkpoint/torch_zip.c - the zip archives of torch.save and torch.jit.save: which entries matter and how they
 * fit together.
 *
 * data.pkl names storages by key, entry data/KEY holds the bytes of one. TorchScript archives also have constants.pkl,
 * with its storages in constants/ and its tensors named CONSTANTS.0, CONSTANTS.1, ...; code/ is never opened. Entries
 * that no tensor uses are left alone, except for a reader that needs places only (struct swn_ckpt_builder).
 */
#include "blocks/checkpoint/torch_zip.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/errmsg.h"

#define MAX_KEY 256
#define NEWEST_FORMAT 10 /* the entry "version" of PyTorch 1.6 to 2.13 says 1 to 10 */
/* Memory for a pickle's values and tensors, by the pickle's size: a value takes 32 bytes and one byte of pickle can
 * make one; a tensor's description is about as large as its pickle. */
#define MEMORY_BASE ((size_t)4 << 20)
#define MEMORY_PER_BYTE 64
#define VISITS_PER_BYTE 4 /* visits of containers' items: one byte of pickle makes at most one item */

struct archive {
    const struct swn_ckpt_source *src;
    struct swn_zip zip;
    uint32_t file;
    /* the storages of the pickle that is being read */
    const char *folder;
    struct swn_ckpt_named *named;
    size_t named_count, named_room;
    uint32_t *number; /* of each entry of the zip, or SWN_CKPT_UNUSED */
};

/* Reads the bytes of a stored entry, with a 0 behind; the caller frees them. */
static int read_entry(struct archive *a, const struct swn_zip_entry *e, uint64_t most, char **out, char *why)
{
    if (e->method != SWN_ZIP_STORED)
        return swn_ckpt_fail(why, -EINVAL, "%s: %.200s is compressed; torch.save stores it", a->src->path, e->name);
    if (e->bytes > most)
        return swn_ckpt_fail(why, -EINVAL, "%s: %.200s has %" PRIu64 " bytes, the limit is %" PRIu64, a->src->path,
                             e->name, e->bytes, most);
    char *text = malloc(e->bytes + 1);
    if (!text)
        return swn_ckpt_fail_memory(why, a->src->path, -ENOMEM);
    int rc = swn_ckpt_read(a->src, text, e->bytes, e->data_off, why);
    if (rc) {
        free(text);
        return rc;
    }
    text[e->bytes] = 0;
    *out = text;
    return 0;
}

/* "version" or ".data/version": a decimal number, then maybe a newline. */
static int check_version(struct archive *a, char *why)
{
    char *text;
    const struct swn_zip_entry *e = swn_zip_find(&a->zip, ".data/version");
    if (!e)
        e = swn_zip_find(&a->zip, "version");
    if (!e)
        return swn_ckpt_fail(why, -EINVAL, "%s: has no entry 'version', so torch.save did not write it", a->src->path);
    int rc = read_entry(a, e, 16, &text, why);
    if (rc)
        return rc;
    char *end;
    long version = text[0] >= '1' && text[0] <= '9' ? strtol(text, &end, 10) : 0;
    int fits = version >= 1 && (!*end || !strcmp(end, "\n")) && strlen(text) == e->bytes;
    free(text);
    if (!fits)
        return swn_ckpt_fail(why, -EINVAL, "%s: its entry 'version' is not a version", a->src->path);
    if (version > NEWEST_FORMAT)
        return swn_ckpt_fail(why, -ENOTSUP, "%s: file format %ld is newer than this swapnet, which reads up to %d",
                             a->src->path, version, NEWEST_FORMAT);
    return 0;
}

static int check_byteorder(struct archive *a, char *why)
{
    char *text;
    const struct swn_zip_entry *e = swn_zip_find(&a->zip, "byteorder");
    if (!e)
        return 0; /* written before 2.1 */
    int rc = read_entry(a, e, 16, &text, why);
    if (rc)
        return rc;
    if (!strcmp(text, "big") && e->bytes == 3)
        rc = swn_ckpt_fail(why, -ENOTSUP,
                           "%s: saved on a big-endian machine; load it with PyTorch and save it again on this one",
                           a->src->path);
    else if (strcmp(text, "little") || e->bytes != 6)
        rc = swn_ckpt_fail(why, -EINVAL, "%s: its entry 'byteorder' says neither little nor big", a->src->path);
    free(text);
    return rc;
}

/* Checks entries that PyTorch reads, though this reader does not need them: PyTorch refuses a file in which they are
 * damaged. */
static int check_unused(struct archive *a, char *why)
{
    static const char alignment[] = ".storage_alignment", id[] = ".data/serialization_id";
    char *text;
    const struct swn_zip_entry *e = swn_zip_find(&a->zip, alignment);
    int rc = e ? read_entry(a, e, 16, &text, why) : 0;
    if (rc)
        return rc;
    if (e) {
        if (!e->bytes || strspn(text, "0123456789") != e->bytes)
            rc = swn_ckpt_fail(why, -EINVAL, "%s: its entry '%s' is not a number", a->src->path, alignment);
        free(text);
    }
    e = swn_zip_find(&a->zip, id);
    if (rc || !e)
        return rc;
    rc = read_entry(a, e, 1024, &text, why);
    if (rc)
        return rc;
    if (!swn_is_utf8(text, e->bytes))
        rc = swn_ckpt_fail(why, -EINVAL, "%s: its entry '%s' is not UTF-8", a->src->path, id);
    free(text);
    return rc;
}

static int new_named(struct archive *a, const struct swn_zip_entry *e, enum swn_dtype dtype, uint32_t *number)
{
    if (a->named_count == a->named_room) {
        size_t room = a->named_room ? a->named_room * 2 : 64;
        void *grown = realloc(a->named, room * sizeof(*a->named));
        if (!grown)
            return -ENOMEM;
        a->named = grown;
        a->named_room = room;
    }
    *number = (uint32_t)a->named_count;
    a->named[a->named_count++] = (struct swn_ckpt_named){
        .storage = {.name = (char *)e->name + a->zip.prefix, .file = a->file, .off = e->data_off, .bytes = e->bytes},
        .dtype = dtype,
        .index = SWN_CKPT_UNUSED,
    };
    return 0;
}

/* The pickle machine's callback for a storage. */
static int storage(void *ctx, const char *key, size_t len, enum swn_dtype dtype, uint64_t bytes, uint32_t *number,
                   char *why)
{
    struct archive *a = ctx;
    char name[16 + MAX_KEY];
    if (len == 0 || len > MAX_KEY || memchr(key, 0, len))
        return swn_ckpt_fail(why, -EINVAL, "%s: a storage's key is empty, too long or has a zero byte", a->src->path);
    snprintf(name, sizeof(name), "%s%.*s", a->folder, (int)len, key);
    const struct swn_zip_entry *e = swn_zip_find(&a->zip, name);
    if (!e)
        return swn_ckpt_fail(why, -EINVAL, "%s: storage %.200s is not in the archive", a->src->path, name);
    if (e->method != SWN_ZIP_STORED)
        return swn_ckpt_fail(why, -EINVAL, "%s: storage %.200s is compressed; torch.save stores it", a->src->path,
                             name);
    if (e->bytes != bytes)
        return swn_ckpt_fail(why, -EINVAL, "%s: storage %.200s has %" PRIu64 " bytes, the pickle says %" PRIu64,
                             a->src->path, name, e->bytes, bytes);
    uint32_t *slot = &a->number[e - a->zip.entries];
    if (*slot == SWN_CKPT_UNUSED) {
        int rc = new_named(a, e, dtype, slot);
        if (rc)
            return swn_ckpt_fail_memory(why, a->src->path, rc);
    } else if (a->named[*slot].dtype != dtype) {
        return swn_ckpt_fail(why, -EINVAL, "%s: storage %.200s has two types", a->src->path, name);
    }
    *number = *slot;
    return 0;
}

static size_t memory_limit(uint64_t pickle_bytes)
{
    size_t limit = MEMORY_BASE + (size_t)pickle_bytes * MEMORY_PER_BYTE;
    return limit < SWN_CKPT_MAX_MEMORY ? limit : SWN_CKPT_MAX_MEMORY;
}

/* Reads all tensors of one pickle whose storages are in `folder`. */
static int read_pickle(struct archive *a, struct swn_ckpt_builder *b, const struct swn_zip_entry *e, const char *folder,
                       const char *prefix, int torchscript, char *why)
{
    char *text = NULL, name[SWN_ERRMSG / 2];
    struct swn_pickle_value *root;
    int rc = read_entry(a, e, SWN_PICKLE_MAX_BYTES, &text, why);
    if (rc)
        return rc;
    snprintf(name, sizeof(name), "%.200s: %.40s", a->src->path, e->name + a->zip.prefix);
    a->folder = folder;
    a->named_count = 0;
    memset(a->number, 0xff, a->zip.count * sizeof(*a->number));
    struct swn_bump_alloc bump = {.limit_bytes = memory_limit(e->bytes)};
    struct swn_pickle_opts opts = {.name = name, .torchscript = torchscript, .storage = storage, .ctx = a};
    rc = swn_pickle_read(&bump, text, e->bytes, &opts, &root, why);
    if (!rc) {
        size_t limit = b->bump.used_bytes + memory_limit(e->bytes);
        b->bump.limit_bytes = limit < SWN_CKPT_MAX_MEMORY ? limit : SWN_CKPT_MAX_MEMORY;
        rc = swn_ckpt_walk(b, root, a->named, prefix, (size_t)e->bytes * VISITS_PER_BYTE, a->src->path, why);
    }
    swn_bump_alloc_free(&bump);
    free(text);
    return rc;
}

static int read_archive(struct archive *a, struct swn_ckpt_builder *b, char *why)
{
    const struct swn_zip_entry *data = swn_zip_find(&a->zip, "data.pkl");
    const struct swn_zip_entry *constants = swn_zip_find(&a->zip, "constants.pkl");
    if (!data)
        return swn_ckpt_fail(why, -EINVAL, "%s: has no entry 'data.pkl', so torch.save did not write it", a->src->path);
    int rc = check_version(a, why);
    if (!rc)
        rc = check_byteorder(a, why);
    if (!rc)
        rc = check_unused(a, why);
    if (rc)
        return rc;
    a->number = malloc(a->zip.count * sizeof(*a->number));
    if (!a->number)
        return swn_ckpt_fail_memory(why, a->src->path, -ENOMEM);
    b->c.kind = constants ? SWN_CKPT_TORCHSCRIPT : SWN_CKPT_TORCH;
    rc = read_pickle(a, b, data, "data/", "", constants != NULL, why);
    if (!rc && constants)
        rc = read_pickle(a, b, constants, "constants/", "CONSTANTS", 1, why);
    return rc;
}

/* Adds the records that the description lacks: all of them where there is none (`rc`: why). */
static int take_records(struct archive *a, struct swn_ckpt_builder *b, int rc, char *why)
{
    if (rc && rc != -EINVAL && rc != -ENOTSUP)
        return rc;
    if (rc) {
        b->c.kind = SWN_CKPT_RECORDS;
        b->c.storage_count = b->c.tensor_count = b->skipped_count = 0;
    }
    size_t described = b->c.storage_count;
    int added = swn_ckpt_add_records(b, &a->zip, a->file, a->src->path, why);
    return !added && rc && b->c.storage_count == described ? rc : added;
}

int swn_ckpt_read_torch(struct swn_ckpt_builder *b, const struct swn_ckpt_source *src, uint32_t file,
                        uint64_t *directory, char why[SWN_ERRMSG])
{
    struct archive a = {.src = src, .file = file};
    int rc = swn_zip_open(&a.zip, src, why);
    if (rc)
        return rc;
    *directory = a.zip.hash;
    rc = read_archive(&a, b, why);
    if (b->records)
        rc = take_records(&a, b, rc, why);
    free(a.named);
    free(a.number);
    swn_zip_close(&a.zip);
    return rc;
}
