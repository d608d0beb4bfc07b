/* skeleton/load/load.h - loading by reference: a read of a known checkpoint into a tensor is registered instead of
 * performed.
 *
 * A checkpoint file is known when the cache has its block store (see blocks/store/store.h), which is built when the
 * file is first read from, by a thread of its own (skeleton/load/build_store.c). A range whose bytes are an extent of
 * the store becomes a private mapping of that extent: no byte is read before an operator needs it. Stores are ours
 * alone and immutable, so nothing that happens to the checkpoint's path afterwards changes a registered tensor.
 *
 * Lock rank: the loader's own lock, then the engine's.
 */
#ifndef SWN_SKELETON_LOAD_LOAD_H
#define SWN_SKELETON_LOAD_LOAD_H

#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "blocks/checkpoint/checkpoint.h"
#include "skeleton/engine/engine_internal.h"

/* Instead of reading n bytes from file offset `off` of `fd` to buf: n when that was registered, else -1 and the caller
 * reads. Called with no lock held. The descriptor's position is not touched. */
ssize_t swn_load_read(int fd, void *buf, size_t n, off_t off);

/* A file that PyTorch has mapped: descriptors of our own for it, with one reference, or NULL. No lock held. */
struct swn_extent_file *swn_load_mapped(int fd);

/* The program maps a file, perhaps a checkpoint, to look at its header: has the kernel read that, and not the weights
 * behind it. No lock held. */
void swn_load_ask_for_header(int fd);
/* The file is a checkpoint that will not fit: finds out what lies where in it. No lock held; a reference to the file
 * must be held meanwhile. */
void swn_load_look_into(struct swn_extent_file *file);
/* An operator begins to use the tensors in a mapped file: once per file, has the kernel read the pages in which they
 * begin and end. These pages belong to no tensor as a whole, and come from the page cache. No lock held. */
void swn_load_ask_for_edges(struct swn_extent_file *file);
/* The bytes of a mapped checkpoint that are likely to be read after r, which lies in it, or NULL when nothing is known:
 * what followed in the layers before this one, one layer on. Engine lock held. */
const struct swn_ckpt_storage *swn_load_predict_next(struct swn_engine *e, const struct swn_range *r);

/* Before swn_load_move, with no lock held: when args[1] lies in a mapped checkpoint, looks for (or builds) its store
 * and fills in op->move_*. 1: a lock is held until swn_load_done. */
int swn_load_prepare(struct swn_op *op);
void swn_load_done(void);
/* The operator is a whole copy from op->args[1] to op->args[0]: moves the registration of the source to the destination
 * and says so (1), else 0 and the copy is to be made. Engine lock held. */
int swn_load_move(struct swn_engine *e, struct swn_op *op);

/* The range that holds what comes after r's bytes in their store, which is in the order of execution, or nearly so;
 * NULL when r is not registered, or no range holds that. Engine lock held. */
struct swn_range *swn_load_successor(const struct swn_range *r);

/* A plan was made for the weights ids[n], in the order in which they are read, a cycle that began with `first`. Engine
 * lock held. */
void swn_load_order_learned(struct swn_engine *e, const uint32_t *ids, size_t n, uint32_t first);

/* skeleton/load/checksum.c. 0: what was read for a part of a frame is what the store held when it was built, and
 * p->checked; or it cannot be told from this part alone. Without locks. */
int swn_load_check(struct swn_part *p, const void *bytes);
/* Before r's bytes are used: unless that was done before, reads and checks the tensor that it is, and ends the program
 * if that is not what the store held. Bytes that cannot be read stay unchecked: the operator that reads them meets the
 * error. Engine lock held. */
void swn_load_verify(struct swn_engine *e, const struct swn_range *r);

/* Where a file's bytes come from, for messages: FILE or "the spill file in DIR". */
const char *swn_load_name(const struct swn_extent_file *f, char *out, size_t size);

/* Where a range's bytes are on disk. */
struct swn_load_place {
    const struct swn_extent_file *file;
    uint64_t off;
};
/* The name of the (first) tensor there, into out: 1, or 0 when that is no store's, or a thread is loading. Waits for no
 * lock. */
int swn_load_tensor(const struct swn_load_place *place, char *out, size_t size);

/* At exit: what the kernel read ahead of headers and small tensors leaves the page cache. */
void swn_load_exit(void);

void swn_load_fork_child(void);

#endif
