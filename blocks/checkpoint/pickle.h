/* blocks/checkpoint/pickle.h - reads the pickles of torch.save and torch.jit.save without running them.
 *
 * A pickle is a program for a stack machine that may name and call anything. This machine knows the 32 opcodes that
 * torch.save and torch.jit.save write (pickle protocol 2), and a fixed list of globals
 * (blocks/checkpoint/pickle_globals.c). A global is only a name here, and a call makes a description of its result.
 * Nothing is imported, nothing is called, and a name outside the list is refused. The accepted pickles are a subset of
 * those that torch.load(weights_only=True) accepts, plus TorchScript's objects on request.
 *
 * Memory: all from the caller's bump, at most about 64 bytes for each byte of the pickle. Time: linear: two bytes of
 * pickle can name a text or a container of any size again, so whatever is to be known of all its bytes or items is
 * noted once, when they come. The machine does not recurse. Not thread-safe for one bump.
 */
#ifndef SWN_BLOCKS_CHECKPOINT_PICKLE_H
#define SWN_BLOCKS_CHECKPOINT_PICKLE_H

#include "base/bump_alloc.h"
#include "blocks/checkpoint/checkpoint.h"

#define SWN_PICKLE_MAX_BYTES (UINT64_C(64) << 20)

enum swn_pickle_kind {
    SWN_PV_NONE,
    SWN_PV_BOOL,    /* i */
    SWN_PV_INT,     /* i */
    SWN_PV_TEXT,    /* text, count: its length; UTF-8, not terminated, inside the pickle */
    SWN_PV_OPAQUE,  /* a value that holds no tensors: a float, a long integer, bytes, a device, a set, ... */
    SWN_PV_TUPLE,   /* items, count */
    SWN_PV_LIST,    /* items, count */
    SWN_PV_DICT,    /* items, count: key, value, key, value, ... in the order they were set */
    SWN_PV_OBJECT,  /* a TorchScript object; state: items[0], if count is 1 */
    SWN_PV_GLOBAL,  /* global */
    SWN_PV_STORAGE, /* storage, dtype */
    SWN_PV_TENSOR,  /* tensor */
};

struct swn_pickle_tensor {
    uint32_t storage; /* the number that the storage function gave */
    uint32_t ndim;
    enum swn_dtype dtype;
    const char *skip; /* the tensor's kind, if it cannot be described ("a sparse tensor"); then no other field is set */
    const int64_t *shape, *stride;
    uint64_t off; /* bytes */
};

struct swn_pickle_value {
    uint8_t kind;
    uint8_t hashable : 1; /* may be a dict's key */
    uint8_t ordered : 1;  /* a dict that is an OrderedDict */
    uint8_t odd : 1;      /* a text: not Latin-1; a tuple: not of integers only; a list: an item may be no dict's key */
    uint8_t bytes : 1;    /* an opaque value that is bytes */
    uint8_t visiting : 1; /* set by a walk over the values, to find cycles */
    uint8_t barren : 1;   /* likewise: it has been through this container, and found no tensor in it */
    uint8_t compared : 1; /* likewise: no two keys of this dict are equal */
    uint8_t dtype;        /* of a storage; SWN_DTYPE_NONE for quantized ones */
    uint32_t count, room;
    union {
        int64_t i;
        struct {
            const char *text;
            uint64_t hash; /* XXH3-64 of the text */
        };
        struct {
            struct swn_pickle_value **items;
            uint32_t checked; /* of a dict: items that have passed the check of states, from the first on */
            uint32_t strange; /* how many of its keys are neither texts nor integers, once they are compared */
        };
        const struct swn_pickle_global *global;
        const struct swn_pickle_tensor *tensor;
        struct {
            uint32_t storage;
            uint64_t storage_bytes;
        };
    };
};

struct swn_pickle_opts {
    const char *name; /* of the pickle, for messages */
    int torchscript;  /* classes below __torch__ are objects with attributes */
    /* Numbers the storage that a persistent id names: key[0, len), `bytes` long. For a repeated key it must give the
     * same number or fail. 0, or an error with its text. */
    int (*storage)(void *ctx, const char *key, size_t len, enum swn_dtype dtype, uint64_t bytes, uint32_t *number,
                   char why[SWN_ERRMSG]);
    void *ctx;
};

/* Describes the pickle in text[0, len). The values lie in `bump` and point into text. They form a graph with possible
 * cycles, not a tree: the caller must bound its walk. */
int swn_pickle_read(struct swn_bump_alloc *bump, const char *text, size_t len, const struct swn_pickle_opts *opts,
                    struct swn_pickle_value **root, char why[SWN_ERRMSG]);

#endif
