/* blocks/checkpoint/tensor_layout.h - where the tensors of one checkpoint file lie, and which tensors correspond to
 * each other in different layers.
 *
 * Models are rows of equal layers, which differ by a number in their tensors' names: "model.layers.6.mlp.up.weight"
 * corresponds to "model.layers.7.mlp.up.weight". The number is the first part of the dotted name that consists of
 * digits.
 */
#ifndef SWN_BLOCKS_CHECKPOINT_TENSOR_LAYOUT_H
#define SWN_BLOCKS_CHECKPOINT_TENSOR_LAYOUT_H

#include <stddef.h>
#include <stdint.h>

#include "blocks/checkpoint/checkpoint.h"

struct swn_layout;

/* 0 or -ENOMEM. The layout takes over `c`, a checkpoint of one file; on failure the caller keeps it. */
int swn_layout_create(struct swn_layout **out, struct swn_checkpoint *c);
void swn_layout_destroy(struct swn_layout *l, const struct swn_io *io);

/* Storages in file order. */
size_t swn_layout_count(const struct swn_layout *l);
const struct swn_ckpt_storage *swn_layout_storage(const struct swn_layout *l, size_t storage);
/* The last storage that begins at or before `off`, or -1. */
long swn_layout_at(const struct swn_layout *l, uint64_t off);
/* The storage that corresponds to `storage` in the layer that is `by` layers further on, or -1. */
long swn_layout_alike(const struct swn_layout *l, size_t storage, int by);

#endif
