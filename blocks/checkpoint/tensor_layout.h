/* blocks/checkpoint/tensor_layout.h - where the tensors of one checkpoint file lie, and which of them do the same in
 * different layers.
 *
 * Models are rows of equal layers, told apart by a number in their tensors' names: what "model.layers.6.mlp.up.weight"
 * is to the seventh layer "model.layers.7.mlp.up.weight" is to the eighth. The number is the first part of the dotted
 * name that consists of digits.
 */
#ifndef SWN_BLOCKS_CHECKPOINT_TENSOR_LAYOUT_H
#define SWN_BLOCKS_CHECKPOINT_TENSOR_LAYOUT_H

#include <stddef.h>
#include <stdint.h>

#include "blocks/checkpoint/checkpoint.h"

struct swn_layout;

/* 0 or -ENOMEM. `c`, of one file, becomes the layout's; on failure it stays the caller's. */
int swn_layout_create(struct swn_layout **out, struct swn_checkpoint *c);
void swn_layout_destroy(struct swn_layout *l, const struct swn_io *io);

/* Storages in file order. */
size_t swn_layout_count(const struct swn_layout *l);
const struct swn_ckpt_storage *swn_layout_storage(const struct swn_layout *l, size_t storage);
/* The last storage that begins at or before `off`, or -1. */
long swn_layout_at(const struct swn_layout *l, uint64_t off);
/* The storage of the tensor that is to the layer `by` further on what `storage` is to its own, or -1. */
long swn_layout_alike(const struct swn_layout *l, size_t storage, int by);

#endif
