// shim/torch/kernel_matmul.cpp - matrix products, computed in slices of their weight.
#include <ATen/ops/_addmm_activation_cpu_dispatch.h>
#include <ATen/ops/addmm_cpu_dispatch.h>
#include <ATen/ops/addmv_cpu_dispatch.h>
#include <ATen/ops/copy_native.h>
#include <ATen/ops/from_blob.h>
#include <ATen/ops/mm_cpu_dispatch.h>
#include <ATen/ops/mv_native.h>

#include "shim/torch/tensor_checks.h"
#include "shim/torch/slices.h"

namespace
{

at::Tensor slice_of(const swn_sliced &what, const void *rows_at, int64_t count)
{
    auto columns = static_cast<int64_t>(what.row_bytes / c10::elementSize(what.type));
    return at::from_blob(const_cast<void *>(rows_at), {count, columns}, at::dtype(what.type));
}

// A matrix times the transpose of a contiguous [n, k] weight, as in `linear`: a slice of rows of the weight gives a
// slice of columns of the result. With an untransposed weight on the left it gives a slice of rows.
enum Then { NOTHING, RELU, GELU }; // applied to each number of the result

struct Product : swn_sliced {
    const at::Tensor *bias; // nullptr: none
    const at::Scalar &beta, &alpha;
    const bool left;
    const Then then;

    Product(const at::Tensor *bias_, const at::Tensor &mat1, const at::Tensor &mat2, const at::Scalar &beta_,
            const at::Scalar &alpha_, bool left_, Then then_)
        : swn_sliced(left_ ? mat2 : mat1, left_ ? mat1 : mat2, left_ ? mat1.size(0) : mat2.size(1),
                     {mat1.size(0), mat2.size(1)}, left_ ? 0 : 1, left_, swn_block, false),
          bias(bias_), beta(beta_), alpha(alpha_), left(left_), then(then_)
    {
    }

    at::Tensor part_of(const at::Tensor &from, const void *rows_at, int64_t row, int64_t count) const override
    {
        at::Tensor slice = slice_of(*this, rows_at, count);
        at::Tensor a = left ? slice : from, b = left ? from : slice.t(), add;
        int64_t at = bias ? bias->dim() - (left ? 2 : 1) : -1;
        if (bias)
            add = at >= 0 && bias->size(at) == rows ? bias->narrow(at, row, count) : *bias;
        swn_part_kernel kernel(*this);
        if (!bias)
            return at::cpu::mm(a, b);
        return then ? at::cpu::_addmm_activation(add, a, b, beta, alpha, then == GELU)
                    : at::cpu::addmm(add, a, b, beta, alpha);
    }

    void add_to(swn_key &key) const override
    {
        key.add({0, left, then});
        swn_add_bias(key, bias, beta, alpha);
    }
};

// A matrix times a contiguous, untransposed [k, n] weight: a slice of rows of the weight goes with a slice of columns
// of the matrix, and their products add up. For types of 4 bytes or more, the sum so far is rounded exactly as the
// library rounds its intermediate result.
struct Sum : swn_sliced {
    const at::Tensor *bias; // nullptr: none
    const at::Scalar &beta, &alpha;

    Sum(const at::Tensor *bias_, const at::Tensor &mat1, const at::Tensor &mat2, const at::Scalar &beta_,
        const at::Scalar &alpha_)
        : swn_sliced(mat1, mat2, mat2.size(0), {mat1.size(0), mat2.size(1)}, 1, true, 1, false, true), bias(bias_),
          beta(beta_), alpha(alpha_)
    {
    }

    at::Tensor part_of(const at::Tensor &from, const void *rows_at, int64_t row, int64_t count) const override
    {
        at::Tensor a = from.narrow(1, row, count), b = slice_of(*this, rows_at, count);
        swn_part_kernel kernel(*this);
        return bias ? at::cpu::addmm(*bias, a, b, beta, alpha) : at::cpu::mm(a, b);
    }

    void add_part(at::Tensor &sum, const at::Tensor &from, const void *rows_at, int64_t row,
                  int64_t count) const override
    {
        at::cpu::addmm_out(sum, sum, from.narrow(1, row, count), slice_of(*this, rows_at, count), 1, alpha);
    }

    void add_to(swn_key &key) const override
    {
        key.add({5, 0, 0});
        swn_add_bias(key, bias, beta, alpha);
    }
};

// A contiguous weight times a vector.
struct VectorProduct : swn_sliced {
    const at::Tensor *bias;
    const at::Scalar &beta, &alpha;

    VectorProduct(const at::Tensor *bias_, const at::Tensor &mat, const at::Tensor &vec, const at::Scalar &beta_,
                  const at::Scalar &alpha_)
        : swn_sliced(vec, mat, mat.size(0), {mat.size(0)}, 0, true, swn_block, false), bias(bias_), beta(beta_),
          alpha(alpha_)
    {
    }

    at::Tensor part_of(const at::Tensor &from, const void *rows_at, int64_t row, int64_t count) const override
    {
        at::Tensor slice = slice_of(*this, rows_at, count);
        at::Tensor add;
        if (bias)
            add = bias->dim() && bias->size(0) == rows ? bias->narrow(0, row, count) : *bias;
        swn_part_kernel kernel(*this);
        if (!bias)
            return at::native::mv(slice, from);
        return at::cpu::addmv(add, slice, from, beta, alpha);
    }

    void add_to(swn_key &key) const override
    {
        key.add(2);
        swn_add_bias(key, bias, beta, alpha);
    }
};

bool product_fits(const at::Tensor *bias, const at::Tensor &mat1, const at::Tensor &mat2)
{
    auto type = mat2.scalar_type();
    if (!swn_simple(mat1, type) || !swn_simple(mat2, type) || mat1.dim() != 2 || mat2.dim() != 2 ||
        mat1.size(1) != mat2.size(0) || !mat1.numel() || !mat2.numel())
        return false;
    if (!bias)
        return true;
    if (!swn_simple(*bias, type) || bias->dim() > 2)
        return false;
    int64_t m = mat1.size(0), n = mat2.size(1), d = bias->dim();
    return (d < 1 || bias->size(d - 1) == n || bias->size(d - 1) == 1) &&
           (d < 2 || bias->size(0) == m || bias->size(0) == 1);
}

// Returns an undefined tensor where the product has to be computed whole.
at::Tensor product_in_slices(const at::Tensor *bias, const at::Tensor &mat1, const at::Tensor &mat2,
                             const at::Scalar &beta, const at::Scalar &alpha, Then then = NOTHING)
{
    if (!product_fits(bias, mat1, mat2) || beta.isComplex() || alpha.isComplex())
        return {}; // PyTorch reports the error
    if (swn_sliceable(mat2) && mat2.stride(0) == 1 && mat2.stride(1) == mat2.size(0))
        return swn_compute_in_slices(Product(bias, mat1, mat2, beta, alpha, false, then));
    if (!then && swn_sliceable(mat2) && mat2.itemsize() >= 4 && swn_plainly_laid_out(mat2)) {
        at::Tensor out = swn_compute_in_slices(Sum(bias, mat1, mat2, beta, alpha));
        if (out.defined())
            return out;
    }
    if (swn_sliceable(mat1) && swn_plainly_laid_out(mat1))
        return swn_compute_in_slices(Product(bias, mat1, mat2, beta, alpha, true, then));
    return {};
}

at::Tensor vector_in_slices(const at::Tensor *bias, const at::Tensor &mat, const at::Tensor &vec,
                            const at::Scalar &beta, const at::Scalar &alpha)
{
    auto type = mat.scalar_type();
    if (mat.dim() != 2 || vec.dim() != 1 || mat.size(1) != vec.size(0) || !swn_simple(vec, type) ||
        !swn_sliceable(mat) || !swn_plainly_laid_out(mat) || beta.isComplex() || alpha.isComplex())
        return {};
    if (bias && (!swn_simple(*bias, type) || bias->dim() > 1 ||
                 (bias->dim() && bias->size(0) != mat.size(0) && bias->size(0) != 1)))
        return {};
    return swn_compute_in_slices(VectorProduct(bias, mat, vec, beta, alpha));
}

at::Tensor addmm_kernel(const at::Tensor &self, const at::Tensor &mat1, const at::Tensor &mat2, const at::Scalar &beta,
                        const at::Scalar &alpha)
{
    at::Tensor out = product_in_slices(&self, mat1, mat2, beta, alpha);
    return out.defined() ? out : at::cpu::addmm(self, mat1, mat2, beta, alpha);
}

at::Tensor addmm_activation_kernel(const at::Tensor &self, const at::Tensor &mat1, const at::Tensor &mat2,
                                   const at::Scalar &beta, const at::Scalar &alpha, bool use_gelu)
{
    at::Tensor out = product_in_slices(&self, mat1, mat2, beta, alpha, use_gelu ? GELU : RELU);
    return out.defined() ? out : at::cpu::_addmm_activation(self, mat1, mat2, beta, alpha, use_gelu);
}

at::Tensor mm_kernel(const at::Tensor &self, const at::Tensor &mat2)
{
    at::Tensor out = product_in_slices(nullptr, self, mat2, 1, 1);
    return out.defined() ? out : at::cpu::mm(self, mat2);
}

// Storages of numpy's arrays may be several over the same memory.
bool shares_memory(const at::Tensor &a, const at::Tensor &b)
{
    auto at = [](const at::Tensor &tensor) {
        return swn_has_own_storage(tensor) ? reinterpret_cast<uintptr_t>(tensor.storage().data_ptr().get()) : 0;
    };
    return at(a) < at(b) + b.storage().nbytes() && at(b) < at(a) + a.storage().nbytes();
}

// Whether the product may be computed beside `out` and copied there: into any other layout PyTorch may round
// differently, and sizes that do not fit or memory in common with an argument are its to refuse.
bool takes_product(const at::Tensor &out, const at::Tensor &mat1, const at::Tensor &mat2,
                   const at::Tensor *bias = nullptr)
{
    if (mat1.dim() != 2 || mat2.dim() != 2 || !swn_simple(out, mat2.scalar_type()) || !swn_plainly_laid_out(out) ||
        out.sizes() != at::IntArrayRef({mat1.size(0), mat2.size(1)}))
        return false;
    return !shares_memory(out, mat1) && !shares_memory(out, mat2) && !(bias && shares_memory(out, *bias));
}

// torch.compile's code has buffers for its results.
at::Tensor &addmm_out_kernel(const at::Tensor &self, const at::Tensor &mat1, const at::Tensor &mat2,
                             const at::Scalar &beta, const at::Scalar &alpha, at::Tensor &out)
{
    at::Tensor product;
    if (takes_product(out, mat1, mat2, &self))
        product = product_in_slices(&self, mat1, mat2, beta, alpha);
    return product.defined() ? at::native::copy_(out, product) : at::cpu::addmm_out(out, self, mat1, mat2, beta, alpha);
}

at::Tensor &mm_out_kernel(const at::Tensor &self, const at::Tensor &mat2, at::Tensor &out)
{
    at::Tensor product;
    if (takes_product(out, self, mat2))
        product = product_in_slices(nullptr, self, mat2, 1, 1);
    return product.defined() ? at::native::copy_(out, product) : at::cpu::mm_out(out, self, mat2);
}

at::Tensor addmv_kernel(const at::Tensor &self, const at::Tensor &mat, const at::Tensor &vec, const at::Scalar &beta,
                        const at::Scalar &alpha)
{
    at::Tensor out = vector_in_slices(&self, mat, vec, beta, alpha);
    return out.defined() ? out : at::cpu::addmv(self, mat, vec, beta, alpha);
}

at::Tensor mv_kernel(const at::Tensor &self, const at::Tensor &vec)
{
    at::Tensor out = vector_in_slices(nullptr, self, vec, 1, 1);
    return out.defined() ? out : at::native::mv(self, vec);
}

} // namespace

void swn_products_register(torch::Library &library)
{
    library.impl("addmm", addmm_kernel);
    library.impl("_addmm_activation", addmm_activation_kernel);
    library.impl("addmm.out", addmm_out_kernel);
    library.impl("mm", mm_kernel);
    library.impl("mm.out", mm_out_kernel);
    library.impl("addmv", addmv_kernel);
    library.impl("mv", mv_kernel);
}
