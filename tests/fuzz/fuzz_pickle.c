/* fuzz_pickle - any bytes as a pickle, and the walk over what it describes. The first byte chooses between torch.save
 * (even) and TorchScript (odd). Every key names a storage of the size that the pickle claims, up to a limit. */
#include <stdlib.h>
#include <string.h>

#include <xxhash.h>

#include "tests/fuzz/memory_io.h"
#include "blocks/checkpoint/torch_zip.h"

#define MAX_STORAGES 64
#define STORAGE_BYTES (UINT64_C(1) << 40)

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

struct storages {
    struct swn_ckpt_named named[MAX_STORAGES];
    uint64_t key[MAX_STORAGES];
    uint32_t count;
};

static int storage(void *ctx, const char *key, size_t len, enum swn_dtype dtype, uint64_t bytes, uint32_t *number,
                   char why[SWN_ERRMSG])
{
    struct storages *all = ctx;
    uint64_t hash = XXH3_64bits(key, len);
    for (*number = 0; *number < all->count; ++*number) {
        const struct swn_ckpt_named *n = &all->named[*number];
        if (all->key[*number] == hash)
            return n->dtype == dtype && n->storage.bytes == bytes ? 0 : swn_ckpt_fail(why, -22, "two types");
    }
    if (all->count == MAX_STORAGES || bytes > STORAGE_BYTES)
        return swn_ckpt_fail(why, -22, "too many or too large");
    all->key[all->count] = hash;
    all->named[all->count++] = (struct swn_ckpt_named){
        .storage = {.name = (char *)"storage", .off = *number * STORAGE_BYTES, .bytes = bytes},
        .dtype = dtype,
        .index = SWN_CKPT_UNUSED,
    };
    return 0;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static struct storages all;
    if (!size)
        return 0;
    all.count = 0;
    double begin = cpu_s();
    char why[SWN_ERRMSG] = "";
    struct swn_bump_alloc bump = {.limit_bytes = (size_t)16 << 20};
    struct swn_pickle_opts opts = {.name = "fuzz", .torchscript = data[0] & 1, .storage = storage, .ctx = &all};
    struct swn_pickle_value *root;
    struct swn_ckpt_builder *b;
    struct swn_checkpoint *c;
    if (swn_pickle_read(&bump, (const char *)data + 1, size - 1, &opts, &root, why)) {
        if (!why[0])
            abort();
        check_time(begin, size);
    } else if (!swn_ckpt_new(&b, 1, why)) {
        struct memory_file file = {.size = 0};
        struct swn_io io = memory_io(&file);
        struct swn_identity id = {0};
        b->bump.limit_bytes = (size_t)16 << 20;
        if (!swn_ckpt_add_file(b, &io, io.open(&file, "", 0, 0), "fuzz", &id, why) &&
            !swn_ckpt_walk(b, root, all.named, "", size * 4, "fuzz", why) && !swn_ckpt_finish(b, &c, why)) {
            check_time(begin, size);
            check_checkpoint(c, SIZE_MAX);
        } else {
            check_time(begin, size);
        }
        swn_ckpt_drop(b, &io);
    }
    swn_bump_alloc_free(&bump);
    return 0;
}
