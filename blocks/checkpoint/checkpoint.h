/* blocks/checkpoint/checkpoint.h - reads the description of a checkpoint file, without running any of it.
 *
 * Readers for torch.save zip archives (.pt, .pth, .bin; PyTorch 1.6 to 2.13), TorchScript archives, .safetensors, and
 * sharded checkpoints named by an index JSON. A checkpoint is hostile input: pickles are interpreted by a symbolic
 * machine with a fixed list of opcodes and globals that never imports or calls anything, every size is checked against
 * the existing bytes before it is used, and unknown content is refused with a text that says what it is, where it is,
 * and what to do.
 *
 * A checkpoint is a list of files, a list of storages (contiguous bytes in one of the files, never overlapping), and a
 * list of named tensors (views of a storage). Tied or shared weights are several tensors of one storage. In safetensors
 * every tensor is its own storage. Storages that no tensor uses are not listed.
 *
 * Whole modules (torch.save(model)) are code, and refused with the name of their class; where their bytes lie can be
 * known all the same (swn_checkpoint_open_places). From a TorchScript archive the reader takes the parameters, buffers,
 * other tensor attributes, and constants, called CONSTANTS.0 and so on; never code. If a checkpoint is a single tensor,
 * the tensor's name is "tensor".
 *
 * Limits: a pickle of 64 MiB, a zip directory of 64 MiB and 2^20 entries, a safetensors header of 100 MB, names of 4096
 * bytes, 64 dimensions, 512 MiB for the description of one checkpoint, and no more than in proportion to the file's own
 * description.
 *
 * Thread-safety: objects may be read by many threads once made. Errors are -errno with a text in *why:
 * -EINVAL malformed or refused, -ENOTSUP a format that is known but not read (the text says how to convert), -EIO and
 * others from the system.
 */
#ifndef SWN_BLOCKS_CHECKPOINT_CHECKPOINT_H
#define SWN_BLOCKS_CHECKPOINT_CHECKPOINT_H

#include <stddef.h>
#include <stdint.h>

#include "base/errmsg.h"

#include "base/io.h"

/* Element types of torch and safetensors. The numbers are part of the store format: never change one. */
enum swn_dtype {
    SWN_DTYPE_NONE = 0,
    SWN_U8,
    SWN_I8,
    SWN_I16,
    SWN_I32,
    SWN_I64,
    SWN_F16,
    SWN_F32,
    SWN_F64,
    SWN_BF16,
    SWN_BOOL,
    SWN_C32,
    SWN_C64,
    SWN_C128,
    SWN_F8_E4M3FN,
    SWN_F8_E5M2,
    SWN_F8_E4M3FNUZ,
    SWN_F8_E5M2FNUZ,
    SWN_F8_E8M0FNU,
    SWN_U16,
    SWN_U32,
    SWN_U64,
    SWN_F4_E2M1FN_X2, /* two elements in a byte, which is what counts as an element here and in torch */
    SWN_BITS8,
    SWN_BITS16,
    SWN_BITS1X8,
    SWN_BITS2X4,
    SWN_BITS4X2,
    SWN_DTYPE_COUNT
};
size_t swn_dtype_size(enum swn_dtype d);             /* bytes per element; 0 for an unknown one */
const char *swn_dtype_name(enum swn_dtype d);        /* "float32" */
const char *swn_dtype_safetensors(enum swn_dtype d); /* "F32", or NULL where safetensors has no name for it */
/* How many elements of safetensors one of PyTorch's is: the last dimension is that much longer there. */
unsigned swn_dtype_safetensors_elements(enum swn_dtype d);

/* Identifies the bytes that a file held at a certain time. Two files with equal identities are taken to have the same
 * bytes. */
struct swn_identity {
    uint64_t dev; /* 0 on an overlay */
    uint64_t ino, size;
    int64_t mtime_ns, ctime_ns;
    uint64_t directory; /* XXH3-64 of the zip's central directory, or of the safetensors header */
};
/* All fields but `directory`, which becomes 0. */
int swn_identity_stat(const struct swn_io *io, int fd, struct swn_identity *out);
/* Whether all fields but `directory` are equal. */
int swn_identity_same_file(const struct swn_identity *a, const struct swn_identity *b);
/* As swn_identity_stat, but waits until every later write will show in the file's times. Times move in ticks, and of
 * two writes within one tick the times do not show the second. Waits no longer than about wait_ms. -ESTALE: the wait
 * would be longer, up to two seconds where times are whole seconds, or the times lie in the future. -ENOTSUP: a file in
 * memory (tmpfs and the like), whose times do not show all writes. */
int swn_identity_settle(const struct swn_io *io, int fd, int wait_ms, struct swn_identity *out);
/* The identity of an open checkpoint file, `directory` included. Reads only the end of a zip and its central directory,
 * or the header of a safetensors file: swn_checkpoint_open may still refuse such a file. Errors as below. */
int swn_checkpoint_identity(const struct swn_io *io, int fd, struct swn_identity *out, char why[SWN_ERRMSG]);

/* SWN_CKPT_RECORDS: an archive of torch.save or torch.export, of which only its records are known. */
enum swn_checkpoint_kind { SWN_CKPT_TORCH, SWN_CKPT_TORCHSCRIPT, SWN_CKPT_SAFETENSORS, SWN_CKPT_RECORDS };

struct swn_ckpt_file {
    char *path;
    int fd; /* open for reading, owned by the checkpoint */
    struct swn_identity identity;
};

struct swn_ckpt_storage {
    char *name;    /* "data/0" in a zip, the tensor's name in safetensors; for messages */
    uint32_t file; /* index */
    uint64_t off, bytes;
};

struct swn_ckpt_tensor {
    char *name;       /* dotted path in nested dicts: "state_dict.layer1.0.weight" */
    uint32_t storage; /* index */
    enum swn_dtype dtype;
    uint32_t ndim;
    const int64_t *shape, *stride; /* elements; both of length ndim */
    /* Bytes into the storage; 0 for a tensor without elements. The view lies inside the storage, but may have more
     * elements than the storage: strides can be 0. */
    uint64_t off;
};

struct swn_checkpoint {
    enum swn_checkpoint_kind kind;
    struct swn_ckpt_file *files;
    size_t file_count;
    struct swn_ckpt_storage *storages; /* in file order: by (file, off) */
    size_t storage_count;
    struct swn_ckpt_tensor *tensors; /* in checkpoint order */
    size_t tensor_count;
    /* Number of tensors in the file that cannot be described as above: sparse, nested, quantized and meta tensors,
     * wrapper subclasses, tensors to be made on a device, views with a pending conjugation or negation, storages
     * without a tensor. Their bytes are not among the storages. */
    size_t skipped_count;
    char *skipped; /* the first of them and its kind, "fc.weight: a quantized tensor"; NULL: there are none */
};

/* Reads the description of the checkpoint at `path` (a file, or an index JSON "*.index.json" whose shards lie beside
 * it). The caller closes *out. */
int swn_checkpoint_open(struct swn_checkpoint **out, const struct swn_io *io, const char *path, char why[SWN_ERRMSG]);
/* The same for one file that is open already; `fd` is duplicated, `path` is used for messages only. */
int swn_checkpoint_open_fd(struct swn_checkpoint **out, const struct swn_io *io, int fd, const char *path,
                           char why[SWN_ERRMSG]);
/* The same, after the file's times have settled (swn_identity_settle), with exactly those times: every later write will
 * show. -ESTALE, -ENOTSUP as there; -ESTALE also when the file is written to meanwhile. */
int swn_checkpoint_open_settled(struct swn_checkpoint **out, const struct swn_io *io, int fd, const char *path,
                                int wait_ms, char why[SWN_ERRMSG]);
/* As swn_checkpoint_open_fd, or with wait_ms >= 0 as swn_checkpoint_open_settled, for a caller that needs to know where
 * bytes lie, and not what they are. Records of an archive that no described tensor uses are storages too, each with one
 * tensor of bytes that has the record's name, "data/0"; and an archive whose pickle is refused has those alone, as has
 * a file of torch.export (.pt2). Compressed records are left out. */
int swn_checkpoint_open_places(struct swn_checkpoint **out, const struct swn_io *io, int fd, const char *path,
                               int wait_ms, char why[SWN_ERRMSG]);
void swn_checkpoint_close(struct swn_checkpoint *c, const struct swn_io *io);

#endif
