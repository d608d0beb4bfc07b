/* blocks/checkpoint/builder.h - what the checkpoint readers share. Not for users of blocks/checkpoint/checkpoint.h.
 *
 * A reader fills a builder: files, then storages and tensors in the order it meets them. swn_ckpt_finish brings the
 * storages into file order and checks what every checkpoint must fulfil. Nothing here is thread-safe.
 */
#ifndef SWN_BLOCKS_CHECKPOINT_BUILDER_H
#define SWN_BLOCKS_CHECKPOINT_BUILDER_H

#include "base/bump_alloc.h"
#include "blocks/checkpoint/checkpoint.h"

#define SWN_CKPT_MAX_MEMORY ((size_t)512 << 20) /* of a checkpoint's description */
#define SWN_CKPT_MAX_DIMS 64
#define SWN_CKPT_MAX_NAME 4096

/* An open file that is being read. */
struct swn_ckpt_source {
    const struct swn_io *io;
    int fd;
    const char *path; /* for messages */
    uint64_t size;    /* bytes */
};

/* Writes the text and returns err, so that a reader can `return swn_ckpt_fail(why, -EINVAL, ...)`. */
int swn_ckpt_fail(char why[SWN_ERRMSG], int err, const char *format, ...) __attribute__((format(printf, 3, 4)));
/* The text for -ENOMEM and -E2BIG of a bump; returns the error (-E2BIG as -EINVAL). */
int swn_ckpt_fail_memory(char why[SWN_ERRMSG], const char *path, int err);
/* All of [off, off + len), or an error with its text. */
int swn_ckpt_read(const struct swn_ckpt_source *src, void *buf, size_t len, uint64_t off, char why[SWN_ERRMSG]);

/* A tensor that is in a file but cannot be described. */
struct swn_ckpt_skipped {
    const char *name; /* in the builder's bump */
    const char *what; /* "a sparse tensor"; static */
    uint32_t file;
};

/* A checkpoint in the making. */
struct swn_ckpt_builder {
    struct swn_checkpoint c; /* its fields about skipped tensors are set by swn_ckpt_finish */
    struct swn_bump_alloc bump;
    int records; /* only places are needed: records of an archive that no tensor uses are tensors of bytes */
    struct swn_ckpt_skipped *skipped; /* in checkpoint order */
    size_t storage_room, tensor_room, skipped_count, skipped_room;
};

int swn_ckpt_new(struct swn_ckpt_builder **out, size_t files, char why[SWN_ERRMSG]);
/* Closes the builder's descriptors and frees it. NULL is allowed. */
void swn_ckpt_drop(struct swn_ckpt_builder *b, const struct swn_io *io);
/* Takes `fd` over, even on failure. */
int swn_ckpt_add_file(struct swn_ckpt_builder *b, const struct swn_io *io, int fd, const char *path,
                      const struct swn_identity *identity, char why[SWN_ERRMSG]);
/* The name is not copied: it must lie in b->bump. */
int swn_ckpt_add_storage(struct swn_ckpt_builder *b, const struct swn_ckpt_storage *s, char why[SWN_ERRMSG]);
/* Name, shape and stride must lie in b->bump. Checks that the view fits its storage. */
int swn_ckpt_add_tensor(struct swn_ckpt_builder *b, const struct swn_ckpt_tensor *t, char why[SWN_ERRMSG]);
/* Name and text as in struct swn_ckpt_skipped. */
int swn_ckpt_add_skipped(struct swn_ckpt_builder *b, const struct swn_ckpt_skipped *t, char why[SWN_ERRMSG]);
/* Keeps the storages that a tensor uses, in file order; refuses overlaps and repeated names. On success *out is the
 * checkpoint and b is freed. */
int swn_ckpt_finish(struct swn_ckpt_builder *b, struct swn_checkpoint **out, char why[SWN_ERRMSG]);

/* Number of elements, with dimensions of 0 taken for 1 while multiplying, so that {0, 2^62, 2^62} is an overflow.
 * -EOVERFLOW, or -EINVAL for a negative one. */
int swn_ckpt_elements(const int64_t *shape, uint32_t ndim, uint64_t *count);
/* Bytes from a storage's beginning to the end of a view that begins at byte `off`; 0 for one without elements.
 * -EOVERFLOW, or -EINVAL for a negative size or stride. */
int swn_ckpt_view_end(const int64_t *shape, const int64_t *stride, uint32_t ndim, size_t item_bytes, uint64_t off,
                      uint64_t *end);

/* The readers, one file each: they read all of `src`, which is file `file` of b, into b. */
int swn_ckpt_read_torch(struct swn_ckpt_builder *b, const struct swn_ckpt_source *src, uint32_t file,
                        uint64_t *directory, char why[SWN_ERRMSG]);
int swn_ckpt_read_safetensors(struct swn_ckpt_builder *b, const struct swn_ckpt_source *src, uint32_t file,
                              uint64_t *directory, char why[SWN_ERRMSG]);
/* XXH3-64 of the header of a safetensors file. */
int swn_ckpt_hash_safetensors(const struct swn_ckpt_source *src, uint64_t *hash, char why[SWN_ERRMSG]);

/* A regular file's descriptor for reading. >= 0 or an error with its text. */
int swn_ckpt_open_fd(const struct swn_io *io, const char *path, char why[SWN_ERRMSG]);
/* The checkpoint in the file of `fd`, which is duplicated; `records` as in struct swn_ckpt_builder. */
int swn_ckpt_open_copy(struct swn_checkpoint **out, const struct swn_io *io, int fd, const char *path, int records,
                       char why[SWN_ERRMSG]);
/* Detects the format of one file, reads it into b and sets its identity, for single files and shards. Takes `fd` over,
 * even on failure. */
int swn_ckpt_read_file(struct swn_ckpt_builder *b, const struct swn_io *io, int fd, const char *path,
                       char why[SWN_ERRMSG]);
/* The index JSON in src, and its shards. */
int swn_ckpt_read_index(struct swn_checkpoint **out, const struct swn_ckpt_source *src, char why[SWN_ERRMSG]);
/* Whether the path is that of an index JSON. */
int swn_ckpt_is_index(const char *path);

#endif
