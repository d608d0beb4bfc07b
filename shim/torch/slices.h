// Operators that take their weight slice by slice along the output dimension (FlexNN 3.2), so that a layer need not be
// in memory as a whole.
//
// A slice of rows of the weight gives a slice of one dimension of the result. Whether it has the same bits as the whole
// depends on the math library, so a trial comes first (shim/torch/trials.h): with the same shapes, strides, cuts and
// threads, on random numbers, in memory that maps a few MiB over and over. An operator that fails the trial is computed
// whole; the engine decides what that means for later operators (skeleton/tiling/slice.c).
//
// A weight that is multiplied untransposed, [k, n], has rows along the dimension of the sum: its slices give parts that
// add up to the result (`summed`). A math library also computes such a sum in blocks of rows, and adds each block to
// the sum so far, so slices of whole blocks have the bits of the whole.
//
// A weight may be some rows of a larger tensor (the projections of an attention layer, the experts of a mixture): then
// the slices are those of the larger tensor, and only slices with such rows are fetched.
#ifndef SWN_SHIM_TORCH_SLICES_H
#define SWN_SHIM_TORCH_SLICES_H

#include <ATen/core/DimVector.h>
#include <ATen/core/Tensor.h>
#include <ATen/record_function.h>
#include <torch/library.h>

#include <algorithm>
#include <array>
#include <optional>
#include <utility>

#include "skeleton/abi/abi.h"

// The running operator of this thread, or nullptr where none was announced. In shim/torch/op_hook.cpp.
swn_op *swn_current_op();

// The numbers that identify a trial.
class swn_key
{
  public:
    void add(int64_t number)
    {
        if (n_ < at_.size())
            at_[n_] = number;
        n_++;
    }
    void add(at::IntArrayRef numbers)
    {
        for (int64_t number : numbers)
            add(number);
        add(-1);
    }
    // false: there were more numbers than there is room for.
    bool complete() const
    {
        return n_ <= at_.size();
    }
    const int64_t *begin() const
    {
        return at_.data();
    }
    const int64_t *end() const
    {
        return at_.data() + std::min(n_, at_.size());
    }

  private:
    std::array<int64_t, 256> at_;
    size_t n_ = 0;
};

// One operator with its arguments, which outlive it. A row of the weight gives an equal share of one dimension of the
// result: it is a row of a matrix, a channel or a group of channels, or a matrix of a batch.
class swn_sliced
{
  public:
    virtual ~swn_sliced() = default;
    // Adds all that the bits may depend on, except for the members below, the numbers, the cuts, the threads and
    // PyTorch's settings.
    virtual void add_to(swn_key &key) const = 0;
    // The share of `count` rows from `row` on, which are at `rows_at`. `from` is the input, or its substitute in a
    // trial.
    virtual at::Tensor part_of(const at::Tensor &from, const void *rows_at, int64_t row, int64_t count) const = 0;
    // For a `summed` operator: adds the share of rows that are not the first ones to that of the rows before.
    virtual void add_part(at::Tensor &, const at::Tensor &, const void *, int64_t, int64_t) const
    {
    }
    // Computes the share of these rows into the result `out`. Parts come in order.
    void put_part(at::Tensor &out, const at::Tensor &from, const void *rows_at, int64_t row, int64_t count) const
    {
        if (!summed)
            out.narrow(dim, row * width, count * width).copy_(part_of(from, rows_at, row, count));
        else if (row)
            add_part(out, from, rows_at, row, count);
        else
            out = part_of(from, rows_at, row, count);
    }

    const at::Tensor &input, &weight;
    const at::ScalarType type; // of all tensors
    const int64_t rows;        // of the weight, of row_bytes each, one behind the other
    const size_t row_bytes;
    const at::DimVector sizes;     // of the contiguous result
    const int64_t dim;             // of the result
    const int64_t width;           // a row's share of it
    const bool doubtful;           // the argument may also be an activation
    const int64_t block;           // rows that kernels compute with at once, in registers and vectors
    const bool copied;             // kernels may first copy all of the weight into an order of their own
    const bool summed;             // each row contributes to all of the result; dim, width and block are unused
    mutable bool observed = false; // the next part's kernel is to be seen by observers

  protected:
    swn_sliced(const at::Tensor &input_, const at::Tensor &weight_, int64_t rows_, at::DimVector sizes_, int64_t dim_,
               bool doubtful_, int64_t block_, bool copied_, bool summed_ = false)
        : input(input_), weight(weight_), type(weight_.scalar_type()), rows(rows_),
          row_bytes(weight_.nbytes() / static_cast<size_t>(rows_)), sizes(std::move(sizes_)), dim(dim_),
          width(sizes[static_cast<size_t>(dim_)] / rows_), doubtful(doubtful_), block(block_), copied(copied_),
          summed(summed_)
    {
    }
};

// Around the kernel that computes a part, where observers are to see the operators that the kernel calls: of all parts
// of one operator only the first one's.
class swn_part_kernel
{
  public:
    explicit swn_part_kernel(const swn_sliced &what)
    {
        if (what.observed)
            seen_.emplace(true);
        what.observed = false;
    }

  private:
    std::optional<at::RecordFunctionGuard> seen_;
};

// The number of rows of a matrix, or of channels, that vector units and the blocks of math libraries are made for: 8 or
// 16 floats a register, and blocks of 4 to 16 rows.
constexpr int64_t swn_block = 16;

// Whether the tensor is a weight that may be large enough to be sliced, or a part of one.
bool swn_sliceable(const at::Tensor &weight);

// Whether products of that type are rounded, so that a trial makes sense.
bool swn_computed(at::ScalarType type);

// Whether the tensor lies in memory as its sizes say, one row behind the other, also in dimensions of size 1, whose
// strides PyTorch considers.
bool swn_plainly_laid_out(const at::Tensor &tensor);

// Adds to the key what the bits may depend on in a tensor that is added to a product, and in the product's factors.
void swn_add_bias(swn_key &key, const at::Tensor *bias, const at::Scalar &beta, const at::Scalar &alpha);

// Computes the result in slices. An undefined tensor: it has to be computed whole.
at::Tensor swn_compute_in_slices(const swn_sliced &what);

// Puts these kernels before PyTorch's own at the CPU key.
void swn_products_register(torch::Library &library); // shim/torch/kernel_matmul.cpp: addmm, mm, addmv, mv
void swn_batches_register(torch::Library &library);  // shim/torch/kernel_bmm.cpp: baddbmm, bmm
void swn_convs_register(torch::Library &library);    // shim/torch/kernel_conv.cpp: convolution

#endif
