/* swn_ckpt_dump - prints what the checkpoint readers see, for tests that compare it with what PyTorch sees.
 *
 * usage: swn_ckpt_dump CHECKPOINT...
 *
 * One line of JSON for each: {"path", "kind", "skipped", "storages", "tensors": [{"name", "dtype", "shape", "stride",
 * "file", "off", "xxh3"}]} where off is the tensor's first byte in the file and xxh3 the XXH3-64 of its elements in
 * row-major order; or {"path", "error": errno, "why"}. Exit status: 0, also for checkpoints that are refused; 2 usage.
 */
#include <errno.h>
#include <inttypes.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <xxhash.h>

#include "swn_checkpoint.h"

/* Elements are hashed through this; a view with stride 0 can be far larger than its storage. */
#define WINDOW 65536
#define MAX_VIEW (UINT64_C(8) << 30)

static int hash_tensor(const struct swn_checkpoint *c, const struct swn_ckpt_tensor *t, uint64_t *hash)
{
    const struct swn_ckpt_storage *s = &c->storages[t->storage];
    size_t size = swn_dtype_size(t->dtype), used = 0;
    uint64_t count = 1, dense = 1;
    int contiguous = 1;
    for (uint32_t i = t->ndim; i-- > 0;) {
        contiguous &= t->shape[i] == 1 || (uint64_t)t->stride[i] == dense;
        dense *= (uint64_t)t->shape[i];
        count *= (uint64_t)t->shape[i];
    }
    if (count > MAX_VIEW / size)
        return -EFBIG;
    XXH3_state_t *state = XXH3_createState();
    unsigned char *window = malloc(WINDOW);
    int64_t index[64] = {0};
    if (!state || !window)
        abort();
    XXH3_64bits_reset(state);
    uint64_t step = contiguous ? WINDOW / size : 1;
    for (uint64_t done = 0; done < count;) {
        uint64_t n = count - done < step ? count - done : step, at = done;
        if (!contiguous) {
            at = 0;
            for (uint32_t i = 0; i < t->ndim; i++)
                at += (uint64_t)(index[i] * t->stride[i]);
        }
        ssize_t got =
            swn_io_sys.pread(NULL, c->files[s->file].fd, window + used, n * size, s->off + t->off + at * size);
        if (got != (ssize_t)(n * size))
            return -EIO;
        used += (size_t)got;
        done += n;
        for (uint32_t i = t->ndim; !contiguous && i-- > 0 && ++index[i] == t->shape[i];)
            index[i] = 0;
        if (used > WINDOW - 16 || contiguous || done == count) {
            XXH3_64bits_update(state, window, used);
            used = 0;
        }
    }
    *hash = XXH3_64bits_digest(state);
    XXH3_freeState(state);
    free(window);
    return 0;
}

static json_t *ints(const int64_t *v, uint32_t n)
{
    json_t *a = json_array();
    for (uint32_t i = 0; i < n; i++)
        json_array_append_new(a, json_integer(v[i]));
    return a;
}

static json_t *dump_tensor(const struct swn_checkpoint *c, const struct swn_ckpt_tensor *t)
{
    const struct swn_ckpt_storage *s = &c->storages[t->storage];
    char text[32];
    uint64_t hash = 0;
    int rc = hash_tensor(c, t, &hash);
    snprintf(text, sizeof(text), "%016" PRIx64, hash);
    return json_pack("{s:s, s:s, s:o, s:o, s:i, s:I, s:I, s:i, s:o}", "name", t->name, "dtype",
                     swn_dtype_name(t->dtype), "shape", ints(t->shape, t->ndim), "stride", ints(t->stride, t->ndim),
                     "file", (int)s->file, "off", (json_int_t)(s->off + t->off), "storage", (json_int_t)t->storage,
                     "hash_error", rc, "xxh3", rc ? json_null() : json_string(text));
}

static json_t *dump(const char *path)
{
    static const char *const kinds[] = {"torch", "torchscript", "safetensors"};
    char why[SWN_WHY] = "";
    struct swn_checkpoint *c;
    int rc = swn_checkpoint_open(&c, &swn_io_sys, path, why);
    if (rc)
        return json_pack("{s:s, s:i, s:s}", "path", path, "error", -rc, "why", why);
    json_t *tensors = json_array(), *storages = json_array();
    for (size_t i = 0; i < c->tensor_count; i++)
        json_array_append_new(tensors, dump_tensor(c, &c->tensors[i]));
    for (size_t i = 0; i < c->storage_count; i++)
        json_array_append_new(storages, json_pack("{s:s, s:i, s:I, s:I}", "name", c->storages[i].name, "file",
                                                  (int)c->storages[i].file, "off", (json_int_t)c->storages[i].off,
                                                  "bytes", (json_int_t)c->storages[i].bytes));
    json_t *out =
        json_pack("{s:s, s:s, s:I, s:s?, s:o, s:o}", "path", path, "kind", kinds[c->kind], "skipped",
                  (json_int_t)c->skipped_count, "skipped_first", c->skipped, "storages", storages, "tensors", tensors);
    swn_checkpoint_close(c, &swn_io_sys);
    return out;
}

int main(int argc, char **argv)
{
    if (argc < 2) {
        fprintf(stderr, "usage: swn_ckpt_dump CHECKPOINT...\n");
        return 2;
    }
    for (int i = 1; i < argc; i++) {
        json_t *line = dump(argv[i]);
        if (!line)
            abort();
        json_dumpf(line, stdout, JSON_COMPACT | JSON_ENSURE_ASCII);
        putchar('\n');
        json_decref(line);
    }
    return 0;
}
