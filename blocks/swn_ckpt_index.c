/* swn_ckpt_index.c - sharded checkpoints: model.safetensors.index.json, pytorch_model.bin.index.json.
 *
 * "weight_map" says in which file each tensor is. The files lie beside the index: their names have no separators,
 * though they may be links, as in download caches. Every tensor of the map must be in its file. A file may hold more:
 * tensors that the map gives to another file are not taken from this one, and those that it does not name are.
 */
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "swn_ckpt.h"
#include "swn_json.h"

#define MAX_INDEX (UINT64_C(64) << 20)
#define MAX_SHARDS 4096
#define MAX_SHARD_NAME 255

struct entry {
    char *tensor, *shard;
    int found;
};

struct index {
    struct swn_json json;
    struct swn_bump bump; /* of the names */
    struct entry *entries;
    size_t count, room;
    char name[SWN_CKPT_MAX_NAME + 1], shard[MAX_SHARD_NAME + 1];
};

int swn_ckpt_is_index(const char *path)
{
    static const char end[] = ".index.json";
    size_t len = strlen(path), n = sizeof(end) - 1;
    return len >= n && !strcmp(path + len - n, end);
}

static int is_plain_name(const char *name, size_t len)
{
    if (!len || strlen(name) != len || strchr(name, '/') || !strcmp(name, ".") || !strcmp(name, ".."))
        return 0;
    for (size_t i = 0; i < len; i++)
        if ((unsigned char)name[i] < 0x20 || name[i] == 0x7f || name[i] == '\\')
            return 0;
    return 1;
}

static int add_entry(struct index *x, const char *path, char *why)
{
    struct entry e = {.tensor = NULL};
    if (x->count == x->room) {
        size_t room = x->room ? x->room * 2 : 64;
        struct entry *grown = realloc(x->entries, room * sizeof(*grown));
        if (!grown)
            return swn_ckpt_fail_memory(why, path, -ENOMEM);
        x->entries = grown;
        x->room = room;
    }
    int rc = swn_bump_text(&x->bump, x->name, strlen(x->name), &e.tensor);
    /* maps list a file's tensors in a row, mostly */
    if (!rc && x->count && !strcmp(x->entries[x->count - 1].shard, x->shard))
        e.shard = x->entries[x->count - 1].shard;
    else if (!rc)
        rc = swn_bump_text(&x->bump, x->shard, strlen(x->shard), &e.shard);
    if (rc)
        return swn_ckpt_fail_memory(why, path, rc);
    x->entries[x->count++] = e;
    return 0;
}

static int read_weight_map(struct index *x, const char *path, char *why)
{
    int rc = swn_json_take(&x->json, '{'), more = 1;
    if (!rc && swn_json_peek(&x->json) == '}')
        return swn_json_fail(&x->json, "weight_map is empty");
    while (!rc && more) {
        size_t len = 0, shard_len = 0;
        rc = swn_json_text(&x->json, x->name, sizeof(x->name), &len);
        if (!rc)
            rc = swn_json_take(&x->json, ':');
        if (!rc)
            rc = swn_json_text(&x->json, x->shard, sizeof(x->shard), &shard_len);
        if (!rc && strlen(x->name) != len)
            rc = swn_json_fail(&x->json, "a tensor's name has a zero byte");
        if (!rc && !is_plain_name(x->shard, shard_len))
            rc = swn_json_fail(&x->json, "'%.100s' is not the name of a file beside the index", x->shard);
        if (!rc)
            rc = add_entry(x, path, why);
        if (!rc)
            more = swn_json_more(&x->json, '}');
        if (more < 0)
            rc = more;
    }
    return rc;
}

static int read_index(struct index *x, const char *path, char *why)
{
    int rc = swn_json_take(&x->json, '{'), more = 1, maps = 0, others = 0;
    while (!rc && more) {
        rc = swn_json_text(&x->json, x->shard, sizeof(x->shard), NULL);
        if (!rc)
            rc = swn_json_take(&x->json, ':');
        if (!rc && !strcmp(x->shard, "weight_map"))
            rc =
                maps++ ? swn_json_fail(&x->json, "the key 'weight_map' is there twice") : read_weight_map(x, path, why);
        else if (!rc)
            rc = others++ == 64 ? swn_json_fail(&x->json, "has too many keys") : swn_json_skip(&x->json);
        if (!rc)
            more = swn_json_more(&x->json, '}');
        if (more < 0)
            rc = more;
    }
    if (!rc)
        rc = swn_json_finish(&x->json);
    if (!rc && !maps)
        rc = swn_json_fail(&x->json, "has no weight_map");
    return rc;
}

static int by_tensor(const void *a, const void *b)
{
    return strcmp(((const struct entry *)a)->tensor, ((const struct entry *)b)->tensor);
}

static int by_shard(const void *a, const void *b)
{
    return strcmp(*(char *const *)a, *(char *const *)b);
}

/* The names of the files, each once, in order. */
static int list_shards(struct index *x, const char *path, char ***out, size_t *n, char *why)
{
    char **names = malloc(x->count * sizeof(*names));
    if (!names)
        return swn_ckpt_fail_memory(why, path, -ENOMEM);
    for (size_t i = 0; i < x->count; i++)
        names[i] = x->entries[i].shard;
    qsort(names, x->count, sizeof(*names), by_shard);
    *n = 0;
    for (size_t i = 0; i < x->count; i++)
        if (!*n || strcmp(names[*n - 1], names[i]))
            names[(*n)++] = names[i];
    *out = names;
    return *n <= MAX_SHARDS ? 0
                            : swn_ckpt_fail(why, -EINVAL, "%s: names %zu files, the limit is %d", path, *n, MAX_SHARDS);
}

/* Keeps those of the tensors from `first` on that the map does not give to another file, and marks them as found. */
static void keep_mapped(struct index *x, struct swn_checkpoint *c, size_t first, const char *shard)
{
    size_t kept = first;
    for (size_t i = first; i < c->tensor_count; i++) {
        struct entry key = {.tensor = c->tensors[i].name};
        struct entry *e = bsearch(&key, x->entries, x->count, sizeof(*x->entries), by_tensor);
        if (e && strcmp(e->shard, shard))
            continue;
        if (e)
            e->found = 1;
        c->tensors[kept++] = c->tensors[i];
    }
    c->tensor_count = kept;
}

static int read_shard(struct index *x, struct swn_ckpt_builder *b, const struct swn_io *io, const char *index_path,
                      const char *shard, char *why)
{
    const char *slash = strrchr(index_path, '/');
    size_t dir = slash ? (size_t)(slash + 1 - index_path) : 0, first = b->c.tensor_count;
    enum swn_checkpoint_kind kind = b->c.kind;
    char *path = malloc(dir + strlen(shard) + 1);
    if (!path)
        return swn_ckpt_fail_memory(why, index_path, -ENOMEM);
    memcpy(path, index_path, dir);
    strcpy(path + dir, shard);
    int fd = swn_ckpt_open_fd(io, path, why);
    int rc = fd < 0 ? fd : swn_ckpt_read_file(b, io, fd, path, why);
    if (!rc && b->c.file_count > 1 && b->c.kind != kind)
        rc = swn_ckpt_fail(why, -EINVAL, "%s: its files are of several formats", index_path);
    if (!rc)
        keep_mapped(x, &b->c, first, shard);
    free(path);
    return rc;
}

static int read_shards(struct index *x, struct swn_checkpoint **out, const struct swn_io *io, const char *path,
                       char *why)
{
    struct swn_ckpt_builder *b = NULL;
    char **shards = NULL;
    size_t n = 0;
    qsort(x->entries, x->count, sizeof(*x->entries), by_tensor);
    for (size_t i = 1; i < x->count; i++)
        if (!by_tensor(&x->entries[i - 1], &x->entries[i]))
            return swn_ckpt_fail(why, -EINVAL, "%s: tensor '%.200s' is there twice", path, x->entries[i].tensor);
    int rc = list_shards(x, path, &shards, &n, why);
    if (!rc)
        rc = swn_ckpt_new(&b, n, why);
    for (size_t i = 0; i < n && !rc; i++)
        rc = read_shard(x, b, io, path, shards[i], why);
    for (size_t i = 0; i < x->count && !rc; i++)
        if (!x->entries[i].found)
            rc = swn_ckpt_fail(why, -EINVAL, "%s: tensor '%.200s' is not in %.200s", path, x->entries[i].tensor,
                               x->entries[i].shard);
    if (!rc)
        rc = swn_ckpt_finish(b, out, why);
    if (rc)
        swn_ckpt_drop(b, io);
    free(shards);
    return rc;
}

int swn_ckpt_read_index(struct swn_checkpoint **out, const struct swn_ckpt_source *src, char why[SWN_WHY])
{
    if (src->size > MAX_INDEX)
        return swn_ckpt_fail(why, -EINVAL, "%s: an index of %" PRIu64 " bytes is above the limit of 64 MiB", src->path,
                             src->size);
    struct index *x = calloc(1, sizeof(*x));
    if (!x)
        return swn_ckpt_fail_memory(why, src->path, -ENOMEM);
    x->bump.limit_bytes = SWN_CKPT_MAX_MEMORY;
    swn_json_begin(&x->json, src, 0, src->size, why);
    int rc = read_index(x, src->path, why);
    if (!rc)
        rc = read_shards(x, out, src->io, src->path, why);
    swn_bump_free(&x->bump);
    free(x->entries);
    free(x);
    return rc;
}
