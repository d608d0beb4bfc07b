/* blocks/checkpoint/shard_index.c - sharded checkpoints: model.safetensors.index.json, pytorch_model.bin.index.json.
 *
 * "weight_map" says in which file each tensor is. The files lie beside the index: their names have no separators,
 * though they may be links, as in download caches.
 *
 * Loaders of such a checkpoint (transformers, accelerate) take from the map only the names of the files, and read all
 * of them in the order of their names; a later file's tensor replaces an earlier one of the same name. So every tensor
 * in the files belongs to the checkpoint, whether or not the map names it. A tensor that the map names must be in one
 * of the files: loaders would initialise a missing one themselves. A tensor in several files is taken from the last
 * one, but only if the map says so, too: otherwise the result would depend on the reader.
 */
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "blocks/checkpoint/builder.h"
#include "blocks/checkpoint/json_reader.h"

#define MAX_INDEX (UINT64_C(64) << 20)
#define MAX_SHARDS 4096
#define MAX_SHARD_NAME 255

struct entry {
    char *tensor, *shard;
};

/* A tensor in one of the files. */
struct place {
    const char *name;
    uint32_t file;
    uint32_t index; /* among the builder's tensors, or its skipped ones */
    int skipped;
};

/* Which file it is, whatever its names are. */
struct file_id {
    dev_t dev;
    ino_t ino;
};

struct index {
    struct swn_json json;
    struct swn_bump_alloc bump; /* of the names */
    struct entry *entries;
    size_t count, room;
    struct file_id *ids; /* of the files read so far */
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
    int rc = swn_bump_alloc_text(&x->bump, x->name, strlen(x->name), &e.tensor);
    /* maps mostly list a file's tensors in a row */
    if (!rc && x->count && !strcmp(x->entries[x->count - 1].shard, x->shard))
        e.shard = x->entries[x->count - 1].shard;
    else if (!rc)
        rc = swn_bump_alloc_text(&x->bump, x->shard, strlen(x->shard), &e.shard);
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

static int by_place(const void *a, const void *b)
{
    const struct place *x = a, *y = b;
    int order = strcmp(x->name, y->name);
    return order ? order : (x->file > y->file) - (x->file < y->file);
}

static int by_name(const void *a, const void *b)
{
    return strcmp(((const struct place *)a)->name, ((const struct place *)b)->name);
}

/* All tensors of all files, by name and then by file. */
static struct place *list_places(const struct swn_ckpt_builder *b, size_t *n)
{
    const struct swn_checkpoint *c = &b->c;
    *n = c->tensor_count + b->skipped_count;
    struct place *all = malloc((*n + 1) * sizeof(*all)), *p = all;
    for (uint32_t i = 0; all && i < c->tensor_count; i++)
        *p++ = (struct place){c->tensors[i].name, c->storages[c->tensors[i].storage].file, i, 0};
    for (uint32_t i = 0; all && i < b->skipped_count; i++)
        *p++ = (struct place){b->skipped[i].name, b->skipped[i].file, i, 1};
    if (all)
        qsort(all, *n, sizeof(*all), by_place);
    return all;
}

static const struct entry *entry_of(const struct index *x, const char *tensor)
{
    const struct entry key = {.tensor = (char *)(uintptr_t)tensor};
    return bsearch(&key, x->entries, x->count, sizeof(*x->entries), by_tensor);
}

/* Chooses the file for one tensor, which is in the files of p[0] to p[n - 1]. The tensors of the other files lose their
 * names. */
static int choose(const struct index *x, struct swn_ckpt_builder *b, char *const *shards, const struct place *p,
                  size_t n, const char *path, char *why)
{
    const struct entry *e = entry_of(x, p->name);
    uint32_t last = p[n - 1].file;
    if (p->file == last) /* all in one file, where a repeated name is an error: see swn_ckpt_finish */
        return 0;
    if (!e || strcmp(e->shard, shards[last]))
        return swn_ckpt_fail(why, -EINVAL,
                             "%s: tensor '%.100s' is in %.60s and in %.60s, and the index %s%.60s: loaders would take "
                             "the last one; remove it from one of the files, or build a store of each",
                             path, p->name, shards[p->file], shards[last], e ? "says " : "does not say where",
                             e ? e->shard : "");
    for (size_t i = 0; i < n; i++) {
        if (p[i].file == last)
            continue;
        if (p[i].skipped)
            b->skipped[p[i].index].name = NULL;
        else
            b->c.tensors[p[i].index].name = NULL;
    }
    return 0;
}

static void drop_nameless(struct swn_ckpt_builder *b)
{
    size_t kept = 0;
    for (size_t i = 0; i < b->c.tensor_count; i++)
        if (b->c.tensors[i].name)
            b->c.tensors[kept++] = b->c.tensors[i];
    b->c.tensor_count = kept;
    kept = 0;
    for (size_t i = 0; i < b->skipped_count; i++)
        if (b->skipped[i].name)
            b->skipped[kept++] = b->skipped[i];
    b->skipped_count = kept;
}

/* Compares the files' tensors with the map. */
static int match(const struct index *x, struct swn_ckpt_builder *b, char *const *shards, const char *path, char *why)
{
    size_t n, end;
    int rc = 0;
    struct place *all = list_places(b, &n);
    if (!all)
        return swn_ckpt_fail_memory(why, path, -ENOMEM);
    for (size_t i = 0; i < x->count && !rc; i++) {
        const struct place key = {.name = x->entries[i].tensor};
        if (!bsearch(&key, all, n, sizeof(*all), by_name))
            rc = swn_ckpt_fail(why, -EINVAL,
                               "%s: there is no tensor '%.100s' in %.100s, nor in another of its files: one of them "
                               "is not whole, or of another version; fetch them again, or build a store of each",
                               path, x->entries[i].tensor, x->entries[i].shard);
    }
    for (size_t i = 0; i < n && !rc; i = end) {
        for (end = i + 1; end < n && !strcmp(all[end].name, all[i].name);)
            end++;
        rc = choose(x, b, shards, &all[i], end - i, path, why);
    }
    free(all);
    if (!rc)
        drop_nameless(b);
    return rc;
}

/* A file under several names would be hashed and parsed anew for each of them. */
static int check_new(struct index *x, const struct swn_io *io, int fd, char *const *shards, size_t n, const char *path,
                     char *why)
{
    struct stat st;
    int rc = io->fstat(io->ctx, fd, &st);
    if (rc < 0)
        return swn_ckpt_fail(why, rc, "%s: %s: %s", path, shards[n], strerror(-rc));
    for (size_t i = 0; i < n; i++)
        if (x->ids[i].dev == st.st_dev && x->ids[i].ino == st.st_ino)
            return swn_ckpt_fail(
                why, -EINVAL,
                "%s: %.100s and %.100s are one file under two names: fetch the files again, or name it "
                "once in the index",
                path, shards[i], shards[n]);
    x->ids[n] = (struct file_id){st.st_dev, st.st_ino};
    return 0;
}

/* Reads the file of shards[n]; those before it have been read. */
static int read_shard(struct index *x, struct swn_ckpt_builder *b, const struct swn_io *io, const char *index_path,
                      char *const *shards, size_t n, char *why)
{
    const char *shard = shards[n];
    const char *slash = strrchr(index_path, '/');
    size_t dir = slash ? (size_t)(slash + 1 - index_path) : 0;
    enum swn_checkpoint_kind kind = b->c.kind;
    char *path = malloc(dir + strlen(shard) + 1);
    if (!path)
        return swn_ckpt_fail_memory(why, index_path, -ENOMEM);
    memcpy(path, index_path, dir);
    strcpy(path + dir, shard);
    int fd = swn_ckpt_open_fd(io, path, why);
    int rc = fd < 0 ? fd : check_new(x, io, fd, shards, n, index_path, why);
    if (fd >= 0 && rc)
        io->close(io->ctx, fd);
    else if (fd >= 0)
        rc = swn_ckpt_read_file(b, io, fd, path, why);
    if (fd == -ENOENT)
        swn_ckpt_fail(why, fd, "%s: %s; the index names it: fetch it, too", path, strerror(ENOENT));
    if (!rc && b->c.file_count > 1 && b->c.kind != kind)
        rc = swn_ckpt_fail(why, -EINVAL, "%s: its files are of several formats", index_path);
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
    if (!rc && !(x->ids = malloc(n * sizeof(*x->ids))))
        rc = swn_ckpt_fail_memory(why, path, -ENOMEM);
    for (size_t i = 0; i < n && !rc; i++)
        rc = read_shard(x, b, io, path, shards, i, why);
    if (!rc)
        rc = match(x, b, shards, path, why);
    if (!rc)
        rc = swn_ckpt_finish(b, out, why);
    if (rc)
        swn_ckpt_drop(b, io);
    free(shards);
    return rc;
}

int swn_ckpt_read_index(struct swn_checkpoint **out, const struct swn_ckpt_source *src, char why[SWN_ERRMSG])
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
    swn_bump_alloc_free(&x->bump);
    free(x->entries);
    free(x->ids);
    free(x);
    return rc;
}
