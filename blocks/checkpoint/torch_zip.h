/* blocks/checkpoint/torch_zip.h - between blocks/checkpoint/torch_zip.c, which finds the parts of an archive,
 * blocks/checkpoint/torch_tensors.c, which names the tensors, and blocks/checkpoint/torch_records.c, which takes
 * records that no description names. */
#ifndef SWN_BLOCKS_CHECKPOINT_TORCH_ZIP_H
#define SWN_BLOCKS_CHECKPOINT_TORCH_ZIP_H

#include "blocks/checkpoint/builder.h"
#include "blocks/checkpoint/pickle.h"
#include "blocks/checkpoint/zip.h"

#define SWN_CKPT_UNUSED UINT32_MAX

/* A storage that a pickle names; the first tensor that uses it makes it a storage of the checkpoint. */
struct swn_ckpt_named {
    struct swn_ckpt_storage storage; /* its name is not copied yet */
    enum swn_dtype dtype;
    uint32_t index; /* in the checkpoint, or SWN_CKPT_UNUSED */
};

/* Adds every tensor that can be reached from `root` through dicts, lists, tuples and TorchScript objects. Names are the
 * keys on the way, joined by dots: an item's position in a list or tuple, an integer key in decimal. A tensor, or a
 * container with tensors, that is reached by two paths gets both names. `prefix` comes first, if it is not "". `budget`
 * bounds the items visited, since a small pickle can describe a tree that is exponentially large. */
int swn_ckpt_walk(struct swn_ckpt_builder *b, struct swn_pickle_value *root, struct swn_ckpt_named *named,
                  const char *prefix, size_t budget, const char *path, char why[SWN_ERRMSG]);

/* Adds the stored records in the folders for tensors that are no storage of b yet, each as a storage and a tensor of
 * bytes. b holds nothing of other files. */
int swn_ckpt_add_records(struct swn_ckpt_builder *b, const struct swn_zip *z, uint32_t file, const char *path,
                         char why[SWN_ERRMSG]);

#endif
