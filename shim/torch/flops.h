// Reads an operator's layer from its arguments: their sizes, for swn_flops, and small parameters.
#ifndef SWN_SHIM_TORCH_FLOPS_H
#define SWN_SHIM_TORCH_FLOPS_H

#include <ATen/core/ivalue.h>

#include "skeleton/abi/abi.h"
#include "profiles/flops.h"

// `use` is the operator's swn_use per argument. 0 where the arguments do not fit the kind.
uint64_t swn_flops_of(swn_flops_kind kind, const signed char *use, size_t uses,
                      c10::ArrayRef<const c10::IValue> inputs);

// Adds the parameters among the arguments that lie outside of [lo, hi), as small ones do. Where the operator's
// arguments do not tell parameters from activations, tensors that require gradients count.
void swn_small_add(swn_small &small, swn_flops_kind kind, const signed char *use, size_t uses,
                   c10::ArrayRef<const c10::IValue> inputs, uintptr_t lo, uintptr_t hi);

#endif
