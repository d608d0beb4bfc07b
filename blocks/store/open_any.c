/* blocks/store/open_any.c - opens any file that holds a model: a store, or a checkpoint as the store that it would
 * make. */
#include <string.h>

#include "blocks/store/store.h"
#include "blocks/store/format.h"
#include "base/file_io.h"

static int is_store(const struct swn_io *io, const char *path)
{
    char magic[8] = "";
    int fd = swn_open_regular(io, path, 0, NULL);
    if (fd < 0)
        return 0;
    int rc = swn_read_whole(io, fd, magic, sizeof magic, 0);
    io->close(io->ctx, fd);
    return rc == 0 && memcmp(magic, SWN_STORE_MAGIC, sizeof magic) == 0;
}

int swn_store_of(struct swn_store **out, const char **kind, const struct swn_io *io, const char *path,
                 char why[SWN_ERRMSG])
{
    static const char *const kinds[] = {[SWN_CKPT_TORCH] = "torch",
                                        [SWN_CKPT_TORCHSCRIPT] = "torchscript",
                                        [SWN_CKPT_SAFETENSORS] = "safetensors",
                                        [SWN_CKPT_RECORDS] = "records"};
    struct swn_checkpoint *c;
    *kind = "store";
    int rc;
    if (is_store(io, path)) {
        rc = swn_store_open(out, io, path, why);
    } else {
        rc = swn_checkpoint_open(&c, io, path, why);
        if (!rc) {
            *kind = kinds[c->kind];
            rc = swn_store_draft(out, c, NULL, why);
            swn_checkpoint_close(c, io);
        }
    }
    return rc;
}
