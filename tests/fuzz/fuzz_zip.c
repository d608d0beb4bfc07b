/* fuzz_zip - any bytes as a torch.save or torch.jit.save archive, directory and pickles included. */
#include <stdlib.h>
#include <string.h>

#include "tests/fuzz/memory_io.h"
#include "blocks/checkpoint/zip.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* Entries must tile the file: each behind the one before, none beyond the end. */
static void check_tiling(const struct swn_zip *z, size_t size)
{
    uint64_t at = 0;
    for (size_t i = 0; i < z->count; i++) {
        const struct swn_zip_entry *e = &z->entries[i];
        if (e->header_off < at || e->data_off <= e->header_off || e->data_off > size ||
            e->packed_bytes > size - e->data_off)
            abort();
        at = e->data_off + e->packed_bytes;
        if (swn_zip_find(z, e->name + z->prefix) != e)
            abort();
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct memory_file file = {.bytes = data, .size = size};
    struct swn_io io = memory_io(&file);
    struct swn_ckpt_source src = {.io = &io, .fd = io.open(&file, "", 0, 0), .path = "fuzz", .size = size};
    struct swn_zip zip;
    struct swn_checkpoint *c;
    char why[SWN_ERRMSG] = "";
    int sound = swn_zip_open(&zip, &src, why) == 0;
    if (sound) {
        check_tiling(&zip, size);
        swn_zip_close(&zip);
    }
    double begin = cpu_s();
    int refused = swn_checkpoint_open(&c, &io, "fuzz.pt", why);
    check_time(begin, size);
    if (refused)
        return 0;
    if (c->kind != SWN_CKPT_SAFETENSORS && !sound)
        abort();
    check_checkpoint(c, size);
    swn_checkpoint_close(c, &io);
    return 0;
}
