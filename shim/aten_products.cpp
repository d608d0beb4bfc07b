#include <ATen/Context.h>
#include <ATen/ops/addmm_cpu_dispatch.h>
#include <ATen/ops/from_blob.h>
#include <ATen/ops/mm_cpu_dispatch.h>

#include "aten_simple.h"
#include "aten_slices.h"

namespace
{

// mat1 times the transpose of a contiguous [n, k] weight, which is what `linear` comes to: a slice of rows of the
// weight gives a slice of columns of the result.
struct Product : swn_sliced {
    const at::Tensor *bias; // nullptr: none
    const at::Scalar beta, alpha;

    Product(const at::Tensor *bias_, const at::Tensor &mat1, const at::Tensor &mat2, const at::Scalar &beta_,
            const at::Scalar &alpha_)
        : swn_sliced(mat1, mat2, mat2.size(1), {mat1.size(0), mat2.size(1)}), bias(bias_), beta(beta_), alpha(alpha_)
    {
    }

    at::Tensor part_of(const at::Tensor &from, const void *rows_at, int64_t row, int64_t count) const override
    {
        at::Tensor slice = at::from_blob(const_cast<void *>(rows_at), {count, input.size(1)}, at::dtype(type)).t();
        if (!bias)
            return at::cpu::mm(from, slice);
        int64_t last = bias->dim() - 1;
        at::Tensor add = last >= 0 && bias->size(last) == rows ? bias->narrow(last, row, count) : *bias;
        return at::cpu::addmm(add, from, slice, beta, alpha);
    }

    std::vector<int64_t> key() const override
    {
        std::vector<int64_t> found = {0,
                                      input.size(0),
                                      input.size(1),
                                      rows,
                                      static_cast<int64_t>(type),
                                      bias ? bias->dim() : -1,
                                      at::globalContext().userEnabledMkldnn(),
                                      at::globalContext().deterministicAlgorithms()};
        if (bias) {
            found.push_back(bias->dim() && bias->size(-1) == rows);
            found.push_back(beta.toDouble() == 1 && alpha.toDouble() == 1);
        }
        return found;
    }
};

bool fits(const at::Tensor *bias, const at::Tensor &mat1, const at::Tensor &mat2)
{
    auto type = mat2.scalar_type();
    if (!swn_simple(mat1, type) || mat1.dim() != 2 || mat1.size(1) != mat2.size(0) || mat1.size(0) == 0)
        return false;
    if (!bias)
        return true;
    if (!swn_simple(*bias, type) || bias->dim() > 2)
        return false;
    int64_t m = mat1.size(0), n = mat2.size(1), d = bias->dim();
    return (d < 1 || bias->size(d - 1) == n || bias->size(d - 1) == 1) &&
           (d < 2 || bias->size(0) == m || bias->size(0) == 1);
}

// An undefined tensor where it has to be computed whole.
at::Tensor in_slices(const at::Tensor *bias, const at::Tensor &mat1, const at::Tensor &mat2, const at::Scalar &beta,
                     const at::Scalar &alpha)
{
    if (mat2.dim() != 2 || !swn_sliceable(mat2) || mat2.stride(0) != 1 || mat2.stride(1) != mat2.size(0) ||
        !fits(bias, mat1, mat2))
        return {};
    Product product(bias, mat1, mat2, beta, alpha);
    return swn_compute_in_slices(mat2, product);
}

at::Tensor addmm_kernel(const at::Tensor &self, const at::Tensor &mat1, const at::Tensor &mat2, const at::Scalar &beta,
                        const at::Scalar &alpha)
{
    at::Tensor out = in_slices(&self, mat1, mat2, beta, alpha);
    return out.defined() ? out : at::cpu::addmm(self, mat1, mat2, beta, alpha);
}

at::Tensor mm_kernel(const at::Tensor &self, const at::Tensor &mat2)
{
    at::Tensor out = in_slices(nullptr, self, mat2, 1, 1);
    return out.defined() ? out : at::cpu::mm(self, mat2);
}

} // namespace

void swn_products_register(torch::Library &library)
{
    library.impl("addmm", addmm_kernel);
    library.impl("mm", mm_kernel);
}
