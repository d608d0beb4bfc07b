// Random numbers for a tensor that is larger than the budget, made piece by piece: see skeleton/tiling/fill.h. A trial
// first shows whether pieces get the same numbers as the whole, in the same bits, and leave the generator in the same
// state.
#ifndef SWN_SHIM_TORCH_KERNEL_RANDOM_H
#define SWN_SHIM_TORCH_KERNEL_RANDOM_H

#include <torch/library.h>

#include <functional>

#include "skeleton/abi/abi.h"

// A kernel calls this when PyTorch has nothing left to refuse: announces the running operator, which overwrites all of
// self, if it is not announced yet. In shim/torch/op_hook.cpp, as is the next one.
void swn_announce(const at::Tensor &self);

// make(to) writes all of `to`: self, or memory that becomes self's afterwards (skeleton/core/overwrite.h). Throws what
// `make` throws.
void swn_make_afresh(at::Tensor &self, const std::function<void(at::Tensor &)> &make);

// Puts normal_ and uniform_ in front of PyTorch's own at the CPU key.
void swn_fills_register(torch::Library &library);

#endif
