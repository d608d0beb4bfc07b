/* skeleton/abi/abi.h - the interface between the runtime (C, libswapnet.so) and the torch backend (C++, built for one
 * PyTorch: aten-X.Y.so).
 *
 * The torch backend knows tensors and nothing of memory; the runtime knows memory and nothing of tensors. No exception
 * and no C++ type crosses, except that raise_oom throws PyTorch's own out-of-memory error up through the C frames that
 * called it.
 */
#ifndef SWN_SKELETON_ABI_ABI_H
#define SWN_SKELETON_ABI_ABI_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define SWN_ATEN_ABI 25u
#define SWN_OP_ARGS 64 /* tensors looked at per operator; the rest use their own address, which is always right */

/* Hints: an operator that does something else gets the right bytes as well, only slower. */
enum swn_use {
    SWN_USE_ROWS,      /* single rows are read; the operator may ask for them */
    SWN_USE_INPUT,     /* read, in a place where no weight is */
    SWN_USE_WEIGHT,    /* read, and counts for the order if it is a weight */
    SWN_USE_WRITE,     /* written in place */
    SWN_USE_OVERWRITE, /* written in place, every byte of the storage, unless it is refused */
};

/* What can be done with a CPU tensor that is to go to a device. */
enum swn_way {
    SWN_WAY_COPY,      /* nothing: it is PyTorch's to copy */
    SWN_WAY_REFERENCE, /* its bytes are a checkpoint's: a copy can be registered rather than made, and be shared */
    SWN_WAY_ALIAS,     /* the device can read them where they are, if no operator ever writes them there */
    SWN_WAY_BUFFER,    /* they can be put into a buffer of the device's */
};

enum swn_device_type { SWN_DEVICE_NONE, SWN_DEVICE_CUDA, SWN_DEVICE_PRIVATEUSEONE };

struct swn_range;
struct swn_device_memory;
struct swn_extent_file;
struct swn_fill;

/* One tensor argument. The torch backend fills the first part, the rest is the engine's. */
struct swn_arg {
    int mapped;     /* by PyTorch, many tensors in one storage; or of a device's. Else it is a storage of alloc_cpu's */
    uintptr_t data; /* where the storage is; of a mapped one, where the tensor's first element is */
    size_t bytes;   /* of the storage; of a mapped one, from the tensor's first element to the end of its last */
    size_t from, upto; /* of them, those that the tensor's elements lie in */
    enum swn_use use;

    struct swn_range *range;
    uint32_t range_id;
    uint64_t first_chunk, end_chunk; /* of addresses, that it holds */
    size_t slice;                    /* of a `sliced` one: bytes of each slice but the last */
    int remap, pinned, reading, accessed;
    int sliced;       /* 1: what of it is not in memory waits for slice_lend; 2: slice_lend has been called */
    int rows;         /* 1: not all of it is in memory, rows_copy reads the rows that are wanted; 2: rows_copy did, and
                       * nothing else read it */
    int prefaulting;  /* a thread of ours makes its pages (skeleton/core/prefault.h) */
    uintptr_t afresh; /* where its new bytes are being made (skeleton/core/overwrite.h), or 0 */
    size_t afresh_bytes;
};

/* A number of slices of equal length of a weight, one behind the other. */
struct swn_slices {
    size_t bytes, count; /* of each */
};

/* The slices in which a kernel can take a weight. */
struct swn_row_geometry {
    size_t bytes;   /* of a row: slices are of whole ones */
    size_t block;   /* rows that the kernel computes with at once: slices had better be multiples of this number, */
    size_t threads; /* and of this many blocks */
    uint64_t shape; /* a hash of what the bits of the result may depend on, but for the slices; not 0 */
    int exact;      /* slices other than of whole blocks give wrong bits */
};

/* Parameters of a layer that are too small to come and go: biases, and what norms have. */
struct swn_small {
    size_t count, bytes;
};

/* One outermost operator of one thread, from op_begin to op_end. */
struct swn_op {
    const char *name; /* static or owned by the operator's schema */
    int copies;       /* it copies every byte of args[1]'s storage to args[0]'s, does nothing else, and cannot fail */
    int asks;         /* its kernel will ask for memory (afresh_begin) for args[0], which it overwrites */
    struct swn_extent_file *move_file; /* the engine's: a store that has args[1]'s bytes, and where */
    uint64_t move_off;
    int prepared;          /* 1: it holds the lock that keeps that store, until op_begin ends */
    int skip;              /* the engine's answer in op_begin: the copy is done, by mapping the memory from that
                            * store */
    uint64_t flops;        /* of this operator; 0 unless the host counts them, see profiles/flops.h */
    uint64_t flops_before; /* and of operators since the thread's last one that were not announced, as they had no
                            * tensor of interest */
    struct swn_small small, small_before; /* likewise */
    unsigned n;
    struct swn_arg args[SWN_OP_ARGS];

    uint64_t begin_ns;
    uint64_t seq; /* its number, of all operators */
    int accesses;
    struct swn_op *prev_open, *next_open;
    int unlisted; /* begun before a fork of which this is the child */
};

/* Weights that are not read whole, and what is tried out for them: skeleton/tiling. */
struct swn_tiling_services {
    /* By the operator's own thread, between the two: its kernel can take the weight args[arg] in slices. It may be
     * `sliced` from then on, else when there is a plan. A weight that is `sliced` already cannot be taken as it is cut,
     * as slices end within rows. Returns the length of slices to be tried as if it were cut into them, for what is told
     * of it; 0: none. */
    size_t (*slices_offer)(struct swn_op *op, unsigned arg, const struct swn_row_geometry *rows);
    /* Whether such an offer would be of interest, before its kernel goes to lengths to find out what to offer. */
    int (*slices_wanted)(struct swn_op *op, unsigned arg, uint64_t shape);
    /* The fewest bytes of a weight for which any of this is of interest, within the current budget. */
    size_t (*slices_least)(void);
    /* The slices of a `sliced` argument, in their order. Returns how many kinds; 0: more than `most`. */
    size_t (*slices_list)(struct swn_op *op, unsigned arg, struct swn_slices *slices, size_t most);
    /* The kernel has to take a `sliced` argument whole: for this shape slices as they are (tried 0), or of `tried`
     * bytes each, do not give the right bits; or, if `right`, the latter do. Returns the length of the slices that it
     * is to try next, for the operators to come; 0: none. */
    size_t (*slices_refused)(struct swn_op *op, unsigned arg, uint64_t shape, size_t tried, int right);
    /* Waits for `bytes` from `off` of a `sliced` argument, which must be one of these slices, and returns where they
     * can be read until the next call or op_end. NULL: it has been cut differently meanwhile, its own address serves
     * it. bytes 0: that was the last one. */
    const void *(*slice_lend)(struct swn_op *op, unsigned arg, size_t off, size_t bytes);
    /* Memory for a trial: `bytes` of addresses that repeat the same `period` bytes, a multiple of a page, of which only
     * `period` bytes count. NULL: there is none within the budget. */
    void *(*trial_map)(size_t bytes, size_t period);
    void (*trial_unmap)(void *at, size_t bytes, size_t period);
    /* Tensors of `bytes`, or a little more, that this thread allocates lie in such memory as well; 0: no longer. A
     * kernel that writes to such a tensor has to write the same to all places that repeat each other. */
    void (*trial_alias_allocations)(size_t bytes, size_t period);
    /* Whether `bytes` more fit the budget, now or after reclaim. If they do not fit, nothing has left for them.
     */
    int (*trial_room)(size_t bytes);
    /* Likewise for a copy of a weight that a kernel would make, which is a tensor: it may have a place already. */
    int (*copy_room)(size_t bytes);
    /* Likewise: copies n rows of row_bytes each to `out`, in this order. Number 0 is at `first`, and all `count` that
     * there are lie inside args[arg], whose `rows` is not 0. 0: not done, the weight's own address serves; or a number
     * is that of no row. The numbers may change meanwhile; each is read once. */
    int (*rows_copy)(struct swn_op *op, unsigned arg, uintptr_t first, size_t row_bytes, size_t count,
                     const int64_t *rows, size_t n, void *out);
    /* Likewise: the kernel overwrites args[arg], and can make its new bytes in pieces of at most *piece bytes, front to
     * back. NULL: it had better write to its own address. */
    struct swn_fill *(*fill_begin)(struct swn_op *op, unsigned arg, size_t *piece);
    /* Where to make the next `bytes`; the bytes of the call before are made. */
    void *(*fill_next)(struct swn_fill *fill, size_t bytes);
    /* made 1: all bytes are made. 0: no more will be, and those of the last call are not. Waits until the bytes are
     * where they belong.
     */
    void (*fill_end)(struct swn_fill *fill, int made);
};

/* Tensors on devices: skeleton/device. */
struct swn_device_services {
    /* Devices that share our memory (skeleton/device/unified.h). The current device is the one that a call names. */
    enum swn_device_type type; /* NONE: none of what follows is called */
    /* enum swn_way for the CPU tensor of which all bytes are [data, data + bytes). parameter: it is a model's, as far
     * as one can see, and no buffer that its program fills again and again. */
    int (*way)(int device, uintptr_t data, size_t bytes, int parameter);
    /* Whether the program itself has registered this memory with the driver: then only a copy may go to the device. */
    int (*programs)(uintptr_t data);
    /* Makes them known to the device, or fills a buffer with them: *address is where it finds them. Until device_close
     * no thread may write or free them; a buffer does not depend on them any more. NULL: no. */
    struct swn_device_memory *(*open)(int device, enum swn_way way, uintptr_t data, size_t bytes, void **address);
    /* Whether the bytes may come and go, so that operators that read them there have to be announced. */
    int (*streams)(const struct swn_device_memory *memory);
    /* 0: nothing on the device can be using them any more, they may be written and freed; -errno or a negated
     * cudaError_t: they never may. 1: later(owner, 0 or such an error) will be called by a thread of the engine, as the
     * device is busy, or a capture is under way. No lock may be held; the current device may be any. */
    int (*close)(struct swn_device_memory *memory, void (*later)(void *owner, int err), void *owner);
    /* Whether the memory comes and goes, so that its address is valid for an operator only between `begin` and `end`.
     * `stream` is the cudaStream_t on which the operator of this thread launches, and all of these are of its
     * device. */
    int (*swaps)(const struct swn_device_memory *memory);
    /* Waits until all memory is there, at addresses[i]. Not 0: it is not, and each tensor must be given other
     * memory. */
    int (*begin)(struct swn_device_memory *const *memory, unsigned n, void *stream, void **addresses, int *captured);
    void (*end)(struct swn_device_memory *const *memory, unsigned n, void *stream, int captured);
    /* Whether what is launched on the stream is put into a graph instead of being run. */
    int (*capturing)(void *stream);
    /* Whether a capture is under way anywhere, so that no thread may wait for a device. */
    int (*held_up)(void);
    /* `bytes` that came and went were given other memory for good, as this operator (NULL: the engine) could not use
     * memory that comes and goes. */
    void (*kept)(size_t bytes, const char *operator_name);
    /* The address of memory that comes and goes and that stays for a graph, as device_begin has `captured` it into one;
     * NULL: it does not stay. */
    void *(*stays)(const struct swn_device_memory *memory);
    /* Streamed memory stays from now on: that for [data, data + bytes), as a graph has their address. 0 or -errno.
     */
    int (*pin)(struct swn_device_memory *memory, uintptr_t data, size_t bytes);
    /* Between a call with 1 and one with 0, this thread's calls end no capture, and no capture refuses them. */
    void (*aside)(int begins);
    /* Installs the operator hook, if it is not there yet. 1: it is there. */
    int (*watch)(void);
    /* Counts the bytes that came to the device without a copy (`elided`), and by a copy (`copied`). */
    void (*moved)(size_t elided, size_t copied);
    /* Says that from now on everything is copied, as code runs that bypasses PyTorch's operators. */
    void (*given_up)(void);
    /* Says once that nothing is shared with devices, and why. */
    void (*refused)(const char *why);
    /* Ends the program: it is about to use bytes ("a weight that ...") which could not be given memory of their own. */
    void (*lost)(const char *what, const char *why);
};

struct swn_runtime_services {
    uint32_t abi;
    uintptr_t lo, hi;        /* tensors of interest lie here */
    const uintptr_t *mapped; /* or between these two addresses, which change */
    int count_flops;
    void (*op_begin)(struct swn_op *op);
    void (*op_end)(struct swn_op *op);
    /* Likewise: memory in which its kernel is to make all of args[arg], which it overwrites, before any of it is seen
     * there. NULL: it had better write to its own address. */
    void *(*afresh_begin)(struct swn_op *op, unsigned arg);
    /* The kernel has made the bytes, or has failed (made 0). */
    void (*afresh_end)(struct swn_op *op, unsigned arg, int made);
    struct swn_tiling_services tiling;
    struct swn_device_services device;
};

/* A tensor that an operator returned or wrote, or a number that it returned. */
struct swn_result {
    const char *type; /* "float", "long int", ..., static; "scalar": of 8 bytes */
    const void *data; /* the first element; NULL: its bytes cannot be looked at */
    size_t item_bytes;
    size_t dims;
    const int64_t *sizes, *strides; /* of each dimension, in elements */
};

/* What aten-X.Y.so exports as `swn_aten_backend`. */
struct swn_torch_backend {
    uint32_t abi;
    /* 0, or a static text that says why this PyTorch is refused. Called once, before anything else. */
    const char *(*attach)(const struct swn_runtime_services *host);
    /* Installs the operator hook. Allocates tensors: the caller holds no lock. 0, or a static text as above. */
    const char *(*enable)(void);
    /* Takes the operator hook away (0), or puts it back. Operators that are under way end as they began. Allocates no
     * tensors: the caller may hold the engine's lock. 0 or -1. */
    int (*watching)(int on);
    /* Stands before PyTorch's copies to and from host->device_type. As above. */
    const char *(*enable_device)(void);
    /* Calls `result` for every result of every outermost operator from now on, in the operator's own thread. As above.
     * `op` is valid during the call. */
    const char *(*watch)(void (*result)(const char *op, const struct swn_result *result));
    void (*raise_oom)(size_t bytes); /* throws */
    /* Bytes of the device's memory that PyTorch has taken from it and no tensor uses; 0 where that cannot be known. */
    size_t (*device_idle)(int device);
    /* Has PyTorch give those bytes back to the device, as far as it can. */
    void (*device_trim)(int device);
    /* Storages of a device stop sharing bytes with storages of the processor in [data, data + bytes), as the program is
     * going to have a device write there: they get memory of PyTorch's. No lock held. */
    void (*device_part)(uintptr_t data, size_t bytes);
    const char *version; /* "1.13.0", of the headers it was built with */
};

#ifdef __cplusplus
}
#endif
#endif
