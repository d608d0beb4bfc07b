// shim/torch/kernel_bmm.cpp - batched products, computed in slices.
#include <ATen/ops/baddbmm_cpu_dispatch.h>
#include <ATen/ops/bmm_cpu_dispatch.h>
#include <ATen/ops/from_blob.h>

#include "shim/torch/tensor_checks.h"
#include "shim/torch/slices.h"

namespace
{

// A batch of matrices by a batch of weights (the experts of a mixture): some of the weights give some matrices of the
// result.
struct Batch : swn_sliced {
    const at::Tensor *bias; // nullptr: none
    const at::Scalar &beta, &alpha;
    const bool left; // the weight is the first factor

    Batch(const at::Tensor *bias_, const at::Tensor &batch1, const at::Tensor &batch2, const at::Scalar &beta_,
          const at::Scalar &alpha_, bool left_)
        : swn_sliced(left_ ? batch2 : batch1, left_ ? batch1 : batch2, batch1.size(0),
                     {batch1.size(0), batch1.size(1), batch2.size(2)}, 0, true, 1, false),
          bias(bias_), beta(beta_), alpha(alpha_), left(left_)
    {
    }

    at::Tensor part_of(const at::Tensor &from, const void *rows_at, int64_t row, int64_t count) const override
    {
        at::Tensor some = at::from_blob(const_cast<void *>(rows_at), {count, weight.size(1), weight.size(2)},
                                        weight.strides(), at::dtype(type));
        at::Tensor other = from.narrow(0, row, count);
        const at::Tensor &a = left ? some : other, &b = left ? other : some;
        at::Tensor add;
        if (bias)
            add = bias->dim() == 3 && bias->size(0) == rows ? bias->narrow(0, row, count) : *bias;
        swn_part_kernel kernel(*this);
        if (!bias)
            return at::cpu::bmm(a, b);
        return at::cpu::baddbmm(add, a, b, beta, alpha);
    }

    void add_to(swn_key &key) const override
    {
        key.add({3, left});
        key.add(weight.strides());
        swn_add_bias(key, bias, beta, alpha);
    }
};

// Whether the tensor is a batch of whole matrices, one behind the other, each plain or transposed.
bool batch_of_weights(const at::Tensor &tensor)
{
    return swn_sliceable(tensor) && tensor.size(0) > 1 &&
           (swn_plainly_laid_out(tensor) || swn_plainly_laid_out(tensor.transpose(1, 2)));
}

bool batch_fits(const at::Tensor *bias, const at::Tensor &batch1, const at::Tensor &batch2)
{
    auto type = batch1.scalar_type();
    if (batch1.dim() != 3 || batch2.dim() != 3 || !swn_simple(batch1, type) || !swn_simple(batch2, type) ||
        batch1.size(0) != batch2.size(0) || batch1.size(2) != batch2.size(1) || !batch1.numel() || !batch2.numel())
        return false;
    if (!bias)
        return true;
    const int64_t sizes[] = {batch1.size(0), batch1.size(1), batch2.size(2)};
    if (!swn_simple(*bias, type) || bias->dim() > 3)
        return false;
    for (int64_t i = 0; i < bias->dim(); i++)
        if (bias->size(i) != 1 && bias->size(i) != sizes[3 - bias->dim() + i])
            return false;
    return true;
}

// Returns an undefined tensor where the product has to be computed whole.
at::Tensor batch_in_slices(const at::Tensor *bias, const at::Tensor &batch1, const at::Tensor &batch2,
                           const at::Scalar &beta, const at::Scalar &alpha)
{
    if (!batch_fits(bias, batch1, batch2) || beta.isComplex() || alpha.isComplex())
        return {}; // PyTorch reports the error
    if (batch_of_weights(batch2))
        return swn_compute_in_slices(Batch(bias, batch1, batch2, beta, alpha, false));
    if (batch_of_weights(batch1))
        return swn_compute_in_slices(Batch(bias, batch1, batch2, beta, alpha, true));
    return {};
}

at::Tensor baddbmm_kernel(const at::Tensor &self, const at::Tensor &batch1, const at::Tensor &batch2,
                          const at::Scalar &beta, const at::Scalar &alpha)
{
    at::Tensor out = batch_in_slices(&self, batch1, batch2, beta, alpha);
    return out.defined() ? out : at::cpu::baddbmm(self, batch1, batch2, beta, alpha);
}

at::Tensor bmm_kernel(const at::Tensor &self, const at::Tensor &mat2)
{
    at::Tensor out = batch_in_slices(nullptr, self, mat2, 1, 1);
    return out.defined() ? out : at::cpu::bmm(self, mat2);
}

} // namespace

void swn_batches_register(torch::Library &library)
{
    library.impl("baddbmm", baddbmm_kernel);
    library.impl("bmm", bmm_kernel);
}
