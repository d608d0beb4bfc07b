// Operators that look up rows of a weight which is not in memory. They read only those rows, and copy them unchanged,
// or work on a small weight with just those rows, so the bits are the same for every type.
#ifndef SWN_SHIM_TORCH_KERNEL_INDEX_H
#define SWN_SHIM_TORCH_KERNEL_INDEX_H

#include <ATen/core/DimVector.h>
#include <ATen/core/Tensor.h>
#include <torch/library.h>

#include "shim/torch/compat.h"
#include "skeleton/abi/abi.h"

// Whether the running operator looks up rows of this weight, and part of the weight is not in memory.
bool swn_rows_away(const at::Tensor &weight);

// The numbers of an index tensor, during the object's life; none where it is not a plain index.
class swn_numbers
{
  public:
    explicit swn_numbers(const at::Tensor &index);
    operator at::IntArrayRef() const
    {
        return numbers_;
    }
    const int64_t *begin() const
    {
        return numbers_.begin();
    }
    const int64_t *end() const
    {
        return numbers_.end();
    }

  private:
    at::Tensor held_;
    at::IntArrayRef numbers_;
};

// A tensor of `sizes` with these rows of the weight, which the running operator looks up. Undefined where PyTorch has
// to do the look-up, or to report an error.
at::Tensor swn_look_up(const at::Tensor &weight, at::IntArrayRef rows, at::IntArrayRef sizes);

// Puts these kernels before PyTorch's own at the CPU key.
void swn_rows_register(torch::Library &library); // shim/torch/kernel_index.cpp: index_select, index, gather
void swn_bags_register(torch::Library &library); // shim/torch/kernel_embedding_bag.cpp: embedding_bag

#endif
