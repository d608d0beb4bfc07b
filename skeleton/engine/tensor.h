/* skeleton/engine/tensor.h - what the runtime knows of the tensor that a range of the arena holds.
 *
 * It lies in the range's own descriptor, is zero when the range begins, and is guarded by the engine's lock.
 */
#ifndef SWN_SKELETON_ENGINE_TENSOR_H
#define SWN_SKELETON_ENGINE_TENSOR_H

#include "blocks/memory/arena.h"

struct swn_activation_plan;
struct swn_pending_write;

/* The record of taking a weight in slices, see skeleton/tiling/slice.c. */
struct swn_slicing {
    unsigned refused;      /* more with each operator that could not have it in its slices, less with one that could */
    int accepted;          /* there was one that could since that was last looked at */
    uint64_t plan;         /* from which on its slices are as its slice_unit says: until then neither counts */
    uint64_t given_up_for; /* the shape that keeps coming and has the right bits in no slices; 0: none */
    unsigned others;       /* operators of other shapes since then, */
    unsigned patience;     /* and after how many it is tried again */
    uint64_t budget;       /* for which it was given up, or given longer slices; 0: neither */
};

struct swn_tensor {
    /* how it is used */
    uint64_t alloc_seq, last_use; /* in outermost operators */
    int readers;                  /* running operators that read it at its own address */
    int untouched; /* resident, and nothing has been written since it got pages that none was made of yet */
    int written;   /* mutated by an operator after it had been read as a weight */
    int io_failed; /* a fetch failed for good: served by the mapping */
    uint32_t aged_reads;
    uint32_t evicted_reads;                  /* as an operator's input, while it was not resident */
    int recalled;                            /* becomes resident as soon as the plan has room for it */
    struct swn_pending_write *pending_write; /* its bytes are being written (skeleton/core/write_behind.h), or NULL */

    /* pages of it that a driver or the kernel uses, see skeleton/core/held_pages.h */
    int registered; /* how often its pages have been given to a device's driver or the kernel */
    int held;       /* one of these is the kernel, which never gives them back (skeleton/core/kernel_holds.h) */
    int orphaned;   /* it is freed, and will be gone when nothing of it is registered any more */
    int on_device;  /* number of devices that have its pages from the engine */

    /* where it is in the record of its thread's passes (skeleton/activations/activation_plan.c), or NULL */
    struct swn_activation_plan *places;
    uint64_t alloc_pass;
    uint32_t alloc_index;

    /* a weight that its operator can take in slices, see skeleton/tiling/slice.c */
    size_t slice_unit; /* slices are multiples of this many bytes; 0: only whole */
    int sliced;        /* what of it is not in memory is asked for slice by slice */
    size_t slice;      /* bytes of each slice but the last */
    struct swn_slicing slicing;
};

static inline struct swn_tensor *swn_tensor_of(const struct swn_range *r)
{
    return (struct swn_tensor *)(uintptr_t)r->tensor;
}

#endif
