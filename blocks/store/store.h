/* blocks/store/store.h - the block store: a checkpoint's weights as one file that can be fetched from with O_DIRECT.
 *
 * Header, then tables (sources, layers, extents, tensors, names), then the extents: each storage of the checkpoint at a
 * multiple of 4096, padded with zeros, in execution order, with an XXH3-64 checksum. Behind them some extents may be
 * stored a second time, compressed, for readers that read whole extents. The layer is the smallest unit; a block is an
 * index range of layers, so cutting anew moves indices, not bytes (SwapNet 6.2.2). A store is written to a temporary
 * name, fsynced and renamed, and the directory is fsynced: a store that can be opened is whole. All integers
 * little-endian.
 *
 * A store is immutable once renamed into place. An open store keeps its inode: a file renamed over it changes nothing.
 * Stores are hostile input too: every byte of header and tables is covered by checksums, and every offset, count and
 * size is checked against the file before it is used.
 *
 * Thread-safety: an open store may be used by many threads. Errors are -errno with a text in *why as in
 * blocks/checkpoint/checkpoint.h; -EILSEQ: a checksum does not match.
 */
#ifndef SWN_BLOCKS_STORE_STORE_H
#define SWN_BLOCKS_STORE_STORE_H

#include <stddef.h>
#include <stdint.h>

#include "blocks/checkpoint/checkpoint.h"
#include "blocks/store/codec.h"
#include "blocks/memory/fetch_queue.h"
#include "base/io.h"

struct swn_store_source {
    const char *path; /* at the time when the store was built */
    struct swn_identity identity;
};

/* SWN_CHUNK bytes of an extent, or its last ones, as stored in a compressed extent. */
struct swn_store_chunk {
    uint64_t checksum; /* XXH3-64 of the decoded bytes, the extent's padding included */
    uint64_t end;      /* end of the chunk in the copy */
    enum swn_encoding encoding;
};

/* An extent stored a second time, compressed. The plain extent is in the store all the same: it can be mapped, so that
 * a weight's own address always reads right, and single rows are read from it. */
struct swn_compressed_extent {
    uint64_t off;   /* in the store, a multiple of 4096 */
    uint64_t bytes; /* of all chunks; padded to a multiple of 4096 with zeros */
    const struct swn_store_chunk *chunks;
    size_t chunk_count;
};

/* A storage of the checkpoint. Extents are sorted by offset in the store, that is in execution order. */
struct swn_store_extent {
    uint64_t off;      /* in the store, a multiple of 4096 */
    uint64_t bytes;    /* of the storage; the extent is padded to a multiple of 4096 with zeros */
    uint64_t checksum; /* XXH3-64 of `bytes` bytes */
    uint32_t source;   /* index */
    uint32_t layer;    /* index of the first layer that uses it */
    uint64_t source_off;
    uint64_t head;        /* XXH3-64 of the first 4096 of `bytes`, or of all; where the store `has_heads` */
    const uint64_t *sums; /* XXH3-64 of each SWN_CHUNK bytes, padding included; NULL: an older store has none */
    const struct swn_compressed_extent *compressed; /* NULL: not stored compressed */
};

struct swn_store_layer {
    const char *name;               /* the module path: "features.0" for features.0.weight and features.0.bias */
    uint32_t first_extent, extents; /* the extents with this `layer`: contiguous */
    uint64_t bytes;                 /* of those extents, unpadded */
    uint32_t depth;                 /* references (tensors) to be registered, SwapNet's "depth" of a block */
    uint64_t flops;                 /* 0: not known */
};

struct swn_store_tensor {
    const char *name;
    uint32_t extent, layer;
    enum swn_dtype dtype;
    uint32_t ndim;
    const int64_t *shape, *stride;
    uint64_t off; /* bytes into the extent */
};

struct swn_store {
    struct swn_io_file file; /* descriptors, owned by the store: for the fetch queue and for mappings */
    /* Of the store file itself; `directory` is the header's checksum. The times change when a process marks the store
     * as used. */
    struct swn_identity identity;
    char *path;
    const struct swn_store_source *sources;
    size_t source_count;
    const struct swn_store_layer *layers;
    size_t layer_count;
    const struct swn_store_extent *extents;
    size_t extent_count;
    const struct swn_compressed_extent *copies; /* in the order of their extents */
    size_t compressed_count;
    const struct swn_store_chunk *chunks; /* of all copies */
    size_t chunk_count;
    const struct swn_store_tensor *tensors; /* in layer order */
    size_t tensor_count;
    /* Tensors of the checkpoint that are not in the store, and the first of them, as in struct swn_checkpoint. Older
     * stores have 0 and NULL. */
    uint64_t skipped_count;
    const char *skipped;
    int has_heads;        /* older stores have none */
    uint64_t total_bytes; /* of the file */
    void *priv;
};

/* --- reading --- */

int swn_store_open(struct swn_store **out, const struct swn_io *io, const char *path, char why[SWN_ERRMSG]);
void swn_store_close(struct swn_store *s, const struct swn_io *io);
/* The extent that holds exactly the bytes [off, off + bytes) of source `source`, or NULL. O(log n). */
const struct swn_store_extent *swn_store_find(const struct swn_store *s, uint32_t source, uint64_t off, uint64_t bytes);
/* 0 when the `extent->bytes` bytes at buf are those of the extent when the store was built, else -EILSEQ. */
int swn_store_check(const struct swn_store_extent *extent, const void *buf);
/* The same for `bytes` bytes from `off` of an extent that has sums, padding included: `off` is a multiple of SWN_CHUNK,
 * and so is `bytes` unless it reaches the end of the padding. -EINVAL: another alignment. */
int swn_store_check_part(const struct swn_store_extent *extent, uint64_t off, const void *buf, size_t bytes);

/* The same, reading the extent from the store through `buffer_bytes` of memory and past the page cache; reads again
 * after a mismatch. Other errors: of the reads. */
int swn_store_verify_extent(const struct swn_store *s, const struct swn_io *io, const struct swn_store_extent *extent,
                            size_t buffer_bytes);

/* 0 when the compressed extent decodes to the extent's bytes, chunk by chunk and as a whole, and its padding is zero,
 * else -EILSEQ. Needs memory for a few chunks. The extent must have one. */
int swn_store_verify_compressed(const struct swn_store *s, const struct swn_io *io,
                                const struct swn_store_extent *extent);

/* Bytes that each layer takes in memory, into bytes[layer_count]: its extents, padded, and the extents of earlier
 * layers that its tensors share (ties), which come along when those layers are in another block. 0 or -ENOMEM. */
int swn_store_layer_bytes(const struct swn_store *s, uint64_t *bytes);

/* --- building --- */

/* Which extents are also stored compressed: those that become smaller by an eighth or more. */
enum swn_store_compressed {
    SWN_COPIES_NONE,
    SWN_COPIES_NARROW, /* float32 that is exact in bfloat16 or float16 */
};

struct swn_store_opts {
    /* Layer names in execution order; layers it does not name follow in checkpoint order. NULL: checkpoint order. */
    const char *const *order;
    size_t order_count;
    size_t buffer_bytes; /* memory for copying, and 1.2 MiB more with copies; 0: 8 MiB */
    enum swn_store_compressed copies;
    /* The most bytes of disk for compressed extents; 0: all free bytes. Without enough room the rest is left out. */
    uint64_t copies_most;
    /* Called as bytes are copied; non-zero ends the build with -ECANCELED. May be NULL. */
    int (*progress)(void *user, uint64_t done, uint64_t total);
    void *user;
};

/* Writes the store of `c` to `path`. The store is never visible half-written, an old one stays until the new one is
 * whole, and the new one is durable on return. Reads the checkpoint with O_DIRECT where possible and leaves neither
 * file in the page cache. On error nothing is left behind; the text of -ENOSPC says how many bytes are needed. -ESTALE:
 * the checkpoint's identity changed during the copy. */
int swn_store_build(const struct swn_checkpoint *c, const struct swn_io *io, const char *path,
                    const struct swn_store_opts *opts, char why[SWN_ERRMSG]);

/* The tables that swn_store_build would write, without the checksums of extents, and without a file. *out is closed
 * like an opened store; its descriptors are -1. */
int swn_store_draft(struct swn_store **out, const struct swn_checkpoint *c, const struct swn_store_opts *opts,
                    char why[SWN_ERRMSG]);
/* Opens a store, or drafts the store that a checkpoint would make. *kind: "store", "torch", "torchscript" or
 * "safetensors", static. */
int swn_store_of(struct swn_store **out, const char **kind, const struct swn_io *io, const char *path,
                 char why[SWN_ERRMSG]);
/* The same weights in another order, copied from a store; the checkpoint may be gone. -EILSEQ: a checksum does not
 * match. Layers that `opts->order` does not name follow in the old store's order. */
int swn_store_recut(const struct swn_store *from, const struct swn_io *io, const char *path,
                    const struct swn_store_opts *opts, char why[SWN_ERRMSG]);

/* A text file beside the store, named STORE.order: the layers, one a line, in the order in which a program read them.
 * The library writes it, `swapnet-partition build --from-store` reads it. */
#define SWN_ORDER_SUFFIX ".order"
/* The lookup table of `swapnet-partition table`, beside the store as well. */
#define SWN_TABLE_SUFFIX ".table"

/* --- the cache: stores of checkpoint files, found by the file's identity --- */

/* Path of the store that this file would have in cache directory `dir`: a hash of the identity's stat fields (not of
 * `directory`, which swn_cache_agrees compares). out: at least 4096. */
void swn_cache_path(const char *dir, const struct swn_identity *source, char *out, size_t size);
/* Opens the store of the open checkpoint file `fd`: a store whose source identity equals the file's, `directory`
 * included (which is read and hashed), and whose samples of large extents agree. -ENOENT: none. Marks the store as used
 * now (its mtime), for the least-recently-used order. */
int swn_cache_open(struct swn_store **out, const struct swn_io *io, const char *dir, int fd, char why[SWN_ERRMSG]);
/* The same in two steps, for callers that start other reads in between. This step finds the store by the file's stat
 * fields and its own header; its bytes may still differ. */
int swn_cache_find(struct swn_store **out, const struct swn_io *io, const char *dir, int fd, char why[SWN_ERRMSG]);
/* The second step: whether the store holds the file's bytes, as far as a sample shows: 0, and the store is marked as
 * used; -ENOENT: it does not. The caller closes the store. */
int swn_cache_agrees(struct swn_store *s, const struct swn_io *io, int fd, char why[SWN_ERRMSG]);
/* Limits of a cache. */
struct swn_cache_limits {
    uint64_t cache_limit_bytes; /* all together; 0: no cap */
    uint64_t reserved_bytes;    /* of the cap, for stores that are built after this one */
    const char *const *keep;    /* names of stores that must not be removed to make room; they need not exist */
    size_t keep_count;
};
/* Builds the store. Makes room first: least recently used stores go until all fit the cap; -EFBIG if the stores to be
 * kept leave too little. The times of the checkpoint's file must have settled (swn_identity_settle) before `c` was
 * opened, with the identity that `c` has. */
int swn_cache_build(struct swn_store **out, const struct swn_io *io, const char *dir,
                    const struct swn_cache_limits *limits, const struct swn_checkpoint *c,
                    const struct swn_store_opts *opts, char why[SWN_ERRMSG]);
/* The size of the store without compressed extents. */
int swn_cache_need(const struct swn_checkpoint *c, const struct swn_store_opts *opts, uint64_t *bytes,
                   char why[SWN_ERRMSG]);

#endif
