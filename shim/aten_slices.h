// Operators that take their weight slice by slice along the output dimension (FlexNN 3.2), so that a layer need not be
// in memory as a whole.
//
// A slice of rows of the weight gives a slice of one dimension of the result. Whether that has the same bits as the
// whole is a property of the math library, so it is tried before it is relied on: with the same shapes, strides and
// cuts and as many threads, on random numbers, in memory that is a few MiB mapped over and over. An operator that fails
// is computed whole, through the mapping.
//
// A weight may be some rows of a larger tensor (the projections of an attention layer, the experts of a mixture): then
// the slices are that tensor's, and only those are fetched in which such rows lie.
#ifndef SWN_ATEN_SLICES_H
#define SWN_ATEN_SLICES_H

#include <ATen/core/Tensor.h>
#include <torch/library.h>

#include <utility>
#include <vector>

#include "swn_aten.h"

// The operator this thread is in, or nullptr where none was announced. In aten.cpp.
swn_op *swn_current_op();

// One operator with its arguments, which outlive it. A row of the weight is what gives an equal share of one dimension
// of the result: a row of a matrix, a channel or a group of them, a matrix of a batch.
class swn_sliced
{
  public:
    virtual ~swn_sliced() = default;
    // All that the bits may depend on, but what is below, the numbers, the cuts, the threads and PyTorch's settings.
    virtual std::vector<int64_t> key() const = 0;
    // The share of `count` rows from `row` on, which are at `rows_at`. `from` is the input, or in a trial what stands
    // for it.
    virtual at::Tensor part_of(const at::Tensor &from, const void *rows_at, int64_t row, int64_t count) const = 0;

    const at::Tensor &input, &weight;
    const at::ScalarType type; // of all of them
    const int64_t rows;        // of the weight, of row_bytes each, one behind the other
    const size_t row_bytes;
    const std::vector<int64_t> sizes; // of the result, which is contiguous
    const int64_t dim;                // of the result
    const int64_t width;              // a row's share of it
    const bool doubtful;              // activations are used in this place as well

  protected:
    swn_sliced(const at::Tensor &input_, const at::Tensor &weight_, int64_t rows_, std::vector<int64_t> sizes_,
               int64_t dim_, bool doubtful_)
        : input(input_), weight(weight_), type(weight_.scalar_type()), rows(rows_),
          row_bytes(weight_.nbytes() / static_cast<size_t>(rows_)), sizes(std::move(sizes_)), dim(dim_),
          width(sizes[static_cast<size_t>(dim_)] / rows_), doubtful(doubtful_)
    {
    }
};

// Whether the tensor is a weight that may be large enough to be sliced, or a part of one.
bool swn_sliceable(const at::Tensor &weight);

// Whether it lies in memory as its sizes say, one row behind the other, also in dimensions of size 1: PyTorch goes by
// what the strides suggest.
bool swn_plainly_laid_out(const at::Tensor &tensor);

// What of a tensor that is added to a product, and of its factors, the bits may depend on.
void swn_add_bias(std::vector<int64_t> &key, const at::Tensor *bias, const at::Scalar &beta, const at::Scalar &alpha);

// Does it, or says so with an undefined tensor: it has to be computed whole.
at::Tensor swn_compute_in_slices(const swn_sliced &what);

// `host` is borrowed for ever.
void swn_slices_begin(const swn_host *host);

// Around a fork, in the thread that forks.
void swn_slices_before_fork();
void swn_slices_after_fork(); // in both processes

// Put their kernels in front of PyTorch's own at the CPU key.
void swn_products_register(torch::Library &library); // aten_products.cpp: addmm, mm, addmv, mv
void swn_batches_register(torch::Library &library);  // aten_batches.cpp: baddbmm, bmm
void swn_convs_register(torch::Library &library);    // aten_convs.cpp: convolution

#endif
