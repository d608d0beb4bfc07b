/* skeleton/abi/abi.h - the interface between the runtime (C, libswapnet.so) and the torch backend (C++, built for one
 * PyTorch: aten-X.Y.so).
 *
 * The torch backend knows tensors and nothing of memory; the runtime knows memory and nothing of tensors. No exception
 * and no C++ type crosses, except that raise_oom throws PyTorch's own out-of-memory error through the C frames of its
 * callers.
 */
#ifndef SWN_SKELETON_ABI_ABI_H
#define SWN_SKELETON_ABI_ABI_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define SWN_ATEN_ABI 27u
#define SWN_OP_ARGS 64 /* tensors looked at per operator; the rest use their own address, which is always right */

/* Hints: an operator that uses an argument in another way gets the right bytes, too, only more slowly. */
enum swn_use {
    SWN_USE_ROWS,      /* single rows are read; the operator may ask for them */
    SWN_USE_EXPERTS,   /* some experts of a mixture are read, which experts_begin names; counts for the order like a
                          weight */
    SWN_USE_INPUT,     /* read, but not as a weight */
    SWN_USE_WEIGHT,    /* read, and counts for the order if it is a weight */
    SWN_USE_WRITE,     /* written in place */
    SWN_USE_OVERWRITE, /* written in place, every byte of the storage, unless it is refused */
};

/* How a CPU tensor can go to a device. */
enum swn_way {
    SWN_WAY_COPY,      /* by a copy that PyTorch makes */
    SWN_WAY_REFERENCE, /* its bytes are a checkpoint's: a copy can be registered instead of made, and shared */
    SWN_WAY_ALIAS,     /* the device can read the bytes in place, if no operator ever writes them there */
    SWN_WAY_BUFFER,    /* the bytes can be put into a buffer of the device */
};

enum swn_device_type { SWN_DEVICE_NONE, SWN_DEVICE_CUDA, SWN_DEVICE_PRIVATEUSEONE };

struct swn_range;
struct swn_device_memory;
struct swn_extent_file;
struct swn_fill;

/* One tensor argument. The torch backend fills the first part, the rest is the engine's. */
struct swn_arg {
    int mapped;        /* PyTorch mapped it, and many tensors share one storage; or a device tensor's. Else a storage of
                          alloc_cpu */
    uintptr_t data;    /* where the storage is; of a mapped one, where the tensor's first element is */
    size_t bytes;      /* of the storage; of a mapped one, from the tensor's first element to the end of its last */
    size_t from, upto; /* the part of the bytes in which the tensor's elements lie */
    enum swn_use use;

    struct swn_range *range;
    uint32_t range_id;
    uint64_t first_chunk, end_chunk; /* chunks of addresses that the operator holds */
    size_t slice;                    /* of a `sliced` one: bytes of each slice but the last */
    int remap, pinned, reading, accessed;
    int sliced; /* 1: the part that is not in memory waits for slice_lend; 2: slice_lend has been called */
    int rows; /* 1: not all of it is in memory, and rows_copy reads the wanted rows; 2: rows_copy did, and no other read
                 followed */
    int experts;      /* of SWN_USE_EXPERTS: 1: none has been lent; 2: some have */
    int prefaulting;  /* a thread of the library makes its pages (skeleton/core/prefault.h) */
    uintptr_t afresh; /* address of its new bytes in the making (skeleton/core/overwrite.h), or 0 */
    size_t afresh_bytes;
};

/* Consecutive slices of equal length of a weight. */
struct swn_slices {
    size_t bytes, count; /* of each */
};

/* The slices in which a kernel can take a weight. */
struct swn_row_geometry {
    size_t bytes;   /* bytes of a row: a slice is whole rows */
    size_t block;   /* rows that the kernel computes at once: slices should be multiples of this number, */
    size_t threads; /* and of this many blocks */
    uint64_t shape; /* a hash of all that the bits of the result may depend on, except for the slices; not 0 */
    int exact;      /* slices other than of whole blocks give wrong bits */
};

/* The experts of a mixture that its operator reads: numbers[n] of `count` experts of `each`
 * bytes, one behind the other, in the order in which they are read. */
struct swn_experts {
    uintptr_t first; /* the address of expert 0 */
    size_t each, count, n;
    const uint32_t *numbers;
};

/* Parameters of a layer that are too small to come and go: biases, and parameters of norms. */
struct swn_small {
    size_t count, bytes;
};

/* One outermost operator of one thread, from op_begin to op_end. */
struct swn_op {
    const char *name; /* static or owned by the operator's schema */
    int copies;       /* it copies every byte of args[1]'s storage to args[0]'s, does nothing else, and cannot fail */
    int asks;         /* its kernel will ask for memory (afresh_begin) for args[0], which it overwrites */
    struct swn_extent_file *move_file; /* the engine's: a store that has args[1]'s bytes, and their place */
    uint64_t move_off;
    int prepared;   /* 1: it holds the lock that keeps that store, until op_begin ends */
    int skip;       /* the engine's answer in op_begin: the copy is done, by mapping the memory from that store */
    uint64_t flops; /* of this operator; 0 unless the host counts them, see profiles/flops.h */
    uint64_t flops_before; /* the same for operators since the thread's last announced one, which had no tensor of
                              interest */
    struct swn_small small, small_before; /* likewise */
    unsigned n;
    struct swn_arg args[SWN_OP_ARGS];

    uint64_t begin_ns;
    uint64_t seq; /* its number among all operators */
    int accesses;
    struct swn_op *prev_open, *next_open;
    int unlisted; /* begun before a fork, in the parent of this process */
};

/* Weights that are not read whole, and trials for them: skeleton/tiling. */
struct swn_tiling_services {
    /* Called by the operator's own thread, between op_begin and op_end: its kernel can take the weight args[arg] in
     * slices. The weight may be `sliced` from then on, or only when there is a plan. A weight that is `sliced` already
     * cannot be taken as it is cut, as its slices end within rows. Returns the length of slices for a trial, for the
     * profile; 0: none. */
    size_t (*slices_offer)(struct swn_op *op, unsigned arg, const struct swn_row_geometry *rows);
    /* Whether such an offer would be of interest; asked before the kernel computes what to offer. */
    int (*slices_wanted)(struct swn_op *op, unsigned arg, uint64_t shape);
    /* The least size of a weight for which slices are of interest, within the current budget. */
    size_t (*slices_least)(void);
    /* Lists the slices of a `sliced` argument, in their order. Returns the number of kinds; 0: more than `most`. */
    size_t (*slices_list)(struct swn_op *op, unsigned arg, struct swn_slices *slices, size_t most);
    /* The kernel has to take a `sliced` argument whole: for this shape the present slices (tried 0), or slices of
     * `tried` bytes, do not give the right bits; or, if `right`, the latter do. Returns the length of the slices to try
     * next, for later operators; 0: none. */
    size_t (*slices_refused)(struct swn_op *op, unsigned arg, uint64_t shape, size_t tried, int right);
    /* Waits for `bytes` from `off` of a `sliced` argument, which must be one of its slices, and returns their address,
     * valid until the next call or op_end. NULL: it has been cut in another way meanwhile, and its own address serves.
     * bytes 0: no more slices follow. */
    const void *(*slice_lend)(struct swn_op *op, unsigned arg, size_t off, size_t bytes);
    /* A kernel, or a trial, begins to compute parts one after the other with up to `threads` threads, until parts_end
     * with what parts_begin returned: skeleton/tiling/part_waits.h. */
    int (*parts_begin)(unsigned threads);
    void (*parts_end)(int begun);
    /* Memory for a trial: `bytes` of addresses that repeat the same `period` bytes, a multiple of a page; only `period`
     * bytes count. NULL: they do not fit the budget. */
    void *(*trial_map)(size_t bytes, size_t period);
    void (*trial_unmap)(void *at, size_t bytes, size_t period);
    /* From now on this thread's tensors of `bytes`, or a little more, lie in such memory as well; 0: no longer. A
     * kernel that writes to such a tensor has to write the same to all places that repeat each other. */
    void (*trial_alias_allocations)(size_t bytes, size_t period);
    /* Whether `bytes` more fit the budget, now or after reclaim. If they do not fit, nothing is reclaimed for them. */
    int (*trial_room)(size_t bytes);
    /* The same for a kernel's own copy of a weight, which is a tensor, and may have a planned place. */
    int (*copy_room)(size_t bytes);
    /* Called like slices_offer: copies n rows of row_bytes each to `out`, in this order. Row 0 is at `first`, and all
     * `count` rows lie inside args[arg], whose `rows` is not 0. 0: not done, and the weight's own address serves; or a
     * row number is out of range. The row numbers may change meanwhile; each is read once. */
    int (*rows_copy)(struct swn_op *op, unsigned arg, uintptr_t first, size_t row_bytes, size_t count,
                     const int64_t *rows, size_t n, void *out);
    /* Called like slices_offer, for an argument whose use is SWN_USE_EXPERTS: the operator is going to read these
     * experts. A hint, like expert_lend: what is read besides comes through the weight's mapping. */
    void (*experts_begin)(struct swn_op *op, unsigned arg, const struct swn_experts *experts);
    /* Waits for `bytes` at `at`, an expert of that argument, or a part of one; they stay in place until the next call
     * or op_end. */
    void (*expert_lend)(struct swn_op *op, unsigned arg, uintptr_t at, size_t bytes);
    /* Called like slices_offer: the kernel overwrites args[arg], and can make its new bytes in pieces of at most *piece
     * bytes, front to back. NULL: it should write to the tensor's own address. */
    struct swn_fill *(*fill_begin)(struct swn_op *op, unsigned arg, size_t *piece);
    /* The memory for the next `bytes`; the bytes of the call before are made. */
    void *(*fill_next)(struct swn_fill *fill, size_t bytes);
    /* made 1: all bytes are made. 0: no more will be made, and those of the last call are not. Waits until the bytes
     * are in place. */
    void (*fill_end)(struct swn_fill *fill, int made);
};

/* Tensors on devices: skeleton/device. */
struct swn_device_services {
    /* Devices that share the host's memory (skeleton/device/unified.h). The current device is the one that a call
     * names. */
    enum swn_device_type type; /* NONE: none of the functions below is called */
    /* enum swn_way for the CPU tensor of which all bytes are [data, data + bytes). parameter: it seems to be a model's
     * parameter, and not a buffer that the program fills again and again. */
    int (*way)(int device, uintptr_t data, size_t bytes, int parameter);
    /* Whether the program itself has registered this memory with the driver: then the device may only get a copy. */
    int (*programs)(uintptr_t data);
    /* Makes the bytes known to the device, or fills a buffer with them: *address is their address for the device. Until
     * device_close no thread may write or free them, except that a buffer no longer depends on them. NULL: impossible.
     */
    struct swn_device_memory *(*open)(int device, enum swn_way way, uintptr_t data, size_t bytes, void **address);
    /* Whether the bytes may come and go, so that operators that read them there have to be announced. */
    int (*streams)(const struct swn_device_memory *memory);
    /* 0: the device no longer uses the bytes, and they may be written and freed; -errno or a negated cudaError_t: they
     * never may. 1: a thread of the engine will call later(owner, 0 or such an error), as the device is busy, or a
     * capture is under way. No lock may be held; any device may be current. */
    int (*close)(struct swn_device_memory *memory, void (*later)(void *owner, int err), void *owner);
    /* Whether the memory comes and goes, so that its address is valid for an operator only between `begin` and `end`.
     * `stream` is the cudaStream_t on which this thread's operator launches, and all of these are on its device. */
    int (*swaps)(const struct swn_device_memory *memory);
    /* Waits until all memory is in place, at addresses[i]. Not 0: it is not, and each tensor must get other memory. */
    int (*begin)(struct swn_device_memory *const *memory, unsigned n, void *stream, void **addresses, int *captured);
    void (*end)(struct swn_device_memory *const *memory, unsigned n, void *stream, int captured);
    /* Whether launches on the stream are captured into a graph. */
    int (*capturing)(void *stream);
    /* Whether a capture is under way anywhere, so that no thread may wait for a device. */
    int (*held_up)(void);
    /* `bytes` that came and went got other memory for good, as this operator (NULL: the engine) could not use memory
     * that comes and goes. */
    void (*kept)(size_t bytes, const char *operator_name);
    /* The address of memory that comes and goes, but stays because `begin` captured it into a graph; NULL: it does not
     * stay. */
    void *(*stays)(const struct swn_device_memory *memory);
    /* Streamed memory stays from now on: that for [data, data + bytes), as a graph has their address. 0 or -errno.
     */
    int (*pin)(struct swn_device_memory *memory, uintptr_t data, size_t bytes);
    /* Between a call with 1 and one with 0, this thread's calls end no capture, and no capture refuses them. */
    void (*aside)(int begins);
    /* Installs the operator hook, if it is not installed yet. 1: it is installed. */
    int (*watch)(void);
    /* Counts the bytes that came to the device without a copy (`elided`), and by a copy (`copied`). */
    void (*moved)(size_t elided, size_t copied);
    /* Prints that from now on everything is copied, as code bypasses PyTorch's operators. */
    void (*given_up)(void);
    /* Prints once that nothing is shared with devices, and why. */
    void (*refused)(const char *why);
    /* Ends the program: it is about to use bytes ("a weight that ...") for which there is no memory of their own. */
    void (*lost)(const char *what, const char *why);
};

struct swn_runtime_services {
    uint32_t abi;
    uintptr_t lo, hi;        /* tensors of interest lie here */
    const uintptr_t *mapped; /* or between these two addresses, which change */
    int count_flops;
    void (*op_begin)(struct swn_op *op);
    void (*op_end)(struct swn_op *op);
    /* Called like slices_offer: memory in which the kernel is to make all of args[arg], which it overwrites, before any
     * of it is visible there. NULL: the kernel should write to the tensor's own address. */
    void *(*afresh_begin)(struct swn_op *op, unsigned arg);
    /* The kernel has made the bytes, or has failed (made 0). */
    void (*afresh_end)(struct swn_op *op, unsigned arg, int made);
    struct swn_tiling_services tiling;
    struct swn_device_services device;
};

/* A tensor that an operator returned or wrote, or a number that it returned. */
struct swn_result {
    const char *type; /* "float", "long int", ..., static; "scalar": of 8 bytes */
    const void *data; /* the first element; NULL: its bytes cannot be read */
    size_t item_bytes;
    size_t dims;
    const int64_t *sizes, *strides; /* of each dimension, in elements */
};

/* The symbol `swn_aten_backend` of aten-X.Y.so. */
struct swn_torch_backend {
    uint32_t abi;
    /* 0, or a static text with the reason why this PyTorch is refused. Called once, before all other functions. */
    const char *(*attach)(const struct swn_runtime_services *host);
    /* Installs the operator hook. Allocates tensors: the caller holds no lock. 0, or a static text as above. */
    const char *(*enable)(void);
    /* Removes the operator hook (0), or puts it back. Operators that are under way end as they began. Allocates no
     * tensors: the caller may hold the engine's lock. 0 or -1. */
    int (*watching)(int on);
    /* Puts kernels before PyTorch's copies to and from host->device_type. As above. */
    const char *(*enable_device)(void);
    /* Calls `result` for every result of every outermost operator from now on, in the operator's own thread. As above.
     * `op` is valid during the call. */
    const char *(*watch)(void (*result)(const char *op, const struct swn_result *result));
    void (*raise_oom)(size_t bytes); /* throws */
    /* Bytes of the device's memory that PyTorch has taken and no tensor uses; 0 where that is unknown. */
    size_t (*device_idle)(int device);
    /* Makes PyTorch give those bytes back to the device, as far as it can. */
    void (*device_trim)(int device);
    /* Storages of a device stop sharing bytes with storages of the processor in [data, data + bytes), as the program
     * will let a device write there: they get memory of PyTorch's. No lock held. */
    void (*device_part)(uintptr_t data, size_t bytes);
    const char *version; /* "1.13.0", of the headers of the build */
};

#ifdef __cplusplus
}
#endif
#endif
