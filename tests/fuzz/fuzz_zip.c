/* fuzz_zip - any bytes as an archive of torch.save, torch.jit.save or torch.export, directory and pickles included. */
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

/* What a reader of places alone finds: all that the other one does, and the records besides. */
static void check_places(const struct swn_io *io, size_t size, int refused)
{
    struct swn_ckpt_builder *b;
    struct swn_checkpoint *c;
    char why[SWN_ERRMSG] = "";
    if (swn_ckpt_new(&b, 1, why))
        return;
    b->records = 1;
    double begin = cpu_s();
    int rc = swn_ckpt_read_file(b, io, io->open(io->ctx, "", 0, 0), "fuzz.pt", why);
    if (!rc)
        rc = swn_ckpt_finish(b, &c, why);
    check_time(begin, size);
    if (rc) {
        swn_ckpt_drop(b, io);
        return;
    }
    check_checkpoint(c, size);
    if (c->kind == SWN_CKPT_RECORDS && !refused)
        abort();
    swn_checkpoint_close(c, io);
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
    check_places(&io, size, refused);
    if (refused)
        return 0;
    if (c->kind != SWN_CKPT_SAFETENSORS && !sound)
        abort();
    check_checkpoint(c, size);
    swn_checkpoint_close(c, &io);
    return 0;
}
