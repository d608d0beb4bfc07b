/* ckpt_dump - prints what the checkpoint readers see, for tests that compare it with what PyTorch sees.
 *
 * usage: ckpt_dump CHECKPOINT...
 *
 * One line of JSON for each: {"path", "kind", "skipped", "skipped_first", "files", "storages": [{"name", "file", "off",
 * "bytes"}], "tensors": [{"name", "dtype", "shape", "stride", "storage", "off"}]}, off in bytes into the storage; or
 * {"path", "error": errno, "why"}. Exit status: 0, also for checkpoints that are refused; 2 usage.
 */
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>

#include "blocks/checkpoint/checkpoint.h"

static json_t *ints(const int64_t *v, uint32_t n)
{
    json_t *a = json_array();
    for (uint32_t i = 0; i < n; i++)
        json_array_append_new(a, json_integer(v[i]));
    return a;
}

static json_t *dump_tensor(const struct swn_ckpt_tensor *t)
{
    return json_pack("{s:s, s:s, s:o, s:o, s:I, s:I}", "name", t->name, "dtype", swn_dtype_name(t->dtype), "shape",
                     ints(t->shape, t->ndim), "stride", ints(t->stride, t->ndim), "storage", (json_int_t)t->storage,
                     "off", (json_int_t)t->off);
}

static json_t *dump(const char *path)
{
    static const char *const kinds[] = {"torch", "torchscript", "safetensors"};
    char why[SWN_ERRMSG] = "";
    struct swn_checkpoint *c;
    int rc = swn_checkpoint_open(&c, &swn_io_sys, path, why);
    if (rc)
        return json_pack("{s:s, s:i, s:s}", "path", path, "error", -rc, "why", why);
    json_t *tensors = json_array(), *storages = json_array(), *files = json_array();
    for (size_t i = 0; i < c->file_count; i++)
        json_array_append_new(files, json_string(c->files[i].path));
    for (size_t i = 0; i < c->tensor_count; i++)
        json_array_append_new(tensors, dump_tensor(&c->tensors[i]));
    for (size_t i = 0; i < c->storage_count; i++)
        json_array_append_new(storages, json_pack("{s:s, s:i, s:I, s:I}", "name", c->storages[i].name, "file",
                                                  (int)c->storages[i].file, "off", (json_int_t)c->storages[i].off,
                                                  "bytes", (json_int_t)c->storages[i].bytes));
    json_t *out = json_pack("{s:s, s:s, s:I, s:s?, s:o, s:o, s:o}", "path", path, "kind", kinds[c->kind], "skipped",
                            (json_int_t)c->skipped_count, "skipped_first", c->skipped, "files", files, "storages",
                            storages, "tensors", tensors);
    swn_checkpoint_close(c, &swn_io_sys);
    return out;
}

int main(int argc, char **argv)
{
    if (argc < 2) {
        fprintf(stderr, "usage: ckpt_dump CHECKPOINT...\n");
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
