/* skeleton/capi/swapnet.h - weights from a block store, block by block, for programs in C and languages that can call
 * C.
 *
 * A store is made with swapnet-partition(1). A block is a run of layers. At least two blocks fit a budget, so that the
 * program computes with one while the next is read:
 *
 *     swapnet_open(&model, "model.store", why, sizeof why);
 *     blocks = swapnet_cut(model, 256 << 20);
 *     for (i = 0; i < blocks; i++) {
 *         swapnet_swap_in(model, i);           waits until block i is there
 *         if (i + 1 < blocks)
 *             swapnet_prefetch(model, i + 1);  comes in meanwhile
 *         ... swapnet_tensor(model, i, k, &tensor) ...
 *         swapnet_swap_out(model, i);
 *     }
 *     swapnet_close(model);
 *
 * Functions return 0 or more, or -errno. A model is used by one thread at a time; different models are independent.
 * Bytes are read with O_DIRECT where the file system allows that, and checked before a program sees them: -EILSEQ.
 */
#ifndef SWN_SKELETON_CAPI_SWAPNET_H
#define SWN_SKELETON_CAPI_SWAPNET_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

struct swapnet_model;

struct swapnet_tensor {
    const char *name;  /* valid until swapnet_close, as are dtype, shape and stride */
    const char *dtype; /* as PyTorch calls it: "float32" */
    unsigned ndim;
    const int64_t *shape, *stride; /* elements; ndim of each */
    const void *data; /* valid until the block is swapped out; page-aligned if its storage begins with it */
};

/* Opens a store. Each layer is a block until swapnet_cut. On an error *out is untouched and `why` (at most `size`
 * bytes, or NULL) says what is wrong. */
int swapnet_open(struct swapnet_model **out, const char *store, char *why, size_t size);
void swapnet_close(struct swapnet_model *m); /* swaps everything out; NULL is allowed */

/* Cuts into blocks of which any two neighbours fit `budget_bytes` together, as few and as even as possible. Returns
 * their number, or -ENOSPC: even single layers do not fit; -EBUSY: a block is in memory. */
int swapnet_cut(struct swapnet_model *m, uint64_t budget_bytes);
/* The smallest budget that swapnet_cut accepts. */
uint64_t swapnet_smallest_budget(const struct swapnet_model *m);

size_t swapnet_block_count(const struct swapnet_model *m);
/* Memory that a block takes, or 0 for a number out of range. */
uint64_t swapnet_block_bytes(const struct swapnet_model *m, size_t block);

/* Starts reading a block; does nothing when it is in memory or being read. */
int swapnet_prefetch(struct swapnet_model *m, size_t block);
/* Reads a block, or waits for one that is being read, and checks it; bytes that do not match are read once more. After
 * an error the block is not in memory. */
int swapnet_swap_in(struct swapnet_model *m, size_t block);
/* Frees the block's memory. Does nothing when it is not in memory. */
int swapnet_swap_out(struct swapnet_model *m, size_t block);

/* Tensors of a block, in execution order. */
size_t swapnet_tensor_count(const struct swapnet_model *m, size_t block);
/* Describes one tensor; `data` is NULL while the block is not swapped in. */
int swapnet_tensor(const struct swapnet_model *m, size_t block, size_t index, struct swapnet_tensor *out);

#ifdef __cplusplus
}
#endif

#endif
