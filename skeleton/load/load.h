/* skeleton/load/load.h - loading by reference: a read of a known checkpoint into a tensor is registered instead of
 * performed.
 *
 * A checkpoint file is known when the cache has its block store (see blocks/store/store.h), which is built when the
 * file is first read from, by a thread of its own (skeleton/load/build_store.c). A range whose bytes are an extent of
 * the store becomes a private mapping of that extent: no byte is read before an operator needs it. Stores belong to the
 * library and are immutable, so later changes of the checkpoint never change a registered tensor.
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

/* Called instead of reading n bytes from file offset `off` of `fd` to buf: n when the read was registered, else -1 and
 * the caller reads. Called with no lock held. The descriptor's position is not touched. */
ssize_t swn_load_read(int fd, void *buf, size_t n, off_t off);

/* A file that PyTorch has mapped: the library's own descriptors for it, with one reference, or NULL. No lock held. */
struct swn_extent_file *swn_load_mapped(int fd);

/* The program maps a file, perhaps a checkpoint, to read its header: makes the kernel read the header, and not the
 * weights behind it. No lock held. */
void swn_load_ask_for_header(int fd);
/* The file is a checkpoint that will not fit: reads its description. No lock held; the caller holds a reference to the
 * file. */
void swn_load_look_into(struct swn_extent_file *file);
/* An operator begins to use the tensors in a mapped file: once per file, makes the kernel read the pages in which
 * tensors begin and end. These pages belong to no tensor as a whole, and come from the page cache. No lock held. */
void swn_load_ask_for_edges(struct swn_extent_file *file);
/* The bytes of a mapped checkpoint that are likely to be read after r, which lies in it, or NULL when that is unknown:
 * the bytes that followed in the layers before this one, one layer further. Engine lock held. */
const struct swn_ckpt_storage *swn_load_predict_next(struct swn_engine *e, const struct swn_range *r);

/* To be called before swn_load_move, with no lock held: when args[1] lies in a mapped checkpoint, looks for (or builds)
 * its store and fills in op->move_*. 1: a lock is held until swn_load_done. */
int swn_load_prepare(struct swn_op *op);
void swn_load_done(void);
/* The operator is a whole copy from op->args[1] to op->args[0]: moves the registration of the source to the destination
 * and returns 1, else 0 and the copy has to be made. Engine lock held. */
int swn_load_move(struct swn_engine *e, struct swn_op *op);

/* The range with the bytes that follow r's in their store, which is in the order of execution, or nearly so; NULL when
 * r is not registered, or no range has them. Engine lock held. */
struct swn_range *swn_load_successor(const struct swn_range *r);

/* A plan was made for the weights ids[n], in the order in which they are read, a cycle that began with `first`. Engine
 * lock held. */
void swn_load_order_learned(struct swn_engine *e, const uint32_t *ids, size_t n, uint32_t first);

/* skeleton/load/checksum.c. 0: the bytes that were read for a part of a frame are those of the store when it was built,
 * and p->checked is set; or this part alone does not show it. Without locks. */
int swn_load_check(struct swn_part *p, const void *bytes);
/* To be called before r's bytes are used: reads and checks the tensor, unless that was done before, and ends the
 * program if the bytes are not those of the store. Bytes that cannot be read stay unchecked: the operator that reads
 * them meets the error. Engine lock held. */
void swn_load_verify(struct swn_engine *e, const struct swn_range *r);

/* The source of a file's bytes, for messages: FILE or "the spill file in DIR". */
const char *swn_load_name(const struct swn_extent_file *f, char *out, size_t size);

/* The place of a range's bytes on disk. */
struct swn_load_place {
    const struct swn_extent_file *file;
    uint64_t off;
};
/* The name of the (first) tensor there, into out: 1, or 0 when the place is in no store, or a thread is loading. Waits
 * for no lock. */
int swn_load_tensor(const struct swn_load_place *place, char *out, size_t size);

/* What the bytes of the weight at `address` may be, and whether two have the same: skeleton/abi/serving.h. No lock
 * held.
 */
int swn_load_content(uintptr_t address, size_t bytes, uint64_t out[2]);
int swn_load_same(uintptr_t a, uintptr_t b, size_t bytes);

/* At exit: drops from the page cache what the kernel read ahead of headers and small tensors. */
void swn_load_exit(void);

void swn_load_fork_child(void);

#endif
