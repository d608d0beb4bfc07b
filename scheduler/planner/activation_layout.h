/* scheduler/planner/activation_layout.h - where the tensors of one pass lie, when all tensors and their lifetimes are
 * known in advance.
 *
 * A pass allocates the same tensors in the same order again and again (FlexNN 3.3). Time is counted in allocations: the
 * i-th tensor is born at i and is gone before the `dies`-th allocation is made. Passes follow one another, so a tensor
 * may live into the next one, where the count goes on: dies > n. Two tensors may have the same addresses if none is
 * born while the other lives.
 *
 * Pure functions of their arguments.
 */
#ifndef SWN_SCHEDULER_PLANNER_ACTIVATION_LAYOUT_H
#define SWN_SCHEDULER_PLANNER_ACTIVATION_LAYOUT_H

#include <stddef.h>
#include <stdint.h>

#define SWN_NOWHERE UINT64_MAX

struct swn_activation_tensor {
    uint64_t bytes;
    uint32_t dies; /* 0: not observed. Such a tensor, and one that outlives its own next birth, gets no place */
    uint64_t at;   /* out: offset of its first byte, or SWN_NOWHERE */
};

/* Gives every tensor that can have one a place, a multiple of `unit`; *extent is the end of the last place. The largest
 * tensor comes first and takes the lowest place. Then the tensor that ends highest moves to the front of the order, as
 * long as that lowers the extent. 0, or -ENOMEM. */
int swn_activation_layout_place(struct swn_activation_tensor *slots, size_t n, uint64_t unit, uint64_t *extent);

/* The most bytes that tensors with a place have at once, each rounded up to `unit`: a lower bound of the extent. */
uint64_t swn_activation_layout_peak(const struct swn_activation_tensor *slots, size_t n, uint64_t unit);

/* The lowest place from `least` up for `bytes` that no tensor needs from now, when `from` allocations of the pass have
 * been made, until `until` have been; counts above n belong to the next pass. `least` and the place are multiples of
 * `unit`. SWN_NOWHERE: `extent` has no such place. */
uint64_t swn_activation_layout_gap(const struct swn_activation_tensor *slots, size_t n, uint64_t unit, uint64_t extent,
                                   uint32_t from, uint32_t until, uint64_t least, uint64_t bytes);

#endif
