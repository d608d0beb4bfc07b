// Operators that take their weight slice by slice along the output dimension (FlexNN 3.2), so that a layer need not be
// in memory as a whole.
//
// A slice of rows of the weight gives a slice of dimension 1 of the result. Whether that has the same bits as the whole
// is a property of the math library, so it is tried before it is relied on: with the same shapes, the same cuts and as
// many threads, on random numbers, in memory that is a few MiB mapped over and over. An operator that fails is computed
// whole, through the mapping.
#ifndef SWN_ATEN_SLICES_H
#define SWN_ATEN_SLICES_H

#include <ATen/core/Tensor.h>
#include <torch/library.h>

#include <utility>
#include <vector>

#include "swn_aten.h"

// The operator this thread is in, or nullptr where none was announced. In aten.cpp.
swn_op *swn_current_op();

// One operator with its arguments, which outlive it.
class swn_sliced
{
  public:
    virtual ~swn_sliced() = default;
    // All that the bits may depend on, but the numbers, the cuts and the threads.
    virtual std::vector<int64_t> key() const = 0;
    // Dimension 1 of the result from `row` on, of `count` rows of the weight, which are at `rows_at`. `from` is the
    // input, or in a trial what stands for it.
    virtual at::Tensor part_of(const at::Tensor &from, const void *rows_at, int64_t row, int64_t count) const = 0;

    const at::Tensor &input;
    const at::ScalarType type; // of all of them
    const int64_t rows;        // of the weight, of row_bytes each, one behind the other
    const size_t row_bytes;
    const std::vector<int64_t> sizes; // of the result, which is contiguous

  protected:
    swn_sliced(const at::Tensor &input_, const at::Tensor &weight, int64_t rows_, std::vector<int64_t> sizes_)
        : input(input_), type(weight.scalar_type()), rows(rows_),
          row_bytes(weight.nbytes() / static_cast<size_t>(rows_)), sizes(std::move(sizes_))
    {
    }
};

// Whether the tensor is a weight that may be large enough to be sliced, and fills its storage.
bool swn_sliceable(const at::Tensor &weight);

// Does it, or says so with an undefined tensor: it has to be computed whole.
at::Tensor swn_compute_in_slices(const at::Tensor &weight, const swn_sliced &what);

// `host` is borrowed for ever.
void swn_slices_begin(const swn_host *host);

// Put their kernels in front of PyTorch's own at the CPU key.
void swn_products_register(torch::Library &library); // aten_products.cpp: addmm, mm
void swn_convs_register(torch::Library &library);    // aten_convs.cpp: convolution

#endif
