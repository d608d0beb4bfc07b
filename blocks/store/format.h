/* blocks/store/format.h - the bytes of a store. Private to the block store; users see blocks/store/store.h.
 *
 *     0             header, 136 bytes
 *     136           sources, layers, extents, tensors: arrays of the records below
 *     then          dims: per tensor, in order, shape[ndim] and stride[ndim], int64 elements
 *     then          names: source paths, layer names, tensor names, in order, each ended by NUL
 *     then          zeros up to data_off, a multiple of 4096
 *     data_off      extents, each padded with zeros to a multiple of 4096, without holes, to the end of the file
 *
 * That is version 1. In version 2 some extents are stored a second time, compressed, and the file continues:
 *
 *     data_end      copies, each its chunks one after the other, padded with zeros to a multiple of 4096, without holes
 *     copies_off    the copies and then all their chunks: arrays of the records below; zeros to a multiple of 4096
 *
 * Versions 3 and 4 are 1 and 2 for a checkpoint with tensors that are not in the store: between tensors and dims one
 * more record has their number, and behind all names one more text names the first of them, and the reason.
 *
 * Versions 5 to 8 are 1 to 4 with one more checksum for each extent, that of its first block: an array of records
 * behind the tensors (and the record of versions 3 and 4).
 *
 * Versions 9 to 16 are 1 to 8 with checksums of parts: behind all of these, for each extent in order, one for each
 * SWN_CHUNK bytes of it, padding included, so that a reader can check any part. These versions are written today.
 *
 * Integers are little-endian, two's complement. Values that follow from other values (an index, an offset, a sum) must
 * agree with them, and all padding is zero. The header's checksum covers the header, tables_checksum the bytes from
 * there to data_off, copies_checksum those from copies_off to the end, each extent's and its first block's checksum its
 * bytes without the padding; all are XXH3-64. Dtype numbers are those of enum swn_dtype. A change of any of this is a
 * new version number.
 */
#ifndef SWN_BLOCKS_STORE_FORMAT_H
#define SWN_BLOCKS_STORE_FORMAT_H

#include <stdint.h>

#if __BYTE_ORDER__ != __ORDER_LITTLE_ENDIAN__
#error "records are read and written as they lie in memory"
#endif

#define SWN_STORE_MAGIC "SWNSTORE"
#define SWN_STORE_VERSION 1u
/* Features, which are bits added to the version. */
#define SWN_STORE_COPIES 1u
#define SWN_STORE_LACKS 2u
#define SWN_STORE_HEADS 4u
#define SWN_STORE_SUMS 8u
#define SWN_STORE_NEWEST (SWN_STORE_VERSION + SWN_STORE_COPIES + SWN_STORE_LACKS + SWN_STORE_HEADS + SWN_STORE_SUMS)
/* The most bytes of tables that a reader takes into memory: about two million tensors. */
#define SWN_STORE_TABLES_MAX (UINT64_C(256) << 20)

/* The number that PyTorch's own indexing allows. */
#define SWN_STORE_DIMS_MAX 64u

struct swn_disk_header {
    char magic[8];
    uint32_t version;
    uint32_t header_bytes; /* 136 */
    uint64_t total_bytes;  /* of the file */
    uint64_t data_off;
    uint64_t sources, layers, extents, tensors; /* counts */
    uint64_t dims;                              /* int64 values */
    uint64_t names_bytes;
    uint64_t tables_checksum;
    uint64_t data_end, copies, chunks, copies_off, copies_checksum; /* 0 in version 1 */
    uint64_t checksum;
};

static inline int swn_disk_has(const struct swn_disk_header *h, uint32_t what)
{
    return ((h->version - SWN_STORE_VERSION) & what) != 0;
}

struct swn_disk_source {
    uint64_t dev, ino, size;
    int64_t mtime_ns, ctime_ns;
    uint64_t directory;
};

struct swn_disk_layer {
    uint32_t first_extent, extents;
    uint32_t depth;
    uint32_t zero;
    uint64_t bytes, flops;
};

struct swn_disk_extent {
    uint64_t off, bytes, checksum, source_off;
    uint32_t source, layer;
};

/* Copies of extents of at least SWN_CHUNK bytes, in their order. */
struct swn_disk_copy {
    uint64_t off, bytes; /* of its chunks, unpadded */
    uint32_t extent, zero;
};

struct swn_disk_chunk {
    uint64_t checksum; /* XXH3-64 of the decoded bytes, padding of the extent included */
    uint32_t bytes, encoding;
};

struct swn_disk_tensor {
    uint32_t extent, layer;
    uint32_t dtype, ndim;
    uint64_t off;
};

/* Tensors of the checkpoint that are not in the store: at least one. */
struct swn_disk_lacking {
    uint64_t tensors;
};

struct swn_disk_head {
    uint64_t checksum; /* of the extent's first SWN_BLOCK bytes, or of all if it has fewer */
};

struct swn_disk_sum {
    uint64_t checksum;
};

_Static_assert(sizeof(struct swn_disk_header) == 136, "on disk");
_Static_assert(sizeof(struct swn_disk_source) == 48, "on disk");
_Static_assert(sizeof(struct swn_disk_layer) == 32, "on disk");
_Static_assert(sizeof(struct swn_disk_extent) == 40, "on disk");
_Static_assert(sizeof(struct swn_disk_tensor) == 24, "on disk");
_Static_assert(sizeof(struct swn_disk_copy) == 24, "on disk");
_Static_assert(sizeof(struct swn_disk_chunk) == 16, "on disk");
_Static_assert(sizeof(struct swn_disk_lacking) == 8, "on disk");
_Static_assert(sizeof(struct swn_disk_head) == 8, "on disk");
_Static_assert(sizeof(struct swn_disk_sum) == 8, "on disk");

#endif
