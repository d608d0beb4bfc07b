// Operators that take their weight slice by slice along the output dimension (FlexNN 3.2), so that a layer need not be
// in memory as a whole.
//
// A slice of rows of the weight gives a slice of dimension 1 of the result. Whether that has the same bits as the whole
// is a property of the math library, so it is tried before it is relied on: with the same shapes, the same cuts and as
// many threads, on random numbers, in memory that is a few MiB mapped over and over. An operator that fails is computed
// whole, through the mapping.
#ifndef SWN_ATEN_SLICES_H
#define SWN_ATEN_SLICES_H

#include <ATen/ATen.h>
#include <torch/library.h>

#include <cstring>
#include <vector>

#include "swn_aten.h"

// The operator this thread is in, or nullptr where none was announced. In aten.cpp.
swn_op *swn_current_op();

// One operator with its arguments.
class swn_sliced
{
  public:
    virtual ~swn_sliced() = default;
    // All that the bits may depend on, but the numbers, the cuts and the threads.
    virtual std::vector<int64_t> key() const = 0;
    // The trial; `slices` are bytes of the weight.
    virtual bool same_in_slices(const std::vector<size_t> &slices) const = 0;
    virtual at::Tensor result() const = 0; // memory for it
    // Dimension 1 of it from `row` on, of `rows` rows of the weight, which are at `from`.
    virtual at::Tensor part(const void *from, int64_t row, int64_t rows) const = 0;
};

// Memory that reads as random numbers of one type, as much as is asked for, out of a few MiB.
class swn_random
{
  public:
    swn_random(size_t bytes, at::ScalarType type);
    swn_random(const swn_random &) = delete;
    ~swn_random();
    // nullptr: there is no memory.
    char *base() const
    {
        return base_;
    }

  private:
    size_t size_;
    char *base_ = nullptr;
};

bool swn_same_bits(const at::Tensor &a, const at::Tensor &b);

// Whether the tensor is a weight that may be large enough to be sliced, and fills its storage.
bool swn_sliceable(const at::Tensor &weight);

// Does it, or says so with an undefined tensor: it has to be computed whole. The weight has rows of row_bytes, one
// behind the other.
at::Tensor swn_compute_in_slices(const at::Tensor &weight, size_t row_bytes, const swn_sliced &what);

// `host` is borrowed for ever.
void swn_slices_begin(const swn_host *host);

// Put their kernels in front of PyTorch's own at the CPU key.
void swn_products_register(torch::Library &library); // aten_products.cpp: addmm, mm
void swn_convs_register(torch::Library &library);    // aten_convs.cpp: convolution

#endif
