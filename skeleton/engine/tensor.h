/* skeleton/engine/tensor.h - the runtime's data about the tensor in a range of the arena.
 *
 * It lies in the range's own descriptor, is zero when the range begins, and is guarded by the engine's lock.
 */
#ifndef SWN_SKELETON_ENGINE_TENSOR_H
#define SWN_SKELETON_ENGINE_TENSOR_H

#include "blocks/memory/arena.h"

struct swn_activation_plan;
struct swn_pending_write;

/* The history of slicing a weight, see skeleton/tiling/slice.c. */
struct swn_slicing {
    unsigned refused; /* rises with each operator that could not use the weight's slices, falls with one that could */
    int accepted;     /* an operator could use them since the last look */
    uint64_t plan;    /* the plan from which on its slices follow slice_unit: until then neither counts */
    uint64_t given_up_for; /* the recurring shape that has the right bits in no slices; 0: none */
    unsigned others;       /* operators of other shapes since then, */
    unsigned patience;     /* and how many of them before slices are tried again */
    uint64_t budget;       /* the budget in which it was given up, or got longer slices; 0: neither */
};

/* A mixture: a weight of which operators read experts, see skeleton/engine/experts.h; count 0: it is none. */
struct swn_mixture {
    uintptr_t first;
    size_t each, count;
    unsigned follows; /* how many times in a row its experts had the numbers of the mixture read before it */
    unsigned reads;   /* since the epoch began */
    uint32_t epoch;
};

struct swn_tensor {
    /* how it is used */
    uint64_t alloc_seq, last_use; /* in outermost operators */
    int readers;                  /* running operators that read it at its own address */
    int untouched;                /* resident, and not written since it got its address without any page */
    int written;                  /* mutated by an operator after it had been read as a weight */
    int io_failed;                /* a fetch failed for good: served by the mapping */
    uint32_t aged_reads;
    uint32_t evicted_reads;                  /* reads as an operator's input while it was not resident */
    int recalled;                            /* becomes resident as soon as the plan has room for it */
    struct swn_pending_write *pending_write; /* its bytes are being written (skeleton/core/write_behind.h), or NULL */

    /* pages of it that a driver or the kernel uses, see skeleton/core/held_pages.h */
    int registered; /* how often its pages have been given to a device's driver or the kernel */
    int held;       /* one of these is the kernel, which never gives them back (skeleton/core/kernel_holds.h) */
    int orphaned;   /* freed, and gone as soon as nothing of it is registered any more */
    int on_device;  /* number of devices that have its pages from the engine */

    /* its place in the record of its thread's passes (skeleton/activations/activation_plan.c), or NULL */
    struct swn_activation_plan *places;
    uint64_t alloc_pass;
    uint32_t alloc_index;

    /* a weight that its operator can take in slices, see skeleton/tiling/slice.c */
    size_t slice_unit; /* slices are multiples of this many bytes; 0: only whole */
    int sliced;        /* the part that is not in memory is lent slice by slice */
    size_t slice;      /* bytes of each slice but the last */
    struct swn_slicing slicing;

    struct swn_mixture mixture;
};

static inline struct swn_tensor *swn_tensor_of(const struct swn_range *r)
{
    return (struct swn_tensor *)(uintptr_t)r->tensor;
}

#endif
