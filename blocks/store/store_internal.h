/* blocks/store/store_internal.h - what the files of the block store share. */
#ifndef SWN_BLOCKS_STORE_STORE_INTERNAL_H
#define SWN_BLOCKS_STORE_STORE_INTERNAL_H

#include "blocks/store/store.h"
#include "blocks/store/format.h"

/* The target of swn_store.priv. */
struct swn_store_priv {
    char *tables;        /* as on disk, names included */
    uint32_t *by_source; /* extent numbers, sorted by (source, source_off, bytes) */
};

/* Whether a tensor of that description lies within `bytes` bytes: 0, or a static text that says what is wrong. */
const char *swn_tensor_misfit(enum swn_dtype dtype, uint32_t ndim, const int64_t *shape, const int64_t *stride,
                              uint64_t off, uint64_t bytes);

/* Fills the arrays of *s from the tables (SWN_STORE_TABLES_MAX bytes at most) and checks all of it. `h` passed its own
 * checksum. 0, -EINVAL or -ENOMEM; the caller closes *s in any case. */
int swn_store_parse(struct swn_store *s, const struct swn_disk_header *h, char why[SWN_ERRMSG]);
/* Fills copies and chunks from `bytes` bytes at `table`, the part of the file from h->copies_off on, and checks them.
 * To be called after swn_store_parse. 0, -EINVAL or -ENOMEM. */
int swn_store_parse_compressed(struct swn_store *s, const struct swn_disk_header *h, const void *table, size_t bytes,
                               char why[SWN_ERRMSG]);
/* Sorts by_source and refuses sources that overlap. */
int swn_store_index(struct swn_store *s, char why[SWN_ERRMSG]);

/* blocks/store/cache_sample.c. Compares a block of each of (up to 4096) large extents, and some random blocks, with the
 * open checkpoint file `fd`, from which the store of one source was built: 0; -ENOENT: another file; or an error of the
 * reads. Reads through the page cache, and leaves nothing of the store in it. */
int swn_cache_sample(const struct swn_store *s, const struct swn_io *io, int fd, char why[SWN_ERRMSG]);

/* The arrangement of a store, made from a checkpoint or from another store, and then written. */
struct swn_layout_input {
    uint32_t storage;  /* index in the checkpoint */
    uint32_t file;     /* index of the file to be read from */
    uint64_t off;      /* in that file */
    uint64_t checksum; /* of the bytes, in a layout with `known` checksums */
};

struct swn_layout {
    struct swn_disk_header header;
    const struct swn_store_source *sources; /* borrowed, or `own_sources` */
    size_t source_count;
    struct swn_store_source *own_sources;
    struct swn_disk_layer *layers;
    size_t layer_count;
    struct swn_disk_extent *extents; /* checksums are filled in while writing */
    struct swn_disk_head *heads;     /* so are these */
    struct swn_disk_sum *sums;       /* and these, of all extents one after the other */
    uint64_t sum_count;
    struct swn_layout_input *inputs; /* per extent */
    size_t extent_count;
    int known; /* the inputs have checksums, as they come from a store */
    struct swn_disk_tensor *tensors;
    const struct swn_ckpt_tensor **described; /* per tensor: name, shape, strides; borrowed */
    size_t tensor_count;
    uint64_t skipped_count; /* tensors of the checkpoint that are not in the store */
    const char *skipped;    /* the first of them; borrowed; NULL: there is none */
    char **layer_names;     /* per layer; owned */
    uint64_t bytes;         /* of all extents, unpadded */
};

/* Orders layers, tensors and extents. Checkpoint and options are as in swn_store_build and must outlive *l, which the
 * caller frees, even on error. Sources are those of the checkpoint, one per file; a caller that needs others replaces
 * them before swn_layout_place. */
int swn_layout_make(struct swn_layout *l, const struct swn_checkpoint *c, const struct swn_store_opts *opts,
                    char why[SWN_ERRMSG]);
/* The number of sums of an extent of `bytes` bytes. */
static inline uint64_t swn_sum_count(uint64_t bytes)
{
    return bytes / SWN_CHUNK + (bytes % SWN_CHUNK != 0);
}
/* Offsets and sizes: fills the header but for its checksums. -E2BIG, or -ENOMEM for sums. */
int swn_layout_place(struct swn_layout *l, char why[SWN_ERRMSG]);
/* All bytes up to data_off, allocated, checksums included. NULL: no memory. */
char *swn_layout_tables(struct swn_layout *l);
void swn_layout_free(struct swn_layout *l);

#endif
